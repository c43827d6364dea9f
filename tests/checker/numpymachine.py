"""The abstract machine of maxdnn.semantics on NumPy arrays of 32 lanes: arithmetic only. Rounding modes other than to
nearest are ignored: it serves to compare runs with each other, not with hardware."""

from collections.abc import Callable
from typing import Any

import numpy as np

V = Any
LANES = 32
TYPES = {"i1": np.bool_, "i8": np.uint8, "i16": np.uint16, "i32": np.uint32, "i64": np.uint64, "f16": np.float16,
         "f32": np.float32, "f64": np.float64}
SIGNED = {np.dtype(np.uint8): np.int8, np.dtype(np.uint16): np.int16, np.dtype(np.uint32): np.int32,
          np.dtype(np.uint64): np.int64}
_COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
            "ge": np.greater_equal}


def signed(a: V) -> V:
    return a.view(SIGNED[a.dtype])


class Arithmetic:
    def const(self, type_: str, value: float) -> V:
        if type_[0] == "i":
            value = int(value) & ((1 << int(type_[1:])) - 1)
        return np.full(LANES, value, TYPES[type_])

    def add(self, a: V, b: V) -> V:
        return a + b

    def sub(self, a: V, b: V) -> V:
        return a - b

    def mul(self, a: V, b: V) -> V:
        return a * b

    def lower_sum(self, a: V, b: V, total: V) -> None:
        pass

    def upper_sum(self, a: V, b: V) -> None:
        pass

    def and_(self, a: V, b: V) -> V:
        return a & b

    def or_(self, a: V, b: V) -> V:
        return a | b

    def xor(self, a: V, b: V) -> V:
        return a ^ b

    def not_(self, a: V) -> V:
        return ~a

    def shl(self, a: V, n: V) -> V:
        return a << n

    def lshr(self, a: V, n: V) -> V:
        return a >> n

    def ashr(self, a: V, n: V) -> V:
        return (signed(a) >> signed(n)).view(a.dtype)

    def icmp(self, op: str, a: V, b: V) -> V:
        if op[0] == "s":
            a, b = signed(a), signed(b)
        return _COMPARE[op if op in _COMPARE else op[1:]](a, b)

    def select(self, c: V, a: V, b: V) -> V:
        return np.where(c, a, b)

    def rarely(self, c: V, value: Callable[[], V], otherwise: V) -> V:
        return np.where(c, value(), otherwise) if c.any() else otherwise

    def zext(self, a: V, type_: str) -> V:
        return a.astype(TYPES[type_])

    def sext(self, a: V, type_: str) -> V:
        wide = np.dtype(TYPES[type_])
        return -a.astype(SIGNED[wide]).astype(wide) if a.dtype == bool else signed(a).astype(SIGNED[wide]).view(wide)

    def trunc(self, a: V, type_: str) -> V:
        return (a & a.dtype.type(1)).astype(bool) if type_ == "i1" else a.astype(TYPES[type_])

    def bitcast(self, a: V, type_: str) -> V:
        return a.view(TYPES[type_])

    def popc(self, a: V) -> V:
        return np.bitwise_count(a).astype(a.dtype)

    def clz(self, a: V) -> V:
        width = a.dtype.itemsize * 8
        return np.array([width - int(x).bit_length() for x in a], a.dtype)

    def brev(self, a: V) -> V:
        width = a.dtype.itemsize * 8
        return np.array([int(f"{int(x):0{width}b}"[::-1], 2) for x in a], a.dtype)

    def canonical(self, x: V, nan: int) -> V:
        bits = x.view({2: np.uint16, 4: np.uint32, 8: np.uint64}[x.dtype.itemsize])
        return np.where(np.isnan(x), bits.dtype.type(nan), bits)

    def fadd(self, a: V, b: V, rnd: str = "") -> V:
        return a + b

    def fmul(self, a: V, b: V, rnd: str = "") -> V:
        return a * b

    def ffma(self, a: V, b: V, c: V, rnd: str = "") -> V:
        wide = np.float64 if a.dtype == np.float32 else np.longdouble
        return (a.astype(wide) * b.astype(wide) + c.astype(wide)).astype(a.dtype)

    def fneg(self, a: V) -> V:
        return -a

    def fabs(self, a: V) -> V:
        return np.abs(a)

    def fcmp(self, op: str, a: V, b: V) -> V:
        unordered = np.isnan(a) | np.isnan(b)
        if op in ("ord", "uno"):
            return ~unordered if op == "ord" else unordered
        holds = _COMPARE[op[1:]](a, b)
        return holds & ~unordered if op[0] == "o" else holds | unordered

    def integral(self, a: V, mode: str) -> V:
        return {"": np.rint, "RM": np.floor, "RP": np.ceil, "RZ": np.trunc}[mode](a)

    def fpext(self, a: V, type_: str) -> V:
        return a.astype(TYPES[type_])

    def fptrunc(self, a: V, type_: str, rnd: str = "") -> V:
        return a.astype(TYPES[type_])

    def itof(self, a: V, type_: str, is_signed: bool, rnd: str = "") -> V:
        return (signed(a) if is_signed else a).astype(TYPES[type_])

    def ftoi(self, a: V, type_: str, is_signed: bool) -> V:
        plain = np.dtype(TYPES[type_])
        info = np.iinfo(SIGNED[plain] if is_signed else plain)
        out = [0 if x != x else int(max(min(x, float(info.max)), float(info.min))) for x in a]
        return np.array([min(v, int(info.max)) & ((1 << info.bits) - 1) for v in out], plain)

    def mufu(self, function: str, a: V) -> V:
        wide = a.astype(np.float64)
        names: dict[str, Callable[[], V]] = {
            "COS": lambda: np.cos(wide), "SIN": lambda: np.sin(wide), "EX2": lambda: np.exp2(wide),
            "LG2": lambda: np.log2(wide), "RCP": lambda: 1 / wide, "RSQ": lambda: 1 / np.sqrt(wide),
            "SQRT": lambda: np.sqrt(wide)}
        return names[function]().astype(np.float32)

    def seed64(self, function: str, a: V) -> V:
        wide = (a.astype(np.uint64) << np.uint64(32)).view(np.float64)
        value = 1 / wide if function == "RCP64H" else 1 / np.sqrt(wide)
        return (value.view(np.uint64) >> np.uint64(32)).astype(np.uint32)
