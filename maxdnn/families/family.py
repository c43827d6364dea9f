"""What a family is to the rest of the library."""

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass

import numpy as np

from ..kernels import KernelSpec
from ..plans import FLOAT_BYTES, Launch, Part, Plan, Value
from ..problem import Problem

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


def seen(memory: Memory, place: Value) -> np.ndarray:
    """For contracts: what a kernel sees from a pointer on."""
    if isinstance(place, Part):
        return memory[place.name][place.offset // FLOAT_BYTES:]
    return memory[str(place)]
