package MaxAs::Inspect;
# What a cubin holds: kernels with code, parameters, resources; constants; variables; textures.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Cubin qw($ACCELERATED);
use MaxAs::Elf;
use MaxAs::Fail qw(fail_plain);
our @EXPORT_OK = qw(inspect attributes architecture);

use constant { SHT_NOBITS => 8, STT_OBJECT => 1, STT_FUNC => 2, STT_TEXTURE => 10 };

# { sm, accelerated, kernels [..., sorted by name], constants {bank => {data, symbols}}, globals [...] }
sub inspect {
    my ($elf, $file) = @_;
    my $info = { file => $file, sm => architecture($elf), accelerated => $elf->{header}{flags} & $ACCELERATED, kernels => [],
        constants => {}, globals => [] };
    my $symbols = $elf->{symbols};
    for my $i (1 .. $#$symbols) {
        my $s = $symbols->[$i];
        my $section = $elf->{sections}[ $s->{shndx} ] or next;
        my $type = $s->{info} & 15;
        if ($type == STT_FUNC && $s->{other} & 0x10) { push @{ $info->{kernels} }, _kernel($elf, $s, $i, $file) }
        elsif ($type == STT_OBJECT) { _variable($info, $s, $section, $file) }
    }
    _relocations($elf, $info);
    $_->{frame} = _of_module($elf, $_->{symbol_index}, 0x12) for @{ $info->{kernels} };
    $_->{registers} ||= _of_module($elf, $_->{symbol_index}, 0x2f) for @{ $info->{kernels} };
    return $info;
}

sub architecture {
    my ($elf) = @_;
    my $flags = $elf->{header}{flags};
    # Newer toolkits put the number at bits 8..15; the Maxwell and Pascal ones at bits 0..7.
    return $flags & 0xff;
}

sub _variable {
    my ($info, $s, $section, $file) = @_;
    my %entry = (name => $s->{name}, offset => $s->{value}, size => $s->{size});
    if ($section->{name} =~ /^\.nv\.constant(\d+)$/) {
        push @{ $info->{constants}{$1}{symbols} }, \%entry;
    }
    elsif ($section->{name} =~ /^\.nv\.global/) {
        my $initialised = $section->{type} != SHT_NOBITS;
        fail_plain("$file: variable $s->{name} lies outside $section->{name}")
            if $initialised && $s->{value} + $s->{size} > length $section->{data};
        $entry{data} = substr $section->{data}, $s->{value}, $s->{size} if $initialised;
        push @{ $info->{globals} }, \%entry;
    }
    return;
}

# ([code, format, value], ...) of a .nv.info section; value is a number, or bytes for format 4.
sub attributes {
    my ($data, $name) = @_;
    my ($at, @found) = (0);
    while ($at + 4 <= length $data) {
        my ($format, $code, $value) = unpack 'CCS<', substr $data, $at, 4;
        $at += 4;
        fail_plain("$name: attribute 0x" . sprintf('%02x', $code) . " has unknown format $format") if $format < 1 || $format > 4;
        if ($format == 4) {
            fail_plain(sprintf '%s: attribute 0x%02x is cut off', $name, $code) if $at + $value > length $data;
            push @found, [$code, $format, substr $data, $at, $value];
            $at += $value;
        }
        else { push @found, [$code, $format, $value] }
    }
    return @found;
}

sub _words { my ($bytes) = @_; return unpack 'L<*', $bytes }

