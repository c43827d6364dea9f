package MaxAs::Extract;
# A cubin to dialect source: a header with all that the instructions do not say, labels, instructions. Needs none of
# the vendor's tools.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Control qw(unpack_control pack_control control_text);
use MaxAs::Cubin qw(reserved_shared);
use MaxAs::Decode qw(decode);
use MaxAs::Encode qw(encode);
use MaxAs::Fail qw(fail_plain);
use MaxAs::Layout qw(address_of tail_items target_of);
use MaxAs::Program qw(parse_instruction);
use MaxAs::Reuse qw(phase_bits);
use MaxAs::Word qw(get hex_of word_of);
our @EXPORT_OK = qw(extract_kernel extract_body module_lines disassemble_code test_code split_words);

# Code bytes to [word, control bits] per instruction.
sub split_words {
    my ($code, $wide) = @_;
    my @found;
    if ($wide) {
        for my $pair (map { [unpack 'Q<2', $_] } $code =~ /(.{16})/gs) {
            my $control = $pair->[1] >> 41 & 0x1fffff;
            push @found, [word_of(sprintf '%016x%016x', $pair->[1] & ~(0x1fffff << 41), $pair->[0]), $control];
        }
        return @found;
    }
    for my $at (map { $_ * 32 } 0 .. int(length($code) / 32) - 1) {
        my ($control, @words) = unpack 'Q<4', substr $code, $at, 32;
        push @found, map { [$words[$_], $control >> 21 * $_ & 0x1fffff] } 0 .. 2;
    }
    return @found;
}

# Every instruction decoded: [{ address, control, guard, opcode, operands, target, word }]; dies at the first unknown.
sub disassemble_code {
    my ($table, $code, $name, $name_target) = @_;
    my ($index, @out) = (0);
    my $wide = $table->{word_bits} > 64;
    for my $pair (split_words($code, $wide)) {
        my ($word, $bits) = @$pair;
        my $address = address_of($index++, $wide);
        my $control = unpack_control($bits);
        my $inst = decode($table, $word, $control, $address, $name_target);
        fail_plain(sprintf '%s+0x%04x: %s', $name, $address, $inst) unless ref $inst;
        push @out, { %$inst, address => $address, control => $control, control_bits => $bits, word => $word };
    }
    return @out;
}

# Which way labels in front of a group are meant: the form most branches of this code use.
sub _style {
    my (@instructions) = @_;
    my ($group, $first) = (0, 0);
    for my $target (grep { defined } map { $_->{target} } @instructions) {
        $group++ if $target % 32 == 0;
        $first++ if $target % 32 == 8;
    }
    return $first > $group ? 'instruction' : 'group';
}

# How many instructions are the program: what follows is exactly the tail that the assembler adds by itself.
sub _body_length {
    my ($instructions, $style, $table, $sm) = @_;
    my $count = @$instructions;
    my $wide = $table->{word_bits} > 64;
    for my $length (reverse(($count > 9 ? $count - 9 : 0) .. $count - 1)) {
        my @tail = tail_items($length, $style, $wide);
        next if $length + @tail != $count;
        my $i = $length;
        my $same = 1;
        for my $item (@tail) {
            my $word = encode($item, { table => $table, sm => $sm, address => address_of($i, $wide), register => sub { }, label => sub { } });
            my $have = $instructions->[$i++];
            $same &&= $word == $have->{word} && pack_control($item->{control}) == $have->{control_bits};
        }
        return $length if $same;
    }
    return $count;
}

# %$kernel as MaxAs::Inspect describes it; returns source text.
sub extract_kernel {
    my ($table, $kernel, $sm) = @_;
    my ($body, $style, $count, $tail) = _body($table, $kernel, $sm);
    return _header($kernel, $sm, $style, $count, $tail) . $body;
}

# Labels and instructions only.
sub extract_body {
    my ($table, $kernel, $sm) = @_;
    my ($body) = _body($table, $kernel, $sm);
    return $body;
}

sub _body {
    my ($table, $kernel, $sm) = @_;
    my @all = disassemble_code($table, $kernel->{code}, $kernel->{name}, sub { undef });
    my $style = _style(@all);
    my $length = _body_length(\@all, $style, $table, $sm);
    my $wide = $table->{word_bits} > 64;
    my %index = map { target_of($_, $style, $wide) => $_ } 0 .. $length;
    my %label;
    for my $target (grep { defined } map { $_->{target} } @all[0 .. $length - 1]) { $label{$target} = undef if exists $index{$target} }
    my $n = 0;
    $label{$_} = 'L' . $n++ for sort { $a <=> $b } keys %label;
    my @body = (disassemble_code($table, $kernel->{code}, $kernel->{name}, sub { $label{ $_[0] } }))[0 .. $length - 1];
    my $out = '';
    for my $i (0 .. $length) {
        my $name = $label{ target_of($i, $style, $wide) };
        $out .= "$name:\n" if defined $name;
        $out .= _line($body[$i]) if $i < $length;
    }
    return ($out, $style, $length, $length < @all);
}

sub _line {
    my ($inst) = @_;
    my $operands = join ', ', @{ $inst->{operands} };
    return sprintf "%-14s %5s %s%s;\n", control_text($inst->{control}), $inst->{guard} // '', $inst->{opcode},
        length $operands ? " $operands" : '';
}

