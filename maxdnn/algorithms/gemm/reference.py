"""What the kernels of matrix products promise."""

from collections.abc import Mapping

import numpy as np

from ...planning.plan import Launch
from ..common.epilogue import finish
from ..common.limits import TEXEL_FLOATS
from ..spec import Memory, seen
from .maxwell import GROUP, ProductKernel


def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels promise."""
    v, spec = launch.numbers, launch.spec
    assert isinstance(spec, ProductKernel)
    x, y, z = launch.grid
    rows = -(-v["m"] // spec.rows)
    tail_rows = rows - v.get("whole", rows)
    parts = (y - rows) // tail_rows + 1 if tail_rows else 1
    assert (x, y) == (-(-v["n"] // spec.tile), rows + (parts - 1) * tail_rows) and v["groups"] == -(-v["k"] // GROUP)
    m, n, k = (np.arange(v[name]) for name in "mnk")
    share = GROUP * spec.slices * v["share"]
    for block in range(z):
        matrix, split = (block * v["split_magic"] >> 31), block % v["splits"]
        assert matrix == block // v["splits"]
        begin, end = (n * share - GROUP * min(n * spec.slices, v.get("shorter", 0)) for n in (split, split + 1))
        matrix, some = matrix + v["first"], k[begin:end]
        assert len(some)
        a = _values(launch, memory, "a", matrix, m, some, spec.layout[0] == "n")
        b = _values(launch, memory, "b", matrix, n, some, spec.layout[1] == "t")
        where = matrix * v["out_batch"] + split * v["out_split"] + m[:, None] * v["out_row"] + n
        if tail_rows:
            assert z == 1 and v["tail"] == tail_rows
            first = spec.tile * v["whole"]
            finish(launch, memory, scalars, where[:first], a[:first] @ b.T, m[:first, None])
            into = seen(memory, launch.values["parts"])
            for part in range(parts):
                end = GROUP * (v["tail_first"] + part * v["tail_share"])
                terms = slice(end - GROUP * v["tail_share"] if part else 0, end)
                at = part * v["part_step"] + m[first:, None] * v["n"] + n + v["part_start"]
                into[at % 2**32] = a[first:, terms] @ b[:, terms].T
            continue
        finish(launch, memory, scalars, where, a @ b.T, m[:, None])


def _values(launch: Launch, memory: Memory, name: str, matrix: int, lines: np.ndarray, k: np.ndarray,
            k_innermost: bool) -> np.ndarray:
    """Rows of A or columns of B, for some values of k."""
    v, spec = launch.numbers, launch.spec
    row, step = v[f"{name}_row"], v[f"{name}_step"]
    assert step == (2 if k_innermost else GROUP * row)
    start = TEXEL_FLOATS * matrix * v[f"{name}_batch"]
    if k_innermost:
        at = TEXEL_FLOATS * row * lines[:, None] + k
    else:
        at = TEXEL_FLOATS * row * k + lines[:, None]
    place = launch.values[name] if spec.arch else launch.textures[f"tex_{name.upper()}"]
    return seen(memory, place)[start + at].astype(float)
