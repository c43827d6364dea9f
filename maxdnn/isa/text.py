"""Instructions as the vendor's disassembler prints them."""

import math
import struct
from collections.abc import Mapping
from typing import Any, Protocol

from .control import Control
from .operand import Guard, Operand
from .table import CC_TRUE, PT, RZ, TABLE, URZ, Row

_TEX_PHASE = {0: "", 1: ".T", 2: ".P"}
CC_TESTS = TABLE.cc_tests


def _reg(index: int) -> str:
    return "RZ" if index == RZ else f"R{index}"


def _ureg(index: int) -> str:
    return "URZ" if index == URZ else f"UR{index}"


def _hex(value: int) -> str:
    return f"-0x{-value:x}" if value < 0 else f"0x{value:x}"


def _float(value: float, signalling: bool = False) -> str:
    """The vendor's decimal: 20 digits, all of them written out from 1e9 on; a blank follows the special values."""
    sign = "-" if math.copysign(1, value) < 0 else "+"
    if math.isnan(value):
        return f"{sign}{'S' if signalling else 'Q'}NAN "
    if math.isinf(value):
        return f"{sign}INF "
    if value == 0:
        return "-0.0 " if sign == "-" else "0"
    return f"{value:.20e}" if abs(value) >= 1e9 else f"{value:.20g}"


def _single(bits: int) -> str:
    return _float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _double(bits: int) -> str:
    """Only of a double does the vendor tell a signalling NaN from a quiet one."""
    return _float(struct.unpack("<d", struct.pack("<Q", bits))[0], not bits >> 51 & 1)


def _half(bits: int) -> str:
    return _float(struct.unpack("<e", struct.pack("<H", bits))[0])


class Printed(Protocol):
    """What is printed of an instruction (instruction.py)."""

    @property
    def control(self) -> Control: ...

    @property
    def row(self) -> Row: ...

    @property
    def guard(self) -> Guard: ...

    @property
    def operands(self) -> tuple[Operand, ...]: ...

    @property
    def mods(self) -> Mapping[str, str]: ...


def _signs(body: str, op: Operand) -> str:
    if op.abs:
        body = f"|{body}|"
    if op.neg:
        body = f"-{body}"
    if op.inv:
        body = f"~{body}"
    return body


def _suffixes(body: str, op: Operand) -> str:
    if "neg_bit" in op.field.spec:  # video instructions write a sign
        return f"-{body}" if op.neg and op.value else body
    return body + (".NEG" if op.neg else "") + (".ABS" if op.abs else "") + (".INV" if op.inv else "")


def _signed16(value: int) -> str:
    return _hex(value - 0x10000 if value & 0x8000 else value)


def _sum_address(op: Operand) -> str:
    """An address that may have a uniform register, a scale or a descriptor in it."""
    spec = op.field.spec
    described = spec.get("desc", False)
    terms = []
    if op.base != RZ or ("suffix" in spec and "rz" not in spec) or op.part:
        terms.append(_reg(op.base) + spec.get("suffix", "") + (f".{op.part}" if op.part else ""))
    if "ureg" in spec and not described and (op.ubase != URZ or "quiet" not in spec):
        terms.append(_ureg(op.ubase))
    if op.value or not terms:
        terms.append(_hex(op.value) if terms or op.value else _reg(RZ))
    if terms == [_hex(op.value)] and op.value and "quiet" not in spec:
        terms = [f"0x{op.value & ((1 << spec['off']['w']) - 1):x}"]
    return (f"desc[{_ureg(op.ubase)}]" if described is True else "") + f"[{'+'.join(terms)}]"


def _address(op: Operand) -> str:
    if op.field.scale or not {"desc", "ureg", "suffix", "quiet"}.isdisjoint(op.field.spec):
        return _sum_address(op)
    if op.base == RZ:
        off = op.field.spec["off"]
        return f"[0x{op.value & ((1 << off['w']) * off.get('scale', 1) - 1):x}]" if op.value else "[RZ]"
    if op.value == 0:
        return f"[{_reg(op.base)}]"
    return f"[{_reg(op.base)}+{_hex(op.value)}]"


def _register(inst: Printed, op: Operand) -> str:
    kept = op.field.slot is not None and inst.control.reuse >> op.field.slot & 1
    reuse, part = ".reuse" if kept else "", (f".{op.part}" if op.part else "") + op.field.spec.get("suffix", "")
    if inst.row.table.word_bits == 64:
        return _signs(_reg(op.value) + part, op) + (".CC" if op.cc else "") + reuse
    if "inside" in op.field.spec.get("part", ()):
        return _signs(_reg(op.value) + part, op)
    return _signs(_reg(op.value), op) + reuse + part


def _constant(op: Operand) -> str:
    """The byte offset as a signed 16-bit number, after a blank where a part of the word can be chosen."""
    if "zero" in op.field.spec and not op.value:
        return f"c[0x{op.bank:x}][{op.field.spec['zero']}]"
    blank = " " if op.field.part or "suffix" in op.field.spec else ""
    body = f"c[0x{op.bank:x}]{blank}[{_signed16(op.value)}]"
    if op.type == "cx":
        body = f"cx[{_ureg(op.ubase)}]{blank}[{_hex(op.value)}]"
    return _signs(body + (f".{op.part}" if op.part else ""), op) + op.field.spec.get("suffix", "")


