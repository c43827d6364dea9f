"""Decoded instructions of sm_90 to the flat table of the compiled engine (columns.py), as lower.py does for Maxwell."""

from collections.abc import Sequence

import numpy as np

from ..errors import SimulationError
from ..isa import RZ, Instruction
from ..isa.operands import access_bytes
from ..isa.text import format_opcode
from . import columns as c
from .machine import CONSTANT_LINE, INSTRUCTION_LINE, Machine

_UNITS = {"alu": c.U_ALU, "cs2r": c.U_ALU, "ffma": c.U_NONE, "imad": c.U_HEAVY, "wide": c.U_HEAVY, "half": c.U_BOTH,
          "mma16": c.U_MMA16, "fp64": c.U_DOUBLE, "umove": c.U_UNIFORM, "ualu": c.U_UNIFORM, "r2ur": c.U_UNIFORM,
          "xu": c.U_XU}
_ARITHMETIC = ("alu", "cs2r", "ffma", "imad", "wide", "half", "mma16", "fp64")
_UNKNOWN = {"texture": "textures"}
_OTHERS = ("HMMA", "IMMA", "DMMA", "LDSM", "STSM", "UBLKPF", "UBLKRED", "UCGABAR", "ARRIVES")
_BESIDE = {"LDGSTS": c.K_COPY, "LDGDEPBAR": c.K_COMMIT, "SYNCS": c.K_MBARRIER, "UBLKCP": c.K_BULK,
           "HGMMA": c.K_PRODUCT, "FENCE": c.K_FENCE}
_ON_MBARRIERS = {"EXCH": c.M_BEGIN, "ARRIVE": c.M_ARRIVE, "TRYWAIT": c.M_WAIT, "PHASECHK": c.M_TEST}
_PAIR = 8  # bytes of two registers of a lane
_OPERAND_BYTES = 32  # of a row of an operand of HGMMA: 16 values of two bytes, or 8 of four
_FLOWS = {"barrier": c.K_BAR, "end": c.K_EXIT}
_WAITS = {"scoreboards": c.K_DEPBAR, "memory": c.K_MEMBAR}


def memory_kind(inst: Instruction) -> int | None:
    """The kind of an instruction that has a row of addresses in a trace, else None."""
    if inst.opcode in ("LDGSTS", "UBLKCP") or on_mbarrier(inst) is not None:
        return _BESIDE[inst.opcode]
    if inst.access is None or inst.access.does == "exchange":
        return None
    if inst.access.spaces == {"shared"}:
        return c.K_SHARED
    if inst.touches("constant"):
        return c.K_LDC if any(op.type == "cbank_indexed" for op in inst.operands) else None
    return c.K_GLOBAL


def moved_bytes(inst: Instruction) -> int:
    """Bytes that each lane of a memory instruction moves."""
    narrow = next((n for n, names in ((1, {"U8", "S8"}), (2, {"U16", "S16"})) if names & words(inst)), None)
    return narrow or access_bytes(inst)


def counts(inst: Instruction) -> bool:
    """Whether lanes at one word of shared memory are counted and added as one (probes "ATOMS INC, the same", "pairs the
    same")."""
    return inst.opcode == "ATOMS" and "POPC" in words(inst)


def on_mbarrier(inst: Instruction) -> int | None:
    """What an instruction does to an mbarrier; None for nothing, or for what leaves nothing to wait for."""
    how = words(inst) if inst.opcode == "SYNCS" else ()
    return next((what for name, what in _ON_MBARRIERS.items() if name in how), None)


def works_beside(instructions: Sequence[Instruction]) -> bool:
    """Whether warps of a block meet at mbarriers. Such blocks take several tiles, a grid apart, and are
    few and unlike."""
    return any(inst.opcode == "SYNCS" for inst in instructions)


def has_atomics(instructions: Sequence[Instruction]) -> bool:
    """Whether any changes memory in L2."""
    every = (inst.access for inst in instructions if inst.access is not None)
    return any(access.atomic and access.spaces != {"shared"} for access in every)


def has_products(instructions: Sequence[Instruction]) -> bool:
    """Whether there are products of tensor cores."""
    return any(inst.opcode == "HGMMA" for inst in instructions)


