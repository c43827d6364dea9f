package MaxAs::Scoreboards;
# What the author's barriers promise, as edges of the scheduler's graph. A barrier that one instruction sets may stand for
# every earlier instruction of the same unit, because a unit reads operands and returns results of one kind in order:
# authors set it on the last of a group of loads or stores only. So a setter stays behind all of those, a wait stays behind
# the setters, and whoever relies on something that was waited for stays behind the wait. Which of several waits an
# instruction relies on cannot always be told; then it stays behind all of them.
use strict;
use warnings;
use Exporter 'import';
our @EXPORT_OK = qw(set_scoreboards promises scoreboard_edges $SCOREBOARD_CYCLES $OPERANDS $RESULT);

use constant NONE => 7;
our $SCOREBOARD_CYCLES = 2;         # a barrier becomes visible one cycle after the instruction that sets it
our ($OPERANDS, $RESULT) = (1, 2);    # what an instruction needs of an earlier one: that it has read, that it is done

sub set_scoreboards { my ($inst) = @_; return grep { $_ != NONE } @{ $inst->{control} }{qw(read write)} }

# The unit whose instructions a barrier stands for together; '' where results come in fixed time. Global and texture loads
# come back through one unit.
sub _unit {
    my ($inst) = @_;
    my $class = $inst->{row}{cls};
    return '' if $class->{latency} eq 'fixed';
    # Special registers and the slow unit have queues of their own.
    return $class->{pipe} =~ /^(?:xu|sreg)$/ ? $class->{pipe} : 'mio' if $inst->{latencies};
    return $class->{pipe} eq 'tex' ? 'lsu' : $class->{pipe};
}

# What may be under way anywhere in a kernel, for runs that wait for what was issued in front of them (or behind them, in
# the round before): { units => { board => { unit => 1 } }, uses => { key => [[instruction, its unit, what a reader or
# writer of the key needs], ...] } }. The instructions have their accesses and a serial number.
sub promises {
    my ($code) = @_;
    my (%units, %uses);
    for my $inst (@$code) {
        my $unit = _unit($inst);
        next if $unit eq '';
        $units{$_}{$unit} = 1 for set_scoreboards($inst);
        my $access = $inst->{accesses};
        push @{ $uses{$_} }, [$inst, $unit, $RESULT]   for keys %{ $access->{write} };
        push @{ $uses{$_} }, [$inst, $unit, $OPERANDS] for grep { !$access->{write}{$_} } keys %{ $access->{read} };
    }
    return { units => \%units, uses => \%uses };
}

# $state: run, alias, promises, data ({ later => { earlier => what it needs } }); $edge->(from, to, cycles) adds an edge.
sub scoreboard_edges {
    my ($state, $edge) = @_;
    my $run = $state->{run};
    _setters($run, $edge);
    my @waits = grep { $run->[$_]{control}{wait} } 0 .. $#$run;
    my $fresh = _fresh($run);
    for my $i (0 .. $#$run) {
        my @before = grep { $_ < $i } @waits or next;
        _behind_waits($state, $i, $_, \@before, $edge) for keys %{ $state->{data}{$i} // {} };
        for my $wait (@before) { $edge->($wait, $i, 0) if _relies_on_outside($state, $wait, $i, $fresh->[$i]) }
    }
    return;
}

# A setter behind all of its unit, a wait behind the setters, a setter behind the last wait for its barrier.
sub _setters {
    my ($run, $edge) = @_;
    my (%of_unit, %setters, %last_wait);
    for my $i (0 .. $#$run) {
        my ($inst, $unit) = ($run->[$i], _unit($run->[$i]));
        for my $board (grep { $inst->{control}{wait} >> $_ & 1 } 0 .. 5) {
            $edge->($_, $i, $SCOREBOARD_CYCLES) for @{ $setters{$board} // [] };
            $last_wait{$board} = $i;
        }
        my @set = set_scoreboards($inst);
        if (@set && $unit ne '') { $edge->($_, $i, 0) for @{ $of_unit{$unit} // [] } }
        for my $board (@set) {
            $edge->($last_wait{$board}, $i, 0) if defined $last_wait{$board};
            push @{ $setters{$board} }, $i;
        }
        push @{ $of_unit{$unit} }, $i;
    }
    return;
}

# Instruction $i needs something of the earlier $from: it stays behind the waits that may promise it, up to one that
# surely does.
sub _behind_waits {
    my ($state, $i, $from, $waits, $edge) = @_;
    my ($run, $need) = ($state->{run}, $state->{data}{$i}{$from});
    my $unit = _unit($run->[$from]);
    return if $unit eq '';
    for my $wait (grep { $_ > $from } @$waits) {
        my $mask = $run->[$wait]{control}{wait};
        my @group = grep { _unit($run->[$_]) eq $unit } $from .. $wait - 1;
        next unless grep { $mask >> $_ & 1 } map { set_scoreboards($run->[$_]) } @group;
        $edge->($wait, $i, 0);
        return if grep { _surely($run->[$from], $run->[$_], $mask, $need) } @group;
    }
    return;
}

# Does a wait under $mask surely give what is needed of $inst, by the barrier that $setter sets? If $inst has a barrier for
# that, only its own does; else one on a later instruction of the same kind, but for the unit that returns results out of
# order.
sub _surely {
    my ($inst, $setter, $mask, $need) = @_;
    return 0 unless grep { $mask >> $_ & 1 } _telling($setter, $need);
    return $inst == $setter || !$inst->{latencies} && !_telling($inst, $need) && $inst->{row}{op} eq $setter->{row}{op} && _unit($inst) ne 'sfu';
}

# The barriers of an instruction that tell that it has read its operands, or that it is done.
sub _telling {
    my ($inst, $need) = @_;
    return grep { $_ != NONE } $inst->{control}{write}, $need == $OPERANDS ? $inst->{control}{read} : ();
}

# May instruction $i meet something issued outside of the run, or in it but behind the wait, a round ago, that the wait
# stands for? Not through a register that the run has written before.
sub _relies_on_outside {
    my ($state, $wait, $i, $fresh) = @_;
    my ($run, $promises) = @{$state}{qw(run promises)};
    my $first = $run->[0]{serial};
    my @boards = grep { $run->[$wait]{control}{wait} >> $_ & 1 } 0 .. 5;
    my %unit = map { %{ $promises->{units}{$_} // {} } } @boards;
    my $access = $run->[$i]{accesses};
    for my $key (@$fresh) {
        my $writes = $access->{write}{$key};
        for my $use (map { @{ $promises->{uses}{$_} // [] } } @{ $state->{alias}{$key} }) {
            my ($other, $unit, $kind) = @$use;
            next if !$unit{$unit} || $kind == $OPERANDS && !$writes;
            my $at = $other->{serial} - $first;
            return 1 if $at < 0 || $at >= $wait;
        }
    }
    return 0;
}

# Per instruction, what it touches that nothing before it in the run has written for certain.
sub _fresh {
    my ($run) = @_;
    my (%written, @fresh);
    for my $inst (@$run) {
        my $access = $inst->{accesses};
        my %touched = (%{ $access->{read} }, %{ $access->{write} });
        push @fresh, [grep { !$written{$_} } keys %touched];
        unless (defined $inst->{guard}) { $written{$_} = 1 for keys %{ $access->{write} } }
    }
    return \@fresh;
}

1;