sub _header {
    my ($k, $sm, $style, $count, $tail) = @_;
    my $shared = ($k->{shared} // 0) - reserved_shared($sm);
    my @lines = ("Kernel: $k->{name}", "Arch: sm_$sm", "InsCnt: $count", "RegCnt: $k->{registers}",
        "SharedSize: " . ($shared < 0 ? 0 : $shared), "BarCnt: $k->{barriers}");
    push @lines, "Targets: $style" if $style ne 'group';
    push @lines, 'Tail: none' unless $tail;
    push @lines, "MinRegs: $k->{registers}", "MinBars: $k->{barriers}", _resource_lines($k);
    push @lines, 'Params(' . @{ $k->{params} } . '):';
    push @lines, "\tord:addr:size:align" if @{ $k->{params} };
    push @lines, map { sprintf "\t%d:0x%x:%d:%d", $_->{ordinal}, $k->{param_base} + $_->{offset}, $_->{size}, $_->{align} } @{ $k->{params} };
    return join('', map { /^\t/ ? "#$_\n" : "# $_\n" } @lines, '', 'Instructions:') . "\n";
}

sub _resource_lines {
    my ($k) = @_;
    my @lines = map { "Texture: $_" } @{ $k->{textures} };
    push @lines, "MaxThreads: @{ $k->{max_threads} }" if $k->{max_threads};
    push @lines, "ReqThreads: @{ $k->{req_threads} }" if $k->{req_threads};
    push @lines, "MaxRegs: $k->{max_registers}" if ($k->{max_registers} // 0xff) != 0xff;
    push @lines, "StackSize: $k->{frame}" if $k->{frame};
    push @lines, "CrsStack: $k->{crs_stack}" if $k->{crs_stack};
    push @lines, map { sprintf 'Function: %s 0x%x 0x%x', @{$_}{qw(name value size)} } @{ $k->{functions} // [] };
    push @lines, map { data_lines($_, $k->{const}{$_}) } sort { $a <=> $b } keys %{ $k->{const} };
    return @lines;
}

# ConstantData lines of eight words each.
sub data_lines {
    my ($bank, $data) = @_;
    $data .= "\0" x (-length($data) % 4);
    return map { "ConstantData: bank $bank " . join ' ', map { sprintf '%08x', $_ } unpack 'V*', $_ } $data =~ /(.{1,32})/gs;
}

# What belongs to the whole cubin: constants with their symbols, variables and their addresses.
sub module_lines {
    my ($info) = @_;
    my @lines;
    for my $g (@{ $info->{globals} }) {
        my $align = $g->{offset} ? $g->{offset} & -$g->{offset} : 256;
        my @words = defined $g->{data} ? map { sprintf '%08x', $_ } unpack 'V*', $g->{data} . "\0" x (-length($g->{data}) % 4) : ();
        push @lines, join ' ', "Global: $g->{name} $g->{size}", $align > 256 ? 256 : $align, @words;
    }
    for my $bank (sort { $a <=> $b } keys %{ $info->{constants} }) {
        my $c = $info->{constants}{$bank};
        push @lines, "ConstantSize: bank $bank " . length($c->{data} // '');
        push @lines, map { sprintf 'Constant: bank %d %s %d 4 at 0x%x', $bank, @{$_}{qw(name size offset)} } @{ $c->{symbols} // [] };
        push @lines, map { sprintf 'ConstantAddress: bank %d 0x%x %s', $bank, @{$_}{qw(offset symbol)} } @{ $c->{relocations} // [] };
        push @lines, data_lines($bank, $c->{data}) if ($c->{data} // '') =~ /[^\0]/;
    }
    return @lines ? join('', map { "# $_\n" } @lines) . "#\n" : '';
}

# Re-encodes every instruction of a kernel from its own text: (lines of text, list of differences).
sub test_code {
    my ($table, $code, $name, $sm) = @_;
    my ($index, @lines, @bad) = (0);
    my $wide = $table->{word_bits} > 64;
    for my $pair (split_words($code, $wide)) {
        my ($word, $bits) = @$pair;
        my $address = address_of($index++, $wide);
        my $control = unpack_control($bits);
        my $found = decode($table, $word, $control, $address, sub { undef });
        unless (ref $found) { push @bad, sprintf '%s+0x%04x: %s', $name, $address, $found; push @lines, '?'; next }
        my $text = (_line({ %$found, control => $control }));
        chomp $text;
        push @lines, $text;
        my $problem = _differs($table, $text, $word, $bits, $address, $sm);
        push @bad, sprintf('%s+0x%04x: %s  %s', $name, $address, $text, $problem) if defined $problem;
    }
    return (\@lines, @bad);
}

sub _differs {
    my ($table, $text, $word, $bits, $address, $sm) = @_;
    my $inst = eval { parse_instruction($text, { file => 'test', line => 0, text => $text }) };
    return 'does not parse as an instruction' unless $inst;
    my $again = eval { encode($inst, { table => $table, sm => $sm, address => $address, register => sub { }, label => sub { } }) };
    return 'does not assemble: ' . (ref $@ ? $@->message =~ s/\n.*//sr : $@) unless defined $again;
    return sprintf 'assembles to %s, not %s', hex_of($again), hex_of($word) if $again != $word;
    $inst->{control}{reuse} = $inst->{asked_reuse} | phase_bits($inst);
    my $control = pack_control($inst->{control});
    return sprintf 'its control code means 0x%06x, not 0x%06x', $control, $bits if $control != $bits;
    return;
}

1;
