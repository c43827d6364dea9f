package MaxAs::Header;
# The comment header of a kernel: what the instructions do not say themselves. All of it is comment, so that a source
# stays valid for other assemblers of the dialect.
use strict;
use warnings;
use Exporter 'import';
use List::Util ();
use MaxAs::Fail qw(fail);
our @EXPORT_OK = qw(parse_header module_header);

my $NAME = qr/[A-Za-z_\$][\w\$]*/;
my $SIZE = qr/0x[0-9a-fA-F]{1,8}|\d{1,9}/;

sub _int { my ($text) = @_; return $text =~ /^0x/i ? hex $text : 0 + $text }

# Keyword -> [pattern, what it wants, what it does with (header, captures)]
my %KEY = (
    Kernel     => [qr/^($NAME)$/, 'a name', sub { $_[0]{name} = $_[1] }],
    Arch       => [qr/^(sm_\d\d)$/, 'sm_50 .. sm_62', sub { $_[0]{arch} = $_[1] }],
    SharedSize => [qr/^($SIZE)$/, 'bytes', sub { $_[0]{shared} = _int($_[1]) }],
    MinRegs    => [qr/^(\d{1,3})$/, 'a register count', sub { $_[0]{min_registers} = $_[1] }],
    MinBars    => [qr/^(\d{1,2})$/, 'a barrier count', sub { $_[0]{min_barriers} = $_[1] }],
    MaxRegs    => [qr/^(\d{1,3})$/, 'a register count', sub { $_[0]{max_registers} = $_[1] }],
    StackSize  => [qr/^($SIZE)$/, 'bytes', sub { $_[0]{frame} = _int($_[1]) }],
    CrsStack   => [qr/^($SIZE)$/, 'bytes', sub { $_[0]{crs_stack} = _int($_[1]) }],
    MaxThreads => [qr/^(\d{1,5})(?:[\s,]+(\d{1,5}))?(?:[\s,]+(\d{1,5}))?$/, 'x [y z]', sub { $_[0]{max_threads} = _dim(@_[1 .. 3]) }],
    ReqThreads => [qr/^(\d{1,5})(?:[\s,]+(\d{1,5}))?(?:[\s,]+(\d{1,5}))?$/, 'x [y z]', sub { $_[0]{req_threads} = _dim(@_[1 .. 3]) }],
    Texture    => [qr/^($NAME)$/, 'a name', sub { push @{ $_[0]{textures} }, $_[1] }],
    Tail       => [qr/^(none)$/, 'none', sub { $_[0]{no_tail} = 1 }],
    ConstantSize => [qr/^bank\s+(\d{1,2})\s+($SIZE)$/, 'bank n bytes', sub { $_[0]{constants}{ 0 + $_[1] }{size} = _int($_[2]) }],
    Targets    => [qr/^(group|instruction)$/, 'group or instruction', sub { $_[0]{targets} = $_[1] }],
    Attribute  => [qr/^($SIZE)\s+([1-4])((?:\s+[0-9a-fA-F]{2})*)$/, 'code format [bytes in hex]', \&_attribute],
    Function   => [qr/^(\S+)\s+($SIZE)\s+($SIZE)$/, 'name offset size',
        sub { push @{ $_[0]{functions} }, { name => $_[1], value => _int($_[2]), size => _int($_[3]) } }],
    ConstantData => [qr/^bank\s+(\d{1,2})((?:\s+[0-9a-fA-F]{8})*)$/, 'bank n, then 32-bit words in hex', \&_constant_data],
    Constant   => [qr/^bank\s+(\d{1,2})\s+($NAME)\s+($SIZE)(?:\s+($SIZE))?(?:\s+at\s+($SIZE))?$/,
        'bank n name bytes [alignment] [at offset]', \&_constant],
    ConstantAddress => [qr/^bank\s+(\d{1,2})\s+($SIZE)\s+($NAME)$/, 'bank n offset name',
        sub { push @{ $_[0]{constants}{ 0 + $_[1] }{relocations} }, { offset => _int($_[2]), symbol => $_[3] } }],
    Global     => [qr/^($NAME)\s+($SIZE)(?:\s+($SIZE))?((?:\s+[0-9a-fA-F]{8})*)$/, 'name bytes [alignment] [words in hex]', \&_global],
);
# These describe the whole cubin wherever they stand.
my %MODULE_KEY = map { $_ => 1 } qw(Constant ConstantSize ConstantAddress Global);
# Written by the extractor, recomputed by the assembler.
my %COUNTED = map { $_ => 1 } qw(InsCnt RegCnt BarCnt Instructions);

