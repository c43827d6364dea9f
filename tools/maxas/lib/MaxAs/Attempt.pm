package MaxAs::Attempt;
# What every kind of field needs while an instruction is tried as one row: why it does not fit, and names and numbers in reach.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Immediate qw(integer hex_text);
use MaxAs::Word qw(put);
our @EXPORT_OK = qw(soft hard register_number ureg_number constant_offset signed_field read_number ranged wider label);

use constant { RZ => 255, URZ => 63 };

sub soft { my ($try, $why) = @_; @{$try}{qw(why hard)} = ($why, 0); return }

sub hard { my ($try, $why) = @_; @{$try}{qw(why hard)} = ($why, 1); return }

sub register_number {
    my ($try, $name) = @_;
    return RZ if $name eq 'RZ';
    if ($name =~ /^R(\d+)$/) {
        return $1 if $1 <= 254 && $1 eq 0 + $1;
        return hard($try, "'$name' is not a register (R0..R254, RZ)");
    }
    my $n = $try->{env}{register}->($name);
    return $n if defined $n;
    return hard($try, "undefined register '$name'");
}

# U is a uniform register or predicate; they have no names but their numbers.
sub ureg_number {
    my ($try, $name) = @_;
    my ($n) = ($name // '') =~ /^UR(Z|\d{1,2})$/ or return soft($try, 'a uniform register is wanted');
    return URZ if $n eq 'Z';
    return $n if $n <= 62;
    return hard($try, "'$name' is not a uniform register (UR0..UR62, URZ)");
}

# Offsets are 16 bits; the vendor's disassembler prints those from 0x8000 on as negative numbers.
sub constant_offset {
    my ($try, $off, $scale) = @_;
    return $off & 0xffff if $off >= -0x8000 && $off <= 0xffff && $off % $scale == 0;
    return hard($try, sprintf 'constant offset %s must be a multiple of %d in 0..0x%x', hex_text($off), $scale, 0x10000 - $scale);
}

# Offsets: signed, or unsigned absolute addresses when the base is RZ.
sub signed_field {
    my ($try, $value, $off, $base) = @_;
    my ($scale, $w) = ($off->{scale} // 1, $off->{w});
    return hard($try, "offset must be a multiple of $scale") if $value % $scale;
    my ($low, $high) = $w ? (-(1 << $w - 1), (1 << ($base == RZ ? $w : $w - 1)) - 1) : (0, 0);
    my $units = int($value / $scale);
    return hard($try, sprintf 'offset %s is out of range %s..%s', hex_text($value), hex_text($low * $scale), hex_text($high * $scale))
        if $units < $low || $units > $high;
    return ($units & (1 << $w) - 1) << $off->{lsb};
}

sub read_number {
    my ($try, $o, $reader) = @_;
    return soft($try, 'an immediate is wanted') unless $o->{kind} eq 'num';
    my $value = eval { $reader->($o->{text}) };
    return $value if defined $value;
    chomp(my $why = $@);
    return hard($try, $why);
}

sub ranged {
    my ($try, $o, $low, $high) = @_;
    my $value = read_number($try, $o, \&integer);
    return unless defined $value;
    return $value if $value >= $low && $value <= $high;
    return hard($try, sprintf 'immediate %s is out of range %s..%s%s', $o->{text}, hex_text($low), hex_text($high),
        wider($try));
}

sub wider {
    my ($try) = @_;
    my $op = $try->{row}{op};
    my $wide = ($op eq 'LOP3' ? 'LOP' : $op) . '32I';
    return $try->{env}{table}->rows_of($wide) ? " ($wide takes 32 bits)" : '';
}

sub label {
    my ($try, $o) = @_;
    my $address = $try->{env}{label}->($o->{name});
    return $address if defined $address;
    return hard($try, "undefined label '$o->{name}'");
}

1;
