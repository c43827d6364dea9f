"""Where a translation must synchronize a warp, because its lanes may exchange values through memory.

The lanes of a Maxwell warp run in lockstep: a store of one lane is visible to a later load of another lane, and a
later store of another lane does not overtake an earlier load. Later GPUs promise this only across a barrier. So a
translation synchronizes the warp wherever two accesses may exchange something and no barrier lies between them.

That two accesses to shared memory exchange nothing is proved from the known bits of their addresses (known_bits.py).
The kernel is cut into intervals at the barriers of the whole block. Every thread starts an interval in one of the
states in which some thread reached the barrier before, and all accesses that can be reached before the next barrier
are compared. What cannot be proved counts as an exchange."""

import contextlib
from collections import defaultdict
from collections.abc import Iterable, Mapping

import numpy as np

from ..cubin import CubinKernel
from ..isa import RZ, Instruction
from ..isa.operands import waits_for_whole_block
from ..isa.program import conditional
from .known_bits import Bits, KnownBits, may_meet, widen
from .paths import BasicBlock, Paths, Position

_SPACES = {"shared": "s", "global": "g"}  # what lanes share
_STATES = 4  # of one place in an interval, before they are joined
_INTERVALS = 24  # before the states of different intervals are joined
_EFFORT = 40_000  # instructions to follow before the proof is given up
Place = tuple[Position, int]  # a position and how many instructions of its basic block are done
State = tuple[tuple[int, bytes, bytes], ...]  # registers of which something is known: value and unknown bits
Pair = frozenset[int]
Touched = dict[int, tuple[Instruction, dict[tuple[bytes, bytes], Bits]]]
Key = int | tuple[str, str]


class _TooMuch(Exception):
    pass


def _space(inst: Instruction) -> str:
    if inst.opcode == "LDG" and inst.mods["cache"] == "CI":
        return ""  # through the cache for what no kernel writes
    return "".join(letter for space, letter in _SPACES.items() if inst.touches(space))


def _kind(inst: Instruction) -> str:
    assert inst.access is not None
    return "atomic" if inst.access.atomic else inst.access.does


def _size(inst: Instruction) -> int:
    if _kind(inst) == "atomic":
        return 8
    name = inst.mods["size"].removeprefix("U.")
    return int(name) // 8 if name.isdecimal() else int(name[1:]) // 8 if name else 4


def whole_block(inst: Instruction) -> bool:
    """Whether an instruction lets no thread of the block past until all are there."""
    return waits_for_whole_block(inst) and not conditional(inst)


