"""What a kernel asks of whoever launches it: threads, shared memory, parameters in order, textures, constant symbols.
The kernels themselves are described by the families that use them."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

PARAM_BYTES: Mapping[str, int] = MappingProxyType({"ptr": 8, "f32": 4, "u32": 4})
"""Bytes of each parameter type. `ptr` is a device address."""


@dataclass(frozen=True, slots=True)
class KernelParam:
    """One kernel parameter: name, byte offset from the parameter base (0x140 of constant bank 0), type (a key of
    PARAM_BYTES), meaning."""

    name: str
    offset: int
    type: str
    meaning: str

    @property
    def nbytes(self) -> int:
        return PARAM_BYTES[self.type]


@dataclass(frozen=True, slots=True)
class ConstantSymbol:
    """A `__constant__` array the host fills before the launch."""

    name: str
    bank: int
    nbytes: int


@dataclass(frozen=True)
class KernelSpec:
    """One kernel.

    `name`: symbol in the cubin. `source`: file in sass/ (its cubin has the same stem), or its path. `threads`: threads
    per block, all in x. `shared_bytes`: static shared memory. `max_registers`: bound the built cubin must respect.
    `params` in declaration order; `textures`: names of the 1D float32 x 4 texture references; `constants`: symbols.
    `doc`: what it computes, grid, limits.
    """

    name: str
    source: str
    threads: int
    shared_bytes: int
    max_registers: int
    params: tuple[KernelParam, ...]
    doc: str
    textures: tuple[str, ...] = ()
    constants: tuple[ConstantSymbol, ...] = ()

    @property
    def param_bytes(self) -> int:
        return max(p.offset + p.nbytes for p in self.params)


def params(*rows: tuple[str, str, str]) -> tuple[KernelParam, ...]:
    """Rows (name, type, meaning) laid out at their natural alignment, as the cubin has them."""
    found = []
    offset = 0
    for name, type_, meaning in rows:
        size = PARAM_BYTES[type_]
        offset += -offset % size
        found.append(KernelParam(name, offset, type_, meaning))
        offset += size
    return tuple(found)
