"""Convolution and its gradients, as users call them.

Every call goes operands -> problem -> select -> run (runtime/frontend.py). Here it is said what the operands of each
pass are.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .errors import ShapeError, shown
from .planning.plan import Plan
from .planning.select import MAX_ERROR, check_wanted
from .problem import problem
from .problem.arrays import Array, ArrayT
from .problem.operands import ArrayView, view
from .problem.problem import Problem, check_layout
from .problem.shape import ConvShape, pair
from .runtime.arguments import check_shapes, factor_of, factors, flag, planned
from .runtime.devices.protocol import Device
from .runtime.frontend import Call
from .runtime.prepared import PreparedFilters

_PLAIN = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "layout": "CHWN", "activation": None,
          "algorithm": "auto", "max_error": MAX_ERROR, "max_workspace_bytes": None,
          "arithmetic": "auto"}  # what says nothing beside a plan


def conv_fprop(images: ArrayT, filters: Array | PreparedFilters, *, stride: int | tuple[int, int] = 1,
               padding: int | tuple[int, int] = 0, alpha: float = 1.0, out: ArrayT | None = None,
               device: Device | None = None, stream: Any = None, layout: str = "CHWN", plan: Plan | None = None,
               dilation: int | tuple[int, int] = 1, groups: int = 1, bias: Array | None = None,
               activation: str | None = None, beta: float = 0.0, algorithm: str = "auto",
               max_error: float = MAX_ERROR, max_workspace_bytes: int | None = None,
               arithmetic: str = "auto") -> ArrayT:
    """Forward convolution in float32 (cross-correlation, as networks use it).

    out = activation(alpha * (images * filters) + bias + beta * out).

    Parameters
    ----------
    images : array of float32
        (C, H, W, N), or (N, C, H, W) with layout="NCHW". C-contiguous; without a plan also any view without negative
        strides that begins where a texture may: it is read where it lies.
    filters : array of float32 or PreparedFilters
        (C/groups, R, S, K), or (K, C/groups, R, S). C-contiguous, or what `prepare_filters` returned.
    stride, padding : int or (int, int)
        Steps of the filter, zeros on either side; for both axes or (rows, columns).
    alpha : float
        Factor of the sums, rounded to float32; infinities and NaN too.
    out : array of float32, optional
        To be filled: (K, P, Q, N), or (N, K, P, Q). C-contiguous, no overlap with an input. Needed for a beta other
        than 0.
    device : Device, optional
        Where NumPy arrays run: the virtual GTX 980 if None. Arrays on a GPU run there.
    stream : stream, optional
        Of the library of the arrays, or a handle: work is put there, after what the arrays' own streams still do.
        The call does not wait for the result.
    layout : {"CHWN", "NCHW"}
        Order of the axes of all arrays.
    plan : Plan, optional
        Of `maxdnn.plan`, in place of stride, padding, dilation, groups, layout, activation and the choice of an
        algorithm.
    dilation : int or (int, int)
        Map pixels from one filter tap to the next, likewise.
    groups : int
        Channels and filters fall into so many runs; filters of a run see its channels only.
    bias : array of float32, optional
        (K,).
    activation : {None, "relu", "relu6", "hardswish", "silu", "gelu", "gelu_tanh"}
        Of each result. "relu" makes negative results 0 and leaves NaN. The others are PyTorch's; their error is at
        most 2**-22 of what they are applied to.
    beta : float
        Factor of what `out` held; at 0 its content does not matter.
    algorithm : {"auto", "direct", "winograd", "fft"}
        "winograd" and "fft" transform tiles: a NaN, an infinity or a value beyond float32 may be lost to all outputs
        of its tile. "auto" takes what is estimated, or was measured, to be faster.
    max_error : float
        No plan is taken whose documented error is larger, relative to the sum of an output's |terms|, for arrays
        uniform in [-1, 1].
    max_workspace_bytes : int, optional
        Bytes of extra memory, a quarter of the device's if None. A layer whose tiles are transformed is cut into runs
        of images if it needs more.
    arithmetic : {"auto", "ffma"}
        "ffma" leaves out what computes float32 products on tensor cores, where an infinity among the operands gives
        NaN (docs/tensor-cores.md).

    Returns
    -------
    array of float32
        `out`, or a new array of the library of `images` on its device: (K, P, Q, N), or (N, K, P, Q), with P = (H +
        2 padding - (R - 1) dilation - 1) // stride + 1, and Q likewise.

    Raises
    ------
    ShapeError
        Arrays or numbers fit no kernel, not each other, or not the given plan. Raised before anything runs, as the
        others.
    DeviceError
        There is no such device.
    OutOfMemoryError
        There is no memory for the result, or for the workspace of any plan.

    Notes
    -----
    Rounding: each product is added with one rounding; partial sums of split-K are added in a fixed order; times
    alpha plus bias with one rounding; plus beta * out with another; then the activation. A plan gives the same bits
    in every run.

    Memory: `plan.workspace_bytes` beside the result, kept for each stream and reused. Where there is none, what is
    idle is let go; then the best plan that fits runs, whose results may differ in their last bits. A plan that was
    given is not replaced. NumPy arrays are used in place on the virtual GPU and copied to a real one.

    Source: A. Lavin, "maxDNN: An Efficient Convolution Kernel for Deep Learning with Maxwell GPUs" (2015); A. Lavin
    and S. Gray, "Fast Algorithms for Convolutional Neural Networks" (2015).
    """
    prepared = filters if isinstance(filters, PreparedFilters) else None
    given = {"images": view("images", images, strided=plan is None and prepared is None)}
    if prepared is None:
        given["filters"] = view("filters", filters)
    elif plan is not None and plan is not prepared.plan:
        raise ShapeError("filters were prepared for another plan: give the one they were prepared with, or none")
    if bias is not None:
        given["bias"] = view("bias", bias, rank=1)
    said = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "layout": layout,
            "activation": activation, "algorithm": algorithm, "max_error": max_error,
            "max_workspace_bytes": max_workspace_bytes, "arithmetic": arithmetic}
    found: ArrayT = _run("forward", given, said, None, alpha, beta, out, device, stream, plan, prepared)
    return found


def conv_bprop_data(gradients: ArrayT, filters: Array, size: tuple[int, int], *, stride: int | tuple[int, int] = 1,
                    padding: int | tuple[int, int] = 0, dilation: int | tuple[int, int] = 1, groups: int = 1,
                    alpha: float = 1.0, beta: float = 0.0, out: ArrayT | None = None, device: Device | None = None,
                    stream: Any = None, layout: str = "CHWN", plan: Plan | None = None,
                    deterministic: bool = True, algorithm: str = "auto", max_error: float = MAX_ERROR,
                    max_workspace_bytes: int | None = None, arithmetic: str = "auto") -> ArrayT:
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
    stride, padding, dilation, groups : int or (int, int)
        Of the layer, as for `conv_fprop`.
    alpha, beta, out, device, stream, layout
        As for `conv_fprop`; `out` in the shape of the result.
    plan : Plan, optional
        Of `maxdnn.plan(.., kind="data")`, in place of the layer's arguments.
    deterministic : bool
        No effect: every run gives the same bits.
    algorithm, max_error, max_workspace_bytes, arithmetic
        As for `conv_fprop`.

    Returns
    -------
    array of float32
        `out`, or a new array: (C, H, W, N), or (N, C, H, W).

    Raises
    ------
    ShapeError, DeviceError, OutOfMemoryError
        As for `conv_fprop`; ShapeError also where no layer has these sizes.

    Notes
    -----
    With few channels a tile holds windows of pixels: a NaN or an infinity may then reach all pixels of its window.
    Workspace as for `conv_fprop`.
    """
    given = {"gradients": view("gradients", gradients), "filters": view("filters", filters)}
    flag("deterministic", deterministic)
    said = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "layout": layout,
            "algorithm": algorithm, "max_error": max_error, "max_workspace_bytes": max_workspace_bytes,
            "arithmetic": arithmetic}
    found: ArrayT = _run("data", given, said, _size(size, "images"), alpha, beta, out, device, stream, plan)
    return found


