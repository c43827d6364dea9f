"""Gradients of images with strides on the tensor cores of sm_90, as exact as float32: the kernel of implicit_gemm's
tensor_cores correlates for each residue phase, into the workspace, and a last one puts pixels of the phases side by
side (sass/sm90/interleave.sass). The gradients are split once."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from ...build.interface import KernelSpec
from ...planning.cost import Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, Launch, Part, Plan, Value
from ...problem.problem import Problem
from ..common.correlation import Correlation, correlations
from ..common.epilogue import ADDS, PARTIAL, epilogue_of, finish
from ..common.fastdiv import divisor, quotient
from ..common.limits import MAX_ELEMENTS, MAX_GRID_YZ, within
from ..common.schedule import divides, split_name
from ..common.workspace import Draft
from ..gemm.tensor_cores import NOTE
from ..implicit_gemm.tensor_cores import (
    FEWEST,
    PIXELS,
    check_limits,
    chunks_of,
    gather,
    source_of,
    split_filters,
    split_maps,
)
from ..memory_ops.plan import reduce
from ..spec import Candidates, Family, Memory, seen

NAME = "sm90_tensor_phases_128x128"
"""Of the candidate with whole sums."""

MOST_STRIDE = 32
"""Bits of a word, one for each residue."""

_SPLITS = (1, 2, 3, 4, 6, 8)
_PLANES, _THREADS = 8, 64  # of a CTA
_SLOTS, _LATENCY = 168, 3000  # issue slots of a warp, counted in the source; of a CTA that waits for DRAM once, assumed

DOC = """Puts pixels of residue phases side by side: see interleave.sass. Grid: x = elements of a plane / 64, y = planes
/ 8."""

INTERLEAVE = KernelSpec("sm90_interleave", "sm90/interleave.sass", DOC)


def unsupported_reason(problem: Problem) -> str | None:
    """Gradients may have such strides as implicit_gemm/tensor_cores.py reads."""
    every = correlations(problem)
    s = every[0]
    if len(every) == 1:
        return "no strides"
    if not s.patch:
        return "images that no tap reaches"
    if s.C // s.groups < FEWEST:
        return f"{s.C // s.groups} filters of a group, fewer than {FEWEST}"
    if max(s.every) > MOST_STRIDE:
        return f"strides {s.every[0]}x{s.every[1]}, more than {MOST_STRIDE}"
    if source_of(problem, s) is None:
        return "gradients whose pixels, or groups of images, do not lie in equal steps"
    return next((f"{o.role} that are not C-contiguous" for o in problem.operands
                 if o.strides and o.role != "gradients"), None)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    """The sums of all phases are split into as many parts, of which none is empty."""
    chunks = {chunks_of(s) for s in correlations(problem) if s.patch}
    return {split_name(NAME, splits): partial(_plan, problem, chip, splits)
            for splits in _SPLITS if all(divides(count, splits) for count in chunks)}


def _plan(problem: Problem, chip: Chip, splits: int) -> Plan:
    """All phases are as large as the largest, with an even number of pixels: what is beyond the image is computed and
    left out."""
    draft, every = Draft(problem), [s for s in correlations(problem) if s.patch]
    one = every[0]
    (step_h, step_w), (rows, columns) = one.every, one.whole
    height, width = -(-rows // step_h), -(-columns // step_w)
    if (1 if problem.layout == "NCHW" else one.N) * height * width % 2:
        width += 1  # single numbers take longer to store than pairs (implicit_gemm)
    size = one.N * one.K * height * width
    total = step_h * step_w * size
    within(one, (("phases of N x C x H x W", splits * total, MAX_ELEMENTS, "elements, all parts of sums counted"),))
    maps = split_maps(draft, one)
    place = draft.region("parts" if splits > 1 else "phases", splits * total)
    flops = 2 * one.N * one.K * height * width * sum(s.patch + 1 for s in every)
    for number, s in enumerate(every):
        phase = replace(s, P=height, Q=width, first=(0, 0), every=(1, 1), whole=(height, width))
        check_limits(phase, splits)
        filters = split_filters(draft, s, f"filter_pieces_{number}")
        into = Part(place, FLOAT_BYTES * (s.first[0] * step_w + s.first[1]) * size)
        launch = gather(problem, phase, chip, filters, maps, into, PARTIAL, splits)
        values = {**launch.values, "out_split": total if splits > 1 else 0}
        draft.launches.append(replace(launch, values=values, flops=problem.shape.flops * launch.flops // flops))
    if splits > 1:
        draft.region("phases", total)
        draft.launches.append(reduce("parts", "phases", splits, total, (total, 1, 1), 1, PARTIAL))
        draft.notes.append(f"the sums of each phase are split {splits} ways; the parts are added in a fixed order")
    draft.launches.append(_interleave(problem, one, every, (height, width)))
    draft.notes.append(NOTE)
    return draft.plan(FAMILY, PIXELS)


def _interleave(problem: Problem, one: Correlation, every: list[Correlation], phase: tuple[int, int]) -> Launch:
    planes, inner = (one.N * one.K, 1) if problem.layout == "NCHW" else (one.K, one.N)
    (rows, columns), (step_h, step_w) = one.whole, one.every
    size, epilogue = rows * columns * inner, epilogue_of(problem)
    grid = -(-size // _THREADS), -(-planes // _PLANES), 1
    within(one, (("planes / 8", grid[1], MAX_GRID_YZ, "blocks along y of a grid"),
                 ("output N x C x H x W", planes * size, MAX_ELEMENTS, "elements")))
    values: dict[str, Value] = {
        "out": "out", "phases": "phases", **epilogue.without_bias(), "planes": planes, "size": size,
        "phase_plane": phase[0] * phase[1] * inner, "phase_row": phase[1] * inner,
        "phase_size": planes * phase[0] * phase[1] * inner, **divisor("inner", inner, size),
        **divisor("w", columns, rows * columns), **divisor("s_h", step_h, rows), **divisor("s_w", step_w, columns),
        "reached_h": sum({1 << s.first[0] for s in every}), "reached_w": sum({1 << s.first[1] for s in every})}
    nbytes = FLOAT_BYTES * planes * size * (1 + len(every) / (step_h * step_w) + bool(epilogue.flags & ADDS))
    work = Work(grid[0] * grid[1], nbytes, Cost(_THREADS // 32 * _SLOTS, _LATENCY), warps=_THREADS // 32)
    return Launch(INTERLEAVE, grid, values, work, "pixels of the residue phases are put side by side", ("out",))


# --- What the kernel promises ---

def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    v = launch.numbers
    assert launch.grid == (-(-v["size"] // _THREADS), -(-v["planes"] // _PLANES), 1)
    e = np.arange(v["size"])
    pixel = quotient(v, "inner", e)
    h, w = quotient(v, "w", pixel), pixel % v["w"]
    i, j, a, b = quotient(v, "s_h", h), quotient(v, "s_w", w), h % v["s_h"], w % v["s_w"]
    reached = (v["reached_h"] >> a & v["reached_w"] >> b & 1) == 1
    at = (a * v["s_w"] + b) * v["phase_size"] + i * v["phase_row"] + j * v["inner"] + e % v["inner"]
    planes = np.arange(v["planes"])[:, None]
    phases = seen(memory, launch.values["phases"])
    values = np.where(reached, phases[np.where(reached, planes * v["phase_plane"] + at, 0)].astype(float), 0)
    finish(launch, memory, scalars, planes * v["size"] + e, values, planes)


FAMILY = Family("tensor phases", (INTERLEAVE,), reference, ("data",), unsupported_reason, candidates)
