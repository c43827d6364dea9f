package MaxAs::CODE;
# The package embedded Perl runs in. Kept first in this file, so that no lexical of ours is visible to it.
sub value_of { local ($@, $_); return scalar eval "no strict; no warnings; package MaxAs::CODE; $_[0]" }

package MaxAs::Immediate;
# Numbers as the dialect writes them: decimal, hex, NxEXPR in angle brackets, and floats to their bit patterns.
use strict;
use warnings;
no warnings 'portable';    # 64-bit hex is meant
use Exporter 'import';
our @EXPORT_OK = qw(integer perl_allowed with_globals float_bits double_bits half_bits brain_bits hex_text float_text double_text half_text);

my $TOKEN = qr/\s*(0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?|\$\w+|\*\*|<<|>>|[-+*\/%()&|^~])/;

# The integer a text stands for; dies with a plain string if it is none.
sub integer {
    my ($text) = @_;
    return _number($text) if $text =~ /^[-+]?(?:0[xX][0-9a-fA-F]+|\d+)$/;
    return $1 * expression($2) if $text =~ /^(-?\d+)\s*x\s*<(.*)>$/;
    die "'$text' is not an integer\n";
}

sub _number {
    my ($text) = @_;
    my $sign = $text =~ s/^([-+])// && $1 eq '-' ? -1 : 1;
    if ($text =~ /^0[xX](.*)$/) {
        my $digits = $1;
        $digits =~ s/^0+(?=.)//;
        die "'$text' does not fit 64 bits\n" if length $digits > 16;
        return $sign * hex $digits if $sign > 0 || length $digits < 16;
        die "'-$text' does not fit 64 bits\n";
    }
    $text =~ s/^0+(?=.)//;
    die "'$text' does not fit 64 bits\n" if length $text > 18;
    return $sign * $text;
}

my $perl_allowed = 1;    # in expressions; --no-code takes arithmetic only
sub perl_allowed { ($perl_allowed) = @_; return }

# What NxEXPR has in its brackets: any Perl expression over the $names that code or -D set, unset ones counting as 0. Numbers
# are decimal whatever zeros they begin with.
sub expression {
    my ($text) = @_;
    my $safe = $perl_allowed ? $text =~ s/(?<![\w.\$])0+(?=\d)//gr : _arithmetic($text);
    my $value = $perl_allowed ? MaxAs::CODE::value_of($safe) : do { no warnings; local $@; eval $safe };
    die "expression '$text' cannot be computed\n" unless defined $value && "$value" =~ /^-?\d+(?:\.\d+)?(?:e[+-]?\d+)?$/i && abs($value) < 2**63;
    return int $value;
}

# The same text with its $names filled in; only these tokens ever reach eval.
sub _arithmetic {
    my ($text) = @_;
    my $safe = '';
    pos($text) = 0;
    while ($text =~ /\G$TOKEN/gc) {
        my $token = $1;
        if ($token =~ /^\$(\w+)/) { $safe .= ' (' . _global($1) . ')' }
        elsif ($token =~ /^\d/ && $token !~ /^0[xX]|\./) { $safe .= ' ' . _number($token) }
        elsif ($token =~ /^0[xX]/) { $safe .= ' ' . _number($token) }
        else { $safe .= " $token" }
    }
    die "expression '$text' makes no sense at '" . substr($text, pos($text) // 0) . "' (with --no-code arithmetic only)\n"
        unless $text =~ /\G\s*$/gc;
    return $safe;
}

# Expressions over $names replaced by their values, so that the text means the same elsewhere.
sub with_globals {
    my ($text) = @_;
    $text =~ s/(-?\d+)\s*x\s*<([^;]*?)>(?=\s*(?:[,\].]|$))/my ($n, $e) = ($1, $2); $e =~ m{^[\s\d*+()%-]*$} ? "${n}x<$e>" : $n * expression($e)/ge;
    return $text;
}

sub _global {
    my ($name) = @_;
    no strict 'refs';
    my $value = ${"MaxAs::CODE::$name"};
    return 0 unless defined $value;
    die "\$$name is '$value', not a number\n" unless $value =~ /^\s*-?(?:0[xX][0-9a-fA-F]{1,15}|\d{1,18})\s*$/;
    $value =~ s/\s+//g;
    return _number($value);
}

my $FLOAT = qr/^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d{1,4})?$/;

sub _real {
    my ($text, $hex_digits) = @_;
    if ($text =~ /^([-+]?)0[xX]([0-9a-fA-F]+)$/) {
        die "'$text': a bit pattern takes no sign\n" if $1 eq '-';
        my $digits = $2;
        $digits =~ s/^0+(?=.)//;
        die "'$text' has more than $hex_digits hex digits\n" if length $digits > $hex_digits;
        return (hex $digits, 1);
    }
    return (-9**9**9, 0) if $text =~ /^-INF$/i;
    return (9**9**9, 0)  if $text =~ /^\+?INF$/i;
    return ($1 * expression($2), 0) if $text =~ /^(-?\d+)\s*x\s*<(.*)>$/;
    die "'$text' is not a number\n" unless $text =~ $FLOAT;
    return (0 + $text, 0) unless $text =~ /^-[0.]+(?:[eE].*)?$/;
    return (-0.0, 0);
}

