"""How many blocks fit on an SM: the vendor's allocation rules (CUDA C Programming Guide, occupancy calculator)."""

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import SimulationError
from .machine import Machine


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks and warps resident on one SM, the resource that sets the limit, how many blocks each resource would allow,
    and what a block takes: threads, registers of a thread, bytes of shared memory."""

    blocks: int
    warps: int
    limiter: str
    limits: Mapping[str, int]
    threads: int
    registers: int
    shared_bytes: int


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _limits(machine: Machine, registers: int, shared_bytes: int, warps: int) -> dict[str, int]:
    per_warp = _round_up(registers * 32, machine["register_unit"])
    limits = {"blocks": machine["blocks_per_sm"], "warps": machine["warps_per_sm"] // warps}
    if per_warp:
        fit = machine["registers_per_sm"] // per_warp // machine["warp_unit"] * machine["warp_unit"]
        limits["registers"] = fit // warps
    taken = _round_up(shared_bytes + machine.of_any["shared_reserved"], machine["shared_unit"])
    if taken:
        limits["shared memory"] = machine["shared_per_sm"] // taken
    return limits


def l1_kib(machine: Machine, blocks: int, shared_bytes: int) -> int:
    """KiB of L1 that are left on sm_90 beside the shared memory of so many blocks."""
    taken = blocks * _round_up(shared_bytes + machine["shared_reserved"], machine["shared_unit"])
    carved = min(x for x in machine["shared_carveouts"].values() if 1024 * x >= min(taken, machine["shared_per_sm"]))
    return int(machine["l1_kib"]) - int(carved)


def occupancy(machine: Machine, registers: int, shared_bytes: int, threads: int) -> Occupancy:
    """Residency of blocks of `threads` threads with `registers` registers per thread and `shared_bytes` per block.
    Raises SimulationError when not even one block fits, saying why."""
    if not 1 <= threads <= machine["threads_per_block"]:
        raise SimulationError(f"threads per block must be 1..{machine['threads_per_block']} (got {threads})")
    if not 0 <= registers <= machine["registers_per_thread"]:
        raise SimulationError(f"registers must be 0..{machine['registers_per_thread']} per thread (got {registers})")
    if not 0 <= shared_bytes <= machine["shared_per_block"]:
        raise SimulationError(f"shared memory must be 0..{machine['shared_per_block']} bytes (got {shared_bytes})")
    warps = -(-threads // 32)
    limits = _limits(machine, registers, shared_bytes, warps)
    block_registers = _round_up(warps, machine["warp_unit"]) * _round_up(registers * 32, machine["register_unit"])
    if block_registers > machine["registers_per_block"]:
        limits["registers"] = 0
    limiter = min(limits, key=lambda k: limits[k])
    if limits[limiter] == 0:
        raise SimulationError(f"a block of {threads} threads with {registers} registers and {shared_bytes} bytes of "
                              f"shared memory does not fit on {machine.name}: too many {limiter}")
    return Occupancy(limits[limiter], limits[limiter] * warps, limiter, limits, threads, registers, shared_bytes)
