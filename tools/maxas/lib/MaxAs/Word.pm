package MaxAs::Word;
# Words of 128 bits, as two halves, beside those of 64, which are plain numbers. `put` and `get` serve both: a table knows
# where its fields lie, and whoever combines bits with | need not know how long the word is.
use strict;
use warnings;
no warnings 'portable';
use Exporter 'import';
use overload '|' => \&_or, '&' => \&_and, '==' => \&_same, '!=' => sub { !_same(@_) }, 'bool' => sub { $_[0][0] || $_[0][1] };
our @EXPORT_OK = qw(put get put_field get_field word_of hex_of halves);

sub _halves { my ($x) = @_; return ref $x ? @$x : ($x, 0) }
sub halves { my ($x) = @_; return _halves($x) }
sub _or   { my @x = _halves($_[0]); my @y = _halves($_[1]); return bless [$x[0] | $y[0], $x[1] | $y[1]] }
sub _and  { my @x = _halves($_[0]); my @y = _halves($_[1]); return bless [$x[0] & $y[0], $x[1] & $y[1]] }
sub _same { my @x = _halves($_[0]); my @y = _halves($_[1]); return $x[0] == $y[0] && $x[1] == $y[1] }

# Hex digits to a word: a number, or two halves of more than 16 digits.
sub word_of {
    my ($hex) = @_;
    $hex =~ s/^0x//;
    return hex $hex if length $hex <= 16;
    return bless [hex(substr $hex, -16), hex(substr $hex, 0, -16)];
}

sub hex_of { my ($x) = @_; return ref $x ? sprintf '0x%016x%016x', reverse @$x : sprintf '0x%016x', $x }

# A value that is not negative to its place in a word.
sub put {
    my ($value, $lsb) = @_;
    return bless [0, $value << $lsb - 64] if $lsb > 63;
    return $value << $lsb if $lsb == 0 || $value >> 64 - $lsb == 0;
    return bless [$value << $lsb, $value >> 64 - $lsb];
}

sub get {
    my ($word, $lsb, $width) = @_;
    return $word >> $lsb & (1 << $width) - 1 unless ref $word;
    my ($low, $high) = @$word;
    my $bits = $lsb > 63 ? $high >> $lsb - 64 : $lsb ? $low >> $lsb | $high << 64 - $lsb : $low;
    return $width == 64 ? $bits : $bits & (1 << $width) - 1;
}

# The same for fields that may lie scattered: { lsb, width } or { pieces => [[lsb, width], ..] }, low-order bits first.
sub put_field {
    my ($field, $value) = @_;
    return put($value & (1 << $field->{width}) - 1, $field->{lsb}) unless $field->{pieces};
    my $word = 0;
    for my $piece (@{ $field->{pieces} }) {
        my ($lsb, $width) = @$piece;
        $word |= put($value & (1 << $width) - 1, $lsb);
        $value >>= $width;
    }
    return $word;
}

sub get_field {
    my ($field, $word) = @_;
    return get($word, $field->{lsb}, $field->{width}) unless $field->{pieces};
    my ($value, $at) = (0, 0);
    for my $piece (@{ $field->{pieces} }) {
        $value |= get($word, @$piece) << $at;
        $at += $piece->[1];
    }
    return $value;
}

1;
