package MaxAs::Insert;
# Puts assembled code into a kernel of an existing cubin, whatever toolkit wrote it. Attributes that hold instruction
# offsets are made anew; all others, known or not, stay as they are.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Cubin qw(attribute $ACCELERATED);
use MaxAs::Fail qw(fail_plain warn_at);
use MaxAs::Inspect qw(attributes);
our @EXPORT_OK = qw(insert_kernel);

# Offsets of instructions that only the compiler knows how to find: stale after any change, so they go.
my %STALE = map { $_ => 1 } 0x25, 0x27, 0x28, 0x29, 0x2d, 0x31, 0x34, 0x38, 0x39;

# $elf is changed. $old: the kernel as MaxAs::Inspect describes it; $new: the assembled one.
sub insert_kernel {
    my ($elf, $old, $new) = @_;
    my ($name, $section, $symbol) = @{$old}{qw(name section symbol)};
    fail_plain("kernel $name of the cubin shares its code section with device functions; assemble without a template (-c)")
        if @{ $old->{functions} };
    warn_at(undef, "kernel $name: the cubin gives it $old->{shared} bytes of shared memory, the source asks for $new->{shared}")
        if defined $new->{shared} && $new->{shared} != $old->{shared};
    _check_parameters($old, $new);
    $elf->{header}{flags} |= $ACCELERATED if $new->{accelerated};
    $section->{data}  = $new->{code};
    $section->{flags} = $section->{flags} & ~(31 << 20) | $new->{barriers} << 20;
    $section->{info}  = $section->{info} & 0xffffff | $new->{registers_used} << 24;
    $symbol->{size}   = length $new->{code};
    my $info = $elf->section(".nv.info.$name");
    $info->{data} = _kernel_info($info, $new) if $info;
    _register_count($elf, $old->{symbol_index}, $new->{registers_used});
    return;
}

sub _check_parameters {
    my ($old, $new) = @_;
    return unless $new->{params};
    my $list = sub { @{ $_[0] } ? join ' ', map { "$_->{offset}:$_->{size}" } @{ $_[0] } : 'none' };
    my ($have, $want) = ($list->($old->{params}), $list->($new->{params}));
    warn_at(undef, "kernel $old->{name}: its parameters (offset:size) in the cubin: $have; in the source: $want") if $have ne $want;
    return;
}

sub _kernel_info {
    my ($info, $new) = @_;
    my ($out, $done) = ('', 0);
    my $ours = sub {
        return '' if $done++;
        return (@{ $new->{ctaids} } ? attribute(0x1d, 4, pack 'L<*', @{ $new->{ctaids} }) : '')
            . (@{ $new->{exits} } ? attribute(0x1c, 4, pack 'L<*', @{ $new->{exits} }) : '')
            . join('', map { attribute(@$_) } @{ $new->{barrier_attributes} })
            . ($new->{ctaidz} ? attribute(0x04, 1) : '');
    };
    for my $entry (attributes($info->{data}, $info->{name})) {
        my ($code, $format, $value) = @$entry;
        if ($code == 0x1c || $code == 0x1d || $code == 0x04) { $out .= $ours->() }
        elsif (!$STALE{$code}) { $out .= attribute($code, $format, $value) }
    }
    return $out . $ours->();
}

# The module's own note of the register count, in cubins of newer toolkits.
sub _register_count {
    my ($elf, $index, $registers) = @_;
    my $section = $elf->section('.nv.info') or return;
    my $out = '';
    for my $entry (attributes($section->{data}, $section->{name})) {
        my ($code, $format, $value) = @$entry;
        if ($code == 0x2f && $format == 4 && length $value == 8 && unpack('L<', $value) == $index) {
            $value = pack 'L<L<', $index, $registers;
        }
        $out .= attribute($code, $format, $value);
    }
    $section->{data} = $out;
    return;
}

1;
