"""Convolution for Maxwell GPUs in hand-written machine code, and all it takes to trust it without such a GPU.

The public names below are imported at first use: `import maxdnn` itself loads neither LLVM, Numba nor a GPU driver."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .errors import (
    AssemblyError,
    CubinError,
    DecodeError,
    DeviceError,
    EmulationFault,
    LaunchError,
    MaxdnnError,
    OutOfMemoryError,
    ShapeError,
    SimulationError,
    TranslationError,
)
from .runtime.forks import compiling

if TYPE_CHECKING:
    from .checker import check_hazards
    from .conv import conv_bprop_bias, conv_bprop_data, conv_bprop_filters, conv_fprop
    from .layers import LAYERS, Layer
    from .planning.plan import Plan
    from .planning.select import plan
    from .planning.tuning import tune
    from .problem.shape import ConvShape
    from .product import matmul
    from .runtime.prepared import PreparedFilters, prepare_filters

_HOME = {"check_hazards": "checker", "conv_bprop_bias": "conv", "conv_bprop_data": "conv",
         "conv_bprop_filters": "conv", "conv_fprop": "conv", "Plan": "planning.plan", "plan": "planning.select",
         "ConvShape": "problem.shape", "LAYERS": "layers", "Layer": "layers", "matmul": "product",
         "PreparedFilters": "runtime.prepared", "prepare_filters": "runtime.prepared", "tune": "planning.tuning"}

__all__ = [
    "LAYERS",
    "AssemblyError",
    "ConvShape",
    "CubinError",
    "DecodeError",
    "DeviceError",
    "EmulationFault",
    "LaunchError",
    "Layer",
    "MaxdnnError",
    "OutOfMemoryError",
    "Plan",
    "PreparedFilters",
    "ShapeError",
    "SimulationError",
    "TranslationError",
    "check_hazards",
    "conv_bprop_bias",
    "conv_bprop_data",
    "conv_bprop_filters",
    "conv_fprop",
    "matmul",
    "plan",
    "prepare_filters",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("maxdnn")
    if name not in _HOME:
        raise AttributeError(f"module 'maxdnn' has no attribute {name!r}")
    with compiling:  # a child forked in the middle of an import waits for the rest of it for ever
        value = globals()[name] = getattr(import_module(f".{_HOME[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
