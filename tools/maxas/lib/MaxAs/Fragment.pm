package MaxAs::Fragment;
# What an included file says that it takes from who includes it, holds for itself and leaves, compared with what its
# instructions name. A file declares itself by comment lines, names separated by spaces:
#
#     # Takes: tid cx<0-7>y0 param_n P1 shared:8192
#     # Uses: low
#     # Leaves: image P2
#
# `nothing` stands for no name, `param_*` for every parameter the kernel has; `?` behind a name: not in every kernel.
# Then every register, predicate, parameter and mapped constant that its lines name must be among these, or come from a
# mapping of the file itself; what it takes or uses must be named (but for `?`), and shared memory be as large as is said.
use strict;
use warnings;
use Exporter 'import';
use MaxAs::Fail qw(fail);
use MaxAs::Program ();
use MaxAs::Registers;
our @EXPORT_OK = qw(fragments check_fragments);

my $KINDS = qr/Takes|Uses|Leaves/;

# Files that declare themselves: { file => { entries => [{ kind, word, names, at }], own => {name => 1}, words => {word =>
# at} } }, from lines before names are replaced and the bodies of mappings of registers and of constants.
sub fragments {
    my ($lines, $registers, $constants) = @_;
    my %found;
    for my $line (@$lines) {
        my ($kind, $words) = $line->{text} =~ /^\s*#\s*($KINDS):\s+(.*?)\s*$/ or next;
        my $file = $found{ $line->{at}{file} } //= { entries => [], own => {}, words => {} };
        push @{ $file->{entries} }, map { _entry($kind, $_, $line->{at}) } split ' ', $words;
    }
    return {} unless %found;
    for my $line (map { $_->lines } @$constants) {
        my $file = $found{ $line->{at}{file} } or next;
        $file->{own}{$1} = 1 if $line->{text} =~ /^\s*(\w+)\s*:/;
    }
    for my $line (map { $_->lines } @$registers) {
        my $file = $found{ $line->{at}{file} } or next;
        my ($text) = MaxAs::Program::strip_comment($line->{text});
        my ($names) = $text =~ /^[^:~=]*[:~=]\s*(.*?)\s*$/ or next;
        $file->{own}{$_} = 1 for map { keys %{ _names($_, $line->{at}) } } split /\s*,\s*/, $names;
    }
    for my $line (@$lines) {
        my $file = $found{ $line->{at}{file} } or next;
        my ($text) = MaxAs::Program::strip_comment($line->{text});
        my $at = { %{ $line->{at} }, now => $line->{text} };
        $file->{words}{$1} //= $at while $text =~ /(?<![\w.\$])([A-Za-z_]\w*)/g;
    }
    return \%found;
}

sub _entry {
    my ($kind, $word, $at) = @_;
    my $maybe = $word =~ s/\?$// || $kind eq 'Leaves' || $word eq 'nothing';
    return { word => $word, kind => $kind, maybe => $maybe, names => _names($word, $at), at => $at };
}

# The names of an entry, vectors by their row's name as well.
sub _names {
    my ($word, $at) = @_;
    return {} if $word eq 'nothing';
    return { $word => 1 } if $word =~ /^(?:P[0-6]|CC|R\d+|shared:\d+|param_\*)$/;
    return { map { ("R$_" => 1) } $1 .. $2 } if $word =~ /^R<(\d+)-(\d+)>$/;
    return { map { $_ => 1 } map { ($_->[0], $_->[1] // ()) } MaxAs::Registers::_names($word, $at) };
}

sub check_fragments {
    my ($fragments, $kernel) = @_;
    for my $file (sort keys %$fragments) {
        my $fragment = $fragments->{$file};
        my %said = map { %{ $_->{names} } } @{ $fragment->{entries} };
        for my $word (sort keys %{ $fragment->{words} }) {
            next if $said{$word} || $fragment->{own}{$word} || !_is_name($word, $kernel);
            next if $said{'param_*'} && $word =~ /^param_/;
            fail($fragment->{words}{$word}, "'$word' is not among what this file says it takes, uses or leaves");
        }
        for my $entry (@{ $fragment->{entries} }) {
            my ($word, $kind) = @$entry{qw(word kind)};
            if ($word =~ /^shared:(\d+)$/) {
                fail($entry->{at}, "shared memory must have $1 bytes (has " . ($kernel->{shared} // 0) . ')')
                    if ($kernel->{shared} // 0) < $1;
            }
            elsif (!$entry->{maybe} && !grep { $fragment->{words}{$_} || $_ eq 'param_*' } keys %{ $entry->{names} }) {
                fail($entry->{at}, "$kind: '$word' is named by no instruction of this file");
            }
        }
    }
    return;
}

# Is the word one of those that a source gives a meaning to?
sub _is_name {
    my ($word, $kernel) = @_;
    return 1 if $word =~ /^(?:P[0-6]|R\d+)$/ || grep { exists $kernel->{constants}{$_} } $word, "${word}[0]";
    return grep { exists $kernel->{registers}{$_}{$word} } qw(number pool vector);
}

1;
