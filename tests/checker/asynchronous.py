"""Mutants of kernels whose warps work with units beside them: one safety less each, of every instruction that has one.

    python -m tests.checker.asynchronous CUBIN [KERNEL]      prints what the checker says of every mutant
"""

import dataclasses
import sys
from collections.abc import Collection, Iterator

from maxdnn import cubin
from maxdnn.checker import check_hazards
from maxdnn.checker.effects import REGISTERS, UNIFORM, UNIFORM_PREDICATE, all_effects
from maxdnn.cubin import CubinKernel
from maxdnn.isa import PT, Instruction, OperandField
from maxdnn.isa.control import CONTROL_BITS, CONTROL_LSB

_NOP = 0x7918
_CONTROL = CONTROL_BITS << CONTROL_LSB
_GONE = ("SYNCS", "WARPGROUP", "FENCE", "UBLKCP", "USETMAXREG", "BAR", "LDGDEPBAR", "DEPBAR")
_LASTING = ((1 << UNIFORM_PREDICATE) - 1) >> UNIFORM << UNIFORM  # uniform registers
_LEVELS = 4  # of instructions that lead to a parity


@dataclasses.dataclass(frozen=True)
class Mutant:
    """`code` in place of the kernel's; `what` was done at instruction `index`."""

    what: str
    index: int
    code: bytes

    def of(self, kernel: CubinKernel) -> CubinKernel:
        return dataclasses.replace(kernel, code=self.code)

    def image(self, image: bytes, kernel: CubinKernel) -> bytes:
        """The cubin with the kernel's code changed."""
        assert image.count(kernel.code) == 1
        return image.replace(kernel.code, self.code)


class _Code:
    """Words of a kernel to change."""

    def __init__(self, kernel: CubinKernel) -> None:
        self.kernel, self.code, self.effects = kernel, kernel.instructions, all_effects(kernel.instructions)
        self.words = [int.from_bytes(kernel.code[at:at + 16], "little") for at in range(0, len(kernel.code), 16)]

    def changed(self, what: str, i: int, **words: int) -> Mutant:
        """`words`: new ones by index, such as w3."""
        new = list(self.words)
        for name, word in words.items():
            new[int(name[1:])] = word
        return Mutant(what, i, b"".join(word.to_bytes(16, "little") for word in new))

    def gone(self, i: int) -> Mutant:
        return self.changed("gone", i, **{f"w{i}": _NOP | self.words[i] & _CONTROL})

    def field(self, what: str, i: int, lsb: int, width: int, value: int) -> Mutant:
        mask = (1 << width) - 1 << lsb
        return self.changed(what, i, **{f"w{i}": self.words[i] & ~mask | value << lsb & mask})

    def immediate(self, what: str, i: int, op: OperandField, value: int) -> Mutant:
        return self.field(what, i, op.spec["lsb"], op.spec["width"], value)

    def moved(self, what: str, i: int, behind: int) -> Mutant:
        """An instruction goes behind a later one."""
        order = [*range(i + 1, behind + 1), i]
        return self.changed(what, i, **{f"w{i + n}": self.words[k] for n, k in enumerate(order)})

    def next(self, i: int, opcode: str, text: str = "") -> int | None:
        """The next such instruction of the same straight code."""
        for k in range(i + 1, len(self.code)):
            if self.code[k].opcode == opcode and text in self.code[k].text():
                return k
            if self.code[k].flow is not None:
                return None
        return None

    def leads(self, i: int, to: Collection[int]) -> bool:
        """Whether what an instruction writes leads to one of some: where it is a register of a thread or a predicate,
        which serve many ends, one of them has to read it before it is written again."""
        written = self.effects[i].writes & ~_LASTING
        for k in range(i + 1, len(self.code) if written else 0):
            if self.effects[k].reads & written and k in to:
                return True
            if self.effects[k].writes & written:
                return False
        return not written


def mutants(kernel: CubinKernel) -> Iterator[Mutant]:
    """All of a kernel."""
    of = _Code(kernel)
    for i, inst in enumerate(of.code):
        if inst.opcode in _GONE:
            yield of.gone(i)
        yield from _shifted(of, i, inst)
        yield from _fields(of, i, inst)
        if inst.opcode == "BRA" and inst.guard.index != PT and of.code[i - 1].opcode in ("SYNCS", "PLOP3"):
            yield of.gone(i)
    yield from _numbers(of)


def _shifted(of: _Code, i: int, inst: Instruction) -> Iterator[Mutant]:
    text = inst.text()
    if inst.opcode == "DEPBAR" or "WARPGROUP.DEPBAR" in text or "FENCE.VIEW" in text:
        arrives = of.next(i, "SYNCS", "ARRIVE")
        if arrives is not None:
            yield of.moved("behind the next arrival", i, arrives)
    product = of.next(i, "HGMMA") if "WARPGROUP.ARRIVE" in text else None
    if product is not None:
        yield of.moved("behind the next product", i, product)


