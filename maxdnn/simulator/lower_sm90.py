"""Decoded instructions of sm_90 to the flat table of the compiled engine (columns.py), as lower.py does for Maxwell."""

import numpy as np

from ..isa import RZ, Instruction
from . import columns as c
from .machine import CONSTANT_LINE, INSTRUCTION_LINE, Machine

_UNITS = {"alu": c.U_ALU, "cs2r": c.U_ALU, "ffma": c.U_NONE, "imad": c.U_HEAVY, "wide": c.U_HEAVY, "half": c.U_HEAVY,
          "mma16": c.U_MMA16, "fp64": c.U_DOUBLE, "umove": c.U_UNIFORM, "ualu": c.U_UNIFORM, "r2ur": c.U_UNIFORM,
          "xu": c.U_XU}
_ARITHMETIC = ("alu", "cs2r", "ffma", "imad", "wide", "half", "mma16", "fp64")
_FLOWS = {"barrier": c.K_BAR, "end": c.K_EXIT}
_WAITS = {"scoreboards": c.K_DEPBAR, "memory": c.K_MEMBAR}


def memory_kind(inst: Instruction) -> int | None:
    """K_SHARED, K_GLOBAL or K_LDC for an instruction that has a row of addresses in a trace, else None."""
    if inst.access is None or inst.access.does == "exchange":
        return None
    if inst.access.spaces == {"shared"}:
        return c.K_SHARED
    if inst.touches("constant"):
        return c.K_LDC if any(op.type == "cbank_indexed" for op in inst.operands) else None
    return c.K_GLOBAL


def _kind(inst: Instruction) -> int:
    memory = memory_kind(inst)
    if memory is not None:
        return memory
    if inst.cls.name == "shfl":
        return c.K_SHUFFLE
    if inst.waits:
        return _WAITS[inst.waits]
    if inst.flow is not None and inst.flow.does in _FLOWS:
        return _FLOWS[inst.flow.does]
    if inst.cls.name in ("branch", "nop"):
        return c.K_FLOW
    return c.K_ALU if inst.cls.name in _ARITHMETIC else c.K_UNIT


def spelling(inst: Instruction, kind: int, nbytes: int) -> str:
    """What the tables of a preset call an instruction: its opcode, and the bits a lane moves if they are more than
    32."""
    memory = kind in (c.K_SHARED, c.K_GLOBAL, c.K_LDC)
    return inst.opcode + (f".{8 * nbytes}" if memory and nbytes > 4 else "")


def _figure(table: dict[str, int], inst: Instruction, name: str) -> int:
    """Of the instruction by its name, its opcode, its class."""
    for key in (name, inst.opcode, inst.cls.name):
        if key in table:
            return table[key]
    return 0


def _operands(inst: Instruction, row: np.ndarray) -> None:
    """Registers read through the banks: R0..R2 those with a reuse slot; the upper ones of pairs as reads per bank."""
    row[c.I_LATE] = 0
    for op in inst.operands:
        if op.type == "gpr" and "r" in op.field.access and op.value != RZ:
            if op.field.slot is not None:
                row[c.I_R0 + op.field.slot] = op.value
            for more in range(1 if op.field.slot is not None else 0, op.regs):
                row[c.I_LATE] += 1 << (op.value + more & 1) * 8


def row_sm90(inst: Instruction, machine: Machine, nbytes: int) -> np.ndarray:
    """The engine's row of an instruction. `nbytes`: what each lane of a memory instruction moves."""
    row = np.full(c.I_SIZE, -1, np.int64)
    kind = row[c.I_KIND] = _kind(inst)
    control, name = inst.control, spelling(inst, kind, nbytes)
    row[c.I_STALL], row[c.I_YIELD] = control.stall, control.yield_hint
    row[c.I_WB] = -1 if control.write_barrier is None else control.write_barrier
    row[c.I_RB] = -1 if control.read_barrier is None else control.read_barrier
    row[c.I_WAIT], row[c.I_REUSE] = control.wait_mask, control.reuse & 7
    row[c.I_ALU] = kind == c.K_ALU
    row[c.I_MEM] = kind in (c.K_SHARED, c.K_SHUFFLE, c.K_GLOBAL, c.K_LDC) or inst.cls.name in ("ldc", "sreg")
    row[c.I_UNIT] = c.U_NONE if row[c.I_MEM] else _UNITS.get(inst.cls.name, c.U_NONE)
    row[c.I_INTERVAL] = _figure(machine["issue_cycles"], inst, name)
    row[c.I_RESULT] = _figure(machine["result_cycles"], inst, name)
    row[c.I_DN] = _figure(machine["read_cycles"], inst, name)
    row[c.I_ISSUED] = row[c.I_DUAL] = row[c.I_SERVICE] = row[c.I_DOUBLES] = 0
    row[c.I_LATEBY] = _figure(machine["least_cycles"], inst, name)
    _operands(inst, row)
    row[c.I_X0] = 0 if row[c.I_ALU] else len(inst.reads()) + _figure(machine["extra_reads"], inst, name)
    row[c.I_LINE] = inst.address // INSTRUCTION_LINE
    access = inst.access
    row[c.I_STORE] = access is not None and access.only_writes
    row[c.I_ATOMIC] = access is not None and access.atomic
    strong = "STRONG" in inst.text().split()[0 if not inst.text().startswith("@") else 1]
    row[c.I_CACHED] = kind == c.K_GLOBAL and access is not None and access.does == "load" and not strong
    return row


def constant_operand(inst: Instruction) -> int:
    """The line of the constant that an arithmetic instruction reads, -1 if it reads none."""
    for op in inst.operands:
        if op.type in ("cbank", "cbank36") and op.bank is not None:
            return (op.bank << 10) + op.value // CONSTANT_LINE
    return -1