def _kind(inst: Instruction) -> int:
    memory = memory_kind(inst)
    if memory is not None:
        return memory
    if inst.opcode in _BESIDE and inst.opcode != "SYNCS":
        return _BESIDE[inst.opcode]
    if inst.opcode == "WARPGROUP" and "DEPBAR" in words(inst):
        return c.K_PRODUCTS
    if inst.cls.name == "shfl":
        return c.K_SHUFFLE
    if inst.waits:  # a fence of a block's own waits for nothing that is on its way to L2: probe "8 STG, then MEMBAR"
        return c.K_FENCE if "CTA" in words(inst) else _WAITS[inst.waits]
    if inst.flow is not None and inst.flow.does in _FLOWS:
        return _FLOWS[inst.flow.does]
    if inst.cls.name in ("branch", "nop"):
        return c.K_FLOW
    return c.K_ALU if inst.cls.name in _ARITHMETIC else c.K_UNIT


def spelling(inst: Instruction, kind: int, nbytes: int) -> str:
    """What the tables of a preset call an instruction: its opcode, how it is atomic if that matters, and the bits a
    lane moves if they are more than 32."""
    memory = kind in (c.K_SHARED, c.K_GLOBAL, c.K_LDC)
    how = "".join(f".{word}" for word in ("CAST", "POPC") if inst.opcode == "ATOMS" and word in words(inst))
    return inst.opcode + how + (f".{8 * nbytes}" if memory and nbytes > 4 else "")


# The instruction behind a product of 64 bits comes so many cycles later than its stall count says (probes "IMAD.WIDE,
# then ..."), and a result is in the register file so many after its instruction has issued, the upper half of such a
# product later by as many.
_WIDE_MORE, _WRITTEN = 2, 7

_THROUGH_QUEUE = (c.K_SHARED, c.K_SHUFFLE, c.K_GLOBAL, c.K_LDC, c.K_COPY, c.K_MBARRIER, c.K_BULK, c.K_FENCE)


def words(inst: Instruction) -> frozenset[str]:
    """The words of an opcode behind its first."""
    return frozenset(format_opcode(inst).split(".")[1:])


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
    """The engine's row of an instruction. `nbytes`: what each lane of a memory instruction moves. Raises
    SimulationError for one whose clocks the model does not know."""
    if inst.cls.name in _UNKNOWN or inst.opcode.startswith(_OTHERS):
        raise SimulationError(f"{inst.opcode} at 0x{inst.address:04x}: the model of sm_90 does not know the clocks of "
                              f"{_UNKNOWN.get(inst.cls.name, 'tensor cores')}")
    row = np.full(c.I_SIZE, -1, np.int64)
    kind = row[c.I_KIND] = _kind(inst)
    control, name = inst.control, spelling(inst, kind, nbytes)
    row[c.I_STALL], row[c.I_YIELD] = control.stall, control.yield_hint
    row[c.I_WB] = -1 if control.write_barrier is None else control.write_barrier
    row[c.I_RB] = -1 if control.read_barrier is None else control.read_barrier
    row[c.I_WAIT], row[c.I_REUSE] = control.wait_mask, control.reuse & 7
    row[c.I_ALU] = kind == c.K_ALU
    row[c.I_MEM] = kind in _THROUGH_QUEUE or inst.cls.name in ("ldc", "sreg")
    row[c.I_UNIT] = c.U_NONE if row[c.I_MEM] else _UNITS.get(inst.cls.name, c.U_NONE)
    row[c.I_INTERVAL] = _figure(machine["issue_cycles"], inst, name)
    row[c.I_RESULT] = _figure(machine["result_cycles"], inst, name)
    row[c.I_DN] = _figure(machine["read_cycles"], inst, name)
    row[c.I_ISSUED] = row[c.I_DUAL] = row[c.I_SERVICE] = row[c.I_DOUBLES] = 0
    row[c.I_LATEBY] = bool(inst.writes()) if row[c.I_ALU] else _figure(machine["least_cycles"], inst, name)
    if inst.opcode in ("BSSY", "BSYNC"):
        row[c.I_UNIT] = c.U_MEET
    if inst.opcode == "BSYNC":
        row[c.I_STALL], row[c.I_SERVICE] = max(control.stall, machine["meet_cycles"]), machine["part_cycles"]
    if inst.cls.name == "ldc" and kind == c.K_UNIT:
        row[c.I_SERVICE] = constant_operand(inst) + 1
    elif inst.cls.name == "sreg":
        row[c.I_X1] = 1
    elif inst.cls.name == "wide":
        row[c.I_STALL] = control.stall + _WIDE_MORE
        row[c.I_SERVICE] = 0 if "HI" in words(inst) else row[c.I_INTERVAL]
    elif inst.opcode == "RET":
        row[c.I_SERVICE] = machine["return_cycles"]
    elif inst.opcode == "MOV":  # goes beside IMAD.WIDE: probe "mix 1xMOV 1xIMAD.WIDE"
        row[c.I_X1] = 1
    _operands(inst, row)
    row[c.I_X0] = 0 if row[c.I_ALU] else len(inst.reads()) + _figure(machine["extra_reads"], inst, name)
    row[c.I_LINE] = inst.address // INSTRUCTION_LINE
    access = inst.access
    row[c.I_STORE] = access is not None and access.only_writes
    row[c.I_ATOMIC] = access is not None and access.atomic and (c.FLOATS if "RN" in words(inst) else 1)
    strong = "STRONG" in words(inst)
    row[c.I_CACHED] = kind == c.K_GLOBAL and access is not None and access.does == "load" and not strong
    if kind == c.K_SHARED and not row[c.I_STORE] and not row[c.I_ATOMIC]:
        row[c.I_SERVICE] = nbytes // _PAIR
    if inst.opcode in _BESIDE or inst.cls.name in ("wgmma", "async"):
        _beside(inst, row, machine)
    return row


