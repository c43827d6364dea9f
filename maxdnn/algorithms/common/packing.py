"""Packed filters: filters in the order and with the row length that a kernel reads."""

from dataclasses import replace
from typing import NamedTuple

from ...errors import ShapeError
from ...planning.cost import SHORT_CTA, Cost, Work
from ...planning.plan import FLOAT_BYTES, Launch, Value
from ...problem.problem import Alignment, Problem
from ...problem.shape import ConvShape
from ..memory_ops.maxwell import TURN, TURN_TILE
from . import layout
from .correlation import Correlation
from .fastdiv import MOST_SHORT, short_magic
from .limits import MAX_GRID_YZ, TEXEL_FLOATS, round_up
from .workspace import Draft

_SLOTS = 130  # issue slots of a warp, counted in the source
_LATENCY = 1500  # clocks of a CTA: one wait for DRAM and the divisions before it; assumed


class Packed(NamedTuple):
    """Filters C/groups,R,S,K' in memory; `row`: floats of K' of all groups."""

    place: str
    row: int

    @property
    def texels(self) -> int:
        """Of a row."""
        return self.row // TEXEL_FLOATS


def as_they_lie(problem: Problem) -> bool:
    """Whether filters of one tap need no packing: in N,C,H,W they are K,C."""
    s: ConvShape = problem.shape
    return problem.layout == "NCHW" and s.R == s.S == s.groups == 1


def crsk(draft: Draft) -> str:
    """The filters of a layer in N,C,H,W as C,R,S,K."""
    s: ConvShape = draft.problem.shape
    return draft.transposed("filters_crsk", "filters", s.K, s.patch,
                            "filters change layout: the kernel reads C,R,S,K")


def packed(draft: Draft, s: Correlation | ConvShape, *, source: str = "", needs: int = TEXEL_FLOATS,
           multiple: int = TEXEL_FLOATS, rows: int = 0, copied: bool = False) -> Packed:
    """The filters of a correlation where a kernel reads them, which takes rows of a group that are multiples of `needs`
    floats as they lie and begin where a texture may; else they are copied, or rotated for gradients, to `rows` rows (a
    patch if 0) of a multiple of `multiple`. `source`: where they lie C,R,S,K already. `copied`: in any case."""
    problem, k, rows = draft.problem, s.K // s.groups, rows or s.patch
    if problem.kind == "data" and isinstance(s, Correlation) and not as_they_lie(problem):
        return rotated(draft, s, rows, round_up(k, 32))
    place, aligned = source or "filters", bool(source) or problem.operand("filters").alignment == Alignment.TEXTURE
    if not source and problem.layout == "NCHW" and problem.kind == "forward":
        place, aligned = crsk(draft), True
    if k % needs == 0 and aligned and not copied:
        return Packed(place, s.K)
    row, why = round_up(k, multiple), ""
    size = f"{s.C // s.groups} x {s.R} x {s.S} x" if rows == s.patch else f"{rows} rows of"
    if k % needs:
        why = f" ({'K' if s.groups == 1 else 'K/groups'}={k} is no multiple of {needs})"
    elif not aligned:
        why = " (they begin where no texture may)"
    place = draft.padded("filter_bank", place, (1, 1, s.patch * s.groups, k), (1, rows * s.groups, row), (0, 0),
                         f"filters are copied to {size} {s.groups * row}{why}")
    return Packed(place, s.groups * row)


def rotated(draft: Draft, s: Correlation, rows: int, columns: int) -> Packed:
    """Filters of a problem of kind "data" for one of its correlations, with channels and filters exchanged and the
    taps in the order that the correlation meets them: `rows` rows (c, r, s), zero from the last on, of groups x columns
    floats, zero where a group has no such channel."""
    problem = draft.problem
    layer: ConvShape = problem.shape
    c, k, row = layer.C // layer.groups, layer.K // layer.groups, s.groups * columns
    (tap_h, step_h), (tap_w, step_w) = s.taps
    src_s, src_r, src_c, src_k = layout.filters(problem).steps("SRCK")
    taps, tiles = s.R * s.S, columns // TURN_TILE
    filters = -(-rows // taps)
    for what, count, limit in (("filter taps R x S", taps, MOST_SHORT),
                               ("filters / 32", filters // TURN_TILE, MAX_GRID_YZ),
                               ("channels of all groups / 32", row // TURN_TILE, MOST_SHORT)):
        if count > limit:
            raise ShapeError(f"{what} must be at most {limit} (got {count} for {layer})")
    name = draft.region(f"rotated_{s.first[0]}_{s.first[1]}" if s.every != (1, 1) else "rotated", rows * row)
    grid = taps, -(-filters // TURN_TILE), row // TURN_TILE
    values: dict[str, Value] = {
        "dst": name, "src": "filters", "rows": rows, "row": row, "group_tiles": tiles,
        "group_magic": short_magic(tiles), "taps": taps, "taps_w": s.S, "taps_magic": short_magic(s.S), "c": c, "k": k,
        "src_start": tap_h * src_r + tap_w * src_s, "src_r": step_h * src_r % 2**32, "src_s": step_w * src_s % 2**32,
        "src_c": src_c, "src_k": src_k, "src_group": k * src_k, "across": int(src_k < src_c)}
    cost = Cost(8 * _SLOTS, _LATENCY)
    work = Work(grid[0] * grid[1] * grid[2], FLOAT_BYTES * (rows * row + c * k * taps * s.groups), cost,
                replace(cost, slots=SHORT_CTA))
    draft.launches.append(Launch(TURN, grid, values, work, "filters are rotated: their channels become rows", (name,)))
    return Packed(name, row)
