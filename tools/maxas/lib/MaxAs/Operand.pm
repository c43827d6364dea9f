package MaxAs::Operand;
# One operand's text to a small hash, before anything is known about the instruction:
#   kind   reg | pred | num | const | addr | mask | regoff | inside | word
#   name   register or other word    neg abs inv not cc reuse    parts (text such as '.H1')
#   num: text   const: bank, off | reg, off   addr: reg, off   mask: value   inside: in (gdesc, desc), name
# Dies with a plain string when the text is no operand at all.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Immediate qw(integer);
our @EXPORT_OK = qw(split_operands parse_operand);

my $NUMBER = qr/[-+]?(?:0[xX][0-9a-fA-F]+|\d+\s*x\s*<.*>|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|INF|[QS]?NAN)/;

# NxEXPR, up to the bracket that an operand can end with: the expression may hold others, and commas.
my $EXPRESSION = qr/\d+\s*x\s*<[^;]*?>(?=\s*(?:[,\].]|$))/;

# Splits at commas outside brackets.
sub split_operands {
    my ($text) = @_;
    my ($depth, $piece, @pieces) = (0, '');
    for my $token ($text =~ /($EXPRESSION|[\[\]{}<>(),]|(?:(?!$EXPRESSION)[^\[\]{}<>(),])+)/g) {
        $depth++ if $token =~ /^[\[{(<]$/;
        $depth-- if $token =~ /^[\]})>]$/ && $depth;
        if ($token eq ',' && !$depth) { push @pieces, $piece; $piece = '' }
        else { $piece .= $token }
    }
    push @pieces, $piece if @pieces || $piece =~ /\S/;
    s/^\s+|\s+$//g for @pieces;
    return @pieces;
}

# Registers and names are the same wherever they stand, and most operands are one of few: those are kept. Nobody changes
# what comes from here.
my %kept;

sub parse_operand {
    my ($text) = @_;
    return $text =~ /^[-~!]?\w+(?:\.\w+)*\z/ ? $kept{$text} //= _parsed($text) : _parsed($text);
}

sub _parsed {
    my ($text) = @_;
    die "operand is empty\n" unless length $text;
    return _address($1) if $text =~ /^\[(.*)\]$/ && $text !~ /^\[.*\]\s*\[/;
    return { %{ _address($2) }, desc => $1 } if $text =~ /^desc\s*\[\s*(\w+)\s*\]\s*\[(.*)\]$/;
    return _mask($1) if $text =~ /^\{(.*)\}$/;
    return { kind => 'num', text => $1, _suffix_flags($2) } if $text =~ /^($NUMBER)\s*((?:\.(?:NEG|ABS|INV|H1))*)$/;
    return { kind => 'num', text => $1, inv => 1 } if $text =~ /^~\s*($NUMBER)$/;
    return _signed($text);
}

sub _suffix_flags {
    my ($suffixes) = @_;
    my %name = (NEG => 'neg', ABS => 'abs', INV => 'inv');
    return map { $_ eq 'H1' ? (parts => '.H1') : ($name{$_} => 1) } $suffixes =~ /\.(\w+)/g;
}

# Signs and bars around a register, predicate, constant or word.
sub _signed {
    my ($text) = @_;
    my %flag;
    while ($text =~ s/^([-~!])\s*//) {
        my $name = { '-' => 'neg', '~' => 'inv', '!' => 'not' }->{$1};
        die "'$1' twice\n" if $flag{$name}++;
    }
    if ($text =~ /^\|(.*)\|((?:\.\w+)*)$/) {
        my ($inside, $after) = ($1, $2);
        $flag{abs} = 1;
        $text = $inside . $after;
    }
    return { _plain($text), %flag };
}

sub _plain {
    my ($text) = @_;
    if ($text =~ /^c\s*\[([^\]]*)\]\s*\[([^\]]*)\]((?:\.\w+)*)$/) {
        my ($bank, $where, $after) = ($1, $2, $3);
        my $inner = _address($where);
        return (kind => 'const', bank => _integer($bank), reg => $inner->{reg}, ureg => $inner->{ureg}, off => $inner->{off}, _suffixes($after));
    }
    if ($text =~ /^cx\s*\[\s*(UR(?:Z|\d+))\s*\]\s*\[([^\]]*)\]((?:\.\w+)*)$/) {
        my ($ureg, $where, $after) = ($1, $2, $3);
        my $inner = _address($where);
        return (kind => 'cx', ureg => $ureg, reg => $inner->{reg}, off => $inner->{off}, _suffixes($after));
    }
    return (kind => 'inside', in => $1, name => $2, _suffixes($3)) if $text =~ /^(gdesc|desc)\s*\[\s*(\w+)\s*\]((?:\.\w+)*)$/;
    return (kind => 'regoff', reg => $1, off => _integer($2 eq '-' ? "-$3" : $3)) if $text =~ /^([A-Za-z_]\w*)\s*([-+\s])\s*(0x[0-9a-fA-F]+|\d+)$/;
    return (kind => 'num', text => $1, word => $text, _suffixes($2)) if $text =~ /^(\d+)((?:\.\w+)+)$/;
    die "'$text' is not an operand\n" unless $text =~ /^(\w+)((?:\.\w+)*)$/;
    my ($name, $after) = ($1, $2);
    return (kind => 'pred', name => $name) if $name =~ /^P(?:T|\d+)$/ && !length $after;
    return (kind => 'upred', name => $name) if $name =~ /^UP(?:T|\d+)$/ && !length $after;
    return (kind => $name =~ /^R(?:Z|\d+)$/ ? 'reg' : 'word', name => $name, whole => $text, _suffixes($after));
}

