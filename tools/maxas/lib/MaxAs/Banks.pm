package MaxAs::Banks;
# Register banks (number mod 4, or what the table says): choosing pool registers so that few instructions read one bank twice, and counting
# those that still do.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Depend qw(probe accesses);
use MaxAs::Fail qw(fail warn_at);
use MaxAs::Reuse qw(set_reuse requested_reuse mark_served);
our @EXPORT_OK = qw(assign_pools bank_report);

# Gives every pool register its number: requested banks first, then the most constrained registers, then the rest.
sub assign_pools {
    my ($items, $registers, $env, %opt) = @_;
    return unless @{ $registers->{pools} };
    my @code = grep { $_->{type} eq 'instr' } @$items;
    for my $inst (@code) { probe($inst, $registers, $env); accesses($inst, $registers) }
    $opt{no_reuse} || $env->{table}{word_bits} > 64 ? requested_reuse(\@code) : set_reuse($items, $registers);
    mark_served($items, $registers, $env->{table});
    my ($conflicts, $uses) = _conflicts(\@code, $registers);
    delete @{$_}{qw(row args mods accesses)} for @code;
    my $banks = $env->{table}{banks};
    _place($registers, $_, $registers->{bank}{$_}, 1, $banks) for sort keys %{ $registers->{bank} };
    my %open = map { $_ => 1 } grep { !defined $registers->number($_) } keys %{ $registers->{pool} };
    while (my ($name) = _most_constrained($registers, \%open, $conflicts, $uses, $banks)) {
        delete $open{$name};
        my $clash = _clashes($registers, $conflicts->{$name}, $banks);
        my @banks = sort { ($clash->{$a} // 0) <=> ($clash->{$b} // 0) || $a <=> $b } 0 .. $banks - 1;
        _place($registers, $name, $_, 0, $banks) and last for @banks;
    }
    for my $pool (@{ $registers->{pools} }) {
        $registers->assign($_, $pool->{free}[0]) for grep { !defined $registers->number($_) } @{ $pool->{names} };
    }
    return;
}

# How often each pool register is read in one instruction with each other register: { name => { key => count } }.
sub _conflicts {
    my ($code, $registers) = @_;
    my (%conflicts, %uses);
    for my $inst (@$code) {
        my %key = map { $_ => 1 } map { $_->[0] } grep { !$_->[1] } bank_reads($inst, $registers);
        for my $key (grep { /^~/ } keys %key) {
            my $name = substr $key, 1;
            $uses{$name}++;
            $conflicts{$name}{$_}++ for grep { $_ ne $key } keys %key;
        }
    }
    return (\%conflicts, \%uses);
}

# ([key, served from the reuse cache], ...) of the operands an instruction fetches from the register banks.
sub bank_reads {
    my ($inst, $registers) = @_;
    my @reads;
    for my $found (@{ $inst->{uses}{gprs} }) {
        my ($spec, $arg, $access) = @$found;
        next if !defined $spec->{slot} || $access =~ /w/;
        push @reads, [MaxAs::Reuse::key($arg, $registers), $inst->{served} ? $inst->{served} >> $spec->{slot} & 1 : 0];
    }
    return @reads;
}

# Reads per bank this register would share, given what is placed so far.
sub _clashes {
    my ($registers, $conflicts, $banks) = @_;
    my %clash;
    for my $key (keys %{ $conflicts // {} }) {
        my $n = $key =~ /^~(.*)/ ? $registers->number($1) : $key;
        $clash{ $n % $banks } += $conflicts->{$key} if defined $n;
    }
    return \%clash;
}

sub _most_constrained {
    my ($registers, $open, $conflicts, $uses, $banks) = @_;
    my @ranked = sort { $b->[1] <=> $a->[1] || $b->[2] <=> $a->[2] || $a->[0] cmp $b->[0] }
        map { [$_, scalar(keys %{ _clashes($registers, $conflicts->{$_}, $banks) }), $uses->{$_} // 0] }
        grep { $conflicts->{$_} } keys %$open;
    return map { $_->[0] } @ranked ? $ranked[0] : ();
}

sub _place {
    my ($registers, $name, $bank, $must, $banks) = @_;
    my $pool = $registers->{pool}{$name};
    my ($n) = grep { $_ % $banks == $bank } @{ $pool->{free} };
    if (!defined $n) {
        fail($pool->{at}, "no register of bank $bank left in the pool for '$name'") if $must;
        return 0;
    }
    return $registers->assign($name, $n);
}

# { conflicts, reads, served } of the final code, with a warning per conflict.
sub bank_report {
    my ($items, $registers, $table) = @_;
    mark_served($items, $registers, $table);
    my %report = (conflicts => 0, reads => 0, served => 0, instructions => 0);
    for my $inst (grep { $_->{type} eq 'instr' } @$items) {
        $report{instructions}++ unless $inst->{tail};
        my %bank;
        for my $read (bank_reads($inst, $registers)) {
            my ($n, $served) = @$read;
            $report{reads}++;
            $report{served} += $served;
            $bank{ $n % $table->{banks} }{$n} = 1 unless $served;
        }
        for my $crowded (sort grep { keys %{ $bank{$_} } > 1 } keys %bank) {
            my @numbers = sort { $a <=> $b } keys %{ $bank{$crowded} };
            $report{conflicts} += @numbers - 1;
            warn_at($inst->{at}, "bank conflict: $inst->{written} reads " . join(', ', map { "R$_" } @numbers) . " from bank $crowded");
        }
    }
    return \%report;
}

1;
