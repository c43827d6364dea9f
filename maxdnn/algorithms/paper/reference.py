"""What the kernels of the paper promise."""

from collections.abc import Mapping

import numpy as np

from ...planning.plan import Launch, Value
from ..common.limits import TEXEL_FLOATS
from ..spec import Memory, seen
from .maxwell import TILE_ELEMENTS, ConvKernel


def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels promise."""
    v = launch.numbers
    assert isinstance(launch.spec, ConvKernel)
    (q, p, z), (images, filters) = launch.grid, launch.spec.tile
    elements = np.arange(TILE_ELEMENTS * v["tiles"])
    table = np.frombuffer(launch.tables["offsets"], np.int32)[:len(elements)].astype(np.int64)
    out = seen(memory, launch.values["out"])
    rows = np.arange(p)[:, None, None, None] * v["map_row"] + np.arange(q)[:, None, None] * v["map_col"]
    for block_z in range(z):
        tile_k = block_z * v["tile_magic"] >> 31
        tile_n = block_z - tile_k * v["image_tiles"]
        n, k = np.arange(images) + images * tile_n, np.arange(filters) + filters * tile_k
        n4, k4 = n[::4] // 4, k[::4] // 4
        maps = _fetched(memory, launch.textures["texI"], rows + table[:, None] + n4).reshape(p, q, -1, images)
        bank = _fetched(memory, launch.textures["texF"],
                        v["filter_offset"] + elements[:, None] * v["filter_texels"] + k4).reshape(-1, filters)
        maps, bank = maps[..., n < v["n"]].astype(float), bank[:, k < v["k"]].astype(float)
        n, k = n[n < v["n"]], k[k < v["k"]]
        sums = scalars["alpha"] * np.einsum("pqen,ek->kpqn", maps, bank)
        where = (k[:, None, None, None] * v["out_plane"] + np.arange(p)[:, None, None] * v["out_row"]
                 + np.arange(q)[:, None] * v["n"] + n)
        out[where] = sums + (out[where] if v["accumulate"] else 0)


def _fetched(memory: Memory, place: Value, coordinates: np.ndarray) -> np.ndarray:
    """Rows of four floats of a texture; zeros outside of it."""
    texels = seen(memory, place).reshape(-1, TEXEL_FLOATS)
    inside = (coordinates >= 0) & (coordinates < len(texels))
    return np.where(inside[..., None], texels[np.where(inside, coordinates, 0)], np.float32(0))
