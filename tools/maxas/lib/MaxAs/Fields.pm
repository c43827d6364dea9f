package MaxAs::Fields;
# One operand to its bits, by the type the table gives it: registers, constants, addresses, immediates, names.
#
# $try is an attempt to encode an instruction as one row: { inst, row, raw (modifier -> values it may have), env, args,
# reuse }. A handler returns bits and notes what it found in args; or it returns nothing and leaves the reason.
use strict;
use warnings;
no warnings 'portable';    # 64-bit words are meant
use Exporter 'import';
use MaxAs::Attempt qw(soft hard register_number ureg_number constant_offset signed_field ranged label);
use MaxAs::Immediate qw(integer);
use MaxAs::Numbers qw(number_handlers);
use MaxAs::Table qw(field_put);
use MaxAs::Word qw(put put_field);
our @EXPORT_OK = qw(operand_bits);

use constant { RZ => 255, PT => 7, URZ => 63 };
my %HANDLER = (
    gpr => \&_gpr, pred => \&_pred, cbank => \&_cbank, cx => \&_cx, addr => \&_addr, cbank_indexed => \&_cbank_indexed,
    number_handlers(), rel_target => \&_rel_target,
    special_reg => \&_special_reg, scoreboard => \&_scoreboard, scoreboard_mask => \&_scoreboard_mask,
    cc_test => \&_cc_test, cbank36 => \&_cbank36, gpr_plus_simm => \&_gpr_plus_simm,
    ugpr => \&_ugpr, upred => \&_upred, convergence => \&_convergence,
    rel_register => \&_rel_register,
    implied_next_gpr => \&_implied, enum => \&_enum, enum_from_modifier => \&_enum_from_modifier, literal => \&_literal,
);

my %NAMED = map { $_ => 1 } qw(convergence special_reg cc_test enum enum_from_modifier literal scoreboard scoreboard_mask rel_target);
my %SIGN = (neg => '-', abs => '|..|', inv => '~', not => '!');

# ($try, spec, parsed operand or two): bits of the operand, or undef with the reason in $try->{why}; `hard` says that no other form can be meant.
sub operand_bits {
    my ($try, $spec, @operand) = @_;
    @{$try}{qw(why hard)} = ('', 0);
    @operand = _complemented($spec, @operand) if $operand[0]{inv};
    my $handler = $HANDLER{ $spec->{type} } or die "table: unknown operand type $spec->{type}";
    my $bits = $handler->($try, $spec, @operand);
    return unless defined $bits;
    if ($NAMED{ $spec->{type} }) {
        my ($sign) = grep { $operand[0]{$_} } qw(neg abs inv not);
        return $sign ? hard($try, "$SIGN{$sign} is not available here") : $bits;
    }
    my $flags = _flags($try, $spec, $operand[0]);
    return unless defined $flags;
    return $bits | $flags;
}

