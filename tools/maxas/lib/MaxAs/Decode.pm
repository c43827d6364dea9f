package MaxAs::Decode;
# Words back to dialect text, by the same rows of the table that encode it.
use strict;
use warnings;
no warnings 'portable';
use Exporter 'import';
use MaxAs::Immediate qw(hex_text float_text double_text half_text);
use MaxAs::Spelling qw(dialect_opcode);
use MaxAs::Table qw(field_get);
use MaxAs::Word qw(get get_field hex_of);
our @EXPORT_OK = qw(decode);

use constant { RZ => 255, PT => 7 };

# Reuse flags of texture fetches say a phase: by class of the row.
my %PHASES = (tex => { 1 => '.T', 2 => '.P' }, texture => { 1 => '.T', 4 => '.P' });

# ($table, word, control hash, address, $name_target->(address) -> label or undef)
# to { row, guard, opcode, operands [texts], target }, or a string that says why not.
sub decode {
    my ($table, $word, $control, $address, $name_target) = @_;
    my $row = $table->find($word) or return 'word ' . hex_of($word) . ' is no instruction';
    my %mods;
    for my $name (keys %{ $row->{modifiers} }) {
        my $value = field_get($row->{modifiers}{$name}, $word);
        $mods{$name} = $row->{modifiers}{$name}{values}{$value};
        return sprintf 'word %s: %s has no meaning for value %d of its field %s', hex_of($word), $row->{mnemonic}, $value, $name
            unless defined $mods{$name};
    }
    my $d = { table => $table, word => $word, row => $row, reuse => $control->{reuse}, address => $address, name => $name_target, mods => \%mods };
    my @operands;
    for my $spec (@{ $row->{operands} }) {
        my $text = eval { _operand($d, $spec) };
        return sprintf 'word %s: %s has no meaning for its operand %s', hex_of($word), $row->{mnemonic}, $spec->{name} if $@;
        push @operands, $text if defined $text;
    }
    my $opcode = dialect_opcode($row->{text} =~ s/\{(\w+)\}/$mods{$1}/gr);
    my $phases = $PHASES{ $row->{class} };
    $opcode .= $phases->{ $control->{reuse} } // '' if $phases;
    return { row => $row, guard => scalar _guard($row, $word, $table->{guard_lsb}), opcode => $opcode, operands => \@operands, target => $d->{target} };
}

sub _guard {
    my ($row, $word, $lsb) = @_;
    return unless $row->{guard};
    my ($n, $not) = (get($word, $lsb, 3), get($word, $lsb + 3, 1));
    return if $n == PT && !$not;
    return '@' . ($not ? '!' : '') . ($row->{guard} eq 'uniform' ? 'UP' : 'P') . ($n == PT ? 'T' : $n);
}

sub _bits { my ($d, $lsb, $width) = @_; return get($d->{word}, $lsb, $width) }

sub _signed {
    my ($value, $width) = @_;
    return $value >> $width - 1 & 1 ? $value - (1 << $width) : $value;
}

sub _bit { my ($d, @candidates) = @_; for (@candidates) { return get($d->{word}, $_, 1) if defined } return 0 }

sub _reg { my ($n) = @_; return $n == RZ ? 'RZ' : "R$n" }

sub _ureg { my ($n) = @_; return $n == 63 ? 'URZ' : "UR$n" }

# -x |x| ~x around a text that may carry a sub-word part.
sub _signs {
    my ($d, $spec, $text) = @_;
    $text = "|$text|" if _bit($d, $spec->{abs_bit});
    $text = "-$text"  if _bit($d, $spec->{neg_bit});
    $text = "~$text"  if _bit($d, $spec->{inv_bit});
    return $text;
}

sub _suffixes {
    my ($d, $spec, $text) = @_;
    $text .= '.NEG' if _bit($d, $spec->{neg_bit_suffix});
    $text .= '.ABS' if _bit($d, $spec->{abs_bit_suffix});
    $text .= '.INV' if _bit($d, $spec->{inv_bit_suffix});
    return $text;
}

