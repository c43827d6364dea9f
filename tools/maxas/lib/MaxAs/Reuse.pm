package MaxAs::Reuse;
# Operand reuse flags: kept from the source (.reuse), or set where a register is read again in the same slot.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Access qw(gpr_operands register_count);
our @EXPORT_OK = qw(set_reuse requested_reuse mark_served);

my $DEPTH = 3;    # registers remembered per slot

# With -n: the flags the source asks for.
sub requested_reuse {
    my ($instructions) = @_;
    $_->{control}{reuse} = ($_->{asked_reuse} // 0) | ($_->{phase} // 0) for @$instructions;
    return;
}

# What identifies a register here: its number, or ~name while a pool register has none.
sub key {
    my ($arg, $registers) = @_;
    my $name = $arg->{name};
    return defined $name && $registers->{pool}{$name} && !defined $registers->number($name) ? "~$name" : $arg->{value};
}

# ([slot, keys] of the cacheable reads, {keys written}) of an instruction. The keys of a read are the registers it covers,
# joined by blanks: a double stays in the cache as a pair.
sub _touches {
    my ($inst, $registers) = @_;
    my (%written, @reads);
    for my $found (gpr_operands($inst)) {
        my ($spec, $arg, $access) = @$found;
        my $key = key($arg, $registers);
        my @keys = $key =~ /^~/ ? $key : map { $key + $_ } 0 .. register_count($inst, $spec) - 1;
        if    ($access =~ /w/)        { @written{@keys} = (1) x @keys }
        elsif (defined $spec->{slot}) { push @reads, [$spec->{slot}, "@keys"] }
    }
    return (\@reads, \%written);
}

sub _is_written { my ($keys, $written) = @_; return scalar grep { $written->{$_} } split / /, $keys }

# Calls $visit->(inst, slot state, reads, written) for each instruction; labels and jumps empty the slots.
sub _walk {
    my ($items, $registers, $visit) = @_;
    my @slot = ([], [], []);
    for my $inst (@$items) {
        if ($inst->{type} eq 'label') { @slot = ([], [], []); next }
        next unless $inst->{type} eq 'instr';
        my ($reads, $written) = _touches($inst, $registers);
        $visit->($inst, \@slot, $reads, $written);
        for my $entries (@slot) { @$entries = grep { !_is_written($_->[0], $written) } @$entries }
        @slot = ([], [], []) if $inst->{row}{cls}{pipe} eq 'branch';
    }
    return;
}

# Per slot, remembers the registers read there and by whom; a second read sets the flag of the first reader.
sub set_reuse {
    my ($items, $registers) = @_;
    $_->{control}{reuse} = $_->{phase} // 0 for grep { $_->{type} eq 'instr' } @$items;
    _walk($items, $registers, sub {
        my ($inst, $slot, $reads, $written) = @_;
        for my $read (@$reads) {
            my ($number, $key) = @$read;
            my $entries = $slot->[$number];
            $_->[1]{control}{reuse} |= 1 << $number for grep { $_->[0] eq $key } @$entries;
            @$entries = grep { $_->[0] ne $key } @$entries;
            push @$entries, [$key, $inst] unless _is_written($key, $written);
            shift @$entries while @$entries > $DEPTH;
        }
    });
    return;
}

# Notes per instruction which slots find their register in the cache: { served => bits }.
sub mark_served {
    my ($items, $registers) = @_;
    _walk($items, $registers, sub {
        my ($inst, $slot, $reads) = @_;
        $inst->{served} = 0;
        for my $read (@$reads) {
            my ($number, $key) = @$read;
            my $entries = $slot->[$number];
            $inst->{served} |= 1 << $number if grep { $_->[0] eq $key } @$entries;
            @$entries = grep { $_->[0] ne $key } @$entries;
            push @$entries, [$key] if $inst->{control}{reuse} >> $number & 1;
            shift @$entries while @$entries > $DEPTH;
        }
    });
    return;
}

1;
