"""What the kernels of Winograd convolution promise."""

from collections.abc import Mapping

import numpy as np

from ...planning.plan import Launch
from ..common.epilogue import finish
from ..gemm.patches import PIXEL
from ..gemm.tensor_cores import CHUNK, TILE, write_pieces
from ..spec import Memory, seen, signed
from .maxwell import POINTS, TILES, FusedKernel, TransformKernel
from .sm90 import SplitTransform
from .toomcook import Points, matrices


def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the transforms promise."""
    spec, v = launch.spec, launch.numbers
    if isinstance(spec, SplitTransform):
        _pieces(launch, spec, v, memory)
        return
    assert isinstance(spec, TransformKernel)
    {"maps": _maps, "gradients": _maps,
     "filters": _filters, "out": _out}[spec.step](launch, spec, v, memory, scalars)


def twice(matrix: tuple[tuple[object, ...], ...], values: np.ndarray) -> np.ndarray:
    """The matrix along both last axes."""
    by = np.array([[float(x) for x in row] for row in matrix])  # type: ignore[arg-type]
    return by @ values @ by.T


def _digits(v: Mapping[str, int], layout: str) -> tuple[np.ndarray, ...]:
    """Image, tile row and tile column of each tile."""
    j = np.arange(v["tiles"])
    rest = (j + 1) * v["d0_magic"] >> 32 + v["d0_shift"]
    i2 = (rest + 1) * v["d1_magic"] >> 32 + v["d1_shift"]
    i0, i1 = j - rest * v["d0"], rest - i2 * v["d1"]
    return (i2, i1, i0) if layout == "NCHW" else (i0, i2, i1)


def _planes(v: Mapping[str, int], outer: int, inner: int) -> np.ndarray:
    """Where the values of plane 0 lie: outer x inner."""
    return np.arange(outer)[:, None] * v["row"] + np.arange(inner)


def tiles_of(launch: Launch, memory: Memory, layout: str, step: int, side: int, channels: int) -> np.ndarray:
    """Tiles of side x side of a launch's maps, so many rows and columns apart, zero where no map is: channels x tiles
    x side x side."""
    texels = seen(memory, launch.textures["tex_I"])
    return squares(launch, texels[launch.numbers["map_start"]:], layout, step, side, channels)


def squares(launch: Launch, maps: np.ndarray, layout: str, step: int, side: int, channels: int) -> np.ndarray:
    """The same of maps from the first image on."""
    v = launch.numbers
    image, row, column = _digits(v, layout)
    padding = signed(launch, "pad_h", "pad_w")
    y = (row * step - padding["pad_h"])[:, None] + np.arange(side)
    x = (column * step - padding["pad_w"])[:, None] + np.arange(side)
    inside = ((y >= 0) & (y < v["h"]))[:, :, None] & ((x >= 0) & (x < v["w"]))[:, None, :]
    at = (image * v["map_image"])[:, None, None] + y[:, :, None] * v["map_row"] + x[:, None, :] * v.get("map_col", 1)
    at = np.where(inside, at, 0) + (np.arange(channels) * v["map_channel"])[:, None, None, None]
    return np.where(inside, maps[at], 0).astype(float)


def _maps(launch: Launch, spec: TransformKernel, v: Mapping[str, int], memory: Memory, _: object) -> None:
    a, m, side, by = spec.points.inputs, spec.points.outputs, spec.points.inputs, matrices(spec.points).B
    if spec.step == "gradients":
        m = side = spec.points.taps
        by = matrices(spec.points).G
    assert launch.grid[0] == -(-v["tiles"] // spec.units)
    tiles = tiles_of(launch, memory, spec.layout, m, side, launch.grid[1])
    found, out = twice(by, tiles), seen(memory, launch.values["planes"])
    for t in range(a * a):
        out[t * v["plane"] + _planes(v, launch.grid[1], v["tiles"])] = found[..., t // a, t % a]


def _pieces(launch: Launch, spec: SplitTransform, v: Mapping[str, int], memory: Memory) -> None:
    x, y, _ = launch.grid
    assert (x, y) == (-(-v["tiles"] // CHUNK), -(-v["rows"] // TILE))
    by, a = matrices(spec.points), spec.points.inputs
    found = twice(by.G if spec.gradients else by.B,
                  squares(launch, seen(memory, launch.values["in"]), "NCHW", 4, spec.side, v["rows"]))
    into = seen(memory, launch.values["out"]).view(np.uint8)
    for t in range(a * a):
        write_pieces(into, (x, y), t, found[..., t // a, t % a], PIXEL)


def _filters(launch: Launch, spec: TransformKernel, v: Mapping[str, int], memory: Memory, _: object) -> None:
    a, r, outer = spec.points.inputs, spec.points.taps, launch.grid[1]
    assert launch.grid[0] == -(-v["inner"] // spec.units)
    steps = signed(launch, "step_r", "step_s")
    at = (v["start"] + np.arange(outer)[:, None, None, None] * v["step_outer"]
          + np.arange(v["inner"])[:, None, None] * v["step_inner"] + np.arange(r)[:, None] * steps["step_r"]
          + np.arange(r) * steps["step_s"])
    found = twice(matrices(spec.points).G, seen(memory, launch.values["filters"])[at].astype(float))
    out = seen(memory, launch.values["planes"])
    for t in range(a * a):
        out[t * v["plane"] + _planes(v, outer, v["inner"])] = found[..., t // a, t % a]


def _out(launch: Launch, spec: TransformKernel, v: Mapping[str, int], memory: Memory,
                  scalars: Mapping[str, float]) -> None:
    a, filters = spec.points.inputs, launch.grid[1]
    assert launch.grid[0] == -(-v["tiles"] // spec.units)
    planes = seen(memory, launch.values["planes"])
    sums = np.stack([planes[t * v["plane"] + _planes(v, filters, v["tiles"])] for t in range(a * a)], -1).astype(float)
    transformed_back(launch, memory, scalars, spec.points, spec.layout, sums)


def transformed_back(launch: Launch, memory: Memory, scalars: Mapping[str, float], points: Points, layout: str,
                     sums: np.ndarray) -> None:
    """The epilogue, of filters x tiles x elements of a tile."""
    a, m, v = points.inputs, points.outputs, launch.numbers
    image, row, column = _digits(v, layout)
    found = twice(matrices(points).A, sums.reshape(len(sums), -1, a, a))
    k = np.arange(len(sums))[:, None]
    for i in range(m):
        for j in range(m):
            p, q = row * m + i, column * m + j
            exists = (p < v["p"]) & (q < v["q"])
            where = k * v["out_k"] + image * v["out_image"] + p * v["out_row"] + q * v["out_col"]
            finish(launch, memory, scalars, where[:, exists], found[:, exists, i, j], k)


def reference_fused(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the fused kernels promise."""
    spec, v = launch.spec, launch.numbers
    assert isinstance(spec, FusedKernel)
    assert launch.grid == (-(-v["tiles"] // TILES) * v["kt"], 1, 1)
    tiles = tiles_of(launch, memory, spec.layout, POINTS.outputs, POINTS.inputs, v["channels"])
    maps = twice(matrices(POINTS).B, tiles).reshape(*tiles.shape[:2], -1)
    planes = seen(memory, launch.values["planes"])
    at = np.arange(POINTS.inputs**2)[:, None, None] * v["plane"] + np.arange(v["channels"])[:, None] * v["row"]
    filters = planes[at + np.arange(v["k"])].astype(float)
    transformed_back(launch, memory, scalars, POINTS, spec.layout,
                              np.einsum("tck,cjt->kjt", filters, maps, optimize=True))