class Exchange:
    """`syncs(position)`: the addresses of a basic block before which the warp must be brought together."""

    def __init__(self, kernel: CubinKernel, paths: Paths, basic_blocks: Mapping[Position, BasicBlock],
                 start: Position) -> None:
        self._basic_blocks = basic_blocks
        self._following = {p: paths.following(s) for p, s in basic_blocks.items()}
        self._spaces = {i.address: _space(i) for s in basic_blocks.values() for i in s.body}
        shared = {spaces for spaces in self._spaces.values() if "s" in spaces}
        self._clashes: set[Pair] | None = None
        if shared == {"s"}:
            with contextlib.suppress(_TooMuch):
                self._clashes = _Intervals(kernel, basic_blocks, self._following).clashes(start)
        self._syncs: dict[Position, set[int]] = defaultdict(set)
        self._place()

    @property
    def proved(self) -> bool:
        """Whether the addresses of shared memory were analysed successfully."""
        return self._clashes is not None

    def syncs(self, position: Position) -> frozenset[int]:
        return frozenset(self._syncs[position])

    def clash(self, a: Instruction, b: Instruction) -> bool:
        """Whether two accesses may exchange something between lanes. Two stores to global memory keep their order."""
        kinds = {_kind(a), _kind(b)}
        if kinds in ({"load"}, {"atomic"}):
            return False
        spaces = {*self._spaces[a.address]} & {*self._spaces[b.address]}
        if spaces == {"s"} and self._clashes is not None:
            return frozenset((a.address, b.address)) in self._clashes
        return "s" in spaces or ("g" in spaces and kinds != {"store"})

    def _key(self, inst: Instruction) -> Key:
        """What accesses that clash with the same others have in common."""
        spaces = self._spaces[inst.address]
        return inst.address if spaces == "s" and self._clashes is not None else (spaces, _kind(inst))

    def _place(self) -> None:
        """Synchronize the warp where an access clashes with one since it last was, until none is missing."""
        accesses = {self._key(i): i for s in self._basic_blocks.values() for i in s.body if self._spaces[i.address]}
        clashing = {y: {x for x, other in accesses.items() if self.clash(other, inst)}
                    for y, inst in accesses.items()}
        missing = bool(accesses)
        while missing:
            missing = False
            open_ = self._open_accesses()
            for position, basic_block in self._basic_blocks.items():
                now, syncs = set(open_[position]), self._syncs[position]
                for inst in basic_block.body:
                    if inst.address in syncs or whole_block(inst):
                        now = set()
                    if not self._spaces[inst.address]:
                        continue
                    if now & clashing[self._key(inst)]:
                        syncs.add(inst.address)
                        now, missing = set(), True
                    now.add(self._key(inst))

    def _open_accesses(self) -> dict[Position, set[Key]]:
        """Per basic block: accesses that some path makes before it, with no warp synchronization or barrier since."""
        into: dict[Position, set[Key]] = {p: set() for p in self._basic_blocks}
        todo = list(self._basic_blocks)
        while todo:
            position = todo.pop()
            now = set(into[position])
            for inst in self._basic_blocks[position].body:
                if inst.address in self._syncs[position] or whole_block(inst):
                    now = set()
                if self._spaces[inst.address]:
                    now.add(self._key(inst))
            for after in self._following[position]:
                if not now <= into[after]:
                    into[after] |= now
                    todo.append(after)
        return into


