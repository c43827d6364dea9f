package MaxAs::Cubin;
# Writes a loadable cubin from machine code and a description of it (a "module"), with no template:
#   sm, e_flags, e_version (toolkit x 10)
#   kernels   [{ name, code (bytes), registers, barriers, shared, shared_align, params [{ ordinal offset size align }],
#                param_base, constant0_size, const {bank => bytes}, textures [names], texture_slots [byte offsets],
#                max_registers, max_threads [x y z], req_threads [x y z], frame, crs_stack, functions [{name info value size}],
#                exits [], reconvergences [], ctaids [], ctaidz, barrier_attributes [], reallocates, text_align,
#                attributes [[code, format, bytes]] (more, given verbatim),
#                text_flags, accelerated (has instructions that only sm_90a has, say), info_registers (0 where .nv.info alone has the count) }]
#   constants {bank => { data, symbols [{ name offset size }] , relocations [{ offset symbol }] }}   (banks 3 and 4)
#   globals   [{ name size align data }]
#   interface (text, for a section of its own that drivers pass over)
# Every count is trusted: the assembler computed it.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Elf;
use MaxAs::Interface qw($INTERFACE_SECTION);
our @EXPORT_OK = qw(write_module attribute e_flags reserved_shared most_shared $ACCELERATED);

use constant { INFO_TYPE => 0x70000000, R_CUDA_64 => 2, R_CUDA_TEX_HEADER_INDEX => 6 };
use constant { GLOBAL_OBJECT => 0x11, GLOBAL_FUNC => 0x12, GLOBAL_TEXTURE => 0x1a, LOCAL_SECTION => 3 };

