"""Launches before and after the main work of other families: zero padding, transposes, sums of split-K, activations."""

from collections.abc import Callable
from dataclasses import replace

from ...planning.cost import SHORT_CTA, Cost, Work
from ...planning.plan import FLOAT_BYTES, Launch, Part, Value, begin
from ..common.epilogue import ACTIVATION_FLAGS, PARTIAL, Epilogue
from ..common.limits import MAX_GRID_YZ
from ..spec import Family
from . import reference
from .maxwell import ACTIVATE, FILL, PAD, PAD_PIXELS, REDUCE, TRANSPOSE, TRANSPOSE_TILE, TURN

# Issue slots of a warp, counted in the sources: for 128 values; of zeroes for 128 threads; of sums, and for each part.
_PAD_SLOTS, _TRANSPOSE_SLOTS, _FILL_SLOTS, _REDUCE_SLOTS, _PART_SLOTS = 50, 60, 22, 90, 5
_REDUCE_TRANSLATED = 215  # of the translation beside those of the parts, as 94 sums took on an H200: its CTAs are short
_ACTIVATE_SLOTS = 100  # of the longest, for 128 threads
_REDUCE_LATENCY, _PART_LATENCY = 1500, 100  # clocks of a CTA that adds partial sums, and for each of these; assumed
_SHORT = 200_000  # elements: the CTAs of fewer do not fill a chip
_LATENCY = 1000  # clocks of a CTA that waits for DRAM once, with launch and stores; assumed


def pad(dst: str, src: str | Part, size: tuple[int, int, int, int], padded: tuple[int, int, int],
        padding: tuple[int, int], doing: str) -> Launch:
    """Copy maps of `size` C, H, W, N to Hp, Wp, Ns."""
    (c, h, w, n), (hp, wp, ns) = size, padded
    values: dict[str, Value] = {"dst": dst, "src": src, "c": c, "h": h, "w": w, "n": n, "hp": hp, "wp": wp,
                                           "ns": ns, "pad_h": padding[0], "pad_w": padding[1]}
    grid = (-(-wp // PAD_PIXELS), hp, min(c, MAX_GRID_YZ))
    work = Work(grid[0] * hp * c, FLOAT_BYTES * c * (h * w * n + hp * wp * ns),
                Cost(PAD_PIXELS * _PAD_SLOTS * -(-ns // 128), _LATENCY))
    return Launch(PAD, grid, values, work, doing, (dst,))


def transpose(dst: str, src: str, rows: int, cols: int, doing: str, matrices: int = 1) -> Launch:
    """Copy matrices of rows x cols to cols x rows."""
    tile_rows, tile_cols = -(-rows // TRANSPOSE_TILE), -(-cols // TRANSPOSE_TILE)
    grid = (tile_rows, min(tile_cols, MAX_GRID_YZ), matrices)
    cost = Cost(8 * _TRANSPOSE_SLOTS, _LATENCY)
    work = Work(tile_rows * tile_cols * matrices, 2 * FLOAT_BYTES * rows * cols * matrices, cost,
                replace(cost, slots=SHORT_CTA))
    return Launch(TRANSPOSE, grid, {"dst": dst, "src": src, "rows": rows, "cols": cols}, work, doing, (dst,))


def reduce(parts: str, out: str | Part, count: int, size: int, rows: tuple[int, int, int], k: int,
           epilogue: Epilogue, out_row: int | None = None, parts_k: int | None = None) -> Launch:
    """out = the sum of `count` arrays, `size` elements from one to the next, with the epilogue `epilogue`. rows:
    (length, filters, images); `k` rows of an image, of `parts` `parts_k` if that differs. `out_row`: elements of `out`
    from one row to the next, if they do not follow each other."""
    length, filters, images = rows
    values = {"out": out, "parts": parts, "length": length, "out_row": out_row or length, "k": k,
              "parts_k": parts_k or k, "splits": count, "step": size, **epilogue.values()}
    grid = -(-length // 128), filters, images
    nbytes = FLOAT_BYTES * (count + 1) * length * filters * images
    cost = Cost(4 * (_REDUCE_SLOTS + _PART_SLOTS * count), _REDUCE_LATENCY + _PART_LATENCY * count)
    translation = replace(cost, slots=4 * (_REDUCE_TRANSLATED + _PART_SLOTS * count))
    return Launch(REDUCE, grid, values, Work(grid[0] * filters * images, nbytes, cost, translation),
                  f"{count} parts of each sum are added", (begin(out)[0],))


def fill(dst: str | Part, count: int, doing: str) -> Launch:
    """Set `count` elements to zero."""
    blocks = -(-count // 512)
    values: dict[str, Value] = {"dst": dst, "count": count}
    work = Work(blocks, FLOAT_BYTES * count, Cost(4 * _FILL_SLOTS, _LATENCY))
    return Launch(FILL, (blocks, 1, 1), values, work, doing, (begin(dst)[0],))


def activate(out: str, count: int, activation: str) -> Launch:
    """Apply an activation to `count` elements."""
    blocks = -(-count // 512)
    values: dict[str, Value] = {"out": out, "count": count, "flags": ACTIVATION_FLAGS[activation]}
    work = Work(blocks, 2 * FLOAT_BYTES * count, Cost(4 * _ACTIVATE_SLOTS, _LATENCY))
    return Launch(ACTIVATE, (blocks, 1, 1), values, work, f"{activation} of each result", (out,))


def reduce_many(parts: str, out: str | Part, count: int, size: int, epilogue: Epilogue,
                region: Callable[[str, int], str]) -> list[Launch]:
    """As `reduce`, of arrays of one row; of many short ones in two steps, the first of which adds every so many-th.
    `region` makes room for so many elements."""
    groups = next((g for g in (16, 12, 8, 6, 4) if count % g == 0 and count >= 4 * g), 0)
    if not groups or size > _SHORT:
        return [reduce(parts, out, count, size, (size, 1, 1), 1, epilogue)]
    some = region(f"some_{parts}", groups * size)
    return [reduce(parts, some, count // groups, groups * size, (size, groups, 1), groups, PARTIAL),
            reduce(some, out, groups, size, (size, 1, 1), 1, epilogue)]


FAMILY = Family("layout", (PAD, TRANSPOSE, REDUCE, TURN, FILL, ACTIVATE), reference.reference)