def _fields(of: _Code, i: int, inst: Instruction) -> Iterator[Mutant]:
    text = inst.text()
    if inst.opcode == "DEPBAR" or "WARPGROUP.DEPBAR" in text:
        yield of.immediate("one more group open", i, inst["n"].field, inst["n"].value + 1)
    if inst.opcode == "HGMMA" and inst["gsb"].label:
        yield of.immediate("not committed", i, inst["gsb"].field, 7)
    if inst.opcode == "USETMAXREG":
        for more in (-8, 8):
            yield of.immediate(f"{more:+} registers", i, inst["n"].field, inst["n"].value + more)
    if inst.opcode == "SYNCS" and inst.operand("addr") is not None:
        off = inst["addr"].field.spec["off"]
        for more in (-8, 8):
            yield of.field(f"mbarrier at {more:+}", i, off["lsb"], off["w"], inst["addr"].value + more)
        if inst.guard.index != PT:
            yield of.field("by all lanes", i, 12, 4, PT)
            yield of.field("by the other lanes", i, 15, 1, not inst.guard.negated)
    if inst.opcode == "LDGDEPBAR":
        control = dataclasses.replace(inst.control, write_barrier=None)
        yield of.field("no scoreboard", i, CONTROL_LSB, CONTROL_BITS, control.pack())
    if inst.control.read_barrier is not None and inst.opcode in ("UBLKCP", "SYNCS", "LDGSTS"):
        control = dataclasses.replace(inst.control, read_barrier=None)
        yield of.field("no read barrier", i, CONTROL_LSB, CONTROL_BITS, control.pack())


def _numbers(of: _Code) -> Iterator[Mutant]:
    """Bytes, counts and parities: constants that come to them, and what lies between."""
    code = of.code
    for name, opcode, text, levels, changes in (
            ("bytes", "SYNCS", "ARRIVE.TRANS64 ", 1, (-16, 16)), ("bytes", "UBLKCP", "", 1, (-1, 1)),
            ("count", "SYNCS", "EXCH", 1, (-2, 2, -0x800, 0x800)), ("parity", "SYNCS", "PHASECHK", _LEVELS, ())):
        uses = {i for i, inst in enumerate(code) if inst.opcode == opcode and text in inst.text()}
        wanted, last = 0, max(uses, default=0)
        for i in uses:
            wanted |= _number(code[i])
        seen: set[int] = set()
        for _ in range(levels):
            found = {i for i, eff in enumerate(of.effects) if eff.writes & wanted and _moves(code[i])
                     and (name != "count" or i < last) and of.leads(i, uses | seen)} - seen
            seen |= found
            for i in found:
                wanted |= of.effects[i].reads & ~REGISTERS
        for i in sorted(seen):
            yield from _number_mutants(of, name, i, changes)


def _number(inst: Instruction) -> int:
    op = inst["size"] if inst.opcode == "UBLKCP" else inst["b"]
    mask = 1 << op.value if op.type == "gpr" else 0
    if op.type == "ugpr":
        mask = sum(1 << UNIFORM + n for n in (op.value, op.value + 1)[:1 if inst.opcode == "UBLKCP" else 2])
    return mask


def _moves(inst: Instruction) -> bool:
    return inst.opcode in ("MOV", "UMOV", "ULOP3", "LOP3", "USEL", "UISETP")


def _number_mutants(of: _Code, name: str, i: int, changes: tuple[int, ...]) -> Iterator[Mutant]:
    immediate = next((op for op in of.code[i].operands if op.type in ("uimm", "simm")
                      and op.field.spec.get("width") == 32), None)
    if immediate is not None and name != "parity":
        for more in changes:
            if abs(more) < 0x800 or immediate.value > 0x10000000:
                yield of.immediate(f"{name} {more:+}", i, immediate.field, immediate.value + more)
    if name == "parity":
        yield of.gone(i)
        if immediate is not None and immediate.value & 0xFFFFFFFF == 0x80000000:
            yield of.immediate("no parity", i, immediate.field, 0)


def reported(kernel: CubinKernel, mutant: Mutant) -> list[str]:
    """What the checker finds, errors and warnings: the build refuses both."""
    report = check_hazards(mutant.of(kernel))
    return [finding.kind for finding in (*report.findings, *report.warnings)]


def main() -> None:
    kernel = cubin.read(sys.argv[1]).kernel(*sys.argv[2:])
    for mutant in mutants(kernel):
        inst = kernel.instructions[mutant.index]
        print(f"{mutant.what}: {inst.address:04x} {inst.text()}: {reported(kernel, mutant) or 'NOTHING'}", flush=True)


if __name__ == "__main__":
    main()
