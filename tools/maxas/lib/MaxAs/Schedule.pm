package MaxAs::Schedule;
# <SCHEDULE_BLOCK>: macros are expanded, then the instructions are listed in an order that keeps every dependence, with
# stalls that cover every fixed latency. Wait, read and write barriers are the author's and never change.
use strict;
use warnings;
use Exporter 'import';
use List::Util qw(max min);
use MaxAs::Access qw(reads_constant);
use MaxAs::Depend qw(probe accesses aliases latency apart unread dependences is_fence);
use MaxAs::Fail qw(fail);
use MaxAs::Macro qw(is_macro expand_macro);
use MaxAs::Scoreboards qw(set_scoreboards promises $SCOREBOARD_CYCLES);
our @EXPORT_OK = qw(schedule_items);

my $MAX_STALL = 15;
my $LONGEST   = 24;    # cycles: no fixed latency is longer

# Items of a kernel to items without block marks.
sub schedule_items {
    my ($items, $registers, $env, %opt) = @_;
    my @pieces = _pieces($items);
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
            push @out, _schedule($run, dependences($run, $alias, $promises), \@out, $env, $opt{debug});
        }
        else { push @out, @$run }
    }
    _cover_block_ends(\@out, $env);
    delete @{$_}{qw(row args mods accesses serial latencies)} for @out;
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

# What may still be under way when the instructions so far have issued: [instruction, cycles since its issue], ...
sub _pending {
    my ($out) = @_;
    my ($elapsed, @found) = (0);
    for my $item (grep { $_->{type} eq 'instr' } reverse @$out) {
        $elapsed += $item->{control}{stall};
        last if $elapsed >= $LONGEST;
        push @found, [$item, $elapsed];
    }
    return \@found;
}

