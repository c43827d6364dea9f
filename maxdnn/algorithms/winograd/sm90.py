"""Transforms of Winograd convolution that write operands of products on tensor cores (sass/sm90/winograd_split.inc)."""

from collections.abc import Mapping
from dataclasses import dataclass

from ...build.interface import KernelSpec
from ...planning.cost import SCHEDULERS, Cost, Work
from ...planning.plan import FLOAT_BYTES, Launch, Part, Value, begin
from ...problem.problem import Alignment
from ..common.limits import MAX_GRID_YZ, TEXEL_FLOATS, within
from ..common.workspace import Draft
from ..gemm.tensor_cores import CHUNK, PIECE_BYTES, TILE, Pieces
from .toomcook import GRADIENTS, TABLE, Points

_WARPS = 16
_STREAMS = 1.35
"""Time of a launch's bytes to that in streams, on an H200 (1.3 to 1.4 in eight layers): rows of 128 bytes go to 36
places."""


@dataclass(frozen=True)
class SplitTransform(KernelSpec):
    """Of maps in N,C,H,W, by the points of the layer, or of gradients, by those of its gradients of filters. `clocks`:
    of a CTA, timed on an H200."""

    points: Points
    gradients: bool
    clocks: int

    @property
    def side(self) -> int:
        """Of the squares that are transformed."""
        return self.points.taps if self.gradients else self.points.inputs


def _kernel(points: Points, gradients: bool, clocks: int) -> SplitTransform:
    m, r = points.outputs, points.taps
    return SplitTransform(
        f"sm90_winograd_split_{'gradients' if gradients else 'maps'}_{m}x{m}_{r}x{r}", "sm90/winograd_split.sass",
        "Transforms maps for Winograd's algorithm to FP16 parts: see winograd_split.inc. Grid: x = ceil(tiles / 64), "
        "y = ceil(channels / 128).", points, gradients, clocks)


(_BACKWARD,) = (points for points in GRADIENTS if points.outputs == 3)
(_FORWARD,) = (points for points in TABLE if (points.taps, points.outputs) == (3, 4))
KERNELS = MAPS, OF_GRADIENTS = _kernel(_FORWARD, False, 98_000), _kernel(_BACKWARD, True, 89_000)


def pieces_of(points: Points, tiles: int, channels: int) -> int:
    """Of all planes."""
    return points.inputs**2 * -(-tiles // CHUNK) * -(-channels // TILE)


def split(draft: Draft, spec: SplitTransform, source: str | Part, region: str, size: tuple[int, int, int],
          padding: tuple[int, int], images: int, tile: Mapping[str, int]) -> Pieces:
    """Adds the launch that transforms so many images of `size`: C, H, W. `tile`: the parameters that say where tiles
    lie."""
    (c, h, w), tiles = size, tile["tiles"]
    assert padding[1] == (not spec.gradients)
    wide = w % TEXEL_FLOATS == 0 and draft.problem.operand(begin(source)[0]).alignment >= Alignment.VECTOR
    x, y = -(-tiles // CHUNK), -(-c // TILE)
    count = pieces_of(spec.points, tiles, c)
    within(draft.problem.shape, (("tiles", y, MAX_GRID_YZ, "blocks along y of the grid"),
                                 ("a plane in pieces", PIECE_BYTES * x * y, 2**32 - 1, "bytes")))
    values: dict[str, Value] = {
        "in": source, "out": draft.region(region, PIECE_BYTES // FLOAT_BYTES * count), "rows": c,
        **{name: number for name, number in tile.items() if name != "row"}, "map_image": c * h * w,
        "map_channel": h * w, "map_row": w, "h": h, "w": w, "pad_h": padding[0], "pad_w": padding[1], "wide": int(wide)}
    nbytes = PIECE_BYTES * count + FLOAT_BYTES * images * c * h * w
    work = Work(x * y, _STREAMS * nbytes, Cost(SCHEDULERS * spec.clocks, spec.clocks, 1), warps=_WARPS)
    doing = f"tiles of {spec.side} x {spec.side} are transformed to planes of FP16 parts"
    draft.launches.append(Launch(spec, (x, y, 1), values, work, doing, (region,)))
    return Pieces(region, x * y, PIECE_BYTES * count)
