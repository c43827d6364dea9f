package MaxAs::Dump;
# Machine code out of a text listing of `cuobjdump -sass` or `nvdisasm -hex`: the words in its comments.
use strict;
use warnings;
no warnings 'portable';
use Exporter 'import';
use MaxAs::Fail qw(fail_plain);
our @EXPORT_OK = qw(read_dump);

# { file, sm, kernels [{ name, code }] }
sub read_dump {
    my ($file) = @_;
    open my $fh, '<:raw', $file or fail_plain("$file: cannot read: $!");
    my ($sm, @kernels);
    while (my $line = <$fh>) {
        $sm = $1 if $line =~ /EF_CUDA_SM(\d\d)\b/ || $line =~ /\bsm_(\d\d)\b/;
        push @kernels, { name => $1, words => [] } if $line =~ /^\s*Function\s*:\s*(\S+)/ || $line =~ /^\.text\.(\S+):/;
        next unless $line =~ /\/\*\s*0x([0-9a-fA-F]{16})\s*\*\/\s*$/;
        push @kernels, { name => 'code', words => [] } unless @kernels;
        push @{ $kernels[-1]{words} }, hex $1;
    }
    close $fh;
    @kernels = grep { @{ $_->{words} } } @kernels;
    fail_plain("$file: neither a cubin nor a listing with encodings (cuobjdump -sass, nvdisasm -hex)") unless @kernels;
    for my $kernel (@kernels) {
        fail_plain("$file: $kernel->{name} has " . @{ $kernel->{words} } . ' words, not groups of four') if @{ $kernel->{words} } % 4;
        $kernel->{code} = pack 'Q<*', @{ $kernel->{words} };
    }
    return { file => $file, sm => $sm // 52, kernels => \@kernels };
}

1;
