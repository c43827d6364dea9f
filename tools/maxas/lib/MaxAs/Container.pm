package MaxAs::Container;
# Machine code and metadata in a JSON file to a cubin: the container writer by itself, for code of any architecture.
# The file holds a module as MaxAs::Cubin describes it, with bytes as hex strings.
use strict;
use warnings;
use Exporter 'import';
use JSON::PP ();
use MaxAs::Cubin qw(write_module);
use MaxAs::Fail qw(fail_plain);
our @EXPORT_OK = qw(container);

sub container {
    my ($file) = @_;
    open my $fh, '<:raw', $file or fail_plain("$file: cannot read: $!");
    my $text = do { local $/; <$fh> };
    close $fh;
    my $module = eval { JSON::PP->new->decode($text // '') };
    fail_plain("$file: not JSON: " . ($@ =~ s/ at \S+ line \d+\.?\s*$//r)) unless $module;
    fail_plain("$file: an object with 'sm' and a list 'kernels' wanted")
        unless ref $module eq 'HASH' && $module->{sm} && ref $module->{kernels} eq 'ARRAY' && @{ $module->{kernels} };
    _kernel($file, $_) for @{ $module->{kernels} };
    _bytes($file, 'constant bank', $_, 'data') for values %{ $module->{constants} // {} };
    _bytes($file, $_->{name}, $_, 'data') for @{ $module->{extra_sections} // [] }, grep { defined $_->{data} } @{ $module->{globals} // [] };
    return write_module($module);
}

sub _kernel {
    my ($file, $k) = @_;
    for my $field (qw(name code registers barriers shared param_base param_bytes constant0_size)) {
        fail_plain("$file: kernel " . ($k->{name} // '?') . ": '$field' is missing") unless defined $k->{$field};
    }
    _bytes($file, $k->{name}, $k, 'code');
    _bytes($file, "$k->{name} bank $_", $k->{const}, $_) for keys %{ $k->{const} // {} };
    for my $attribute (grep { $_->[1] == 4 } @{ $k->{attributes} // [] }) { _bytes($file, 'attribute', $attribute, undef) }
    return;
}

# Hex string to bytes, in place: a hash's field, or an attribute's value.
sub _bytes {
    my ($file, $what, $holder, $field) = @_;
    my $place = defined $field ? \$holder->{$field} : \$holder->[2];
    fail_plain("$file: $what: an even number of hex digits wanted") unless defined $$place && $$place =~ /^(?:[0-9a-fA-F]{2})*$/;
    $$place = pack 'H*', $$place;
    return;
}

1;
