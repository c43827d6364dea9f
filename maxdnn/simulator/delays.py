"""Value delays: which operands of a simulated launch were not what the program means, because control codes let an
instruction go too early. Maxwell does not interlock: it would have computed with a stale value.

The times are those of the traced issues: a fixed-latency result is visible `result_cycles` after issue, a variable one
when the model says it arrived; memory and conversion instructions read their operands some cycles after issue (the
classes of the instruction table), and hold them until the model says they have been read."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..errors import SimulationError
from ..isa import Instruction
from .simulate import Result

_PREDICATE_CYCLES = 13  # predicate results, whatever the class (measured: vendor compiler, MaxAs wiki)
_CC_CYCLES = 6


@dataclass(frozen=True, slots=True)
class Stale:
    """One operand taken too early: what ("R5", "P0", "CC"), by which instruction and after which, the cycles missing,
    and the kind: "read" (result not there yet), "overwritten" (source replaced before it was read), "order" (an older
    result lands after a newer one)."""

    kind: str
    what: str
    first: Instruction
    second: Instruction
    missing: int
    block: int
    warp: int


@dataclass
class _Warp:
    written: dict[str, tuple[int, Instruction]] = field(default_factory=dict)  # visible from, by whom
    held: dict[str, tuple[int, Instruction]] = field(default_factory=dict)  # still to be read until


def stale_values(result: Result) -> list[Stale]:
    """Every stale operand of the traced cycles, in order. Needs a result simulated with Options(trace=(0, end)); raises
    SimulationError otherwise."""
    if result.options.trace is None:
        raise SimulationError("value delays need a trace: simulate with Options(trace=(0, last cycle))")
    warps: dict[tuple[int, int], _Warp] = {}
    found: list[Stale] = []
    for cycle, _, row, index, _, block, there, read in result.events.tolist():
        inst = result.workload.instructions[index]
        warp = warps.setdefault((block, row), _Warp())
        for kind, what, first, missing in _step(warp, inst, cycle, there, read):
            found.append(Stale(kind, what, first, inst, missing, block, row))
    return found


def _step(warp: _Warp, inst: Instruction, cycle: int, there: int,
          read: int) -> Iterator[tuple[str, str, Instruction, int]]:
    """(kind, what, first instruction, cycles missing) of each stale operand of one issue."""
    late = inst.cls.read_cycles
    for name in _reads(inst):
        at = cycle + (late if name.startswith("R") else 0)
        visible, producer = warp.written.get(name, (0, inst))
        if at < visible:
            yield "read", name, producer, visible - at
    for name, lands in _writes(inst, cycle, there):
        until, reader = warp.held.get(name, (0, inst))
        if lands < until:
            yield "overwritten", name, reader, until - lands
        visible, producer = warp.written.get(name, (0, inst))
        if lands < visible:
            yield "order", name, producer, visible - lands
        warp.written[name] = lands, inst
    if late:  # these read their registers after issue, and no scoreboard but the author's protects them
        for name in _reads(inst):
            if name.startswith("R"):
                warp.held[name] = max(read, warp.held.get(name, (0, inst))[0]), inst


def _reads(inst: Instruction) -> list[str]:
    return [*(f"R{r}" for r in sorted(inst.reads())), *(f"P{p}" for p in sorted(inst.pred_reads())),
            *(["CC"] if inst.cc_reads() else [])]


def _writes(inst: Instruction, cycle: int, there: int) -> list[tuple[str, int]]:
    fixed = inst.cls.latency == "fixed"
    value = cycle + min(inst.cls.result_cycles, _CC_CYCLES) if fixed else there
    flag = cycle + _PREDICATE_CYCLES if fixed else there
    return [*((f"R{r}", value) for r in sorted(inst.writes())), *((f"P{p}", flag) for p in sorted(inst.pred_writes())),
            *([("CC", cycle + _CC_CYCLES)] if inst.cc_writes() else [])]
