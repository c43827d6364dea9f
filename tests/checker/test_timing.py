"""Guaranteed distances and scoreboards on small programs whose answer is in the docstring."""

from maxdnn.checker.effects import all_effects
from maxdnn.checker.maxwell import MAXWELL
from maxdnn.checker.timing import RESULT, State, Timing
from maxdnn.isa.program import Graph
from tests.checker.programs import assembled


def states(lines: str) -> list[tuple[int, State, int]]:
    """(instruction, state after its waits, clock) in order."""
    kernel = assembled(lines)
    timing = Timing(Graph(kernel), all_effects(kernel.instructions), MAXWELL)
    return [(i, dict(state), clock) for i, _, state, clock in timing.walk()]


def elapsed(found: list[tuple[int, State, int]], producer: int, consumer: int) -> int:
    return min(clock - state[producer].issued for i, state, clock in found if i == consumer)


def test_stalls_add_up_and_dual_issue_takes_no_time() -> None:
    """0 + 3 cycles after the pair, 4 more for the third."""
    found = states("--:-:-:-:0 MOV R0, RZ;\n--:-:1:-:3 S2R R1, SR_TID.X;\n--:-:-:-:4 MOV R2, RZ;\n--:-:-:-:5 EXIT;\n")
    assert (elapsed(found, 0, 1), elapsed(found, 0, 2), elapsed(found, 0, 3)) == (0, 3, 7)


def test_a_long_stall_counts_in_full_only_with_the_yield_hint() -> None:
    assert elapsed(states("--:-:-:-:d MOV R0, RZ;\n--:-:-:-:5 EXIT;\n"), 0, 1) == 8
    assert elapsed(states("--:-:-:Y:d MOV R0, RZ;\n--:-:-:-:5 EXIT;\n"), 0, 1) == 13


def test_where_two_ways_meet_the_shorter_one_counts() -> None:
    """The branch jumps over 7 cycles: 1 + 5 on that way."""
    found = states("--:-:-:-:1 MOV R0, RZ;\n--:-:-:-:5 @P0 BRA DONE;\n--:-:-:-:7 MOV R1, RZ;\n"
                   "DONE:\n--:-:-:-:5 EXIT;\n")
    assert elapsed(found, 0, 3) == 6


def test_a_wait_ends_what_its_barrier_tracks_and_what_came_before_it_in_the_queue() -> None:
    """The barrier of the second load tells about the first, not about the third."""
    found = states("--:-:-:-:2 LDS R0, [RZ];\n--:-:1:-:2 LDS R1, [RZ];\n--:-:2:-:2 LDS R2, [RZ];\n"
                   "01:-:-:-:1 MOV R3, RZ;\n--:-:-:-:5 EXIT;\n")
    state = next(state for i, state, _ in found if i == 3)
    assert [bool(state[k].flags & RESULT) for k in (0, 1, 2)] == [False, False, True]


def test_a_wait_by_count_leaves_the_newest() -> None:
    found = states("--:-:1:-:2 LDS R0, [RZ];\n--:-:1:-:2 LDS R1, [RZ];\n--:-:-:-:3 DEPBAR.LE SB0, 0x1;\n"
                   "--:-:-:-:1 MOV R3, RZ;\n--:-:-:-:5 EXIT;\n")
    state = next(state for i, state, _ in found if i == 3)
    assert [bool(state[k].flags & RESULT) for k in (0, 1)] == [False, True]


def test_an_instruction_of_the_next_iteration_is_seen_across_the_back_edge() -> None:
    """From the end of the loop body to its start: 2 + 5 cycles."""
    found = states("--:-:-:-:1 MOV R1, RZ;\nLOOP:\n--:-:-:-:1 MOV R2, R0;\n--:-:-:-:2 MOV R0, R1;\n"
                   "--:-:-:-:5 @P0 BRA LOOP;\n--:-:-:-:5 EXIT;\n")
    assert elapsed([entry for entry in found if 2 in entry[1]], 2, 1) == 7
