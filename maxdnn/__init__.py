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
    ShapeError,
    SimulationError,
    TranslationError,
)

if TYPE_CHECKING:
    from .backward import conv_bprop_bias, conv_bprop_data, conv_bprop_filters
    from .check import check_hazards
    from .choose import plan
    from .conv import conv_fprop
    from .layers import LAYERS, Layer
    from .matmul import matmul
    from .plans import Plan
    from .prepared import PreparedFilters, prepare_filters
    from .shape import ConvShape
    from .tune import tune

_HOME = {"check_hazards": "check", "conv_bprop_bias": "backward", "conv_bprop_data": "backward",
         "conv_bprop_filters": "backward", "conv_fprop": "conv", "Plan": "plans", "plan": "choose",
         "ConvShape": "shape", "LAYERS": "layers", "Layer": "layers", "matmul": "matmul",
         "PreparedFilters": "prepared", "prepare_filters": "prepared", "tune": "tune"}

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
    value = globals()[name] = getattr(import_module(f".{_HOME[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
