package MaxAs::Command;
# The command line: modes, options, what is written where.
use strict;
use warnings;
use MaxAs::Assembler qw(assemble preprocess interface flat files);
use MaxAs::Container qw(container);
use MaxAs::Cubin qw(write_module);
use MaxAs::Dump qw(read_dump);
use MaxAs::Elf;
use MaxAs::Extract qw(extract_body extract_kernel module_lines test_code);
use MaxAs::Fail qw(fail_plain warnings_of);
use MaxAs::Insert qw(insert_kernel);
use MaxAs::Inspect qw(inspect);
use MaxAs::Preprocess qw(set_global);
use MaxAs::Table;

my $VERSION = '1.06';

my %MODE = (
    '-c' => \&_assemble, '--cubin' => \&_assemble,
    '--interface' => \&_interface,
    '-p' => \&_preprocess, '--pre' => \&_preprocess,
    '-l' => \&_list, '--list' => \&_list,
    '-t' => \&_test, '--test' => \&_test,
    '-e' => \&_extract, '--extract' => \&_extract,
    '-i' => \&_insert, '--insert' => \&_insert,
    '-s' => \&_sass,
    '--container' => \&_container,
    '-v' => \&_version, '--version' => \&_version,
);

# Returns the exit status.
sub main {
    my @args = @_;
    my $status = eval { _run(@args) };
    return $status if defined $status;
    my $error = $@;
    my $text = ref $error && $error->isa('MaxAs::Fail') ? $error->message : "internal error: $error";
    $text =~ s/\s+\z//;
    print STDERR "$text\n";
    return 1;
}

