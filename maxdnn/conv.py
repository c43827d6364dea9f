"""The user's functions: check the arrays, take a plan, resolve its memory names on the arrays' device and launch.
Knows no kernel and no device in particular."""

import threading
from contextlib import suppress
from typing import Any

import numpy as np

from . import device as devices
from .arrays import ArrayView, view
from .cubins import cubin
from .device import Buffer, Device, Function, Module, Texture
from .errors import ShapeError
from .kernels import KernelSpec
from .planner import LAYOUTS, ConvPlan
from .planner import plan as make_plan
from .shape import ConvShape

TEXEL_BYTES = 16
LARGEST = 3.4e38  # below the largest float32
Places = dict[str, tuple[int, int]]  # memory name -> (device address, bytes)


def conv_fprop(images: Any, filters: Any, *, stride: int | tuple[int, int] = 1, padding: int | tuple[int, int] = 0,
               alpha: float = 1.0, out: Any = None, device: Device | None = None, stream: Any = None,
               layout: str = "CHWN", plan: ConvPlan | None = None) -> Any:
    """Forward convolution (cross-correlation, as networks use it): out = alpha x images * filters, in float32.

    images: (C, H, W, N), filters: (C, R, S, K), returns out: (K, P, Q, N), P = (H + 2 padding - R) // stride + 1 and Q
    likewise; with layout="NCHW" (N, C, H, W), (K, C, R, S) and (N, K, P, Q). All float32 and C-contiguous. `stride`,
    `padding` (zeros): one integer or (rows, columns). `alpha`: any float, infinities and NaN too, rounded to float32.

    NumPy arrays run on the virtual GPU, or on `device`; arrays with `__cuda_array_interface__` on the GPU they are on,
    in the order of `stream`, without waiting for the result. `out`: an array to fill, which must not overlap an input;
    else a new one of the library of `images`. `plan`: of `maxdnn.plan`, instead of stride, padding and layout.

    Peak extra memory beside the result: the plan's `workspace_bytes`, zero for CHWN without padding when N and K are
    multiples of 4. It is kept with the device and reused by later calls. On a real GPU the arrays of NumPy are copied
    there, on the virtual one they are used where they are.

    Raises ShapeError for arrays or numbers that fit no kernel or not each other, DeviceError if there is no such
    device; in both cases before anything runs."""
    given = {"images": view("images", images), "filters": view("filters", filters)}
    ready = _plan(given["images"], given["filters"], stride, padding, layout, plan)
    scale = _scale(alpha)
    if out is not None:
        given["out"] = _check_out(view("out", out), ready, given)
    target = _device(given, device)
    if out is None:
        out = _empty(images, ready.array_shapes()["out"])
        given["out"] = view("out", out)
    _engine(target).run(ready, given, scale, stream)
    return out


def _plan(images: ArrayView, filters: ArrayView, stride: Any, padding: Any, layout: str,
          plan: ConvPlan | None) -> ConvPlan:
    """The given plan, if the arrays fit it; else the plan of the arrays' layer."""
    if plan is None:
        shape = _shape(images, filters, stride, padding, layout)
        return make_plan(shape, layout=layout)
    if not isinstance(plan, ConvPlan):
        raise ShapeError(f"plan must come from maxdnn.plan (got {type(plan).__name__})")
    if (stride, padding, layout) != (1, 0, "CHWN"):
        raise ShapeError("stride, padding and layout are the plan's own: give either them or plan")
    wanted = plan.array_shapes()
    for array in (images, filters):
        if array.shape != wanted[array.name]:
            raise ShapeError(f"{array.name} must have the plan's shape {wanted[array.name]} (got {array.shape})")
    return plan


def _shape(images: ArrayView, filters: ArrayView, stride: Any, padding: Any, layout: str) -> ConvShape:
    if layout not in LAYOUTS:
        raise ShapeError(f"layout must be one of {', '.join(LAYOUTS)} (got {layout!r})")
    axis, other = (1, "CHWN") if layout == "NCHW" else (0, "NCHW")
    if images.shape[axis] != filters.shape[axis]:
        swapped = images.shape[1 - axis] == filters.shape[1 - axis]
        hint = f"; the shapes would fit layout={other!r}" if swapped else ""
        raise ShapeError(f"images and filters must have the same number of channels, axis {axis} in layout {layout} "
                         f"(got images {images.shape}, filters {filters.shape}){hint}")
    if layout == "NCHW":
        (n, c, h, w), (k, _, r, s) = images.shape, filters.shape
    else:
        (c, h, w, n), (_, r, s, k) = images.shape, filters.shape
    return ConvShape(n, c, h, w, k, r, s, stride, padding)


def _scale(alpha: Any) -> np.float32:
    if type(alpha) is float and abs(alpha) < LARGEST:  # the usual case, without ceremony
        return np.float32(alpha)
    with suppress(TypeError, ValueError), np.errstate(over="ignore"):
        if not isinstance(alpha, (str, bytes)):
            return np.float32(float(alpha))
    raise ShapeError(f"alpha must be a real number (got {alpha!r})")


