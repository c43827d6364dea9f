"""The abstract machine that instruction semantics are written against. A tracer implements it: the CPU tracer with
values that hold one element for each of 32 lanes, the PTX tracer with one thread's scalars. Semantics never know which.

Values are opaque. Element types are named "i1" "i8" "i16" "i32" "i64" "f16" "f32" "f64". Integers carry no sign; the
operation does. Rounding modes are "" (nearest even), "RM" (down), "RP" (up), "RZ" (to zero), as the assembler names
them."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

V = Any
UNIFORM, UNIFORM_ZERO = 256, 319  # numbers of uniform registers begin here; the last one reads zero
UNIFORM_PREDICATE = 8  # so do those of uniform predicates
WINDOWS = {"S": 0x01, "L": 0x02}  # top byte of the low word of a generic address that means shared or local memory
FLAGS = "ZSCOK"  # zero, sign, carry, overflow of the condition register; K counts twice as a carry (three addends)


class Machine(Protocol):
    # -- constants and integer arithmetic ----------------------------------------------------------------------
    def const(self, type_: str, value: int | float) -> V:
        """The same value in every lane; integers are taken modulo 2^width."""

    def add(self, a: V, b: V) -> V: ...
    def sub(self, a: V, b: V) -> V: ...
    def mul(self, a: V, b: V) -> V: ...
    def and_(self, a: V, b: V) -> V: ...
    def or_(self, a: V, b: V) -> V: ...
    def xor(self, a: V, b: V) -> V: ...
    def not_(self, a: V) -> V: ...
    def shl(self, a: V, n: V) -> V:
        """Shift amounts must be smaller than the width; so for lshr and ashr."""

    def lshr(self, a: V, n: V) -> V: ...
    def ashr(self, a: V, n: V) -> V: ...
    def icmp(self, op: str, a: V, b: V) -> V:
        """op: eq ne, ult ule ugt uge, slt sle sgt sge. Gives i1."""

    def select(self, c: V, a: V, b: V) -> V: ...
    def rarely(self, c: V, value: Callable[[], V], otherwise: V) -> V:
        """select(c, value(), otherwise) where c hardly ever holds: a machine may skip what `value` computes."""

    def zext(self, a: V, type_: str) -> V: ...
    def sext(self, a: V, type_: str) -> V: ...
    def trunc(self, a: V, type_: str) -> V: ...
    def bitcast(self, a: V, type_: str) -> V: ...
    def popc(self, a: V) -> V: ...
    def clz(self, a: V) -> V:
        """Leading zeros; the width for zero."""

    def brev(self, a: V) -> V: ...

    # -- floating point: NaN results may have any payload, semantics canonicalise -----------------------------
    def canonical(self, x: V, nan: int) -> V:
        """The bits of a float that arithmetic has just made, `nan` for a NaN."""

    def fadd(self, a: V, b: V, rnd: str = "") -> V: ...
    def fmul(self, a: V, b: V, rnd: str = "") -> V: ...
    def ffma(self, a: V, b: V, c: V, rnd: str = "") -> V:
        """a * b + c rounded once."""

    def fneg(self, a: V) -> V: ...
    def fabs(self, a: V) -> V: ...
    def fcmp(self, op: str, a: V, b: V) -> V:
        """op: o/u + eq ne lt le gt ge (ordered or unordered), ord, uno."""

    def integral(self, a: V, mode: str) -> V:
        """Round to an integral value: mode "" nearest even, "RM" floor, "RP" ceil, "RZ" trunc."""

    def fpext(self, a: V, type_: str) -> V: ...
    def fptrunc(self, a: V, type_: str, rnd: str = "") -> V: ...
    def itof(self, a: V, type_: str, signed: bool, rnd: str = "") -> V: ...
    def ftoi(self, a: V, type_: str, signed: bool) -> V:
        """Truncate to an integer, saturating; NaN gives 0."""

    def mufu(self, function: str, a: V) -> V:
        """COS SIN EX2 LG2 RCP RSQ SQRT of an f32 that is not denormal."""

    def seed64(self, function: str, a: V) -> V:
        """RCP64H, RSQ64H: high word (i32) of a double to the high word of an estimate good for Newton steps."""

    # -- registers, predicates, flags: writes obey the instruction's guard and the active lanes -----------------
    def reg(self, index: int) -> V: ...
    def set_reg(self, index: int, value: V) -> None: ...
    def pred(self, index: int) -> V: ...
    def set_pred(self, index: int, value: V) -> None: ...
    def flag(self, name: str) -> V:
        """One of FLAGS, as i1."""

    def set_flag(self, name: str, value: Callable[[], V]) -> None:
        """The value is computed only if something reads the flag."""

    def lower_sum(self, a: V, b: V, total: V) -> None:
        """Flag C says what a + b = total carried, K nothing."""

    def upper_sum(self, a: V, b: V) -> V | None:
        """a + b and what the last lower sum carried, from a machine that adds both words at once; None: it does not."""

    def constant(self, bank: int, offset: int) -> V:
        """The i32 at a byte offset of a constant bank."""

    def special(self, name: str) -> V:
        """A special register such as "SR_TID.X", as i32."""

    # -- memory ------------------------------------------------------------------------------------------------
    def load(self, space: str, address: V, kind: str, dest: int) -> None:
        """space: global generic (i64 address), shared local (i32), constN (i32 offset into bank N).
        kind: U8 S8 U16 S16 32 64 128; 64 and 128 fill consecutive registers from `dest`."""

    def store(self, space: str, address: V, kind: str, source: int) -> None: ...
    def atomic(self, space: str, address: V, op: str, kind: str, operands: Sequence[V], dest: int | None) -> None:
        """op: ADD MIN MAX INC DEC AND OR XOR EXCH CAS SPIN; kind: U32 S32 U64 S64 F32 F64. `operands` hold i32 or i64
        bits; the old value goes to `dest` (a pair for 64-bit kinds) unless it is None. SPIN: a CAS that may fail, and
        then gives a value other than the one it compares with."""

    def texture(self, handle: V, coord: V, dests: Sequence[int | None]) -> None:
        """Fetch texel `coord` of a linear texture; component i goes to register dests[i] where that is not None."""

    # -- between lanes -----------------------------------------------------------------------------------------
    def shuffle(self, value: V, lane: V) -> V:
        """The value of another lane; `lane` is i32, 0..31."""

    def ballot(self, p: V) -> V:
        """i32 mask of the lanes that execute this instruction with p set."""

    def executing(self) -> V:
        """i32 mask of the lanes that execute this instruction."""

    def barrier_result(self) -> V:
        """i32 left by the last BAR.RED."""

    def unsupported(self, why: str) -> None:
        """This instruction faults when it is reached."""


class Units(Machine, Protocol):
    """A machine that also has what runs beside a warp on Hopper. None translates that."""

    def product(self, type_: str, columns: int, d: int, a: int | None, of_a: V, of_b: V, flags: int, keeps: V,
                commits: bool) -> None:
        """D (64 x columns, from register d) = A x B + D where `keeps`, of a warpgroup; descriptors of_a, of_b are i64,
        `a` the first of four registers. flags: 1 A and 2 B transposed, 4 A and 8 B negated."""

    def warpgroup_arrive(self) -> None: ...
    def warpgroup_wait(self, open_: int) -> None:
        """Until at most so many committed groups of products are open."""

    def mbarrier_init(self, address: V, word: V) -> None: ...
    def mbarrier_drop(self, address: V) -> None: ...
    def mbarrier_arrive(self, address: V, arrivals: V, more: V, drops: bool, dest: int) -> None:
        """`more` bytes are announced, or copied if negative; the former state goes to the pair `dest`."""

    def mbarrier_phase(self, address: V, parity: V, waits: bool) -> V:
        """Whether the phase of the parity in bit 31 is complete; `waits` until it is."""

    def bulk_copy(self, to: V, barrier: V, source: V, size: V) -> None: ...
    def copy(self, to: V, source: V, kind: str, keeps: V) -> None:
        """Each lane copies from global to shared memory, zeros where not `keeps`. Nobody may look at them before the
        warp has waited."""

    def copies_commit(self) -> None:
        """The copies since the last commit are a group."""

    def copies_wait(self, open_: int) -> None:
        """Until at most so many groups of copies of the warp are open."""

    def proxy_fence(self) -> None: ...
    def set_registers(self, count: int, waits: bool) -> None: ...
