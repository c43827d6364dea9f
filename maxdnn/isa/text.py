"""Instructions as the vendor's disassembler prints them."""

import struct

from .instruction import CC_TRUE, PT, RZ, Instruction, Operand
from .table import TABLE

_TEX_PHASE = {0: "", 1: ".T", 2: ".P"}
CC_TESTS = dict(enumerate(
    "F LT EQ LE GT NE GE NUM NAN LTU EQU LEU GTU NEU GEU T OFF LO SFF LS HI SFT HS OFT "
    "CSM_TA CSM_TR CSM_MX FCSM_TA FCSM_TR FCSM_MX RLE RGT".split()))


def _reg(index: int) -> str:
    return "RZ" if index == RZ else f"R{index}"


def _hex(value: int) -> str:
    return f"-0x{-value:x}" if value < 0 else f"0x{value:x}"


def _float(bits: int, wide: bool) -> str:
    value = struct.unpack("<d", struct.pack("<Q", bits))[0] if wide else struct.unpack("<f", struct.pack("<I", bits))[0]
    if value != value:
        quiet = bits >> (51 if wide else 22) & 1
        return ("-" if bits >> (63 if wide else 31) else "+") + ("QNAN" if quiet else "SNAN")
    if value in (float("inf"), float("-inf")):
        return "+INF" if value > 0 else "-INF"
    return f"{value:.20g}"


def _signs(body: str, op: Operand) -> str:
    if op.abs:
        body = f"|{body}|"
    if op.neg:
        body = f"-{body}"
    if op.inv:
        body = f"~{body}"
    return body


def _suffixes(body: str, op: Operand) -> str:
    return body + (".NEG" if op.neg else "") + (".ABS" if op.abs else "") + (".INV" if op.inv else "")


def _address(op: Operand) -> str:
    if op.base == RZ:
        off = op.field.spec["off"]
        return f"[0x{op.value & ((1 << off['w']) * off.get('scale', 1) - 1):x}]" if op.value else "[RZ]"
    if op.value == 0:
        return f"[{_reg(op.base)}]"
    sign = "-" if op.value < 0 else "+"
    return f"[{_reg(op.base)}{sign}0x{abs(op.value):x}]"


def _register(inst: Instruction, op: Operand) -> str:
    body = _reg(op.value) + (f".{op.part}" if op.part else "")
    if op.cc:
        body += ".CC"
    if op.field.slot is not None and inst.control.reuse >> op.field.slot & 1 and op.value != RZ:
        body = _reg(op.value) + ".reuse" + body[len(_reg(op.value)):]
    return _signs(body, op)


def _operand(inst: Instruction, op: Operand) -> str | None:
    spec = op.field.spec
    if spec.get("omit_if") == op.value and not (op.neg or op.inv):
        return None
    match op.type:
        case "gpr":
            return _register(inst, op)
        case "implied_next_gpr":
            return _reg(op.value)
        case "pred":
            return ("!" if op.inv else "") + ("PT" if op.value == PT else f"P{op.value}")
        case "cbank":
            blank = " " if inst.opcode == "XMAD" else ""
            body = f"c[0x{op.bank:x}]{blank}[0x{op.value:x}]" + (f".{op.part}" if op.part else "")
            return _signs(body, op)
        case "cbank36":
            return f"c[0x{op.bank:x}][0x{op.value:x}]"
        case "cbank_indexed":
            return f"c[0x{op.bank:x}]{_address(op)}"
        case "addr":
            return _address(op)
        case "gpr_plus_simm":
            return f"{_reg(op.base)} {_hex(op.value)}" if op.value else _reg(op.base)
        case "f32_top20_split" | "f32":
            return _suffixes(_float(op.value, False), op)
        case "f64_top20_split":
            return _suffixes(_float(op.value, True), op)
        case "f16_pair_split":
            halves = [struct.unpack("<e", struct.pack("<H", op.value >> s & 0xFFFF))[0] for s in (16, 0)]
            return ", ".join(f"{h:.20g}" for h in halves)
        case "simm20_split" | "simm" | "uimm":
            return _suffixes(_hex(op.value), op)
        case "rel_target":
            return _hex(op.value)
        case "special_reg":
            return TABLE.special_registers.get(op.value, f"SR{op.value}")
        case "scoreboard":
            return f"SB{op.value}"
        case "scoreboard_mask":
            return "{" + ",".join(str(i) for i in range(5, -1, -1) if op.value >> i & 1) + "}"
        case "cc_test":
            return f"CC.{CC_TESTS[op.value]}" if op.value != CC_TRUE else None
        case "literal":
            return spec["text"]
        case _:  # enum, enum_from_modifier
            return op.label


def format_opcode(inst: Instruction) -> str:
    """The opcode with its modifiers."""
    row = inst.row
    texts = {n: f.values[f.get(inst.word)] for n, f in row.modifiers.items()}
    body = row.text.format(**texts)
    return body + _TEX_PHASE[inst.control.reuse & 3] if row.cls.name == "tex" else body


def format_instruction(inst: Instruction) -> str:
    """`@P0 FFMA.FTZ R1, R2.reuse, c[0x0][0x140], -R3`, as the vendor's disassembler prints it."""
    operands = [t for t in (_operand(inst, op) for op in inst.operands) if t is not None]
    guard = str(inst.guard)
    head = f"{guard} " if guard else ""
    return f"{head}{format_opcode(inst)} {', '.join(operands)}".rstrip()
