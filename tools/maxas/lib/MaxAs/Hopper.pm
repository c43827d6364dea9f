package MaxAs::Hopper;
# What the container of a kernel of sm_90 says of instructions that no older architecture has: barriers in shared memory,
# for the tools that look into a program, and the reallocation of registers.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Fail qw(fail warn_at);
use MaxAs::Word qw(get);
our @EXPORT_OK = qw(barrier_attributes reallocated_registers);

use constant { BARRIER_COUNT => 0x38, BARRIER_INSTRUCTIONS => 0x39, RZ => 255 };
my ($FEWEST, $MOST) = (24, 240);    # registers that a warp may have, by eights (PTX: setmaxnreg)

# The kinds of instruction that the toolkit 12.9 tells apart, by row; it tells nothing of an arrival that announces bytes.
my %ARRIVAL = ('.A1T0' => 1, '.ART0' => 1, '.A0TR' => 11, '.A0TX' => 12);
my %KIND = (
    syncs_uniform_exch_ => sub { 0 },
    syncs_arrive_ => sub { my ($mod) = @_; $mod->('drop') ? 3 : $mod->('how') eq '.TMASK' ? 2 : $ARRIVAL{ $mod->('op') } },
    syncs_phasechk_ => sub { my ($mod) = @_; $mod->('try') ? 10 : 6 },    # by parity: nothing tells it from by state
    arrives_ => sub { 7 },
    syncs_cctl_ => sub { my ($mod) = @_; $mod->('how') eq '.IV' ? 8 : undef },
);

# [code, format, value] of the attributes about instructions that touch such barriers; none without any.
sub barrier_attributes {
    my ($entries, $count) = ('', 0);
    for my $inst (@_) {
        my $row = $inst->{row};
        my $kind = $KIND{ $row->{name} // '' } or next;
        my $number = $kind->(sub { $row->{modifiers}{ $_[0] }{values}{ $inst->{mods}{ $_[0] } } });
        next unless defined $number;
        $count++ if $number == 0;
        my ($base, $uniform) = map { $inst->{args}{$_}{value} // RZ } 'addr', 'addr.uniform';
        my $offset = get($inst->{word}, 40, 24);
        $offset -= 1 << 24 if $offset >> 23;
        $entries .= pack 'L<L<l<CCCC', $inst->{address}, $base, $offset, $number, 1, $uniform, 0;
    }
    return length $entries ? ([BARRIER_INSTRUCTIONS, 4, $entries], [BARRIER_COUNT, 3, $count]) : ();
}

# The registers that a launch gives each thread of a kernel whose warps change that; undef where none does.
sub reallocated_registers {
    my ($kernel, @instructions) = @_;
    my @changes = grep { $_->{row}{op} eq 'USETMAXREG' } @instructions or return undef;
    for my $inst (@changes) {
        my $n = $inst->{args}{n}{imm};
        warn_at($inst->{at}, "$inst->{opcode}: $n registers: should be a multiple of 8 from $FEWEST to $MOST")
            if defined $n && ($n % 8 || $n < $FEWEST || $n > $MOST);
    }
    my $given = $kernel->{max_registers} // fail($changes[0]{at},
        "$changes[0]{opcode}: kernel '$kernel->{name}' must say how many registers a launch gives each thread: '# MaxRegs: count'");
    fail($changes[0]{at}, "# MaxRegs: $given: must be a multiple of 8 where $changes[0]{opcode} changes the count") if $given % 8;
    return $given;
}

1;
