"""The user's functions for training: gradients with respect to images, filters and bias of a layer.

Check the arrays, name the problem, choose a plan, run it.
"""

from dataclasses import replace
from typing import Any

from .errors import ShapeError, shown
from .planning.plan import Plan
from .planning.select import MAX_ERROR, check_wanted, chip_of, choose
from .problem import problem
from .problem.arrays import Array, ArrayT
from .problem.operands import ArrayView, view
from .problem.problem import Problem, check_layout
from .problem.shape import ConvShape, pair
from .runtime import engine, shortage
from .runtime.arguments import check_out, check_shapes, device_of, factor_of, flag, number, planned, unaligned
from .runtime.devices.protocol import Device

_OWN = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "layout": "CHWN", "algorithm": "auto",
        "max_error": MAX_ERROR, "max_workspace_bytes": None}  # a plan's, and what says nothing


def conv_bprop_data(gradients: ArrayT, filters: Array, size: tuple[int, int], *, stride: int | tuple[int, int] = 1,
                    padding: int | tuple[int, int] = 0, dilation: int | tuple[int, int] = 1, groups: int = 1,
                    alpha: float = 1.0, beta: float = 0.0, out: ArrayT | None = None, device: Device | None = None,
                    stream: Any = None, layout: str = "CHWN", plan: Plan | None = None,
                    deterministic: bool = True, algorithm: str = "auto", max_error: float = MAX_ERROR,
                    max_workspace_bytes: int | None = None) -> ArrayT:
    """Gradient of a layer with respect to its images (dgrad) in float32.

    out = alpha * sum over all outputs of gradients * filters + beta * out.

    Parameters
    ----------
    gradients : array of float32
        (K, P, Q, N), or (N, K, P, Q) with layout="NCHW", as the layer's output. C-contiguous.
    filters : array of float32
        (C/groups, R, S, K), or (K, C/groups, R, S). C-contiguous.
    size : (int, int)
        (H, W) of the images, which P and Q do not tell where the stride is more than 1.
    stride, padding, dilation : int or (int, int)
        Of the layer, as for `conv_fprop`.
    groups : int
        Of the layer, as for `conv_fprop`.
    alpha : float
        Factor of the sums, rounded to float32.
    beta : float
        Factor of what `out` held; at 0 its content does not matter.
    out : array of float32, optional
        To be filled, in the shape of the result. C-contiguous, no overlap with an input. Needed for a beta other
        than 0.
    device : Device, optional
        Where NumPy arrays run: the virtual GTX 980 if None. Arrays on a GPU run there.
    stream : stream, optional
        Of the library of the arrays, or a handle: work is put there, after what the arrays' own streams still do.
        The call does not wait for the result.
    layout : {"CHWN", "NCHW"}
        Order of the axes of all arrays.
    plan : Plan, optional
        Of `maxdnn.plan(.., kind="data")`, in place of the layer's arguments.
    deterministic : bool
        No effect: every run gives the same bits.
    algorithm : {"auto", "direct", "winograd"}
        "winograd" transforms tiles: a NaN, an infinity or a value beyond float32 may be lost to all outputs of its
        tile. "auto" takes what is estimated, or was measured, to be faster.
    max_error : float
        No plan is taken whose documented error is larger, relative to the sum of an output's |terms|, for arrays
        uniform in [-1, 1].
    max_workspace_bytes : int, optional
        Bytes of extra memory, a quarter of the device's if None. A Winograd layer that needs more is cut into runs
        of images.

    Returns
    -------
    array of float32
        `out`, or a new array: (C, H, W, N), or (N, C, H, W).

    Raises
    ------
    ShapeError
        Arrays or numbers fit no kernel, not each other, or not the given plan, or no layer has these sizes. Raised
        before anything runs, as the others.
    DeviceError
        There is no such device.
    OutOfMemoryError
        There is no memory for the result, or for the workspace of any plan.

    Notes
    -----
    With few channels a tile holds windows of pixels: a NaN or an infinity may then reach all pixels of its window.
    Workspace as for `conv_fprop`.
    """
    given = {"gradients": view("gradients", gradients), "filters": view("filters", filters)}
    said = _said(deterministic, stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout,
                 algorithm=algorithm, max_error=max_error, max_workspace_bytes=max_workspace_bytes)
    found: ArrayT = _run("data", given, said, _size(size, "rows and columns of the images"), alpha, beta, out, device,
                         stream, plan)
    return found


