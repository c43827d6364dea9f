package MaxAs::Program;
# Lines to kernels: what belongs to which `# Kernel:`, and each kernel's labels, schedule blocks and instructions.
#
# An item is { type label|instr|open|close, at }: labels have `name`; instructions have opcode, operands, guard,
# control, force (their stall is a minimum for the scheduler); open and close have `name`, a block mark.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Control qw(parse_control $CONTROL_RE);
use MaxAs::Fail qw(fail fail_plain warn_at);
use MaxAs::Operand qw(split_operands);
use MaxAs::Spelling qw(modern_opcode);
our @EXPORT_OK = qw(split_kernels parse_items parse_instruction instruction_text);

# Cuts lines at `# Kernel: name`. Returns (preamble lines, [[at, lines], ...]).
sub split_kernels {
    my (@lines) = @_;
    my (@preamble, @kernels);
    for my $line (@lines) {
        push @kernels, [] if $line->{text} =~ /^\s*#\s*Kernel:\s/;
        push @{ @kernels ? $kernels[-1] : \@preamble }, $line;
    }
    return (\@preamble, @kernels);
}

sub strip_comment {
    my ($text) = @_;
    return $text =~ /^(.*?)\s*(?:#|\/\/)(.*)$/s ? ($1, $2) : ($text, '');
}

sub parse_items {
    my (@lines) = @_;
    my @items;
    for my $line (@lines) {
        my ($text, $comment) = strip_comment($line->{text});
        next unless $text =~ /\S/;
        my $at = { %{ $line->{at} }, now => $line->{text} };
        if ($text =~ /^\s*([A-Za-z]\w*)\s*:\s*$/) { push @items, { type => 'label', name => $1, at => $at } }
        elsif ($text =~ /^\s*<(\/?)(SCHEDULE_BLOCK|ORDERED)>\s*$/) {
            push @items, { type => $1 ? 'close' : 'open', name => $2, at => $at };
        }
        else {
            my $inst = parse_instruction($text, $at);
            $inst->{force} = 1 if $comment =~ /\bFORCE\b/;
            push @items, $inst;
        }
    }
    return @items;
}

sub parse_instruction {
    my ($text, $at) = @_;
    my ($code, $rest) = $text =~ /^\s*($CONTROL_RE)\s+(.*?)\s*$/
        or fail($at, $text =~ /^\s*[-\w]+:/ ? 'control code malformed: wait:read:write:yield:stall wanted, such as 03:-:2:Y:d'
        : 'neither an instruction (control code first), a label nor a block mark');
    my $control = parse_control($code, $at);
    $rest =~ s/\s*;\s*(.*)$// or fail($at, "instruction does not end with ';'");
    warn_at($at, "text behind ';' is ignored: $1") if length $1;
    my ($guard, $opcode, $operands) = $rest =~ /^(?:(\@\S*)\s+)?([A-Za-z][\w.]*)(?:\s+(.*))?$/
        or fail($at, "'$rest' is not an instruction");
    my ($new_opcode, $phase) = modern_opcode($opcode);
    return { type => 'instr', at => $at, control => $control, guard => $guard, opcode => $new_opcode, written => $opcode,
        phase => $phase, operands => [split_operands($operands // '')] };
}

# An instruction back to a source line.
sub instruction_text {
    my ($inst) = @_;
    my $operands = join ', ', @{ $inst->{operands} };
    return sprintf '%-14s %s%s%s;', MaxAs::Control::control_text($inst->{control}),
        defined $inst->{guard} ? sprintf('%-5s', $inst->{guard}) : ' ' x 5, $inst->{written},
        length $operands ? " $operands" : '';
}

1;
