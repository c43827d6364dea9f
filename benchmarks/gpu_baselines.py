"""What else a user would call on a real GPU, for comparison in the same run: cuDNN's forward convolution with a chosen
family of algorithms (through its C interface), the SGEMM rate of cuBLAS as the practical ceiling, and the SM clock by
the chip's own counters. FP32 throughout, TF32 off."""

import ctypes
import importlib
import importlib.util
import statistics
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from maxdnn import ConvShape, DeviceError
from maxdnn.runtime.devices import find

# Values of cudnn_ops.h / cudnn_cnn.h (cuDNN 9 documentation).
_NCHW, _FLOAT, _CROSS_CORRELATION = 0, 0, 1
FMA_MATH, TF32_MATH = 3, 1
ALGORITHMS = {0: "IMPLICIT_GEMM", 1: "IMPLICIT_PRECOMP_GEMM", 2: "GEMM", 3: "DIRECT", 4: "FFT", 5: "FFT_TILING",
              6: "WINOGRAD", 7: "WINOGRAD_NONFUSED"}
DIRECT_FAMILY = (0, 1, 3)  # no transform and no explicit lowering: what the paper compared with
EVERY_ALGORITHM = tuple(ALGORITHMS)
BACKWARD = {
    "data": ("cudnnConvolutionBackwardData", "cudnnGetConvolutionBackwardDataWorkspaceSize",
             {0: "ALGO_0", 1: "ALGO_1", 2: "FFT", 3: "FFT_TILING", 4: "WINOGRAD", 5: "WINOGRAD_NONFUSED"}, (0, 1)),
    "filters": ("cudnnConvolutionBackwardFilter", "cudnnGetConvolutionBackwardFilterWorkspaceSize",
                {0: "ALGO_0", 1: "ALGO_1", 2: "FFT", 3: "ALGO_3", 4: "WINOGRAD", 5: "WINOGRAD_NONFUSED",
                 6: "FFT_TILING"}, (0, 1, 3))}
"""Of a gradient: function, function of its workspace, algorithms, those that are direct."""


def gpu_device(ordinal: int) -> Any:
    """The device of a GPU; ends the program with a line where it, or pycuda, cannot be had."""
    needed("pycuda", "pycuda")
    try:
        return find.gpu(ordinal)
    except DeviceError as error:
        sys.exit(str(error))


