"""Decoded instructions to the flat table of the compiled engine: one row per instruction (columns.py)."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..isa import RZ, Instruction
from ..isa.operands import access_bytes, barrier_kind
from ..semantics import spins
from . import columns as c
from . import lower_sm90
from .access import ADDS, MERGES, OF_SM90, PACKS, SPINS, TWICE
from .machine import CONSTANT_LINE, INSTRUCTION_LINE, REGISTER_BANKS, Machine

_FLOWS = {"barrier": c.K_BAR, "end": c.K_EXIT}
_WAITS = {"scoreboards": c.K_DEPBAR, "memory": c.K_MEMBAR}
_PIPE_UNIT = {"sfu": c.U_SFU, "fp64": c.U_FP64}


def memory_kind(inst: Instruction) -> int | None:
    """K_SHARED, K_GLOBAL, K_TEX or K_LDC for an instruction that has a row of addresses in a trace, else None."""
    if inst.access is not None and inst.access.spaces == {"shared"}:
        return c.K_SHARED
    if inst.touches("constant"):
        return c.K_LDC
    if inst.cls.name == "tex":
        return c.K_TEX
    return c.K_GLOBAL if inst.cls.name == "mem" else None


def _atomic(inst: Instruction) -> bool:
    return inst.access is not None and inst.access.atomic


def _kind(inst: Instruction) -> int:
    memory = memory_kind(inst)
    if memory is not None:
        return memory
    if inst.access is not None and inst.access.does == "exchange":
        return c.K_SHUFFLE
    if inst.waits:
        return _WAITS[inst.waits]
    if inst.flow is not None and inst.flow.does in _FLOWS:
        return _FLOWS[inst.flow.does]
    if inst.cls.name == "flow":
        return c.K_FLOW
    return c.K_ALU if inst.cls.pipe == "alu" and inst.cls.latency == "fixed" else c.K_UNIT


def _unit(inst: Instruction) -> int:
    if inst.cls.name == "imul":
        return c.U_IMUL
    if inst.cls.pipe == "alu" and inst.cls.issue_cycles > 1:
        return c.U_HALF
    return _PIPE_UNIT.get(inst.cls.pipe, c.U_NONE)


def _stall(inst: Instruction, machine: Machine) -> int:
    stall = inst.control.stall
    return stall if inst.control.counts_cycles else machine["unyielded_stall"][str(stall)]


def _operands(inst: Instruction, row: np.ndarray) -> None:
    """Registers read through the banks: R0..R2 those with a reuse slot, X0, X1 others of an ALU instruction."""
    extra = [c.I_X0, c.I_X1]
    for op in inst.operands:
        if op.type != "gpr" or "r" not in op.field.access or op.value == RZ:
            continue
        if op.field.slot is not None:
            row[c.I_R0 + op.field.slot] = op.value
        elif row[c.I_KIND] == c.K_ALU and extra:
            row[extra.pop(0)] = op.value


def _late_operands(inst: Instruction, row: np.ndarray) -> None:
    """Registers that memory, texture and special-function instructions ask the banks for some cycles after issue, as
    reads per bank, eight bits each."""
    row[c.I_LATEBY] = inst.cls.read_cycles
    row[c.I_LATE] = sum(1 << register % REGISTER_BANKS * 8 for register in inst.reads()) if inst.cls.read_cycles else 0


def _row(inst: Instruction, machine: Machine) -> np.ndarray:
    row = np.full(c.I_SIZE, -1, np.int64)
    kind = row[c.I_KIND] = _kind(inst)
    control = inst.control
    row[c.I_STALL] = _stall(inst, machine)
    row[c.I_YIELD] = control.yield_hint
    row[c.I_WB] = -1 if control.write_barrier is None else control.write_barrier
    row[c.I_RB] = -1 if control.read_barrier is None else control.read_barrier
    row[c.I_WAIT] = control.wait_mask
    row[c.I_UNIT], row[c.I_INTERVAL] = _unit(inst), inst.cls.issue_cycles
    row[c.I_RESULT] = inst.cls.result_cycles
    _operands(inst, row)
    _late_operands(inst, row)
    row[c.I_REUSE] = 0 if inst.cls.name == "tex" else control.reuse & 7
    row[c.I_ISSUED] = row[c.I_DUAL] = row[c.I_CACHED] = 0
    row[c.I_ALU] = kind == c.K_ALU
    row[c.I_MEM] = kind in (c.K_SHARED, c.K_SHUFFLE, c.K_GLOBAL, c.K_TEX, c.K_LDC)
    row[c.I_LINE] = inst.address // INSTRUCTION_LINE
    row[c.I_STORE] = inst.access is not None and inst.access.only_writes
    row[c.I_SERVICE] = 0
    row[c.I_DOUBLES] = int(control.stall == 0)
    if kind == c.K_TEX:
        mask = inst.operand("mask")
        channels = mask.value.bit_count() if mask is not None else 4
        row[c.I_SERVICE] = machine["texture_cycles_per_channel"] * (4 if channels > 2 else max(channels, 1))
    if kind == c.K_GLOBAL:
        local = inst.access is not None and inst.access.spaces == {"local"} and inst.access.does == "load"
        row[c.I_CACHED] = inst.mods.get("cache", "") == "CI" or local
    if kind == c.K_TEX:
        row[c.I_CACHED] = 1
    if kind == c.K_DEPBAR:
        _depbar(inst, row)
    if kind == c.K_BAR:
        _barrier(inst, row)
    row[c.I_ATOMIC] = _atomic(inst)
    for op in inst.operands:
        if op.type in ("cbank", "cbank36"):
            row[c.I_CLINE] = (op.bank << 10) + op.value // CONSTANT_LINE
    return row


def _depbar(inst: Instruction, row: np.ndarray) -> None:
    """The scoreboards of DEPBAR's mask are waited for like a control code's, its own until n operations are left."""
    mask, n, board = (inst.operand(name) for name in ("mask", "n", "sb"))
    row[c.I_WAIT] |= mask.value if mask is not None else 0
    if n is not None and board is not None:
        row[c.I_WAIT] |= c.WAIT_COUNTED
        row[c.I_SERVICE] = n.value * 8 + board.value


def _barrier(inst: Instruction, row: np.ndarray) -> None:
    """Barrier number and the warps it waits for; in a register neither is known, and barrier 0 and all are taken."""
    number, threads = inst.operand("bar"), inst.operand("cnt")
    if number is not None and number.type == "uimm":
        row[c.I_SERVICE] = number.value % c.BARRIERS
    if threads is not None and threads.type == "uimm":
        row[c.I_SERVICE] += c.BARRIERS * -(-threads.value // 32)
    row[c.I_STORE] = barrier_kind(inst) == "ARV"


def _writes_that_matter(instructions: Sequence[Instruction], rows: np.ndarray) -> None:
    """Keep a destination only when some instruction holds one of its registers in the reuse cache: writes drop it."""
    held = {int(row[c.I_R0 + s]) for row in rows for s in range(3) if row[c.I_REUSE] >> s & 1}
    for inst, row in zip(instructions, rows, strict=True):
        written = sorted(inst.writes() & held)
        if written:
            row[c.I_D0], row[c.I_DN] = written[0], written[-1] - written[0] + 1


def _bursts(rows: np.ndarray) -> None:
    """How many instructions from here on need nothing but an issue slot and operand fetch, one per cycle: the engine
    takes them in one go."""
    plain = ((rows[:, c.I_ALU] == 1) & (rows[:, c.I_UNIT] <= 0) & (rows[:, c.I_CLINE] < 0) & (rows[:, c.I_STALL] == 1)
             & (rows[:, c.I_YIELD] == 0))
    rows[:, c.I_BURST] = plain
    for here, after in zip(rows[-2::-1], rows[:0:-1], strict=True):
        if here[c.I_BURST] and after[c.I_WAIT] == 0 and here[c.I_LINE] == after[c.I_LINE]:
            here[c.I_BURST] += after[c.I_BURST]


def _row_sm90(inst: Instruction, machine: Machine) -> np.ndarray:
    row = lower_sm90.row_sm90(inst, machine, access_bytes(inst))
    if row[c.I_KIND] == c.K_DEPBAR:
        _depbar(inst, row)
    if row[c.I_KIND] == c.K_BAR:
        _barrier(inst, row)
    row[c.I_CLINE] = -1 if row[c.I_MEM] else lower_sm90.constant_operand(inst)
    return row


def local_bytes(instructions: tuple[Instruction, ...]) -> np.ndarray:
    """For each instruction the bytes of local memory that a lane moves, of sm_90; 0 for others."""
    if not of_sm90(instructions):
        return np.zeros(len(instructions), np.int64)
    return np.array([lower_sm90.moved_bytes(i) if i.access is not None and i.access.spaces == {"local"} else 0
                     for i in instructions], np.int64)


@functools.lru_cache(maxsize=8)
def _accesses(same: "_Same") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    kind_of = lower_sm90.memory_kind if of_sm90(same.it) else memory_kind
    kinds = [k if (k := kind_of(i)) is not None else -1 for i in same.it]
    moved = lower_sm90.moved_bytes if of_sm90(same.it) else access_bytes
    return (np.array(kinds, np.int64), np.array([moved(i) for i in same.it], np.int64),
            np.array([_atomic(i) and not lower_sm90.counts(i) for i in same.it], np.int64))


def accesses(instructions: tuple[Instruction, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each instruction the kind of its memory access, -1 for none, the bytes each lane moves, and whether it is
    atomic."""
    return _accesses(_Same(instructions))


