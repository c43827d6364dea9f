package MaxAs::Assembler;
# Source to a module (see MaxAs::Cubin): the passes, in order.
use strict;
use warnings;
use Exporter 'import';
use File::Basename qw(dirname);
use MaxAs::Access qw(check_controls check_shared resources);
use MaxAs::Encode ();
use MaxAs::Fail qw(fail fail_plain warn_at);
use MaxAs::Fragment qw(check_fragments fragments);
use MaxAs::Header qw(parse_header module_header);
use MaxAs::Immediate qw(perl_allowed with_globals);
use MaxAs::Interface qw(declare_params interface_text mapping_text param_base);
use MaxAs::Layout qw(label_addresses encode_all code_bytes tail_items);
use MaxAs::Preprocess qw(expand set_global constant_map substitute);
use MaxAs::Program qw(split_kernels parse_items instruction_text);
use MaxAs::Registers;
use MaxAs::Reuse qw(set_reuse requested_reuse block_reuse);
use MaxAs::Banks qw(assign_pools bank_report);
use MaxAs::Schedule qw(schedule_items);
use MaxAs::Source;
use MaxAs::Table;
our @EXPORT_OK = qw(assemble preprocess interface flat files);

my %SM = map { $_ => 1 } 50, 52, 53, 60, 61, 62, 80, 86, 89, 90;

