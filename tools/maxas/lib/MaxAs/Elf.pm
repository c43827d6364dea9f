package MaxAs::Elf;
# ELF files of the CUDA kind, as a list of sections and a list of symbols. Reading is careful: a damaged file is told
# apart by a message, never by a Perl warning. Layout facts: the container section of docs and CUDA 8 / 12.9 output.
use strict;
use warnings;
no warnings 'portable';
use MaxAs::Fail qw(fail_plain);

use constant { SHT_NULL => 0, SHT_PROGBITS => 1, SHT_SYMTAB => 2, SHT_STRTAB => 3, SHT_RELA => 4, SHT_NOBITS => 8, SHT_REL => 9 };
use constant { SHF_WRITE => 1, SHF_ALLOC => 2, SHF_EXECINSTR => 4 };
my $MAX_ALIGN = 1 << 16;
my ($EHDR, $PHENT, $SHENT, $SYMENT) = (64, 56, 64, 24);

# header: { abi, abiversion, type, machine, version, flags }.  sections: [{ name type flags link info align entsize
# data | size }], index 0 the null section.  symbols: [{ name info other shndx value size }], index 0 the null symbol.
sub new {
    my ($class, %header) = @_;
    return bless { header => \%header, sections => [{ name => '', type => SHT_NULL, data => '' }],
        symbols => [{ name => '', info => 0, other => 0, shndx => 0, value => 0, size => 0 }] }, $class;
}

sub section {
    my ($self, $name) = @_;
    for (@{ $self->{sections} }) { return $_ if $_->{name} eq $name }
    return undef;
}

