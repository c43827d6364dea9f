package MaxAs::Depend;
# Which instructions of a straight run must keep their order, and how many cycles apart: registers, predicates, carry,
# scoreboards, memory and fences. `probe` encodes with stand-in numbers so that pool registers keep their names.
use strict;
use warnings;
use Exporter 'import';
use List::Util qw(max min);
use MaxAs::Access qw(predicates uniforms carry is_store);
use MaxAs::Encode ();
use MaxAs::Fail qw(fail);
use MaxAs::Scoreboards qw(scoreboard_edges $SCOREBOARD_CYCLES $OPERANDS $RESULT);
our @EXPORT_OK = qw(probe accesses aliases latency apart unread dependences is_fence);

my $PREDICATE_CYCLES = 13;

# What encoding found is kept: `found`, and `found_word` where no number stood in for another, so that it need not be
# encoded again.
sub probe {
    my ($inst, $registers, $env) = @_;
    return if $inst->{row};
    $inst->{found} //= _found($inst, $registers, $env);
    @{$inst}{ keys %{ $inst->{found} } } = values %{ $inst->{found} };
    $inst->{latencies} = $env->{table}{latencies};
    return;
}

sub _found {
    my ($inst, $registers, $env) = @_;
    my $stands_in = 0;
    my $register = sub {
        my $number = $registers->number($_[0]);
        return $number if defined $number || !$registers->{pool}{ $_[0] };
        $stands_in = 1;
        return 0;
    };
    my $word = MaxAs::Encode::encode($inst, { %$env, address => 0, label => sub { 0 }, register => $register });
    $stands_in ||= grep { $_->{type} =~ /^rel_/ } @{ $inst->{row}{operands} };    # those hang on its address
    $inst->{found_word} = $word unless $stands_in;
    return { map { $_ => $inst->{$_} } qw(row args mods asked_reuse uses) };
}

# { read => {key => read delay}, write => {key => 1} }; keys: register numbers, ~pool names, P0.., UP0.., U0.., CC.
# Where no name waits for its number it is the same for all instructions that were encoded as one.
sub accesses {
    my ($inst, $registers) = @_;
    return $inst->{accesses} //= $inst->{uses}{accesses} if $inst->{accesses} || $inst->{uses}{accesses};
    my $class = $inst->{row}{cls};
    my (%read, %write);
    for my $found (@{ $inst->{uses}{gprs} }) {
        my (undef, $arg, $access, $count) = @$found;
        for my $key (_keys($inst, $arg, $count, $registers)) {
            $read{$key}  = $class->{read_cycles} if $access =~ /r/;
            $write{$key} = 1 if $access =~ /w/;
        }
    }
    my ($pred_read, $pred_write) = predicates($inst);
    $read{$_}  = 0 for keys %$pred_read;
    $write{$_} = 1 for keys %$pred_write;
    for my $uniform (uniforms($inst)) {
        my ($n, $access) = @$uniform;
        $read{"U$n"}  = 0 if $access =~ /r/;
        $write{"U$n"} = 1 if $access =~ /w/;
    }
    my ($cc_read, $cc_write) = carry($inst);
    $read{CC}  = 0 if $cc_read;
    $write{CC} = 1 if $cc_write;
    my $found = $inst->{accesses} = { read => \%read, write => \%write };
    $inst->{uses}{accesses} = $found unless grep { /^~/ } keys %read, keys %write;
    return $found;
}

