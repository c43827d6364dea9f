"""The arithmetic half of the abstract machine in LLVM IR: the same operation on a vector of 32 lanes (CPU) or on one
thread's scalar (PTX), chosen by `width`. Knows nothing of registers, memory or instructions."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from .irkit import call

ELEMENTS: dict[str, ir.Type] = {
    "i1": ir.IntType(1), "i8": ir.IntType(8), "i16": ir.IntType(16), "i32": ir.IntType(32), "i64": ir.IntType(64),
    "f16": ir.HalfType(), "f32": ir.FloatType(), "f64": ir.DoubleType(),
}
_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}
_INT_PREDICATES = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_ROUND_INTRINSIC = {"": "rint", "RM": "floor", "RP": "ceil", "RZ": "trunc"}
V = Any


class Splat(ir.Constant):
    """A vector constant with one value in all lanes, in LLVM's short notation."""

    def __init__(self, scalar: ir.Constant, width: int) -> None:
        self.type = ir.VectorType(scalar.type, width)
        self.constant = scalar

    def _get_reference(self) -> str:
        return f"splat ({self.constant.type} {self.constant.get_reference()})"


class Poison(ir.Constant):
    """A vector whose content does not matter."""

    def __init__(self, type_: ir.Type) -> None:
        self.type = type_
        self.constant: list[ir.Constant] = []  # llvmlite looks through a shuffle's indices; these are all valid

    def _get_reference(self) -> str:
        return "poison"


class Zeros(Poison):
    def _get_reference(self) -> str:
        return "zeroinitializer"