sub _suffixes {
    my ($text) = @_;
    my %flag;
    $flag{cc}    = 1 if $text =~ s/\.CC\b//;
    $flag{reuse} = 1 if $text =~ s/\.reuse\b//;
    $flag{parts} = $text if length $text;
    return %flag;
}

sub _integer {
    my ($text) = @_;
    $text =~ s/^\s+|\s+$//g;
    $text =~ s/^([-+])\s+/$1/;
    return integer($text);
}

# Inside brackets: R2 | R2 + 0x10 | R2+-0x10 | R2+4x<128> | 0x100 | name
sub _address {
    my ($text) = @_;
    $text =~ s/^\s+|\s+$//g;
    die "address [] is empty\n" unless length $text;
    if ($text =~ /^(UR(?:Z|\d+))\s*(?:\+\s*(.*))?$/) { return { kind => 'addr', ureg => $1, off => defined $2 ? _integer($2) : 0 } }
    if ($text =~ /^([A-Za-z_]\w*)(\.(?:64|U32|X4|X8|X16))?\s*(?:\+\s*(UR(?:Z|\d+)))?\s*(?:([-+])\s*(.*))?$/) {
        my ($reg, $suffix, $ureg, $sign, $rest) = ($1, $2, $3, $4, $5);
        my %found = (kind => 'addr', reg => $reg);
        $found{suffix} = $suffix if defined $suffix;
        $found{ureg} = $ureg if defined $ureg;
        return { %found, off => 0 } unless defined $sign;
        my $off = _integer($rest);
        return { %found, off => $sign eq '-' ? -$off : $off };
    }
    return { kind => 'addr', off => _integer($text) };
}

# {5,4,0}: a set of scoreboards.
sub _mask {
    my ($text) = @_;
    my $value = 0;
    for my $n (split /\s*,\s*/, $text) {
        $n =~ s/\s+//g;
        die "'$n' is not a scoreboard 0..5\n" unless $n =~ /^[0-5]$/;
        $value |= 1 << $n;
    }
    return { kind => 'mask', value => $value };
}

1;