def _indexed_constant(op: Operand) -> str:
    """A constant at a register or a uniform one, or one of a register in a bank that a uniform register names."""
    base, bank = _ureg(op.ubase), f"c[0x{op.bank:x}]"
    if "ureg" not in op.field.spec:
        return f"{bank}[{_hex(op.value)}]" if op.base == RZ else bank + _address(op)
    if "bank" not in op.field.spec:
        base, bank = _reg(op.base), f"cx[{base}]"
    return f"{bank}[{base}+{_hex(op.value)}]" if op.value else f"{bank}[{base}]"


def _integer(inst: Printed, op: Operand) -> int:
    """The number to print for an integer immediate: some forms are printed as if of the other signedness."""
    spec = op.field.spec
    if spec.get("print") == "unsigned":
        return op.value & 0xFFFFF
    rule = spec.get("signed_if")
    if rule and inst.row.modifiers[rule["mod"]].raw(inst.mods[rule["mod"]]) in rule["v"]:
        top = 1 << spec["width"] - 1
        return (op.value ^ top) - top
    return op.value


def _operand(inst: Printed, op: Operand) -> str | None:
    spec = op.field.spec
    if spec.get("omit_if") == op.value and not (op.neg or op.inv):
        return None
    match op.type:
        case "gpr":
            return _register(inst, op)
        case "ugpr" if "in" in spec:
            return f"{spec['in']}[{_ureg(op.value)}]" + (f".{op.part}" if op.part else "")
        case "ugpr":
            return _signs(_ureg(op.value) + (f".{op.part}" if op.part else ""), op) + spec.get("suffix", "")
        case "convergence":
            return f"B{op.value}"
        case "f16":
            return _single(op.value << 16) if _brain(inst, spec) else _half(op.value)
        case "f32" if inst.mods.get("func") in ("RCP64H", "RSQ64H"):
            return _double(op.value << 32)
        case "f64_high":
            return _suffixes(_double(op.value << 32), op)
        case "rel_register":
            base = _ureg(op.ubase) if "ureg" in spec else _reg(op.base)
            return base if "quiet" in spec and not op.value else f"{base} {_hex(op.value)}"
        case "implied_next_gpr":
            return _reg(op.value)
        case "pred" | "upred":
            return "!" * op.inv + "U" * (op.type == "upred") + ("PT" if op.value == PT else f"P{op.value}")
        case "cbank" | "cx":
            return _constant(op)
        case "cbank36":
            return f"c[0x{op.bank:x}][{_signed16(op.value)}]"
        case "cbank_indexed":
            return _indexed_constant(op)
        case "addr":
            return _address(op)
        case "gpr_plus_simm":
            return f"{_reg(op.base)} {_hex(op.value)}" if op.value else _reg(op.base)
        case "f32_top20_split" | "f32":
            return _suffixes(_single(op.value), op) + (f".{op.part}" if op.part else "")
        case "f64_top20_split":
            return _suffixes(_double(op.value), op)
        case "f16_pair_split":
            return f"{_half(op.value >> 16)}, {_half(op.value & 0xFFFF)}"
        case "simm20_split" | "simm" | "uimm":
            return _suffixes(_hex(_integer(inst, op)), op)
        case "rel_target":
            return _hex(op.value)
        case "special_reg":
            return inst.row.table.special_registers.get(op.value, f"SR{op.value}")
        case "scoreboard":
            return f"SB{op.value}"
        case "scoreboard_mask":
            return None if not op.value else "{" + ",".join(str(i) for i in range(5, -1, -1) if op.value >> i & 1) + "}"
        case "cc_test":
            return f"CC.{CC_TESTS[op.value]}" if op.value != CC_TRUE else None
        case "literal":
            return spec["text"]
        case _:  # enum, enum_from_modifier
            return op.label


def _brain(inst: Printed, spec: Mapping[str, Any]) -> bool:
    """Whether 16 bits are the upper half of a single."""
    said = spec.get("brain", "mod_bf16_v2")  # yes, or the modifier that says so
    return said is True or "BF16" in inst.mods.get(said, "").rpartition(".")[2]


def _alias(inst: Printed) -> str:
    """What IMAD is called where a source is nothing, one or a power of two: `.MOV`, `.IADD`, `.SHL` or nothing."""
    a, b, c = (op for op in inst.operands if "r" in op.field.access and op.type not in ("pred", "upred"))
    zero = [op.type == "gpr" and op.value == RZ for op in (a, b, c)]
    if {b.type, c.type} & {"ugpr", "cx"}:
        return ""
    if b.type in ("simm", "uimm"):
        if b.value == 0 or zero[0] or (b.value == 1 and zero[2]):
            return ".MOV"
        if b.value == 1:
            return ".IADD"
        power = b.value > 0 and b.value & (b.value - 1) == 0 and b.value != 0x10000
        return ".SHL" if zero[2] and power else ""
    if b.type == "cbank":
        return ".MOV" if zero[0] else ""
    return ".MOV" if zero[0] or zero[1] else ""


def format_opcode(inst: Printed) -> str:
    """The opcode with its modifiers."""
    row = inst.row
    texts = {n: f.values[f.raw(inst.mods[n])] for n, f in row.modifiers.items()}
    body = row.text.format(**texts)
    if row.spec.get("alias"):
        body = row.mnemonic + _alias(inst) + body[len(row.mnemonic):]
    return body + _TEX_PHASE[inst.control.reuse & 3] if row.cls.name == "tex" else body


def format_instruction(inst: Printed) -> str:
    """`@P0 FFMA.FTZ R1, R2.reuse, c[0x0][0x140], -R3`, as the vendor's disassembler prints it."""
    operands = [t for t in (_operand(inst, op) for op in inst.operands) if t is not None]
    guard = str(inst.guard)
    head = f"{guard} " if guard else ""
    return f"{head}{format_opcode(inst)} {', '.join(operands)}".rstrip()