sub _kernel {
    my ($elf, $symbol, $index, $file) = @_;
    my $name = $symbol->{name};
    my $text = $elf->{sections}[ $symbol->{shndx} ];
    fail_plain("$file: kernel $name lies outside $text->{name}") if $symbol->{value} + $symbol->{size} > length $text->{data};
    my $code = substr $text->{data}, $symbol->{value}, $symbol->{size};
    fail_plain("$file: code of kernel $name is " . length($code) . ' bytes, not a multiple of 32') if length($code) % 32;
    my $shared = $elf->section(".nv.shared.$name");
    my $constant0 = $elf->section(".nv.constant0.$name");
    my %kernel = (name => $name, code => $code, symbol_index => $index, symbol => $symbol, section => $text,
        registers => $text->{info} >> 24, barriers => $text->{flags} >> 20 & 31, shared => $shared ? $shared->{size} : 0,
        shared_align => $shared ? $shared->{align} : 0, params => [], param_base => 0x140, const => {}, textures => [],
        constant0_size => $constant0 ? length $constant0->{data} : 0, linkage => ('local', 'global', 'weak')[ $symbol->{info} >> 4 ] // '?');
    _kernel_attributes(\%kernel, $elf->section(".nv.info.$name"));
    for my $section (@{ $elf->{sections} }) {
        $kernel{const}{$1} = $section->{data} if $section->{name} =~ /^\.nv\.constant([1-9]\d*)\.\Q$name\E$/;
    }
    $kernel{functions} = [grep { ($_->{info} & 15) == STT_FUNC && !($_->{other} & 0x10) && $_->{shndx} == $symbol->{shndx} } @{ $elf->{symbols} }];
    return \%kernel;
}

sub _kernel_attributes {
    my ($kernel, $section) = @_;
    return unless $section;
    for my $entry (attributes($section->{data}, $section->{name})) {
        my ($code, $format, $value) = @$entry;
        my @words = $format == 4 ? _words($value) : ();
        if    ($code == 0x0a && @words >= 2) { $kernel->{param_base} = $words[1] & 0xffff; $kernel->{param_bytes} = $words[1] >> 16 }
        elsif ($code == 0x17 && @words >= 3) {
            unshift @{ $kernel->{params} }, { ordinal => $words[1] & 0xffff, offset => $words[1] >> 16, size => $words[2] >> 18, align => $words[2] & 0xff };
        }
        elsif ($code == 0x1b && $format < 4) { $kernel->{max_registers} = $value }
        elsif ($code == 0x10 && @words >= 3) { $kernel->{req_threads} = [@words[0 .. 2]] }
        elsif ($code == 0x05 && @words >= 3) { $kernel->{max_threads} = [@words[0 .. 2]] }
        elsif ($code == 0x1e && @words >= 1) { $kernel->{crs_stack} = $words[0] }
    }
    $kernel->{params} = [sort { $a->{ordinal} <=> $b->{ordinal} } @{ $kernel->{params} }];
    return;
}

# A number of a kernel's from the module's attributes: 0x12 local stack bytes, 0x2f registers.
sub _of_module {
    my ($elf, $index, $wanted) = @_;
    my $section = $elf->section('.nv.info') or return 0;
    for my $entry (attributes($section->{data}, $section->{name})) {
        my ($code, $format, $value) = @$entry;
        next unless $code == $wanted && $format == 4 && length $value >= 8;
        my ($symbol, $bytes) = _words($value);
        return $bytes if $symbol == $index;
    }
    return 0;
}

sub _address {
    my ($info, $bank, $offset, $symbol, $addend) = @_;
    my $constants = $info->{constants}{$bank} //= {};
    fail_plain("$info->{file}: a relocation lies outside of constant bank $bank") if $offset + 8 > length($constants->{data} // '');
    push @{ $constants->{relocations} }, { offset => $offset, symbol => $symbol->{name} };
    substr($constants->{data}, $offset, 8) = pack 'q<', $addend if $addend;
    return;
}

# Names of relocated places. An addend that stands in its entry goes where older files have it, into the data.
sub _relocations {
    my ($elf, $info) = @_;
    for my $section (@{ $elf->{sections} }) {
        $info->{constants}{$1}{data} = $section->{data} if $section->{name} =~ /^\.nv\.constant(\d+)$/;
    }
    for my $section (@{ $elf->{sections} }) {
        next unless $section->{name} =~ /^\.rela?\.nv\.constant(\d+)(?:\.(.*))?$/;
        my ($bank, $kernel) = ($1, $2);
        for my $entry (MaxAs::Elf::unpack_relocations($section)) {
            my ($offset, $type, $index, $addend) = @$entry;
            my $symbol = $elf->{symbols}[$index] or next;
            if (defined $kernel && ($symbol->{info} & 15) == STT_TEXTURE) {
                push @{ $_->{textures} }, [$symbol->{name}, $offset] for grep { $_->{name} eq $kernel } @{ $info->{kernels} };
            }
            elsif (!defined $kernel) { _address($info, $bank, $offset, $symbol, $addend) }
        }
    }
    for my $kernel (@{ $info->{kernels} }) {
        $kernel->{textures} = [map { $_->[0] } sort { $a->[1] <=> $b->[1] } @{ $kernel->{textures} }];
    }
    return;
}

1;
