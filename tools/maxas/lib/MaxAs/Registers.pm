package MaxAs::Registers;
# <REGISTER_MAPPING>: names to register numbers. Fixed (:), shared (=) and pool (~) definitions; vector aliases.
use strict;
use warnings;
use MaxAs::Fail qw(fail);

my $MAX = 254;

# { number => {name => n}, vector => {name => n}, pool => {name => pool}, bank => {name => b}, pools => [...] }. A vector is
# the name of a row of registers without their numbers; any name defined for itself goes before it.
sub new {
    my ($class) = @_;
    return bless { number => {}, pool => {}, bank => {}, vector => {}, pools => [], where => {} }, $class;
}

sub copy {
    my ($self) = @_;
    my %new = map { $_ => { %{ $self->{$_} } } } qw(number vector pool bank where);
    my @pools = map { { %$_, free => [@{ $_->{numbers} }] } } @{ $self->{pools} };
    my %index = map { $self->{pools}[$_] => $pools[$_] } 0 .. $#pools;
    $new{pool}{$_} = $index{ $new{pool}{$_} } for keys %{ $new{pool} };
    return bless { %new, pools => \@pools }, ref $self;
}

sub define {
    my ($self, @bodies) = @_;
    for my $line (map { $_->lines } @bodies) {
        my $text = $line->{text};
        $text =~ s/(?:#|\/\/).*//;
        next unless $text =~ /\S/;
        $self->_line($text, { %{ $line->{at} }, now => $text });
    }
    return $self;
}

sub _line {
    my ($self, $text, $at) = @_;
    my ($numbers, $kind, $names) = $text =~ /^\s*([^:~=]*?)\s*([:~=])\s*(.*?)\s*$/
        or fail($at, "REGISTER_MAPPING: 'numbers : names', 'numbers ~ names' or 'number = names' wanted");
    my @numbers = _numbers($numbers, $at);
    my @entries = map { _names($_, $at) } split /\s*,\s*/, $names;
    fail($at, 'REGISTER_MAPPING: no names') unless @entries;
    if    ($kind eq ':') { $self->_fixed(\@numbers, \@entries, $at) }
    elsif ($kind eq '=') { $self->_shared(\@numbers, \@entries, $at) }
    else                 { $self->_pool(\@numbers, \@entries, $at) }
    return;
}

sub _numbers {
    my ($text, $at) = @_;
    my @numbers;
    for my $piece (split /\s*,\s*/, $text, -1) {
        my ($from, $to) = $piece =~ /^(\d{1,4})(?:\s*-\s*(\d{1,4}))?$/
            or fail($at, "REGISTER_MAPPING: '$piece' is not a register number or range");
        $to //= $from;
        fail($at, "REGISTER_MAPPING: register $_ is beyond R$MAX: more than 255 registers") for grep { $_ > $MAX } $from, $to;
        fail($at, "REGISTER_MAPPING: range $piece runs backwards") if $to < $from;
        push @numbers, $from .. $to;
    }
    return map { 0 + $_ } @numbers;
}

# One entry of a name list to [name, base without number or undef, bank or undef], expanded.
sub _names {
    my ($entry, $at) = @_;
    my $bank = $entry =~ s/\[([0-3])\]\s*$// ? $1 : undef;
    $entry =~ s/\s+//g;
    my @names = ([$entry, undef]);
    while ($names[0][0] =~ /<[^<>]*>/) {
        my @more;
        for my $name (@names) {
            my ($pre, $list, $post) = $name->[0] =~ /^([^<]*)<([^<>]*)>(.*)$/
                or fail($at, "REGISTER_MAPPING: '$entry' is not a name");
            my $base = $name->[1] // "$pre$post" =~ s/<[^<>]*>//gr;
            push @more, map { ["$pre$_$post", $base] } _items($list, $at);
        }
        fail($at, "REGISTER_MAPPING: '$entry' names more than 255 registers") if @more > 255;
        @names = @more;
    }
    for my $name (@names) {
        fail($at, "REGISTER_MAPPING: '$name->[0]' is not a name") unless $name->[0] =~ /^[A-Za-z_]\w*$/;
        fail($at, "REGISTER_MAPPING: '$name->[0]' is a name of the machine's own")
            if $name->[0] =~ /^(?:R\d+|RZ|P\d|PT|CC|PR)$/;
    }
    return map { [@$_, $bank] } @names;
}

# 00-03|64|66: ranges keep their leading zeros.
sub _items {
    my ($list, $at) = @_;
    my @items;
    for my $piece (split /\|/, $list) {
        my ($from, $to) = $piece =~ /^(\d{1,6})(?:-(\d{1,6}))?$/
            or fail($at, "REGISTER_MAPPING: '<$list>': '$piece' is not a number or range");
        $to //= $from;
        fail($at, "REGISTER_MAPPING: range $piece runs backwards") if $to < $from;
        fail($at, "REGISTER_MAPPING: '<$list>' names more than 255 registers") if $to - $from > 254;
        push @items, map { sprintf '%0*d', length $from, $_ } $from .. $to;
    }
    fail($at, 'REGISTER_MAPPING: <> is empty') unless @items;
    return @items;
}

sub _once {
    my ($self, $name, $at) = @_;
    if (my $first = $self->{where}{$name}) {
        fail($at, "register '$name' defined twice, first at $first->{file}:$first->{line}");
    }
    $self->{where}{$name} = $at;
    return;
}

sub _fixed {
    my ($self, $numbers, $entries, $at) = @_;
    fail($at, 'REGISTER_MAPPING: ' . @$entries . ' names for ' . @$numbers . ' registers') if @$entries > @$numbers;
    for my $i (0 .. $#$entries) {
        fail($at, "REGISTER_MAPPING: a bank can be asked for with ~ only") if defined $entries->[$i][2];
        $self->_once($entries->[$i][0], $at);
        $self->{number}{ $entries->[$i][0] } = $numbers->[$i];
    }
    return if grep { $numbers->[$_] != $numbers->[0] + $_ } 0 .. $#$entries;
    for my $i (0 .. $#$entries - 1) {
        my $base = $entries->[$i][1];
        $self->{vector}{$base} //= $numbers->[$i] if defined $base && $numbers->[$i] % 2 == 0;
    }
    return;
}

sub _shared {
    my ($self, $numbers, $entries, $at) = @_;
    fail($at, "REGISTER_MAPPING: '=' wants one number") unless @$numbers == 1;
    for my $entry (@$entries) {
        $self->_once($entry->[0], $at);
        $self->{number}{ $entry->[0] } = $numbers->[0];
    }
    return;
}

sub _pool {
    my ($self, $numbers, $entries, $at) = @_;
    my %seen;
    my $pool = { numbers => [grep { !$seen{$_}++ } @$numbers], names => [map { $_->[0] } @$entries], at => $at,
        id => scalar @{ $self->{pools} } };
    $pool->{free} = [@{ $pool->{numbers} }];
    fail($at, 'REGISTER_MAPPING: ' . @$entries . ' names for a pool of ' . @{ $pool->{numbers} } . ' registers')
        if @$entries > @{ $pool->{numbers} };
    push @{ $self->{pools} }, $pool;
    for my $entry (@$entries) {
        my ($name, undef, $bank) = @$entry;
        $self->_once($name, $at);
        $self->{pool}{$name} = $pool;
        $self->{bank}{$name} = $bank if defined $bank;
    }
    return;
}

# The number of a name; pool names get one when `assign` has run.
sub number {
    my ($self, $name) = @_;
    return $self->{number}{$name} // ($self->{pool}{$name} ? undef : $self->{vector}{$name});
}

# Gives a pool name a number; false if that number is gone.
sub assign {
    my ($self, $name, $n) = @_;
    my $free = $self->{pool}{$name}{free};
    my @rest = grep { $_ != $n } @$free;
    return 0 if @rest == @$free;
    @$free = @rest;
    $self->{number}{$name} = $n;
    return 1;
}

1;
