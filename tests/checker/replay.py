"""A second opinion on which control codes are necessary: replay of concrete paths, one lane, worst-case machine.

Unlike the checker there is no lattice here: paths are walked one after another (branches chosen so that every edge is
taken), every executed instruction is an object, results arrive only when a scoreboard proves it. It shares with the
checker the ISA's account of what an instruction reads and writes and the mined table, nothing else."""

import collections
import random
from collections.abc import Iterator
from dataclasses import dataclass

from maxdnn.checker.maxwell import required_cycles
from maxdnn.cubin import CubinKernel
from maxdnn.isa import TABLE, Instruction
from maxdnn.isa.program import noted_targets

Resource = tuple[str, int]
_POPS = {"SYNC": "SSY", "BRK": "PBK", "CONT": "PCNT", "RET": "CAL"}


class Path(list[int]):
    """Instruction indices; `skipped`: positions where the guard did not hold."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped: set[int] = set()


class Predicates:
    """One lane's predicates along a path: every comparison comes out at random, then stays so."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.values: dict[int, bool] = {}

    def read(self, p: int, negated: bool) -> bool:
        if p != 7 and p not in self.values:
            self.values[p] = self.rng.random() < 0.5
        return (p == 7 or self.values[p]) != negated

    def write(self, inst: Instruction) -> None:
        names = {op.name: op for op in inst.operands}
        if "ps" in names and "pd" in names:
            first, how = self._outcome(inst), inst.mods.get("bool", inst.mods.get("op2", "AND"))
            last = self.read(names["ps"].value, names["ps"].inv)
            for name, holds in (("pq", not first), ("pd", first)):
                self.values[names[name].value] = {"AND": holds and last, "OR": holds or last, "XOR": holds != last}[how]
        else:
            for p in inst.pred_writes():
                self.values[p] = self.rng.random() < 0.5

    def _outcome(self, inst: Instruction) -> bool:
        if inst.opcode == "PSETP":
            a, b = (self.read(inst[name].value, inst[name].inv) for name in ("pa", "pb"))
            return {"AND": a and b, "OR": a or b, "XOR": a != b}[inst.mods["op1"]]
        if inst.opcode == "ISETP" and all(inst[n].type == "gpr" and inst[n].value == 255 for n in "ab"):
            return inst.mods["cmp"] in ("EQ", "LE", "GE", "T")
        return self.rng.random() < 0.5


def paths(kernel: CubinKernel, count: int = 150, longest: int = 3000) -> list[Path]:
    """Paths from the entry; at every fork the way less taken so far, of those its guard allows."""
    code, tables = kernel.instructions, noted_targets(kernel)
    taken: collections.Counter[tuple[object, ...]] = collections.Counter()
    found: list[Path] = []
    idle = 0
    for attempt in range(count):
        i, stack, path, fresh = 0, list[tuple[str, int]](), Path(), False
        predicates = Predicates(random.Random(attempt))
        while 0 <= i < len(code) and len(path) < longest:
            inst = code[i]
            runs = predicates.read(inst.guard.index, inst.guard.negated)
            if inst.guard.index != 7:
                fresh |= not taken[i, "guard", runs]
                taken[i, "guard", runs] += 1
            if not runs:
                path.skipped.add(len(path))
            path.append(i)
            if runs and inst.pred_writes():
                predicates.write(inst)
            ways = _ways(code, i, stack, tables)
            if inst.guard.index != 7 and len(ways) > 1 and not _tests_flags(inst):
                ways = ways[:-1] if runs else ways[-1:]
            if inst.guard.index != 7 and inst.opcode == "EXIT" and runs:
                break
            if not ways:
                break
            to, stack = min(ways, key=lambda way: taken[i, way[0]])
            fresh = fresh or (len(ways) > 1 and not taken[i, to])
            taken[i, to] += 1
            i = to
        idle = 0 if fresh else idle + 1
        if fresh or len(found) < 4:
            found.append(path)
        if idle > 24:
            break
    return found


def _ways(code: tuple[Instruction, ...], i: int, stack: list[tuple[str, int]],
          tables: dict[int, list[int]]) -> list[tuple[int, list[tuple[str, int]]]]:
    inst, op = code[i], code[i].opcode
    target = inst.operand("target")
    if op in ("SSY", "PBK", "PCNT"):
        return [(i + 1, [*stack, (op, TABLE.addressing.index_of(inst["target"].value))])]
    if op == "CAL":
        return [(TABLE.addressing.index_of(inst["target"].value), [*stack, ("CAL", i + 1)])]
    ways = []
    if op in _POPS:
        at = next((d for d in range(len(stack) - 1, -1, -1) if stack[d][0] == _POPS[op]), None)
        ways = [] if at is None else [(stack[at][1], stack[:at])]
    elif op == "BRX":
        ways = [(t, stack) for t in tables.get(i, [])]
    elif op in ("BRA", "JMP") and target is not None and target.type == "rel_target":
        ways = [(TABLE.addressing.index_of(target.value), stack)]
    elif op != "EXIT":
        return [(i + 1, stack)]
    if inst.guard.index != 7 or _tests_flags(inst):
        ways.append((i + 1, stack))
    return ways


