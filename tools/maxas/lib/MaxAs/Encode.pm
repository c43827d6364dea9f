package MaxAs::Encode;
# An instruction's opcode and operands to its word (of 64 or 128 bits, without control code), by the rows of the table. Nothing here knows an opcode.
#
# An instruction: { opcode, operands (texts), guard, at }. `encode` adds row, mods (raw values), args: operand name
# -> { value, reg ... }, and uses (see MaxAs::Access) for the passes that ask what it reads and writes.
use strict;
use warnings;
no warnings 'portable';    # 64-bit words are meant
use Exporter 'import';
use List::Util qw(max min);
use MaxAs::Access qw(gpr_operands);
use MaxAs::Fail qw(fail);
use MaxAs::Fields qw(operand_bits);
use MaxAs::Operand qw(parse_operand);
use MaxAs::Table qw(field_put);
use MaxAs::Word qw(get put);
our @EXPORT_OK = qw(encode);

my @FOUND = qw(row args mods asked_reuse uses);    # what encoding adds to an instruction

use constant PT => 7;

# How far an attempt to match got, so that the best complaint is shown.
my ($complaint, $rank);

sub _no {
    my ($new_rank, $text) = @_;
    ($rank, $complaint) = ($new_rank, $text) if $new_rank > $rank;
    return;
}

# $env: { table, sm, register (name -> number or undef), label (name -> address or undef), address }
# Returns the word; fills row, mods, args, uses, asked_reuse (bits asked for by .reuse) of $inst. Kernels of a source say
# most of their instructions again, in the same registers: those are encoded once, and nobody changes what was found.
sub encode {
    my ($inst, $env) = @_;
    my $key = _key($inst, $env);
    return _encoded($inst, $env) unless defined $key;
    my $kept = $env->{table}{kept_words}{$key};
    if ($kept) { (my $word, @{$inst}{@FOUND}) = @$kept; return $word }
    my $word = _encoded($inst, $env);
    $env->{table}{kept_words}{$key} = [$word, @{$inst}{@FOUND}] unless $inst->{warned};
    return $word;
}

# All that the word hangs on; undef where that is more than the text and its registers: labels, slots, embedded code.
sub _key {
    my ($inst, $env) = @_;
    my $table = $env->{table};
    return unless $table->{same_anywhere}{ $inst->{opcode} } //=
        (grep { $_->{type} =~ /^rel_/ || $_->{name} =~ /^(?:target|slot)$/ } map { @{ $_->[0]{operands} } } $table->rows_for($inst->{opcode})) ? 0 : 1;
    my $operands = join ',', @{ $inst->{operands} };
    return if $operands =~ /[<\$]/;
    $operands =~ s/\b(?!R\d)([A-Za-z_]\w*)/"$1=" . ($env->{register}->($1) \/\/ '')/ge;
    return join ' ', $env->{sm}, $inst->{opcode}, $inst->{guard} // '', $operands;
}

sub _encoded {
    my ($inst, $env) = @_;
    my $at = $inst->{at};
    my @rows = $env->{table}->rows_for($inst->{opcode});
    _unknown_opcode($inst, $env) unless @rows;
    ($complaint, $rank) = ('', -1);
    my $operands = $inst->{parsed} //= [map { _parse($_, $inst) } @{ $inst->{operands} }];
    for my $pair (@rows) {
        my ($row, $mods) = @$pair;
        if ($row->{min_sm} > $env->{sm}) { _no(0.5, "needs sm_$row->{min_sm} or later, this kernel is for sm_$env->{sm}"); next }
        next if @$operands < _least_operands($row) || @$operands > _most_operands($row);
        my $word = _try_row($inst, $row, $mods, $operands, $env);
        return $word if defined $word;
    }
    _no(1, _miscounted(scalar @$operands, map { $_->[0] } @rows)) if $rank < 0;
    fail($at, "$inst->{opcode}: $complaint") if $rank >= 2 || $rank == 0.5;
    fail($at, "$inst->{opcode}: " . ($complaint || 'operands do not fit') . '; its forms are '
        . join(' | ', map { _form($_->[0]) } @rows));
}

