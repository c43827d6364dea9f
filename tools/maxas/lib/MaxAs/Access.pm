package MaxAs::Access;
# What an encoded instruction reads and writes, by the table's "access" and "regs"; and what a kernel needs because of it.
use strict;
use warnings;
use Exporter 'import';
use List::Util qw(sum0);
use MaxAs::Fail qw(fail fail_plain warn_at);
use MaxAs::Hopper qw(barrier_attributes reallocated_registers);
our @EXPORT_OK = qw(gpr_operands register_count predicates uniforms carry check_controls check_shared resources reads_constant is_store);

use constant { RZ => 255, URZ => 63, PT => 7, NONE => 7 };
my $RESERVED = 2;    # registers beyond a kernel's own that newer architectures want counted

# How many consecutive registers an operand covers (0: it is not looked at). The table's rule is a number, a list to be
# added up, the count of bits of another operand, or a choice by a modifier or operand.
sub register_count {
    my ($inst, $spec) = @_;
    return _count($inst, $spec->{regs} // 1);
}

sub _count {
    my ($inst, $rule) = @_;
    return $rule unless ref $rule;
    return sum0(map { _count($inst, $_) } @$rule) if ref $rule eq 'ARRAY';
    if (my $name = $rule->{popcount}) { return (sprintf '%b', $inst->{args}{$name}{imm} // 0) =~ tr/1// || 1 }
    my $by = $inst->{mods}{ $rule->{by} } // $inst->{args}{ $rule->{by} }{value} // 0;
    return $rule->{each} * ($by + 1) if $rule->{each};
    return _count($inst, $rule->{map}{$by} // $rule->{default} // 1);
}

my %PAIR = map { $_ => 1 } qw(cx rel_register);    # a uniform register in it is the first of two
my %HOLDS_REGISTER = map { $_ => 1 } qw(gpr addr cbank_indexed gpr_plus_simm implied_next_gpr);

# ([spec, arg, access, how many registers], ...) of the register operands that are not RZ. Address registers are read,
# whatever the row is. Encoding keeps it in `uses`, as {gprs}, since every pass asks.
sub gpr_operands {
    my ($inst) = @_;
    my @found;
    for my $spec (@{ $inst->{row}{operands} }) {
        next unless $HOLDS_REGISTER{ $spec->{type} };
        my $arg = $spec->{type} eq 'implied_next_gpr' ? _implied($inst, $spec) : $inst->{args}{ $spec->{name} };
        next if !$arg || $arg->{value} == RZ;
        push @found, [$spec, $arg, $spec->{type} =~ /^(?:gpr|implied_next_gpr)$/ ? $spec->{access} : 'r',
            register_count($inst, $spec)];
    }
    return @found;
}

sub _implied {
    my ($inst, $spec) = @_;
    my $of = $inst->{args}{ $spec->{of} };
    return if $of->{value} == RZ;
    my $step = $spec->{step}{map}{ $inst->{mods}{ $spec->{step}{sel} } } // 1;
    return { value => $of->{value} + $step, of => $of, step => $step };
}

# ({predicates read}, {predicates written}) by name, the guard included, PT and UPT never.
sub predicates {
    my ($inst) = @_;
    my (%read, %write);
    $read{$1} = 1 if ($inst->{guard} // '') =~ /(U?P[0-6])/;
    for my $spec (grep { $_->{type} =~ /^u?pred$/ } @{ $inst->{row}{operands} }) {
        my $n = $inst->{args}{ $spec->{name} }{value};
        next if $n == PT;
        my $name = ($spec->{type} eq 'upred' ? 'UP' : 'P') . $n;
        $read{$name}  = 1 if $spec->{access} =~ /r/;
        $write{$name} = 1 if $spec->{access} =~ /w/;
    }
    my ($set) = grep { defined } map { $inst->{args}{$_} } qw(src dst);
    if ($set && ($set->{text} // '') eq 'PR' || grep { $_->{type} eq 'literal' && $_->{text} eq 'PR' } @{ $inst->{row}{operands} }) {
        my $mask = $inst->{args}{b}{imm};
        my @named = map { "P$_" } grep { !defined $mask || $mask >> $_ & 1 } 0 .. 6;
        if ($inst->{row}{op} eq 'R2P') { @write{@named} = (1) x @named }
        else                           { @read{@named}  = (1) x @named }
    }
    return (\%read, \%write);
}

# ([number, access], ...) of the uniform registers, URZ never.
sub uniforms {
    my ($inst) = @_;
    my @found;
    for my $spec (@{ $inst->{row}{operands} }) {
        my ($first, $count, $access);
        if ($spec->{type} eq 'ugpr') {
            ($first, $count, $access) = ($inst->{args}{ $spec->{name} }{value}, register_count($inst, $spec), $spec->{access});
        }
        elsif (my $base = $inst->{args}{"$spec->{name}.uniform"}) {
            ($first, $count, $access) = ($base->{value}, $spec->{desc} || defined $spec->{suffix} || $PAIR{ $spec->{type} } || ($spec->{type} eq 'cbank_indexed' && !$spec->{bank}) ? 2 : 1, 'r');
        }
        push @found, map { [$_, $access] } $first .. $first + $count - 1 if defined $first && $first != URZ;
    }
    return @found;
}

# (reads the condition code, writes it)
sub carry {
    my ($inst) = @_;
    my ($row, $read, $write) = ($inst->{row}, 0, 0);
    for my $name (keys %{ $row->{modifiers} }) {
        my $text = $row->{modifiers}{$name}{values}{ $inst->{mods}{$name} // 0 } // '';
        $read = 1 if $text =~ /^\.(?:X|XLO|XMED|XHI)$/;
    }
    for my $spec (@{ $row->{operands} }) {
        my $arg = $inst->{args}{ $spec->{name} };
        $write = 1 if $arg && $arg->{cc};
        $read  = 1 if $spec->{type} eq 'cc_test' && $arg && $arg->{value} != 15;
        $read  = 1 if $spec->{type} eq 'literal' && $spec->{text} eq 'CC';
        next unless $spec->{type} eq 'enum' && $arg && ($arg->{text} // '') eq 'CC';
        if ($row->{op} eq 'R2P') { $write = 1 } else { $read = 1 }
    }
    return ($read, $write);
}

sub reads_constant { my ($inst) = @_; return scalar grep { defined $_->{bank} } values %{ $inst->{args} } }

# Stores and reductions: an address and nothing written.
sub is_store {
    my ($inst) = @_;
    my $operands = $inst->{row}{operands};
    return 0 unless grep { $_->{type} eq 'addr' } @$operands;
    return !grep { $_->{access} =~ /w/ } @$operands;
}

# Control codes the hardware cannot honour.
sub check_controls {
    for my $inst (@_) {
        my $control = $inst->{control};
        fail($inst->{at}, "$inst->{opcode}: a stall above 11 goes with Y")
            if ref $inst->{word} && $control->{stall} > 11 && !$control->{yield};
        fail($inst->{at}, "$inst->{opcode}: a write barrier on a store, which writes no register and would never release it")
            if $control->{write} != NONE && is_store($inst);
    }
    return;
}

# Shared memory that nothing declares is none: what is loaded and stored there goes astray.
sub check_shared {
    my ($kernel, @instructions) = @_;
    return if defined $kernel->{shared};
    my ($user) = grep { $_->{row}{op} =~ /^(?:LDS|STS|LDSM|STSM|ATOMS|LDGSTS|SYNCS|ARRIVES|UBLKCP|UBLKRED)$/ } @instructions;
    fail($user->{at}, "$user->{opcode}: kernel '$kernel->{name}' has no shared memory: say how many bytes in '# SharedSize: bytes'"
        . ' (0 if a launch gives it all)') if $user;
    return;
}

# Registers, barriers, exits, block-index reads and reconvergence points of a kernel, into the kernel.
sub resources {
    my ($kernel, $instructions) = @_;
    my ($top, $bars, @exits, @ctaids, @reconvergences) = (-1, 0);
    $kernel->{accelerated} = 1 if grep { $_->{row}{accelerated} } @$instructions;
    for my $inst (@$instructions) {
        for my $found (@{ $inst->{uses}{gprs} }) {
            my (undef, $arg, undef, $count) = @$found;
            next unless $count;
            my $last = $arg->{value} + $count - 1;
            fail($inst->{at}, "$inst->{opcode}: needs $count registers from R$arg->{value} on: more than 255 registers") if $last > 254;
            my $aligned = $count % 4 ? $count % 2 ? 1 : 2 : 4;
            warn_at($inst->{at}, "$inst->{opcode}: R$arg->{value} is no multiple of $aligned, as $count registers in a row should be")
                if $inst->{row}{class} ne 'tex' && $arg->{value} % $aligned;
            $top = $last if $last > $top;
        }
        my $op = $inst->{row}{op};
        if ($op eq 'BAR' && (my $bar = $inst->{args}{bar} // $inst->{args}{imm})) {
            my $need = defined $bar->{imm} ? ($bar->{imm} & 15) + 1 : 16;
            $bars = $need if $need > $bars;
        }
        push @exits, $inst->{address} if $op eq 'EXIT';
        push @reconvergences, $inst->{address} if $op eq 'NOP' && $kernel->{sm} >= 70 && $inst->{control}{stall};
        my $sr = $op eq 'S2R' && $kernel->{sm} < 70 ? $inst->{args}{sr}{value} : 0;
        push @ctaids, $inst->{address} if $sr >= 0x25 && $sr <= 0x27;
        $kernel->{ctaidz} = 1 if $sr == 0x27;
    }
    my $least = $kernel->{min_registers} // 0;
    my $used = $top + 1 + $RESERVED * ($kernel->{sm} >= 70);
    fail_plain("kernel $kernel->{name} has registers up to R$top: with the $RESERVED that the system takes more than 255")
        if $used > 255;
    my $given = reallocated_registers($kernel, @$instructions);    # of which warps have more later
    $kernel->{registers_used} = $given // ($used > $least ? $used : $least);
    $kernel->{reallocates} = defined $given;
    $kernel->{barrier_attributes} = [barrier_attributes(@$instructions)];
    $kernel->{barriers} = $bars > ($kernel->{min_barriers} // 0) ? $bars : $kernel->{min_barriers} // 0;
    $kernel->{exits}  = \@exits;
    $kernel->{ctaids} = \@ctaids;
    $kernel->{reconvergences} = \@reconvergences;
    return;
}

1;
