"""Grouped convolution with few channels a group, depthwise above all. No map value serves several filters, so memory
limits the speed. A thread computes several outputs of one filter and fetches every row of the map once. One launch
serves all groups, images and filters, in either layout, without copies. A single group with few channels or few
filters, which would fill only part of a product's tile, is served too."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from ...planning.cost import Chip, Cost, Work
from ...planning.plan import FLOAT_BYTES, Launch, Plan, Value
from ...problem.problem import Problem
from ...problem.shape import ConvShape
from ..common import layout
from ..common.correlation import Correlation, correlations, maps_of
from ..common.epilogue import PARTIAL, Epilogue, epilogue_of
from ..common.fastdiv import divisor
from ..common.limits import within
from ..common.schedule import split_name
from ..common.workspace import Draft, part
from ..memory_ops.plan import reduce
from ..spec import Candidates, Family, strided_reason
from .maxwell import IMAGES_FIRST, KERNELS, THREADS, GroupKernel
from .reference import reference

MOST_CHANNELS = 8
"""Of a group: with more of them a tile of a product does less."""

MOST_ON_A_SIDE = 16
"""Channels or filters of a single group."""

FEWEST_OF_A_PART = 4
"""Channels of such a group, where sums over them are split."""

MOST_TERMS = 8192
"""Of a sum in one register: longer ones of numbers of one sign pass the documented error."""

MAX_ELEMENTS = 2**31 - 1  # the kernels count elements of an array in 31 bits and a sign
# Of an issue slot in a translation, by rows of the filters that a kernel is for, as timed on an H200: 3x3 and 5x5 with
# 1 to 64 channels, 7x7 and 13x13 with one.
_TRANSLATED = {3: 1.2, 5: 1.2, 7: 1.65, None: 1.1}
_LATENCY = 2500  # clocks of a CTA, beside its issue slots, for divisions, the filter, rows and stores; assumed
# And for each channel behind the first: a wait for its filter and rows; where a loop fetches taps, for each of them. As
# timed on an H200, of 4 to 64 channels.
_CHANNEL, _TAP = 640, 200


def few(problem: Problem) -> str | None:
    """Why a layer is left to other families: it has a single group, or too many channels (dgrad: filters) a group.
    None if it is not."""
    s: ConvShape = problem.shape
    if s.groups == 1:
        return "a single group"
    what, count = ("filters", s.K) if problem.kind == "data" else ("channels", s.C)
    if count // s.groups > MOST_CHANNELS:
        return f"groups of more than {MOST_CHANNELS} {what}"
    return None


def few_on_a_side(problem: Problem) -> str | None:
    """The same, but that of a single group either side may be the one with few."""
    s: ConvShape = problem.shape
    if s.groups > 1:
        return few(problem)
    if min(s.C, s.K) > MOST_ON_A_SIDE:
        return f"more than {MOST_ON_A_SIDE} channels and filters"
    if max(s.C, s.K) * s.R * s.S > MOST_TERMS:
        return f"sums of more than {MOST_TERMS} products"
    return None


def unsupported_reason(problem: Problem) -> str | None:
    return few_on_a_side(problem) or strided_reason(problem)


def candidates(problem: Problem, chip: Chip) -> Candidates:
    """The unrolled kernels that serve all of it, else the one with loops, which is slower everywhere. Sums over the
    channels of a single group also in parts: a thread waits for each channel."""
    every = correlations(problem)
    found = [spec for spec in KERNELS if all(spec.serves(x, problem.layout == "CHWN") for x in every)]
    c = every[0].C if problem.shape.groups == len(every) == 1 else 0
    splits = [1] + [parts for parts in (2, 4, 8, 16) if c % parts == 0 and c // parts >= FEWEST_OF_A_PART]
    return {split_name(spec.name, parts): partial(_plan, problem, spec, parts)
            for spec in found if spec.filter or len(found) == 1 for parts in splits}


def _plan(problem: Problem, spec: GroupKernel, parts: int) -> Plan:
    draft, phases, done = Draft(problem), correlations(problem), 0
    if parts > 1:
        _split(draft, spec, phases[0], parts)
        return draft.plan(FAMILY, spec)
    shares = [x.P * x.Q * (x.patch + 1) for x in phases]
    for i, x in enumerate(phases):
        flops = problem.shape.flops * sum(shares[:i + 1]) // sum(shares) - done
        draft.launches.append(_launch(problem, spec, x, flops, epilogue_of(problem), "out", _filter_steps(problem, x)))
        done += flops
    return draft.plan(FAMILY, spec)


def _split(draft: Draft, spec: GroupKernel, x: Correlation, parts: int) -> None:
    """As so many groups, each with some of the channels and a map of partial sums for every filter."""
    problem, steps = draft.problem, _filter_steps(draft.problem, x)
    of_channel, of_filter = (steps[name] for name in ("filter_channel", "filter_k"))
    assert isinstance(of_channel, int) and isinstance(of_filter, int)
    steps["filter_group"] = x.C // parts * of_channel - x.K * of_filter
    groups = replace(x, K=parts * x.K, groups=parts)
    region = draft.region("groups", parts * x.N * x.K * x.P * x.Q)
    draft.launches.append(_launch(problem, spec, groups, problem.shape.flops, PARTIAL, region, steps))
    length, images = (x.P * x.Q, x.N) if problem.layout == "NCHW" else (x.P * x.Q * x.N, 1)
    draft.launches.append(reduce(region, "out", parts, x.K * length, (length, x.K, images), x.K, epilogue_of(problem),
                                 parts_k=parts * x.K))
    draft.notes.append(f"the sums over {x.C} channels are split {parts} ways; the parts are added in a fixed order")


def _launch(problem: Problem, spec: GroupKernel, x: Correlation, flops: int, epilogue: Epilogue, into: str,
            filter_steps: Mapping[str, Value]) -> Launch:
    chwn, c = problem.layout == "CHWN", x.C // x.groups
    maps, out = x.images(problem.layout), x.results(problem.layout)
    rows, columns, images = (-(-size // tile) for size, tile in zip((x.P, x.Q, x.N), spec.tile, strict=True))
    sizes = (images, columns, rows, x.K) if chwn else (columns, rows, x.K, images)
    count = images * columns * rows * x.K
    _check_limits(problem, spec, x)
    ctas = -(-count // THREADS)
    values: dict[str, Value] = {
        **epilogue.values(IMAGES_FIRST * chwn), "out": part(into, x.start * out["W"]),
        "images": maps_of(problem), "filters": "filters", "count": count, "channels": c if x.patch else 0,
        "p": x.P, "q": x.Q, "n": x.N, **map_values(x, maps), "second": images, "map_second": images * maps["N"],
        "out_second": images * out["N"], **filter_steps, "out_image": out["N"], "out_k": out["C"],
        "out_row": x.steps[0] * out["H"], "out_column": x.steps[1] * out["W"]}
    if spec.filter is None:
        values |= {"r": x.R, "s": x.S}
    for name, size in (*((f"d{i}", sizes[i]) for i in range(3)), ("group", x.K // x.groups)):
        values |= divisor(name, size, THREADS * ctas)
    doing = "{} x {} outputs of {} images a thread, all groups at once".format(*spec.tile)
    if x.every != (1, 1):
        doing += ", of every {}th row and {}th column".format(*x.every)
    return Launch(spec, (ctas, 1, 1), unsigned(values), _work(problem, spec, x, ctas), doing, (into,), flops=flops)


def unsigned(values: Mapping[str, Value]) -> dict[str, Value]:
    """Numbers as a kernel's parameters have them."""
    return {name: value % 2**32 if isinstance(value, int) else value for name, value in values.items()}


