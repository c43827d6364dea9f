package MaxAs::Reuse;
# Operand reuse flags: kept from the source (.reuse), or set where a register is read again in the same slot.
use strict;
use warnings;
use Exporter 'import';
our @EXPORT_OK = qw(set_reuse requested_reuse block_reuse mark_served phase_bits);

# The flags that say a texture fetch's phase, .T or .P. 128-bit words have the second in the third slot's flag.
sub phase_bits {
    my ($inst) = @_;
    my $phase = $inst->{phase} // 0;
    return $phase == 2 && $inst->{row}{class} eq 'texture' ? 4 : $phase;
}

# With -n: the flags the source asks for.
sub requested_reuse {
    my ($instructions) = @_;
    $_->{control}{reuse} = ($_->{asked_reuse} // 0) | phase_bits($_) for @$instructions;
    return;
}

# What identifies a register here: its number, or ~name while a pool register has none.
sub key {
    my ($arg, $registers) = @_;
    my $name = $arg->{name};
    return defined $name && $registers->{pool}{$name} && !defined $registers->number($name) ? "~$name" : $arg->{value};
}

# ([slot, keys] of the cacheable reads, {keys written}) of an instruction. The keys of a read are the registers it covers,
# joined by blanks: a double stays in the cache as a pair. Where no name waits for its number it is kept, as accesses are.
sub _touches {
    my ($inst, $registers) = @_;
    return @{ $inst->{uses}{touches} } if $inst->{uses}{touches};
    my (%written, @reads, $waits);
    for my $found (@{ $inst->{uses}{gprs} }) {
        my ($spec, $arg, $access, $count) = @$found;
        my $key = key($arg, $registers);
        my $named = $key =~ /^~/;
        $waits ||= $named;
        my @keys = $named ? $key : map { $key + $_ } 0 .. $count - 1;
        if    ($access =~ /w/)        { @written{@keys} = (1) x @keys }
        elsif (defined $spec->{slot}) { push @reads, [$spec->{slot}, "@keys"] }
    }
    $inst->{uses}{touches} = [\@reads, \%written] unless $waits;
    return (\@reads, \%written);
}

sub _is_written { my ($keys, $written) = @_; return scalar grep { $written->{$_} } split / /, $keys }

# Follows the last $depth registers read in each slot, the least recently read going first; with
# $skip_written what the instruction itself overwrites takes no place. Calls $visit->(inst, slot number,
# the entry [key, instruction that read it last] found for a read, or undef) for each read of each instruction. Labels and
# jumps empty the slots.
sub _walk {
    my ($items, $registers, $depth, $banks, $skip_written, $visit) = @_;
    my @slot = ([], [], []);
    for my $inst (@$items) {
        if ($inst->{type} eq 'label') { @slot = ([], [], []); next }
        next unless $inst->{type} eq 'instr';
        my ($reads, $written) = _touches($inst, $registers);
        for my $read (@$reads) {
            my ($number, $key) = @$read;
            my $entries = $slot[$number];
            my ($found) = grep { $_->[0] eq $key } @$entries;
            $visit->($inst, $number, $found);
            @$entries = grep { $_->[0] ne $key } @$entries;
            push @$entries, [$key, $inst] unless $skip_written && _is_written($key, $written);
            _forget($entries, $depth, $banks, $key);
        }
        for my $entries (@slot) { @$entries = grep { !_is_written($_->[0], $written) } @$entries }
        @slot = ([], [], []) if $inst->{row}{cls}{pipe} eq 'branch';
    }
    return;
}

# Keeps $depth entries of the bank that was just read.
sub _forget {
    my ($entries, $depth, $banks, $key) = @_;
    my ($bank) = $key =~ /^(\d+)/ ? $1 % $banks : 0;
    my @same = grep { ($_->[0] =~ /^(\d+)/ ? $1 % $banks : 0) == $bank } @$entries;
    shift @same while @same > $depth;
    @$entries = grep { my $e = $_; ($e->[0] =~ /^(\d+)/ ? $1 % $banks : 0) != $bank || grep { $_ == $e } @same } @$entries;
    return;
}

# A register that is read again in the slot: the flag of the read before. The dialect looks back over three registers of a
# slot, which is its rule for what it encodes and no claim about the cache: a flag on what the cache has lost does nothing.
my $CANDIDATES = 3;

sub set_reuse {
    my ($items, $registers) = @_;
    $_->{control}{reuse} = phase_bits($_) for grep { $_->{type} eq 'instr' } @$items;
    _walk($items, $registers, $CANDIDATES, 1, 1, sub {
        my (undef, $number, $found) = @_;
        $found->[1]{control}{reuse} |= 1 << $number if $found;
    });
    return;
}

# Where words are wide: in schedule blocks, whose order is not that of the source, its flags mean nothing. Instructions get
# theirs (unless not $wanted) where a later one of a block finds the register in the cache, which holds one of either bank, and
# nobody has written it: what the cache holds then is not looked at any more once the register is another.
sub block_reuse {
    my ($items, $registers, $table, $wanted) = @_;
    $_->{control}{reuse} = 0 for grep { $_->{in_block} } @$items;
    return unless $wanted;
    _walk($items, $registers, $table->{reuse_entries}, $table->{banks}, 1, sub {
        my ($inst, $number, $found) = @_;
        return unless $found && $inst->{in_block} && $found->[1]{in_block} && !defined $found->[1]{guard};
        my $control = $found->[1]{control};
        $control->{reuse} |= 1 << $number if $control->{stall} <= 2 && !$control->{yield};
    });
    return;
}

# Notes per instruction which slots find their register in the cache, which holds as many as the table says in each (of either bank,
# where the words are wide):
# { served => bits }.
sub mark_served {
    my ($items, $registers, $table) = @_;
    my $banks = $table->{word_bits} > 64 ? $table->{banks} : 1;
    $_->{served} = 0 for @$items;
    _walk($items, $registers, $table->{reuse_entries}, $banks, 0, sub {
        my ($inst, $number, $found) = @_;
        $inst->{served} |= 1 << $number if $found && $found->[1]{control}{reuse} >> $number & 1;
    });
    return;
}

1;
