package MaxAs::Table;
# The instruction tables, read from maxdnn/isa/maxwell.json and hopper.json: the only copies of an encoding, shared with the
# decoder.
# Here rows get what the assembler needs on top: patterns for opcode text, and an index for words.
use strict;
use warnings;
no warnings 'portable';
use Exporter 'import';
use File::Basename qw(dirname);
use File::Spec;
use JSON::PP ();
use MaxAs::Fail qw(fail_plain);
use MaxAs::Word qw(put_field get_field word_of halves);
our @EXPORT_OK = qw(field_get field_put);

# In a source tree tools/ stands beside maxdnn/, in an installed package inside it.
sub default_path {
    my ($name) = @_;
    my $above = File::Spec->catdir(dirname(__FILE__), ('..') x 4);
    my ($inside, $beside) = map { File::Spec->catfile($above, @$_, 'isa', $name) } [], ['maxdnn'];
    return -e $inside ? $inside : $beside;
}

# The table of an architecture, by the number behind sm_. One file serves all that have words of 128 bits.
my %loaded;
sub for_sm {
    my ($class, $sm) = @_;
    return $loaded{maxwell} //= $class->load(default_path('maxwell.json')) if $sm < 70;
    return $loaded{$sm} //= $class->load(default_path('hopper.json'), "sm_$sm");
}

