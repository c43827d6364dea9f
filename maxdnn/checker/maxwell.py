"""Maxwell and Pascal: how many cycles a fixed-latency result needs before each kind of use, and rules that concern an
instruction and its neighbour only (dual issue, stalls of control flow, barriers, reuse).

The cycles are mined from the vendor compiler's output (latencies.json, written by tools/mine_latencies.py); where fewer
than MIN_SAMPLES uses were seen the published rule stands: ALU result 6, predicate 13, carry 6 for an .X consumer and 13
for a test, less the cycles after issue at which the consumer reads its registers by the instruction table. Errors are
what gives a wrong value or may hang; what the hardware does otherwise nobody has published."""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ..isa import PT, TABLE, Instruction
from ..isa.operands import waits_for_block
from ..isa.program import Graph
from .effects import Effects, names
from .report import ERROR, WARNING, Finding, Place
from .rules import Hazard, Rules

LATENCIES_PATH = Path(__file__).with_name("latencies.json")
MIN_SAMPLES = 20
FLOW_STALL = 5  # least stall of a taken control transfer or block barrier [maxas wiki; the vendor's compiler: 5 to 15]
_UNSTALLED = ("KIL", "LONGJMP")  # which the vendor's compiler leaves without that
VISIBLE = 2  # cycles until an instruction's scoreboard can be waited for [maxas wiki; so does the vendor's compiler]
# Cycles that stall 12..15 guarantees without the yield hint: the lower bound of the CuAssembler RegBank measurements
# (23.4, 8.4, 8.9 and 9.6 cycles). The vendor's compiler relies on 8 of an un-yielded 14.
UNYIELDED = {12: 8, 13: 8, 14: 8, 15: 9}

Key = tuple[str, str, str, str]  # producer class, kind of resource, consumer class, role


def published(key: Key) -> int:
    """The published rule for a use without enough samples."""
    _, kind, consumer, role = key
    if kind == "predicate":
        return 13
    if kind == "carry":
        return 6 if role == "x" else 13
    return 6 - TABLE.classes[consumer].read_cycles


@cache
def _data() -> dict[str, list[dict[str, Any]]]:
    return json.loads(LATENCIES_PATH.read_bytes())


@cache
def _mined() -> dict[Key, int]:
    return {(e["producer"], e["kind"], e["consumer"], e["role"]): e["cycles"]
            for e in _data()["entries"] if e["samples"] >= MIN_SAMPLES}


@cache
def _pairs() -> frozenset[tuple[str, str]]:
    return frozenset((e["first"], e["second"]) for e in _data()["dual_issue"])


def dual_pair_known(first: Instruction, second: Instruction) -> bool:
    """Whether the two may issue in one cycle: an ALU instruction, then one of another pipe [published rule], or a pair
    of classes the vendor's compiler was seen to issue."""
    if first.cls.pipe == "alu" and second.cls.pipe != "alu":
        return True
    return (first.cls.name, dual_class(second)) in _pairs()


def dual_class(inst: Instruction) -> str:
    """What a mined pair is looked up by: control flow and B2R by opcode, the rest by class."""
    return inst.opcode if inst.cls.name == "flow" or inst.opcode == "B2R" else inst.cls.name


@cache
def required_cycles(key: Key) -> int:
    """Cycles between the issue of producer and consumer: the least the vendor's compiler ever leaves, never more than
    the published rule (a pair it happened to keep further apart proves no longer latency)."""
    rule = published(key)
    return min(rule, _mined().get(key, rule))


def _needs(old: Instruction, new: Instruction, role: str, kind: str, mask: int) -> Iterator[tuple[int, int]]:
    yield required_cycles((old.cls.name, kind, new.cls.name, role)), mask


# -- an instruction and its neighbour -----------------------------------------------------------------------------


def transfers(inst: Instruction) -> bool:
    """Whether control goes elsewhere from here, so that operands kept for reuse are gone; a trap counts as none."""
    return inst.leaves() and inst.flow is not None and inst.flow.does != "trap"


def needs_stall(inst: Instruction) -> bool:
    """Whether the instruction is a transfer or barrier that takes FLOW_STALL cycles."""
    return (transfers(inst) and inst.opcode not in _UNSTALLED) or waits_for_block(inst)


def static_findings(graph: Graph, effects: Sequence[Effects]) -> Iterator[Finding]:
    """Findings on every reachable instruction, in address order."""
    code, reachable = graph.code, graph.reachable()
    set_somewhere = _barriers_set(code)
    for i in sorted(reachable):
        yield from _dual(code, effects, i)
        yield from _stall(code[i])
        yield from _barriers(code[i], effects[i], set_somewhere)
        yield from _stale(code, effects, i)


def _one(kind: str, resource: str, inst: Instruction, message: str, fix: str, earlier: Instruction | None = None,
         need: int | None = None, have: int | None = None, level: str = WARNING) -> Finding:
    return Finding(kind, resource, Place.of(earlier) if earlier else None, Place.of(inst), need, have, message, fix,
                   level)


