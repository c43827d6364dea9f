"""One warp of a block that is followed as a whole: integers of its 32 lanes, and what its instructions do to shared
memory, mbarriers and products (order.py). Parameters have made-up values, the same for all warps."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..isa import PT, Instruction, Table
from ..semantics.machine import UNIFORM, UNIFORM_PREDICATE, UNIFORM_ZERO, WINDOWS
from .operands import Product, product_words
from .order import Order, Undecided
from .values import UNKNOWN, V, Values

LANES = 32
_ALL, _NO = np.ones(LANES, bool), np.zeros(LANES, bool)
_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "32": 4, "64": 8, "128": 16}
_SHARED = 0xFFFFFF


def _uniform(kind: str, key: int) -> bool:
    return key >= (UNIFORM if kind == "R" else UNIFORM_PREDICATE)


class Blocked(Exception):
    """What this instruction waits for has not happened: a phase of the mbarrier at an address, or something else."""

    def __init__(self, what: str, address: int = -1) -> None:
        super().__init__(what)
        self.address = address


class Crew:
    """What the warps of a block share: the order of things, registers that nobody has, groups of products committed."""

    def __init__(self, order: Order, constant: Callable[[int], int], seed: int, registers: int, room: int) -> None:
        self.order, self.constant, self.seed, self.room = order, constant, seed, room
        self.cta = seed % 2, seed // 2 % 2, 0
        self._visits: dict[tuple[int, int], int] = {}
        self.pool = 0
        self.limit = [registers] * order.warps
        self.writes: dict[int, list[tuple[str, str, Any]]] = {}
        self.committed = [0] * order.warps

    def guess(self, warp: int, at: int) -> bool:
        """Whether what is open at an instruction holds: the same for all warps that come there as often."""
        visit = self._visits[warp, at] = self._visits.get((warp, at), 0) + 1
        return self.seed % 3 > 0 and random.Random(f"{self.seed} {at} {visit}").random() < 0.5


class Lanes(Values):
    """The lanes of warp number `warp`; those on the present path are `active`. A register or predicate may be known in
    some lanes: `valid` says which, of uniform ones all or none."""

    def __init__(self, block: tuple[int, int, int], table: Table, warp: int, crew: Crew) -> None:
        super().__init__(block, table)
        threads, self.count = self.count, LANES
        self.warp, self.crew, self.order = warp, crew, crew.order
        self.thread = np.arange(LANES * warp, LANES * (warp + 1), dtype=np.uint32)
        self.active = self.thread < threads
        self.valid: dict[tuple[str, int], V] = {}
        self._good: V = _ALL  # lanes in which all that this instruction has read is known
        self._writes = crew.writes
        self.at = 0  # the instruction
        self.tried: tuple[int, int] | None = None  # the wait that was not over when this warp last looked

    def split(self, active: V) -> "Lanes":
        """Some of its lanes, which go another way."""
        other: Lanes = object.__new__(type(self))
        other.__dict__.update(self.__dict__, active=active, registers=dict(self.registers),
                              predicates=dict(self.predicates), valid=dict(self.valid))
        return other

    def join(self, other: "Lanes") -> None:
        """Lanes that went another way are back."""
        for kind, mine, theirs in (("R", self.registers, other.registers), ("P", self.predicates, other.predicates)):
            for key in mine.keys() | theirs.keys():
                a, b = mine.get(key, UNKNOWN), theirs.get(key, UNKNOWN)
                if a is b:
                    continue
                valid = [each.valid.get((kind, key), _NO) for each in (self, other)]
                if _uniform(kind, key):
                    same = valid[0].all() and valid[1].all() and np.array_equal(a, b)
                    mine[key], self.valid[kind, key] = (a, _ALL) if same else (UNKNOWN, _NO)
                else:
                    self.valid[kind, key] = valid[0] & self.active | valid[1] & ~self.active
                    mine[key] = b if a is UNKNOWN else a if b is UNKNOWN else np.where(self.active, a, b)
        self.active = self.active | other.active

    # -- registers ---------------------------------------------------------------------------------------------

    def step(self, inst: Instruction, mask: V = None) -> None:
        self._good = _ALL
        super().step(inst, mask)

    def guard(self, inst: Instruction) -> V:
        self._good = _ALL
        guard = super().guard(inst)
        return None if (self.active & ~self._good).any() else guard

    def _look(self, kind: str, index: int, value: V) -> V:
        if value is not UNKNOWN:
            self._good = self._good & self.valid.get((kind, index), _NO)
        return value

    def reg(self, index: int) -> V:
        return super().reg(index) if index == UNIFORM_ZERO else self._look("R", index, super().reg(index))

    def pred(self, index: int) -> V:
        always = index in (PT, UNIFORM_PREDICATE + PT)
        return super().pred(index) if always else self._look("P", index, super().pred(index))

    def _put(self, where: dict[Any, V], kind: str, key: Any, value: V) -> None:
        self._set.add((kind, key))
        mask = self._mask
        good = _NO if value is UNKNOWN else mask & self._good
        if _uniform(kind, key):
            known = good.any()
            where[key], self.valid[kind, key] = (value, _ALL) if known else (UNKNOWN, _NO)
            return
        old = where.get(key, UNKNOWN)
        valid = self.valid.get((kind, key), _NO) & ~mask | good
        if not valid.any():
            where[key] = UNKNOWN
        elif value is not UNKNOWN:
            where[key] = value if old is UNKNOWN or good.all() else np.where(mask, value, old)
        self.valid[kind, key] = valid

    # -- what depends on the launch and on other lanes ----------------------------------------------------------

    def constant(self, bank: int, offset: int) -> V:
        known = super().constant(bank, offset)
        return self.const("i32", self.crew.constant(offset)) if known is UNKNOWN and bank == 0 else known

    def special(self, name: str) -> V:
        if name.startswith("SR_CTAID."):
            return self.const("i32", self.crew.cta["XYZ".index(name[-1])])
        return super().special(name)

    def _bits(self, mask: V) -> V:
        return self.const("i32", int(np.packbits(mask, bitorder="little").view(np.uint32)[0]))

    def executing(self) -> V:
        return self._bits(self._mask)

    def ballot(self, p: V) -> V:
        return UNKNOWN if p is UNKNOWN or (self._mask & ~self._good).any() else self._bits(p & self._mask)

    def shuffle(self, value: V, lane: V) -> V:
        if value is UNKNOWN or lane is UNKNOWN:
            return UNKNOWN
        self._good = self._good[lane % LANES]
        return value[lane % LANES]

    def popc(self, a: V) -> V:
        return UNKNOWN if a is UNKNOWN else np.bitwise_count(a).astype(a.dtype)

    def clz(self, a: V) -> V:
        if a is UNKNOWN:
            return UNKNOWN
        width = 8 * a.dtype.itemsize
        return np.array([width - int(x).bit_length() for x in a], a.dtype)

    # -- ordinary memory ---------------------------------------------------------------------------------------

    def _words(self, space: str, address: V, kind: str) -> V:
        """The words of shared memory that are touched; None if that is not known, or there are none."""
        size = _BYTES.get(kind)
        if address is UNKNOWN or size is None or space not in ("shared", "generic"):
            return None
        mask = self._mask & self._good
        if space == "generic":
            mask = mask & (address >> 24 == WINDOWS["S"])
        first = (address[mask] & _SHARED).astype(np.int64)
        if not len(first):
            return None
        self._inside(int(first.max()) + size)
        return np.unique((first[:, None] + np.arange(0, size, min(size, 4))).ravel() // 4)

    def _inside(self, end: int) -> None:
        if end > self.crew.room:
            raise Undecided("an address beyond shared memory")

    def load(self, space: str, address: V, kind: str, dest: int) -> None:
        if space == "const0" and address is not UNKNOWN and kind in ("32", "64", "128"):
            for n in range(_BYTES[kind] // 4):
                self.set_reg(dest + n, np.array([self.crew.constant(int(x) + 4 * n) for x in address], np.uint32))
        words = self._words(space, address, kind)
        if words is not None:
            self.order.load(self.warp, words, self.at)

    def store(self, space: str, address: V, kind: str, source: int) -> None:
        words = self._words(space, address, kind)
        if words is not None:
            self.order.store(self.warp, words, self.at)

    def atomic(self, space: str, address: V, op: str, kind: str, _operands: Sequence[V], _dest: int | None) -> None:
        """They do not disturb each other, and threads may wait for each other by them."""

    # -- products ----------------------------------------------------------------------------------------------

    def _one(self, value: V, what: str) -> int:
        """What the first lane that executes this holds."""
        if value is UNKNOWN:
            raise Undecided(f"{what} that is not known")
        return int(value[np.argmax(self._mask)])

    def product(self, type_: str, columns: int, _d: int, a: int | None, of_a: V, of_b: V, flags: int, _keeps: V,
                commits: bool) -> None:
        if not self._mask.all() or self.warp // 4 * 4 + 4 > self.order.warps:
            raise Undecided("a product of a part of a warpgroup")
        for operand, desc in (("b", of_b), *((("a", of_a),) if a is None else ())):
            if desc is not UNKNOWN:
                wanted = Product(type_, operand, columns, self.warp % 4, flags)
                words = product_words(self._one(desc, ""), wanted)
                self._inside(4 * int(words[-1]) + 4)
                self.order.product(self.warp, words, self.crew.committed[self.warp] + 1, self.at)
        self.crew.committed[self.warp] += commits

    def warpgroup_arrive(self) -> None:
        """Orders registers, nothing else."""

    def warpgroup_wait(self, open_: int) -> None:
        committed, first = self.crew.committed, self.warp // 4 * 4
        target = max(committed[self.warp] - open_, 0)
        if min(committed[first:first + 4]) < target:
            raise Blocked("products that other warps of the warpgroup do not commit")
        self.order.products_done(self.warp, target)

    def copy(self, to: V, _source: V, kind: str, _keeps: V) -> None:
        words = self._words("shared", to, kind)
        if words is not None:
            self.order.fetch(self.warp, words, self.at)

    def copies_commit(self) -> None:
        self.order.groups[self.warp] += 1

    def copies_wait(self, open_: int) -> None:
        self.order.fetched(self.warp, open_)

    def proxy_fence(self) -> None:
        self.order.fence(self.warp)

    def set_registers(self, count: int, waits: bool) -> None:
        crew = self.crew
        more = count - crew.limit[self.warp]
        if waits and more > crew.pool:
            raise Blocked(f"{more} registers a thread, and {crew.pool} are free")
        if (more < 0) == waits and more:
            self.order.refuse("registers", None, self.at)
        crew.pool -= more
        crew.limit[self.warp] = count

    # -- mbarriers and bulk copies -----------------------------------------------------------------------------

    def _barriers(self, address: V) -> list[tuple[int, V]]:
        """(address, in which lanes) of the mbarriers that lanes name."""
        if address is UNKNOWN or (self._mask & ~self._good).any():
            raise Undecided("the address of an mbarrier that is not known")
        found = [(int(where), self._mask & (address == where)) for where in np.unique(address[self._mask])]
        for where, _ in found:
            self._inside(where + 8)
            if where % 8:
                raise Undecided("the address of an mbarrier that is no multiple of 8")
        return found

    def mbarrier_init(self, address: V, word: V) -> None:
        if self._mask.any():
            self.order.begin(self.warp, self._barriers(address)[0][0], self._one(word, "a new mbarrier"), self.at)

    def mbarrier_drop(self, address: V) -> None:
        for where, _ in self._barriers(address):
            self.order.drop(self.warp, where, self.at)

    def mbarrier_arrive(self, address: V, arrivals: V, more: V, drops: bool, _dest: int) -> None:
        if arrivals is UNKNOWN or more is UNKNOWN:
            raise Undecided("what arrives at an mbarrier is not known")
        for where, lanes in self._barriers(address):
            count = int(arrivals[lanes].sum())
            self.order.arrive(self.warp, where, count, int(more[lanes].view(np.int32).sum()),
                              int(lanes.sum()) * drops, self.at)

    def mbarrier_phase(self, address: V, parity: V, waits: bool) -> V:
        where = self._barriers(address)
        if not where:
            return np.ones(LANES, bool)
        if parity is UNKNOWN:
            raise Undecided("the parity of a phase that is not known")
        passed = np.ones(LANES, bool)
        for address_, lanes in where:
            for odd in np.unique(parity[lanes] >> 31):
                late = self.tried != (address_, int(odd)) and self.crew.guess(self.warp, self.at)
                if not self.order.passes(self.warp, address_, int(odd), late, self.at):
                    passed &= ~(lanes & (parity >> 31 == odd))
                    looked = address_, int(odd)
        if passed.all():
            self.tried = None
        elif self.tried == looked:
            raise Blocked("a phase", looked[0])
        else:
            self.tried = looked
        return passed

    def bulk_copy(self, to: V, barrier: V, source: V, size: V) -> None:
        if not self._mask.any():
            return
        count, where = self._one(size, "the bytes of a bulk copy"), self._barriers(barrier)[0][0]
        words: Any = np.zeros(0, np.int64)
        if to is not UNKNOWN:
            first = self._one(to, "")
            self._inside(first + count)
            words = np.arange(first // 4, (first + count) // 4)
        self.order.copy(self.warp, words, where, count, self.at)

    def unsupported(self, why: str) -> None:
        raise Undecided(why)


