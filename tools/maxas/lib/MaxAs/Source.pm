package MaxAs::Source;
# Source text that remembers where each of its lines came from, through includes and expansions.
use strict;
use warnings;
use Cwd ();
use File::Basename qw(dirname);
use File::Spec;
use MaxAs::Fail qw(fail fail_plain);

my $MAX_BYTES = 64 << 20;    # of a source; /dev/zero has no end
my $MAX_INCLUDES = 64;    # nesting depth; deeper is a file that includes itself
my $BLOCK = qr/(?:CODE\d*|COMMENT|CONSTANT_MAPPING|REGISTER_MAPPING)/;    # schedule blocks are checked where used

sub new {
    my ($class, $text, $at) = @_;
    return bless { text => $text, at => $at }, $class;
}

sub read_file {
    my ($class, $file) = @_;
    open my $fh, '<:raw', $file or fail_plain("$file: cannot read: $!");
    my $text = '';
    while (length $text <= $MAX_BYTES) {
        my $read = read $fh, $text, 1 << 20, length $text;
        fail_plain("$file: cannot read: " . (-d $file ? 'it is a directory' : $!)) unless defined $read;
        last unless $read;
    }
    close $fh;
    fail_plain("$file: must be a source of at most " . ($MAX_BYTES >> 20) . ' MiB (it is longer or has no end)') if length $text > $MAX_BYTES;
    return $class->from_text($text, $file);
}

sub from_text {
    my ($class, $text, $file) = @_;
    $text =~ s/\r\n?/\n/g;
    $text .= "\n" unless $text =~ /\n\z/;
    my $n = 0;
    return $class->new($text, [map { { file => $file, line => ++$n, text => $_ } } split(/\n/, $text, -1)]);
}

# The lines: hashes { text, at }.
sub lines {
    my ($self) = @_;
    my @text = split /\n/, $self->{text}, -1;
    pop @text if @text && $text[-1] eq '';
    return map { { text => $text[$_], at => $self->{at}[$_] } } 0 .. $#text;
}

# One pass over the text: every match of $pattern is replaced by what $replace->($at, @captures) returns, a string or
# another Source. Lines of a replacement string keep the place of the match. Returns (new source, number of matches).
sub rewrite {
    my ($self, $pattern, $replace) = @_;
    my ($text, $at) = ($self->{text}, $self->{at});
    my ($out, $count, @out_at) = ("", 0, $at->[0]);
    my ($done, $line) = (0, 0);
    my $copy = sub {
        my ($piece) = @_;
        $out .= $piece;
        push @out_at, $at->[++$line] for 1 .. ($piece =~ tr/\n//);
    };
    while ($text =~ /$pattern/g) {
        my ($from, $to) = ($-[0], $+[0]);
        my @captures = map { defined $-[$_] ? substr($text, $-[$_], $+[$_] - $-[$_]) : undef } 1 .. $#+;
        $copy->(substr $text, $done, $from - $done);
        $self->{match_line} = $line;
        my $new = $replace->($at->[$line] // $at->[-1], @captures);
        if (ref $new) {
            $out_at[-1] = $new->{at}[0] if @{ $new->{at} };
            $out .= $new->{text};
            push @out_at, @{ $new->{at} }[1 .. $#{ $new->{at} }];
        }
        else {
            $out .= $new;
            push @out_at, ($at->[$line]) x ($new =~ tr/\n//);
        }
        my $gone = substr($text, $from, $to - $from) =~ tr/\n//;
        $line += $gone;
        $out_at[-1] = $at->[$line] if $out =~ /\n\z/ && $line <= $#$at;
        ($done, $count) = ($to, $count + 1);
    }
    $copy->(substr $text, $done);
    return (MaxAs::Source->new($out, \@out_at), $count);
}

# Pass 1: <INCLUDE file="name"/>, looked up beside the including file, beside the main file, then in the folders of -I; never
# in the current folder unasked. $search: { main => folder of the main file, folders => [those of -I], confined => read
# nothing outside of these (--no-code), read => [files read so far] }.
sub include {
    my ($self, $search, $here, $depth) = @_;
    $here  //= $search->{main};
    $depth //= 0;
    my ($new) = $self->rewrite(qr/^[ \t]*<INCLUDE\s+file\s*=\s*"([^"\n]*)"\s*\/?>[^\n]*\n/m, sub {
        my ($at, $name) = @_;
        fail($at, "includes nest deeper than $MAX_INCLUDES: does '$name' include itself?") if $depth >= $MAX_INCLUDES;
        my $path = _find($search, $here, $name);
        fail($at, "INCLUDE: no file '$name' in " . join(', ', map { "'$_'" } _folders($search, $here))
            . ($search->{confined} ? ' (--no-code reads nothing from elsewhere)' : '')) unless defined $path;
        my $source = MaxAs::Source->read_file($path);
        push @{ $search->{read} }, $path;
        $source->{text} =~ s/^([ \t]*#)(?=[ \t]*Kernel:)/$1 included:/mg;    # starts no kernel here
        return $source->include($search, dirname($path), $depth + 1);
    });
    return $new;
}

sub _folders {
    my ($search, $here) = @_;
    my %seen;
    return grep { !$seen{$_}++ } $here, $search->{main}, @{ $search->{folders} };
}

sub _find {
    my ($search, $here, $name) = @_;
    return if $name =~ /\0/ || !length $name;
    for my $folder (_folders($search, $here)) {
        my $path = File::Spec->file_name_is_absolute($name) ? $name : File::Spec->catfile($folder, $name);
        return $path if (!$search->{confined} || _below($path, $search->{main}, @{ $search->{folders} })) && -f $path;
    }
    return;
}

# Does the file, links followed, lie in one of the folders or below?
sub _below {
    my ($path, @folders) = @_;
    my $real = Cwd::realpath($path) // return 0;
    for my $folder (map { Cwd::realpath($_) // () } @folders) {
        my $inside = File::Spec->abs2rel($real, $folder);
        return 1 if !File::Spec->file_name_is_absolute($inside) && (File::Spec->splitdir($inside))[0] ne File::Spec->updir;
    }
    return 0;
}

# Pass 2: <COMMENT> ... </COMMENT> is removed.
sub strip_comment_blocks {
    my ($self) = @_;
    my ($new) = $self->rewrite(qr/^[ \t]*<COMMENT>.*?<\/COMMENT>[ \t]*\n?/ms, sub { '' });
    return $new;
}

# Takes out every <NAME> ... </NAME>; returns (rest, list of Sources holding the bodies).
sub take_blocks {
    my ($self, $name) = @_;
    my @bodies;
    my ($rest) = $self->rewrite(qr/^[ \t]*<$name>(.*?)<\/$name>[ \t]*\n?/ms, sub {
        my ($at, $body) = @_;
        my @places = map { $self->{at}[ $self->{match_line} + $_ ] // $at } 0 .. ($body =~ tr/\n//);
        push @bodies, MaxAs::Source->new($body, \@places);
        return '';
    });
    return ($rest, @bodies);
}

# After all passes no block mark may be left over.
sub check_no_marks {
    my ($self) = @_;
    for my $line ($self->lines) {
        my $text = $line->{text};
        $text =~ s/(?:#|\/\/).*//;
        fail({ %{ $line->{at} }, now => $text }, "<$1> is not closed, or closed without being opened")
            if $text =~ /<(\/?$BLOCK)>/;
        fail($line->{at}, 'INCLUDE needs file="name" and a line of its own') if $text =~ /<INCLUDE\b/;
    }
    return $self;
}

1;