def _check_out(out: ArrayView, plan: ConvPlan, given: dict[str, ArrayView]) -> ArrayView:
    wanted = plan.array_shapes()["out"]
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
    if len({array.on_host for array in given.values()}) > 1:
        places = ", ".join(f"{name} on {'the host' if array.on_host else 'a GPU'}" for name, array in given.items())
        raise ShapeError(f"all arrays must be on the same device (got {places})")
    if given["images"].on_host:
        return devices.virtual() if asked is None else asked
    found = {name: devices.for_address(array.address) for name, array in given.items()}
    first = asked or found["images"]
    for name, place in found.items():
        if place is not first:
            wanted = "device" if asked else "images"
            raise ShapeError(f"{name} must be on the same device as {wanted} (got {place.name}, {wanted} is "
                             f"{first.name})")
    return first


def _empty(like: Any, shape: tuple[int, ...]) -> Any:
    if isinstance(like, np.ndarray):
        return np.empty(shape, np.float32)
    from .gpu import empty_like

    return empty_like(like, shape)


class _Engine:
    """What a device keeps between calls: loaded kernels and the workspace. One call at a time, since constant memory,
    texture references and workspace are shared."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.lock = threading.Lock()
        self._kernels: dict[str, tuple[Module, Function]] = {}
        self._workspace: Buffer | None = None
        self._stream: Any = None

    def run(self, plan: ConvPlan, given: dict[str, ArrayView], alpha: np.float32, stream: Any) -> None:
        with self.lock:
            if stream != self._stream:  # the workspace may be in use on the other stream
                self.device.synchronize()
                self._stream = stream
            if given["images"].on_host:
                with _HostArrays(self.device, given, stream) as places:
                    self._run(plan, places, alpha, stream)
            else:
                self._run(plan, {name: (a.address, a.nbytes) for name, a in given.items()}, alpha, stream)

    def _run(self, plan: ConvPlan, places: Places, alpha: np.float32, stream: Any) -> None:
        plan = self._with_aligned_textures(plan, places)
        if plan.workspace:
            self._place_workspace(plan, places)
        values: dict[str, Any] = {name: address for name, (address, _) in places.items()}
        values["alpha"] = alpha
        for launch in plan.launches:
            module, function = self._kernel(launch.spec)
            if launch.offsets is not None:
                module.set_constant(launch.spec.constants[0].name, launch.offsets, stream=stream)
            textures = {name: Texture(*places[place]) for name, place in launch.textures.items()}
            function.launch(launch.grid, launch.block, launch.arguments(values), textures=textures, stream=stream)

    def _with_aligned_textures(self, plan: ConvPlan, places: Places) -> ConvPlan:
        """A texture must begin at an aligned address: copy an array of the user's that does not."""
        need = getattr(self.device, "texture_alignment", TEXEL_BYTES)
        odd_images, odd_filters = places["images"][0] % need != 0, places["filters"][0] % need != 0
        if plan.layout == "NCHW" or not (odd_images or odd_filters):
            return plan
        return make_plan(plan.shape, layout=plan.layout, kernel=plan.spec.name, copy_images=odd_images,
                         copy_filters=odd_filters)

    def _place_workspace(self, plan: ConvPlan, places: Places) -> None:
        size = plan.workspace_bytes
        if size and (self._workspace is None or self._workspace.nbytes < size):
            if self._workspace is not None:
                self.device.synchronize()
                self._workspace.free()
                self._workspace = None
            self._workspace = self.device.alloc(size)
        for name, region in plan.workspace.items():
            assert self._workspace is not None
            places[name] = self._workspace.address + region.offset, region.nbytes

    def _kernel(self, spec: KernelSpec) -> tuple[Module, Function]:
        if spec.name not in self._kernels:
            module = self.device.load(cubin(spec.source.removesuffix(".sass"), self.device.arch))
            self._kernels[spec.name] = module, module.function(spec.name)
        return self._kernels[spec.name]


class _HostArrays:
    """The user's host arrays on the device for the time of a call: (address, bytes) by name. They are lent to a device
    that can use them in place; else copied there, and the output back at the end."""

    def __init__(self, device: Device, given: dict[str, ArrayView], stream: Any) -> None:
        self._device, self._given, self._stream = device, given, stream
        self._buffers: dict[str, Buffer] = {}
        self._adopt = getattr(device, "adopt", None)

    def __enter__(self) -> Places:
        for name, array in self._given.items():
            self._buffers[name] = self._place(name, array)
        return {name: (buffer.address, self._given[name].nbytes) for name, buffer in self._buffers.items()}

    def _place(self, name: str, array: ArrayView) -> Buffer:
        if self._adopt:
            return self._adopt(array.array)
        buffer = self._device.alloc(array.nbytes)
        if name != "out":
            self._device.upload(buffer, array.array, self._stream)
        return buffer

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        if not self._adopt and failure is None:
            self._device.download(self._buffers["out"], self._given["out"].array, self._stream)
        for buffer in self._buffers.values():
            buffer.free()


def _engine(device: Device) -> _Engine:
    """The device's engine, kept on the device itself, so that what it holds is freed with it."""
    attributes = vars(device)
    return attributes.get("_conv_engine") or attributes.setdefault("_conv_engine", _Engine(device))
