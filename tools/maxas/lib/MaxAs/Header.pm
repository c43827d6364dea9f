package MaxAs::Header;
# The comment header of a kernel: what the instructions do not say themselves. All of it is comment, so that a source
# stays valid for other assemblers of the dialect.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Cubin qw(most_shared);
use MaxAs::Fail qw(fail fail_plain warn_at);
use MaxAs::Interface qw(param_base);
our @EXPORT_OK = qw(parse_header module_header);

my $NAME = qr/[A-Za-z_\$][\w\$]*/;
my $WORD = qr/[A-Za-z_]\w*/;
my $ALIGN = qr/1|2|4|8|16|32|64|128|256/;
my $SIZE = qr/0x[0-9a-fA-F]{1,8}|\d{1,9}/;

my ($MAX_BANK, $MAX_DATA) = (64 * 1024, 1 << 26);    # bytes

sub _int { my ($text) = @_; return $text =~ /^0x/i ? hex $text : 0 + $text }

# Keyword -> [pattern, what it wants, what it does with (header, captures)]
my %KEY = (
    Kernel     => [qr/^($NAME)(?:\s.*)?$/, 'a name', sub { $_[0]{name} = $_[1] }],
    Arch       => [qr/^(sm_\d\d)$/, 'sm_50 .. sm_62 or sm_80 .. sm_90', sub { $_[0]{arch} = $_[1] }],
    SharedSize => [qr/^($SIZE)$/, 'bytes', sub { $_[0]{shared} = _int($_[1]) }],
    MinRegs    => [qr/^(\d{1,3})$/, 'a register count', sub { $_[0]{min_registers} = $_[1] }],
    MinBars    => [qr/^(\d{1,2})$/, 'a barrier count', sub { $_[0]{min_barriers} = $_[1] }],
    MaxRegs    => [qr/^(\d{1,3})$/, 'a register count', sub { $_[0]{max_registers} = $_[1] }],
    StackSize  => [qr/^($SIZE)$/, 'bytes', sub { $_[0]{frame} = _int($_[1]) }],
    CrsStack   => [qr/^($SIZE)$/, 'bytes', sub { $_[0]{crs_stack} = _int($_[1]) }],
    MaxThreads => [qr/^(\d{1,5})(?:[\s,]+(\d{1,5}))?(?:[\s,]+(\d{1,5}))?$/, 'x [y z]', sub { $_[0]{max_threads} = _dim(@_[1 .. 3]) }],
    ReqThreads => [qr/^(\d{1,5})(?:[\s,]+(\d{1,5}))?(?:[\s,]+(\d{1,5}))?$/, 'x [y z]', sub { $_[0]{req_threads} = _dim(@_[1 .. 3]) }],
    Param      => [qr/^(ptr|f32|u32|i32)\s+($WORD)(?:\s+(.*))?$/, 'type (ptr, f32, u32 or i32), name [, meaning]', \&_declared],
    Texture    => [qr/^($NAME)(?:\s+([124]))?$/, 'a name [and 1, 2 or 4 floats in a texel]',
        sub { push @{ $_[0]{textures} }, $_[1]; push @{ $_[0]{channels} }, $_[2] // 4 }],
    Tail       => [qr/^(none)$/, 'none', sub { $_[0]{no_tail} = 1 }],
    ConstantSize => [qr/^bank\s+(\d{1,2})\s+($SIZE)$/, 'bank n bytes', sub { _reach($_[0]{constants}{ 0 + $_[1] } //= {}, _int($_[2])) }],
    Targets    => [qr/^(group|instruction)$/, 'group or instruction', sub { $_[0]{targets} = $_[1] }],
    Attribute  => [qr/^($SIZE)\s+([1-4])((?:\s+[0-9a-fA-F]{2})*)$/, 'code format [bytes in hex]', \&_attribute],
    Function   => [qr/^(\S+)\s+($SIZE)\s+($SIZE)$/, 'name offset size',
        sub { push @{ $_[0]{functions} }, { name => $_[1], value => _int($_[2]), size => _int($_[3]) } }],
    ConstantData => [qr/^bank\s+(\d{1,2})((?:\s+[0-9a-fA-F]{8})*)$/, 'bank n, then 32-bit words in hex', \&_constant_data],
    Constant   => [qr/^bank\s+(\d{1,2})\s+($NAME)\s+($SIZE)(?:\s+($ALIGN))?(?:\s+at\s+($SIZE))?$/,
        'bank n name bytes [alignment] [at offset]', \&_constant],
    ConstantAddress => [qr/^bank\s+(\d{1,2})\s+($SIZE)\s+($NAME)$/, 'bank n offset name',
        \&_constant_address],
    Global     => [qr/^($NAME)\s+($SIZE)(?:\s+($ALIGN))?((?:\s+[0-9a-fA-F]{8})*)$/, 'name bytes [alignment] [words in hex]', \&_global],
);
# These describe the whole cubin wherever they stand.
my %MODULE_KEY = map { $_ => 1 } qw(Constant ConstantSize ConstantAddress Global);
# Extensions of ours; in sources of others these words may begin a sentence.
my %OURS = map { $_ => 1 } grep { !/^(?:Kernel|Arch|SharedSize|Param)$/ } keys %KEY;
# Written by the extractor, recomputed by the assembler.
my %COUNTED = map { $_ => 1 } qw(InsCnt RegCnt BarCnt Instructions);

sub _dim { my @d = map { $_ // 1 } @_; return \@d }

sub _declared {
    my ($h, $at, $type, $name, $meaning) = @_;
    push @{ $h->{declared} }, { type => $type, name => $name, meaning => $meaning // '', at => $at };
    return;
}

sub _attribute {
    my ($h, $code, $format, $hex) = @_;
    my $bytes = pack 'H*', join '', $hex =~ /[0-9a-fA-F]{2}/g;
    push @{ $h->{attributes} }, [_int($code) & 255, $format, $format == 4 ? $bytes : unpack 'v', "$bytes\0\0"];
    return;
}

# Banks 3 and 4 belong to the whole cubin, the others to a kernel.
sub _constant_data {
    my ($h, $module, $bank, $hex) = @_;
    my $data = join '', map { pack 'V', hex } $hex =~ /\S+/g;
    unless ($bank == 3 || $bank == 4) { $h->{const_data}{ 0 + $bank } .= $data; return }
    my $c = $module->{constants}{ 0 + $bank } //= {};
    $c->{data} .= $data;
    _reach($c, length $c->{data});
    return;
}

sub _constant_address {
    my ($h, $bank, $offset, $name) = @_;
    my $c = $h->{constants}{ 0 + $bank } //= {};
    push @{ $c->{relocations} }, { offset => _int($offset), symbol => $name };
    _reach($c, _int($offset) + 8);
    return;
}

# Named constants get their offsets in order of declaration, or where `at` puts them.
sub _constant {
    my ($h, $bank, $name, $size, $align, $place) = @_;
    my $c = $h->{constants}{ 0 + $bank } //= {};
    my $a = _int($align // 4) || 1;
    my $next = $c->{next} // 0;
    my $offset = defined $place ? _int($place) : $next + -$next % $a;
    $c->{align} = $a if $a > ($c->{align} // 4);
    push @{ $c->{symbols} }, { name => $name, offset => $offset, size => _int($size) };
    _reach($c, $offset + _int($size));
    return;
}

sub _reach { my ($c, $end) = @_; $c->{next} = $end if $end > ($c->{next} // 0); return }

sub _global {
    my ($h, $name, $size, $align, $hex) = @_;
    my $data = join '', map { pack 'V', hex } ($hex // '') =~ /\S+/g;
    push @{ $h->{globals} }, { name => $name, size => _int($size), align => _int($align // 4),
        data => length $data ? substr($data, 0, _int($size)) : undef };
    return;
}

# Reads comment lines up to the first instruction. $kernel and $module are filled; returns nothing.
sub parse_header {
    my ($lines, $kernel, $module, $arch) = @_;
    my $params;
    for my $line (@$lines) {
        next unless $line->{text} =~ /^\s*#(.*)/;
        my ($text, $at) = ($1, { %{ $line->{at} }, now => $line->{text} });
        if ($text =~ /^\s*Params\s*\((\d+)\)\s*:/) { $params = $1; $kernel->{params} = []; next }
        if (defined $params && $text =~ /^\s*(\d{1,4}|ord):/) { _param($kernel, $text, $at, param_base(substr $arch // $kernel->{arch} // 'sm_52', 3)); next }
        next unless $text =~ /^\s*([A-Z]\w*)\s*:\s*(.*?)\s*$/ && ($KEY{$1} || $COUNTED{$1});
        my ($key, $value) = ($1, $2);
        next if $COUNTED{$key};
        my ($pattern, $wants, $store) = @{ $KEY{$key} };
        my @found = $value =~ $pattern;
        if (!@found) {
            fail($at, "header '$key: $value': $key wants $wants") unless $OURS{$key};
            warn_at($at, "'$key: $value' is taken for a remark: as header line $key wants $wants");
            next;
        }
        $store->($key eq 'Param' ? ($kernel, $at) : $key eq 'ConstantData' ? ($kernel, $module) : $MODULE_KEY{$key} ? $module : $kernel, @found);
        _check_sizes($kernel, $module, $at);
    }
    if (defined $params && @{ $kernel->{params} } != $params) {
        warn_at($lines->[0]{at}, "Params($params) is followed by " . @{ $kernel->{params} } . ' parameter lines');
    }
    return;
}

sub _param {
    my ($kernel, $text, $at, $base) = @_;
    $text =~ s/^\s+|\s+$//g;
    return if $text =~ /^ord:/;
    my ($ordinal, $address, $size, $align, $name) = $text =~ /^(\d{1,4}):(0x[0-9a-fA-F]{1,4}|\d{1,5}):(\d{1,4}):(\d{1,3})(?:[:\s]\s*(\w+).*)?$/
        or fail($at, "parameter line '$text' must be ord:address:size:align [name], such as 0:0x140:8:0");
    my $offset = _int($address) - $base;
    fail($at, sprintf "parameter $ordinal lies at $address, parameters start at 0x%x", $base) if $offset < 0;
    fail($at, "parameter $ordinal ends beyond 4096 bytes") if $offset + $size > 4096;
    fail($at, "parameter ordinal $ordinal out of order") if $ordinal != @{ $kernel->{params} };
    push @{ $kernel->{params} }, { ordinal => 0 + $ordinal, offset => $offset, size => 0 + $size, align => 0 + $align,
        name => $name };
    return;
}

sub _check_sizes {
    my ($kernel, $module, $at) = @_;
    my $most = most_shared($kernel->{arch} // '');
    fail($at, "a block has at most $most bytes of shared memory") if ($kernel->{shared} // 0) > $most;
    for my $bank (keys %{ $module->{constants} }) {
        fail($at, "constant bank $bank is out of range 1..17") if $bank < 1 || $bank > 17;
        fail($at, "constant bank $bank holds at most $MAX_BANK bytes") if ($module->{constants}{$bank}{next} // 0) > $MAX_BANK;
    }
    for my $g (grep { defined $_->{data} } @{ $module->{globals} }) {
        fail($at, "variable '$g->{name}' with initial words holds at most $MAX_DATA bytes") if $g->{size} > $MAX_DATA;
    }
    return;
}

# Fills the banks up to the end of what was declared; every address must be that of a declared variable.
sub module_header {
    my ($module) = @_;
    my %known = map { $_->{name} => 1 } @{ $module->{globals} };
    for my $c (values %{ $module->{constants} }) {
        $c->{data} //= '';
        my $end = $c->{next} // 0;
        $c->{data} .= "\0" x ($end - length $c->{data}) if $end > length $c->{data};
        for my $r (@{ $c->{relocations} // [] }) {
            fail_plain("ConstantAddress: no variable '$r->{symbol}' is declared (# Global)") unless $known{ $r->{symbol} };
        }
    }
    return;
}

1;
