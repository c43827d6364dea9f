"""The machine's rules, one at a time, on programs of a few instructions whose cycles can be counted by hand."""

import dataclasses

import numpy as np
import pytest
from handmade import control, ins, lanes, loop, time


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


@pytest.mark.parametrize("policy", ["greedy-then-oldest", "greedy-then-round-robin", "loose-round-robin"])
@pytest.mark.parametrize(("hint", "table"), [("-", MEASURED_STALLS | UNYIELDED), ("Y", YIELDED)])
def test_stall_counts_cost_what_was_measured(policy, hint, table):
    """Many warps, of which it rotates over four: a stall of n costs max(1, n / 4), up to 6% off the measured."""
    for stall, cycles in table.items():
        body = [ins("FFMA", f"--:-:-:{hint}:{stall:x}", d=2 + n % 2, a=4, b=9, c=2 + n % 2) for n in range(30)]
        cost = slope(body, warps=16, blocks=160, policy=policy) * 4 / (30 * 160)
        assert cost == pytest.approx(cycles, rel=0.07), stall


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
    assert np.array_equal(result.issued, result.workload.executed() * 3 // 40)  # 3 of 40 blocks on the first SM