# Bit patterns of float32, float64, float16.
sub float_bits {
    my ($text) = @_;
    return _nan($text, 0x7fffffff, 31, 0x7fbfffff) if $text =~ /NAN$/i;
    my ($value, $raw) = _real($text, 8);
    return $value if $raw;
    my $bits = unpack 'V', pack 'f<', $value;
    die "'$text' does not fit a 32-bit float\n" if ($bits & 0x7fffffff) == 0x7f800000 && $text !~ /INF/i;
    return $text =~ /^-/ ? $bits | 0x80000000 : $bits;
}

sub double_bits {
    my ($text) = @_;
    return _nan($text, 0x7fffffffffffffff, 63, 0x7ff7ffffffffffff) if $text =~ /NAN$/i;
    my ($value, $raw) = _real($text, 16);
    return $value if $raw;
    my $bits = unpack 'Q<', pack 'd<', $value;
    return $text =~ /^-/ ? $bits | 1 << 63 : $bits;
}

sub _nan {
    my ($text, $quiet, $sign_bit, $signalling) = @_;
    die "'$text' is not a number\n" unless $text =~ /^([-+]?)([QS]?)NAN$/i;
    my ($sign, $kind) = ($1, uc $2);
    return ($kind eq 'S' ? $signalling : $quiet) | ($sign eq '-' ? 1 << $sign_bit : 0);
}

# Exact where the value is a float16; else rounded towards zero.
sub half_bits {
    my ($text) = @_;
    return _nan($text, 0x7fff, 15, 0x7dff) if $text =~ /NAN$/i;
    my ($value, $raw) = _real($text, 4);
    return $value if $raw;
    my $bits = float_bits($text);
    my $sign = $bits >> 16 & 0x8000;
    my $exp  = ($bits >> 23 & 255) - 112;
    my $frac = $bits & 0x7fffff;
    return $sign | 0x7c00 if $exp >= 31 && $text =~ /INF/i;
    die "'$text' does not fit a 16-bit float\n" if $exp >= 31;
    return $sign | $exp << 10 | $frac >> 13 if $exp > 0;
    return $sign if $exp < -10;
    return $sign | ($frac | 0x800000) >> 14 - $exp;
}

# Those of bfloat16, the upper half of a float32; rounded like half_bits.
sub brain_bits {
    my ($text) = @_;
    return _nan($text, 0x7fff, 15, 0x7fbf) if $text =~ /NAN$/i;
    my ($value, $raw) = _real($text, 4);
    return $raw ? $value : float_bits($text) >> 16;
}

sub hex_text {
    my ($value) = @_;
    return $value < 0 ? sprintf('-0x%x', -$value) : sprintf('0x%x', $value);
}

# Decimal text that reads back as the same bits.
sub float_text {
    my ($bits) = @_;
    my $special = _special($bits, $bits >> 31, ($bits >> 23 & 255) == 255, $bits & 0x7fffff, $bits >> 22 & 1);
    return $special if defined $special;
    my $value = unpack 'f<', pack 'V', $bits;
    return _shortest($value, $bits >> 31, sub { float_bits($_[0]) == $bits });
}

sub double_text {
    my ($bits) = @_;
    my $special = _special($bits, $bits >> 63, ($bits >> 52 & 2047) == 2047, $bits & 0xfffffffffffff, $bits >> 51 & 1);
    return $special if defined $special;
    return _shortest(unpack('d<', pack 'Q<', $bits), $bits >> 63, sub { double_bits($_[0]) == $bits });
}

sub half_text {
    my ($bits) = @_;
    my ($sign, $exp, $frac) = ($bits >> 15, $bits >> 10 & 31, $bits & 1023);
    my $special = _special($bits, $sign, $exp == 31, $frac, 1);
    return $special if defined $special;
    my $value = $exp ? (1024 + $frac) * 2**($exp - 25) : $frac * 2**-24;
    return _shortest($sign ? -$value : $value, $sign, sub { half_bits($_[0]) == $bits });
}

sub _special {
    my ($bits, $sign, $special, $frac, $quiet) = @_;
    return undef unless $special;
    return $sign ? '-INF' : '+INF' unless $frac;
    return sprintf '0x%x', $bits;
}

sub _shortest {
    my ($value, $sign, $same) = @_;
    return $sign ? '-0' : '0' if $value == 0;
    for my $digits (6, 9, 13, 17, 20) {
        my $text = sprintf "%.${digits}g", $value;
        return $text if $same->($text);
    }
    return sprintf '%.20g', $value;
}

1;
