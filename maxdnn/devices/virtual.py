"""The virtual GPU that host arrays run on unless another device is asked for."""

import threading

from ..emu import VirtualGpu
from .protocol import Device

_lock = threading.Lock()
_default: VirtualGpu | None = None


def default() -> Device:
    """The one of this process, made at first use."""
    global _default
    with _lock:
        if _default is None:
            _default = VirtualGpu()
        return _default