sub section_index {
    my ($self, $name) = @_;
    my $sections = $self->{sections};
    for (1 .. $#$sections) { return $_ if $sections->[$_]{name} eq $name }
    return 0;
}

sub add_section {
    my ($self, %section) = @_;
    push @{ $self->{sections} }, { flags => 0, link => 0, info => 0, align => 1, entsize => 0, data => '', %section };
    return $#{ $self->{sections} };
}

sub add_symbol {
    my ($self, %symbol) = @_;
    push @{ $self->{symbols} }, { info => 0, other => 0, shndx => 0, value => 0, size => 0, %symbol };
    return $#{ $self->{symbols} };
}

# A section of relocations: its name and fields; the newer form has an addend in each entry, the older one in the data that
# is relocated.
sub relocation_section {
    my ($target, $with_addend) = @_;
    return $with_addend ? (".rela$target", type => SHT_RELA, entsize => 24) : (".rel$target", type => SHT_REL, entsize => 16);
}

# ([offset, type, symbol, addend], ...) of a section of relocations.
sub unpack_relocations {
    my ($section) = @_;
    my ($form, $size) = $section->{type} == SHT_RELA ? ('Q<L<L<q<', 24) : ('Q<L<L<', 16);
    return map { my @entry = unpack $form, $_; $entry[3] //= 0; \@entry } $section->{data} =~ /(.{$size})/gs;
}

sub pack_relocations {
    my ($section, @entries) = @_;
    return join '', map { $section->{type} == SHT_RELA ? pack 'Q<L<L<q<', @$_ : pack 'Q<L<L<', @{$_}[0 .. 2] } @entries;
}

# -- reading ----------------------------------------------------------------------------------------------------

sub read_file {
    my ($class, $file) = @_;
    open my $fh, '<:raw', $file or fail_plain("$file: cannot read: $!");
    my $bytes = do { local $/; <$fh> };
    close $fh;
    return $class->parse($bytes // '', $file);
}

sub parse {
    my ($class, $bytes, $file) = @_;
    my $bad = sub { fail_plain("$file: not a cubin this program can read: $_[0]") };
    $bad->('it is ' . length($bytes) . ' bytes long') if length $bytes < $EHDR;
    my ($magic, $elf_class, $endian, $ident, $abi, $abiversion) = unpack 'a4CCCCC', $bytes;
    $bad->('no ELF magic at its start') unless $magic eq "\x7fELF";
    $bad->('not a 64-bit little-endian ELF') unless $elf_class == 2 && $endian == 1;
    my ($type, $machine, $version, undef, undef, $shoff, $flags, undef, undef, undef, $shentsize, $shnum, $shstrndx)
        = unpack 'x16 S<S<L< Q<Q<Q< L< S<S<S<S<S<S<', $bytes;
    $bad->("machine $machine, not NVIDIA CUDA (190)") unless $machine == 190;
    $bad->("section header size $shentsize, not $SHENT") unless $shentsize == $SHENT;
    $bad->('section headers lie outside the file')
        if $shoff > length $bytes || $shnum * $SHENT > length($bytes) - $shoff;
    $bad->("section name table $shstrndx does not exist") unless $shstrndx < $shnum;
    my $self = $class->new(abi => $abi, abiversion => $abiversion, type => $type, version => $version, flags => $flags);
    $self->{sections} = [map { _read_section($bytes, $shoff + $_ * $SHENT, $_, $bad) } 0 .. $shnum - 1];
    my $names = $self->{sections}[$shstrndx]{data};
    $_->{name} = _string($names, $_->{name_offset}, $bad) for @{ $self->{sections} };
    for my $name (qw(.shstrtab .strtab .symtab)) { $bad->("no section $name") unless $self->section($name) }
    $self->_read_symbols($bad);
    return $self;
}

sub _read_section {
    my ($bytes, $at, $index, $bad) = @_;
    my ($name, $type, $flags, $addr, $offset, $size, $link, $info, $align, $entsize)
        = unpack 'L<L<Q<Q<Q<Q<L<L<Q<Q<', substr $bytes, $at, $SHENT;
    $bad->("section $index is aligned to $align, no power of two up to $MAX_ALIGN") if $align & $align - 1 || $align > $MAX_ALIGN;
    my $data = '';
    if ($type != SHT_NOBITS && $type != SHT_NULL) {
        $bad->("section $index lies outside the file") if $offset > length $bytes || $size > length($bytes) - $offset;
        $data = substr $bytes, $offset, $size;
    }
    return { name_offset => $name, type => $type, flags => $flags, link => $link, info => $info, align => $align,
        entsize => $entsize, data => $data, size => $size };
}

sub _string {
    my ($table, $offset, $bad) = @_;
    $bad->('a name lies outside its string table') if $offset > length $table;
    my ($text) = unpack 'Z*', substr $table, $offset;
    return $text;
}

sub _read_symbols {
    my ($self, $bad) = @_;
    my $symtab = $self->section('.symtab');
    my $strings = $self->{sections}[ $symtab->{link} ] or $bad->('.symtab has no string table');
    $self->{symbols} = [];
    for my $i (0 .. int(length($symtab->{data}) / $SYMENT) - 1) {
        my ($name, $info, $other, $shndx, $value, $size) = unpack 'L<CCS<Q<Q<', substr $symtab->{data}, $i * $SYMENT, $SYMENT;
        push @{ $self->{symbols} }, { name => _string($strings->{data}, $name, $bad), info => $info, other => $other,
            shndx => $shndx, value => $value, size => $size };
    }
    return;
}

# -- writing ----------------------------------------------------------------------------------------------------

# The bytes of the file: header, section data, section headers, program headers.
sub bytes {
    my ($self) = @_;
    $self->_write_strings;
    my ($out, @places) = ("\0" x $EHDR);
    for my $section (@{ $self->{sections} }) {
        my $align = $section->{align} || 1;
        $out .= "\0" x (-length($out) % $align) unless $section->{type} == SHT_NULL || $section->{type} == SHT_NOBITS;
        push @places, length $out;
        $out .= $section->{data} unless $section->{type} == SHT_NOBITS;
    }
    $out .= "\0" x (-length($out) % 8);
    my $shoff = length $out;
    $out .= $self->_section_header($_, $places[$_]) for 0 .. $#places;
    my $phoff = length $out;
    my @segments = $self->_segments(\@places, $phoff);
    $out .= pack 'L<L<Q<Q<Q<Q<Q<Q<', @$_ for @segments;
    substr $out, 0, $EHDR, $self->_file_header($shoff, $phoff, scalar @segments);
    return $out;
}

# Both string tables and the symbol table, from the names as they are now.
sub _write_strings {
    my ($self) = @_;
    $self->section('.shstrtab')->{data} = _string_table($self->{sections});
    $self->section('.strtab')->{data}   = _string_table($self->{symbols});
    my $symtab = $self->section('.symtab');
    $symtab->{data} = join '', map { pack 'L<CCS<Q<Q<', @{$_}{qw(name_offset info other shndx value size)} } @{ $self->{symbols} };
    $symtab->{link} = $self->section_index('.strtab');
    return;
}

# The table for the names of these items; each learns its name_offset.
sub _string_table {
    my ($items) = @_;
    my ($text, %at) = ("\0", '' => 0);
    for my $item (@$items) {
        my $name = $item->{name};
        unless (defined $at{$name}) {
            $at{$name} = length $text;
            $text .= "$name\0";
        }
        $item->{name_offset} = $at{$name};
    }
    return $text;
}

sub _size {
    my ($section) = @_;
    return $section->{type} == SHT_NOBITS ? $section->{size} : length $section->{data};
}

sub _section_header {
    my ($self, $index, $offset) = @_;
    my $s = $self->{sections}[$index];
    return "\0" x $SHENT unless $index;
    return pack 'L<L<Q<Q<Q<Q<L<L<Q<Q<', $s->{name_offset}, $s->{type}, $s->{flags}, 0, $offset, _size($s),
        $s->{link}, $s->{info}, $s->{align}, $s->{entsize};
}

# A loader finds: the program headers themselves, constants and code (read, execute), variables (read, write).
sub _segments {
    my ($self, $places, $phoff) = @_;
    my @code = $self->_run($places, sub { ($_[0] & (SHF_ALLOC | SHF_WRITE)) == SHF_ALLOC });
    my @data = $self->_run($places, sub { $_[0] & SHF_WRITE });
    my $count = 1 + !!@code + !!@data + 1;
    my $size = $count * $PHENT;
    my @segments = ([6, 5, $phoff, 0, 0, $size, $size, 8]);
    push @segments, [1, 5, $code[0], 0, 0, $code[1], $code[2], 8] if @code;
    push @segments, [1, 6, $data[0], 0, 0, $data[1], $data[2], 8] if @data;
    push @segments, [1, 5, $phoff, 0, 0, $size, $size, 8];
    return @segments;
}

# Offset, file size and memory size of the sections whose flags fit.
sub _run {
    my ($self, $places, $fits) = @_;
    my ($from, $to, $extra) = (undef, 0, 0);
    for my $i (1 .. $#$places) {
        my $s = $self->{sections}[$i];
        next unless $fits->($s->{flags});
        $from //= $places->[$i];
        if ($s->{type} == SHT_NOBITS) {
            $extra += -$extra % ($s->{align} || 1) + $s->{size};
            $to = $places->[$i] if $to < $places->[$i];
        }
        else { $to = $places->[$i] + length $s->{data} }
    }
    return unless defined $from;
    return ($from, $to - $from, $to - $from + $extra);
}

sub _file_header {
    my ($self, $shoff, $phoff, $segments) = @_;
    my $h = $self->{header};
    return pack 'a4CCCCCx7 S<S<L< Q<Q<Q< L< S<S<S<S<S<S<', "\x7fELF", 2, 1, 1, $h->{abi}, $h->{abiversion},
        $h->{type}, 190, $h->{version}, 0, $phoff, $shoff, $h->{flags}, $EHDR, $PHENT, $segments, $SHENT,
        scalar @{ $self->{sections} }, $self->section_index('.shstrtab');
}

1;
