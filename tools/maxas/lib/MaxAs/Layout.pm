package MaxAs::Layout;
# Where instructions lie, the tail every kernel ends with, and the final words. Words of 64 bits come in groups of one control
# word and three instructions; those of 128 have the control code inside and lie one behind the other ($wide).
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Control qw(pack_control);
use MaxAs::Encode qw(encode);
use MaxAs::Fail qw(fail);
use MaxAs::Word qw(put halves);
our @EXPORT_OK = qw(address_of target_of label_addresses encode_all code_bytes tail_items);

# A branch to itself and padding: what follows the last EXIT. Control fields as the vendor's compiler writes them.
my %SELF = (stall => 15, yield => 0, write => 7, read => 7, wait => 0, reuse => 0);
my %PAD  = (stall => 0, yield => 1, write => 7, read => 7, wait => 0, reuse => 0);
my ($PER_BLOCK, $WIDE_BLOCK) = (6, 8);    # instructions in 64 bytes, in 128: what a kernel is a multiple of
my $CONTROL_LSB = 105;                    # of the control code inside a wide word

sub address_of {
    my ($index, $wide) = @_;
    return $wide ? 16 * $index : int($index / 3) * 32 + 8 + $index % 3 * 8;
}

# A label in front of the first instruction of a group names the group's control word, as the vendor's compiler has
# it, or that instruction ($style 'instruction').
sub target_of {
    my ($index, $style, $wide) = @_;
    my $address = address_of($index, $wide);
    return $index % 3 == 0 && !$wide && $style ne 'instruction' ? $address - 8 : $address;
}

sub label_addresses {
    my ($items, $style, $wide) = @_;
    my ($index, %label) = (0);
    for my $item (@$items) {
        if ($item->{type} eq 'label') {
            fail($item->{at}, "label '$item->{name}' defined twice") if exists $label{ $item->{name} };
            $label{ $item->{name} } = target_of($index, $style, $wide);
        }
        elsif ($item->{type} eq 'instr') { $index++ }
    }
    return \%label;
}

sub tail_items {
    my ($count, $style, $wide) = @_;
    my $at = { file => 'tail', line => 0, text => '' };
    my $make = sub {
        my ($opcode, $operands, $control) = @_;
        return { type => 'instr', at => $at, opcode => $opcode, written => $opcode, operands => $operands, phase => 0,
            control => {%$control}, tail => 1 };
    };
    my @tail = $make->('BRA', [sprintf '0x%x', target_of($count, $style, $wide)], $wide ? \%PAD : \%SELF);
    push @tail, $make->('NOP', [], \%PAD) while ($count + @tail) % ($wide ? $WIDE_BLOCK : $PER_BLOCK);
    return @tail;
}

# Words of all instructions, in place, unless MaxAs::Depend::probe has found them. $env as Encode wants it, without `address`.
sub encode_all {
    my ($instructions, $env) = @_;
    my $index = 0;
    for my $inst (@$instructions) {
        $inst->{address} = address_of($index++, $env->{table}{word_bits} > 64);
        if (defined $inst->{found_word}) { @{$inst}{ 'word', keys %{ $inst->{found} } } = ($inst->{found_word}, values %{ $inst->{found} }) }
        else                             { $inst->{word} = encode($inst, { %$env, address => $inst->{address} }) }
    }
    return;
}

sub code_bytes {
    my ($instructions, $wide) = @_;
    my $out = '';
    if ($wide) {
        $out .= pack 'Q<2', halves($_->{word} | put(pack_control($_->{control}), $CONTROL_LSB)) for @$instructions;
        return $out;
    }
    for (my $i = 0; $i < @$instructions; $i += 3) {
        my @group = @{$instructions}[$i .. $i + 2];
        my $control = 0;
        $control |= pack_control($group[$_]{control}) << 21 * $_ for 0 .. 2;
        $out .= pack 'Q<4', $control, map { $_->{word} } @group;
    }
    return $out;
}

1;