# What stands in a table, with what $change says instead: objects by key, lists of operands by name; null takes away.
sub _merged {
    my ($base, $change) = @_;
    return [map { _merged($_, $change->{ $_->{name} } // {}) } @$base] if ref $base eq 'ARRAY' && ref $change eq 'HASH';
    return $change unless ref $base eq 'HASH' && ref $change eq 'HASH';
    my %both = %$base;
    for my $key (keys %$change) {
        my $value = _merged($base->{$key}, $change->{$key});
        if (defined $value) { $both{$key} = $value } else { delete $both{$key} }
    }
    return \%both;
}

# A table or a row as an architecture has it: its `before` tells what was otherwise before a later one.
sub _as_of {
    my ($data, $arch) = @_;
    my $before = $data->{before} // {};
    for my $later (grep { $arch lt $_ } reverse sort keys %$before) { $data = _merged($data, $before->{$later}) }
    return $data;
}

# $arch: which architecture of those that the table serves; none: all of it.
sub load {
    my ($class, $path, $arch) = @_;
    $path //= default_path('maxwell.json');
    open my $fh, '<:raw', $path or fail_plain("$path: cannot read the instruction table: $!");
    my $text = do { local $/; <$fh> };
    close $fh;
    my @texts = $text =~ s/^"rows": \[\n(.*)\n\]/"rows": []/ms ? split /,\n(?=\{"mnemonic")/, $1 : ();
    my $data = JSON::PP->new->decode($text);
    $data = _as_of($data, $arch) if defined $arch;
    my $self = bless { data => $data, arch => $arch, classes => $data->{classes}, reuse_entries => $data->{operand_cache}{entries},
        banks => $data->{banks}{count}, param_base => $data->{bank0}{params}, word_bits => $data->{word_bits} // 64, guard_lsb => $data->{guard}{lsb} // 16,
        index => $data->{index} // { lsb => 56, width => 8 }, name => $data->{name} // 'Maxwell', archs => $data->{archs} // [], latencies => $data->{latencies}, by_op => {}, opcode_memo => {} }, $class;
    $self->_special_registers($data);
    $self->{cc_name} = $data->{sets}{cc};
    $self->{cc_number} = { map { substr($data->{sets}{cc}{$_}, 1) => 0 + $_ } keys %{ $data->{sets}{cc} } };
    while (my ($index, $row) = each @texts) {
        my ($op, $first, $last) = map { $row =~ /"$_": "(\w+)/ ? $1 : undef } qw(text min_arch max_arch);
        next if defined $arch && ($arch lt $first || defined $last && $last lt $arch);
        ($op) = $self->_parsed($row)->{text} =~ /^(\w+)/ if $row =~ /"before".*"text"/;    # which may tell of another name
        push @{ $self->{texts}{$op} }, [$index, $row];
    }
    return $self;
}

# The rows of one name, parsed when they are first asked for: reading all of a table takes longer than most sources do.
sub rows_of {
    my ($self, $op) = @_;
    my $texts = $self->{texts}{$op} or return;
    return $self->{by_op}{$op} //= [map { $self->_row($self->_parsed($_->[1]), $_->[0]) } @$texts];
}

sub _parsed {
    my ($self, $row) = @_;
    my $data = JSON::PP->new->decode($row);
    return defined $self->{arch} ? _as_of($data, $self->{arch}) : $data;
}

sub _special_registers {
    my ($self, $data) = @_;
    $self->{sr_name} = { %{ $data->{special_registers} } };
    my %number = map { $data->{special_registers}{$_} => 0 + $_ } keys %{ $data->{special_registers} };
    my $extra = $data->{special_registers_sm60_extra};
    $number{ $extra->{$_} } //= 0 + $_ for keys %$extra;
    $self->{sr_number} = \%number;
    return;
}

sub _values {
    my ($values, $data) = @_;
    return ref $values ? $values : $data->{sets}{$values};
}

sub _row {
    my ($self, $raw, $index) = @_;
    my ($data, %row) = ($self->{data}, %$raw);
    $row{index} = $index;
    ($row{op}) = $row{text} =~ /^(\w+)/;
    $row{$_} = word_of($row{$_}) for qw(value mask);
    $row{fill} = word_of($row{fill} // '0');
    $row{min_sm} = substr $row{min_arch}, 3;
    $row{cls} = $data->{classes}{ $row{class} };
    for my $field (values %{ $row{modifiers} }, grep { ref } map { @{$_}{qw(part scale)} } @{ $row{operands} }) {
        $field->{values} = _values($field->{values}, $data);
        push @{ $field->{raw}{ $field->{values}{$_} } }, 0 + $_ for sort { $a <=> $b } keys %{ $field->{values} };
    }
    for my $operand (@{ $row{operands} }) { delete $operand->{omit_if} unless defined $operand->{omit_if} }
    for my $operand (grep { $_->{values} } @{ $row{operands} }) {
        $operand->{values} = _values($operand->{values}, $data);
        $operand->{raw} = { map { $operand->{values}{$_} => 0 + $_ } keys %{ $operand->{values} } };
    }
    $row{operand} = { map { $_->{name} => $_ } @{ $row{operands} } };
    _compile_text(\%row);
    return \%row;
}

# The opcode text as a pattern in the printed order, and as units that may come in any order.
sub _compile_text {
    my ($row) = @_;
    my ($pattern, @names, @units) = ('');
    for my $piece ($row->{text} =~ /(\{\w+\}|[^{}]+)/g) {
        if ($piece =~ /^\{(\w+)\}$/) {
            my $name = $1;
            my @strings = sort { length $b <=> length $a || $a cmp $b } keys %{ $row->{modifiers}{$name}{raw} };
            my $alternatives = '(' . join('|', map { quotemeta } @strings) . ')';
            my $glued = grep { /^[^.]/ } @strings;
            push @names, $name;
            $pattern .= $alternatives;
            if ($glued && @units) { $units[-1]{re} .= $alternatives; push @{ $units[-1]{names} }, $name }
            else { push @units, { re => $alternatives, names => [$name], optional => scalar grep { $_ eq '' } @strings } }
        }
        else {
            $pattern .= quotemeta $piece;
            my ($op, @rest) = split /(?=\.)/, $piece;
            if ($op !~ /^\./ && @units) { $units[-1]{re} .= quotemeta $op; $op = undef }
            push @units, { re => quotemeta $_, names => [], optional => 0 } for grep { defined && /^\./ } $op, @rest;
        }
    }
    $row->{pattern} = qr/^$pattern$/;
    $row->{pattern_names} = \@names;
    $_->{re} = qr/\G$_->{re}/ for @units;
    $row->{units} = \@units;
    my %shown = map { $_ => 1 } @names;
    $row->{hidden} = [grep { !$shown{$_} } sort keys %{ $row->{modifiers} }];
    return;
}

# The rows an opcode text can mean, each with its modifiers' strings: ([row, {name => string}], ...).
sub rows_for {
    my ($self, $opcode) = @_;
    return @{ $self->{opcode_memo}{$opcode} //= [$self->_match_rows($opcode)] };
}

# Which other architectures of this table's have an opcode.
sub elsewhere {
    my ($self, $opcode) = @_;
    return grep { my @rows = MaxAs::Table->for_sm(substr $_, 3)->rows_for($opcode); @rows } @{ $self->{archs} };
}

sub _match_rows {
    my ($self, $opcode) = @_;
    my ($op) = $opcode =~ /^(\w+)/ or return;
    $opcode =~ s/^IMAD\.(?:MOV|SHL|IADD)\b/IMAD/ if $self->{word_bits} > 64;    # what it is called, no bits
    my $rows = $self->rows_of($op) or return;
    my @found;
    for my $row (@$rows) {
        next unless my @strings = $opcode =~ $row->{pattern};
        my %mods;
        @mods{ @{ $row->{pattern_names} } } = @strings if @{ $row->{pattern_names} };
        push @found, [$row, \%mods];
    }
    return @found if @found;
    my $suffixes = substr $opcode, length $op;
    for my $row (@$rows) {
        my %mods = map { $_ => '' } @{ $row->{pattern_names} };
        push @found, [$row, \%mods] if _any_order($suffixes, 0, [@{ $row->{units} }], \%mods);
    }
    return @found;
}

# Older listings order suffixes differently: match the units of a row in any order.
sub _any_order {
    my ($text, $at, $units, $mods) = @_;
    return !grep { !$_->{optional} } @$units if $at == length $text;
    for my $i (0 .. $#$units) {
        pos($text) = $at;
        next unless $text =~ /$units->[$i]{re}/gc;
        my ($end, @strings) = (pos $text, @{^CAPTURE});
        next if $end == $at;
        my $unit = $units->[$i];
        my @rest = @{$units}[grep { $_ != $i } 0 .. $#$units];
        next unless _any_order($text, $end, \@rest, $mods);
        @{$mods}{ @{ $unit->{names} } } = @strings if @{ $unit->{names} };
        return 1;
    }
    return 0;
}

# -- words ------------------------------------------------------------------------------------------------------

sub _index_words {
    my ($self) = @_;
    my @ordered = sort { _ones($b->{mask}) <=> _ones($a->{mask}) || $a->{index} <=> $b->{index} }
        map { @{ $self->rows_of($_) } } keys %{ $self->{texts} };
    if ($self->{word_bits} > 64) {
        push @{ $self->{bucket}[get_field($self->{index}, $_->{value})] }, $_ for @ordered;
        return;
    }
    for my $top (0 .. 255) {
        $self->{bucket}[$top] = [grep { !(($top ^ $_->{value} >> 56) & $_->{mask} >> 56) } @ordered];
    }
    return;
}

sub _ones { return join('', map { sprintf '%b', $_ } halves($_[0])) =~ tr/1// }

# The most specific row that matches the word, or undef.
sub find {
    my ($self, $word) = @_;
    $self->_index_words unless $self->{bucket};
    for my $row (@{ $self->{bucket}[get_field($self->{index}, $word)] // [] }) {
        return $row if ($word & $row->{mask}) == $row->{value};
    }
    return undef;
}

# -- fields (modifiers and sub-word selectors; two rows have one scattered over two places) ---------------------

sub field_get {
    my ($field, $word) = @_;
    if (my $bits = $field->{bits}) {
        return ($word >> $bits->[0] & 1) | ($word >> $bits->[1] & 1) << $field->{width} - 1;
    }
    return get_field($field, $word);
}

sub field_put {
    my ($field, $value) = @_;
    if (my $bits = $field->{bits}) {
        return ($value & 1) << $bits->[0] | ($value >> $field->{width} - 1 & 1) << $bits->[1];
    }
    return put_field($field, $value);
}

# -- help for error messages ------------------------------------------------------------------------------------

# The known opcode nearest to a misspelt one.
sub nearest_opcode {
    my ($self, $op) = @_;
    return nearest($op, keys %{ $self->{texts} });
}

sub nearest {
    my ($word, @known) = @_;
    my ($best, $least) = (undef, 1 + int(length($word) / 2));
    for my $other (sort @known) {
        next if abs(length($other) - length $word) >= $least;
        # Between equals, the one that starts alike.
        my $d = _distance(uc $word, uc $other) + (uc(substr $word, 0, 1) eq uc(substr $other, 0, 1) ? 0 : 0.5);
        ($best, $least) = ($other, $d) if $d < $least;
    }
    return $best;
}

sub _distance {
    my ($s, $t) = @_;
    my @row = 0 .. length $t;
    for my $i (1 .. length $s) {
        my @next = ($i);
        for my $j (1 .. length $t) {
            my $swap = $row[$j - 1] + (substr($s, $i - 1, 1) ne substr($t, $j - 1, 1));
            my $skip = ($row[$j] < $next[$j - 1] ? $row[$j] : $next[$j - 1]) + 1;
            push @next, $swap < $skip ? $swap : $skip;
        }
        @row = @next;
    }
    return $row[-1];
}

1;
