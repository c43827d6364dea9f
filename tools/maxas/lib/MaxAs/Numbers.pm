package MaxAs::Numbers;
# Immediates to their bits, by the type the table gives them; see MaxAs::Fields for what a handler takes and returns.
use strict;
use warnings;
no warnings 'portable';    # 64-bit words are meant
use Exporter 'import';
use MaxAs::Attempt qw(soft hard read_number ranged wider label);
use MaxAs::Fail qw(warn_at);
use MaxAs::Immediate qw(float_bits double_bits half_bits brain_bits);
use MaxAs::Word qw(put put_field);
our @EXPORT_OK = qw(number_handlers);

use constant RZ => 255;

sub number_handlers {
    return (
        simm20_split => \&_simm20, simm => \&_simm, uimm => \&_uimm, f32_top20_split => \&_float20, f32 => \&_float32,
        f64_top20_split => \&_double20, f16_pair_split => \&_half_pair, f16 => \&_half, f64_high => \&_double_high,
    );
}

sub _simm20 {
    my ($try, $spec, $o) = @_;
    # Where the vendor prints the field unsigned, its 20-bit patterns are accepted as such, in hex only.
    my $pattern = ($spec->{print} // '') eq 'unsigned' && ($o->{text} // '') =~ /^0x/i;
    my $value = ranged($try, $o, -0x80000, $pattern ? 0xfffff : 0x7ffff);
    return unless defined $value;
    $value -= 0x100000 if $value > 0x7ffff;
    $try->{args}{ $spec->{name} } = { imm => $value, value => RZ };
    return ($value & 0x7ffff) << $spec->{lsb} | ($value < 0 ? 1 << $spec->{sign_bit} : 0);
}

sub _simm {
    my ($try, $spec, $o) = @_;
    my $w = $spec->{width};
    my $value = $o->{kind} eq 'num' && $w == 32 && $o->{text} =~ /[.eE]\d|INF|NAN/ && $o->{text} !~ /^-?0x/i
        ? read_number($try, $o, \&float_bits)
        : ranged($try, $o, -(1 << $w - 1), (1 << $w) - 1);
    return unless defined $value;
    $try->{args}{ $spec->{name} } = { imm => $value, value => RZ };
    return put($value & (1 << $w) - 1, $spec->{lsb});
}

sub _uimm {
    my ($try, $spec, $o) = @_;
    my ($w, $low) = ($spec->{width}, 0);
    return _scattered($try, $spec, $o) if $spec->{pieces};
    if (defined $spec->{neg_bit} && $o->{kind} eq 'num' && $o->{text} =~ /^-(.+)/) {    # VADD: the sign is a bit
        my $bits = _uimm($try, $spec, { %$o, text => $1 });
        return defined $bits ? $bits | 1 << $spec->{neg_bit} : undef;
    }
    return _simm($try, $spec, $o) if $w == 32 && $spec->{name} =~ /^(?:b|imm)$/;
    if ($o->{kind} eq 'word' && $spec->{name} eq 'target') {
        my $address = label($try, $o);
        return defined $address ? $address << $spec->{lsb} : undef;
    }
    $o = _slot($try, $o) if $spec->{name} eq 'slot';
    $low = -(1 << $w - 1) if $spec->{signed_if};
    my $value = ranged($try, $o, $low, (1 << $w) - 1);
    return unless defined $value;
    $try->{args}{ $spec->{name} } = { imm => $value, value => RZ };
    return put($value & (1 << $w) - 1, $spec->{lsb});
}

sub _scattered {
    my ($try, $spec, $o) = @_;
    my $value = ranged($try, $o, 0, (1 << $spec->{width}) - 1);
    return unless defined $value;
    $try->{args}{ $spec->{name} } = { imm => $value, value => RZ };
    return put_field($spec, $value);
}

# A texture's name stands for its slot, a word index into constant bank 0.
sub _slot {
    my ($try, $o) = @_;
    return $o unless $o->{kind} eq 'word' || $o->{kind} eq 'reg';
    my $slot = $try->{env}{texture} ? $try->{env}{texture}->($o->{name}) : undef;
    return defined $slot ? { kind => 'num', text => $slot } : $o;
}

sub _float20 {
    my ($try, $spec, $o) = @_;
    my $bits = read_number($try, $o, \&float_bits);
    return unless defined $bits;
    _warn_cut($try, $o) if $bits & 0xfff;
    return ($bits >> 12 & 0x7ffff) << $spec->{lsb} | ($bits >> 31) << $spec->{sign_bit};
}

sub _double20 {
    my ($try, $spec, $o) = @_;
    my $bits = read_number($try, $o, \&double_bits);
    return unless defined $bits;
    _warn_cut($try, $o) if $bits & 0xfffffffffff;
    return ($bits >> 44 & 0x7ffff) << $spec->{lsb} | ($bits >> 63) << $spec->{sign_bit};
}

sub _warn_cut {
    my ($try, $o) = @_;
    warn_at($try->{inst}{at}, "$try->{inst}{opcode}: immediate $o->{text} is cut to 20 bits" . wider($try))
        unless $try->{inst}{warned}++;
    return;
}

sub _float32 {
    my ($try, $spec, $o) = @_;
    return _double_high($try, $spec, $o) if ($try->{mods}{func} // '') =~ /64H/;    # MUFU.RCP64H
    my $bits = read_number($try, $o, \&float_bits);
    return defined $bits ? $bits << $spec->{lsb} : undef;
}

sub _half {
    my ($try, $spec, $o) = @_;
    my $said = $spec->{brain} // 'mod_bf16_v2';    # yes, or the modifier whose last word says that it is the upper half of a single
    my $brain = ref $said || ($try->{mods}{$said} // '') =~ /BF16[^.]*$/;
    my $bits = read_number($try, $o, $brain ? \&brain_bits : \&half_bits);
    return defined $bits ? put($bits, $spec->{lsb}) : undef;
}

sub _double_high {
    my ($try, $spec, $o) = @_;
    my $bits = read_number($try, $o, \&double_bits);
    return unless defined $bits;
    return hard($try, "immediate $o->{text} does not fit the upper half of a double")
        if $bits & 0xffffffff && $o->{text} !~ /NAN$/i;
    return put($bits >> 32, $spec->{lsb});
}

sub _half_pair {
    my ($try, $spec, @o) = @_;
    my $word = 0;
    for my $field ([$spec->{hi}, $o[0]], [$spec->{lo}, $o[1]]) {
        my ($f, $o) = @$field;
        my $bits = read_number($try, $o, \&half_bits);
        return unless defined $bits;
        my $w = $f->{w} // 9;
        _warn_cut($try, $o) if $bits & (1 << 15 - $w) - 1;
        $word |= ($bits >> 15 - $w & (1 << $w) - 1) << $f->{lsb} | ($bits >> 15) << $f->{sign};
    }
    return $word;
}

1;