# One .nv.info entry: format 1 no value, 2 byte, 3 half, 4 sized.
sub attribute {
    my ($code, $format, $value) = @_;
    return pack('CCS<', $format, $code, $value // 0) if $format < 4;
    return pack('CCS<', 4, $code, length $value) . $value;
}

our $ACCELERATED = 0x800;    # of an architecture with an "a" behind its number: code that runs on no other

# 0x100 unified textures, 0x400 64-bit addresses; the virtual architecture equals the real one.
sub e_flags {
    my ($module) = @_;
    return $module->{sm} << 16 | 0x500 | $module->{sm} | (grep({ $_->{accelerated} } @{ $module->{kernels} }) ? $ACCELERATED : 0);
}

# Whether the toolkit writes relocations with their addends for it.
sub _with_addends { my ($w) = @_; return $w->{module}{sm} >= 90 }

# Bytes of shared memory: that the driver gives a kernel unasked (of more the container holds nothing: the launch brings all); that
# a block may have; in front of a block's own.
my ($STATIC_SHARED, $MOST_SHARED_90) = (48 * 1024, 227 * 1024);
sub most_shared { my ($arch) = @_; return $arch eq 'sm_90' ? $MOST_SHARED_90 : $STATIC_SHARED }
sub reserved_shared { my ($sm) = @_; return $sm < 90 ? 0 : 0x400 }

# What newer architectures want is what the toolkit 12.9 writes for them. Attributes of kernels with the first and the last
# architecture that has them: version of the toolkit, two ways around faults, how registers of others are counted.
my @ATTRIBUTES = ([80, 90, 0x37, 4, pack 'L<', 129], [80, 86, 0x35, 1, 0], [90, 90, 0x50, 3, 0], [90, 90, 0x36, 4, pack 'L<', 8]);

sub _of_its_time {
    my ($module) = @_;
    my $sm = $module->{sm} // 0;
    return $module if $sm < 80 || defined $module->{e_version};
    my @more = map { [@$_[2 .. 4]] } grep { $_->[0] <= $sm && $sm <= $_->[1] } @ATTRIBUTES;
    my @kernels = map { {
        %$_, text_align => 128, $sm < 90 ? () : (info_registers => 0),
        shared => (($_->{shared} // 0) > $STATIC_SHARED ? 0 : $_->{shared} // 0) + reserved_shared($sm),
        attributes => [@{ $_->{attributes} // [] }, @more],
    } } @{ $module->{kernels} };
    my $calls = join '', map { pack 'L<l<', 0, -$_ } 1 .. 4;
    return { %$module, e_version => 129, kernels => \@kernels, extra_sections => [
        @{ $module->{extra_sections} // [] },
        { name => '.nv.callgraph', type => 0x70000001, align => 4, entsize => 8, link => 3, data => $calls },
    ] };
}

sub write_module {
    my ($module) = @_;
    $module = _of_its_time($module);
    my $elf = MaxAs::Elf->new(abi => 0x33, abiversion => 7, type => 2, version => $module->{e_version} // 80,
        flags => $module->{e_flags} // e_flags($module));
    my $w = { elf => $elf, module => $module, link_flag => ($module->{e_version} // 80) >= 90 ? 0x40 : 0, index => {} };
    _plan_sections($w);
    _symbols($w);
    _fill($w);
    return $elf->bytes;
}

sub _section {
    my ($w, $name, %fields) = @_;
    return $w->{index}{$name} = $w->{elf}->add_section(name => $name, %fields);
}

sub _plan_sections {
    my ($w) = @_;
    my ($module, $link) = @{$w}{qw(module link_flag)};
    my @kernels = @{ $module->{kernels} };
    _section($w, '.shstrtab', type => 3);
    _section($w, '.strtab', type => 3);
    _section($w, '.symtab', type => 2, align => 8, entsize => 24);
    _section($w, '.nv.info', type => INFO_TYPE, align => 4, link => 3);
    _section($w, ".nv.info.$_->{name}", type => INFO_TYPE, align => 4, link => 3, flags => $link) for @kernels;
    _section($w, $_->{name}, %$_) for @{ $module->{extra_sections} // [] };
    my $rel = sub { _section($w, MaxAs::Elf::relocation_section($_[0], _with_addends($w)), align => 8, link => 3, flags => $link) };
    $rel->(".nv.constant0.$_->{name}") for grep { @{ $_->{textures} // [] } } @kernels;
    my @banks = sort { $a <=> $b } keys %{ $module->{constants} // {} };
    $rel->(".nv.constant$_") for grep { @{ $module->{constants}{$_}{relocations} // [] } } @banks;
    for my $bank (@banks) {
        _section($w, ".nv.constant$bank", type => 1, flags => 2, align => $module->{constants}{$bank}{align} || ($bank == 4 ? 8 : 4));
    }
    for my $k (@kernels) {
        _section($w, ".nv.constant$_.$k->{name}", type => 1, flags => 2 | $link, align => $k->{const_align}{$_} || 4)
            for sort { $a <=> $b } keys %{ $k->{const} // {} };
        _section($w, ".nv.constant0.$k->{name}", type => 1, flags => 2 | $link, align => 4);
    }
    _section($w, ".text.$_->{name}", type => 1, align => $_->{text_align} // 32, link => 3) for @kernels;
    _section($w, ".nv.shared.$_->{name}", type => 8, flags => 3 | $link, align => $_->{shared_align} || 16, size => $_->{shared})
        for grep { $_->{shared} || $_->{dynamic_shared} } @kernels;
    my @globals = @{ $module->{globals} // [] };
    _section($w, '.nv.global.init', type => 1, flags => 3, align => 8) if grep { defined $_->{data} } @globals;
    _section($w, '.nv.global', type => 8, flags => 3, align => 8, size => 0) if grep { !defined $_->{data} } @globals;
    _section($w, $INTERFACE_SECTION, type => 1, align => 1, data => $module->{interface}) if defined $module->{interface};
    return;
}

# Local symbols first, as ELF wants; what follows refers to the numbers given here.
sub _symbols {
    my ($w) = @_;
    my ($elf, $module, $index) = @{$w}{qw(elf module index)};
    for my $name (map { $_->{name} } grep { $_->{name} =~ /^\.(?:text|nv\.(?:constant|shared|global))/ } @{ $elf->{sections} }) {
        $w->{section_symbol}{$name} = $elf->add_symbol(name => $name, info => LOCAL_SECTION, shndx => $index->{$name});
    }
    for my $k (@{ $module->{kernels} }) {
        $w->{symbol}{ $_->{name} } = $elf->add_symbol(name => $_->{name}, info => 2, shndx => $index->{".text.$k->{name}"},
            value => $_->{value}, size => $_->{size}) for @{ $k->{functions} // [] };
    }
    my $last_local = $#{ $elf->{symbols} };
    _place_globals($w);
    for my $bank (sort { $a <=> $b } keys %{ $module->{constants} // {} }) {
        $w->{symbol}{ $_->{name} } = $elf->add_symbol(name => $_->{name}, info => GLOBAL_OBJECT,
            shndx => $index->{".nv.constant$bank"}, value => $_->{offset}, size => $_->{size})
            for @{ $module->{constants}{$bank}{symbols} // [] };
    }
    for my $k (@{ $module->{kernels} }) {
        $w->{symbol}{$_} //= $elf->add_symbol(name => $_, info => GLOBAL_TEXTURE) for @{ $k->{textures} // [] };
    }
    for my $k (@{ $module->{kernels} }) {
        $w->{symbol}{ $k->{name} } = $elf->add_symbol(name => $k->{name}, info => GLOBAL_FUNC, other => 0x10,
            shndx => $index->{".text.$k->{name}"}, size => length $k->{code});
    }
    $elf->section('.symtab')->{info} = $last_local + ($w->{link_flag} ? 1 : 0);
    return;
}

sub _place_globals {
    my ($w) = @_;
    my ($elf, $index) = @{$w}{qw(elf index)};
    for my $g (@{ $w->{module}{globals} // [] }) {
        my $name = defined $g->{data} ? '.nv.global.init' : '.nv.global';
        my $section = $elf->section($name);
        my $align = $g->{align} || 4;
        my $at = $name eq '.nv.global' ? $section->{size} : length $section->{data};
        my $pad = -$at % $align;
        if ($name eq '.nv.global') { $section->{size} += $pad + $g->{size} }
        else { $section->{data} .= "\0" x $pad . $g->{data} . "\0" x ($g->{size} - length $g->{data}) }
        $section->{align} = $align if $align > $section->{align};
        $w->{symbol}{ $g->{name} } = $elf->add_symbol(name => $g->{name}, info => GLOBAL_OBJECT, shndx => $index->{$name},
            value => $at + $pad, size => $g->{size});
    }
    return;
}

sub _fill {
    my ($w) = @_;
    my ($elf, $module) = @{$w}{qw(elf module)};
    my $info = '';
    $info .= attribute(0x2f, 4, pack 'L<L<', $w->{symbol}{ $_->{name} }, $_->{registers})
        for $w->{link_flag} ? @{ $module->{kernels} } : ();
    for my $k (@{ $module->{kernels} }) {
        my $symbol = $w->{symbol}{ $k->{name} };
        $info .= attribute($_, 4, pack 'L<L<', $symbol, $k->{frame} // 0) for ($w->{link_flag} ? () : 0x23), 0x12, 0x11;
        _fill_kernel($w, $k);
    }
    $elf->section('.nv.info')->{data} = $info;
    for my $bank (keys %{ $module->{constants} // {} }) {
        my $c = $module->{constants}{$bank};
        $elf->section(".nv.constant$bank")->{data} = $c->{data};
        _relocate($w, ".nv.constant$bank", map { [$_->{offset}, R_CUDA_64, $_->{symbol}] } @{ $c->{relocations} // [] });
    }
    return;
}

# Where entries have an addend it comes out of the data.
sub _relocate {
    my ($w, $target, @entries) = @_;
    return unless @entries;
    my ($name) = MaxAs::Elf::relocation_section($target, _with_addends($w));
    my ($rel, $data) = ($w->{elf}->section($name), \$w->{elf}->section($target)->{data});
    $rel->{info} = $w->{index}{$target};
    for my $entry (@entries) {
        my ($offset, $type, $symbol) = @$entry;
        my $addend = $type == R_CUDA_64 && _with_addends($w) ? unpack 'q<', substr $$data, $offset, 8, "\0" x 8 : 0;
        $rel->{data} .= MaxAs::Elf::pack_relocations($rel, [$offset, $type, $w->{symbol}{$symbol}, $addend]);
    }
    return;
}

sub _fill_kernel {
    my ($w, $k) = @_;
    my ($elf, $index, $name) = ($w->{elf}, $w->{index}, $k->{name});
    my $text = $elf->section(".text.$name");
    $text->{data}  = $k->{code};
    $text->{flags} = $k->{text_flags} // (6 | $k->{barriers} << 20);
    $text->{info}  = ($k->{info_registers} // $k->{registers}) << 24 | $w->{symbol}{$name};
    my @tied = (".nv.info.$name", ".nv.constant0.$name", ".nv.shared.$name", map { ".nv.constant$_.$name" } keys %{ $k->{const} // {} });
    for my $section (grep { defined } map { $elf->section($_) } @tied) { $section->{info} = $index->{".text.$name"} }
    $elf->section(".nv.constant$_.$name")->{data} = $k->{const}{$_} for keys %{ $k->{const} // {} };
    $elf->section(".nv.constant0.$name")->{data} = "\0" x $k->{constant0_size};
    _relocate($w, ".nv.constant0.$name",
        map { [$k->{texture_slots}[$_], R_CUDA_TEX_HEADER_INDEX, $k->{textures}[$_]] } 0 .. $#{ $k->{textures} // [] });
    $elf->section(".nv.info.$name")->{data} = _kernel_attributes($w, $k);
    return;
}

# In CUDA 8's order, with the texture bank where 12.9 puts it.
sub _kernel_attributes {
    my ($w, $k) = @_;
    my @params = @{ $k->{params} // [] };
    my $bytes = $k->{param_bytes} // 0;
    my $out = '';
    if (@params) {
        my $constant0 = $w->{section_symbol}{".nv.constant0.$k->{name}"};
        $out .= attribute(0x0a, 4, pack 'L<S<S<', $constant0, $k->{param_base}, $bytes) . attribute(0x19, 3, $bytes);
        for my $p (reverse @params) {
            $out .= attribute(0x17, 4, pack 'L<S<S<L<', 0, $p->{ordinal}, $p->{offset}, $p->{size} << 18 | 0x1f000 | ($p->{align} // 0));
        }
    }
    $out .= attribute(0x1b, 3, $k->{max_registers} // 0xff);
    $out .= attribute($_->[0], $_->[1], $_->[2]) for @{ $k->{barrier_attributes} // [] };
    $out .= attribute(0x54, 1) if $k->{reallocates};
    $out .= attribute(0x15, 2, 0) if @{ $k->{textures} // [] };
    $out .= attribute(0x1d, 4, pack 'L<*', @{ $k->{ctaids} }) if @{ $k->{ctaids} // [] };
    # NOPs of the code: where lanes of a warp wait for each other, as __syncwarp() is compiled
    $out .= attribute(0x28, 4, pack 'L<*', @{ $k->{reconvergences} })
        if @{ $k->{reconvergences} // [] } && !grep { $_->[0] == 0x28 } @{ $k->{attributes} // [] };
    $out .= attribute(0x1c, 4, pack 'L<*', @{ $k->{exits} })  if @{ $k->{exits} // [] };
    $out .= attribute($_->[0], $_->[1], $_->[2]) for @{ $k->{attributes} // [] };
    $out .= attribute(0x04, 1) if $k->{ctaidz};
    $out .= attribute(0x10, 4, pack 'L<L<L<', @{ $k->{req_threads} }) if $k->{req_threads};
    $out .= attribute(0x05, 4, pack 'L<L<L<', @{ $k->{max_threads} }) if $k->{max_threads};
    $out .= attribute(0x1e, 4, pack 'L<', $k->{crs_stack}) if $k->{crs_stack};
    return $out;
}

1;