sub _keys {
    my ($inst, $arg, $count, $registers) = @_;
    my $name = ($arg->{of} // $arg)->{name};
    if (defined $name && $registers->{pool}{$name} && !defined $registers->number($name)) {
        fail($inst->{at}, "$inst->{opcode}: '$name' comes from a pool, and $count registers in a row are needed here")
            if $count > 1 || $arg->{of};
        return "~$name";
    }
    return map { $arg->{value} + $_ } 0 .. $count - 1;
}

# Cycles from issue until the result can be read: by $reader, or by whatever comes.
sub latency {
    my ($inst, $key, $reader) = @_;
    my $class = $inst->{row}{cls};
    return $class->{latency} eq 'fixed' ? _by_reader($inst, $key, $reader) : 1 if $inst->{latencies};
    return $PREDICATE_CYCLES if $key =~ /^P/;
    return $class->{latency} eq 'fixed' ? $class->{result_cycles} : $SCOREBOARD_CYCLES;
}

# What is made where, and used where, decides: the table has cycles for each pair.
sub _by_reader {
    my ($inst, $key, $reader) = @_;
    my $figures = $inst->{latencies};
    my ($made, $used) = map { $_ && $figures->{classes}{ $_->{row}{class} } } $inst, $reader;
    my $memory = defined $used && grep { $_ eq $used } @{ $figures->{near} };
    my $uniform = defined $used && $used =~ /^(?:umove|ualu|r2ur)$/;
    my ($by, $how);
    my $late = 0;
    if ($key =~ /^P/) {
        $by = $figures->{predicates}{$made} // $figures->{predicates}{half};
        $how = $reader && ($reader->{guard} // '') =~ /^\@!?$key$/ ? 'guard' : defined $used && $by->{$used} ? $used : 'other' if $reader;
        $late = $figures->{late_predicates}{ $inst->{row}{op} } // 0 if $reader && $how ne 'guard';
    }
    elsif ($key =~ /^U/) {
        my $guard = ($figures->{uniform_guard} // {})->{ $inst->{row}{op} =~ /^(?:VOTEU|ELECT)$/ ? 'votes' : 'other' };
        return $guard if $guard && $reader && ($reader->{guard} // '') =~ /^\@!?$key$/;
        return $figures->{votes} if $reader && $inst->{row}{op} =~ /^(?:VOTEU|ELECT)$/ && !$memory;
        $by = $figures->{uniform}{$made} // $figures->{uniform}{r2ur};
        $by = { %$by, guard => $guard } if $key =~ /^UP/ && $guard;
        $how = $used eq 'umove' ? 'move' : $uniform ? 'uniform' : $memory ? 'mio' : 'vector' if $reader;
    }
    else {
        $by = $figures->{registers}{$made} // $figures->{registers}{mma16};
        $how = $uniform ? 'uniform' : $used eq 'cs2r' ? 'alu' : $used if $reader;
    }
    return $late + (defined $how ? $by->{$how} // max(values %$by) : max(values %$by));
}

# Cycles from one write of a key to the next that make the later one the last.
sub apart {
    my ($first, $second, $key, $same) = @_;
    my $cycles = latency($first, $key) - latency($second, $same // $key) + 1;
    if ($first->{latencies}) {
        my @fixed = grep { $_->{row}{cls}{latency} eq 'fixed' } $first, $second;
        my $alike = @fixed == 2 && $first->{row}{class} eq $second->{row}{class};
        $cycles = @fixed && $fixed[0] == $first && !$alike ? latency($first, $key) : 1;
    }
    return max(1, $cycles);
}

# Cycles from what reads a key to what writes it, so that the first reads what was there before.
sub unread {
    my ($reader, $writer, $key) = @_;
    return 0 if $key !~ /^U\d/ || !$reader->{latencies};
    my $late = ($reader->{latencies}{read_late} // {})->{ $reader->{latencies}{classes}{ $reader->{row}{class} } // '' };
    return $late ? $late->{ $writer->{row}{op} } // 0 : 0;
}

# Edges into each instruction: [ { index of an earlier one => cycles }, ... ]. $alias and $promises are those of the whole
# kernel (aliases, MaxAs::Scoreboards::promises).
sub dependences {
    my ($run, $alias, $promises) = @_;
    my $state = { writers => {}, readers => {}, data => {}, edges => [map { {} } @$run], run => $run, alias => $alias,
        promises => $promises, noted => [] };
    for my $i (0 .. $#$run) {
        _register_edges($state, $i);
        _memory_edges($state, $i);
    }
    _ordered_edges($state);
    scoreboard_edges($state, sub { _edge($state, @_) });
    return $state->{edges};
}

sub _edge {
    my ($state, $from, $to, $cycles) = @_;
    return if $from == $to;
    my $edges = $state->{edges}[$to];
    $edges->{$from} = $cycles if !defined $edges->{$from} || $edges->{$from} < $cycles;
    return;
}

# { key => [it, and what may be the same register] }: a pool name may be given any number of its pool.
sub aliases {
    my ($code, $registers) = @_;
    my (%key, %alias);
    for my $inst (@$code) {
        my $access = accesses($inst, $registers);
        $key{$_} = 1 for keys %{ $access->{read} }, keys %{ $access->{write} };
    }
    for my $pooled (grep { /^~/ } keys %key) {
        my $pool = $registers->{pool}{ substr $pooled, 1 };
        my %number = map { $_ => 1 } @{ $pool->{numbers} };
        for my $other (grep { $_ ne $pooled } keys %key) {
            my $clash = $other =~ /^\d/ ? $number{$other} : 0;
            if ($other =~ /^~(.*)/) {
                my $theirs = $registers->{pool}{$1};
                $clash = $theirs != $pool && grep { $number{$_} } @{ $theirs->{numbers} };
            }
            next unless $clash;
            $alias{$pooled}{$other} = 1;
            $alias{$other}{$pooled} = 1;
        }
    }
    return { map { my $k = $_; $k => [$k, sort keys %{ $alias{$k} // {} }] } keys %key };
}

sub _register_edges {
    my ($state, $i) = @_;
    my ($run, $alias) = @{$state}{qw(run alias)};
    my $inst = $run->[$i];
    my $access = $inst->{accesses};
    for my $key (keys %{ $access->{read} }) {
        for my $same (@{ $alias->{$key} }) {
            for my $w (@{ $state->{writers}{$same} // [] }) {
                my $wait = latency($run->[$w], $same, $inst) - $access->{read}{$key};
                _edge($state, $w, $i, $wait < 1 ? 1 : $wait);
                _needs($state, $i, $w, $RESULT);
            }
        }
    }
    for my $key (keys %{ $access->{write} }) {
        for my $same (@{ $alias->{$key} }) {
            for my $r (@{ $state->{readers}{$same} // [] }) {
                _edge($state, $r, $i, unread($run->[$r], $inst, $same));
                _needs($state, $i, $r, $OPERANDS);
            }
            for my $w (@{ $state->{writers}{$same} // [] }) {
                _edge($state, $w, $i, apart($run->[$w], $inst, $same, $key));
                _needs($state, $i, $w, $RESULT);
            }
        }
    }
    push @{ $state->{readers}{$_} }, $i for keys %{ $access->{read} };
    for my $key (keys %{ $access->{write} }) {
        # A conditional write leaves earlier writers visible.
        if (defined $inst->{guard}) { push @{ $state->{writers}{$key} }, $i }
        else { $state->{writers}{$key} = [$i]; $state->{readers}{$key} = [grep { $_ == $i } @{ $state->{readers}{$key} // [] }] }
    }
    return;
}

sub _needs {
    my ($state, $i, $from, $what) = @_;
    my $known = $state->{data}{$i}{$from} // 0;
    $state->{data}{$i}{$from} = $what if $what > $known;
    return;
}

# -- memory and fences ------------------------------------------------------------------------------------------

my %SPACE = (LDS => 's', STS => 's', ATOMS => 's', LDL => 'l', STL => 'l', LDG => 'g', STG => 'g', ATOM => 'gs',
    RED => 'gs', ATOMG => 'g', REDG => 'g', LDGSTS => 'gs', LD => 'gsl', ST => 'gsl', SULD => 'u', SUST => 'u', SURED => 'u', SUATOM => 'u');

sub is_fence {
    my ($inst) = @_;
    my $row = $inst->{row};
    return 1 if $row->{cls}{pipe} =~ /^(?:branch|barrier|warpgroup|async)$/;
    return $row->{op} =~ /^(?:BAR|DEPBAR|MEMBAR|B2R|BMOV|BPT|CCTL\w*|TEXDEPBAR)$/ ? 1 : 0;
}

sub _memory_edges {
    my ($state, $i) = @_;
    my $kinds = $state->{kinds} //= [map { _kind($_) } @{ $state->{run} }];
    my ($fence, $space, $writes, $clock) = @{ $kinds->[$i] };
    for my $j ($fence ? 0 .. $i - 1 : @{ $state->{noted} }) {
        my ($other_fence, $other_space, $other_writes, $other_clock) = @{ $kinds->[$j] };
        my $both = $space ne '' && $other_space =~ /[$space]/;
        my $memory = $both && ($writes || $other_writes);
        _edge($state, $j, $i, 0) if $fence || $other_fence || $clock && $other_clock || $memory;
        _needs($state, $i, $j, $RESULT) if $memory;
    }
    push @{ $state->{noted} }, $i if $fence || $space ne '' || $clock;
    return;
}

# [whether it is a fence, the spaces of memory it accesses, whether it writes there, whether it reads the clock]
sub _kind {
    my ($inst) = @_;
    my $space = $SPACE{ $inst->{row}{op} } // '';
    return [is_fence($inst), $space, $space ne '' && _writes_memory($inst), $inst->{row}{op} eq 'CS2R'];
}

sub _writes_memory { my ($inst) = @_; return is_store($inst) || $inst->{row}{op} =~ /^(?:ATOM|SUATOM)/ ? 1 : 0 }

# -- order the author asks for ----------------------------------------------------------------------------------

sub _ordered_edges {
    my ($state) = @_;
    my %last;
    for my $i (0 .. $#{ $state->{run} }) {
        my $group = $state->{run}[$i]{ordered} or next;
        _edge($state, $last{$group}, $i, 0) if defined $last{$group};
        $last{$group} = $i;
    }
    return;
}

1;
