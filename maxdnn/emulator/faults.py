"""Faults as a user reads them: kernel, block, warp, lane, instruction, address, nearest allocation."""

from ..cubin import CubinKernel
from ..errors import DecodeError, EmulationFault
from ..isa import decode
from . import layout
from .memory import GlobalMemory
from .record import Record
from .worker import Worker

_WHAT = {
    "bounds": "access out of bounds",
    "misaligned": "misaligned access",
    "stack overflow": f"more than {layout.STACK_DEPTH} nested divergences or calls",
    "unmatched": "SYNC, BRK, CONT or RET without a matching SSY, PBK, PCNT or CAL",
    "bad target": "jump to an address outside the kernel",
    "undecodable": "word that is no instruction",
    "unsupported": "instruction whose meaning is not emulated",
    "undefined register": "read of a register that was never written",
    "race": "shared-memory race",
    "barrier": "barrier number above 15, or a thread count that is no multiple of 32 or exceeds the block",
    "trap": "trap",
    "inactive lane": "shuffle from a lane that does not execute it",
    "in flight": "register of a tensor-core product that has not been waited for (WARPGROUP.DEPBAR)",
    "unordered": "register of a tensor-core product that was written since the last WARPGROUP.ARRIVE",
    "busy": "write to shared memory that a tensor-core product still reads",
    "arriving": "shared memory to which a copy is under way: a bulk copy whose mbarrier this warp has not waited for, "
                "or one of a warp (LDGSTS) that has not waited for it (DEPBAR.LE)",
    "unfenced": "shared memory written by ordinary stores without FENCE.VIEW.ASYNC behind them",
    "mbarrier": "use of an mbarrier that was not initialised",
    "arrivals": "more arrivals than a phase of the mbarrier expects",
    "together": "a product for which not all lanes of all four warps of a warpgroup are there",
    "registers": "register that the warp has not, after USETMAXREG",
    "copies": "bulk copy whose addresses or size are no multiples of 16, or too many copies under way",
}


def _instruction(kernel: CubinKernel, pc: int) -> str:
    words = kernel.words()
    index = kernel.addressing.index_of(pc)
    if not 0 <= index < len(words) or words[index][0] != pc:
        return f"0x{pc:04x}"
    address, word, control = words[index]
    try:
        return f"0x{pc:04x}: {decode(word, control, address, kernel.table).text()}"
    except DecodeError:
        return f"0x{pc:04x}: word 0x{word:016x}"


def _place(worker: Worker, space: str, address: int, size: int, memory: GlobalMemory) -> str:
    if space in ("global", "generic"):
        return f"{space} address 0x{address:x}, {size} bytes: {memory.describe(address)}"
    if space == "shared":
        return f"shared address 0x{address:x}, {size} bytes: the block has {worker.plan.shared_bytes} bytes"
    if space == "local":
        return f"local address 0x{address:x}, {size} bytes: a thread has {worker.plan.local_bytes} bytes"
    if space == "texture":
        return f"texture handle 0x{address:x} is bound to nothing"
    return f"constant offset 0x{address:x}, {size} bytes: banks have " + ", ".join(
        f"{number}: {bank.nbytes}" for number, bank in enumerate(worker.plan.banks) if bank.nbytes) + " bytes"


def fault_of(worker: Worker, memory: GlobalMemory) -> EmulationFault:
    """The fault that stopped a worker."""
    c, kernel = worker.ctx, worker.plan.compiled.kernel
    kind = layout.FAULT_KINDS[c["fault_kind"]]
    block = c["ctaid_x"], c["ctaid_y"], c["ctaid_z"]
    if kind == "deadlock":
        return EmulationFault(f"{kernel.name}: block {block}: deadlock: {_waiting(worker)}")
    if kind == "budget":
        warp = worker.warp(c["fault_warp"])
        return EmulationFault(
            f"{kernel.name}: block {block}, warp {c['fault_warp']}: more than {worker.plan.budget} instructions, taken "
            f"for an endless loop near {_instruction(kernel, warp['pc'])} (raise the instruction budget if it is none)")
    where = f"{kernel.name}: block {block}, warp {c['fault_warp']}, lane {c['fault_lane']}"
    what = _WHAT.get(kind, kind)
    text = f"{where}: {what} at {_instruction(kernel, c['fault_pc'])}"
    if kind in ("undefined register", "in flight", "unordered"):
        text += f"; the register is R{c['fault_address']}"
    if kind == "inactive lane":
        text += f"; it reads lane {c['fault_address']}"
    if kind in ("busy", "arriving", "unfenced"):
        text += f"; because of {_instruction(kernel, c['fault_other_pc'])}"
    if kind == "registers":
        text += f"; it is R{c['fault_address']}"
    if kind == "race":
        other = "several warps" if c["fault_other"] == 0xFFFFFFFF else f"warp {c['fault_other']}"
        text += f"; with {other} at {_instruction(kernel, c['fault_other_pc'])}, no barrier between"
    if kind in ("bounds", "misaligned", "race", "busy", "arriving", "unfenced", "mbarrier", "arrivals"):
        text += "; " + _place(worker, layout.SPACES[c["fault_space"]], c["fault_address"], c["fault_size"], memory)
    return EmulationFault(text)


def _waiting(worker: Worker) -> str:
    """Which warps wait where."""
    kernel, parts = worker.plan.compiled.kernel, []
    for index in range(worker.warps):
        warp = worker.warp(index)
        if warp["state"] == layout.WAITING:
            count = warp["bar_count"]
            expects = f" for {count} threads" if count else ""
            parts.append(f"warp {index} waits at barrier {warp['bar_id']}{expects} "
                         f"before {_instruction(kernel, warp['pc'])}")
        elif warp["state"] == layout.READY:
            parts.append(f"warp {index} waits{_unit(worker, warp)} at {_instruction(kernel, warp['pc'])}")
        elif warp["state"] == layout.FINISHED:
            parts.append(f"warp {index} has exited")
    return "; ".join(parts[:8]) + (f"; and {len(parts) - 8} more" if len(parts) > 8 else "")


def _unit(worker: Worker, warp: Record) -> str:
    """The mbarrier that a warp waits for, and what that misses."""
    kernel, pc = worker.plan.compiled.kernel, warp["pc"]
    address, word, control = kernel.words()[kernel.addressing.index_of(pc)]
    inst = decode(word, control, address, kernel.table)
    if inst.opcode != "SYNCS":
        return ""
    where = warp["waiting"]
    state = int.from_bytes(worker.shared[where:where + 8].tobytes(), "little")
    missing, more = -(state >> 43) % (1 << 20), state >> 21 & 0x3FFFFF
    more -= (more >> 21) << 22
    arrivals = f"{missing} arrival{'s' * (missing != 1)}"
    return f" for phase {state >> 63} of mbarrier 0x{where:x}, which misses {arrivals} and {more} bytes"