def conv_bprop_filters(images: ArrayT, gradients: Array, size: tuple[int, int], *, stride: int | tuple[int, int] = 1,
                       padding: int | tuple[int, int] = 0, dilation: int | tuple[int, int] = 1, groups: int = 1,
                       alpha: float = 1.0, beta: float = 0.0, out: ArrayT | None = None, device: Device | None = None,
                       stream: Any = None, layout: str = "CHWN", plan: Plan | None = None,
                       deterministic: bool = True, algorithm: str = "auto", max_error: float = MAX_ERROR,
                       max_workspace_bytes: int | None = None) -> ArrayT:
    """Gradient of a layer with respect to its filters (wgrad) in float32.

    out = alpha * sum over all outputs of gradients * images + beta * out.

    Parameters
    ----------
    images : array of float32
        (C, H, W, N), or (N, C, H, W) with layout="NCHW". C-contiguous.
    gradients : array of float32
        (K, P, Q, N), or (N, K, P, Q), as the layer's output. C-contiguous.
    size : (int, int)
        (R, S) of the filters.
    stride, padding, dilation : int or (int, int)
        Of the layer, as for `conv_fprop`.
    groups : int
        Of the layer, as for `conv_fprop`.
    alpha : float
        Factor of the sums, rounded to float32.
    beta : float
        Factor of what `out` held; at 0 its content does not matter.
    out : array of float32, optional
        To be filled, in the shape of the result. C-contiguous, no overlap with an input. Needed for a beta other
        than 0.
    device : Device, optional
        Where NumPy arrays run: the virtual GTX 980 if None. Arrays on a GPU run there.
    stream : stream, optional
        Of the library of the arrays, or a handle: work is put there, after what the arrays' own streams still do.
        The call does not wait for the result.
    layout : {"CHWN", "NCHW"}
        Order of the axes of all arrays.
    plan : Plan, optional
        Of `maxdnn.plan(.., kind="filters")`, in place of the layer's arguments.
    deterministic : bool
        No effect: partial sums are added in a fixed order, so every run gives the same bits.
    algorithm : {"auto", "direct", "winograd"}
        "winograd" transforms tiles: a NaN, an infinity or a value beyond float32 may be lost to all outputs of its
        tile. "auto" takes what is estimated, or was measured, to be faster.
    max_error : float
        No plan is taken whose documented error is larger, relative to the sum of an output's |terms|, for arrays
        uniform in [-1, 1].
    max_workspace_bytes : int, optional
        Bytes of extra memory, a quarter of the device's if None. A Winograd layer that needs more is cut into runs
        of images.

    Returns
    -------
    array of float32
        `out`, or a new array: (C/groups, R, S, K), or (K, C/groups, R, S).

    Raises
    ------
    ShapeError
        Arrays or numbers fit no kernel, not each other, or not the given plan, or no layer has these sizes. Raised
        before anything runs, as the others.
    DeviceError
        There is no such device.
    OutOfMemoryError
        There is no memory for the result, or for the workspace of any plan.
    """
    given = {"images": view("images", images), "gradients": view("gradients", gradients)}
    said = _said(deterministic, stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout,
                 algorithm=algorithm, max_error=max_error, max_workspace_bytes=max_workspace_bytes)
    found: ArrayT = _run("filters", given, said, _size(size, "rows and columns of the filters"), alpha, beta, out,
                         device, stream, plan)
    return found


def conv_bprop_bias(gradients: ArrayT, *, alpha: float = 1.0, beta: float = 0.0, out: ArrayT | None = None,
                    device: Device | None = None, stream: Any = None, layout: str = "CHWN") -> ArrayT:
    """Gradient of a layer with respect to its bias in float32.

    out = alpha * (sum of the gradients over images and pixels) + beta * out.

    Parameters
    ----------
    gradients : array of float32
        (K, P, Q, N), or (N, K, P, Q) with layout="NCHW". C-contiguous.
    alpha : float
        Factor of the sums, rounded to float32.
    beta : float
        Factor of what `out` held; at 0 its content does not matter.
    out : array of float32, optional
        To be filled, in the shape of the result. C-contiguous, no overlap with an input. Needed for a beta other
        than 0.
    device : Device, optional
        Where NumPy arrays run: the virtual GTX 980 if None. Arrays on a GPU run there.
    stream : stream, optional
        Of the library of the arrays, or a handle: work is put there, after what the arrays' own streams still do.
        The call does not wait for the result.
    layout : {"CHWN", "NCHW"}
        Order of the axes of all arrays.

    Returns
    -------
    array of float32
        `out`, or a new array: (K,). Partial sums are added in a fixed order: the same bits in every run.

    Raises
    ------
    ShapeError
        Arrays or numbers fit no kernel, not each other, or not the given plan. Raised before anything runs, as the
        others.
    DeviceError
        There is no such device.
    OutOfMemoryError
        There is no memory for the result, or for the workspace of any plan.
    """
    given = {"gradients": view("gradients", gradients)}
    check_layout(layout)
    found: ArrayT = _run("bias", given, {"layout": layout}, None, alpha, beta, out, device, stream, None)
    return found


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
