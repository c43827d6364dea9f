package MaxAs::Layout;
# Where instructions lie: groups of one control word and three instructions, the tail every kernel ends with, and the
# final words.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Control qw(pack_control);
use MaxAs::Encode qw(encode);
use MaxAs::Fail qw(fail);
our @EXPORT_OK = qw(address_of target_of label_addresses encode_all code_bytes tail_items);

# A branch to itself and padding: what follows the last EXIT. Control fields as the vendor's compiler writes them.
my %SELF = (stall => 15, yield => 0, write => 7, read => 7, wait => 0, reuse => 0);
my %PAD  = (stall => 0, yield => 1, write => 7, read => 7, wait => 0, reuse => 0);
my $PER_BLOCK = 6;    # instructions in 64 bytes, which a kernel is a multiple of

sub address_of { my ($index) = @_; return int($index / 3) * 32 + 8 + $index % 3 * 8 }

# A label in front of the first instruction of a group names the group's control word, as the vendor's compiler has
# it, or that instruction ($style 'instruction').
sub target_of {
    my ($index, $style) = @_;
    my $address = address_of($index);
    return $index % 3 == 0 && $style ne 'instruction' ? $address - 8 : $address;
}

sub label_addresses {
    my ($items, $style) = @_;
    my ($index, %label) = (0);
    for my $item (@$items) {
        if ($item->{type} eq 'label') {
            fail($item->{at}, "label '$item->{name}' defined twice") if exists $label{ $item->{name} };
            $label{ $item->{name} } = target_of($index, $style);
        }
        elsif ($item->{type} eq 'instr') { $index++ }
    }
    return \%label;
}

sub tail_items {
    my ($count, $style) = @_;
    my $at = { file => 'tail', line => 0, text => '' };
    my $make = sub {
        my ($opcode, $operands, $control) = @_;
        return { type => 'instr', at => $at, opcode => $opcode, written => $opcode, operands => $operands, phase => 0,
            control => {%$control}, tail => 1 };
    };
    my @tail = $make->('BRA', [sprintf '0x%x', target_of($count, $style)], \%SELF);
    push @tail, $make->('NOP', [], \%PAD) while ($count + @tail) % $PER_BLOCK;
    return @tail;
}

# Words of all instructions, in place. $env as Encode wants it, without `address`.
sub encode_all {
    my ($instructions, $env) = @_;
    my $index = 0;
    for my $inst (@$instructions) {
        $inst->{address} = address_of($index++);
        $inst->{word} = encode($inst, { %$env, address => $inst->{address} });
    }
    return;
}

sub code_bytes {
    my ($instructions) = @_;
    my $out = '';
    for (my $i = 0; $i < @$instructions; $i += 3) {
        my @group = @{$instructions}[$i .. $i + 2];
        my $control = 0;
        $control |= pack_control($group[$_]{control}) << 21 * $_ for 0 .. 2;
        $out .= pack 'Q<4', $control, map { $_->{word} } @group;
    }
    return $out;
}

1;