sub _part {
    my ($d, $spec) = @_;
    return '' unless $spec->{part};
    my $text = $spec->{part}{values}{ field_get($spec->{part}, $d->{word}) };
    die "part\n" unless defined $text;
    return $text;
}

sub _offset {
    my ($base, $value) = @_;
    return $value ? $value < 0 ? sprintf('%s + -0x%x', $base, -$value) : sprintf('%s + 0x%x', $base, $value) : $base;
}

sub _based_address {
    my ($d, $reg_lsb, $off) = @_;
    my $reg = _bits($d, $reg_lsb, 8);
    my $raw = _bits($d, $off->{lsb}, $off->{w});
    my $scale = $off->{scale} // 1;
    return '[' . ($raw ? hex_text($raw * $scale) : 'RZ') . ']' if $reg == RZ;
    return '[' . _offset(_reg($reg), _signed($raw, $off->{w}) * $scale) . ']';
}

my %TYPE = (
    gpr => sub {
        my ($d, $spec) = @_;
        my $n = _bits($d, $spec->{lsb}, 8);
        my $text = _reg($n) . ($d->{row}{class} ne 'tex' && defined $spec->{slot} && $d->{reuse} >> $spec->{slot} & 1 ? '.reuse' : '');
        return _signs($d, $spec, $text) . _part($d, $spec) . ($spec->{suffix} // '') if ref $d->{word} && !($spec->{part} && $spec->{part}{inside});
        $text .= _part($d, $spec) . ($spec->{suffix} // '') . (_bit($d, $spec->{cc_bit}) ? '.CC' : '');
        return _signs($d, $spec, $text);
    },
    pred => sub {
        my ($d, $spec) = @_;
        my $n = _bits($d, $spec->{lsb}, 3);
        $n = 7 - $n if $spec->{complement};
        return (_bit($d, $spec->{not_bit}) ? '!' : '') . 'P' . ($n == PT ? 'T' : $n);
    },
    cbank => sub {
        my ($d, $spec) = @_;
        my $text = sprintf 'c[0x%x][0x%x]', _bits($d, $spec->{bank_lsb}, 5), _bits($d, $spec->{lsb}, $spec->{width}) * $spec->{scale};
        return _signs($d, $spec, $text . _part($d, $spec)) . ($spec->{suffix} // '');
    },
    cx => sub {
        my ($d, $spec) = @_;
        my $text = sprintf 'cx[%s][0x%x]', _ureg(_bits($d, $spec->{ureg}, 6)), _bits($d, $spec->{lsb}, $spec->{width}) * $spec->{scale};
        return _signs($d, $spec, $text . _part($d, $spec)) . ($spec->{suffix} // '');
    },
    cbank36 => sub { my ($d, $spec) = @_; sprintf 'c[0x%x][0x%x]', _bits($d, $spec->{bank}, 5), _bits($d, $spec->{lsb}, $spec->{width}) },
    cbank_indexed => sub {
        my ($d, $spec) = @_;
        my $ureg = defined $spec->{ureg} ? _ureg(_bits($d, $spec->{ureg}, 6)) : undef;
        my $off = _signed(_bits($d, @{ $spec->{off} }{qw(lsb w)}), $spec->{off}{w});
        return sprintf 'cx[%s][%s]', $ureg, _offset(_reg(_bits($d, $spec->{reg}, 8)), $off) unless $spec->{bank};
        return sprintf 'c[0x%x][%s]', _bits($d, $spec->{bank}{lsb}, $spec->{bank}{w}), _offset($ureg, $off) if defined $ureg;
        return sprintf 'c[0x%x]%s', _bits($d, $spec->{bank}{lsb}, $spec->{bank}{w}), _based_address($d, $spec->{reg}, $spec->{off});
    },
    addr => sub {
        my ($d, $spec) = @_;
        return ref $d->{word} ? _sum_address($d, $spec) : _based_address($d, $spec->{reg}, $spec->{off});
    },
    ugpr => sub {
        my ($d, $spec) = @_;
        my $text = _ureg(_bits($d, $spec->{lsb}, 6));
        $text = "$spec->{in}\[$text]" if defined $spec->{in};
        return _signs($d, $spec, $text . _part($d, $spec) . ($spec->{suffix} // ''));
    },
    upred => sub {
        my ($d, $spec) = @_;
        my $n = _bits($d, $spec->{lsb}, 3);
        $n = 7 - $n if $spec->{complement};
        return (_bit($d, $spec->{not_bit}) ? '!' : '') . 'UP' . ($n == PT ? 'T' : $n);
    },
    convergence => sub { my ($d, $spec) = @_; 'B' . _bits($d, $spec->{lsb}, 4) },
    f16 => sub { my ($d, $spec) = @_; sprintf '0x%x', _bits($d, $spec->{lsb}, 16) },
    f64_high => sub { my ($d, $spec) = @_; double_text(_bits($d, $spec->{lsb}, 32) << 32) },
    rel_register => sub {
        my ($d, $spec) = @_;
        my $target = _scaled_target($d, $spec);
        my $base = defined $spec->{ureg} ? _ureg(_bits($d, $spec->{ureg}, 6)) : _reg(_bits($d, $spec->{reg}, 8));
        return $base . ($target < 0 ? sprintf ' -0x%x', -$target : sprintf ' 0x%x', $target);
    },
    gpr_plus_simm => sub {
        my ($d, $spec) = @_;
        my $off = _signed(_bits($d, $spec->{lsb}, $spec->{width}), $spec->{width});
        my $reg = _reg(_bits($d, $spec->{reg}, 8));
        return $off ? sprintf('%s %s0x%x', $reg, $off < 0 ? '-' : '+', abs $off) : $reg;
    },
    simm20_split => sub {
        my ($d, $spec) = @_;
        return _suffixes($d, $spec, hex_text(_signed(_bits($d, $spec->{lsb}, 19) | _bits($d, $spec->{sign_bit}, 1) << 19, 20)));
    },
    simm => sub { my ($d, $spec) = @_; _suffixes($d, $spec, hex_text(_signed(_bits($d, $spec->{lsb}, $spec->{width}), $spec->{width}))) },
    uimm => sub {
        my ($d, $spec) = @_;
        my $value = get_field($spec, $d->{word});
        return _target($d, $value) if $spec->{name} eq 'target';
        return (_bit($d, $spec->{neg_bit}) && $value ? '-' : '') . _suffixes($d, $spec, hex_text($value));
    },
    f32_top20_split => sub {
        my ($d, $spec) = @_;
        return _suffixes($d, $spec, float_text(_bits($d, $spec->{lsb}, 19) << 12 | _bits($d, $spec->{sign_bit}, 1) << 31));
    },
    f32 => sub {
        my ($d, $spec) = @_;
        return double_text(_bits($d, $spec->{lsb}, 32) << 32) if ($d->{mods}{func} // '') =~ /64H/;
        return _suffixes($d, $spec, float_text(_bits($d, $spec->{lsb}, 32)));
    },
    f64_top20_split => sub {
        my ($d, $spec) = @_;
        return _suffixes($d, $spec, double_text(_bits($d, $spec->{lsb}, 19) << 44 | _bits($d, $spec->{sign_bit}, 1) << 63));
    },
    f16_pair_split => sub {
        my ($d, $spec) = @_;
        return join ', ', map { half_text(_bits($d, $_->{sign}, 1) << 15 | _bits($d, $_->{lsb}, $_->{w} // 9) << 15 - ($_->{w} // 9)) }
            @{$spec}{qw(hi lo)};
    },
    rel_target => sub {
        my ($d, $spec) = @_;
        return _target($d, _scaled_target($d, $spec)) if $spec->{scale};
        return _target($d, $d->{address} + 8 + _signed(_bits($d, $spec->{lsb}, $spec->{width}), $spec->{width}));
    },
    special_reg => sub {
        my ($d, $spec) = @_;
        my $n = _bits($d, $spec->{lsb}, 8);
        return $d->{table}{sr_name}{$n} // "SR$n";
    },
    scoreboard => sub { my ($d, $spec) = @_; 'SB' . _bits($d, $spec->{lsb}, 3) },
    scoreboard_mask => sub {
        my ($d, $spec) = @_;
        my $mask = _bits($d, $spec->{lsb}, 6);
        return $mask ? '{' . join(',', grep { $mask >> $_ & 1 } reverse 0 .. 5) . '}' : undef;
    },
    cc_test => sub {
        my ($d, $spec) = @_;
        my $n = _bits($d, $spec->{lsb}, 5);
        return $n == 15 ? undef : 'CC' . $d->{table}{cc_name}{$n};
    },
    literal => sub { $_[1]{text} },
    enum => sub { my ($d, $spec) = @_; $spec->{values}{ _bits($d, $spec->{lsb}, $spec->{width}) } // die "enum\n" },
    enum_from_modifier => sub {
        my ($d, $spec) = @_;
        return $spec->{values}{ field_get($d->{row}{modifiers}{ $spec->{of} }, $d->{word}) } // die "enum\n";
    },
    implied_next_gpr => sub {
        my ($d, $spec) = @_;
        my $of = _bits($d, $d->{row}{operand}{ $spec->{of} }{lsb}, 8);
        my $step = $spec->{step}{map}{ field_get($d->{row}{modifiers}{ $spec->{step}{sel} }, $d->{word}) } // 1;
        return _reg($of == RZ ? RZ : $of + $step);
    },
);

sub _scaled_target {
    my ($d, $spec) = @_;
    my $distance = get_field($spec, $d->{word});
    $distance = _signed($distance, $spec->{width}) unless $spec->{unsigned};
    return ($spec->{absolute} ? 0 : $d->{address} + 16) + $distance * $spec->{scale};
}

sub _sum_address {
    my ($d, $spec) = @_;
    my @terms;
    my $suffix = $spec->{suffix} // (ref $spec->{scale} ? $spec->{scale}{values}{ field_get($spec->{scale}, $d->{word}) } : '');
    my $reg = defined $spec->{reg} ? _bits($d, $spec->{reg}, 8) : RZ;
    my $ureg = defined $spec->{ureg} ? _ureg(_bits($d, $spec->{ureg}, 6)) : undef;
    push @terms, _reg($reg) . $suffix if $reg != RZ || length $suffix;
    push @terms, $ureg if defined $ureg && !$spec->{desc} && !($spec->{quiet} && $ureg eq 'URZ');
    my $off = $spec->{off} ? _signed(_bits($d, @{ $spec->{off} }{qw(lsb w)}), $spec->{off}{w}) : 0;
    push @terms, hex_text($off) if $off || !@terms;
    $terms[0] = 'RZ' if @terms == 1 && $terms[0] eq '0x0';
    return ($spec->{desc} ? "desc[$ureg]" : '') . '[' . join('+', @terms) . ']';
}

sub _target {
    my ($d, $address) = @_;
    $d->{target} = $address;
    return $d->{name}->($address) // hex_text($address);
}

sub _operand {
    my ($d, $spec) = @_;
    my $text = $TYPE{ $spec->{type} }->($d, $spec);
    return $text unless defined $text && exists $spec->{omit_if} && defined $spec->{lsb};
    my $omitted = $spec->{complement} ? 7 - $spec->{omit_if} : $spec->{omit_if};
    my $plain = _bits($d, $spec->{lsb}, $spec->{width} // 8) == $omitted;
    return $plain && $text !~ /reuse|^[-!~|]/ ? undef : $text;
}

1;
