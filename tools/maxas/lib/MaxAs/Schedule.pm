package MaxAs::Schedule;
# <SCHEDULE_BLOCK>: macros are expanded, then the instructions are listed in an order that keeps every dependence, with
# stalls that cover every fixed latency. Wait, read and write barriers are the author's and never change.
use strict;
use warnings;
use Exporter 'import';
use List::Util qw(max min);
use MaxAs::Access qw(reads_constant);
use MaxAs::Depend qw(probe accesses aliases latency dependences is_fence);
use MaxAs::Fail qw(fail);
use MaxAs::Macro qw(is_macro expand_macro);
use MaxAs::Scoreboards qw(set_scoreboards promises $SCOREBOARD_CYCLES);
our @EXPORT_OK = qw(schedule_items);

my $MAX_STALL = 15;
my $LONGEST   = 13;    # cycles: the longest fixed latency

# Items of a kernel to items without block marks.
sub schedule_items {
    my ($items, $registers, $env, %opt) = @_;
    my @pieces = _pieces($items);
    my ($block) = grep { $_->{type} eq 'open' } @$items;
    fail($block->{at}, '<SCHEDULE_BLOCK> is not available for sm_90: write the order and the stalls')
        if $block && $env->{table}{word_bits} > 64;
    return map { @{ $_->{items} } } @pieces unless grep { $_->{block} } @pieces;
    my @code = grep { $_->{type} eq 'instr' } map { @{ $_->{items} } } @pieces;
    for my $n (0 .. $#code) {
        probe($code[$n], $registers, $env);
        accesses($code[$n], $registers);
        $code[$n]{serial} = $n;
    }
    my ($alias, $promises) = (aliases(\@code, $registers), promises(\@code));
    my @out;
    for my $piece (@pieces) {
        my $run = $piece->{items};
        if ($piece->{block}) {
            $_->{force} ||= is_fence($_) for @$run;    # jumps and barriers need the stall their author gave them
            push @out, _schedule($run, dependences($run, $alias, $promises), _pending(\@out, $registers), $out[-1], $opt{debug});
        }
        else { push @out, @$run }
    }
    _cover_block_ends(\@out, $registers);
    delete @{$_}{qw(row args mods accesses serial)} for @out;
    return @out;
}

# Cuts at block marks, macros expanded: ({ block => 0|1, items }, ...).
sub _pieces {
    my ($items) = @_;
    my @pieces = ({ block => 0, items => [] });
    my ($block, $ordered, $groups);
    for my $item (@$items) {
        if ($item->{type} eq 'open' || $item->{type} eq 'close') {
            my $open = $item->{type} eq 'open';
            if ($item->{name} eq 'ORDERED') {
                fail($item->{at}, '<ORDERED> belongs inside <SCHEDULE_BLOCK>, and does not nest')
                    if !$block || $open && $ordered || !$open && !$ordered;
                $ordered = $open ? ++$groups : undef;
                next;
            }
            fail($item->{at}, '<SCHEDULE_BLOCK> does not nest') if $open && $block;
            fail($item->{at}, '</SCHEDULE_BLOCK> without <SCHEDULE_BLOCK>') if !$open && !$block;
            fail($item->{at}, '<ORDERED> is not closed') if !$open && $ordered;
            $block = $open ? $item : undef;
            push @pieces, { block => $open, items => [] };
            next;
        }
        if ($block) {
            fail($item->{at}, 'no labels inside <SCHEDULE_BLOCK>') if $item->{type} eq 'label';
            $item->{ordered} = $ordered;
        }
        push @{ $pieces[-1]{items} }, $item;
    }
    fail($block->{at}, '<SCHEDULE_BLOCK> is not closed') if $block;
    for my $piece (@pieces) {
        for my $macro (grep { $_->{type} eq 'instr' && is_macro($_) } @{ $piece->{items} }) {
            fail($macro->{at}, "$macro->{opcode} is a macro of schedule blocks") unless $piece->{block};
        }
        @{ $piece->{items} } = map { $_->{type} eq 'instr' && is_macro($_) ? expand_macro($_) : $_ } @{ $piece->{items} };
    }
    return @pieces;
}

