"""What instructions do: one small function per opcode family, written once against the abstract machine of
`machine.py`. Tracing a function gives code for any target. Knows the instruction set; knows neither LLVM nor time.
Facts: NVIDIA PTX ISA for the operations the compiler maps onto these instructions; encodings and rarely documented
rules (XMAD, carries, funnel shifts) from the sources named in isa/maxwell.json."""

from . import convert, double, half, hopper, integer, logic, memory, move, single, video, warp  # noqa: F401  (register)
from .hopper.asynchronous import waits
from .hopper.memory import spins
from .machine import Machine, V
from .registry import SEMANTICS, meaning

__all__ = ["SEMANTICS", "Machine", "V", "meaning", "spins", "waits"]
