"""The virtual GPU that host arrays run on unless another device is asked for."""

from ...emulator import VirtualGpu
from ..forks import FreshLock
from .protocol import Device

_lock = FreshLock()
_default: VirtualGpu | None = None


def default() -> Device:
    """The one of this process, made at first use."""
    global _default
    with _lock:
        if _default is None:
            _default = VirtualGpu()
        return _default