def map_values(x: Correlation | ConvShape, maps: layout.Layout) -> dict[str, Value]:
    """The parameters of a walk over maps."""
    return {"h": x.H, "w": x.W, "start_h": -x.pad_h, "start_w": -x.pad_w, "stride_h": x.str_h, "stride_w": x.str_w,
            "dilation_h": x.dil_h, "dilation_w": x.dil_w, "map_start": -(x.pad_h * maps["H"] + x.pad_w * maps["W"]),
            "map_image": maps["N"], "map_group": x.C // x.groups * maps["C"], "map_channel": maps["C"],
            "map_row": x.str_h * maps["H"], "map_column": x.str_w * maps["W"], "tap_row": x.dil_h * maps["H"],
            "tap_column": x.dil_w * maps["W"]}


def _check_limits(problem: Problem, spec: GroupKernel, x: Correlation) -> None:
    below, most = x.H + abs(x.pad_h) + x.str_h * (x.P + spec.tile[0]) + x.dil_h * x.R, MAX_ELEMENTS - THREADS
    within(problem.shape, (
        (f"{maps_of(problem)} C x H x W x N", x.C * x.H * x.W * x.N, most, "elements"),
        ("output K x P x Q x N", x.K * x.outputs * x.N, most, "elements"),
        ("filters K x C/groups x R x S", problem.shape.K * problem.shape.patch, most, "elements"),
        ("padded map", below * x.images(problem.layout)["H"], most, "elements"),
        ("padded columns W + 2 padding", x.W + abs(x.pad_w) + x.str_w * x.Q, most, "columns")))


def _filter_steps(problem: Problem, x: Correlation) -> dict[str, Value]:
    """Where the filters of a correlation lie in those of the layer."""
    s: ConvShape = problem.shape
    c, k = s.C // s.groups, s.K // s.groups
    of_k, of_c, of_r, of_s = layout.filters(problem).steps("KCRS")
    (tap_h, step_h), (tap_w, step_w) = x.taps
    steps: dict[str, Value] = {"filter_start": tap_h * of_r + tap_w * of_s, "filter_row": step_h * of_r,
                               "filter_tap": step_w * of_s}
    if problem.kind == "data":  # of group g, what it computes for channel g c + i takes filters g k ..
        return steps | {"filter_k": of_c, "filter_group": k * of_k - c * of_c, "filter_channel": of_k}
    return steps | {"filter_k": of_k, "filter_group": 0, "filter_channel": of_c}


def _work(problem: Problem, spec: GroupKernel, x: Correlation, blocks: int) -> Work:
    """Four warps a block, each all slots; maps, filters and outputs once."""
    c, (tap, row, channel, rest) = x.C // x.groups, spec.slots
    each = (tap * x.S + row) * x.R + channel
    once = x.C * x.H * x.W * x.N + x.K * x.patch + x.K * x.P * x.Q * x.N * (1 + problem.reads_out)
    waits = _CHANNEL if spec.filter else _TAP * x.R * x.S
    code = Cost(THREADS // 32 * (c * each + rest), each + rest + _LATENCY, longest=(c - 1) * (each + waits))
    times = _TRANSLATED[spec.filter and spec.filter[0]]
    return Work(blocks, FLOAT_BYTES * once, code, code.translated(times * code.slots))


FAMILY = Family("depthwise", KERNELS, reference, ("forward", "data"), unsupported_reason, candidates,
                activations=("relu", "relu6", "hardswish", "silu", "gelu_tanh"))
