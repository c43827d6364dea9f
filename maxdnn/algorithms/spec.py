"""What a family is to the rest of the library."""

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass

import numpy as np

from ..build.interface import KernelSpec
from ..planning.cost import Chip
from ..planning.plan import FLOAT_BYTES, Launch, Part, Plan, Value
from ..problem.problem import Problem

Candidates = Mapping[str, Callable[[], Plan]]
Memory = MutableMapping[str, np.ndarray]  # name -> flat float32 array


@dataclass(frozen=True, eq=False)
class Family:
    """One way to compute problems of some kinds.

    `kernels`: its own; a plan may use those of other families too. `kinds`: of the problems it may serve.
    `unsupported_reason`: for a problem of those kinds, what of it is not served, in words; None if all is.
    `candidates`: a plan, made when called, for each way to serve a problem on a chip, by the name a user may ask for;
    making one may raise ShapeError, for a limit. `reference`: what a launch of one of the kernels does to memory, in
    NumPy by the kernel's documentation alone, with the scalars of a call: tests hold plans and kernels to it.
    `algorithm`: what users ask for, "direct", "winograd" or "fft". `activations`: what its kernels apply to a result;
    others are a launch behind its plans (memory_ops/activation.py). `timed`: whether a card confirmed
    its estimates; if none did, it is taken by name, or where `maxdnn.tune` measured it, but for Maxwell's chips."""

    name: str
    kernels: tuple[KernelSpec, ...]
    reference: Callable[[Launch, Memory, Mapping[str, float]], None]
    kinds: tuple[str, ...] = ()
    unsupported_reason: Callable[[Problem], str | None] = lambda problem: None
    candidates: Callable[[Problem, Chip], Candidates] = lambda problem, chip: {}
    algorithm: str = "direct"
    activations: tuple[str, ...] = ("relu",)
    timed: bool = True


@dataclass(frozen=True)
class TileKernel(KernelSpec):
    """A kernel whose blocks compute tiles. `tile`: what a block covers along the two axes of the product (images or
    pixels, filters). `slots`: issue slots of a warp for one loop iteration and for all the rest. `translated`: of the
    loop as ptxas 12.9 makes it of the translation for sm_90."""

    tile: tuple[int, int]
    slots: tuple[int, int]
    translated: int

    @property
    def warps(self) -> int:
        """Of a block."""
        return self.threads // 32


def strided_reason(problem: Problem) -> str | None:
    """For `unsupported_reason`: what no kernel of today walks over."""
    return "arrays that are not C-contiguous" if any(o.strides for o in problem.operands) else None


MOST_GROUPS = 4096


def groups_reason(problem: Problem) -> str | None:
    """For `unsupported_reason` of families with a launch for each group, which takes longer to plan than to run."""
    groups = problem.shape.groups
    return f"{groups} groups, more than {MOST_GROUPS}" if groups > MOST_GROUPS else None


LATENCY = 9000
"""Clocks of a convolution's launch that issue nothing: instructions and first texels from DRAM, last stores; simulated
on gm204."""


def seen(memory: Memory, place: Value) -> np.ndarray:
    """For references: what a kernel sees from a pointer on."""
    if isinstance(place, Part):
        return memory[place.name][place.offset // FLOAT_BYTES:]
    return memory[str(place)]


def signed(launch: Launch, *names: str) -> dict[str, int]:
    """For references: parameters of 32 bits as what they are with a sign."""
    return {name: launch.numbers[name] - (launch.numbers[name] >> 31 << 32) for name in names}