def needed(module: str, package: str) -> Any:
    """A module; ends the program with a line where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError:
        sys.exit(f"{Path(sys.argv[0]).name} needs {module}: pip install {package}")


class CudnnError(Exception):
    """A call of cuDNN that failed."""


def _cudnn_library() -> ctypes.CDLL:
    spec = importlib.util.find_spec("nvidia.cudnn")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder, "lib").glob("libcudnn.so*")):
            return ctypes.CDLL(str(path))
    return ctypes.CDLL("libcudnn.so.9")


class Cudnn:
    """Forward convolution in NCHW float32 with algorithms chosen by number."""

    def __init__(self) -> None:
        self._lib = _cudnn_library()
        self._lib.cudnnGetErrorString.restype = ctypes.c_char_p
        self._handle = ctypes.c_void_p()
        self._call("cudnnCreate", ctypes.byref(self._handle))
        self.version = self._lib.cudnnGetVersion()

    def use_stream(self, handle: int) -> None:
        """Put what is launched from here on on a CUDA stream."""
        self._call("cudnnSetStream", self._handle, ctypes.c_void_p(handle))

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self._lib, name)(*args)
        if status:
            raise CudnnError(f"{name}: {self._lib.cudnnGetErrorString(status).decode()}")

    def _make(self, kind: str, *settings: Any, setter: str) -> ctypes.c_void_p:
        descriptor = ctypes.c_void_p()
        self._call(f"cudnnCreate{kind}Descriptor", ctypes.byref(descriptor))
        self._call(setter, descriptor, *settings)
        return descriptor

    def prepare(self, shape: ConvShape, algorithm: int, math: int = FMA_MATH) -> tuple[Callable[..., None], int]:
        """(run, workspace bytes): run(x, w, y, workspace) takes device addresses of N,C,H,W maps, K,C,R,S filters and
        N,K,P,Q outputs and launches the layer. Raises CudnnError where the algorithm does not serve the shape."""
        x, w, y, conv = self._descriptors(shape, math)
        size = ctypes.c_size_t()
        self._call("cudnnGetConvolutionForwardWorkspaceSize", self._handle, x, w, conv, y, algorithm,
                   ctypes.byref(size))
        one, zero = ctypes.c_float(1), ctypes.c_float(0)

        def run(px: int, pw: int, py: int, workspace: int) -> None:
            self._call("cudnnConvolutionForward", self._handle, ctypes.byref(one), x, ctypes.c_void_p(px), w,
                       ctypes.c_void_p(pw), conv, algorithm, ctypes.c_void_p(workspace), size, ctypes.byref(zero), y,
                       ctypes.c_void_p(py))

        return run, size.value

    def prepare_gradient(self, direction: str, shape: ConvShape, algorithm: int) -> tuple[Callable[..., None], int]:
        """The same for the gradient of the maps ("data") or of the filters ("filters"): run(first, dy, out, workspace),
        where `first` is the filters or the maps, dy N,K,P,Q and out what the gradient is of."""
        x, w, y, conv = self._descriptors(shape)
        function, sizing, _, _ = BACKWARD[direction]
        given = (w, y, conv, x) if direction == "data" else (x, y, conv, w)
        size = ctypes.c_size_t()
        self._call(sizing, self._handle, *given, algorithm, ctypes.byref(size))
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        first, gradients, _, out = given

        def run(p_first: int, p_gradients: int, p_out: int, workspace: int) -> None:
            self._call(function, self._handle, ctypes.byref(one), first, ctypes.c_void_p(p_first), gradients,
                       ctypes.c_void_p(p_gradients), conv, algorithm, ctypes.c_void_p(workspace), size,
                       ctypes.byref(zero), out, ctypes.c_void_p(p_out))

        return run, size.value

    def _descriptors(self, shape: ConvShape, math: int = FMA_MATH) -> tuple[ctypes.c_void_p, ...]:
        """Of maps, filters, outputs and convolution."""
        s = shape
        x = self._make("Tensor", _NCHW, _FLOAT, s.N, s.C, s.H, s.W, setter="cudnnSetTensor4dDescriptor")
        y = self._make("Tensor", _NCHW, _FLOAT, s.N, s.K, s.P, s.Q, setter="cudnnSetTensor4dDescriptor")
        w = self._make("Filter", _FLOAT, _NCHW, s.K, s.C // s.groups, s.R, s.S,
                       setter="cudnnSetFilter4dDescriptor")
        conv = self._make("Convolution", s.pad_h, s.pad_w, s.str_h, s.str_w, 1, 1, _CROSS_CORRELATION, _FLOAT,
                          setter="cudnnSetConvolution2dDescriptor")
        self._call("cudnnSetConvolutionMathType", conv, math)
        self._call("cudnnSetConvolutionGroupCount", conv, s.groups)
        return x, w, y, conv


@dataclass(frozen=True)
class Timing:
    """Median seconds of a kernel, and the SM clock in MHz at which it ran."""

    seconds: float
    sm_mhz: float


_PROBE = """.version 6.0
.target sm_50
.address_size 64
.visible .entry probe(.param .u64 to)
{
    .reg .b32 sm;
    .reg .b64 at, clocks, ns;
    ld.param.u64 at, [to];
    cvta.to.global.u64 at, at;
    mov.u32 sm, %smid;
    mad.wide.u32 at, sm, 16, at;
    mov.u64 clocks, %clock64;
    mov.u64 ns, %globaltimer;
    st.global.v2.u64 [at], {clocks, ns};
    ret;
}
"""
_MOST_SMS = 1024


class ClockSampler:
    """What the driver says: its version, and the SM clock (NVML). Needs nvidia-ml-py."""

    def __init__(self, ordinal: int = 0) -> None:
        self._nvml = needed("pynvml", "nvidia-ml-py")
        self._nvml.nvmlInit()
        self._gpu = self._nvml.nvmlDeviceGetHandleByIndex(ordinal)

    @property
    def driver_version(self) -> str:
        return str(self._nvml.nvmlSystemGetDriverVersion())

    def read(self) -> int:
        return int(self._nvml.nvmlDeviceGetClockInfo(self._gpu, self._nvml.NVML_CLOCK_SM))


class SmCounters:
    """Every SM's own count of its clocks, and the GPU's nanoseconds, at two moments of a stream. What the driver says
    the clock is (NVML) stays where it is while the chip slows down for its power: products of 8192 in FFMA alone run at
    1690 to 1980 MHz of an H200's 1980. What the driver says is taken where the counters cannot be read or say what
    cannot be."""

    def __init__(self, device: Any) -> None:
        import pycuda.driver as cuda
        self._device, self._driver = device, ClockSampler(device.ordinal)
        self._probe: Any = None
        with device.active(), suppress(cuda.Error):
            self._at = [cuda.mem_alloc(16 * _MOST_SMS) for _ in range(2)]
            self._probe = cuda.module_from_buffer(_PROBE.encode() + b"\0").get_function("probe")

    def read(self, moment: int) -> None:
        """Keep what they say at moment 0 or 1, on the default stream."""
        import pycuda.driver as cuda
        if self._probe is not None:
            with self._device.active():
                cuda.memset_d32(self._at[moment], 0, 4 * _MOST_SMS)
                self._probe(self._at[moment], block=(1, 1, 1), grid=(8 * self._device.sms, 1))

    def mhz(self) -> float:
        """Between the two moments: the median over the SMs."""
        import pycuda.driver as cuda
        said = float(self._driver.read())
        if self._probe is None:
            return said
        found = np.empty((2, _MOST_SMS, 2), np.uint64)
        with self._device.active():
            for host, at in zip(found, self._at, strict=True):
                cuda.memcpy_dtoh(host, at)
        first, last = found[:, (found[:, :, 1] > 0).all(0)]
        clocks, ns = (last - first).astype(float).T
        counted = float(np.median(1e3 * clocks / np.maximum(ns, 1))) if len(ns) else 0.0
        return counted if 0.3 < counted / said < 1.03 else said


CALLS = 8
"""Of a measurement, one behind the other: what the host does for a call overlaps the call before, as in a network."""


def measure(device: Any, work: Callable[[], Any], *, seconds: float = 0.2, calls: int = CALLS) -> Timing:
    """Median time of `work()` by events around so many calls, repeated for about `seconds` after warming up, and the
    clock at which the median of the clocks takes that long, by the SMs' own counters. `device` is a
    maxdnn.runtime.devices.cuda.GpuDevice."""
    def queue() -> None:
        for _ in range(calls):
            work()
    once = statistics.median(device.elapsed_seconds(queue, 3))
    repeats = max(5, min(200, int(seconds / max(once, 1e-6))))
    counters = device.kept.get("sm counters") or device.kept.setdefault("sm counters", SmCounters(device))
    times, clocks = [], []
    for _ in range(repeats):
        counters.read(0)
        times += device.elapsed_seconds(queue, 1)
        counters.read(1)
        clocks.append(times[-1] * counters.mhz())
    middle = statistics.median(times)
    return Timing(middle / calls, statistics.median(clocks) / middle)


def sgemm(device: Any, n: int, multiply: Callable[..., Any] | None = None) -> Timing:
    """Single precision n x n x n of arrays of PyTorch: by multiply(a, b, out=out), or by cuBLAS with TF32 off."""
    import torch
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = (torch.rand((n, n), device=f"cuda:{device.ordinal}") for _ in range(2))
    out, run = torch.empty_like(a), multiply or torch.matmul
    return measure(device, lambda: run(a, b, out=out))


def layer_data(shape: ConvShape, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Maps (C,H,W,N) and filters (C,R,S,K), float32, uniform in [-1, 1]."""
    rng = np.random.default_rng(seed)
    s = shape
    maps = rng.uniform(-1, 1, (s.C, s.H, s.W, s.N)).astype(np.float32)
    return maps, rng.uniform(-1, 1, (s.C, s.R, s.S, s.K)).astype(np.float32)
