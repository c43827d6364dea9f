"""The interface of a kernel: parameters, threads, memory. The header of its source declares it, the assembler writes
it into the cubin, and it is read from there, so no number is written twice. The family that uses a kernel says what it
computes."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ..errors import AssemblyError
from .cubins import HOPPER, architectures, declared

FFMA = "FFMA"


@dataclass(frozen=True, slots=True)
class KernelParam:
    """One kernel parameter: name, byte offset from the first parameter, bytes, type ("ptr"
    for a device address, "f32", "u32" ...), meaning."""

    name: str
    offset: int
    nbytes: int
    type: str
    meaning: str


@dataclass(frozen=True, slots=True)
class ConstantSymbol:
    """A `__constant__` array the host fills before the launch."""

    name: str
    bank: int
    nbytes: int


@dataclass(frozen=True)
class KernelSpec:
    """One kernel. `name`: symbol in the cubin. `source`: file in sass/ (its cubin has the same stem), or its absolute
    path. `doc`: what it computes, grid, limits.

    Everything else is what the source declares; asking for it assembles nothing, and raises AssemblyError if there is
    no such kernel, or if its header has to be read and cannot be."""

    name: str
    source: str
    doc: str

    arithmetic: ClassVar[str] = FFMA  # what its products are computed by

    @property
    def arch(self) -> str | None:
        """The architecture it was written for; None for one that runs, translated if need be, on every GPU."""
        return HOPPER if HOPPER in architectures(self.source) else None

    def runs_on(self, arch: str) -> bool:
        """Whether a GPU of an architecture runs it, translated if need be."""
        archs = architectures(self.source)
        return HOPPER not in archs or arch in archs

    @functools.cached_property
    def _declared(self) -> Mapping[str, Any]:
        every = declared(self.source.removesuffix(".sass"))
        for kernel in every:
            if kernel["name"] == self.name:
                return kernel
        raise AssemblyError(f"{self.source} has no kernel {self.name!r}; it has: "
                            f"{', '.join(kernel['name'] for kernel in every)}")

    @functools.cached_property
    def params(self) -> tuple[KernelParam, ...]:
        """In declaration order."""
        return tuple(KernelParam(p["name"], p["offset"], p["size"], p["type"], p["meaning"])
                     for p in self._declared["params"])

    @functools.cached_property
    def threads(self) -> int:
        """Of a block, all in x."""
        x, y, z = self._declared["threads"]
        assert y == z == 1, f"{self.name}: blocks must have one row of threads"
        return x

    @property
    def shared_bytes(self) -> int:
        """Static shared memory."""
        return self._declared["shared"]

    @property
    def max_registers(self) -> int:
        """Bound that the source sets itself."""
        return self._declared["registers"]

    @functools.cached_property
    def textures(self) -> tuple[str, ...]:
        """Names of the 1D texture references."""
        return tuple(self._declared["textures"])

    @functools.cached_property
    def channels(self) -> Mapping[str, int]:
        """float32 values in a texel of each texture reference."""
        return dict(zip(self.textures, self._declared["channels"], strict=True))

    @functools.cached_property
    def constants(self) -> tuple[ConstantSymbol, ...]:
        return tuple(ConstantSymbol(c["name"], c["bank"], c["bytes"]) for c in self._declared["constants"])
