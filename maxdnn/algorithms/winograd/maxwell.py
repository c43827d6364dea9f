"""The kernels of Winograd transforms."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...build.interface import KernelSpec
from ...problem.problem import LAYOUTS
from .toomcook import GRADIENTS, TABLE, Points


@dataclass(frozen=True)
class TransformKernel(KernelSpec):
    """`step`: "maps", "gradients", "filters" or "out". `layout`: of the maps or results. `slots`: issue slots of a
    block."""

    points: Points
    step: str
    layout: str
    slots: int

    @property
    def units(self) -> int:
        """Of a block: tiles, or filters of a channel."""
        return 64 if self.points.inputs == 4 or self.step == "maps" else 32


def _kernel(points: Points, step: str, layout: str, slots: int) -> TransformKernel:
    m, r = points.outputs, points.taps
    name = f"swinograd_{step}_{m}x{m}_{r}x{r}" + f"_{layout}" * bool(layout)
    source = "maps" if step == "gradients" else step
    doc = f"Transform of a Winograd convolution: see winograd_{source}.inc."
    return TransformKernel(name, f"maxwell/winograd_{source}.sass", doc, points, step, layout, slots)


_SLOTS = {  # issue slots of a block: maps and results in C,H,W,N and in N,C,H,W, filters
    (2, 3): ((712, 712), (608, 608), 536),
    (4, 3): ((1488, 1838), (840, 840), 507),
    (3, 5): ((2408, 2408), (808, 856), 1148),
    (4, 5): ((2672, 2672), (936, 936), 1196),
}
_OF_GRADIENTS = {(3, 4): (725, 567), (5, 4): (924, 1225)}  # gradients, results
LAYER: Mapping[tuple[Points, str, str], TransformKernel] = {
    (points, step, layout): _kernel(points, step, layout, slots)
    for points in TABLE for maps, out, filters in (_SLOTS[points.outputs, points.taps],)
    for step, layout, slots in (*zip(("maps",) * 2, LAYOUTS, maps, strict=True),
                                *zip(("out",) * 2, LAYOUTS, out, strict=True), ("filters", "", filters))}
OF_GRADIENTS: Mapping[tuple[Points, str, str], TransformKernel] = {
    (points, step, layout): _kernel(points, step, layout, slots)
    for points in GRADIENTS for gradients, out in (_OF_GRADIENTS[points.outputs, points.taps],)
    for step, layout, slots in (*(("gradients", layout, gradients) for layout in LAYOUTS), ("out", "", out))}
"""The kernels of gradients of filters (wgrad.py)."""

KERNELS = (*LAYER.values(), *OF_GRADIENTS.values())

# The fused kernel.

TILES, FILTERS = 32, 32  # of a block
FUSED_GROUP = 4
"""Channels that a loop iteration consumes."""


(POINTS,) = (points for points in TABLE if (points.outputs, points.taps) == (2, 3))


@dataclass(frozen=True)
class FusedKernel(KernelSpec):
    """`layout`: of maps and results. `slots`: issue slots of a warp for an iteration, the mean of those that load maps
    and of those that load filters, and for all the rest. `translated`: of an iteration of the translation, as timed on
    an H200 with 4 to 64 channels."""

    layout: str
    slots: tuple[int, int]
    translated: int

    @property
    def points(self) -> Points:
        return POINTS


def _fused(layout: str, slots: tuple[int, int], translated: int) -> FusedKernel:
    return FusedKernel(f"swinograd_fused_2x2_3x3_{layout}", "maxwell/winograd_fused.sass", f"""Winograd convolution of
{TILES} tiles of 2 x 2 results and {FILTERS} filters a block; see winograd_fused.inc. Grid:
x = ceil(tiles / {TILES}) * ceil(k / {FILTERS}).""", layout, slots, translated)


FUSED = _fused("CHWN", (295, 554), 740), _fused("NCHW", (295, 530), 740)