class _Intervals:
    """What any thread may touch between two barriers of the whole block."""

    def __init__(self, kernel: CubinKernel, basic_blocks: Mapping[Position, BasicBlock],
                 following: Mapping[Position, list[Position]]) -> None:
        self._basic_blocks, self._following = basic_blocks, following
        most = kernel.most_threads
        self._machine = KnownBits(kernel.reqntid, most)
        self._needed_at = self._needed()
        self._effort = 0

    def _needed(self) -> dict[Place, frozenset[int]]:
        """The registers that shared addresses further on are made of: where a basic block begins, and behind each
        instruction of it."""
        into: dict[Position, frozenset[int]] = {p: frozenset() for p in self._basic_blocks}
        out: dict[Place, frozenset[int]] = {}
        before = defaultdict(list)
        for position, following in self._following.items():
            for after in following:
                before[after].append(position)
        todo = list(self._basic_blocks)
        while todo:
            position = todo.pop()
            needed = frozenset[int]().union(*(into[p] for p in self._following[position]))
            body = self._basic_blocks[position].body
            out[position, len(body)] = needed
            for number in reversed(range(len(body))):
                needed = out[position, number] = self._before(body[number], needed)
            if needed != into[position]:
                into[position] = needed
                todo += before[position]
        return out

    @staticmethod
    def _before(inst: Instruction, needed: frozenset[int]) -> frozenset[int]:
        written = inst.writes() & needed
        if written:
            needed = needed if conditional(inst) else needed - written
            if inst.cls.name not in ("mem", "tex", "ldc"):
                needed |= inst.reads()
        return needed | {*inst["addr"].registers()} if _space(inst) == "s" else needed

    def clashes(self, start: Position) -> set[Pair]:
        """Pairs of instructions that may touch the same byte within one interval. Raises _TooMuch."""
        found: set[Pair] = set()
        now: frozenset[tuple[Place, State]] = frozenset({((start, 0), ())})
        seen: set[frozenset[tuple[Place, State]]] = set()
        while now not in seen:
            seen.add(now)
            touched, after = self._time(now)
            self._compare(touched, found)
            if len(seen) > _INTERVALS:
                after = _joined(now | after)
            now = after
        return found

    def _time(self, now: Iterable[tuple[Place, State]]) -> tuple[Touched,
                                                                 frozenset[tuple[Place, State]]]:
        """From the states after one barrier: every access with its addresses, and the states after the next."""
        touched: Touched = {}
        after: set[tuple[Place, State]] = set()
        states: dict[Place, list[State]] = defaultdict(list)
        todo = list(now)
        while todo:
            place, state = todo.pop()
            known = states[place]
            if state in known:
                continue
            known.append(state)
            if len(known) > _STATES:
                state = _join_states(known)
                if state in known[:-1]:
                    continue
                states[place] = [state]
            todo += self._walk(place, state, touched, after)
        return touched, frozenset(after)

    def _walk(self, place: Place, state: State, touched: Touched,
              after: set[tuple[Place, State]]) -> list[tuple[Place, State]]:
        """Go through a basic block from a place; gives what follows, unless a barrier comes first."""
        position, done = place
        self._machine.registers = _unpacked(state)
        body = self._basic_blocks[position].body
        self._effort += len(body) - done
        if self._effort > _EFFORT:
            raise _TooMuch
        for number in range(done, len(body)):
            inst = body[number]
            if whole_block(inst):
                after.add(((position, number + 1), self._state((position, number + 1))))
                return []
            if _space(inst) == "s":
                touched.setdefault(inst.address, (inst, {}))[1].update(self._address(inst))
            if inst.writes() & self._needed_at[position, number + 1]:
                self._machine.run(inst, conditional(inst))
        return [((following, 0), self._state((following, 0))) for following in self._following[position]]

    def _state(self, place: Place) -> State:
        needed = self._needed_at[place]
        return _packed({r: b for r, b in self._machine.registers.items() if r in needed})

    def _address(self, inst: Instruction) -> dict[tuple[bytes, bytes], Bits]:
        machine, op = self._machine, inst["addr"]
        place = machine.const("i32", op.value)
        if op.base != RZ:
            place = machine.add(machine.reg(op.base), place)
        return {(place.value.tobytes(), place.unknown.tobytes()): place}

    def _compare(self, touched: Touched, found: set[Pair]) -> None:
        accesses = sorted(touched.items())
        for at, (x, (first, places)) in enumerate(accesses):
            for y, (second, others) in accesses[at:]:
                if {_kind(first), _kind(second)} == {"load"} or frozenset((x, y)) in found:
                    continue
                size = max(_size(first), _size(second))
                if may_meet(self._machine, list(places.values()), list(others.values()), size):
                    found.add(frozenset((x, y)))


def _unpacked(state: State) -> dict[int, Bits]:
    return {r: Bits(32, np.frombuffer(value, np.uint64), np.frombuffer(unknown, np.uint64))
            for r, value, unknown in state}


def _packed(registers: Mapping[int, Bits]) -> State:
    return tuple(sorted((r, b.value.tobytes(), b.unknown.tobytes()) for r, b in registers.items()))


def _join_states(states: Iterable[State]) -> State:
    """What holds in all of them."""
    first, *rest = ({register: (value, unknown) for register, value, unknown in state} for state in states)
    for other in rest:
        first = {r: bits if bits == other[r] else _widened(bits, other[r]) for r, bits in first.items() if r in other}
    return tuple(sorted((r, value, unknown) for r, (value, unknown) in first.items()))


def _widened(a: tuple[bytes, bytes], b: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    one, other = (Bits(32, *(np.frombuffer(part, np.uint64) for part in bits)) for bits in (a, b))
    wide = widen(one, other)
    return wide.value.tobytes(), wide.unknown.tobytes()


def _joined(states: Iterable[tuple[Place, State]]) -> frozenset[tuple[Place, State]]:
    """One state for every place."""
    groups: dict[Place, list[State]] = defaultdict(list)
    for place, state in states:
        groups[place].append(state)
    return frozenset((place, _join_states(group)) for place, group in groups.items())
