package MaxAs::Fail;
# The one way this program reports trouble in a source: file, line, what is wrong, and the line itself.
use strict;
use warnings;
use Exporter 'import';
our @EXPORT_OK = qw(fail fail_plain warn_at warnings_of);

my @warnings;

# A place: { file, line, text } as the author wrote it; `now` is the line after expansion, where that differs.
sub fail {
    my ($at, $message) = @_;
    die MaxAs::Fail->new(_locate($at, $message));
}

# Trouble that belongs to no line: a missing file, a damaged cubin, a bad option.
sub fail_plain {
    my ($message) = @_;
    die MaxAs::Fail->new($message);
}

sub new { my ($class, $message) = @_; return bless { message => $message }, $class }
sub message { return $_[0]{message} }

sub warn_at {
    my ($at, $message) = @_;
    push @warnings, $at ? "$at->{file}:$at->{line}: $message" : $message;
    return;
}

# The warnings so far; asking empties the list.
sub warnings_of { my @all = @warnings; @warnings = (); return @all }

sub _locate {
    my ($at, $message) = @_;
    return $message unless $at && defined $at->{file};
    my $out = "$at->{file}:$at->{line}: $message";
    my $line = _trim($at->{text});
    my $now  = _trim($at->{now});
    $out .= "\n    $line" if length $line;
    $out .= "\n    expands to: $now" if length $now && _squeeze($now) ne _squeeze($line);
    return $out;
}

sub _trim {
    my ($text) = @_;
    return '' unless defined $text;
    $text =~ s/^\s+|\s+$//g;
    return $text;
}

sub _squeeze { my ($text) = @_; $text =~ s/\s+/ /g; return $text }

1;