sub _run {
    my ($mode, @args) = @_;
    my $run = $MODE{ $mode // '' };
    unless ($run) {
        my $asked = defined $mode && $mode =~ /^(?:-h|--help)$/;
        print { $asked ? *STDOUT : *STDERR } _usage();
        return $asked ? 0 : 1;
    }
    return $run->(@args);
}

sub _version { print "$VERSION\n"; return 0 }

sub _usage {
    return <<'END';
Assembler for Maxwell, Pascal, Ampere and Hopper (sm_50 .. 62, sm_80 .. 90) in the MaxAs dialect; sass/README.md describes the dialect.

  maxas.pl -c [options] [-o out.cubin] source        assemble a complete cubin
  maxas.pl -i [options] source cubin [new.cubin]     assemble into a kernel of an existing cubin
  maxas.pl -p [options] source [out]                 preprocess only
  maxas.pl --interface [options] source [out]        the kernels' interface as JSON, from the header alone
  maxas.pl -e [-k kernel] cubin [out.sass]           extract as source
  maxas.pl -s [-k kernel] listing [out.sass]         the same from cuobjdump -sass or nvdisasm -hex text
  maxas.pl -l cubin                                  list kernels and symbols
  maxas.pl -t [-r] [-a] [-k kernel] cubin|listing    re-encode every instruction and compare
  maxas.pl --container module.json -o out.cubin      write a cubin from machine code and metadata
  maxas.pl -v                                        dialect version

Options: -D NAME VALUE sets a Perl global, -k NAME (or --kernel NAME) names the kernel, --arch sm_NN overrides '# Arch:', -n keeps the
source's .reuse flags, -w silences warnings, -d prints scheduling decisions, --no-code refuses embedded Perl and files from
elsewhere, -I DIR looks for includes there too.
With -p, --lines prints nothing but the instructions, each behind its place in the source; --flat the source as it is, with
its includes in place and the names of its parameters spelled out; --files the files it is made of.
END
}

# Option letters in any order; -D NAME VALUE, -DNAME VALUE and -DNAME=VALUE.
sub _options {
    my ($flags, $valued, @args) = @_;
    my (%opt, @rest);
    while (@args) {
        my $arg = shift @args;
        if ($arg =~ /^-D(.*)$/s) { set_global(_definition($1, \@args)) }
        elsif ($valued->{'-I'} && $arg =~ /^-I(.*)$/s) {
            fail_plain('option -I wants a folder') unless length $1 || @args;
            push @{ $opt{include} }, length $1 ? $1 : shift @args;
        }
        elsif (my $flag = $flags->{$arg}) { $opt{$flag} = 1 }
        elsif (my $name = $valued->{$arg}) {
            fail_plain("option $arg wants a value") unless @args;
            $opt{$name} = shift @args;
        }
        elsif ($arg =~ /^-./) { fail_plain("unknown option '$arg'") }
        else { push @rest, $arg }
    }
    return (\%opt, @rest);
}

sub _definition {
    my ($text, $args) = @_;
    my ($name, $value) = $text =~ /^(\w+)=(.*)$/s;
    return ($name, $value) if defined $name;
    $name = length $text ? $text : shift @$args;
    fail_plain('option -D wants a name and a value') unless defined $name && @$args;
    return ($name, shift @$args);
}

my %ASSEMBLE_FLAGS = ('-w' => 'quiet', '-n' => 'no_reuse', '-d' => 'debug', '--no-code' => 'no_code');
my %ASSEMBLE_VALUED = ('-k' => 'kernel', '--kernel' => 'kernel', '-o' => 'out', '--arch' => 'arch', '-I' => 'include');

sub _assemble {
    my ($opt, $source, @more) = _options(\%ASSEMBLE_FLAGS, \%ASSEMBLE_VALUED, @_);
    fail_plain('-c wants one source file') if !defined $source || @more;
    my $out = $opt->{out} // $source =~ s/(?:\.sass)?$/.cubin/r;
    my $module = assemble($source, %$opt);
    my $bytes = write_module(_cubin_module($module));
    _write($out, $bytes);
    _report($module, $opt);
    return 0;
}

sub _cubin_module {
    my ($module) = @_;
    $_->{registers} = $_->{registers_used} for @{ $module->{kernels} };
    return $module;
}

sub _report {
    my ($module, $opt) = @_;
    my @warnings = warnings_of();
    print STDERR map { "warning: $_\n" } $opt->{quiet} ? () : @warnings;
    for my $k (@{ $module->{kernels} }) {
        my $r = $k->{report};
        printf "%s: %d instructions, %d registers, %d bytes shared, %d barriers, %d bank conflicts, %.1f%% reuse\n", $k->{name},
            $r->{instructions}, $k->{registers}, $k->{shared} // 0, $k->{barriers}, $r->{conflicts},
            $r->{reads} ? 100 * $r->{served} / $r->{reads} : 0;
    }
    return;
}

sub _preprocess {
    my ($opt, $source, $out) = _options({ %ASSEMBLE_FLAGS, '--lines' => 'lines', '--flat' => 'flat', '--files' => 'files' }, \%ASSEMBLE_VALUED, @_);
    fail_plain('-p wants a source file') unless defined $source;
    return _deliver($out, flat($source, %$opt)) if $opt->{flat};
    return _deliver($out, join '', map { "$_\n" } files($source, %$opt)) if $opt->{files};
    my $text = preprocess($source, %$opt);
    return _deliver($out, $text);
}

sub _interface {
    my ($opt, $source, $out) = _options(\%ASSEMBLE_FLAGS, \%ASSEMBLE_VALUED, @_);
    fail_plain('--interface wants a source file') unless defined $source;
    return _deliver($out, interface($source, %$opt));
}

# Assembles into an existing cubin; the new file defaults to that cubin.
sub _insert {
    my ($opt, $source, $cubin, $out) = _options(\%ASSEMBLE_FLAGS, \%ASSEMBLE_VALUED, @_);
    fail_plain('-i wants a source and a cubin') unless defined $cubin;
    my $elf = MaxAs::Elf->read_file($cubin);
    my $info = inspect($elf, $cubin);
    my $module = assemble($source, %$opt, template => 1, arch => "sm_$info->{sm}");
    for my $new (@{ $module->{kernels} }) {
        my ($old) = _wanted($info, $new->{name});
        insert_kernel($elf, $old, $new);
        $new->{shared} = $old->{shared};    # the cubin's own stays
    }
    _write($out // $cubin, $elf->bytes);
    $_->{registers} = $_->{registers_used} for @{ $module->{kernels} };
    _report($module, $opt);
    return 0;
}

sub _container {
    my ($opt, $file) = _options({}, { '-o' => 'out' }, @_);
    fail_plain('--container wants a JSON file and -o FILE') unless defined $file && defined $opt->{out};
    _write($opt->{out}, container($file));
    return 0;
}

sub _inspect_file { my ($file) = @_; return inspect(MaxAs::Elf->read_file($file), $file) }

# The kernels -k asks for, or all.
sub _wanted {
    my ($info, $name) = @_;
    my @kernels = grep { !defined $name || $_->{name} eq $name } @{ $info->{kernels} };
    return @kernels if @kernels;
    fail_plain(defined $name ? "$info->{file}: no kernel '$name'; it has: " . join(' ', map { $_->{name} } @{ $info->{kernels} })
        : "$info->{file}: no kernels");
}

sub _list {
    my ($opt, $file) = _options({}, {}, @_);
    fail_plain('-l wants a cubin') unless defined $file;
    my $info = _inspect_file($file);
    printf "Arch: sm_%d%s\n", $info->{sm}, $info->{accelerated} ? 'a' : '';
    for my $k (@{ $info->{kernels} }) {
        printf "Kernel: %s (Linkage: %s, Params: %d, Size: %d, Registers: %d, SharedMem: %d, Barriers: %d)\n", $k->{name},
            uc $k->{linkage}, scalar @{ $k->{params} }, length $k->{code}, @{$k}{qw(registers shared barriers)};
    }
    for my $bank (sort { $a <=> $b } keys %{ $info->{constants} }) {
        printf "Symbol: %s (constant bank %d, Offset: 0x%x, Size: %d)\n", $_->{name}, $bank, @{$_}{qw(offset size)}
            for @{ $info->{constants}{$bank}{symbols} // [] };
    }
    printf "Symbol: %s (global, Size: %d)\n", $_->{name}, $_->{size} for @{ $info->{globals} };
    return 0;
}

sub _extract {
    my ($opt, $file, $out) = _options({}, { '-k' => 'kernel' }, @_);
    fail_plain('-e wants a cubin') unless defined $file;
    my $info = _inspect_file($file);
    my $table = MaxAs::Table->for_sm($info->{sm});
    my $text = module_lines($info) . join "\n", map { extract_kernel($table, $_, $info->{sm}) } _wanted($info, $opt->{kernel});
    return _deliver($out, $text);
}

# From a listing: instructions only.
sub _sass {
    my ($opt, $file, $out) = _options({}, { '-k' => 'kernel' }, @_);
    fail_plain('-s wants a listing') unless defined $file;
    my $info = read_dump($file);
    my $table = MaxAs::Table->for_sm($info->{sm});
    my $text = join "\n", map { "# $_->{name}\n" . extract_body($table, $_, $info->{sm}) } _wanted($info, $opt->{kernel});
    return _deliver($out, $text);
}

sub _is_elf {
    my ($file) = @_;
    open my $fh, '<:raw', $file or fail_plain("$file: cannot read: $!");
    my $read = read $fh, my $magic, 4;
    close $fh;
    return $read && $magic eq "\x7fELF";
}

# -a prints every instruction, -r only the instructions as text.
sub _test {
    my ($opt, $file) = _options({ '-r' => 'raw', '-a' => 'all' }, { '-k' => 'kernel' }, @_);
    fail_plain('-t wants a cubin or a listing') unless defined $file;
    my $info = _is_elf($file) ? _inspect_file($file) : read_dump($file);
    my $table = MaxAs::Table->for_sm($info->{sm});
    my ($total, $failed) = (0, 0);
    for my $k (_wanted($info, $opt->{kernel})) {
        my ($lines, @bad) = test_code($table, $k->{code}, $k->{name}, $info->{sm});
        my $count = @$lines;
        print map { "$_\n" } @$lines if $opt->{all} || $opt->{raw};
        print map { "FAIL: $_\n" } @bad;
        printf "Kernel: %s, Instructions: %d, FAIL: %d\n", $k->{name}, $count, scalar @bad unless $opt->{raw};
        $total += $count;
        $failed += @bad;
    }
    printf "Totals: Pass: %d FAIL: %d\n", $total - $failed, $failed unless $opt->{raw};
    return $failed ? 1 : 0;
}

sub _deliver {
    my ($out, $text) = @_;
    if (defined $out) { _write($out, $text) }
    else              { print $text }
    return 0;
}

# Written beside and then renamed, so that no half file is ever seen; into what is no file, such as /dev/null, as it is.
sub _write {
    my ($file, $bytes) = @_;
    my $special = -e $file && !-f _ && !-d _;
    my $temp = $special ? $file : "$file.$$.tmp";
    open my $fh, '>:raw', $temp or fail_plain("$file: cannot write: $!");
    my $ok = print {$fh} $bytes;
    $ok = close($fh) && $ok;
    return if $ok && $special;
    unless ($ok && rename $temp, $file) {
        my $why = $!;
        unlink $temp unless $special;
        fail_plain("$file: cannot write: $why");
    }
    return;
}

1;
