"""The user's functions for training: gradients with respect to images, filters and bias of a layer. Check the arrays,
name the problem, choose a plan, run it."""

from dataclasses import replace
from typing import Any

from . import shortage
from .errors import ShapeError, shown
from .planning.plan import Plan
from .planning.select import MAX_ERROR, check_wanted, chip_of, choose
from .problem import problem
from .problem.operands import ArrayView, view
from .problem.problem import Problem, check_layout
from .problem.shape import ConvShape, pair
from .runtime import engine
from .runtime.arguments import check_out, check_shapes, device_of, factor_of, flag, number, planned, unaligned
from .runtime.devices.protocol import Device

_OWN = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "layout": "CHWN", "algorithm": "auto",
        "max_error": MAX_ERROR, "max_workspace_bytes": None}  # a plan's, and what says nothing


def conv_bprop_data(gradients: Any, filters: Any, size: tuple[int, int], *, stride: int | tuple[int, int] = 1,
                    padding: int | tuple[int, int] = 0, dilation: int | tuple[int, int] = 1, groups: int = 1,
                    alpha: float = 1.0, beta: float = 0.0, out: Any = None, device: Device | None = None,
                    stream: Any = None, layout: str = "CHWN", plan: Plan | None = None,
                    deterministic: bool = True, algorithm: str = "auto", max_error: float = MAX_ERROR,
                    max_workspace_bytes: int | None = None) -> Any:
    """Gradient of a layer with respect to its images, out = alpha x (gradients through the filters) + beta x out: what
    `conv_fprop` would multiply an image element by, summed over all outputs times their `gradients`.

    gradients: (K, P, Q, N), as the layer's output, filters: (C/groups, R, S, K), size: (H, W) of the images, which P
    and Q do not tell where the stride is more than 1; returns (C, H, W, N). With layout="NCHW": (N, K, P, Q),
    (K, C/groups, R, S) and (N, C, H, W). The other arguments say what the layer is, or where and how to compute, as for
    `conv_fprop`; `plan`: of `maxdnn.plan(.., kind="data")`. The same bits in every run, with deterministic=False too.
    Images of few channels may be computed by blocks of pixels: a NaN or an infinity among the gradients may then be met
    by all pixels of the blocks that it reaches.

    Peak extra memory beside the result, and what is done where there is none: as for `conv_fprop`. Raises ShapeError,
    DeviceError and OutOfMemoryError as it does, before anything runs; also for a size that the gradients and filters do
    not come from."""
    given = {"gradients": view("gradients", gradients), "filters": view("filters", filters)}
    said = _said(deterministic, stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout,
                 algorithm=algorithm, max_error=max_error, max_workspace_bytes=max_workspace_bytes)
    return _run("data", given, said, _size(size, "rows and columns of the images"), alpha, beta, out, device, stream,
                plan)


def conv_bprop_filters(images: Any, gradients: Any, size: tuple[int, int], *, stride: int | tuple[int, int] = 1,
                       padding: int | tuple[int, int] = 0, dilation: int | tuple[int, int] = 1, groups: int = 1,
                       alpha: float = 1.0, beta: float = 0.0, out: Any = None, device: Device | None = None,
                       stream: Any = None, layout: str = "CHWN", plan: Plan | None = None,
                       deterministic: bool = True, algorithm: str = "auto", max_error: float = MAX_ERROR,
                       max_workspace_bytes: int | None = None) -> Any:
    """Gradient of a layer with respect to its filters, out = alpha x (images under the gradients) + beta x out: what
    `conv_fprop` would multiply a filter element by, summed over all outputs times their `gradients`.

    images: (C, H, W, N), gradients: (K, P, Q, N), as the layer's output, size: (R, S) of the filters; returns
    (C/groups, R, S, K). With layout="NCHW": (N, C, H, W), (N, K, P, Q) and (K, C/groups, R, S). The other arguments as
    for `conv_bprop_data`; `plan`: of `maxdnn.plan(.., kind="filters")`. The sums run over all images and pixels; they
    are cut into parts, which are added in a fixed order: the same bits in every run, with deterministic=False too.

    Peak extra memory beside the result, and errors: as for `conv_bprop_data`."""
    given = {"images": view("images", images), "gradients": view("gradients", gradients)}
    said = _said(deterministic, stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout,
                 algorithm=algorithm, max_error=max_error, max_workspace_bytes=max_workspace_bytes)
    return _run("filters", given, said, _size(size, "rows and columns of the filters"), alpha, beta, out, device,
                stream, plan)


