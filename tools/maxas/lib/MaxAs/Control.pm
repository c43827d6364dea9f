package MaxAs::Control;
# The control code `wait:read:write:yield:stall` in front of every instruction, and its 21 bits.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Fail qw(fail);
our @EXPORT_OK = qw(parse_control pack_control unpack_control control_text $CONTROL_RE);

# What an instruction line starts with; deliberately loose, so that a malformed code is reported as such.
our $CONTROL_RE = qr/[^\s:]+:[^\s:]*:[^\s:]*:[^\s:]*:[^\s:]*/;
my $NONE = 7;

# { wait, read, write (scoreboard number or 7), yield (0/1), stall, reuse }
sub parse_control {
    my ($text, $at) = @_;
    my @part = split /:/, $text, -1;
    fail($at, "control code '$text' malformed: five parts wait:read:write:yield:stall wanted, such as 03:-:2:Y:d")
        unless @part == 5;
    my ($wait, $read, $write, $yield, $stall) = @part;
    my $bad = sub { fail($at, "control code '$text' malformed: $_[0]") };
    $bad->("wait '$wait' must be -- or two hex digits 00..3f") unless $wait eq '--' || $wait =~ /^[0-3][0-9a-fA-F]$/;
    $bad->("read barrier '$read' must be - or 1..6")   unless $read  =~ /^[-1-6]$/;
    $bad->("write barrier '$write' must be - or 1..6") unless $write =~ /^[-1-6]$/;
    $bad->("yield '$yield' must be - or Y")            unless $yield =~ /^[-Yy]$/;
    $bad->("stall '$stall' must be one hex digit")     unless $stall =~ /^[0-9a-fA-F]$/;
    return {
        wait  => $wait eq '--' ? 0 : hex $wait,
        read  => $read eq '-' ? $NONE : $read - 1,
        write => $write eq '-' ? $NONE : $write - 1,
        yield => $yield eq '-' ? 0 : 1,
        stall => hex $stall,
        reuse => 0,
    };
}

sub pack_control {
    my ($c) = @_;
    return $c->{reuse} << 17 | $c->{wait} << 11 | $c->{read} << 8 | $c->{write} << 5 | ($c->{yield} ? 0 : 1) << 4 | $c->{stall};
}

sub unpack_control {
    my ($bits) = @_;
    return {
        stall => $bits & 15, yield => $bits & 16 ? 0 : 1, write => $bits >> 5 & 7, read => $bits >> 8 & 7,
        wait  => $bits >> 11 & 63, reuse => $bits >> 17 & 15,
    };
}

sub control_text {
    my ($c) = @_;
    my $bar = sub { $_[0] == $NONE ? '-' : $_[0] + 1 };
    return sprintf '%s:%s:%s:%s:%x', $c->{wait} ? sprintf('%02x', $c->{wait}) : '--',
        $bar->($c->{read}), $bar->($c->{write}), $c->{yield} ? 'Y' : '-', $c->{stall};
}

1;
