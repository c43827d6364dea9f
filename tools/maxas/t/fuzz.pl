#!/usr/bin/env perl
# Damages sources and cubins at random and assembles, lists, tests and extracts them in this process. Every case must
# end in a result or in one of the program's own error messages: no Perl warning, no other death, no hang.
#   fuzz.pl CASES SEED FILE...      (files: *.sass and *.cubin)
use strict;
use warnings;
no warnings "qw";
use File::Basename qw(dirname);
use File::Temp qw(tempdir);
use lib dirname(__FILE__) . '/../lib';

BEGIN { *CORE::GLOBAL::exit = sub { die "exit called\n" } }
use MaxAs::Assembler qw(assemble preprocess);
use MaxAs::Cubin qw(write_module);
use MaxAs::Elf;
use MaxAs::Extract qw(extract_kernel module_lines test_code);
use MaxAs::Fail qw(warnings_of);
use MaxAs::Insert qw(insert_kernel);
use MaxAs::Inspect qw(inspect);
use MaxAs::Table;

my $SECONDS = 30;    # more than this is a hang
my ($cases, $seed, @files) = @ARGV;
die "usage: fuzz.pl CASES SEED FILE...\n" unless @files;
srand $seed;
print "seed $seed, $cases cases, ", scalar @files, " files\n";
my $table  = MaxAs::Table->load;
my $folder = tempdir(CLEANUP => 1);
my %content = map { $_ => slurp($_) } @files;
my @words = grep { length } map { split /\s+/ } map { $content{$_} } grep { /\.sass$/ } @files;
push @words, qw(<CODE> </CODE> [+ +] [- -] <SCHEDULE_BLOCK> </SCHEDULE_BLOCK> <ORDERED> </ORDERED> <REGISTER_MAPPING>
    </REGISTER_MAPPING> 0-9999999 <0-99999999> R255 0x 4x<9**9**9> 1x<1/0> 1e999 -INF c[0x0] c[][] [] {} || -- ~~ !!P0
    @P9 // # ; : . , c[0x99][0x99999] x<0-3|5>y 99999999999999999999 0xfffffffffffffffff TLD.B.LZ.P XMAD.LO .reuse .CC
    <INCLUDE file="."/> <COMMENT> </COMMENT>), "#\t0:0x140:8:0\n", "# Params(3):\n", "# SharedSize: 999999999\n",
    "# Constant: bank 3 a 99999999\n", "# Kernel: ", "\n\n", "\0", "\xff\xfe";

my (%outcome, $bad);
for my $case (1 .. $cases) {
    my $file = $files[ int rand @files ];
    my $damaged = damage($content{$file}, $file =~ /\.cubin$/);
    my $path = "$folder/case" . ($file =~ /(\.\w+)$/)[0];
    spew($path, $damaged);
    my $verdict = try_case($path);
    $outcome{$verdict}++;
    next if $verdict =~ /^(?:accepted|refused)$/;
    $bad++;
    my $kept = "fuzz-$seed-$case" . ($file =~ /(\.\w+)$/)[0];
    spew($kept, $damaged);
    print "case $case of $file: $verdict (kept as $kept)\n";
}
print join(', ', map { "$outcome{$_} $_" } grep { /^(?:accepted|refused)$/ } sort keys %outcome), "\n";
CORE::exit($bad ? 1 : 0);

sub slurp { my ($file) = @_; open my $fh, '<:raw', $file or die "$file: $!"; local $/; return scalar <$fh> }

sub spew { my ($file, $bytes) = @_; open my $fh, '>:raw', $file or die "$file: $!"; print {$fh} $bytes; close $fh or die; return }

sub damage {
    my ($bytes, $binary) = @_;
    for (1 .. 1 + int rand 4) {
        my $at = int rand(1 + length $bytes);
        # Headers of a cubin are few bytes among many: aim at them half of the time.
        $at = int rand 64 if $binary && rand() < 0.3 && length $bytes > 64;
        $at = length($bytes) - int rand 1200 if $binary && rand() < 0.4 && length $bytes > 1200;
        my $kind = int rand($binary ? 4 : 7);
        if    ($kind == 0) { substr($bytes, $at, 1) = chr int rand 256 if $at < length $bytes }
        elsif ($kind == 1) { substr($bytes, $at, int rand 9) = '' if $at < length $bytes }
        elsif ($kind == 2) { substr($bytes, $at, 4) = pack 'L<', (0, 0xffffffff, 0x7fffffff, int rand 2**32, length $bytes)[rand 5] if $at + 4 <= length $bytes }
        elsif ($kind == 3) { $bytes = rand() < 0.1 ? substr($bytes, 0, $at) : $bytes }
        else               { _damage_text(\$bytes, $kind) }
    }
    return $bytes;
}

# Words exchanged, lines doubled, dropped or moved.
sub _damage_text {
    my ($text, $kind) = @_;
    my @lines = split /^/, $$text;
    return unless @lines;
    my $line = int rand @lines;
    if ($kind == 4) {
        my @parts = split /(\s+)/, $lines[$line];
        $parts[ int rand @parts ] = $words[ int rand @words ] if @parts;
        $lines[$line] = join '', @parts;
    }
    elsif ($kind == 5) { splice @lines, int rand @lines, 0, $lines[$line] }
    else               { splice @lines, $line, 1 }
    $$text = join '', @lines;
    return;
}

sub try_case {
    my ($path) = @_;
    my $warning;
    local $SIG{__WARN__} = sub { $warning //= $_[0] };
    my $done = eval {
        local $SIG{ALRM} = sub { die "hang\n" };
        alarm $SECONDS;
        if ($path =~ /\.sass$/) { try_source($path) } else { try_cubin($path) }
        alarm 0;
        1;
    };
    my $error = $@;
    alarm 0;
    warnings_of();
    chomp($warning //= '');
    return "Perl warning: $warning" if length $warning;
    return 'accepted' if $done;
    return 'refused' if ref $error && $error->isa('MaxAs::Fail');
    chomp $error;
    return "died: $error";
}

sub try_source {
    my ($path) = @_;
    my %opt = (table => $table, no_code => 1, no_reuse => rand() < 0.3);
    preprocess($path, %opt) if rand() < 0.3;
    my $module = assemble($path, %opt);
    $_->{registers} = $_->{registers_used} for @{ $module->{kernels} };
    write_module($module);
    return;
}

sub try_cubin {
    my ($path) = @_;
    my $elf = MaxAs::Elf->read_file($path);
    my $info = inspect($elf, $path);
    module_lines($info);
    my @kernels = @{ $info->{kernels} };
    test_code($table, $_->{code}, $_->{name}, $info->{sm}) for @kernels;
    extract_kernel($table, $_, $info->{sm}) for @kernels;
    my $new = { code => "\0" x 64, barriers => 1, registers_used => 8, exits => [8], ctaids => [], params => undef };
    insert_kernel($elf, $_, $new) for @kernels;
    $elf->bytes;
    return;
}
