"""What other families do before and after their own work: zero padding, transposes, the sum of split reductions."""

from collections.abc import Callable, Mapping

import numpy as np

from ...build.interface import KernelSpec
from ...planning.cost import Work
from ...planning.plan import FLOAT_BYTES, Launch, Part, Value
from ..spec import Family, Memory, finish, seen

MAX_GRID_YZ = 65535  # CUDA C Programming Guide, technical specifications
PAD_PIXELS = 4  # of a block: one a warp
TRANSPOSE_TILE = 32  # rows and columns of a block
_PAD_SLOTS, _TRANSPOSE_SLOTS = 50, 60  # issue slots of a warp for 128 values, counted in the sources
_SHORT = 200_000  # elements, whose blocks do not fill a chip
_LATENCY = 1000  # clocks of a block that waits for DRAM once, with launch and stores

PAD = KernelSpec(
    name="spad",
    source="maxwell/pad.sass",
    doc="""Zero padding of maps: dst[c, h + pad_h, w + pad_w, n] = src[c, h, w, n]; every other element of dst is set
to zero (borders, also below and right when Hp > H + pad_h, and n >= N). Filters C,R,S,K -> C,R,S,Ks are the case
C = H = Hp = 1, W = Wp = C*R*S, N = K, Ns = Ks. All counts >= 1. Grid: x = ceil(Wp / 4), y = Hp (at most 65535),
z = min(C, 65535); a block walks over c in steps of gridDim.z. Block: (128, 1, 1), one warp per pixel.""",
)

TRANSPOSE = KernelSpec(
    name="stranspose",
    source="maxwell/transpose.sass",
    doc="""Transpose of a matrix: dst[j, i] = src[i, j]. N,C,H,W -> C,H,W,N is rows = N, cols = C*H*W; K,C,R,S ->
C,R,S,K is rows = K, cols = C*R*S; K,P,Q,N -> N,K,P,Q is rows = K*P*Q, cols = N. Grid: x = ceil(rows / 32),
y = min(ceil(cols / 32), 65535); a block walks over column tiles in steps of gridDim.y. Block: (256, 1, 1).""",
)


TURN = KernelSpec("sturn", "maxwell/turn.sass",
                  """Filters with channels and filters exchanged and any of their taps in any
order, zero where a row or column does not exist. Grid: x = taps, y = tiles of 32 filters, z = tiles of 32 channels.""")
TURN_TILE = 32  # filters and channels of a block


FILL = KernelSpec("sfill", "maxwell/fill.sass", """Zeroes. Grid: x = ceil(count / 512).""")


REDUCE = KernelSpec("sreduce", "maxwell/reduce.sass",
                    """Sum of the parts of a split reduction. Grid: x = ceil(length / 128),
y = filters, z = images (1 if O has them innermost).""")


