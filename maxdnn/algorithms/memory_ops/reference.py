"""What the kernels that copy, clear and add promise."""

from collections.abc import Mapping

import numpy as np

from ...planning.plan import Launch
from ...problem.activations import activated
from ..common.epilogue import activation_of, finish
from ..common.limits import MAX_GRID_YZ
from ..spec import Memory, seen, signed
from .maxwell import ACTIVATE, FILL, PAD_PIXELS, REDUCE, TRANSPOSE, TRANSPOSE_TILE, TURN, TURN_TILE


def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    if launch.spec is REDUCE:
        _reduce(launch, memory, scalars)
        return
    if launch.spec is FILL:
        seen(memory, launch.values["dst"])[:launch.numbers["count"]] = 0
        return
    if launch.spec is TURN:
        _rotate(launch, memory)
        return
    if launch.spec is ACTIVATE:
        out = seen(memory, launch.values["out"])[:launch.numbers["count"]]
        out[:] = activated(activation_of(launch.numbers["flags"]), out.astype(float))
        return
    v, src, dst = launch.numbers, launch.values["src"], str(launch.values["dst"])
    if launch.spec is TRANSPOSE:
        rows, cols = v["rows"], v["cols"]
        assert launch.grid[0] * TRANSPOSE_TILE >= rows
        count = launch.grid[2] * rows * cols
        matrices = seen(memory, src)[:count].reshape(-1, rows, cols)
        memory[dst][:count] = matrices.swapaxes(1, 2).ravel()
        return
    c, h, w, n, hp, wp, ns, top, left = (v[name] for name in "c h w n hp wp ns pad_h pad_w".split())
    assert launch.grid == (-(-wp // PAD_PIXELS), hp, min(c, MAX_GRID_YZ))
    target = memory[dst].reshape(c, hp, wp, ns)
    target[:] = 0
    target[:, top:top + h, left:left + w, :n] = seen(memory, src)[:c * h * w * n].reshape(c, h, w, n)


def _reduce(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    v = launch.numbers
    parts = seen(memory, launch.values["parts"])
    blocks, filters, images = launch.grid
    assert blocks == -(-v["length"] // 128)
    parts_rows, rows = (np.arange(images)[:, None, None] * v[k] + np.arange(filters)[:, None] for k in ("parts_k", "k"))
    where = parts_rows * v["length"] + np.arange(v["length"])
    sums = sum(parts[where + z * v["step"]].astype(float) for z in range(v["splits"]))
    where = rows * v["out_row"] + np.arange(v["length"])
    finish(launch, memory, scalars, where, sums, np.arange(filters)[:, None])


def _rotate(launch: Launch, memory: Memory) -> None:
    v = launch.numbers
    (taps, k_tiles, c_tiles), taps_w = launch.grid, v["taps_w"]
    assert taps == v["taps"] and TURN_TILE * taps * k_tiles >= v["rows"] and TURN_TILE * c_tiles == v["row"]
    columns = TURN_TILE * v["group_tiles"]
    at_row, at_column = np.arange(v["rows"])[:, None], np.arange(v["row"])
    (k, tap), (group, c) = np.divmod(at_row, taps), np.divmod(at_column, columns)
    steps = signed(launch, "src_r", "src_s")
    at = (v["src_start"] + group * v["src_group"] + k * v["src_k"] + c * v["src_c"] + tap // taps_w * steps["src_r"]
          + tap % taps_w * steps["src_s"])
    exists = (k < v["k"]) & (c < v["c"])
    src, dst = seen(memory, launch.values["src"]), seen(memory, launch.values["dst"])
    dst[:at.size] = np.where(exists, src[np.where(exists, at, 0)], 0).ravel()
