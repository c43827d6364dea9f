"""The user's functions: check the arrays, name the problem, choose a plan, run it. Knows no kernel and no device in
particular."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from . import shortage
from .errors import ShapeError
from .planning.plan import Plan
from .planning.select import MAX_ERROR, check_wanted, chip_of, choose
from .problem.operands import ArrayView, view
from .problem.problem import check_layout, forward
from .problem.shape import ConvShape
from .runtime import engine
from .runtime.arguments import check_out, check_shapes, device_of, factor_of, number, planned, unaligned
from .runtime.devices.protocol import Device
from .runtime.prepared import PreparedFilters

_OWN = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "layout": "CHWN", "activation": None,
        "algorithm": "auto", "max_error": MAX_ERROR, "max_workspace_bytes": None}


def conv_fprop(images: Any, filters: Any, *, stride: int | tuple[int, int] = 1, padding: int | tuple[int, int] = 0,
               alpha: float = 1.0, out: Any = None, device: Device | None = None, stream: Any = None,
               layout: str = "CHWN", plan: Plan | None = None, dilation: int | tuple[int, int] = 1,
               groups: int = 1, bias: Any = None, activation: str | None = None, beta: float = 0.0,
               algorithm: str = "auto", max_error: float = MAX_ERROR, max_workspace_bytes: int | None = None) -> Any:
    """Forward convolution (cross-correlation, as networks use it) in float32, out = activation(alpha x images * filters
    + bias + beta x out), in this order: the sum of the products, each added with one rounding (of a split reduction
    the sums of its parts, then these in a fixed order); times alpha plus bias with one rounding; plus beta times what
    `out` held with one rounding; then the activation. The same bits in every run of a plan.

    images: (C, H, W, N), filters: (C/groups, R, S, K), returns out: (K, P, Q, N), where P = (H + 2 padding - (R - 1)
    dilation - 1) // stride + 1 and Q likewise; with layout="NCHW" (N, C, H, W), (K, C/groups, R, S) and (N, K, P, Q).
    All float32 and C-contiguous, but that images may be any view without negative strides, such as some channels, rows
    or images of larger ones, if it begins where a texture may and no plan is given: it is read where it lies.
    `stride`, `padding` (zeros), `dilation` (map pixels from one filter tap to the next): one integer or (rows,
    columns). `groups`: channels and filters fall into that many runs; filters of a run see its channels only. `alpha`,
    `beta`: any float, infinities and NaN too, rounded to float32; with beta 0 what `out` held does not matter. `bias`:
    (K,) float32. `activation`: None or "relu", which makes negative results 0 and leaves NaN.

    NumPy arrays run on the virtual GPU, or on `device`; arrays with `__cuda_array_interface__` on the GPU they are on,
    in the order of `stream`, after what the arrays' own streams still do, without waiting for the result. `out`: an
    array to fill, which must not overlap an input, needed for a beta other than 0; else a new one of the library of
    `images`. `plan`: of `maxdnn.plan`, instead of stride, padding, dilation, groups, layout, activation and what
    follows. `filters` may come from `maxdnn.prepare_filters`, with its plan or none.

    `algorithm`: "direct", "winograd" (the sum is then that of transformed tiles, transformed back, so a NaN, an
    infinity or a value beyond float32 may be lost to all outputs of the tiles it is in), or "auto" for the faster.
    `max_error`: none is taken whose documented error, relative to the sum of an output's |terms| for arrays uniform in
    [-1, 1], is larger. `max_workspace_bytes`: of extra memory, a quarter of the device's if None; a Winograd layer that
    needs more is cut into runs of images.

    Peak extra memory beside the result: the plan's `workspace_bytes`. It is kept with the device, for each stream, and
    reused by later calls. Where there is no memory for it, what is kept and idle is let go, and if that is not enough
    the best plan that fits runs, for as long as memory is that short; its results may differ in their last bits. A plan
    that was given is not replaced. On a real GPU the arrays of NumPy are copied there, on the virtual one they are used
    where they are.

    Raises ShapeError for arrays or numbers that fit no kernel or not each other, or not the given plan (one that was
    made for arrays at aligned addresses asks for them), DeviceError if there is no such device, OutOfMemoryError if
    there is no memory for the result or for any plan's workspace; in all cases before anything runs."""
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
        named = named.walking("images", given["images"].strides)
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