class Lanes:
    """Arithmetic on values of `width` lanes (None for scalars) at the end of `self.b`'s current block."""

    def __init__(self, builder: ir.IRBuilder, width: int | None = 32) -> None:
        self.b = builder
        self.width = width
        self.add, self.sub, self.mul = builder.add, builder.sub, builder.mul
        self.and_, self.or_, self.xor = builder.and_, builder.or_, builder.xor
        self.shl, self.lshr, self.ashr = builder.shl, builder.lshr, builder.ashr
        self.select, self.fneg = builder.select, builder.fneg

    def lower_sum(self, a: V, b: V, total: V) -> None:
        pass

    def upper_sum(self, a: V, b: V) -> V | None:
        return None

    # -- types and constants -----------------------------------------------------------------------------------

    def type(self, element: str) -> ir.Type:
        scalar = ELEMENTS[element]
        return scalar if self.width is None else ir.VectorType(scalar, self.width)

    def element(self, value: V) -> ir.Type:
        return value.type.element if isinstance(value.type, ir.VectorType) else value.type

    def splat(self, scalar: ir.Constant) -> V:
        if self.width is None:
            return scalar
        return Splat(scalar, self.width)

    def const(self, type_: str, value: int | float) -> V:
        element = ELEMENTS[type_]
        if isinstance(element, ir.IntType):
            value = int(value) & ((1 << element.width) - 1)
        return self.splat(ir.Constant(element, value))

    def broadcast(self, scalar: V) -> V:
        """A scalar computed at run time, in every lane."""
        if self.width is None:
            return scalar
        poison = Poison(ir.VectorType(scalar.type, self.width))
        one = self.b.insert_element(poison, scalar, ir.Constant(ELEMENTS["i32"], 0))
        return self.b.shuffle_vector(one, poison, Zeros(ir.VectorType(ELEMENTS["i32"], self.width)))

    def intrinsic(self, name: str, result: ir.Type, args: list[V]) -> V:
        return self.call(f"llvm.{name}.{self._mangle(args[0].type)}", result, *args)

    def call(self, name: str, result: ir.Type, *args: V) -> V:
        return call(self.b, name, result, *args)

    def _mangle(self, t: ir.Type) -> str:
        if isinstance(t, ir.VectorType):
            return f"v{t.count}{self._mangle(t.element)}"
        return f"i{t.width}" if isinstance(t, ir.IntType) else _SUFFIX[str(t)]

    # -- integers ----------------------------------------------------------------------------------------------

    def not_(self, a: V) -> V:
        return self.b.xor(a, self.splat(ir.Constant(self.element(a), (1 << self.element(a).width) - 1)))

    def icmp(self, op: str, a: V, b: V) -> V:
        if op in ("eq", "ne"):
            return self.b.icmp_unsigned(_INT_PREDICATES[op], a, b)
        compare = self.b.icmp_signed if op[0] == "s" else self.b.icmp_unsigned
        return compare(_INT_PREDICATES[op[1:]], a, b)

    def rarely(self, c: V, value: Callable[[], V], otherwise: V) -> V:
        """Here a branch around what is rarely needed."""
        b = self.b
        wanted = c if self.width is None else b.icmp_unsigned("!=", b.bitcast(c, ir.IntType(self.width)),
                                                              ir.Constant(ir.IntType(self.width), 0))
        before = b.block
        with b.if_then(wanted, likely=False):
            special = self.select(c, value(), otherwise)
            inside = b.block
        result = b.phi(otherwise.type)
        result.add_incoming(otherwise, before)
        result.add_incoming(special, inside)
        return result

    def zext(self, a: V, type_: str) -> V:
        return self.b.zext(a, self.type(type_))

    def sext(self, a: V, type_: str) -> V:
        return self.b.sext(a, self.type(type_))

    def trunc(self, a: V, type_: str) -> V:
        return self.b.trunc(a, self.type(type_))

    def bitcast(self, a: V, type_: str) -> V:
        return a if a.type == self.type(type_) else self.b.bitcast(a, self.type(type_))

    def popc(self, a: V) -> V:
        return self.intrinsic("ctpop", a.type, [a])

    def clz(self, a: V) -> V:
        return self.intrinsic("ctlz", a.type, [a, ir.Constant(ELEMENTS["i1"], 0)])

    def brev(self, a: V) -> V:
        return self.intrinsic("bitreverse", a.type, [a])

    # -- floating point ----------------------------------------------------------------------------------------

    def canonical(self, x: V, nan: int) -> V:
        bits = "i" + self._mangle(self.element(x))[1:]
        return self.select(self.fcmp("uno", x, x), self.const(bits, nan), self.bitcast(x, bits))

    def fadd(self, a: V, b: V, rnd: str = "") -> V:
        return self.directed("fadd", rnd, a, b) if rnd else self.b.fadd(a, b)

    def fmul(self, a: V, b: V, rnd: str = "") -> V:
        return self.directed("fmul", rnd, a, b) if rnd else self.b.fmul(a, b)

    def ffma(self, a: V, b: V, c: V, rnd: str = "") -> V:
        return self.directed("fma", rnd, a, b, c) if rnd else self.intrinsic("fma", a.type, [a, b, c])

    def directed(self, operation: str, rnd: str, *args: V, result: str | None = None) -> V:
        """fadd fmul fma fptrunc sitofp uitofp under a rounding mode other than nearest even: the target's affair."""
        raise NotImplementedError

    def fabs(self, a: V) -> V:
        return self.intrinsic("fabs", a.type, [a])

    def fcmp(self, op: str, a: V, b: V) -> V:
        if op in ("ord", "uno"):
            return (self.b.fcmp_ordered if op == "ord" else self.b.fcmp_unordered)(op, a, b)
        compare = self.b.fcmp_ordered if op[0] == "o" else self.b.fcmp_unordered
        return compare(_INT_PREDICATES[op[1:]], a, b)

    def integral(self, a: V, mode: str) -> V:
        return self.intrinsic(_ROUND_INTRINSIC[mode], a.type, [a])

    def fpext(self, a: V, type_: str) -> V:
        return self.b.fpext(a, self.type(type_))

    def fptrunc(self, a: V, type_: str, rnd: str = "") -> V:
        return self.directed("fptrunc", rnd, a, result=type_) if rnd else self.b.fptrunc(a, self.type(type_))

    def itof(self, a: V, type_: str, signed: bool, rnd: str = "") -> V:
        if rnd:
            return self.directed("sitofp" if signed else "uitofp", rnd, a, result=type_)
        return (self.b.sitofp if signed else self.b.uitofp)(a, self.type(type_))

    def ftoi(self, a: V, type_: str, signed: bool) -> V:
        result = self.type(type_)
        name = f"fpto{'s' if signed else 'u'}i.sat.{self._mangle(result)}"
        return self.intrinsic(name, result, [a])
