"""What convolutions in machine code of compute capability 9.0 share."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...planning.cost import SCHEDULERS, Cost, Work, neighbours
from ...planning.plan import FLOAT_BYTES, Value
from ...problem.problem import Problem
from ..spec import TileKernel
from .correlation import Correlation
from .layout import Layout

GROUP = 8
"""Elements (c, r, s) that one loop iteration consumes."""

TILE = 128
"""Pixels of a CTA of implicit GEMM."""

MOST_ROWS, MOST_COLUMNS = 16, 15
"""Of filters, where taps are tested."""

FEW = 8
"""Images up to which C,H,W,N is served: neighbouring pixels lie so many floats apart."""

# Timed on an H200: clocks at the ends of a wave of CTAs, which all begin and store at once; slots that a scheduler with
# one warp issues in a clock; clocks beside all waves.
_WAVE_ENDS, _ALONE, _LAUNCH = 8000, 0.86, 2000


@dataclass(frozen=True)
class NativeKernel(TileKernel):
    """`elements`: a record of its table is an element (c, r, s), not eight channels of a tap. `pace`: slots that a
    scheduler of a filled SM issues in a clock, timed on an H200."""

    elements: bool = False
    ctas_per_sm: int = 2
    pace: float = 0.95


def implicit_gemm_kernel(name: str, source: str, doc: str, filters: int, slots: tuple[int, int],
                         elements: bool = False) -> NativeKernel:
    """One of 128 pixels and some filters a CTA."""
    return NativeKernel(name, source, doc, (TILE, filters), slots, slots[0], elements, 4 if filters == 64 else 2,
                        0.93 if filters == 96 else 0.96)


def waves(spec: NativeKernel, runs: Sequence[tuple[float, int]], nbytes: int, apart: int = 1) -> Work:
    """CTAs of a kernel: runs of (iterations, how many CTAs have so many), the longest first. Up to as many as the chip
    holds are spread over all SMs; further ones begin where CTAs end, which two of an SM do at once. So a tail wave
    takes as long as a full one, however few its CTAs are. `apart`: floats from one that is stored to the next, up to
    the eight of a sector."""
    (loop, ends), warps, wave_ends = spec.slots, spec.threads // 32, _WAVE_ENDS * min(apart, 8)
    runs = [(steps, count) for steps, count in runs if count]
    lengths, each = neighbours((warps * (loop * steps + ends) / spec.pace + wave_ends * SCHEDULERS / spec.ctas_per_sm,
                                count) for steps, count in runs)
    path = (loop * runs[0][0] + ends) / _ALONE + wave_ends
    code = Cost(sum(lengths) / len(lengths), path, spec.ctas_per_sm, _LAUNCH)
    ctas = sum(count for _, count in runs)
    return Work(ctas, nbytes, code, warps=warps, lengths=tuple(lengths), each=each)


def map_steps(s: Correlation, maps: Layout, columns: bool, rows: bool) -> dict[str, Value]:
    """Parameters: bytes of the maps from one column, row and image of pixels to the next, which may be 0 along an axis
    of one pixel, and the sizes of the maps."""
    return {"map0": FLOAT_BYTES * s.str_w * maps["W"] if columns else 0,
            "map1": FLOAT_BYTES * s.str_h * maps["H"] if rows else 0,
            "map2": FLOAT_BYTES * maps["N"] if s.N > 1 else 0,
            "stride_h": s.str_h if rows else 0, "h": s.H, "stride_w": s.str_w if columns else 0, "w": s.W}


def layout_reason(problem: Problem, s: Correlation) -> str | None:
    """For `unsupported_reason`."""
    return f"layout CHWN of more than {FEW} images" if problem.layout == "CHWN" and s.N > FEW else None