def merge_rules(instructions: tuple[Instruction, ...], pair_merge: bool) -> np.ndarray:
    """For each instruction the rules its addresses are reduced by (access.py). Stores of sm_90 do not merge: measured,
    the probes "shared STS.64 all the same" and "shared STS.128 all the same"."""
    if not of_sm90(instructions):
        return np.full(len(instructions), MERGES if pair_merge else 0, np.int64)
    stores = np.array([i.access is not None and i.access.only_writes for i in instructions])
    arrivals = np.array([lower_sm90.on_mbarrier(i) == c.M_ARRIVE for i in instructions])
    swaps = np.array([i.operand("c") is not None for i in instructions])
    tries = np.array([spins(i) for i in instructions])
    return (np.where(stores | (not pair_merge), OF_SM90, OF_SM90 | MERGES) | ADDS * arrivals
            | PACKS * stores | TWICE * swaps | SPINS * tries).astype(np.int64)


class _Same:
    """A key that compares by identity: the launches of a plan share their kernel's instructions."""

    def __init__(self, it: Any) -> None:
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.it is self.it


def of_sm90(instructions: Sequence[Instruction]) -> bool:
    """Whether code is of words of 128 bits, as since sm_80."""
    return bool(instructions) and instructions[0].addressing.word == 16


def lower(instructions: tuple[Instruction, ...], machine: Machine) -> np.ndarray:
    """The engine's table of a kernel: (n, I_SIZE) int64."""
    return _lower(_Same(instructions), _Same(machine)).copy()


@functools.lru_cache(maxsize=8)
def _lower(same: _Same, on: _Same) -> np.ndarray:
    instructions, machine = same.it, on.it
    if of_sm90(instructions):
        rows = np.stack([_row_sm90(inst, machine) for inst in instructions])
        lower_sm90.wait_for_factors(instructions, rows)
    else:
        rows = np.stack([_row(inst, machine) for inst in instructions])
        _writes_that_matter(instructions, rows)
    _bursts(rows)
    return rows