def _beside(inst: Instruction, row: np.ndarray, machine: Machine) -> None:
    """Cells of what works beside warps. Of a product: the cycles of a tensor core, the bytes of A and of both operands
    that a warp's quarter asks of shared memory, whether it closes a group."""
    kind = row[c.I_KIND]
    row[c.I_STORE] = row[c.I_ATOMIC] = 0
    if row[c.I_MEM]:  # two cycles for each register, as all memory instructions take
        row[c.I_INTERVAL] = 2 * sum(op.regs for op in inst.operands if op.type.startswith("gpr") and op.value != RZ)
    if kind == c.K_MBARRIER:
        row[c.I_SERVICE], row[c.I_RESULT] = on_mbarrier(inst), machine["mbarrier_latency"]
    elif kind == c.K_COPY:
        row[c.I_CACHED] = "BYPASS" not in words(inst)
    elif kind == c.K_PRODUCT:
        row[c.I_X0] = 0
        columns, from_memory = inst["d"].regs * 2, inst.operand("b") is None
        row[c.I_INTERVAL] = max(columns // machine["tensor_columns"], machine["tensor_least"])
        row[c.I_X1] = _OPERAND_BYTES * (64 if from_memory else 0) // 4
        row[c.I_SERVICE] = row[c.I_X1] + _OPERAND_BYTES * columns // 4
        row[c.I_DN] = inst["gsb"].label != ""
    elif kind == c.K_PRODUCTS:
        row[c.I_SERVICE] = inst["n"].value
    elif kind == c.K_FENCE:
        row[c.I_RESULT] = machine["fence_cycles"] - machine["memory_queue_cycles"]
    elif kind == c.K_UNIT:
        row[c.I_RESULT] = 1


def wait_for_factors(instructions: Sequence[Instruction], rows: np.ndarray) -> None:
    """A product of 64 bits has its factors from the register file alone, not on their way there: what is before it
    stalls for as long (probes "..., after 4 read by IMAD.HI")."""
    for n, inst in enumerate(instructions):
        if inst.cls.name != "wide":
            continue
        factors, passed = {int(r) for r in rows[n, c.I_R0:c.I_R0 + 2]} - {-1}, 0
        for before in range(n - 1, -1, -1):
            made, row = instructions[before], rows[before]
            if row[c.I_KIND] in (c.K_FLOW, c.K_EXIT) or passed + row[c.I_STALL] >= _WRITTEN + _WIDE_MORE:
                break
            passed += row[c.I_STALL]
            if factors & set(made.writes()) and row[c.I_WB] < 0:
                upper = made.cls.name == "wide" and "HI" in words(made)
                rows[n - 1, c.I_STALL] += max(0, _WRITTEN + _WIDE_MORE * upper - passed)
                break


def constant_operand(inst: Instruction) -> int:
    """The line of the constant that an arithmetic instruction reads, -1 if it reads none."""
    for op in inst.operands:
        if op.type in ("cbank", "cbank36") and op.bank is not None:
            return (op.bank << 10) + op.value // CONSTANT_LINE
    return -1
