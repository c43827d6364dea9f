"""The machine's rules, one at a time, on programs of a few instructions whose cycles can be counted by hand."""

import dataclasses

import numpy as np
import pytest
from handmade import control, ins, lanes, loop, time

from maxdnn.errors import SimulationError


def test_ffma_without_conflicts_reaches_peak():
    """16 warps, distinct banks: one issue per scheduler and cycle but for launch, EXIT and first fetches."""
    body = [ins("FFMA", d=2 + n % 2, a=4, b=9, c=2 + n % 2) for n in range(300)]
    code, runs = loop(body, 800)
    result = time(code, runs, warps=16, blocks=16)
    ffma = result.issued[:300].sum()
    assert ffma == 16 * 300 * 800
    assert 100 * ffma / (4 * result.cycles) >= 99.5


def slope(body, short=20, long=60, rows=(), **launch):
    """Cycles each further trip round a loop takes: launch and first fetches, which every trip count has, drop out.
    `rows`: the address rows of one trip."""
    def cycles(times):
        code, runs = loop(body, times)
        return time(code, runs, addresses=lambda b, w: list(rows) * times, **launch).cycles
    return (cycles(long) - cycles(short)) / (long - short)


def per_instruction(body, warps=16):
    return slope(body, warps=warps, blocks=16) * 4 / (len(body) * warps)


# Reads per bank of three consecutive FFMA and the measured cycles per three (CuAssembler RegBank data).
MEASURED_BANKS = [
    ("3000,3000,3000", 8.88), ("3000,2000,0110", 4.95), ("3000,0300,0120", 3.97), ("3000,0110,2100", 4.92),
    ("3000,0110,0101", 3.96), ("2100,1100,2000", 4.92), ("2100,0210,2000", 3.95), ("2100,1010,0111", 3.00),
    ("2000,0200,0020", 3.01), ("1110,1101,0010", 2.98)]