def conv_bprop_bias(gradients: Any, *, alpha: float = 1.0, beta: float = 0.0, out: Any = None,
                    device: Device | None = None, stream: Any = None, layout: str = "CHWN") -> Any:
    """Gradient of a layer with respect to its bias: out = alpha x (sum of the gradients over images and pixels) +
    beta x out. gradients: (K, P, Q, N), or (N, K, P, Q) with layout="NCHW"; returns (K,). In parts that are added in a
    fixed order: the same bits in every run. The other arguments, and errors, as for `conv_bprop_data`."""
    given = {"gradients": view("gradients", gradients)}
    check_layout(layout)
    return _run("bias", given, {"layout": layout}, None, alpha, beta, out, device, stream, None)


def _said(deterministic: Any, **said: Any) -> dict[str, Any]:
    """What a call says that a plan may say instead, what no layer is needed for checked."""
    check_wanted(said["algorithm"], said["max_error"], said["max_workspace_bytes"])
    flag("deterministic", deterministic)
    return said


def _layer(kind: str, given: dict[str, ArrayView], said: dict[str, Any], size: tuple[int, int]) -> ConvShape:
    """The layer that both arrays are of. `size`: what they do not tell of it, rows and columns of the result."""
    layout = said["layout"]
    check_layout(layout)
    (one, a), (two, b) = ((array, _axes(array, layout)) for array in given.values())
    at, what = (1, "filters K") if kind == "data" else (0, "images N")
    if a[at] != b[0]:
        raise ShapeError(f"{one.name} and {two.name} must have the same number of {what} in layout {layout} (got "
                         f"{one.name} {one.shape}, {two.name} {two.shape})")
    if kind == "data":
        (n, k, _, _), (_, c, r, s), (h, w) = a, b, size
        c *= factor_of(said["groups"])
    else:
        (n, c, h, w), (_, k, _, _), (r, s) = a, b, size
    return ConvShape(n, c, h, w, k, r, s, said["stride"], said["padding"], said["dilation"], said["groups"])


def _run(kind: str, given: dict[str, ArrayView], said: dict[str, Any], size: tuple[int, int] | None, alpha: Any,
         beta: Any, out: Any, device: Device | None, stream: Any, plan: Plan | None) -> Any:
    first = next(iter(given.values()))
    scalars = {"alpha": number("alpha", alpha), "beta": number("beta", beta)}
    reads_out = bool(scalars["beta"] != 0)
    if reads_out and out is None:
        raise ShapeError(f"out must be given for a beta other than 0 (got beta={beta})")

    def named(odd: list[str] | None = None) -> Problem:
        if shape is None:
            return problem.bias(first.shape, layout=said["layout"], reads_out=reads_out)
        make = problem.data if kind == "data" else problem.filters
        return make(shape, layout=said["layout"], unaligned=odd or (), reads_out=reads_out)
    if plan is not None:
        wanted = planned(plan, kind, given, said, _OWN, reads_out=reads_out)
        of = plan.shape
        if size and size != ((of.H, of.W) if kind == "data" else (of.R, of.S)):
            raise ShapeError(f"size must be the plan's {(of.H, of.W) if kind == 'data' else (of.R, of.S)} (got {size})")
    else:
        shape = _layer(kind, given, said, size) if size else None
        wanted = named().shapes
        check_shapes(given, wanted, f"for {shape} " if shape else "")
    rank = len(wanted["out"])
    if out is not None:
        given["out"] = check_out(view("out", out, rank), wanted["out"], given)
    target = device_of(given, device)
    asked = plan
    if plan is None:
        wished = replace(named(unaligned(given, target)), most_workspace=said.get("max_workspace_bytes"))
        plan = choose(wished, chip_of(target), algorithm=said.get("algorithm", "auto"),
                      max_error=said.get("max_error", MAX_ERROR))
    result = out
    if out is None:
        result = shortage.empty_like(first.array, wanted["out"], target, stream)
        given["out"] = view("out", result, rank)
    if asked is None:
        shortage.run(plan, given, scalars, target, stream)
    else:
        engine.run(plan, given, scalars, target, stream)
    return result


def _size(size: Any, what: str) -> tuple[int, int]:
    if not isinstance(size, (tuple, list)):
        raise ShapeError(f"size must be a pair, {what} (got {shown(size)})")
    return pair("size", size, 1)


def _axes(array: ArrayView, layout: str) -> tuple[int, int, int, int]:
    """The axes of an array as layout NCHW has them."""
    a, b, c, d = array.shape
    return (a, b, c, d) if layout == "NCHW" else (d, a, b, c)
