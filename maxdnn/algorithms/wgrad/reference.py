"""What the kernels of wgrad promise."""

from collections.abc import Mapping

import numpy as np

from ...planning.plan import FLOAT_BYTES, Launch
from ..common.epilogue import finish
from ..common.limits import TEXEL_FLOATS
from ..spec import Memory, seen, signed
from .maxwell import GROUP, FiltersKernel

MOST_PIXELS = 1024
"""Along an axis, of maps whose taps may lie outside: words of the table."""


def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels promise."""
    v, spec = launch.numbers, launch.spec
    assert isinstance(spec, FiltersKernel)
    (x, y, z), tile = launch.grid, spec.oriented(*spec.tile)
    assert (y, x) == (-(-v["m"] // tile[0]), -(-v["n"] // tile[1]))
    starts = signed(launch, "i_start", "i_wrap", "start_h", "start_w", "end_w")
    assert starts["i_wrap"] == v["i_p"] - v["q"] * v["i_q"]
    assert starts["end_w"] == starts["start_w"] + v["q"] * v["str_w"]
    elements, filters = spec.oriented(v["m"], v["n"])
    e, k = np.arange(elements), np.arange(filters)
    c, r, s = e // v["rs"], e % v["rs"] // v["s"], e % v["s"]
    places = ("maps", "gradients") if spec.arch else ("tex_I", "tex_G")
    maps, gradients = (seen(memory, (launch.values if spec.arch else launch.textures)[name]) for name in places)
    eight = np.arange(GROUP)
    for block in range(z):
        batch, split = block * v["split_magic"] >> 31, block % v["splits"]
        assert batch == block // v["splits"]
        batch += v["first"]
        sums = np.zeros((elements, filters))
        groups = range(split * v["share"], min((split + 1) * v["share"], v["groups"]))
        assert len(groups)
        for group in groups:
            pixel, images = divmod(group, v["eights"])
            p, q = divmod(pixel, v["q"])
            row, column = (starts[f"start_{a}"] + i * v[f"str_{a}"] + t * v[f"dil_{a}"]
                           for a, i, t in (("h", p, r), ("w", q, s)))
            inside = (row >= 0) & (row < v["h"]) & (column >= 0) & (column < v["w"])
            base = (batch * v["i_batch"] + starts["i_start"] + p * v["i_p"] + q * v["i_q"] + c * v["i_c"] + r * v["i_r"]
                    + s * v["i_s"])
            at = TEXEL_FLOATS * np.where(inside, base, 0)[:, None] + GROUP * images + eight
            values = np.where(inside[:, None], maps[at], 0).astype(float)
            base = batch * v["g_batch"] + k * v["g_k"] + pixel * v["g_jump"]
            at = TEXEL_FLOATS * base[:, None] + GROUP * group + eight
            sums += values @ gradients[at].astype(float).T
        rows = np.arange(v["m"])[:, None]
        where = batch * v["out_batch"] + split * v["out_split"] + rows * v["out_row"] + np.arange(v["n"])
        finish(launch, memory, scalars, where, sums if spec.inner == "k" else sums.T, rows)


def reference_nchw(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels over N,C,H,W promise."""
    v, spec = launch.numbers, launch.spec
    assert isinstance(spec, FiltersKernel)
    (x, y, z), tile = launch.grid, spec.oriented(*spec.tile)
    assert (y, x) == (-(-v["m"] // tile[0]), -(-v["n"] // tile[1])) and v["groups"] == -(-v["terms"] // GROUP)
    starts = signed(launch, "i_start", "step_p", "step_q")
    back = -starts["step_p"] // FLOAT_BYTES, -starts["step_q"] // FLOAT_BYTES
    height = v["wrap_p"] // FLOAT_BYTES
    whole = (GROUP - back[0] * v["q"] - back[1]) // v["pq"]
    assert v["pq"] == height * v["q"] and v["wrap_q"] == FLOAT_BYTES * v["q"]
    assert whole * v["pq"] + back[0] * v["q"] + back[1] == GROUP
    for name, value in (("i_step", -(whole * v["i_n"] + back[0] * v["i_p"] + back[1] * v["i_q"])),
                        ("i_wrap_q", v["q"] * v["i_q"] - v["i_p"]), ("i_wrap_p", height * v["i_p"] - v["i_n"]),
                        ("g_step", -(whole * v["g_n"] + FLOAT_BYTES * (back[0] * v["q"] + back[1]))),
                        ("g_wrap", FLOAT_BYTES * v["pq"] - v["g_n"])):
        assert v[name] == value % 2**32, name
    elements, filters = spec.oriented(v["m"], v["n"])
    e, k = np.arange(elements)[:, None], np.arange(filters)[:, None]
    r, s = e % v["rs"] // v["s"], e % v["s"]
    row_i = e // v["rs"] * v["i_c"] + r * v["i_r"] + s * v["i_s"]
    borders = np.frombuffer(launch.tables.get("borders", bytes(2 * FLOAT_BYTES * MOST_PIXELS)), np.uint32)
    rows_of, columns_of = borders.reshape(2, -1)
    assert v["border"] == (max(height, v["q"]) if launch.tables else 0)
    maps, gradients = (seen(memory, launch.values[name]) for name in ("maps", "gradients"))
    for block in range(z):
        batch, part = block * v["split_magic"] >> 31, block % v["splits"]
        assert batch == block // v["splits"]
        batch += v["first"]
        term = np.arange(GROUP * part * v["share"], min(GROUP * (part + 1) * v["share"], v["terms"]))
        assert len(term)
        n, pixel = np.divmod(term, v["pq"])
        p, q = np.divmod(pixel, v["q"])
        at = batch * v["i_batch"] + starts["i_start"] + n * v["i_n"] + p * v["i_p"] + q * v["i_q"] + row_i
        of = batch * v["g_batch"] + n * v["g_n"] + FLOAT_BYTES * pixel + k * v["g_k"]
        outside = (rows_of[p] >> r | columns_of[q] >> 16 + s) & 1
        values = np.where(outside, 0, maps[np.where(outside, 0, at // FLOAT_BYTES)]).astype(float)
        sums = values @ gradients[of // FLOAT_BYTES].astype(float).T
        rows = np.arange(v["m"])[:, None]
        where = batch * v["out_batch"] + part * v["out_split"] + rows * v["out_row"] + np.arange(v["n"])
        finish(launch, memory, scalars, where, sums if spec.inner == "k" else sums.T, rows)
