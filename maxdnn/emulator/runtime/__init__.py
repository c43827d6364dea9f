"""Functions that compiled kernels call, written in LLVM IR and compiled once per host: memory access with its checks,
the divergence stack, atomics, approximations, and the loop that runs blocks and warps. Nothing here depends on a
kernel."""

from llvmlite import ir

from . import (
    atomics,
    convergence,
    flow,
    mbarriers,
    memory,
    mufu,
    proxies,
    races,
    registers,
    rounding,
    scheduler,
    tensor,
    texture,
    warpgroup,
)


def text() -> str:
    """The runtime as one LLVM module."""
    m = ir.Module(name="maxdnn_runtime")
    for part in (memory, texture, flow, convergence, atomics, mufu, races, proxies, tensor, warpgroup, mbarriers,
                 registers, scheduler):
        part.build(m)
    return f"{m}\n{rounding.text()}\n"


def exported() -> list[str]:
    """The names of the functions that kernels and Python may call."""
    accesses = [f"rt_{what}_{space}_{kind}" for what in ("load", "store")
                for space in memory.SPACE_ADDRESS for kind in memory.KINDS]
    return [*accesses, *(f"rt_load_const_{kind}" for kind in memory.KINDS), *atomics.names(), *mufu.names(),
            *rounding.names(), *convergence.NAMES, *proxies.NAMES, *warpgroup.NAMES, *mbarriers.NAMES, *registers.NAMES,
            "rt_race", "rt_texture", "rt_texel_addresses", "rt_shuffle", "rt_fault", "rt_fault_mask",
            "rt_check_barrier", "rt_push", "rt_leave", "rt_indirect", "rt_run"]
