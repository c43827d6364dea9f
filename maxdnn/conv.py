"""The user's functions: check the arrays, name the problem, choose a plan, run it.

Knows no kernel and no device in particular.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from .errors import ShapeError
from .planning.plan import Plan
from .planning.select import MAX_ERROR, check_wanted, chip_of, choose
from .problem.arrays import Array, ArrayT
from .problem.operands import ArrayView, view
from .problem.problem import check_layout, forward
from .problem.shape import ConvShape
from .runtime import engine, shortage
from .runtime.arguments import check_out, check_shapes, device_of, factor_of, number, planned, unaligned
from .runtime.devices.protocol import Device
from .runtime.prepared import PreparedFilters

_OWN = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "layout": "CHWN", "activation": None,
        "algorithm": "auto", "max_error": MAX_ERROR, "max_workspace_bytes": None}


def conv_fprop(images: ArrayT, filters: Array | PreparedFilters, *, stride: int | tuple[int, int] = 1,
               padding: int | tuple[int, int] = 0, alpha: float = 1.0, out: ArrayT | None = None,
               device: Device | None = None, stream: Any = None, layout: str = "CHWN", plan: Plan | None = None,
               dilation: int | tuple[int, int] = 1, groups: int = 1, bias: Array | None = None,
               activation: str | None = None, beta: float = 0.0, algorithm: str = "auto",
               max_error: float = MAX_ERROR, max_workspace_bytes: int | None = None) -> ArrayT:
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
    activation : {None, "relu"}
        "relu" makes negative results 0 and leaves NaN.
    beta : float
        Factor of what `out` held; at 0 its content does not matter.
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
    given = {"images": view("images", images, strided=plan is None)}
    prepared = filters if isinstance(filters, PreparedFilters) else None
    if prepared is None:
        given["filters"] = view("filters", filters)
    elif plan is not None and plan is not prepared.plan:
        raise ShapeError("filters were prepared for another plan: give the one they were prepared with, or none")
    else:
        plan = prepared.plan
    if bias is not None:
        given["bias"] = view("bias", bias, rank=1)
    scalars = {"alpha": number("alpha", alpha), "beta": number("beta", beta)}
    reads_out = bool(scalars["beta"] != 0)
    if reads_out and out is None:
        raise ShapeError(f"out must be given for a beta other than 0 (got beta={beta})")
    if plan is None:
        check_wanted(algorithm, max_error, max_workspace_bytes)
        problem = partial(forward, layout=layout, bias=bias is not None, reads_out=reads_out, activation=activation)
        shape = _shape(given["images"], given["filters"], stride, padding, dilation, groups, layout)
        wanted: Mapping[str, tuple[int, ...]] = problem(shape).shapes
        check_shapes(given, wanted, "")
    else:
        said = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups, "layout": layout,
                "activation": activation, "algorithm": algorithm, "max_error": max_error,
                "max_workspace_bytes": max_workspace_bytes}
        wanted = planned(plan, "forward", given, said, _OWN, reads_out=reads_out)
    if prepared is not None:
        given |= prepared.views
    if out is not None:
        given["out"] = check_out(view("out", out), wanted["out"], given)
    target = device_of(given, device)
    asked = plan
    if plan is None:
        named = replace(problem(shape, unaligned=unaligned(given, target)), most_workspace=max_workspace_bytes)
        named = named.with_strides("images", given["images"].strides)
        plan = choose(named, chip_of(target), algorithm=algorithm, max_error=max_error)
    if out is None:
        out = shortage.empty_like(images, wanted["out"], target, stream)
        given["out"] = view("out", out)
    if asked is None:
        shortage.run(plan, given, scalars, target, stream)
    else:
        engine.run(plan if prepared is None else plan.apart[1], given, scalars, target, stream)
    return out


def _shape(images: ArrayView, filters: ArrayView, stride: Any, padding: Any, dilation: Any, groups: Any,
           layout: str) -> ConvShape:
    check_layout(layout)
    factor = factor_of(groups)
    axis, other = (1, "CHWN") if layout == "NCHW" else (0, "NCHW")
    if images.shape[axis] != factor * filters.shape[axis]:
        swapped = images.shape[1 - axis] == factor * filters.shape[1 - axis]
        hint = f"; the shapes would fit layout={other!r}" if swapped else ""
        rule = ("images and filters must have the same number of channels" if factor == 1 else
                f"images must have {factor} (groups) times as many channels as filters")
        raise ShapeError(f"{rule}, axis {axis} in layout {layout} (got images {images.shape}, filters "
                         f"{filters.shape}){hint}")
    if layout == "NCHW":
        (n, c, h, w), (k, _, r, s) = images.shape, filters.shape
    else:
        (c, h, w, n), (_, r, s, k) = images.shape, filters.shape
    return ConvShape(n, c, h, w, k, r, s, stride, padding, dilation, groups)
