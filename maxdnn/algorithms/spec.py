"""What a family is to the rest of the library."""

from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass

import numpy as np

from ..build.interface import KernelSpec
from ..errors import ShapeError
from ..planning.plan import FLOAT_BYTES, Launch, Part, Plan, Value
from ..problem.problem import Problem

Candidates = Mapping[str, Callable[[], Plan]]
Memory = MutableMapping[str, np.ndarray]  # name -> flat float32 array


@dataclass(frozen=True, eq=False)
class Family:
    """One way to compute problems of some kinds.

    `kernels`: its own; a plan may use those of other families too. `kinds`: of the problems it may serve. `refuses`:
    for a problem of those kinds, what of it is not served, in words; None if all is. `candidates`: a plan, made when
    called, for each way to serve a problem, by the name a user may ask for; making one may raise ShapeError, for a
    limit. `contract`: what a launch of one of the kernels does to memory, in NumPy by the kernel's documentation alone,
    with the scalars of a call: tests hold plans and kernels to it."""

    name: str
    kernels: tuple[KernelSpec, ...]
    contract: Callable[[Launch, Memory, Mapping[str, float]], None]
    kinds: tuple[str, ...] = ()
    refuses: Callable[[Problem], str | None] = lambda problem: None
    candidates: Callable[[Problem], Candidates] = lambda problem: {}


@dataclass(frozen=True)
class TileKernel(KernelSpec):
    """A kernel whose blocks compute tiles. `tile`: what a block covers along the two axes of the product (images or
    pixels, filters). `slots`: issue slots of a warp for one loop iteration and for all the rest. `translated`: of the
    loop as ptxas 12.9 makes it of the translation for sm_90."""

    tile: tuple[int, int]
    slots: tuple[int, int]
    translated: int


def refuses_strided(problem: Problem) -> str | None:
    """For `refuses`: what no kernel of today walks over."""
    return "arrays that are not C-contiguous" if any(o.strides for o in problem.operands) else None


MOST_GROUPS = 4096


def refuses_groups(problem: Problem) -> str | None:
    """For `refuses` of families with a launch for each group, which takes longer to plan than to run."""
    groups = problem.shape.groups
    return f"{groups} groups, more than {MOST_GROUPS}" if groups > MOST_GROUPS else None


LATENCY = 9000
"""Clocks of a convolution's launch that issue nothing: instructions and first texels from DRAM, last stores; simulated
on gm204."""

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)  # of which the estimate takes one


def within(shape: object, limits: Iterable[tuple[str, int, int, str]]) -> None:
    """Raises ShapeError for the first (what, how many, at most, of what) that is beyond its limit."""
    for what, count, limit, reason in limits:
        if count > limit:
            raise ShapeError(f"{what} must be at most {limit} {reason} (got {count} for {shape})")


def split_name(spec: KernelSpec, splits: int) -> str:
    """What the candidate is called that splits the reduction of a kernel's tiles."""
    return spec.name if splits == 1 else f"{spec.name}_split{splits}"


def seen(memory: Memory, place: Value) -> np.ndarray:
    """For contracts: what a kernel sees from a pointer on."""
    if isinstance(place, Part):
        return memory[place.name][place.offset // FLOAT_BYTES:]
    return memory[str(place)]


NEGATIVE_TO_ZERO, ADDS, BIAS = 1, 2, 16
"""Flags of the kernels whose last step is fused: alpha * sum + bias (+ beta * O), negative to 0."""


def fused(problem: Problem, filters: int, *, first: bool = True, last: bool = True) -> dict[str, Value]:
    """The parameters flags, alpha, beta and bias of a launch that computes the problem's filters from number `filters`
    on. Of launches that add up the first one adds bias and beta * O, the last one applies the activation."""
    adds = problem.reads_out if first else True
    bias: Value = 0
    if first and "bias" in problem.roles:
        bias = Part("bias", FLOAT_BYTES * filters) if filters else "bias"
    return {"flags": NEGATIVE_TO_ZERO * bool(last and problem.activation) + ADDS * adds + BIAS * (bias != 0),
            "alpha": "alpha", "beta": 1.0 if not first else "beta" if adds else 0.0, "bias": bias}


def finish(launch: Launch, memory: Memory, scalars: Mapping[str, float], where: np.ndarray, sums: np.ndarray,
           filters: np.ndarray) -> None:
    """For contracts: the fused last step, `where` in O the sums belong, of which filters they are."""
    def number(name: str) -> float:
        value = launch.values[name]
        return value if isinstance(value, float) else scalars[str(value)]
    out, flags = seen(memory, launch.values["out"]), launch.numbers["flags"]
    result = number("alpha") * sums
    if flags & BIAS:
        result = result + seen(memory, launch.values["bias"])[filters]
    if flags & ADDS:
        result = result + number("beta") * out[where]
    out[where] = np.where(result < 0, 0, result) if flags & NEGATIVE_TO_ZERO else result