def conv_bprop_filters(images: ArrayT, gradients: Array, size: tuple[int, int], *, stride: int | tuple[int, int] = 1,
                       padding: int | tuple[int, int] = 0, dilation: int | tuple[int, int] = 1, groups: int = 1,
                       alpha: float = 1.0, beta: float = 0.0, out: ArrayT | None = None, device: Device | None = None,
                       stream: Any = None, layout: str = "CHWN", plan: Plan | None = None,
                       deterministic: bool = True, algorithm: str = "auto", max_error: float = MAX_ERROR,
                       max_workspace_bytes: int | None = None, arithmetic: str = "auto") -> ArrayT:
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
    stride, padding, dilation, groups : int or (int, int)
        Of the layer, as for `conv_fprop`.
    alpha, beta, out, device, stream, layout
        As for `conv_fprop`; `out` in the shape of the result.
    plan : Plan, optional
        Of `maxdnn.plan(.., kind="filters")`, in place of the layer's arguments.
    deterministic : bool
        No effect: partial sums are added in a fixed order, so every run gives the same bits.
    algorithm, max_error, max_workspace_bytes, arithmetic
        As for `conv_fprop`.

    Returns
    -------
    array of float32
        `out`, or a new array: (C/groups, R, S, K), or (K, C/groups, R, S).

    Raises
    ------
    ShapeError, DeviceError, OutOfMemoryError
        As for `conv_bprop_data`.
    """
    given = {"images": view("images", images), "gradients": view("gradients", gradients)}
    flag("deterministic", deterministic)
    said = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "layout": layout,
            "algorithm": algorithm, "max_error": max_error, "max_workspace_bytes": max_workspace_bytes,
            "arithmetic": arithmetic}
    found: ArrayT = _run("filters", given, said, _size(size, "filters"), alpha, beta, out, device, stream, plan)
    return found


def conv_bprop_bias(gradients: ArrayT, *, alpha: float = 1.0, beta: float = 0.0, out: ArrayT | None = None,
                    device: Device | None = None, stream: Any = None, layout: str = "CHWN") -> ArrayT:
    """Gradient of a layer with respect to its bias in float32.

    out = alpha * (sum of the gradients over images and pixels) + beta * out.

    Parameters
    ----------
    gradients : array of float32
        (K, P, Q, N), or (N, K, P, Q) with layout="NCHW". C-contiguous.
    alpha, beta, out, device, stream, layout
        As for `conv_fprop`; `out` in the shape of the result.

    Returns
    -------
    array of float32
        `out`, or a new array: (K,). Partial sums are added in a fixed order: the same bits in every run.

    Raises
    ------
    ShapeError, DeviceError, OutOfMemoryError
        As for `conv_fprop`.
    """
    given = {"gradients": view("gradients", gradients)}
    found: ArrayT = _run("bias", given, {"layout": layout}, None, alpha, beta, out, device, stream, None)
    return found


def _run(kind: str, given: dict[str, ArrayView], said: dict[str, Any], size: tuple[int, int] | None, alpha: Any,
         beta: Any, out: Any, device: Device | None, stream: Any, plan: Plan | None,
         prepared: PreparedFilters | None = None) -> Any:
    """Compute a pass. `said`: what a plan says in its place, if one is given. `size`: of the result of a gradient."""
    scalars, reads_out = factors(alpha, beta, out)
    named, fixed = None, prepared.plan if prepared else plan
    if fixed is None:
        named = _problem(kind, given, said, size, reads_out)
        wanted: Mapping[str, tuple[int, ...]] = named.shapes
    else:
        wanted = planned(fixed, kind, given, said, _PLAIN, reads_out=reads_out)
        of = fixed.shape
        if size and size != (own := (of.H, of.W) if kind == "data" else (of.R, of.S)):
            raise ShapeError(f"size must be the plan's {own} (got {size})")
    call = Call(given | prepared.views if prepared else given, wanted["out"], out, scalars, device, stream)
    if named is not None:
        terms: dict[str, Any] = _PLAIN | said
        fixed = call.choose(named, terms["algorithm"], terms["max_error"], terms["arithmetic"])
    assert fixed is not None
    result = call.result()
    call.run(fixed.apart[1] if prepared else fixed, given=named is None)
    return result


def _problem(kind: str, given: dict[str, ArrayView], said: dict[str, Any], size: tuple[int, int] | None,
             reads_out: bool) -> Problem:
    """What a call without a plan asks for, of arrays that begin where any texture may."""
    if kind == "bias":
        return problem.bias(given["gradients"].shape, layout=said["layout"], reads_out=reads_out)
    check_wanted(said["algorithm"], said["max_error"], said["max_workspace_bytes"], said["arithmetic"])
    epilogue = {"bias": "bias" in given, "activation": said["activation"]} if kind == "forward" else {}
    shape = _layer(kind, given, said, size)
    found = problem.PASSES[kind](shape, layout=said["layout"], reads_out=reads_out, **epilogue)
    check_shapes(given, found.shapes, "" if kind == "forward" else f"for {shape} ")
    if said["max_workspace_bytes"] is not None:
        found = replace(found, most_workspace=said["max_workspace_bytes"])
    return found.with_strides("images", given["images"].strides) if kind == "forward" else found


def _layer(kind: str, given: dict[str, ArrayView], said: dict[str, Any], size: tuple[int, int] | None) -> ConvShape:
    """The layer that the first two arrays are of.

    `size`: what they do not tell of it, rows and columns of a gradient.
    """
    layout, groups = said["layout"], said["groups"]
    check_layout(layout)
    one, two = list(given.values())[:2]
    (n, c, h, w), (k, per_group, r, s) = _axes(one, layout), _axes(two, layout)
    if kind == "forward":
        _check_channels(one, two, factor_of(groups), layout)
    elif kind == "data":
        if c != k:
            raise _unlike(one, two, "filters K", layout)
        assert size is not None
        (h, w), c = size, per_group * factor_of(groups)
    else:
        if n != k:
            raise _unlike(one, two, "images N", layout)
        assert size is not None
        (r, s), k = size, per_group
    return ConvShape(n, c, h, w, k, r, s, said["stride"], said["padding"], said["dilation"], groups)


def _unlike(one: ArrayView, two: ArrayView, what: str, layout: str) -> ShapeError:
    return ShapeError(f"{one.name} and {two.name} must have the same number of {what} in layout {layout} (got "
                      f"{one.name} {one.shape}, {two.name} {two.shape})")


def _check_channels(images: ArrayView, filters: ArrayView, factor: int, layout: str) -> None:
    axis, other = (1, "CHWN") if layout == "NCHW" else (0, "NCHW")
    if images.shape[axis] != factor * filters.shape[axis]:
        swapped = images.shape[1 - axis] == factor * filters.shape[1 - axis]
        hint = f"; the shapes would fit layout={other!r}" if swapped else ""
        rule = ("images and filters must have the same number of channels" if factor == 1 else
                f"images must have {factor} (groups) times as many channels as filters")
        raise ShapeError(f"{rule}, axis {axis} in layout {layout} (got images {images.shape}, filters "
                         f"{filters.shape}){hint}")


def _size(size: Any, whose: str) -> tuple[int, int]:
    if not isinstance(size, (tuple, list)):
        raise ShapeError(f"size must be a pair, rows and columns of the {whose} (got {shown(size)})")
    return pair("size", size, 1)


def _axes(array: ArrayView, layout: str) -> tuple[int, int, int, int]:
    """The axes of an array as layout NCHW has them."""
    a, b, c, d = array.shape
    return (a, b, c, d) if layout == "NCHW" else (d, a, b, c)
