"""Gradients of the suite's layers on a real GPU: whole calls of conv_bprop_data or conv_bprop_filters beside every
algorithm of cuDNN and what PyTorch takes. See suite.py, which runs this."""

from collections.abc import Callable
from functools import partial
from typing import Any

from gpu_baselines import BACKWARD

import maxdnn
from maxdnn import ConvShape
from maxdnn.planning.select import choose
from maxdnn.problem.problem import data, filters

SOME = 8  # images whose gradients are compared at a time
FEW = 16  # filters whose gradients are compared


def gradient_row(suite: Any, direction: str, s: ConvShape, every: bool, layout: str) -> dict[str, Any]:
    """What a row of the suite says of a layer's gradient of its images ("data") or its filters ("filters")."""
    torch = suite.torch
    x, w, dy = suite.uniform((s.N, s.C, s.H, s.W), (s.K, s.C // s.groups, s.R, s.S), (s.N, s.K, s.P, s.Q))
    first, result = (w, x) if direction == "data" else (x, w)
    result = torch.full_like(result, float("nan"))
    ours = [a.permute(1, 2, 3, 0).contiguous() if layout == "CHWN" else a for a in (first, dy, result)]
    torch.cuda.synchronize()
    problem = (data if direction == "data" else filters)(s, layout=layout)
    plan = choose(problem, suite.device.chip, tuned=False)

    def run(plan: Any) -> Callable[[], Any]:
        if direction == "data":
            return lambda: maxdnn.conv_bprop_data(ours[1], ours[0], (s.H, s.W), plan=plan, out=ours[2],
                                                  stream=suite.queue)
        return lambda: maxdnn.conv_bprop_filters(ours[0], ours[1], (s.R, s.S), plan=plan, out=ours[2],
                                                 stream=suite.queue)
    row = suite.planned(plan, run)
    found = ours[2] if layout == "NCHW" else ours[2].permute(3, 0, 1, 2)
    wanted = _wanted(torch, direction, x, w, dy, s)
    row["error"] = _error(found, *wanted)
    row["correct"] = bool(row["error"] < 2e-6)
    if every:
        row["candidates"] = suite.candidates(problem, run)
    mask = [direction == "data", direction == "filters", False]
    row |= suite.beside_pytorch(lambda: torch.ops.aten.convolution_backward(
        dy, x, w, None, list(s.stride), list(s.padding), [1, 1], False, [0, 0], s.groups, mask),
        lambda found: _error(found[mask.index(True)], *wanted))
    _, _, names, direct_ones = BACKWARD[direction]
    return row | suite.beside_cudnn(partial(suite.cudnn.prepare_gradient, direction, s), names, direct_ones, first, dy,
                                    torch.empty_like(result))


def _wanted(torch: Any, direction: str, x: Any, w: Any, dy: Any, s: ConvShape) -> tuple[Any, Any]:
    """The gradient in float64 on the GPU and its sum of |terms|: of some images or some filters."""
    options = dict(stride=s.stride, padding=s.padding, groups=s.groups)
    with torch.backends.cudnn.flags(benchmark=False):
        if direction == "data":
            size = x[:SOME].shape
            want, terms = (torch.nn.grad.conv2d_input(size, f.double(), g.double(), **options)
                           for f, g in ((w, dy[:SOME]), (w.abs(), dy[:SOME].abs())))
        else:
            few = FEW if s.groups == 1 else s.K
            size = w[:few].shape
            want, terms = torch.zeros((2, *size), device="cuda", dtype=torch.float64)
            for i in range(0, s.N, SOME):
                maps, gradients = x[i:i + SOME].double(), dy[i:i + SOME, :few].double()
                want += torch.nn.grad.conv2d_weight(maps, size, gradients, **options)
                terms += torch.nn.grad.conv2d_weight(maps.abs(), size, gradients.abs(), **options)
    return want, terms


def _error(found: Any, want: Any, terms: Any) -> float:
    """The largest of the sum of |terms|."""
    return float(((found[:len(want)].double() - want).abs() / terms.clamp_min(1e-30)).max())