# Everything up to scheduling. %opt: arch, kernel (name), no_code, debug.
# Returns (module, what stands before the first kernel, kernels): each kernel { header..., items, registers, constants,
# sm }.
sub _front {
    my ($file, %opt) = @_;
    perl_allowed(!$opt{no_code});
    set_global(sm => $1) if ($opt{arch} // '') =~ /^sm_(\d+)\z/;
    my $search = _search($file, %opt);
    my $source = expand(MaxAs::Source->read_file($file), $search, $opt{code} // ($opt{no_code} ? 'refuse' : 'run'));
    my ($preamble, @parts) = _kernel_parts($source);
    my $module = { constants => {}, globals => [] };
    my $common = _mappings({ constants => {}, registers => MaxAs::Registers->new }, $preamble);
    parse_header($preamble, {}, $module, $opt{arch}) if @parts;
    my @kernels = map { _kernel($_, $common, $module, %opt) } @parts;
    fail_plain("--kernel names one kernel, and $file has " . @kernels . ': ' . join ', ', map { $_->{declared_name} // '(no name)' } @kernels)
        if defined $opt{kernel} && @kernels > 1;
    _unique(@kernels);
    module_header($module);
    return ($module, $common, @kernels);
}

# Where includes are looked for, and which files were read: the source so far.
sub _search {
    my ($file, %opt) = @_;
    return { main => dirname($file), folders => $opt{include} // [], confined => $opt{no_code}, read => [$file] };
}

# ([preamble lines], [kernel's lines], ...), each with its mapping blocks still inside.
sub _kernel_parts {
    my ($source) = @_;
    my ($preamble, @parts) = split_kernels($source->lines);
    @parts = ($preamble), $preamble = [] unless @parts;
    return ($preamble, @parts);
}

# Takes the mapping blocks out of lines, adding to a copy of what was mapped before.
sub _mappings {
    my ($before, $lines) = @_;
    return { %$before, lines => [] } unless @$lines;
    my $source = MaxAs::Source->new(join('', map { "$_->{text}\n" } @$lines), [map { $_->{at} } @$lines]);
    ($source, my @constant_bodies) = $source->take_blocks('CONSTANT_MAPPING');
    ($source, my @register_bodies) = $source->take_blocks('REGISTER_MAPPING');
    my $constants = constant_map({ %{ $before->{constants} } }, @constant_bodies);
    my $registers = $before->{registers}->copy->define(@register_bodies);
    my @rest = $source->check_no_marks->lines;
    return { constants => $constants, registers => $registers, lines => \@rest,
        register_bodies => \@register_bodies, 
        fragments => fragments(\@rest, \@register_bodies, \@constant_bodies) };
}

sub _kernel {
    my ($lines, $common, $module, %opt) = @_;
    my $mapped = _mappings($common, $lines);
    my $kernel = { params => undef, textures => [], at => $lines->[0]{at}, %$mapped, constants => { %{ $mapped->{constants} } } };
    my @lines = @{ $mapped->{lines} };
    parse_header([_header_lines($common->{lines})], $kernel, { constants => {}, globals => [] }, $opt{arch});    # what belongs to all
    parse_header([_header_lines(\@lines)], $kernel, $module, $opt{arch});
    $kernel->{declared_name} = $kernel->{name};
    $kernel->{name} = _kernel_name($opt{kernel}) if defined $opt{kernel};
    my $arch = $opt{arch} // $kernel->{arch} // 'sm_52';
    $kernel->{sm} = substr $arch, 3;
    fail_plain("architecture '$arch' must be one of " . join(' ', map { "sm_$_" } sort keys %SM)) unless $SM{ $kernel->{sm} };
    $kernel->{param_base} = param_base($kernel->{sm});
    declare_params($kernel);
    for my $line (@lines) { $line->{text} = substitute($line->{text}, $kernel->{constants}) }
    $kernel->{lines} = \@lines;
    check_fragments($mapped->{fragments} // {}, $kernel) unless $opt{header_only};
    $kernel->{items} = [parse_items(@lines)] unless $opt{header_only};
    return $kernel;
}

sub _kernel_name {
    my ($name) = @_;
    fail_plain("--kernel must be a name such as gemm_64x64 (got '" . substr($name, 0, 80) . "')") unless $name =~ /^[A-Za-z_\$][\w\$]*\z/;
    return $name;
}

sub _unique {
    my %seen;
    for my $kernel (@_) {
        next unless defined $kernel->{name};
        fail($kernel->{at}, "kernel '$kernel->{name}' defined twice") if $seen{ $kernel->{name} }++;
    }
    return;
}

# -- assembling -------------------------------------------------------------------------------------------------

# %opt: arch, kernel, no_code, include (folders), no_reuse, debug. Returns a module; kernels carry `report` (counts).
sub assemble {
    my ($file, %opt) = @_;
    my ($module, undef, @kernels) = _front($file, %opt);
    my %arch = map { $_->{sm} => 1 } @kernels;
    fail_plain("$file: kernels for different architectures: " . join ' ', map { "sm_$_" } sort keys %arch) if keys %arch > 1;
    $module->{sm} = $kernels[0]{sm};
    _kernel_code($_, $module, %opt) for @kernels;
    $module->{kernels} = \@kernels;
    $module->{interface} = interface_text($module, @kernels);
    return $module;
}

sub _kernel_code {
    my ($kernel, $module, %opt) = @_;
    fail($kernel->{at}, "the kernel has no name: give one with --kernel NAME, or write a line '# Kernel: NAME' in front of it")
        unless defined $kernel->{name};
    _parameters($kernel);
    my $table = MaxAs::Table->for_sm($kernel->{sm});
    my $wide = $table->{word_bits} > 64;
    my $env = _environment($kernel, $table);
    my @items = schedule_items($kernel->{items}, $kernel->{registers}, $env, %opt);
    my @instructions = grep { $_->{type} eq 'instr' } @items;
    fail($kernel->{at}, "kernel '$kernel->{name}' has no instructions") unless @instructions;
    assign_pools(\@items, $kernel->{registers}, $env, %opt);
    my $style = $kernel->{targets} // 'group';
    my $labels = label_addresses(\@items, $style, $wide);
    $env->{label} = sub { $labels->{ $_[0] } };
    push @items, $kernel->{no_tail} ? _padding(scalar @instructions, $wide) : tail_items(scalar @instructions, $style, $wide);
    @instructions = grep { $_->{type} eq 'instr' } @items;
    encode_all(\@instructions, $env);
    check_controls(@instructions);
    check_shared($kernel, @instructions) unless $opt{template};    # the cubin that code is put into says it otherwise
    $opt{no_reuse} || $wide ? requested_reuse(\@instructions) : set_reuse(\@items, $kernel->{registers});
    block_reuse(\@items, $kernel->{registers}, $table, !$opt{no_reuse}) if $wide;
    _constants_in_range($kernel, $module, \@instructions) unless $opt{template};
    $kernel->{code} = code_bytes(\@instructions, $wide);
    $kernel->{report} = bank_report(\@items, $kernel->{registers}, $table);
    resources($kernel, \@instructions);
    return;
}

# A kernel that brings its own end is only filled up to whole groups.
sub _padding {
    my ($count, $wide) = @_;
    my (undef, @padding) = tail_items($count - 1, 'group', $wide);
    return @padding;
}

sub _environment {
    my ($kernel, $table) = @_;
    my $registers = $kernel->{registers};
    my %slot = map { $kernel->{textures}[$_] => $kernel->{texture_slots}[$_] / 4 } 0 .. $#{ $kernel->{textures} };
    return {
        table    => $table,
        sm       => $kernel->{sm},
        register => sub { $registers->number($_[0]) },
        label    => sub { undef },
        texture  => sub { $slot{ $_[0] } },
    };
}

# Layout of constant bank 0: parameters, then one word per texture.
sub _parameters {
    my ($kernel) = @_;
    my $end = 0;
    for my $p (@{ $kernel->{params} // [] }) {
        $end = $p->{offset} + $p->{size} if $end < $p->{offset} + $p->{size};
    }
    my $base = $kernel->{param_base};
    my $words = $base + $end + -$end % 4;
    $kernel->{texture_slots} = [map { $words + 4 * $_ } 0 .. $#{ $kernel->{textures} }];
    $kernel->{param_bytes}    = $end;
    $kernel->{constant0_size} = @{ $kernel->{textures} } ? $words + 4 * @{ $kernel->{textures} } : $base + $end;
    $kernel->{const} = $kernel->{const_data} // {};
    for my $i (0 .. $#{ $kernel->{textures} }) {
        my $name = $kernel->{textures}[$i];
        my $mapped = $kernel->{constants}{$name};
        next unless defined $mapped && $mapped =~ /^(?:0x[0-9a-fA-F]+|\d+)$/;
        my ($have, $want) = ($mapped =~ /^0/ ? oct $mapped : $mapped, $kernel->{texture_slots}[$i] / 4);
        fail($kernel->{at}, sprintf "texture '%s' is mapped to slot 0x%x, but its slot is 0x%x (word index into c[0x0])", $name, $have, $want)
            if $have != $want;
    }
    return;
}

# A constant beyond what is declared is a misspelt offset, or a missing declaration.
sub _constants_in_range {
    my ($kernel, $module, $instructions) = @_;
    my %size = (0 => $kernel->{constant0_size}, map { $_ => length $kernel->{const}{$_} } keys %{ $kernel->{const} });
    for my $inst (@$instructions) {
        for my $arg (grep { defined $_->{bank} && defined $_->{offset} } values %{ $inst->{args} }) {
            my ($bank, $offset) = @{$arg}{qw(bank offset)};
            my $have = $size{$bank} // length($module->{constants}{$bank}{data} // '');
            next if $offset + 4 <= $have + -$have % 4;
            next if $bank == 0 && !defined $kernel->{params};
            fail($inst->{at}, sprintf 'c[0x%x][0x%x] is undefined: %s', $bank, $offset, $bank == 0
                ? sprintf('the parameters end at 0x%x (# Params)', $have)
                : sprintf('bank %d has %d bytes (# Constant, # ConstantData)', $bank, $have));
        }
    }
    return;
}

# -- the header only -------------------------------------------------------------------------------------------

# The interface of a source's kernels as JSON, from header lines that stand in it and its includes: no code is run, nothing
# assembled.
sub interface {
    my ($file, %opt) = @_;
    my ($module, undef, @kernels) = _front($file, %opt, code => 'skip', header_only => 1);
    _parameters($_) for @kernels;
    return interface_text($module, @kernels);
}

# The files a source is made of, itself first.
sub files {
    my ($file, %opt) = @_;
    my $search = _search($file, %opt);
    MaxAs::Source->read_file($file)->include($search);
    my %seen;
    return grep { !$seen{$_}++ } @{ $search->{read} };
}

# The source with its includes in place and the parameters' names spelled out, for assemblers that do not know `# Param:`.
sub flat {
    my ($file, %opt) = @_;
    my (undef, undef, @kernels) = _front($file, %opt, code => 'skip', header_only => 1);
    my $text = MaxAs::Source->read_file($file)->include(_search($file, %opt))->{text};
    $text =~ s/^(\s*#\s*(?:Takes|Uses|Leaves)):/$1/mg;    # of the fragments, which are one file now
    my $n = 0;
    my $mapping = sub { my $k = $kernels[$n++]; return $k ? mapping_text($k) : '' };
    return $text if $text =~ s/^(\s*#\s*Kernel:\s.*\n)/$1 . $mapping->()/gme;
    return $mapping->() . $text;
}

# -- preprocessing only -----------------------------------------------------------------------------------------

# The text with every pass up to scheduling applied; register names stay. With $opt{lines} only the instructions, each
# behind the place in the source it comes from and a tab.
sub preprocess {
    my ($file, %opt) = @_;
    my (undef, $common, @kernels) = _front($file, %opt);
    my $out = $opt{lines} ? '' : _kept_text($common);
    for my $kernel (@kernels) {
        _parameters($kernel);
        my @items = schedule_items($kernel->{items}, $kernel->{registers}, _environment($kernel, MaxAs::Table->for_sm($kernel->{sm})), %opt);
        _fill_globals($_) for grep { $_->{type} eq 'instr' } @items;
        if ($opt{lines}) {
            $out .= join '', map { "$_->{at}{file}:$_->{at}{line}\t" . instruction_text($_) . "\n" }
                grep { $_->{type} eq 'instr' } @items;
            next;
        }
        $out .= _kept_text($kernel) . join '', map { ($_->{type} eq 'label' ? "$_->{name}:" : instruction_text($_)) . "\n" } @items;
    }
    return $out;
}

# $names in operands mean nothing to whoever assembles the preprocessed text: their values take their place.
sub _fill_globals {
    my ($inst) = @_;
    for my $operand (@{ $inst->{operands} }) {
        my $filled = eval { with_globals($operand) };
        fail($inst->{at}, "$inst->{opcode}: " . $@ =~ s/\s+\z//r) unless defined $filled;
        $operand = $filled;
    }
    return;
}

# The header comments and register mappings of a kernel, or of what stands before the first.
sub _kept_text {
    my ($part) = @_;
    my @header = map { "$_->{text}\n" } _header_lines($part->{lines});
    return join '', @header, map { "<REGISTER_MAPPING>$_->{text}</REGISTER_MAPPING>\n" } @{ $part->{register_bodies} // [] };
}

# The comment and empty lines in front of the first instruction or label.
sub _header_lines {
    my ($lines) = @_;
    my $first = 0;
    $first++ while $first < @$lines && $lines->[$first]{text} =~ /^\s*(?:(?:#|\/\/).*)?$/;
    return @{$lines}[0 .. $first - 1];
}

1;