def _tests_flags(inst: Instruction) -> bool:
    test = inst.operand("cc")
    return test is not None and test.type == "cc_test" and test.value != 15


@dataclass(eq=False)
class Done:
    """An executed instruction."""

    i: int
    at: int  # position on the path
    time: int
    inst: Instruction
    late: frozenset[int]
    version: int  # of its guard predicate
    queue: str
    order: str
    result: bool = True  # written
    operands: bool = True  # read
    write: int | None = None
    read: int | None = None


def _kind(inst: Instruction) -> tuple[str, str]:
    pipe = inst.cls.pipe
    if pipe == "lsu":
        return "lsu", inst.access.order if inst.access else ""
    if pipe == "tex":
        return pipe, "global"
    if pipe == "fp64" or (pipe == "sfu" and inst.opcode not in ("S2R", "B2R")):
        return pipe, pipe
    return "", ""


class Replay:
    """Runs one path. `violations`: instruction indices at fault; `tight`: stalls (indices) some use leaves no slack."""

    def __init__(self, kernel: CubinKernel) -> None:
        self.code = kernel.instructions
        self.facts = [self._facts(inst) for inst in self.code]

    @staticmethod
    def _facts(inst: Instruction) -> tuple[list[tuple[str, str, Resource]], list[Resource], frozenset[int], bool]:
        reads: list[tuple[str, str, Resource]] = []
        for op in inst.operands:
            if op.type in ("addr", "gpr_plus_simm", "cbank_indexed"):
                reads += [("addr", "register", ("R", r)) for r in op.registers()]
            elif op.type in ("gpr", "implied_next_gpr") and "r" in op.field.access:
                role = "data" if inst.cls.pipe == "lsu" else "src"
                reads += [(role, "register", ("R", r)) for r in op.registers()]
        late = frozenset(r for _, _, (_, r) in reads)
        operands = {op.value for op in inst.operands if op.type == "pred" and "r" in op.field.access}
        for p in inst.pred_reads():
            if p == inst.guard.index:
                reads.append(("guard", "predicate", ("P", p)))
            if p != inst.guard.index or p in operands:
                reads.append(("pred", "predicate", ("P", p)))
        if inst.cc_reads():
            extended = inst.mods.get("x") or inst.mods.get("cmode") == "X" or inst.mods.get("hi") in ("X", "XHI")
            reads.append(("x" if extended else "cc", "carry", ("C", 0)))
        writes: list[Resource] = [("R", r) for r in inst.writes()] + [("P", p) for p in inst.pred_writes()]
        writes += [("C", 0)] if inst.cc_writes() else []
        fixed = inst.cls.latency == "fixed"
        return reads, writes, frozenset() if fixed else late, fixed

    def run(self, path: Path) -> Iterator[tuple[str, int, int]]:
        """Yields ("violation", producer, consumer) and ("tight", from position, to position)."""
        writers: dict[Resource, list[Done]] = collections.defaultdict(list)
        versions: collections.Counter[int] = collections.Counter()
        flying: list[Done] = []
        time = 0
        for at, i in enumerate(path):
            inst = self.code[i]
            reads, writes, late, fixed = self.facts[i]
            pending, unread = not fixed and bool(writes), bool(late)
            if at in path.skipped:  # it reads and writes nothing, but its scoreboards count
                reads, writes, late = [], [], frozenset()
            control = inst.control
            yield from self._waits(inst, flying, at, i, time)
            flying = [op for op in flying if not (op.result and op.operands)]
            queue, order = _kind(inst)
            yield from self._reads(inst, reads, writers, versions, at, i, time)
            yield from self._writes(inst, writes, writers, flying, versions, i, queue, order)
            if inst.mnemonic in ("BAR.SYNC", "BAR.RED"):
                for op in flying:
                    op.operands = op.operands or op.queue == "lsu"
            new = Done(i, at, time, inst, late, versions[inst.guard.index], queue, order, not pending,
                       not unread, control.write_barrier, control.read_barrier)
            for p in inst.pred_writes() if at not in path.skipped else ():
                versions[p] += 1
            if inst.guard.index in inst.pred_writes():
                new.version = -1
            for resource in writes:
                if inst.guard.index == 7:
                    writers[resource] = []
                writers[resource] = [op for op in writers[resource]
                                     if op.inst.guard != inst.guard or op.version != versions[inst.guard.index]]
                writers[resource].append(new)
            if not fixed:
                flying.append(new)
            stall = control.stall
            time += (9 if stall == 15 else 8) if stall > 11 and not control.yield_hint else stall

    @staticmethod
    def _opposite(op: Done, inst: Instruction, versions: collections.Counter[int]) -> bool:
        guard = op.inst.guard
        return (guard.index == inst.guard.index != 7 and guard.negated != inst.guard.negated
                and op.version == versions[guard.index])

    def _reads(self, inst: Instruction, reads: list[tuple[str, str, Resource]], writers: dict[Resource, list[Done]],
               versions: collections.Counter[int], at: int, i: int, time: int) -> Iterator[tuple[str, int, int]]:
        for role, kind, resource in reads:
            for op in writers[resource]:
                if self._opposite(op, inst, versions):
                    continue
                if not self.facts[op.i][3]:
                    if not op.result:
                        yield "violation", op.i, i
                    continue
                slack = time - op.time - required_cycles((op.inst.cls.name, kind, inst.cls.name, role))
                if slack < 0:
                    yield "violation", op.i, i
                elif slack == 0:
                    yield "tight", op.at, at

    def _writes(self, inst: Instruction, writes: list[Resource], writers: dict[Resource, list[Done]],
                flying: list[Done], versions: collections.Counter[int], i: int, queue: str,
                order: str) -> Iterator[tuple[str, int, int]]:
        for resource in writes:
            for op in writers[resource]:
                if not op.result and not (order and op.order == order) and not self._opposite(op, inst, versions):
                    yield "violation", op.i, i
        targets = {r for k, r in writes if k == "R"}
        for op in flying:
            if (not op.operands and targets & op.late and not (queue and op.queue == queue)
                    and not self._opposite(op, inst, versions)):
                yield "violation", op.i, i

    def _waits(self, inst: Instruction, flying: list[Done], at: int, i: int,
               time: int) -> Iterator[tuple[str, int, int]]:
        mask = inst.control.wait_mask
        for op in flying:
            own = [b for b in (op.write, op.read) if b is not None and mask >> b & 1]
            if own and time - op.time < 2:
                yield "violation", op.i, i
            elif own and time - op.time == 2:
                yield "tight", op.at, at
        if inst.opcode == "DEPBAR":
            mask |= inst["mask"].value
        for n, op in enumerate(flying):
            if op.write is not None and mask >> op.write & 1:
                self._complete(flying, n)
            if op.read is not None and mask >> op.read & 1:
                self._collected(flying, n)
        if inst.operand("sb") is not None:
            self._partial(flying, inst["sb"].value, inst["n"].value)

    @staticmethod
    def _collected(flying: list[Done], n: int) -> None:
        """Operands of operation n are read, so those of all before it in its queue."""
        for op in flying[:n + 1]:
            if op is flying[n] or (op.queue and op.queue == flying[n].queue):
                op.operands = True

    def _complete(self, flying: list[Done], n: int) -> None:
        """The result of operation n is there, so those of all of its kind before it."""
        self._collected(flying, n)
        for op in flying[:n + 1]:
            if op is flying[n] or (op.order and op.order == flying[n].order):
                op.result = op.operands = True

    def _partial(self, flying: list[Done], bar: int, most: int) -> None:
        counted = [n for n, op in enumerate(flying) if bar in (op.write, op.read)]
        for n in counted:
            later = [m for m in counted if m > n and flying[m].order == flying[n].order and flying[n].order]
            if len(later) >= most and flying[n].write == bar:
                self._complete(flying, n)


