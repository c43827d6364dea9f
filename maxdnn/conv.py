"""The user's functions: check the arrays, name the problem, choose a plan, run it. Knows no kernel and no device in
particular."""

import operator
from contextlib import suppress
from typing import Any

import numpy as np

from . import engine
from .arrays import ArrayView, view
from .choose import chip_of, choose
from .devices import find
from .devices.protocol import Device
from .errors import DeviceError, ShapeError
from .plans import Plan
from .problem import LAYOUTS, forward
from .shape import ConvShape

LARGEST = 3.4e38  # below the largest float32


def conv_fprop(images: Any, filters: Any, *, stride: int | tuple[int, int] = 1, padding: int | tuple[int, int] = 0,
               alpha: float = 1.0, out: Any = None, device: Device | None = None, stream: Any = None,
               layout: str = "CHWN", plan: Plan | None = None, dilation: int | tuple[int, int] = 1,
               groups: int = 1) -> Any:
    """Forward convolution (cross-correlation, as networks use it): out = alpha x images * filters, in float32.

    images: (C, H, W, N), filters: (C/groups, R, S, K), returns out: (K, P, Q, N), where P = (H + 2 padding - (R - 1)
    dilation - 1) // stride + 1 and Q likewise; with layout="NCHW" (N, C, H, W), (K, C/groups, R, S) and (N, K, P, Q).
    All float32 and C-contiguous. `stride`, `padding` (zeros), `dilation` (map pixels from one filter tap to the next):
    one integer or (rows, columns). `groups`: channels and filters fall into that many runs; filters of a run see its
    channels only. `alpha`: any float, infinities and NaN too, rounded to float32.

    NumPy arrays run on the virtual GPU, or on `device`; arrays with `__cuda_array_interface__` on the GPU they are on,
    in the order of `stream`, after what the arrays' own streams still do, without waiting for the result. `out`: an
    array to fill, which must not overlap an input; else a new one of the library of `images`. `plan`: of `maxdnn.plan`,
    instead of stride, padding, dilation, groups and layout.

    Peak extra memory beside the result: the plan's `workspace_bytes`, zero for CHWN without padding when N and K are
    multiples of 4. It is kept with the device, for each stream, and reused by later calls. On a real GPU the arrays of
    NumPy are copied there, on the virtual one they are used where they are.

    Raises ShapeError for arrays or numbers that fit no kernel or not each other, or not the given plan (one that was
    made for arrays at aligned addresses asks for them), DeviceError if there is no such device; in both cases before
    anything runs."""
    given = {"images": view("images", images), "filters": view("filters", filters)}
    if plan is None:
        shape = _shape(given["images"], given["filters"], stride, padding, dilation, groups, layout)
        wanted = forward(shape, layout=layout).shapes
    else:
        wanted = _planned(plan, given, (stride, padding, dilation, groups, layout))
    scale = _scale(alpha)
    if out is not None:
        given["out"] = _check_out(view("out", out), wanted["out"], given)
    target = _device(given, device)
    if plan is None:
        problem = forward(shape, layout=layout, unaligned=_unaligned(given, target))
        plan = choose(problem, chip_of(target))
    if out is None:
        out = find.empty_like(images, wanted["out"])
        given["out"] = view("out", out)
    engine.run(plan, given, {"alpha": scale}, target, stream)
    return out


def _planned(plan: Any, given: dict[str, ArrayView], said: tuple[Any, ...]) -> Any:
    """The shapes of the plan's operands, if the arrays have them."""
    if not isinstance(plan, Plan) or plan.problem.kind != "forward":
        raise ShapeError(f"plan must come from maxdnn.plan (got {type(plan).__name__})")
    if any(type(x) is not type(y) or x != y for x, y in zip(said, (1, 0, 1, 1, "CHWN"), strict=True)):
        raise ShapeError("stride, padding, dilation, groups and layout are the plan's own: give either them or plan")
    wanted = plan.array_shapes()
    for array in given.values():
        if array.shape != wanted[array.name]:
            raise ShapeError(f"{array.name} must have the plan's shape {wanted[array.name]} (got {array.shape})")
    return wanted


def _unaligned(given: dict[str, ArrayView], device: Device) -> list[str]:
    """The arrays that begin where no texture may. Host arrays keep that on the way to a device in whose memory they are
    used in place; copies are aligned."""
    if given["images"].on_host and not getattr(device, "adopt", None):
        return []
    need = getattr(device, "texture_alignment", engine.TEXTURE_ALIGNMENT)
    return [name for name, array in given.items() if name != "out" and array.address % need]


def _shape(images: ArrayView, filters: ArrayView, stride: Any, padding: Any, dilation: Any, groups: Any,
           layout: str) -> ConvShape:
    if not isinstance(layout, str) or layout not in LAYOUTS:
        raise ShapeError(f"layout must be one of {', '.join(LAYOUTS)} (got {layout!r})")
    factor = 1
    with suppress(TypeError):
        factor = max(1, operator.index(groups))
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


def _scale(alpha: Any) -> np.float32:
    if type(alpha) is float and abs(alpha) < LARGEST:  # the usual case, without ceremony
        return np.float32(alpha)
    with suppress(TypeError, ValueError, OverflowError), np.errstate(over="ignore"):
        if not isinstance(alpha, (str, bytes)):
            return np.float32(float(alpha))
    raise ShapeError(f"alpha must be a real number (got {_short(alpha)})")


def _short(value: Any) -> str:
    """A value for an error, whatever its length."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        return f"an integer of {value.bit_length()} bits"
    return text if len(text) <= 80 else f"{text[:77]}..."


def _check_out(out: ArrayView, wanted: tuple[int, ...], given: dict[str, ArrayView]) -> ArrayView:
    if out.shape != wanted:
        raise ShapeError(f"out must have shape {wanted} (got {out.shape})")
    if not out.writable:
        raise ShapeError("out must be writable (got a read-only array)")
    for array in given.values():
        if out.overlaps(array):
            raise ShapeError(f"out must not overlap {array.name}")
    return out


def _device(given: dict[str, ArrayView], asked: Device | None) -> Device:
    """The one device all arrays are on; for arrays on the host, the one asked for."""
    if not isinstance(asked, Device | None):
        raise DeviceError(f"device must be a device of this library, such as maxdnn.emu.VirtualGpu() (got {asked!r})")
    if len({array.on_host for array in given.values()}) > 1:
        places = ", ".join(f"{name} on {'the host' if array.on_host else 'a GPU'}" for name, array in given.items())
        raise ShapeError(f"all arrays must be on the same device (got {places})")
    if given["images"].on_host:
        return find.host() if asked is None else asked
    found = {name: find.of_address(array.address) for name, array in given.items()}
    first = asked or found["images"]
    for name, place in found.items():
        if place is not first:
            wanted = "device" if asked else "images"
            raise ShapeError(f"{name} must be on the same device as {wanted} (got {place.name}, {wanted} is "
                             f"{first.name})")
    return first
