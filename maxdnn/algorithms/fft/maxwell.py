"""The kernels of transforms of tiles."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...build.interface import KernelSpec
from ...problem.problem import LAYOUTS

UNITS = 8
"""Of a block: tiles, or filters of a channel."""


@dataclass(frozen=True)
class TransformKernel(KernelSpec):
    """`side`: of a tile. `step`: "maps", "twice" (maps whose numbers come twice), "filters", "large" (of more rows or
    columns than half of a tile), "out" or "taps" (gradients of filters). `layout`: of the maps or results. `slots`:
    issue slots of a block."""

    side: int
    step: str
    layout: str
    slots: int


@dataclass(frozen=True)
class GroupsKernel(KernelSpec):
    """Transforms, products and the transform back in one. `side`: of a tile. `layout`: of maps and results. `slots`:
    issue slots of a block for a term, a channel's part of a filter, and for all the rest."""

    side: int
    layout: str
    slots: tuple[int, int]


def twiddles(side: int) -> Mapping[str, float]:
    """Parameters: what the butterflies multiply by, in float32."""
    angle = 2 * math.pi / side
    exact = {f"t{i}": math.tan(i * angle) for i in (1, 2, 3)} | {f"c{i}": math.cos(i * angle) for i in (1, 2, 3, 4)}
    return {name: float(np.float32(value)) for name, value in exact.items()}


def _kernel(side: int, step: str, layout: str, slots: int) -> TransformKernel:
    name = f"sfft_{step}_{side}x{side}" + f"_{layout}" * bool(layout)
    about = {"large": "filters", "twice": "maps"}.get(step, step)
    return TransformKernel(name, f"maxwell/fft_{step}.sass", f"Transform of a convolution by FFT: see fft_{about}.inc.",
                           side, step, layout, slots)


_SLOTS = {  # issue slots of a block: maps, maps twice and results by layout; filters, taps
    16: ((1542, 1960), (1786, 2204), (1760, 2016), 1558, 2106),
    24: ((3753, 4596), (4287, 5130), (4224, 4704), 3828, 5007),
    32: ((6540, 7952), (7476, 8888), (7360, 8128), 6708, 8764),
}
KERNELS = tuple(
    one for side, (maps, twice, out, filters, taps) in _SLOTS.items()
    for one in (*(_kernel(side, "maps", *of) for of in zip(LAYOUTS, maps, strict=True)),
                *(_kernel(side, "twice", *of) for of in zip(LAYOUTS, twice, strict=True)),
                *(_kernel(side, "out", *of) for of in zip(LAYOUTS, out, strict=True)),
                _kernel(side, "filters", "", filters), _kernel(side, "taps", "", taps))
) + (_kernel(32, "large", "", 8052),)
SIDES = tuple(_SLOTS)


def kernel(side: int, step: str, layout: str = "") -> TransformKernel:
    return next(spec for spec in KERNELS if (spec.side, spec.step, spec.layout) == (side, step, layout))


GROUPS = tuple(GroupsKernel(f"sfft_groups_32x32_{layout}", "maxwell/fft_groups.sass",
                            "Convolution in groups of few channels by FFT: see fft_groups.inc.", 32, layout, slots)
               for layout, slots in zip(LAYOUTS, ((6412, 6888), (7808, 7656)), strict=True))

WARPS = 4
"""Of a block of SUMS, each with a filter."""

SUMS = KernelSpec("sfft_sums", "maxwell/fft_sums.sass", "Sums of products of slots over tiles: see fft_sums.sass.")
