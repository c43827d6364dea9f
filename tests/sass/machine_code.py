"""What the tests of kernels need to know about machine code: loops, issue slots, register banks, shared memory banks.
Written against the published rules, apart from the assembler, checker and timing model that apply the same rules."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from maxdnn.build.cubins import cubin
from maxdnn.build.interface import KernelSpec
from maxdnn.cubin import CubinKernel, read
from maxdnn.emulator import VirtualGpu
from maxdnn.emulator.trace import WarpTrace
from maxdnn.isa import Instruction
from maxdnn.planning.plan import Launch, Plan
from maxdnn.runtime.devices.protocol import Texture


def built(spec: KernelSpec, arch: str = "sm_52") -> CubinKernel:
    return read(cubin(spec.source.removesuffix(".sass"), arch)).kernels[spec.name]


def loops(kernel: CubinKernel) -> list[Sequence[Instruction]]:
    """Instructions between each backward branch's target and the branch, the final self-branch left out."""
    code = kernel.instructions
    place = {inst.address: i for i, inst in enumerate(code)}
    found = []
    for i, inst in enumerate(code):
        if inst.opcode == "BRA" and inst["target"].value < inst.address:
            target = inst["target"].value
            found.append(code[place.get(target, place.get(target + 8)):i + 1])  # may name Maxwell's control word
    return found


def main_loop(kernel: CubinKernel) -> Sequence[Instruction]:
    """The innermost loop that holds most FFMA."""
    return max(loops(kernel), key=lambda body: (sum(inst.opcode == "FFMA" for inst in body), -len(body)))


def issue_slots(body: Iterable[Instruction]) -> int:
    """Issue slots: a stall of 0 lets the next instruction share the slot."""
    return sum(inst.control.stall > 0 for inst in body)


@dataclass(frozen=True)
class Traced:
    """A launch of a plan of which one block was traced: its warps, and where each array lies (address, bytes)."""

    launch: Launch
    warps: list[WarpTrace]
    places: dict[str, tuple[int, int]]


def trace_block(made: Plan, spec: KernelSpec, block: Callable[[Launch], tuple[int, int, int]] | None = None, *,
                race: bool = False) -> Traced:
    """The last launch of a kernel in a plan, memory as it comes; its first block, if `block` chooses no other. `race`:
    fail where warps race for shared memory."""
    launch = [launch for launch in made.launches if launch.spec is spec][-1]
    gpu = VirtualGpu(race=race)
    module = gpu.load(cubin(spec.source.removesuffix(".sass"), "sm_52"))
    for symbol, content in launch.tables.items():
        module.set_constant(symbol, content)
    sizes = {role: 4 * int(np.prod(size)) for role, size in made.array_shapes().items()}
    sizes |= {name: region.nbytes for name, region in made.workspace.items()}
    buffers = {name: gpu.alloc(size) for name, size in sizes.items()}
    places = {name: (buffer.address, buffer.nbytes) for name, buffer in buffers.items()}
    found: list[WarpTrace] = []
    module.function(spec.name).trace(
        launch.grid, launch.block, launch.arguments(places, {"alpha": np.float32(1)}),
        blocks=[block(launch) if block else (0, 0, 0)], on_warp=found.append,
        textures={name: Texture(*bound) for name, bound in launch.bound(places).items()})
    assert len(found) == spec.threads // 32
    return Traced(launch, found, places)


def path(kernel: CubinKernel, trace: WarpTrace) -> list[Instruction]:
    """What a warp executed."""
    code = kernel.instructions
    return [code[first + i] for first, count in trace.runs.tolist() for i in range(count)]


def accesses(kernel: CubinKernel, trace: WarpTrace) -> list[tuple[Instruction, list[int | None]]]:
    """The memory instructions a warp executed, each with its lanes' addresses (None for a lane that took no part)."""
    memory = [inst for inst in path(kernel, trace) if inst.opcode in ("LDS", "STS", "TLD", "LDC", "LDG", "STG")]
    assert len(memory) == len(trace.addresses)
    return [(inst, [None if a == 2**64 - 1 else a for a in row])
            for inst, row in zip(memory, trace.addresses.tolist(), strict=True)]


class ReuseCache:
    """Two entries for each of three source slots; every operand read takes the least recently used entry of its slot,
    and a read of the same register in the same slot hits if the instruction that last touched the entry had the reuse
    flag. Writes drop the register. [published measurements of register bank and reuse patterns, CuAssembler]"""

    def __init__(self) -> None:
        self.slots: list[list[tuple[int, bool]]] = [[], [], []]

    def read(self, slot: int, register: int, flag: bool) -> bool:
        entries = self.slots[slot]
        hit = (register, True) in entries
        self.slots[slot] = [(register, flag)] + [e for e in entries if e[0] != register][:1]
        return hit

    def forget(self, registers: Iterable[int]) -> None:
        gone = set(registers)
        self.slots = [[e for e in entries if e[0] not in gone] for entries in self.slots]


def bank_conflicts(body: Iterable[Instruction]) -> list[Instruction]:
    """ALU instructions that read two different registers of one bank (register number mod 4), operands served by the
    reuse cache not counted; the cache is empty at the start."""
    cache, found = ReuseCache(), []
    for inst in body:
        if inst.cls.pipe != "alu":
            cache.forget(inst.writes())
            continue
        cold = set()
        for op in inst.operands:
            if op.type == "gpr" and "r" in op.field.access and op.value != 255:
                slot = op.field.slot
                if slot is None or not cache.read(slot, op.value, bool(inst.control.reuse >> slot & 1)):
                    cold.add(op.value)
        cache.forget(inst.writes())
        if len({r % 4 for r in cold}) < len(cold):
            found.append(inst)
    return found


def shared_passes(addresses: Sequence[int | None], nbytes: int) -> int:
    """Passes over the 32 banks that a warp's shared access takes: 32-bit accesses all lanes together, 64-bit by half
    warps, 128-bit by quarter warps, each group as many passes as the busiest bank holds different words."""
    group = {4: 32, 8: 16, 16: 8}[nbytes]
    passes = 0
    for first in range(0, 32, group):
        words = {a // 4 + i for a in addresses[first:first + group] if a is not None for i in range(nbytes // 4)}
        banks = [w % 32 for w in words]
        passes += max((banks.count(b) for b in set(banks)), default=0)
    return passes