def pad(dst: str, src: str | Part, size: tuple[int, int, int, int], padded: tuple[int, int, int],
        padding: tuple[int, int], doing: str) -> Launch:
    """Copy maps of `size` C, H, W, N to Hp, Wp, Ns."""
    (c, h, w, n), (hp, wp, ns) = size, padded
    values: dict[str, Value] = {"dst": dst, "src": src, "c": c, "h": h, "w": w, "n": n, "hp": hp, "wp": wp,
                                           "ns": ns, "pad_h": padding[0], "pad_w": padding[1]}
    grid = (-(-wp // PAD_PIXELS), hp, min(c, MAX_GRID_YZ))
    work = Work(grid[0] * hp * c, PAD_PIXELS * _PAD_SLOTS * -(-ns // 128), _LATENCY,
                4 * c * (h * w * n + hp * wp * ns))
    return Launch(PAD, grid, values, work, doing, (dst,))


def transpose(dst: str, src: str, rows: int, cols: int, doing: str) -> Launch:
    """Copy a matrix of rows x cols to cols x rows."""
    tile_rows, tile_cols = -(-rows // TRANSPOSE_TILE), -(-cols // TRANSPOSE_TILE)
    grid = (tile_rows, min(tile_cols, MAX_GRID_YZ), 1)
    work = Work(tile_rows * tile_cols, 8 * _TRANSPOSE_SLOTS, _LATENCY, 8 * rows * cols)
    return Launch(TRANSPOSE, grid, {"dst": dst, "src": src, "rows": rows, "cols": cols}, work, doing, (dst,))


def reduce(parts: str, out: str | Part, count: int, size: int, rows: tuple[int, int, int], k: int,
           ending: Mapping[str, Value], out_row: int | None = None) -> Launch:
    """out = the sum of `count` arrays of `size` elements, with the last step that `ending` says (`fused`). rows:
    (length, filters, images); `k` rows of an image. `out_row`: elements of `out` from one row to the next, if they do
    not follow each other."""
    length, filters, images = rows
    values = {"out": out, "parts": parts, "length": length, "out_row": out_row or length, "k": k, "splits": count,
              "step": size, **ending}
    grid = -(-length // 128), filters, images
    nbytes = FLOAT_BYTES * (count + 1) * length * filters * images
    slots = 4 * (90 + 5 * count)
    return Launch(REDUCE, grid, values, Work(grid[0] * filters * images, slots, 1500 + 100 * count, nbytes),
                  f"{count} parts of each sum are added", (out.name if isinstance(out, Part) else out,))


def fill(dst: str | Part, count: int, doing: str) -> Launch:
    """Set `count` elements to zero."""
    blocks = -(-count // 512)
    values: dict[str, Value] = {"dst": dst, "count": count}
    return Launch(FILL, (blocks, 1, 1), values, Work(blocks, 4 * 22, _LATENCY, FLOAT_BYTES * count), doing,
                  (dst.name if isinstance(dst, Part) else dst,))


def reduce_many(parts: str, out: str | Part, count: int, size: int, ending: Mapping[str, Value],
                region: Callable[[str, int], str]) -> list[Launch]:
    """As `reduce`, of arrays of one row; of many short ones in two steps, the first of which adds every so many-th.
    `region` makes room for so many elements."""
    groups = next((g for g in (16, 12, 8, 6, 4) if count % g == 0 and count >= 4 * g), 0)
    if not groups or size > _SHORT:
        return [reduce(parts, out, count, size, (size, 1, 1), 1, ending)]
    some = region(f"some_{parts}", groups * size)
    whole: dict[str, Value] = {"flags": 0, "alpha": 1.0, "beta": 0.0, "bias": 0}
    return [reduce(parts, some, count // groups, groups * size, (size, groups, 1), groups, whole),
            reduce(some, out, groups, size, (size, 1, 1), 1, ending)]


def contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of this family promise."""
    if launch.spec is REDUCE:
        _reduce_contract(launch, memory, scalars)
        return
    if launch.spec is FILL:
        seen(memory, launch.values["dst"])[:launch.numbers["count"]] = 0
        return
    if launch.spec is TURN:
        _turn_contract(launch, memory)
        return
    v, src, dst = launch.numbers, launch.values["src"], str(launch.values["dst"])
    if launch.spec is TRANSPOSE:
        rows, cols = v["rows"], v["cols"]
        assert launch.grid[0] * TRANSPOSE_TILE >= rows
        memory[dst][:] = seen(memory, src)[:rows * cols].reshape(rows, cols).T.ravel()
        return
    c, h, w, n, hp, wp, ns, top, left = (v[name] for name in "c h w n hp wp ns pad_h pad_w".split())
    assert launch.grid == (-(-wp // PAD_PIXELS), hp, min(c, MAX_GRID_YZ))
    target = memory[dst].reshape(c, hp, wp, ns)
    target[:] = 0
    target[:, top:top + h, left:left + w, :n] = seen(memory, src)[:c * h * w * n].reshape(c, h, w, n)


def _reduce_contract(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    v = launch.numbers
    parts = seen(memory, launch.values["parts"])
    blocks, filters, images = launch.grid
    assert blocks == -(-v["length"] // 128)
    rows = np.arange(images)[:, None, None] * v["k"] + np.arange(filters)[:, None]
    where = rows * v["length"] + np.arange(v["length"])
    sums = sum(parts[where + z * v["step"]].astype(float) for z in range(v["splits"]))
    where = rows * v["out_row"] + np.arange(v["length"])
    finish(launch, memory, scalars, where, sums, np.arange(filters)[:, None])


def _turn_contract(launch: Launch, memory: Memory) -> None:
    v = launch.numbers
    (taps, k_tiles, c_tiles), taps_w = launch.grid, v["taps_w"]
    assert taps == v["taps"] and TURN_TILE * taps * k_tiles >= v["rows"] and TURN_TILE * c_tiles == v["row"]
    columns = TURN_TILE * v["group_tiles"]
    at_row, at_column = np.arange(v["rows"])[:, None], np.arange(v["row"])
    (k, tap), (group, c) = np.divmod(at_row, taps), np.divmod(at_column, columns)
    steps = {name: v[name] - (v[name] >> 31 << 32) for name in ("src_r", "src_s")}
    at = (v["src_start"] + group * v["src_group"] + k * v["src_k"] + c * v["src_c"] + tap // taps_w * steps["src_r"]
          + tap % taps_w * steps["src_s"])
    exists = (k < v["k"]) & (c < v["c"])
    src, dst = seen(memory, launch.values["src"]), seen(memory, launch.values["dst"])
    dst[:at.size] = np.where(exists, src[np.where(exists, at, 0)], 0).ravel()


FAMILY = Family("layout", (PAD, TRANSPOSE, REDUCE, TURN, FILL), contract)
