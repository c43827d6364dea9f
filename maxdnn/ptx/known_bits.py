"""What is known of register values, whatever the inputs: the abstract machine with values whose bits are 0, 1 or
unknown, for each of a number of threads. The meaning of instructions is the one everything else uses; floating point,
flags, predicates and memory are unknown here. The rules for sums and products are those of H. Vishwanathan and others,
"Sound, Precise, and Fast Abstract Interpretation with Tristate Numbers" (2022)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..isa import Instruction
from ..semantics import meaning

_WIDTHS = {"i1": 1, "i8": 8, "i16": 16, "f16": 16, "i32": 32, "f32": 32, "i64": 64, "f64": 64}
_AXES = {"SR_TID.X": 0, "SR_TID.Y": 1, "SR_TID.Z": 2}
_WORD = np.uint64


@dataclass(frozen=True, slots=True)
class Bits:
    """A number for each thread: `value` where known and 0 where not, `unknown` a mask; both uint64 arrays."""

    width: int
    value: np.ndarray
    unknown: np.ndarray

    @property
    def exact(self) -> np.ndarray:
        return self.unknown == 0


def _mask(width: int) -> np.uint64:
    return _WORD((1 << width) - 1)


def _make(width: int, value: np.ndarray, unknown: np.ndarray) -> Bits:
    mask = _mask(width)
    return Bits(width, value & ~unknown & mask, unknown & mask)


def join(a: Bits, b: Bits) -> Bits:
    return _make(a.width, a.value, a.unknown | b.unknown | (a.value ^ b.value))


def widen(a: Bits, b: Bits) -> Bits:
    """`join`, but nothing is kept above the lowest bit in which the two differ: what counts in a loop ends at once."""
    changed = (a.value ^ b.value) | (a.unknown ^ b.unknown)
    above = np.where(changed != 0, ~((changed & -changed) - _WORD(1)), _WORD(0))
    return _make(a.width, a.value, a.unknown | b.unknown | above)


def _signed(words: np.ndarray, width: int) -> np.ndarray:
    """The words as int64, their top bit repeated."""
    gap = _WORD(64 - width)
    return (words << gap).view(np.int64) >> np.int64(64 - width)


class KnownBits:
    """Semantics traced on `registers`, in which a missing one is unknown. `block`: threads along x, y, z, one element
    for each in order of the thread index; None if that is not known: then one element stands for any thread of a block
    of at most `most`."""

    def __init__(self, block: tuple[int, int, int] | None, most: int = 1024) -> None:
        self.block, self._most = block, most
        self.count = block[0] * block[1] * block[2] if block else 1
        self.registers: dict[int, Bits] = {}

    def run(self, inst: Instruction, sometimes: bool) -> None:
        """Execute an instruction. `sometimes`: it may leave its results as they were."""
        before = dict(self.registers)
        function = meaning(inst)
        with np.errstate(over="ignore"):
            for register in inst.writes():
                self.registers.pop(register, None)
            if function is None:
                return
            written, self.registers = self.registers, _Reads(before)
            function(self, inst)
            after, self.registers = self.registers.new, written
        for register, value in after.items():
            self.registers[register] = join(value, before[register]) if sometimes and register in before else value
            if sometimes and register not in before:
                del self.registers[register]

    # -- values ------------------------------------------------------------------------------------------------

    def unknown(self, width: int) -> Bits:
        return _make(width, np.zeros(self.count, _WORD), np.full(self.count, ~_WORD(0)))

    def _exactly(self, width: int, value: Any) -> Bits:
        return _make(width, np.zeros(self.count, _WORD) + value, np.zeros(self.count, _WORD))

    def const(self, type_: str, value: float) -> Bits:
        if type_[0] == "f":
            return self.unknown(_WIDTHS[type_])
        width = _WIDTHS[type_]
        return self._exactly(width, _WORD(int(value) & (1 << width) - 1))

    def add(self, a: Bits, b: Bits) -> Bits:
        least, unknown = a.value + b.value, a.unknown + b.unknown
        return _make(a.width, least, (least + unknown) ^ least | a.unknown | b.unknown)

    def sub(self, a: Bits, b: Bits) -> Bits:
        value = a.value - b.value
        return _make(a.width, value, (value + a.unknown) ^ (value - b.unknown) | a.unknown | b.unknown)

    def mul(self, a: Bits, b: Bits) -> Bits:
        sure, rest = self._exactly(a.width, a.value * b.value), self._exactly(a.width, _WORD(0))
        for at in map(_WORD, range(a.width)):
            if not ((a.value | a.unknown) >> at).any():
                break
            one, maybe = a.value >> at & _WORD(1), a.unknown >> at & _WORD(1)
            more = np.where(one, b.unknown, np.where(maybe, b.value | b.unknown, _WORD(0))) << at
            rest = self.add(rest, _make(a.width, np.zeros(self.count, _WORD), more))
        return self.add(sure, rest)

    def and_(self, a: Bits, b: Bits) -> Bits:
        value = a.value & b.value
        return _make(a.width, value, (a.value | a.unknown) & (b.value | b.unknown) & ~value)

    def or_(self, a: Bits, b: Bits) -> Bits:
        value = a.value | b.value
        return _make(a.width, value, (a.unknown | b.unknown) & ~value)

    def xor(self, a: Bits, b: Bits) -> Bits:
        return _make(a.width, a.value ^ b.value, a.unknown | b.unknown)

    def not_(self, a: Bits) -> Bits:
        return _make(a.width, ~a.value, a.unknown)

    def _shift(self, a: Bits, n: Bits, shift: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Bits:
        by = np.where(n.exact, n.value, _WORD(0))
        return _make(a.width, shift(a.value, by), np.where(n.exact, shift(a.unknown, by), ~_WORD(0)))

    def shl(self, a: Bits, n: Bits) -> Bits:
        return self._shift(a, n, lambda words, by: words << by)

    def lshr(self, a: Bits, n: Bits) -> Bits:
        return self._shift(a, n, lambda words, by: words >> by)

    def ashr(self, a: Bits, n: Bits) -> Bits:
        return self._shift(a, n, lambda words, by: (_signed(words, a.width) >> by.view(np.int64)).view(_WORD))

    def icmp(self, op: str, a: Bits, b: Bits) -> Bits:
        x, y = (_signed(v.value, v.width) if op[0] == "s" else v.value for v in (a, b))
        compare = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
                   "ge": np.greater_equal}[op if op in ("eq", "ne") else op[1:]]
        known = a.exact & b.exact
        return _make(1, compare(x, y).astype(_WORD), np.where(known, _WORD(0), _WORD(1)))

    def select(self, c: Bits, a: Bits, b: Bits) -> Bits:
        maybe = join(a, b)
        value, unknown = (np.where(c.exact, np.where(c.value.astype(bool), x, y), z) for x, y, z in (
            (a.value, b.value, maybe.value), (a.unknown, b.unknown, maybe.unknown)))
        return _make(a.width, value, unknown)

    def rarely(self, c: Bits, value: Callable[[], Bits], otherwise: Bits) -> Bits:
        return self.select(c, value(), otherwise)

    def zext(self, a: Bits, type_: str) -> Bits:
        return _make(_WIDTHS[type_], a.value, a.unknown)

    def sext(self, a: Bits, type_: str) -> Bits:
        value, unknown = (_signed(words, a.width).view(_WORD) for words in (a.value, a.unknown))
        return _make(_WIDTHS[type_], value, unknown)

    trunc = bitcast = zext

    # -- what is not followed ----------------------------------------------------------------------------------

    def _like(self, a: Bits, *_: Any) -> Bits:
        return self.unknown(a.width)

    popc = clz = brev = fadd = fmul = ffma = fneg = fabs = integral = canonical = _like

    def _as(self, a: Bits, type_: str, *_: Any) -> Bits:
        return self.unknown(_WIDTHS[type_])

    fpext = fptrunc = itof = ftoi = _as

    def _word(self, *_: Any) -> Bits:
        return self.unknown(32)

    mufu = seed64 = constant = shuffle = ballot = executing = barrier_result = _word

    def _truth(self, *_: Any) -> Bits:
        return self.unknown(1)

    fcmp = pred = flag = _truth

    def _nothing(self, *_: Any) -> None:
        """Results of these are not kept, or were forgotten before."""

    set_pred = set_flag = lower_sum = upper_sum = store = load = atomic = texture = unsupported = _nothing

    # -- registers ---------------------------------------------------------------------------------------------

    def reg(self, index: int) -> Bits:
        return self.registers.get(index) or self.unknown(32)

    def set_reg(self, index: int, value: Bits) -> None:
        self.registers[index] = value

    def special(self, name: str) -> Bits:
        if name == "SR_LANEID":
            return self._exactly(32, np.arange(self.count, dtype=_WORD) % _WORD(32)) if self.block else self._below(32)
        if name not in _AXES:
            return self.unknown(32)
        if self.block is None:
            return self._below(self._most)
        x, y, _ = self.block
        thread = np.arange(self.count)
        return self._exactly(32, (thread % x, thread // x % y, thread // (x * y))[_AXES[name]].astype(_WORD))

    def _below(self, count: int) -> Bits:
        return _make(32, np.zeros(self.count, _WORD), np.full(self.count, _WORD((1 << (count - 1).bit_length()) - 1)))


class _Reads(dict[int, Bits]):
    """Registers before an instruction; what it writes is kept apart in `new`, and read back from there."""

    def __init__(self, before: dict[int, Bits]) -> None:
        super().__init__(before)
        self.new: dict[int, Bits] = {}

    def __setitem__(self, register: int, value: Bits) -> None:
        super().__setitem__(register, value)
        self.new[register] = value


def may_meet(machine: KnownBits, places: Sequence[Bits], others: Sequence[Bits], size: int) -> bool:
    """Whether two lanes of a warp may touch the same byte, one at `places`, the other at `others`: addresses, each a
    multiple of its access's own size, of which `size` is the larger."""
    if _apart(places, others, size) or _apart(others, places, size):
        return False
    keep = ~_WORD(size - 1) & _mask(32)
    lanes, full = np.arange(machine.count), machine.count // 32 * 32
    for warps in (lanes[:full].reshape(-1, 32), lanes[None, full:]):
        one, other = warps[:, :, None], warps[:, None, :]
        apart = one != other if machine.block else True
        for a in places:
            for b in others:
                known = ~(a.unknown[one] | b.unknown[other]) & keep
                same = (a.value[one] ^ b.value[other]) & known == 0
                if (same & apart).any():
                    return True
    return False


def _apart(places: Sequence[Bits], others: Sequence[Bits], size: int) -> bool:
    """Whether the first all lie below the second."""
    last = max(int((a.value | a.unknown).max()) for a in places)
    return last // size < min(int(b.value.min()) for b in others) // size
