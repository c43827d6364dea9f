package MaxAs::Reuse;
# Operand reuse flags: kept from the source (.reuse), or set where a register is read again in the same slot.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Access qw(gpr_operands register_count);
our @EXPORT_OK = qw(set_reuse requested_reuse);

my $DEPTH = 3;    # registers remembered per slot

# With -n: the flags the source asks for.
sub requested_reuse {
    my ($instructions) = @_;
    $_->{control}{reuse} = ($_->{asked_reuse} // 0) | ($_->{phase} // 0) for @$instructions;
    return;
}

# Walks the code. Per slot, remembers the registers read there and by whom; a second read sets the flag of the first
# reader. A write forgets the register; a label or a jump forgets everything.
sub set_reuse {
    my ($items) = @_;
    my @slot = ([], [], []);
    for my $inst (@$items) {
        if ($inst->{type} eq 'label') { @slot = ([], [], []); next }
        next unless $inst->{type} eq 'instr';
        $inst->{control}{reuse} = $inst->{phase} // 0;
        my (%written, @reads);
        for my $found (gpr_operands($inst)) {
            my ($spec, $arg, $access) = @$found;
            my $count = register_count($inst, $spec);
            if ($access =~ /w/) { $written{ $arg->{value} + $_ } = 1 for 0 .. $count - 1 }
            elsif (defined $spec->{slot}) { push @reads, [$spec->{slot}, $arg->{value}] }
        }
        _read($slot[ $_->[0] ], $_, $inst, \%written) for @reads;
        _forget($_, \%written) for @slot;
        @slot = ([], [], []) if $inst->{row}{cls}{pipe} eq 'branch';
    }
    return;
}

sub _read {
    my ($slot, $read, $inst, $written) = @_;
    my ($number, $register) = @$read;
    my @others;
    for my $entry (@$slot) {
        if ($entry->[0] == $register) { $entry->[1]{control}{reuse} |= 1 << $number }
        else { push @others, $entry }
    }
    push @others, [$register, $inst] unless $written->{$register};
    shift @others while @others > $DEPTH;
    @$slot = @others;
    return;
}

sub _forget {
    my ($slot, $written) = @_;
    @$slot = grep { !$written->{ $_->[0] } } @$slot;
    return;
}

1;