# No row takes as many operands as there are.
sub _miscounted {
    my ($count, @rows) = @_;
    my $what = $count < min(map { _least_operands($_) } @rows) ? 'too few' : $count > max(map { _most_operands($_) } @rows) ? 'too many' : 'no form has as many';
    return "$what operands ($count)";
}

sub _least_operands {
    my ($row) = @_;
    return $row->{least_operands} //= map { $_->{type} eq 'f16_pair_split' ? (1, 1) : 1 } grep { !_omissible($_) } @{ $row->{operands} };
}

sub _most_operands {
    my ($row) = @_;
    return $row->{most_operands} //= map { $_->{type} eq 'f16_pair_split' ? (1, 1) : 1 } @{ $row->{operands} };
}

sub _parse {
    my ($text, $inst) = @_;
    my $operand = eval { parse_operand($text) };
    return $operand if $operand;
    chomp(my $why = $@);
    my $n = 0;
    for (@{ $inst->{operands} }) { $n++; last if $_ eq $text }
    fail($inst->{at}, "$inst->{opcode}: operand $n: $why");
}

sub _unknown_opcode {
    my ($inst, $env) = @_;
    my ($op, $rest) = $inst->{opcode} =~ /^(\w*)(.*)/;
    my @elsewhere = $env->{table}->elsewhere($inst->{opcode});
    fail($inst->{at}, "$inst->{opcode} is an instruction of @elsewhere, this kernel is for sm_$env->{sm}") if @elsewhere;
    my $rows = $env->{table}->rows_of($op);
    fail($inst->{at}, "$inst->{opcode}: $op has no form with '$rest'; it is written " . _spellings($rows)) if $rows;
    my $near = $env->{table}->nearest_opcode($op);
    fail($inst->{at}, "unknown instruction '$op'" . (defined $near ? "; did you mean $near?" : ''));
}

sub _spellings {
    my ($rows) = @_;
    my %seen;
    return join ' or ', grep { !$seen{$_}++ } map { _spelling($_) } @$rows;
}

sub _spelling {
    my ($row) = @_;
    my $text = $row->{text};
    $text =~ s/\{(\w+)\}/'[' . join('|', grep { length } map { $row->{modifiers}{$1}{values}{$_} }
        sort { $a <=> $b } keys %{ $row->{modifiers}{$1}{values} }) . ']'/ge;
    return $text;
}

my %FORM = (
    gpr => 'R', pred => 'P', cbank => 'c[bank][offset]', cx => 'cx[UR][offset]', simm20_split => 'imm20', simm => 'imm32', uimm => 'imm',
    f32_top20_split => 'float20', f32 => 'float32', f64_top20_split => 'double20', f16_pair_split => 'half, half',
    addr => '[R+offset]', cbank_indexed => 'c[bank][R+offset]', rel_target => 'label', scoreboard => 'SB',
    scoreboard_mask => '{scoreboards}', special_reg => 'SR_..', cc_test => 'CC.test', cbank36 => 'c[bank][offset]',
    gpr_plus_simm => 'R offset', implied_next_gpr => 'R+1', ugpr => 'UR', upred => 'UP', convergence => 'B', f16 => 'half',
    f64_high => 'double', rel_register => 'R label',
);

sub _form {
    my ($row) = @_;
    my $names = join ', ', map {
        my $text = $FORM{ $_->{type} } // $_->{text} // join('/', map { $_ // '' } sort values %{ $_->{values} // {} });
        exists $_->{omit_if} ? "($text)" : $text;
    } @{ $row->{operands} };
    return $row->{mnemonic} . ($names ? " $names" : '');
}

