"""A decoded instruction: small immutable values that every other room consumes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .addressing import Addressing
from .control import Control
from .operand import Guard, Operand
from .table import CC_TRUE, PT, RZ, Access, Flow, InstructionClass, Row
from .text import format_instruction


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction at a byte address, with its table row, guard, operands, modifiers and control code."""

    address: int
    word: int
    control: Control
    row: Row
    guard: Guard
    operands: tuple[Operand, ...]
    mods: Mapping[str, str]  # modifier name -> its string without leading dot ("" where it prints nothing)

    @property
    def opcode(self) -> str:
        return self.row.opcode

    @property
    def mnemonic(self) -> str:
        return self.row.mnemonic

    @property
    def cls(self) -> InstructionClass:
        return self.row.cls

    @property
    def access(self) -> Access | None:
        """What it does to memory by addresses or between lanes; None for textures, surfaces and everything else."""
        return self.row.table.memory.get(self.row.opcode)

    @property
    def flow(self) -> Flow | None:
        """What it does to control; None where control just goes on."""
        return self.row.table.flow.get(self.row.opcode)

    @property
    def waits(self) -> str:
        """What it waits for besides its control code: "scoreboards" of its operands, "memory" written before; or ""."""
        return self.row.table.waits.get(self.row.opcode, "")

    @property
    def tells(self) -> str:
        """What is known of its result without running it: "compare integers", "compare" (of anything else), "combine"
        (predicates), "copy", "add", "select", "bits", "unpack" (to predicates); or ""."""
        return self.row.table.tells.get(self.row.opcode, "")

    @property
    def addressing(self) -> Addressing:
        """Where words of its instruction set lie."""
        return self.row.table.addressing

    def leaves(self) -> bool:
        """Whether control may go on elsewhere than behind it, or end."""
        return self.flow is not None and self.flow.leaves

    def pushes(self) -> bool:
        """Whether it names an address that a later one goes to (calls aside)."""
        return self.flow is not None and self.flow.does == "push"

    def touches(self, space: str) -> bool:
        """Whether its address may lie in a space of memory."""
        access = self.access
        return access is not None and space in access.spaces

    def operand(self, name: str) -> Operand | None:
        for op in self.operands:
            if op.field.name == name:
                return op
        return None

    def __getitem__(self, name: str) -> Operand:
        op = self.operand(name)
        if op is None:
            raise KeyError(f"{self.mnemonic} has no operand {name}")
        return op

    def text(self) -> str:
        """Vendor disassembler's text, without address and final semicolon."""
        return format_instruction(self)

    def __str__(self) -> str:
        return self.text()

    # -- what it touches ------------------------------------------------------------------------------------------

    def _gprs(self, access: str) -> Iterator[int]:
        for op in self.operands:
            if op.type in ("addr", "gpr_plus_simm", "cbank_indexed"):
                if access == "r":
                    yield from op.registers()
            elif op.type in ("gpr", "implied_next_gpr") and access in op.field.access:
                yield from op.registers()

    def reads(self) -> frozenset[int]:
        """General registers read, address registers included."""
        return frozenset(self._gprs("r"))

    def writes(self) -> frozenset[int]:
        """General registers written."""
        return frozenset(self._gprs("w"))

    def pred_reads(self) -> frozenset[int]:
        """Predicates read, the guard included; PT gives none."""
        found = {op.value for op in self.operands if op.type == "pred" and "r" in op.field.access}
        if not self.guard.uniform:
            found.add(self.guard.index)
        if self.opcode == "P2R" and not self._of_flags("src"):
            found |= self._predicate_mask()
        return frozenset(found - {PT})

    def pred_writes(self) -> frozenset[int]:
        """Predicates written; PT gives none."""
        found = {op.value for op in self.operands if op.type == "pred" and "w" in op.field.access}
        if self.opcode == "R2P" and not self._of_flags("dst"):
            found |= self._predicate_mask()
        return frozenset(found - {PT})

    def _predicate_mask(self) -> set[int]:
        mask = self["b"]
        bits = 0x7F if mask.type in ("gpr", "ugpr", "cbank", "cx") and mask.value != RZ else mask.value
        return {i for i in range(7) if bits >> i & 1}

    def _of_flags(self, name: str) -> bool:
        """Whether a move of predicates is one of the flags instead; tables without flags do not say."""
        op = self.operand(name)
        return op is not None and op.label == "CC"

    def uniform_writes(self) -> frozenset[int]:
        """Uniform registers written."""
        return frozenset(r for op in self.operands if op.type == "ugpr" and "w" in op.field.access
                         for r in op.uniforms())

    def uniform_pred_writes(self) -> frozenset[int]:
        """Uniform predicates written; UPT gives none."""
        return frozenset(op.value for op in self.operands if op.type == "upred" and "w" in op.field.access) - {PT}

    def cc_reads(self) -> bool:
        """Whether the carry/condition register is an input."""
        if any(op.type == "cc_test" and op.value != CC_TRUE for op in self.operands):
            return True
        if self.opcode in ("CSET", "CSETP") or (self.opcode == "P2R" and self._of_flags("src")):
            return True
        if self.mods.get("x"):
            return True
        return self.mods.get("m") in ("XLO", "XMED") or self.mods.get("hi") in ("X", "XHI")

    def extends(self) -> bool:
        """Whether it continues a sum, comparison or shift of which an earlier instruction did the lower word, and so
        reads the carry as a number rather than as a condition."""
        return bool(self.mods.get("x") or self.mods.get("cmode") == "X" or self.mods.get("hi") in ("X", "XHI"))

    def cc_writes(self) -> bool:
        """Whether the carry/condition register is an output."""
        return any(op.cc for op in self.operands) or (self.opcode == "R2P" and self._of_flags("dst"))
