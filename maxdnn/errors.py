"""Every error this library raises on purpose, in one tree, so that a caller can tell them apart."""

from typing import Any


def shown(value: Any) -> str:
    """A value for the text of an error, whatever its length."""
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else "numbers of too many digits"
    return text if len(text) <= 80 else f"{text[:77]}..."


class MaxdnnError(Exception):
    """Base of all errors raised by maxdnn."""


class ShapeError(MaxdnnError, ValueError):
    """A layer shape, array or argument that no kernel here can serve."""


class AssemblyError(MaxdnnError):
    """The assembler refused a source, or could not be run. `called`: how it was called and ended, where it did."""

    def __init__(self, message: str, called: str = "") -> None:
        super().__init__(message + (f"\n{called}" if called else ""))
        self.message, self.called = message, called


class CubinError(MaxdnnError):
    """A file that is no cubin this library can read, a kernel that it does not have, a function or address that nothing
    here fills in."""


class DecodeError(MaxdnnError):
    """A 64-bit word that is no instruction of this architecture."""


class TranslationError(MaxdnnError):
    """A kernel that cannot be translated to PTX without changing what it means, or an unknown target."""


class LaunchError(MaxdnnError, ValueError):
    """A launch whose grid, block, arguments or resources do not fit the kernel or the device."""


class EmulationFault(MaxdnnError):
    """A fault found while a kernel ran on the virtual GPU: a bad access, a deadlock, an undefined read ..."""


class DeviceError(MaxdnnError):
    """No suitable device, or a driver call that failed."""


class OutOfMemoryError(DeviceError):
    """Device memory that could not be had. `wanted`: bytes asked for; `free`: bytes there were, None where nobody
    knows. `workspace`: whether it was a plan's workspace, of which another plan may need less."""

    def __init__(self, message: str, wanted: int = 0, free: int | None = None, workspace: bool = False) -> None:
        super().__init__(message)
        self.wanted, self.free, self.workspace = wanted, free, workspace


class SimulationError(MaxdnnError):
    """The timing model cannot answer: a preset, figure or policy that there is not, a block that fits no SM, warps that
    wait for ever, a trace that was not kept."""