# ~3 where the form has no bit for it.
sub _complemented {
    my ($spec, $o) = @_;
    return $o if $o->{kind} ne 'num' || defined($spec->{inv_bit_suffix} // $spec->{inv_bit}) || $spec->{type} !~ /^(?:simm20_split|[su]imm)$/;
    my $value = eval { integer($o->{text}) };
    return defined $value ? { %$o, text => -1 - $value, inv => 0 } : $o;
}

sub _flags {
    my ($try, $spec, $operand) = @_;
    my $bits = 0;
    for my $flag (qw(neg abs inv not cc)) {
        next unless $operand->{$flag};
        my $bit = $spec->{"${flag}_bit"} // ($operand->{kind} eq 'num' ? $spec->{"${flag}_bit_suffix"} : undef);
        return hard($try, ($SIGN{$flag} // '.CC') . ' is not available here') unless defined $bit;
        $bits |= put(1, $bit);
        $try->{args}{ $spec->{name} }{$flag} = 1;
    }
    if ($operand->{reuse}) {
        return hard($try, '.reuse is not available here') unless defined $spec->{slot};
        $try->{reuse} |= 1 << $spec->{slot};
    }
    return $bits if $spec->{type} eq 'addr';    # its own parts: _sum_address
    my $parts = $operand->{parts} // '';
    $parts =~ s/\Q$spec->{suffix}\E$// or return soft($try, "'$spec->{suffix}' wanted") if defined $spec->{suffix};
    if ($spec->{part}) {
        my $raw = $spec->{part}{raw}{$parts};
        # The low half or byte may be named where it is what no name means.
        $raw //= $spec->{part}{raw}{''} if $parts =~ /^\.([HB])0$/ && $spec->{part}{raw}{".${1}1"};
        return hard($try, "'$parts' is not available here") unless $raw;
        $bits |= field_put($spec->{part}, $raw->[0]);
    }
    elsif (length $parts) { return soft($try, "'$parts' is not available here") }
    return $bits;
}

sub _gpr {
    my ($try, $spec, $o) = @_;
    return soft($try, 'a register is wanted') unless $o->{kind} eq 'reg' || $o->{kind} eq 'word';
    return soft($try, 'a register is wanted') if $o->{kind} eq 'word' && $o->{whole} =~ /^(?:SR_|CC\b|SB\d|PR$|UR(?:Z|\d+)\b)/;
    my $n = register_number($try, $o->{name});
    return unless defined $n;
    return soft($try, 'RZ has another form here')
        if $n == RZ && ($spec->{rz_not_allowed} || grep { $_ eq $spec->{name} } @{ $try->{row}{reg_not_rz} // [] });
    if (($spec->{note} // '') =~ /same register as (\w+)/) {
        return hard($try, "must be the destination register, R$try->{args}{$1}{value}") if $n != $try->{args}{$1}{value};
    }
    $try->{args}{ $spec->{name} } = { value => $n, name => $o->{name} };
    return put($n, $spec->{lsb});
}

sub _pred {
    my ($try, $spec, $o) = @_;
    return soft($try, 'a predicate P0..P6 or PT is wanted') unless $o->{kind} eq 'pred';
    my ($n) = $o->{name} =~ /^P([0-6]|T)$/ or return hard($try, "'$o->{name}' is not a predicate (P0..P6, PT)");
    $n = PT if $n eq 'T';
    $try->{args}{ $spec->{name} } = { value => $n };
    return put($spec->{complement} ? 7 - $n : $n, $spec->{lsb});
}

sub _ugpr {
    my ($try, $spec, $o) = @_;
    my $name = $o->{name};
    if (defined $spec->{in}) {
        return soft($try, "$spec->{in}\[UR] is wanted") unless $o->{kind} eq 'inside' && $o->{in} eq $spec->{in}
            || $spec->{in} eq '' && $o->{kind} eq 'addr' && defined $o->{ureg} && !defined $o->{reg} && !$o->{off};
        $name //= $o->{ureg};
    }
    elsif ($o->{kind} ne 'word') { return soft($try, 'a uniform register is wanted') }
    my $n = ureg_number($try, $name);
    return unless defined $n;
    $try->{args}{ $spec->{name} } = { value => $n };
    return put($n, $spec->{lsb});
}

sub _upred {
    my ($try, $spec, $o) = @_;
    return soft($try, 'a uniform predicate UP0..UP6 or UPT is wanted') unless $o->{kind} eq 'upred';
    my ($n) = $o->{name} =~ /^UP([0-6]|T)$/ or return hard($try, "'$o->{name}' is not a uniform predicate (UP0..UP6, UPT)");
    $n = PT if $n eq 'T';
    $try->{args}{ $spec->{name} } = { value => $n };
    return put($spec->{complement} ? 7 - $n : $n, $spec->{lsb});
}

sub _convergence {
    my ($try, $spec, $o) = @_;
    return soft($try, 'a convergence barrier B0..B15 is wanted') unless ($o->{name} // '') =~ /^B(\d|1[0-5])$/;
    $try->{args}{ $spec->{name} } = { value => $1 };
    return put($1, $spec->{lsb});
}

sub _bank {
    my ($try, $bank) = @_;
    return hard($try, "constant bank $bank is out of range 0..17") if $bank < 0 || $bank > 17;
    return $bank;
}

sub _cbank {
    my ($try, $spec, $o) = @_;
    return soft($try, 'a constant c[bank][offset] is wanted') unless $o->{kind} eq 'const';
    return soft($try, 'a uniform register is not available here') if defined $o->{ureg};
    return hard($try, 'an indexed constant is read with LDC only') if defined $o->{reg};
    return unless defined _bank($try, $o->{bank});
    my $off = constant_offset($try, $o->{off}, $spec->{scale});
    return unless defined $off;
    $try->{args}{ $spec->{name} } = { bank => $o->{bank}, offset => $off, value => 0 };
    return put($off / $spec->{scale}, $spec->{lsb}) | put($o->{bank}, $spec->{bank_lsb});
}

sub _cx {
    my ($try, $spec, $o) = @_;
    return soft($try, 'a constant cx[UR][offset] is wanted') unless $o->{kind} eq 'cx' && !defined $o->{reg};
    my $n = ureg_number($try, $o->{ureg});
    return unless defined $n;
    my $off = constant_offset($try, $o->{off}, $spec->{scale});
    return unless defined $off;
    $try->{args}{"$spec->{name}.uniform"} = { value => $n };
    $try->{args}{ $spec->{name} } = { value => $n, offset => $off };
    return put($off / $spec->{scale}, $spec->{lsb}) | put($n, $spec->{ureg});
}

sub _cbank36 {
    my ($try, $spec, $o) = @_;
    return soft($try, 'a constant c[bank][offset] is wanted') unless $o->{kind} eq 'const';
    return unless defined _bank($try, $o->{bank});
    my $off = constant_offset($try, $o->{off}, 1);
    return unless defined $off;
    return $off << $spec->{lsb} | $o->{bank} << $spec->{bank};
}

# c[bank][UR+offset], cx[UR][R+offset]
sub _cbank_uniform {
    my ($try, $spec, $o) = @_;
    my ($kind, $text) = $spec->{bank} ? ('const', 'c[bank][UR+offset]') : ('cx', 'cx[UR][R+offset]');
    return soft($try, "a constant $text is wanted") unless $o->{kind} eq $kind && defined $o->{ureg} && ($spec->{bank} || defined $o->{reg});
    my $u = ureg_number($try, $o->{ureg});
    return unless defined $u;
    my $n = $spec->{bank} ? RZ : register_number($try, $o->{reg});
    return unless defined $n;
    my $off = signed_field($try, $o->{off}, $spec->{off}, 0);
    return unless defined $off;
    $try->{args}{"$spec->{name}.uniform"} = { value => $u };
    $try->{args}{ $spec->{name} } = { value => $n, name => $o->{reg}, bank => $o->{bank} };
    return $off | put($u, $spec->{ureg}) | put($n, $spec->{reg}) unless $spec->{bank};
    return unless defined _bank($try, $o->{bank});
    return $off | put($u, $spec->{ureg}) | put($o->{bank}, $spec->{bank}{lsb});
}

sub _cbank_indexed {
    my ($try, $spec, $o) = @_;
    return _cbank_uniform($try, $spec, $o) if defined $spec->{ureg};
    return soft($try, 'a uniform register is not available here') if defined $o->{ureg};
    return soft($try, 'a constant c[bank][R+offset] is wanted') unless $o->{kind} eq 'const';
    return unless defined _bank($try, $o->{bank});
    my $n = defined $o->{reg} ? register_number($try, $o->{reg}) : RZ;
    return unless defined $n;
    my $off = signed_field($try, $o->{off}, $spec->{off}, $n);
    return unless defined $off;
    $try->{args}{ $spec->{name} } = { value => $n, name => $o->{reg}, bank => $o->{bank} };
    return $n << $spec->{reg} | $off | $o->{bank} << $spec->{bank}{lsb};
}

# An address that has a uniform register, a descriptor, a scale or a suffix in it, or may have.
sub _sum_address {
    my ($try, $spec, $o) = @_;
    my $word = 0;
    return soft($try, $spec->{desc} ? 'an address with a descriptor desc[UR][R] is wanted' : 'a descriptor is not available here')
        if !$spec->{desc} != !defined $o->{desc};
    my $ureg = $spec->{desc} ? $o->{desc} : $o->{ureg};
    return soft($try, 'a uniform register is not available here') if defined $o->{ureg} && ($spec->{desc} || !defined $spec->{ureg});
    return soft($try, 'a uniform register is wanted') if defined $spec->{ureg} && !defined $ureg && !$spec->{quiet};
    if (defined $spec->{ureg}) {
        my $n = ureg_number($try, $ureg // 'URZ');
        return unless defined $n;
        $word |= put($n, $spec->{ureg});
        $try->{args}{"$spec->{name}.uniform"} = { value => $n };
    }
    my $suffix = $o->{suffix} // '';
    if (ref $spec->{scale}) {
        my $raw = $spec->{scale}{raw}{$suffix} or return soft($try, "'$suffix' is not available here");
        $word |= field_put($spec->{scale}, $raw->[0]);
    }
    elsif (defined $o->{reg} && $suffix ne ($spec->{suffix} // '')) {
        return soft($try, "'" . ($spec->{suffix} // 'no suffix') . "' is wanted behind the register");
    }
    my $n = defined $o->{reg} ? register_number($try, $o->{reg}) : RZ;
    return unless defined $n;
    return soft($try, 'a register is not available here') if $n != RZ && !defined $spec->{reg};
    my $off = $spec->{off} ? signed_field($try, $o->{off}, $spec->{off}, $n) : $o->{off} ? soft($try, 'no offset here') : 0;
    return unless defined $off;
    $try->{args}{ $spec->{name} } = { value => $n, name => $o->{reg}, offset => undef };
    return $word | $off | (defined $spec->{reg} ? put($n, $spec->{reg}) : 0);
}

sub _addr {
    my ($try, $spec, $o) = @_;
    return soft($try, 'an address [R+offset] is wanted') unless $o->{kind} eq 'addr';
    return _sum_address($try, $spec, $o) if $try->{env}{table}{word_bits} > 64;
    my $n = defined $o->{reg} ? register_number($try, $o->{reg}) : RZ;
    return unless defined $n;
    my $off = signed_field($try, $o->{off}, $spec->{off}, $n);
    return unless defined $off;
    $try->{args}{ $spec->{name} } = { value => $n, name => $o->{reg} };
    return $n << $spec->{reg} | $off;
}

sub _gpr_plus_simm {
    my ($try, $spec, $o) = @_;
    return soft($try, 'a register with offset is wanted') unless $o->{kind} =~ /^(?:reg|word|regoff)$/;
    my $n = register_number($try, $o->{reg} // $o->{name});
    return unless defined $n;
    my $off = signed_field($try, $o->{off} // 0, { lsb => $spec->{lsb}, w => $spec->{width} }, 0);
    return unless defined $off;
    $try->{args}{ $spec->{name} } = { value => $n };
    return $n << $spec->{reg} | $off;
}

# -- immediates -------------------------------------------------------------------------------------------------

sub _rel_target {
    my ($try, $spec, $o) = @_;
    my $target;
    if ($o->{kind} eq 'num') { $target = ranged($try, $o, -0x80000000, 0x7fffffff) }
    elsif ($o->{kind} eq 'word' || $o->{kind} eq 'reg') { $target = label($try, $o) }
    else { return soft($try, 'a label is wanted') }
    return unless defined $target;
    return _scaled_distance($try, $spec, $target, $o) if $spec->{scale};
    my $distance = $target - $try->{env}{address} - 8;
    my $half = 1 << $spec->{width} - 1;
    return hard($try, sprintf "label '%s' is too far: %d bytes, at most %d", $o->{name} // $o->{text}, $distance, $half - 1)
        if $distance < -$half || $distance >= $half;
    return ($distance & 2 * $half - 1) << $spec->{lsb};
}

# A distance from the next instruction of 16 bytes, in units, its bits perhaps scattered.
sub _scaled_distance {
    my ($try, $spec, $target, $o) = @_;
    my $distance = $target - ($spec->{absolute} ? 0 : $try->{env}{address} + 16);
    return hard($try, "target must be a multiple of $spec->{scale}") if $distance % $spec->{scale};
    use integer;
    return put_field($spec, ($distance / $spec->{scale}) & (1 << $spec->{width}) - 1);
}

sub _rel_register {
    my ($try, $spec, $o) = @_;
    return soft($try, 'a register and an address are wanted') unless $o->{kind} =~ /^(?:reg|word|regoff)$/;
    my $uniform = defined $spec->{ureg};
    my $n = ($uniform ? \&ureg_number : \&register_number)->($try, $o->{reg} // $o->{name});
    return unless defined $n;
    my $distance = _scaled_distance($try, $spec, $o->{off} // 0, $o);
    return unless defined $distance;
    $try->{args}{"$spec->{name}.uniform"} = { value => $n } if $uniform;
    $try->{args}{ $spec->{name} } = { value => $uniform ? RZ : $n };
    return $distance | put($n, $spec->{ureg} // $spec->{reg});
}

sub _special_reg {
    my ($try, $spec, $o) = @_;
    my $name = $o->{whole} // '';
    return soft($try, 'a special register SR_.. is wanted') unless $o->{kind} eq 'word' && $name =~ /^S[RM]/;
    my $n = $try->{env}{table}{sr_number}{$name};
    $n = $1 if !defined $n && $name =~ /^SR_?(\d{1,3})$/ && $1 < 256;
    my $near = defined $n ? undef : MaxAs::Table::nearest($name, keys %{ $try->{env}{table}{sr_number} });
    return hard($try, "unknown special register '$name'" . (defined $near ? "; did you mean $near?" : '')) unless defined $n;
    $try->{args}{ $spec->{name} } = { value => $n };
    return put($n, $spec->{lsb});
}

sub _scoreboard {
    my ($try, $spec, $o) = @_;
    return soft($try, 'a scoreboard SB0..SB5 is wanted') unless ($o->{name} // '') =~ /^SB([0-5])$/;
    return $1 << $spec->{lsb};
}

sub _scoreboard_mask {
    my ($try, $spec, $o) = @_;
    return soft($try, 'a set of scoreboards {5,0} is wanted') unless $o->{kind} eq 'mask';
    return $o->{value} << $spec->{lsb};
}

sub _cc_test {
    my ($try, $spec, $o) = @_;
    my ($test) = ($o->{whole} // '') =~ /^CC\.(\w+)$/ or return soft($try, 'a test CC.xx is wanted');
    my $n = $try->{env}{table}{cc_number}{$test};
    return hard($try, "unknown test CC.$test") unless defined $n;
    $try->{args}{ $spec->{name} } = { value => $n };
    return $n << $spec->{lsb};
}

# The register after another one: checked, not encoded.
sub _implied {
    my ($try, $spec, $o) = @_;
    return soft($try, 'a register is wanted') unless $o->{kind} eq 'reg' || $o->{kind} eq 'word';
    my $n = register_number($try, $o->{name});
    return unless defined $n;
    my $of = $try->{args}{ $spec->{of} }{value};
    my $step = $spec->{step}{map}{ $try->{raw}{ $spec->{step}{sel} }[0] } // 1;
    my $want = $of == RZ ? RZ : $of + $step;
    return hard($try, "must be R$want, the register after operand $spec->{of}") if $n != $want;
    return 0;
}

sub _enum {
    my ($try, $spec, $o) = @_;
    my $text = $o->{whole} // $o->{name} // $o->{text} // '';
    my $raw = $spec->{raw}{$text};
    return soft($try, 'one of ' . join(' ', sort keys %{ $spec->{raw} }) . ' is wanted') unless defined $raw;
    $try->{args}{ $spec->{name} } = { value => $raw, text => $text };
    return put($raw, $spec->{lsb});
}

# Text told by a modifier's value: keeps those of its values that mean this text.
sub _enum_from_modifier {
    my ($try, $spec, $o) = @_;
    my $text = $o->{whole} // $o->{name} // $o->{text} // '';
    my @fit = grep { ($spec->{values}{$_} // '') eq $text } @{ $try->{raw}{ $spec->{of} } };
    return soft($try, "'$text' does not go with these modifiers") unless @fit;
    $try->{raw}{ $spec->{of} } = \@fit;
    return 0;
}

sub _literal {
    my ($try, $spec, $o) = @_;
    my $text = $o->{whole} // $o->{name} // $o->{text} // '';
    return 0 if $text eq $spec->{text} || $spec->{text} =~ /^0x/ && $o->{kind} eq 'num' && eval { integer($text) == hex $spec->{text} };
    return soft($try, "'$spec->{text}' is wanted");
}

1;