def _dual(code: Sequence[Instruction], effects: Sequence[Effects], i: int) -> Iterator[Finding]:
    if code[i].control.stall or i + 1 >= len(code) or code[i].opcode == "NOP":
        return
    why, level = _no_pair(code[i], code[i + 1], effects[i], effects[i + 1]), WARNING
    clash = _clash(effects[i], effects[i + 1])
    if clash:
        why, level = f"the second needs or overwrites the first one's {names(clash)}", ERROR
    if not why and i and code[i - 1].control.stall == 0 and code[i - 1].opcode != "NOP":
        why = "a third instruction cannot issue in the same cycle"
    if why:
        yield _one("dual-issue", "issue slot", code[i + 1], why, f"stall at least 1 at {code[i].address:04x}", code[i],
                   level=level)


def _no_pair(first: Instruction, second: Instruction, a: Effects, b: Effects) -> str:
    """Why two instructions may not issue together, or nothing."""
    if not dual_pair_known(first, second):
        return f"{first.opcode} and {second.opcode} do not issue together"
    if a.constant and b.constant:
        return "both read a constant bank"
    if first.control.yield_hint:
        return "a yield hint stands against issuing together with the next"
    return ""


def _clash(a: Effects, b: Effects) -> int:
    """What the second of two instructions issued together needs or overwrites of the first one's results."""
    opposite = a.guard.index == b.guard.index != PT and a.guard.negated != b.guard.negated
    return 0 if opposite else a.writes & (b.reads | (b.writes if b.fixed else 0))  # other results come later anyway


def _stall(inst: Instruction) -> Iterator[Finding]:
    stall = inst.control.stall
    if needs_stall(inst) and stall < FLOW_STALL:
        yield _one("flow-stall", "issue slot", inst, f"{inst.opcode} needs time before the next instruction",
                   f"stall at least {FLOW_STALL}", need=FLOW_STALL, have=stall)


def _barriers_set(code: Sequence[Instruction]) -> int:
    mask = 0
    for inst in code:
        for bar in (inst.control.write_barrier, inst.control.read_barrier):
            mask |= 0 if bar is None else 1 << bar
    return mask


def _barriers(inst: Instruction, eff: Effects, set_somewhere: int) -> Iterator[Finding]:
    control = inst.control
    never = control.wait_mask & ~set_somewhere
    for bar in range(6):
        if never >> bar & 1:
            yield _one("wait-unset", f"barrier {bar + 1}", inst, "no instruction sets this barrier",
                       "drop the wait, or set the barrier on the instruction meant")
    if control.write_barrier is not None and not any("w" in op.field.access for op in inst.operands):
        yield _one("barrier-on-store", f"barrier {control.write_barrier + 1}", inst,
                   "an instruction without a result cannot release a write barrier", "use a read barrier",
                   level=ERROR)
    if eff.fixed and (control.write_barrier is not None or control.read_barrier is not None):
        bar = control.write_barrier if control.write_barrier is not None else control.read_barrier or 0
        yield _one("barrier-on-fixed", f"barrier {bar + 1}", inst,
                   "a fixed-latency instruction does not release barriers", "drop the barrier and stall instead")


def _stale(code: Sequence[Instruction], effects: Sequence[Effects], i: int) -> Iterator[Finding]:
    """A flagged operand whose register is written before the slot reads it again."""
    reuse = code[i].control.reuse
    if not reuse or code[i].cls.pipe == "tex":
        return
    for slot, register in effects[i].slots:
        if reuse >> slot & 1:
            writer, reader = next_slot_read(code, effects, i, slot, register)
            if writer is not None and reader is not None and not _taken(code, effects, i, reader, slot):
                yield _one("reuse-stale", f"R{register}", code[reader],
                           f"operand slot {slot} keeps R{register} of {code[i].address:04x}, which "
                           f"{code[writer].address:04x} overwrites before this read",
                           f"drop the reuse flag of R{register} at {code[i].address:04x}", code[i], level=ERROR)


def _taken(code: Sequence[Instruction], effects: Sequence[Effects], i: int, reader: int, slot: int) -> bool:
    """Whether between two reads of a register in an operand slot another register is kept there instead."""
    return any(code[j].control.reuse >> slot & 1 and any(s == slot for s, _ in effects[j].slots)
               for j in range(i + 1, reader))


def next_slot_read(code: Sequence[Instruction], effects: Sequence[Effects], i: int, slot: int,
                   register: int) -> tuple[int | None, int | None]:
    """(first later writer of the register up to the read, next read in the slot) in straight-line code."""
    writer = i if effects[i].writes >> register & 1 else None
    for j in range(i + 1, len(code)):
        if (slot, register) in effects[j].slots:
            return writer, j
        if writer is None and effects[j].writes >> register & 1:
            writer = j
        if transfers(code[j]):
            break
    return writer, None


_EARLY = "result is used before it is there"
MAXWELL = Rules(_needs, {
    "register": Hazard("raw-fixed", _EARLY), "predicate": Hazard("raw-predicate", _EARLY),
    "carry": Hazard("raw-carry", _EARLY),
    "result": Hazard("raw-barrier", "result is read before it is known to be there"),
    "overwritten": Hazard("waw", "register is overwritten while a result is on its way"),
    "operands": Hazard("war", "register is overwritten before it is known to be read"),
    "early": Hazard("early-wait", "the wait may not see barrier {} set"),
}, static_findings, VISIBLE, unyielded=UNYIELDED, follows="lsu", lenient=True)
