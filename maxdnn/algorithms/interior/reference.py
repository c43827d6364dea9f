"""What the kernels for interior and border taps promise."""

from collections.abc import Mapping

import numpy as np

from ...planning.plan import FLOAT_BYTES, Launch
from ..common.epilogue import finish
from ..common.limits import TEXEL_FLOATS
from ..common.sm90 import GROUP, NativeKernel
from ..paper.maxwell import TILE_ELEMENTS
from ..spec import Memory, TileKernel, seen, signed
from .plan import RECORD

PART = 0x10000
"""Of the third word of a pixel of sm_90: it is a part of a sum."""


def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the Maxwell kernel promises."""
    v = launch.numbers
    assert isinstance(launch.spec, TileKernel)
    (columns, rows, _), n, k = launch.grid, np.arange(v["n"]), np.arange(v["k"])
    words = np.frombuffer(launch.tables["table"], np.int32).reshape(-1, 2).astype(np.int64)
    maps, bank = (seen(memory, launch.textures[name]).reshape(-1, TEXEL_FLOATS) for name in ("tex_I", "tex_F"))
    start = signed(launch, "map_start")["map_start"]

    def fetched(texels: np.ndarray, at: np.ndarray) -> np.ndarray:
        inside = (at >= 0) & (at < len(texels))
        return np.where(inside[..., None], texels[np.where(inside, at, 0)], 0).reshape(len(at), -1).astype(float)
    step = np.arange(TILE_ELEMENTS)[:, None]
    for q in range(columns):
        for p in range(rows):
            begin, size = words[q]
            first, count = words[v["rows_at"] // RECORD + p]
            sums = np.zeros((v["k"], v["n"]))
            for map_at, filter_at in words[(begin + first * size) // RECORD:][:count * size // RECORD].tolist():
                at = start + p * v["map_row"] + q * v["map_col"] + map_at + step * v["map_channel"]
                values = fetched(maps, at + np.arange(v["map_texels"]))[:, :v["n"]]
                weights = fetched(bank, v["filter_start"] + filter_at + step * v["filter_channel"]
                                  + np.arange(v["filter_texels"]))[:, :v["k"]]
                sums += weights.T @ values
            where = k[:, None] * v["out_k"] + p * v["out_row"] + q * v["out_col"] + n
            finish(launch, memory, scalars, where, sums, k[:, None])


def reference_sm90(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of sm_90 promise."""
    v, spec = launch.numbers, launch.spec
    assert isinstance(spec, NativeKernel)
    words = np.frombuffer(launch.tables["table"], np.uint32).astype(np.int64)
    maps, filters = (seen(memory, launch.values[name]) for name in ("maps", "filters"))
    n, k, step = np.arange(v["n"]), np.arange(v["k"]), np.arange(1 if spec.elements else GROUP)
    for pixel in range(launch.grid[2]):
        map_at, out_at, begin, count = words[4 * pixel:4 * pixel + 4]
        part, begin = divmod(int(begin), PART)
        records = words[begin // 4:begin // 4 + 2 * count].reshape(-1, 2)
        a = (map_at + records[:, :1] + step * v["map_channel"]).ravel() % 2**32 // FLOAT_BYTES
        b = (records[:, 1:] + step * v["filter_channel"]).ravel() // FLOAT_BYTES
        sums = filters[b[:, None] + k].astype(float).T @ maps[a[:, None] + n].astype(float)
        if part:
            seen(memory, launch.values["parts"])[out_at + k[:, None] * v["part_row"] + n] = sums
        else:
            finish(launch, memory, scalars, out_at + k[:, None] * v["out_row"] + n, sums, k[:, None])