def ffma_reading(pattern):
    registers = [bank + 4 * (1 + k) for bank in range(4) for k in range(int(pattern[bank]))]
    return ins("FFMA", d=0, **dict(zip("abc", registers, strict=False)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("pattern", "cycles"), MEASURED_BANKS)
def test_bank_conflicts_cost_what_was_measured(pattern, cycles):
    body = [ffma_reading(p) for p in pattern.split(",")] * 100
    assert 3 * per_instruction(body) == pytest.approx(cycles, abs=0.15)


def test_planted_bank_conflicts_cost_exactly_the_rule():
    """k registers of one bank in every instruction: k cycles each."""
    for reads, cycles in (("1000", 1), ("2000", 2), ("3000", 3)):
        assert per_instruction([ffma_reading(reads)] * 300) == pytest.approx(cycles, rel=0.01)


# (register of a, of b, of c, reuse bits), measured cycles per instruction: CuAssembler RegBank reuse pairs.
def test_reuse_flags_save_bank_reads_as_measured():
    def cost(a, b, c, reuse):
        return per_instruction([ins("FFMA", d=0, a=a, b=b, c=c, reuse=reuse)] * 300, warps=16)
    assert cost(8, 12, 16, 0) == pytest.approx(2.94, abs=0.1)
    assert cost(8, 12, 16, 0b011) == pytest.approx(1.01, abs=0.02)
    assert cost(8, 9, 16, 0) == pytest.approx(1.96, abs=0.06)
    assert cost(8, 9, 16, 0b001) == pytest.approx(1.00, abs=0.02)


MEASURED_STALLS = {1: 1.00, 2: 1.01, 3: 1.02, 4: 1.03, 5: 1.28, 6: 1.52, 7: 1.76, 8: 2.03, 9: 2.33, 10: 2.57, 11: 2.78}
UNYIELDED = {12: 5.84, 13: 2.11, 14: 2.23, 15: 2.40}
YIELDED = {12: 3.11, 13: 3.45, 14: 3.71, 15: 3.87}


@pytest.mark.sampled(1, 2)
@pytest.mark.parametrize("policy", ["greedy-then-oldest", "greedy-then-round-robin", "loose-round-robin"])
@pytest.mark.parametrize(("hint", "table"), [("-", MEASURED_STALLS | UNYIELDED), ("Y", YIELDED)])
def test_stall_counts_cost_what_was_measured(policy, hint, table):
    """Many warps, of which it rotates over four: a stall of n costs max(1, n / 4), up to 6% off the measured."""
    for stall, cycles in table.items():
        body = [ins("FFMA", f"--:-:-:{hint}:{stall:x}", d=2 + n % 2, a=4, b=9, c=2 + n % 2) for n in range(30)]
        cost = slope(body, warps=16, blocks=160, policy=policy) * 4 / (30 * 160)
        assert cost == pytest.approx(cycles, rel=0.07), stall


# Cycles a scheduler for six FFMA of one warp at stalls 1 to 8, CuAssembler RegBank data: operands a, b, c; reuse bits;
# warps a scheduler; measured; how far off the model is at most and in the mean, percent. What is left: see the ledger.
ONE_BANK, TWO_OF_ONE = (8, 12, 16), (8, 12, 17)
MEASURED_REUSE = [
    (ONE_BANK, 0b000, 16, (17.9, 17.9, 17.9, 17.9, 18.0, 18.9, 19.1, 20.8), 6.5, 2.5),
    (ONE_BANK, 0b011, 16, (6.2, 6.2, 17.7, 17.6, 17.8, 17.3, 17.7, 18.6), 5, 3),
    (ONE_BANK, 0b011, 4, (6.2, 6.2, 17.7, 17.6, 17.8, 17.3, 17.7, 18.6), 5, 3),
    (ONE_BANK, 0b011, 3, (6.2, 6.2, 17.2, 13.9, 14.8, 17.2, 18.3, 21.1), 30, 10.5),
    (ONE_BANK, 0b011, 2, (6.2, 6.6, 9.6, 12.5, 15.4, 18.4, 21.4, 24.3), 9.5, 4),
    (TWO_OF_ONE, 0b000, 16, (12.0, 11.9, 11.9, 11.9, 12.0, 12.8, 13.9, 14.9), 6.5, 1.6),
    (TWO_OF_ONE, 0b001, 16, (6.1, 6.1, 11.8, 11.8, 12.0, 12.2, 12.5, 13.7), 9.6, 3.5)]


@pytest.mark.sampled(1, 2)
@pytest.mark.parametrize(("registers", "reuse", "warps", "measured", "most", "mean"), MEASURED_REUSE)
def test_conflicts_and_reuse_at_every_stall_are_near_what_was_measured(registers, reuse, warps, measured, most, mean):
    """The measured loop has a branch and a counter, 3% at one cycle per instruction and up to 9% with two warps."""
    differences = []
    for stall, cycles in enumerate(measured, 1):
        body = [ins("FFMA", f"--:-:-:-:{stall:x}", d=0, reuse=reuse, **dict(zip("abc", registers, strict=True)))] * 60
        blocks = 16 * 4 * warps
        cost = slope(body, 10, 30, warps=4, blocks=blocks, shared=98304 // warps // 256 * 256) * 6 / 60 / (4 * warps)
        differences.append(100 * abs(cost / cycles - 1))
    assert max(differences) < most, differences
    assert sum(differences) < mean * len(differences), differences


@pytest.mark.parametrize("stall", [4, 6, 8, 10])
@pytest.mark.parametrize(("reads", "still"), [("1100", 0), ("2000", 2), ("3000", 5)])
def test_stall_counts_stand_still_while_operand_fetch_is_full(reads, still, stall):
    """Four warps in turn: two are in fetch when the third comes, so of the cycles lost to conflicts all but what the
    first two wait for come on top of the stall; the banks, busy for 4, 8 or 12 cycles a turn, bound it from below."""
    body = [dataclasses.replace(ffma_reading(reads), control=control(f"--:-:-:-:{stall:x}"))] * 60
    turn = slope(body, 10, 30, warps=4, blocks=16 * 16, shared=98304 // 4) / 60 / 4
    assert turn == pytest.approx(max(stall + still, 4 * max(map(int, reads))), rel=0.01)


# The last instruction of a loop. Who goes on is measured for FFMA and assumed for the others (ledger, "A short grid").
LAST = {"FFMA": {"d": 10, "a": 4, "b": 9, "c": 11}, "BRA": {}, "BAR.ARV": {"form": "II", "bar": 1, "cnt": 1024}}


@pytest.mark.parametrize("hint", "-Y")
@pytest.mark.parametrize("last", LAST)
def test_from_a_stall_of_3_on_the_next_warp_in_turn_goes_on_whatever_the_instruction(last, hint):
    """Three warps of a scheduler, 60 trips of 8 FFMA and one more instruction. In turn they end within a trip of one
    another. If the oldest goes on, two share the scheduler, and the third is alone with its stalls in the end."""
    def ends(stall, **changes):
        body = [ins("FFMA", d=2 + n % 2, a=4, b=9, c=2 + n % 2) for n in range(8)]
        code, runs = loop([*body, ins(last, f"--:-:-:{hint}:{stall}", **LAST[last])], 60)
        result = time(code, runs, warps=12, trace=(0, 3000), changes=changes)
        exits = sorted(e[0] for e in result.events.tolist() if e[1] == 0 and e[3] == len(code) - 1)
        return exits, exits[-1] - exits[0]
    for stall in (3, 5):
        exits, spread = ends(stall)
        assert spread < 9
        oldest, spread = ends(stall, turn_stall=16)
        assert spread == pytest.approx(60 * (8 + stall), rel=0.02)
        assert oldest[-1] - exits[-1] == pytest.approx(60 * (stall - 1), abs=5)  # the last warp's stalls, alone
    assert ends(2) == ends(2, turn_stall=16)


# (instruction that reads R8, its address rows)
LATE = {"LDS": (ins("LDS", "--:-:1:-:1", d=2, addr=8), [lanes([0] * 32)]),
        "MUFU": (ins("MUFU", "--:-:1:-:1", d=2, a=8), [])}


@pytest.mark.parametrize("late", LATE)
@pytest.mark.parametrize(("reads", "cost"), [("2000", 1), ("1100", 1), ("0110", 0)])
def test_late_reads_take_their_turn_at_the_banks(late, reads, cost):
    """Beside FFMA that keep bank 0 busy, a read of R8 costs the one cycle the bank serves it; beside others nothing."""
    inst, rows = LATE[late]
    pair = [dataclasses.replace(ffma_reading(reads), control=control("--:-:-:-:0")), inst]
    body = [*[ffma_reading(reads)] * 30, *pair, *[ffma_reading(reads)] * 8]
    plain = [ffma_reading(reads)] * 39
    assert slope(body * 10, rows=rows * 10) - slope(plain * 10) == 10 * cost


@pytest.mark.parametrize("reads_after", [1, 2, 3, 4, 5])
def test_late_reads_come_as_many_cycles_after_issue_as_the_table_says(reads_after):
    """LDS reads R8 2 cycles after issue: FFMA that keep bank 0 busy from then on or before lose a cycle, later ones
    none."""
    idle = ffma_reading("0001")
    start = dataclasses.replace(idle, control=control("--:-:-:-:0"))
    busy = [ffma_reading("2000")] * 4
    body = [start, LATE["LDS"][0], *[idle] * (reads_after - 1), *busy, *[idle] * 20]
    without = [idle, *[idle] * (reads_after - 1), *busy, *[idle] * 20]
    lost = slope(body * 10, rows=LATE["LDS"][1] * 10) - slope(without * 10)
    assert lost == (10 if reads_after <= 2 else 0)


@pytest.mark.parametrize("stall", [1, 4, 6, 11])
def test_a_dependent_chain_takes_its_latency(stall):
    assert slope([ins("FFMA", f"--:-:-:-:{stall:x}", d=2, a=4, b=9, c=2)] * 100) == 100 * stall


def test_a_chain_through_the_special_functions_takes_their_latency_and_throughput():
    assert slope([ins("MUFU", "01:-:1:-:1", d=2, a=2)] * 90) == 90 * 13
    assert slope([ins("MUFU", d=2, a=4)] * 90, warps=8, blocks=16) == 90 * 2 * 4


@pytest.mark.parametrize(("mnemonic", "cycles"), [("SHL", 2), ("IADD", 1), ("ISETP", 2)])
def test_half_rate_instructions_take_two_cycles(mnemonic, cycles):
    body = [ins(mnemonic, a=4, b=9, **({} if mnemonic == "ISETP" else {"d": 2})) for _ in range(90)]
    assert slope(body, warps=8, blocks=16) == 90 * 2 * cycles


def shared_row(ways):
    """32-bit addresses with `ways` different words in each bank that is used."""
    return lanes([4 * (lane * ways % 32) + 128 * (lane * ways // 32) for lane in range(32)])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("ways", [1, 2, 4, 8, 16, 32])
def test_shared_memory_conflicts_cost_their_degree(ways):
    """Throughput: `ways` cycles of the pipe each. Latency: 2 more cycles for each further way."""
    loads = [ins("LDS", "--:-:1:-:2", d=2, addr=9)] * 60
    assert slope(loads, rows=[shared_row(ways)] * 60, warps=8, blocks=16) == pytest.approx(480 * ways, rel=0.001)
    chain = [ins("LDS", "01:-:1:-:2", d=2, addr=2)] * 60
    assert slope(chain, rows=[shared_row(ways)] * 60) == 60 * (23 + 2 * (ways - 1))


def test_dual_issue_doubles_issue_where_allowed():
    """FFMA with stall 0 and a NOP, which uses another resource, against two FFMA."""
    pair = [ins("FFMA", "--:-:-:-:0", d=2, a=4, b=9, c=2), ins("NOP", "--:-:-:-:1")]
    assert slope(pair * 150, warps=8, blocks=16) == 150 * 2
    same = [ins("FFMA", "--:-:-:-:0", d=2, a=4, b=9, c=2), ins("FFMA", "--:-:-:-:1", d=3, a=4, b=9, c=3)]
    assert slope(same * 150, warps=8, blocks=16) == 300 * 2


def test_memory_instructions_issue_every_second_cycle():
    loads = [ins("LDS", "--:-:1:-:1", d=2, addr=9)] * 60
    assert slope(loads, rows=[shared_row(1)] * 60) == 120


def test_every_slot_is_issued_or_has_a_reason():
    code, runs = loop([ins("LDS", "--:-:1:-:2", d=2, addr=9), ins("FFMA", "01:-:-:-:6", d=2, a=2, b=2, c=2)] * 30, 5)
    result = time(code, runs, addresses=lambda b, w: [shared_row(2)] * 150, warps=6, blocks=40)
    first = int(result.issued.sum() - result.dual.sum())
    assert first + int(result.stalls.sum()) == 4 * result.cycles
    assert np.array_equal(result.issued, result.workload.executed * 3 // 40)  # 3 of 40 blocks on the first SM


@pytest.mark.parametrize(("left", "waits"), [(0, 4), (1, 3), (2, 2), (3, 1), (4, 0), (9, 0)])
def test_depbar_waits_until_so_many_operations_are_left(left, waits):
    """Four loads on one scoreboard whose conflicts take 32 passes each: DEPBAR.LE with n lets n of them be on their
    way. The arithmetic after it starts when the load before those has ended."""
    row = shared_row(32)
    loads = [ins("LDS", "--:-:1:-:2", d=2, addr=9)] * 4
    code, runs = loop([*loads, ins("DEPBAR.LE", "--:-:-:-:1", sb=0, n=left), ins("FFMA", d=4, a=5, b=6, c=7)], 1)
    result = time(code, runs, addresses=lambda b, w: [row] * 4, trace=(0, 1000))
    events = {int(index): int(cycle) for cycle, _, _, index, *_ in result.events}
    ends = [int(e[6]) for e in result.events if e[3] < 4]
    assert events[4] == (ends[waits - 1] if waits else events[3] + 2)


def test_depbar_counts_ends_that_come_together_one_by_one():
    """Two operations that end at once: with n = 1 both are waited for."""
    code, runs = loop([ins("LDS", "--:-:1:-:a", d=2, addr=9), ins("MUFU", "--:-:1:-:1", d=3, a=5),
                       ins("DEPBAR.LE", "--:-:-:-:1", sb=0, n=1)], 1)
    result = time(code, runs, addresses=lambda b, w: [shared_row(1)], trace=(0, 2000))
    load, function, depbar = sorted(result.events.tolist(), key=lambda e: e[3])[:3]
    assert load[6] == function[6] == depbar[0]


def test_a_warp_that_only_arrives_does_not_wait_and_counts_release_a_part_of_the_block():
    """Warp 0 waits at barrier 1 for itself and warp 1, which arrives late and goes on; warps 2 and 3 never come."""
    slow = [ins("FFMA", "--:-:-:-:b", d=2, a=4, b=9, c=2)] * 20
    waits = [ins("BAR.SYNC", "--:-:-:-:1", form="II", bar=1, cnt=64), ins("EXIT", "--:-:-:-:f")]
    arrives = [*slow, ins("BAR.ARV", "--:-:-:-:1", form="II", bar=1, cnt=64), *slow, ins("EXIT", "--:-:-:-:f")]
    code = [*waits, *arrives, ins("EXIT", "--:-:-:-:f")]
    paths = {0: [(0, 2)], 1: [(2, len(arrives))], 2: [(len(code) - 1, 1)], 3: [(len(code) - 1, 1)]}
    result = time(code, paths, warps=4, trace=(0, 2000))
    at = {(w, i): t for t, _, w, i, *_ in result.events.tolist()}
    arrived, left = at[1, 22], at[0, 1]
    assert left == arrived + 10 and at[1, 23] == arrived + 1


def test_two_barriers_do_not_disturb_one_another():
    """Half the block meets at barrier 1, half at 2, then all at 0; a warp that has exited is not waited for."""
    def half(bar):
        return [ins("BAR.SYNC", "--:-:-:-:1", form="II", bar=bar, cnt=64),
                ins("BAR.SYNC", "--:-:-:-:1", form="II", bar=0), ins("EXIT", "--:-:-:-:f")]
    code = [*half(1), *half(2), ins("EXIT", "--:-:-:-:f")]
    result = time(code, {0: [(0, 3)], 1: [(0, 3)], 2: [(3, 3)], 3: [(3, 3)], 4: [(6, 1)]}, warps=5)
    assert result.issued.tolist() == [2, 2, 2, 2, 2, 2, 1]


def test_a_barrier_that_too_few_warps_reach_is_named():
    code, runs = loop([ins("BAR.SYNC", "--:-:-:-:1", form="II", bar=1, cnt=96)], 1)
    with pytest.raises(SimulationError, match="1 blocks wait for ever"):
        time(code, runs, warps=2)