# Results still on their way when the instructions so far have issued: { key => cycles left }, for what came last.
sub _pending {
    my ($out, $registers) = @_;
    my ($elapsed, %left) = (0);
    for my $item (reverse @$out) {
        next if $item->{type} ne 'instr';
        $elapsed += $item->{control}{stall};
        last if $elapsed >= $LONGEST;
        for my $board (set_scoreboards($item)) {
            my $rest = $SCOREBOARD_CYCLES - $elapsed;
            $left{"S$board"} = $rest if $rest > ($left{"S$board"} // 0);
        }
        for my $key (keys %{ accesses($item, $registers)->{write} }) {
            next unless $item->{row}{cls}{latency} eq 'fixed';
            my $rest = latency($item, $key) - $elapsed;
            $left{$key} = $rest if $rest > 0 && $rest > ($left{$key} // 0);
        }
    }
    return \%left;
}

sub _schedule {
    my ($run, $edges, $pending, $before, $debug) = @_;
    return unless @$run;
    my $state = { run => $run, edges => $edges, done => {}, clock => 0, previous => undef, order => [],
        dependents => _dependents($edges), at_least => [map { _pending_wait($_, $pending) } @$run], issued => [] };
    while (@{ $state->{order} } < @$run) {
        my $pick = _pick($state);
        _issue($state, $pick, $before, $debug);
    }
    return map { $run->[$_] } @{ $state->{order} };
}

sub _dependents {
    my ($edges) = @_;
    my @count = (0) x @$edges;
    for my $into (@$edges) { $count[$_]++ for keys %$into }
    return \@count;
}

sub _pending_wait {
    my ($inst, $pending) = @_;
    my $access = $inst->{accesses};
    my @waits = map { ($pending->{$_} // 0) - $access->{read}{$_} } keys %{ $access->{read} };
    push @waits, map { ($pending->{$_} // 0) - latency($inst, $_) + 1 } grep { $pending->{$_} } keys %{ $access->{write} };
    push @waits, map { $pending->{"S$_"} // 0 } grep { $inst->{control}{wait} >> $_ & 1 } 0 .. 5;
    return max(0, @waits);
}

# The best instruction whose predecessors have all issued: [index, stall of the previous one].
sub _pick {
    my ($state) = @_;
    my $run = $state->{run};
    my @best;
    for my $i (grep { !$state->{done}{$_} } 0 .. $#$run) {
        next if grep { !$state->{done}{$_} } keys %{ $state->{edges}[$i] };
        my $stall = _stall($state, $i);
        my $class = $run->[$i]{row}{class};
        my $previous = $state->{previous};
        my $first = !@{ $state->{order} } && $i == 0 && $run->[0]{control}{wait};
        my @rank = ($first ? 0 : 1, $stall, $run->[$i]{row}{cls}{dual_second} && $stall ? 1 : 0,
            defined $previous && $run->[$previous]{row}{class} eq $class ? 1 : 0, -$state->{dependents}[$i], $i);
        @best = @rank if !@best || _less(\@rank, \@best);
    }
    return [$best[-1], $best[1]];
}

sub _less {
    my ($x, $y) = @_;
    for (0 .. $#$x) { return $x->[$_] < $y->[$_] if $x->[$_] != $y->[$_] }
    return 0;
}

# Cycles the previous instruction must stall for this one to issue next.
sub _stall {
    my ($state, $i) = @_;
    my ($run, $previous) = @{$state}{qw(run previous)};
    my $inst = $run->[$i];
    my $needed = $state->{at_least}[$i] - $state->{clock};
    for my $from (keys %{ $state->{edges}[$i] }) {
        my $wait = $state->{issued}[$from] + $state->{edges}[$i]{$from} - $state->{clock};
        $needed = $wait if $wait > $needed;
    }
    return max(0, $needed) unless defined $previous;
    my $last = $run->[$previous];
    return 0 if $needed <= 0 && _can_pair($state, $last, $inst, $previous, $i);
    my $spacing = $last->{row}{class} eq $inst->{row}{class} ? $inst->{row}{cls}{sched_throughput} : 1;
    return min($MAX_STALL, max(1, $needed, $spacing, $last->{force} ? $last->{control}{stall} : 0));
}

sub _can_pair {
    my ($state, $last, $inst, $previous, $i) = @_;
    return 0 if $last->{force} || exists $state->{edges}[$i]{$previous} || $state->{paired}{$previous};
    return 0 unless $inst->{row}{cls}{dual_second} && !$last->{row}{cls}{dual_second};
    return 0 if $last->{row}{cls}{sched_throughput} > 2 || $inst->{control}{wait} || $last->{row}{cls}{pipe} eq 'branch';
    return !(reads_constant($last) && reads_constant($inst));
}

sub _issue {
    my ($state, $pick, $before, $debug) = @_;
    my ($i, $stall) = @$pick;
    my ($run, $previous) = @{$state}{qw(run previous)};
    if (defined $previous) { _set_stall($run->[$previous], $stall) }
    elsif ($stall && $before && $before->{type} eq 'instr') {
        _set_stall($before, min($MAX_STALL, $before->{control}{stall} + $stall));
    }
    $state->{paired}{$i} = 1 if defined $previous && $stall == 0;
    $state->{clock} += $stall;
    $state->{issued}[$i] = $state->{clock};
    $state->{done}{$i} = 1;
    push @{ $state->{order} }, $i;
    $state->{previous} = $i;
    printf STDERR "schedule: clock %3d  stall %2d  %-6s %s %s\n", $state->{clock}, $stall, $run->[$i]{row}{class},
        $run->[$i]{written}, join ', ', @{ $run->[$i]{operands} } if $debug;
    $run->[$i]{in_block} = 1;
    return;
}

sub _set_stall {
    my ($inst, $stall) = @_;
    $inst->{control}{stall} = $stall;
    $inst->{control}{yield} = 1 if $stall > 4;
    $inst->{control}{yield} = 0 if $stall == 0;
    return;
}

# The last instruction of a block stalls long enough for what follows, as far as that can be seen: up to a jump,
# behind which anything may come.
sub _cover_block_ends {
    my ($out, $registers) = @_;
    my @code = grep { $_->{type} eq 'instr' } @$out;
    for my $i (0 .. $#code) {
        next unless $code[$i]{in_block} && ($i == $#code || !$code[ $i + 1 ]{in_block});
        my $own = $code[$i]{control}{stall};
        my $wanted = max(1, $code[$i]{force} ? $own : 0, _needed_after(\@code, $i, $registers));
        _set_stall($code[$i], min($MAX_STALL, $wanted)) if $wanted > $own || !$code[$i]{force};
    }
    return;
}

sub _needed_after {
    my ($code, $i, $registers) = @_;
    my $own = $code->[$i]{control}{stall};
    $code->[$i]{control}{stall} = 0;
    my $left = _pending([@{$code}[0 .. $i]], $registers);
    $code->[$i]{control}{stall} = $own;
    my ($needed, $elapsed) = (0, 0);
    for my $next (@{$code}[$i + 1 .. $#$code]) {
        last if $elapsed >= $LONGEST;
        $needed = max($needed, _pending_wait($next, $left) - $elapsed);
        $elapsed += $next->{control}{stall};
        if ($next->{row}{cls}{pipe} eq 'branch') {
            $needed = max($needed, map { $left->{$_} - $elapsed } grep { !/^S/ } keys %$left) unless $next->{row}{op} eq 'EXIT' && !defined $next->{guard};
            last;
        }
    }
    return $needed;
}

1;
