"""Guards and operands of a decoded instruction."""

from dataclasses import dataclass

from .table import PT, RZ, URZ, OperandField


@dataclass(frozen=True, slots=True)
class Guard:
    """The predicate an instruction runs under; `@P3`, `@!P0`; always() for none."""

    index: int = PT
    negated: bool = False
    uniform: bool = False  # a uniform predicate

    def __str__(self) -> str:
        if self.index == PT and not self.negated:
            return ""
        kind = "U" if self.uniform else ""
        return f"@{'!' if self.negated else ''}{kind}{'PT' if self.index == PT else f'P{self.index}'}"


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand.

    `value` by field type: gpr, pred, special_reg, scoreboard: the number; immediates: the signed or unsigned integer,
    or the IEEE bit pattern (f32 32 bits, f64 64 bits, f16 pair 32 bits); cbank*: byte offset in `bank`; addr,
    gpr_plus_simm, cbank_indexed: the offset added to register `base`; rel_target: the absolute byte address; enum: the
    raw field. `regs` counts the 32-bit registers a register (or, for addr, the base) covers.
    """

    field: OperandField
    value: int
    neg: bool = False
    abs: bool = False
    inv: bool = False  # bitwise ~ of a register, or ! of a predicate
    cc: bool = False
    part: str = ""  # "", "H1", "B2", "H0_H0" ...
    bank: int = 0
    base: int = RZ
    ubase: int = URZ  # the uniform register of an address
    regs: int = 1

    @property
    def name(self) -> str:
        return self.field.name

    @property
    def type(self) -> str:
        return self.field.type

    @property
    def label(self) -> str:
        """The string of an enum operand (`1D`, `RGBA`, `PR`)."""
        return self.field.values[self.value] if self.field.values else ""

    def registers(self) -> range:
        """The general registers named by this operand, RZ giving none."""
        first = self.value if self.type in ("gpr", "implied_next_gpr") else self.base
        return range(0) if first == RZ else range(first, first + self.regs)

    def _names_pair(self) -> bool:
        """Whether its uniform register is the first of two: one that names a bank or an address of code."""
        return self.type in ("cx", "rel_register") or (self.type == "cbank_indexed" and "bank" not in self.field.spec)

    def uniforms(self) -> range:
        """The uniform registers named by this operand, URZ giving none: of an address of 64 bits a pair."""
        first, count = self.ubase, 2 if {"desc", "suffix"} & self.field.spec.keys() or self._names_pair() else 1
        if self.type == "ugpr":
            first, count = self.value, self.regs
        return range(0) if first == URZ else range(first, min(first + count, URZ))
