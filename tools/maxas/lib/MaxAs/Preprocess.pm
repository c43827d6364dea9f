package MaxAs::CODE;
# The package embedded Perl runs in. Kept first in this file, so that no lexical of ours is visible to it.
sub MaxAs::Preprocess::_eval {
    local $_;
    return eval "no strict; no warnings; package MaxAs::CODE;\n#line $_[1] \"$_[2]\"\n$_[0]";
}

package MaxAs::Preprocess;
# Passes 1 to 5: includes, comments, embedded Perl, constants. The result is lines that know where they came from.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Fail qw(fail fail_plain);
use MaxAs::Source;
our @EXPORT_OK = qw(expand set_global constant_map substitute);

my $CODE_SECONDS = 20;      # an embedded block that runs longer is taken for an endless loop
my $CODE_ROUNDS  = 100;     # blocks whose value holds blocks

sub set_global {
    my ($name, $value) = @_;
    fail_plain("-D $name: a Perl name wanted (letters, digits, _)") unless $name =~ /^[A-Za-z_]\w*$/;
    no strict 'refs';
    ${"MaxAs::CODE::$name"} = $value;
    return;
}

# A source expanded. $search: where includes are (MaxAs::Source). Embedded Perl: 'run', 'refuse', or 'skip' (blocks vanish,
# inline code stays as it is).
sub expand {
    my ($source, $search, $code) = @_;
    $source = $source->include($search)->strip_comment_blocks;
    $source = _code_blocks($source, $code);
    return $code eq 'skip' ? $source : _inline_code($source, $code);
}

sub _run {
    my ($at, $code, $how) = @_;
    return '' if $how eq 'skip';
    fail($at, 'embedded Perl is refused (--no-code)') if $how eq 'refuse';
    my $file = $at->{file};
    $file =~ s/["\n]/_/g;
    my $value = eval {
        local $SIG{ALRM} = sub { die "it ran longer than $CODE_SECONDS seconds\n" };
        local $SIG{__WARN__} = sub { };
        local $SIG{__DIE__};
        alarm $CODE_SECONDS;
        my $v = _eval($code, $at->{line}, $file);
        my $error = $@;
        alarm 0;
        die $error if $error;
        $v;
    };
    my $error = $@;
    alarm 0;
    return $value // '' unless $error;
    $error = "$error";
    $error =~ s/\s+$//;
    fail($at, "embedded Perl failed: $error");
}

# <CODE>..</CODE>, <CODE1>..</CODE1>: the value replaces the block, and may hold further blocks.
sub _code_blocks {
    my ($source, $how) = @_;
    for my $round (1 .. $CODE_ROUNDS) {
        my ($new, $count) = $source->rewrite(qr/^[ \t]*<CODE(\d*)>(.*?)<\/CODE\1>[ \t]*\n?/ms, sub {
            my ($at, $number, $body) = @_;
            my $text = _run($at, $body, $how);
            return $text eq '' || $text =~ /\n\z/ ? $text : "$text\n";
        });
        return $new unless $count;
        $source = $new;
    }
    fail_plain("CODE blocks still produce CODE blocks after $CODE_ROUNDS rounds");
}

# [+ expr +] and [- statements -], in the order they stand.
sub _inline_code {
    my ($source, $how) = @_;
    # [-0x10] is an address or a constant's offset.
    my $kinds = join '', grep { index($source->{text}, "$_]") >= 0 } '+', '-';
    return $source unless length $kinds;
    my ($new) = $source->rewrite(qr/\[([$kinds])(?!\s*(?:0x[0-9a-fA-F]+|\d+)\s*\])(.*?)\1\]/s, sub {
        my ($at, $kind, $body) = @_;
        my $value = _run($at, $body, $how);
        return $kind eq '+' ? $value : '';
    });
    return $new;
}

# <CONSTANT_MAPPING> bodies to { name => text }; of two definitions the last one counts.
sub constant_map {
    my ($map, @bodies) = @_;
    for my $line (map { $_->lines } @bodies) {
        my $text = $line->{text};
        $text =~ s/(?:#|\/\/).*//;
        next unless $text =~ /\S/;
        my ($name, $value) = $text =~ /^\s*([A-Za-z_]\w*(?:\[\d+\])?)\s*:\s*(.*?)\s*$/
            or fail($line->{at}, "CONSTANT_MAPPING: 'name : text' wanted");
        $map->{$name} = $value;
    }
    return $map;
}

# Replaces mapped words outside comments.
sub substitute {
    my ($text, $map) = @_;
    return $text unless %$map;
    my ($code, $comment) = $text =~ /^(.*?)((?:#|\/\/).*)?$/s;
    $code =~ s/(?<![\w.\$])([A-Za-z_]\w*)(\[\d+\])?/_replace($map, $1, $2)/ge;
    return $code . ($comment // '');
}

sub _replace {
    my ($map, $word, $index) = @_;
    return $map->{"$word$index"} if defined $index && exists $map->{"$word$index"};
    return ($map->{$word} // $word) . ($index // '');
}

1;
