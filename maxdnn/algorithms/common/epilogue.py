"""The epilogue that kernels share: alpha * sum + bias (+ beta * O), then an activation, where the sums are still in
registers (sass/maxwell/store.inc, sass/sm90/store.inc)."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...planning.plan import FLOAT_BYTES, Launch, Part, Value
from ...problem.activations import activated
from ...problem.problem import Problem
from ..spec import Memory, seen

NEGATIVE_TO_ZERO, ADDS, BIAS = 1, 2, 16
"""Flags of the kernels."""

ACTIVATION_FLAGS = {"relu": NEGATIVE_TO_ZERO, "relu6": 32, "hardswish": 64, "silu": 128, "gelu": 256, "gelu_tanh": 512}
"""Flags of the kernels that know more than ReLU (sass/maxwell/activation.inc)."""

VECTORS = 4
"""Flag of the kernels that store rows: they begin at multiples of 16 bytes."""


@dataclass(frozen=True)
class Epilogue:
    """What a launch does with its sums; by default it stores them."""

    flags: int = 0
    alpha: Value = 1.0
    beta: Value = 0.0
    bias: Value = 0

    def values(self, flags: int = 0) -> dict[str, Value]:
        """The parameters of a launch; `flags`: others of the kernel."""
        return {"flags": self.flags | flags, "alpha": self.alpha, "beta": self.beta, "bias": self.bias}

    def without_bias(self, flags: int = 0) -> dict[str, Value]:
        """Likewise of a kernel that has none."""
        return {"flags": self.flags | flags, "alpha": self.alpha, "beta": self.beta}


PARTIAL = Epilogue()
"""Of partial sums, which lie in the workspace as they are."""


def epilogue_of(problem: Problem, filters: int = 0, *, first: bool = True, last: bool = True) -> Epilogue:
    """The epilogue of a launch that computes the problem's filters from number `filters` on. Of launches whose results
    add up, the first adds bias and beta * O, and the last applies the activation."""
    adds = problem.reads_out if first else True
    bias: Value = 0
    if first and "bias" in problem.roles:
        bias = Part("bias", FLOAT_BYTES * filters) if filters else "bias"
    applied = ACTIVATION_FLAGS[problem.activation] if last and problem.activation else 0
    return Epilogue(applied + ADDS * adds + BIAS * (bias != 0),
                    "alpha", 1.0 if not first else "beta" if adds else 0.0, bias)


def finish(launch: Launch, memory: Memory, scalars: Mapping[str, float], where: np.ndarray, sums: np.ndarray,
           filters: np.ndarray) -> None:
    """For references: apply the epilogue. `where`: the places of the sums in O, and their filters."""
    def number(name: str) -> float:
        value = launch.values[name]
        return value if isinstance(value, float) else scalars[str(value)]
    out, flags = seen(memory, launch.values["out"]), launch.numbers["flags"]
    result = number("alpha") * sums
    if flags & BIAS:
        result = result + seen(memory, launch.values["bias"])[filters]
    if flags & ADDS:
        result = result + number("beta") * out[where]
    out[where] = activated(activation_of(flags), result)


def activation_of(flags: int) -> str | None:
    """For references: the activation that flags ask for."""
    return next((name for name, flag in ACTIVATION_FLAGS.items() if flags & flag), None)