sub _schedule {
    my ($run, $edges, $out, $env, $debug) = @_;
    return unless @$run;
    my ($pending, $before) = (_pending($out), $out->[-1]);
    my $state = { env => $env, run => $run, edges => $edges, clock => 0, previous => undef, order => [],
        dependents => _dependents($edges), left => [map { scalar keys %$_ } @$edges], at_least => [map { _pending_wait($_, $pending) } @$run], issued => [] };
    $state->{ready} = { map { $_ => 1 } grep { !$state->{left}[$_] } 0 .. $#$run };
    while (@{ $state->{order} } < @$run) {
        my $pick = _pick($state);
        _issue($state, $pick, $before, $debug);
    }
    return (@{ $state->{idle}{first} // [] }, map { ($run->[$_], @{ $state->{idle}{$_} // [] }) } @{ $state->{order} });
}

# Of each instruction, those that wait for it.
sub _dependents {
    my ($edges) = @_;
    my @found = map { [] } @$edges;
    for my $to (0 .. $#$edges) { push @{ $found[$_] }, $to for keys %{ $edges->[$to] } }
    return \@found;
}

# Cycles that an instruction must wait for what is under way.
sub _pending_wait {
    my ($inst, $pending) = @_;
    my ($access, @waits) = ($inst->{accesses}, 0);
    for my $entry (@$pending) {
        my ($from, $elapsed) = @$entry;
        push @waits, map { $SCOREBOARD_CYCLES - $elapsed } grep { $inst->{control}{wait} >> $_ & 1 } set_scoreboards($from);
        next unless $from->{row}{cls}{latency} eq 'fixed';
        push @waits, map { unread($from, $inst, $_) - $elapsed } grep { $access->{write}{$_} } keys %{ $from->{accesses}{read} };
        for my $key (keys %{ $from->{accesses}{write} }) {
            push @waits, latency($from, $key, $inst) - $elapsed - $access->{read}{$key} if exists $access->{read}{$key};
            push @waits, apart($from, $inst, $key) - $elapsed if $access->{write}{$key} && latency($from, $key) > $elapsed;
        }
    }
    return max(@waits);
}

# The best instruction whose predecessors have all issued: [index, stall of the previous one].
sub _pick {
    my ($state) = @_;
    my $run = $state->{run};
    my @best;
    for my $i (keys %{ $state->{ready} }) {
        my $stall = _stall($state, $i);
        my $class = $run->[$i]{row}{class};
        my $previous = $state->{previous};
        my $first = !@{ $state->{order} } && $i == 0 && $run->[0]{control}{wait};
        my @rank = ($first ? 0 : 1, $stall, $run->[$i]{row}{cls}{dual_second} && $stall ? 1 : 0,
            defined $previous && $run->[$previous]{row}{class} eq $class ? 1 : 0, -@{ $state->{dependents}[$i] }, $i);
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
    # An instruction of these occupies its unit for all that come there.
    $spacing = $last->{row}{cls}{pipe} eq $inst->{row}{cls}{pipe} ? $last->{row}{cls}{sched_throughput} : 1 if $inst->{latencies};
    my $stall = max(1, $needed, $spacing, $last->{force} ? $last->{control}{stall} : 0);
    return $inst->{latencies} ? $stall : min($MAX_STALL, $stall);
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
    if (defined $previous) { push @{ $state->{idle}{$previous} }, _stalled($run->[$previous], $stall, $state->{env}) }
    elsif ($stall && $before && $before->{type} eq 'instr') {
        push @{ $state->{idle}{first} }, _stalled($before, $before->{control}{stall} + $stall, $state->{env});
    }
    $state->{paired}{$i} = 1 if defined $previous && $stall == 0;
    $state->{clock} += $stall;
    $state->{issued}[$i] = $state->{clock};
    delete $state->{ready}{$i};
    for my $next (@{ $state->{dependents}[$i] }) { $state->{ready}{$next} = 1 unless --$state->{left}[$next] }
    push @{ $state->{order} }, $i;
    $state->{previous} = $i;
    printf STDERR "schedule: clock %3d  stall %2d  %-6s %s %s\n", $state->{clock}, $stall, $run->[$i]{row}{class},
        $run->[$i]{written}, join ', ', @{ $run->[$i]{operands} } if $debug;
    $run->[$i]{in_block} = 1;
    return;
}

# Lets an instruction stall so long; what is more than a control code holds, as no fixed latency of Maxwell is, becomes
# instructions that do nothing.
sub _stalled {
    my ($inst, $stall, $env) = @_;
    _set_stall($inst, min($MAX_STALL, $stall));
    return unless $inst->{latencies};
    my @idle;
    for (my $left = $stall - $MAX_STALL; $left > 0; $left -= $MAX_STALL) {
        my $control = { wait => 0, read => 7, write => 7, reuse => 0, yield => 0, stall => 1 };
        my $nop = { type => 'instr', at => $inst->{at}, control => $control, guard => undef, opcode => 'NOP', written => 'NOP',
            operands => [], in_block => 1, accesses => { read => {}, write => {} } };
        probe($nop, undef, $env);
        _set_stall($nop, min($MAX_STALL, $left));
        push @idle, $nop;
    }
    return @idle;
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
    my ($out, $env) = @_;
    my @code = grep { $_->{type} eq 'instr' } @$out;
    my %behind;
    for my $i (0 .. $#code) {
        next unless $code[$i]{in_block} && ($i == $#code || !$code[ $i + 1 ]{in_block});
        my $own = $code[$i]{control}{stall};
        my $wanted = max(1, $code[$i]{force} ? $own : 0, _needed_after(\@code, $i));
        $behind{$i} = [_stalled($code[$i], $wanted, $env)] if $wanted > $own || !$code[$i]{force};
    }
    my $n = 0;
    @$out = map { my $item = $_; ($item, $item->{type} eq 'instr' ? @{ $behind{ $n++ } // [] } : ()) } @$out;
    return;
}

sub _needed_after {
    my ($code, $i) = @_;
    my $own = $code->[$i]{control}{stall};
    $code->[$i]{control}{stall} = 0;
    my $pending = _pending([@{$code}[0 .. $i]]);
    $code->[$i]{control}{stall} = $own;
    my ($needed, $elapsed) = (0, 0);
    for my $next (@{$code}[$i + 1 .. $#$code]) {
        last if $elapsed >= $LONGEST;
        $needed = max($needed, _pending_wait($next, $pending) - $elapsed);
        $elapsed += $next->{control}{stall};
        if ($next->{row}{cls}{pipe} eq 'branch') {
            $needed = max($needed, map { _slowest($_) - $elapsed } @$pending) unless $next->{row}{op} eq 'EXIT' && !defined $next->{guard};
            last;
        }
    }
    return $needed;
}

# Cycles until all that an instruction under way writes can be read by whatever comes.
sub _slowest {
    my ($entry) = @_;
    my ($from, $elapsed) = @$entry;
    return 0 unless $from->{row}{cls}{latency} eq 'fixed';
    return max(0, map { latency($from, $_) - $elapsed } keys %{ $from->{accesses}{write} });
}

1;