sub _dim { my @d = map { $_ // 1 } @_; return \@d }

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
    if ($bank == 3 || $bank == 4) { $module->{constants}{ 0 + $bank }{data} .= $data }
    else                          { $h->{const_data}{ 0 + $bank } .= $data }
    return;
}

sub _constant {
    my ($h, $bank, $name, $size, $align, $at) = @_;
    push @{ $h->{constants}{ 0 + $bank }{wanted} }, { name => $name, size => _int($size), align => _int($align // 4),
        at => defined $at ? _int($at) : undef };
    return;
}

sub _global {
    my ($h, $name, $size, $align, $hex) = @_;
    my $data = join '', map { pack 'V', hex } ($hex // '') =~ /\S+/g;
    push @{ $h->{globals} }, { name => $name, size => _int($size), align => _int($align // 4),
        data => length $data ? substr($data, 0, _int($size)) : undef };
    return;
}

# Reads comment lines up to the first instruction. $kernel and $module are filled; returns nothing.
sub parse_header {
    my ($lines, $kernel, $module) = @_;
    my $params;
    for my $line (@$lines) {
        next unless $line->{text} =~ /^\s*#(.*)/;
        my ($text, $at) = ($1, { %{ $line->{at} }, now => $line->{text} });
        if ($text =~ /^\s*Params\s*\((\d+)\)\s*:/) { $params = $1; $kernel->{params} = []; next }
        if (defined $params && $text =~ /^\s*(\d{1,4}|ord):/) { _param($kernel, $text, $at); next }
        next unless $text =~ /^\s*([A-Z]\w*)\s*:\s*(.*?)\s*$/ && ($KEY{$1} || $COUNTED{$1});
        my ($key, $value) = ($1, $2);
        next if $COUNTED{$key};
        my ($pattern, $wants, $store) = @{ $KEY{$key} };
        my @found = $value =~ $pattern or fail($at, "header '$key: $value': $key wants $wants");
        $store->($key eq 'ConstantData' ? ($kernel, $module) : $MODULE_KEY{$key} ? $module : $kernel, @found);
    }
    if (defined $params && @{ $kernel->{params} } != $params) {
        fail($lines->[0]{at}, "kernel '$kernel->{name}': Params($params) is followed by " . @{ $kernel->{params} } . ' parameter lines');
    }
    return;
}

sub _param {
    my ($kernel, $text, $at) = @_;
    $text =~ s/^\s+|\s+$//g;
    return if $text =~ /^ord:/;
    my ($ordinal, $address, $size, $align) = $text =~ /^(\d{1,4}):(0x[0-9a-fA-F]{1,4}|\d{1,5}):(\d{1,4}):(\d{1,3})$/
        or fail($at, "parameter line '$text' must be ord:address:size:align, such as 0:0x140:8:0");
    my $offset = _int($address) - 0x140;
    fail($at, "parameter $ordinal lies at $address, parameters start at 0x140") if $offset < 0;
    fail($at, "parameter $ordinal ends beyond 4096 bytes") if $offset + $size > 4096;
    fail($at, "parameter ordinal $ordinal out of order") if $ordinal != @{ $kernel->{params} };
    push @{ $kernel->{params} }, { ordinal => 0 + $ordinal, offset => $offset, size => 0 + $size, align => 0 + $align };
    return;
}

# Offsets of the named constants of each bank, in order of declaration.
sub module_header {
    my ($module) = @_;
    for my $bank (keys %{ $module->{constants} }) {
        my $c = $module->{constants}{$bank};
        my ($at, $align) = (0, 4);
        for my $want (@{ $c->{wanted} // [] }) {
            my $a = $want->{align} || 1;
            $at = $want->{at} // $at + -$at % $a;
            $align = $a if $a > $align;
            push @{ $c->{symbols} }, { name => $want->{name}, offset => $at, size => $want->{size} };
            $at += $want->{size};
        }
        $at = List::Util::max($at, $c->{size} // 0, map { $_->{offset} + 8 } @{ $c->{relocations} // [] });
        $c->{data} //= '';
        $c->{data} .= "\0" x ($at - length $c->{data}) if $at > length $c->{data};
        $c->{align} = $align if $align > 4;
    }
    return;
}

1;