def tight_stalls(kernel: CubinKernel, ways: list[Path]) -> set[int]:
    """Indices of instructions whose stall some use on some path needs to the last cycle."""
    replay, found = Replay(kernel), set()
    for path in ways:
        for what, a, b in replay.run(path):
            if what == "tight":
                found.update(path[a:b])
    return found


def violates(kernel: CubinKernel, ways: list[Path]) -> bool:
    """Whether some path breaks a rule."""
    replay = Replay(kernel)
    return any(what == "violation" for path in ways for what, _, _ in replay.run(path))


def stale_flags(kernel: CubinKernel, ways: list[Path]) -> set[tuple[int, int]]:
    """(instruction, operand slot) where a reuse flag would keep a value that is overwritten before the slot reads the
    register again, on a stretch of a path without control transfer."""
    code = kernel.instructions
    found = set()
    for path in ways:
        flagged: dict[tuple[int, int], tuple[int, bool]] = {}  # (slot, register) -> last reader, overwritten since
        for i in path:
            inst = code[i]
            if inst.cls.name == "flow" and inst.opcode not in ("NOP", "SSY", "PBK", "PCNT"):
                flagged.clear()
                continue
            if inst.cls.pipe != "alu":
                written = inst.writes()
                flagged = {k: (at, over or k[1] in written) for k, (at, over) in flagged.items()}
                continue
            seen = {}
            for op in inst.operands:
                if op.type == "gpr" and "r" in op.field.access and op.registers():
                    slot = op.field.slot if op.field.slot is not None else {8: 0, 20: 1, 39: 2}[op.field.spec["lsb"]]
                    at, over = flagged.get((slot, op.value), (0, False))
                    if over:
                        found.add((at, slot))
                    flagged.pop((slot, op.value), None)
                    if op.field.slot is not None:
                        if inst.control.reuse >> slot & 1:  # it takes the slot from what was kept there
                            flagged = {k: kept for k, kept in flagged.items() if k[0] != slot}
                        seen[slot, op.value] = (i, False)
            flagged.update(seen)
            written = inst.writes()
            flagged = {k: (at, over or k[1] in written) for k, (at, over) in flagged.items()}
    return found
