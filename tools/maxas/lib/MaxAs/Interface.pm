package MaxAs::Interface;
# A kernel's interface, from its header: `# Param:` lines in order give offsets (each parameter at its natural alignment),
# sizes, and names for the constants that hold them. What stands there is the only copy; `interface_text` is what Python
# reads, from the assembler or from the cubin's section .maxdnn.interface.
use strict;
use warnings;
use Exporter 'import';
use JSON::PP ();
use MaxAs::Fail qw(fail);
use MaxAs::Table;
our @EXPORT_OK = qw(declare_params interface_text mapping_text param_base $INTERFACE_SECTION);

our $INTERFACE_SECTION = '.maxdnn.interface';
my %BYTES = (ptr => 8, f32 => 4, u32 => 4, i32 => 4);

# The first byte of the parameters in constant bank 0.
sub param_base { my ($sm) = @_; return MaxAs::Table->for_sm($sm)->{param_base} }

# Lays out what `# Param:` lines declared and names it: param_x, or param_x[0] and param_x[1] for the halves of a pointer.
sub declare_params {
    my ($kernel) = @_;
    my $declared = $kernel->{declared} or return;
    my $at = $kernel->{at};
    fail($at, "parameters are declared twice: by '# Param:' and by '# Params'") if $kernel->{params};
    my ($end, %seen) = (0);
    for my $param (@$declared) {
        my $size = $BYTES{ $param->{type} };
        fail($param->{at}, "parameter '$param->{name}' is declared twice") if $seen{ $param->{name} }++;
        $end += -$end % $size;
        push @{ $kernel->{params} }, { %$param, ordinal => scalar @{ $kernel->{params} // [] }, offset => $end, size => $size,
            align => 0 };
        $end += $size;
        fail($param->{at}, "parameter '$param->{name}' ends beyond 4096 bytes") if $end > 4096;
    }
    _name($kernel, $_) for @{ $kernel->{params} };
    return;
}

# ([name, the constant it stands for], ...) of a parameter's words.
sub _words {
    my ($kernel, $param) = @_;
    return map { ["param_$param->{name}" . ($param->{size} > 4 ? "[$_]" : ''),
        sprintf 'c[0x0][0x%x]', $kernel->{param_base} + $param->{offset} + 4 * $_] } 0 .. $param->{size} / 4 - 1;
}

sub _name {
    my ($kernel, $param) = @_;
    for my $word (_words($kernel, $param)) {
        my ($name, $text) = @$word;
        my $mapped = $kernel->{constants}{$name};
        fail($param->{at}, "CONSTANT_MAPPING maps '$name' to '$mapped', but parameter '$param->{name}' lies at $text")
            if defined $mapped && $mapped ne $text;
        $kernel->{constants}{$name} = $text;
    }
    return;
}

# The names of declared parameters as a block for assemblers that take nothing but that.
sub mapping_text {
    my ($kernel) = @_;
    return '' unless $kernel->{declared};
    my @lines = map { "    $_->[0] : $_->[1]\n" } map { _words($kernel, $_) } @{ $kernel->{params} };
    return join '', "<CONSTANT_MAPPING>\n", @lines, "</CONSTANT_MAPPING>\n";
}

# JSON of all kernels of a module, one line, the same for every architecture. Threads are those the kernel is launched with,
# registers the bound it keeps; what the header leaves open is null.
sub interface_text {
    my ($module, @kernels) = @_;
    my @constants = map { _symbols($module, $_) } sort { $a <=> $b } keys %{ $module->{constants} };
    my @all = map { {
        name => $_->{name}, threads => $_->{req_threads} && [map { 0 + $_ } @{ $_->{req_threads} }], shared => $_->{shared} // 0,
        registers => defined $_->{max_registers} ? 0 + $_->{max_registers} : undef,
        params => [map { _param($_) } @{ $_->{params} // [] }], textures => $_->{textures},
        channels => [map { 0 + $_ } @{ $_->{channels} // [] }], constants => \@constants,
    } } @kernels;
    return JSON::PP->new->canonical->ascii->encode({ kernels => \@all }) . "\n";
}

sub _param {
    my ($param) = @_;
    return { name => $param->{name}, type => $param->{type}, offset => 0 + $param->{offset}, size => 0 + $param->{size},
        meaning => $param->{meaning} // '' };
}

sub _symbols {
    my ($module, $bank) = @_;
    return map { { bank => 0 + $bank, name => $_->{name}, offset => 0 + $_->{offset}, bytes => 0 + $_->{size} } }
        @{ $module->{constants}{$bank}{symbols} // [] };
}

1;