sub _try_row {
    my ($inst, $row, $mods, $operands, $env) = @_;
    my $specs = $row->{operands};
    my %raw = map { $_ => $row->{modifiers}{$_}{raw}{ $mods->{$_} // '' } } keys %{ $row->{modifiers} };
    my $try = { inst => $inst, row => $row, raw => \%raw, env => $env, args => {}, reuse => 0, mods => $mods };
    my $word = _match($try, $specs, 0, $operands, 0);
    return unless defined $word;
    $word |= $row->{value};
    $word |= $row->{fill};
    $word |= field_put($row->{modifiers}{$_}, $raw{$_}[0]) for keys %raw;
    $word |= _guard($inst, $row, $env->{table}{guard_lsb});
    return _no(2, 'only one operand can be negated here') if _plus_one($row, $word);
    @{$inst}{qw(row args asked_reuse)} = ($row, $try->{args}, $try->{reuse});
    $inst->{mods} = { map { $_ => $raw{$_}[0] } keys %raw };
    $inst->{uses} = { gprs => [gpr_operands($inst)] };
    return $word;
}

# Both negate bits of an addition set mean another instruction, a + b + 1 (.PO).
sub _plus_one {
    my ($row, $word) = @_;
    for my $spec (grep { defined $_->{plus_one_partner_bit} } @{ $row->{operands} }) {
        my $own = $spec->{neg_bit} // $spec->{neg_bit_suffix};
        return 1 if defined $own && get($word, $own, 1) && get($word, $spec->{plus_one_partner_bit}, 1);
    }
    return 0;
}

sub _guard {
    my ($inst, $row, $lsb) = @_;
    my $guard = $inst->{guard};
    if (!$row->{guard}) {
        fail($inst->{at}, "$inst->{opcode} takes no guard") if defined $guard;
        return 0;
    }
    return PT << $lsb unless defined $guard;
    my $kind = $row->{guard} eq 'uniform' ? 'UP' : 'P';
    my ($not, $n) = $guard =~ /^\@(!?)$kind([0-6T])$/
        or fail($inst->{at}, "guard '$guard' must be \@${kind}0..\@${kind}6 or \@${kind}T, with ! for not");
    return ($n eq 'T' ? PT : $n) << $lsb | ($not ? 1 << $lsb + 3 : 0);
}

# Matches operand specs from $i with operand texts from $j; the bits, or undef. Operands that print nothing at their
# usual value may be left out.
sub _match {
    my ($try, $specs, $i, $operands, $j) = @_;
    if ($i == @$specs) {
        return 0 if $j == @$operands;
        return _no(1, 'too many operands (' . @$operands . ')');
    }
    my $spec = $specs->[$i];
    my $size = $spec->{type} eq 'f16_pair_split' ? 2 : 1;
    if ($j + $size <= @$operands) {
        my $bits = operand_bits($try, $spec, @{$operands}[$j .. $j + $size - 1]);
        if (defined $bits) {
            my $rest = _match($try, $specs, $i + 1, $operands, $j + $size);
            return $bits | $rest if defined $rest;
        }
        elsif ($rank < 3 && $try->{why} && !exists $spec->{omit_if}) {
            _no($try->{hard} ? 2 + $j / 100 : 1 + $j / 100, 'operand ' . ($j + 1) . ": $try->{why}");
        }
    }
    elsif (!_omissible($spec)) { return _no(1, 'too few operands (' . @$operands . ')') }
    return unless _omissible($spec);
    my $rest = _match($try, $specs, $i + 1, $operands, $j);
    return unless defined $rest;
    my $value = $spec->{omit_if} // 0;
    $try->{args}{ $spec->{name} } = { value => $value };
    $value = 7 - $value if $spec->{complement};
    return $rest | (defined $spec->{lsb} ? put($value, $spec->{lsb}) : 0);
}

sub _omissible {
    my ($spec) = @_;
    return exists $spec->{omit_if} || $spec->{type} eq 'scoreboard_mask' || $spec->{type} eq 'implied_next_gpr';
}

1;
