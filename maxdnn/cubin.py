"""ELF cubins of Maxwell and Pascal to kernels: code, resources, parameters, constants, symbols. Source of the layout:
the ELF sections, attributes and relocations that ptxas 12.9 and 8.0 write."""

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.construct.lib.container import Container
from elftools.elf.elffile import ELFFile

from .errors import CubinError
from .isa import Control, Instruction, decode
from .isa.control import split_control_word

PARAM_BASE = 0x140  # first byte of the kernel parameters in constant bank 0
ARCHS = {50: "sm_50", 52: "sm_52", 53: "sm_53", 60: "sm_60", 61: "sm_61", 62: "sm_62"}
_EM_CUDA = 190


@dataclass(frozen=True, slots=True)
class Param:
    """A kernel parameter: position, byte offset from the parameter base, size in bytes."""

    ordinal: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A `__constant__` or global variable: its section ("bank 3" is .nv.constant3), byte offset and size."""

    name: str
    section: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """A value the loader must write: `kind` 2 = 64-bit address of a global, 6 = texture handle word."""

    section: str
    offset: int
    kind: int
    symbol: str


@dataclass(frozen=True)
class CubinKernel:
    """One kernel. Sizes in bytes; `constants` maps constant bank to its initial bytes (bank 0: zeros up to the
    end of parameters and texture words)."""

    name: str
    arch: str
    code: bytes
    registers: int
    shared_bytes: int
    local_bytes: int
    barriers: int
    params: tuple[Param, ...]
    constants: Mapping[int, bytes]
    textures: tuple[tuple[str, int], ...]  # (texture name, byte offset of its handle word in bank 0)
    attributes: tuple[tuple[int, bytes], ...]  # (code, value) of .nv.info.<kernel>, in file order
    reqntid: tuple[int, int, int] | None = None
    maxntid: tuple[int, int, int] | None = None

    @property
    def param_bytes(self) -> int:
        return max((p.offset + p.size for p in self.params), default=0)

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions in address order, padding included. Raises DecodeError at a word that is none."""
        return tuple(decode(word, control, address) for address, word, control in self.words())

    def words(self) -> list[tuple[int, int, Control]]:
        """(byte address, 64-bit word, control code) of every instruction slot."""
        out = []
        for base in range(0, len(self.code), 32):
            control, *words = struct.unpack_from("<4Q", self.code, base)
            for i, (word, field) in enumerate(zip(words, split_control_word(control), strict=True)):
                out.append((base + 8 + 8 * i, word, Control.unpack(field)))
        return out


@dataclass(frozen=True)
class Cubin:
    """A module: kernels by name, user constants (bank 3), global variables with initial data, relocations."""

    arch: str
    kernels: Mapping[str, CubinKernel]
    constant_bank: bytes  # initial bytes of user constant bank 3
    constants: Mapping[str, Symbol]  # __constant__ symbols in bank 3
    globals: Mapping[str, Symbol]  # global variables, section .nv.global or .nv.global.init
    global_init: bytes  # initial bytes of .nv.global.init
    global_bytes: int  # size of .nv.global (zeros)
    global_addresses: bytes  # bank 4 before relocation
    relocations: tuple[Relocation, ...]

    def kernel(self, name: str | None = None) -> CubinKernel:
        """The named kernel; the only one if `name` is None. Raises CubinError naming those there are."""
        if name is None and len(self.kernels) == 1:
            return next(iter(self.kernels.values()))
        if name not in self.kernels:
            raise CubinError(f"no kernel {name!r} in this cubin; it has: {', '.join(self.kernels) or 'none'}")
        return self.kernels[name]


def read(source: str | Path | bytes) -> Cubin:
    """Read a cubin from a path or from bytes. Raises CubinError naming what is wrong with a damaged file."""
    data, where = (source, "cubin") if isinstance(source, bytes) else (Path(source).read_bytes(), str(source))
    try:
        return _Reader(data, where).cubin()
    except CubinError:
        raise
    except (ELFError, struct.error, UnicodeDecodeError, ValueError, KeyError, IndexError, AttributeError, TypeError,
            OverflowError, AssertionError) as e:
        raise CubinError(f"{where}: damaged cubin: {type(e).__name__}: {e}") from e


class _Reader:
    def __init__(self, data: bytes, where: str) -> None:
        if data[:4] != b"\x7fELF":
            raise CubinError(f"{where}: not a cubin: it does not begin with an ELF header")
        self.where = where
        self.elf = ELFFile(io.BytesIO(data))
        if self.elf.header.e_machine not in (_EM_CUDA, "EM_CUDA"):
            raise CubinError(f"{where}: ELF machine is {self.elf.header.e_machine}, want {_EM_CUDA} (CUDA)")
        self.arch = ARCHS.get(self.elf.header.e_flags & 0xFF, "")
        if not self.arch:
            raise CubinError(f"{where}: built for sm_{self.elf.header.e_flags & 0xFF}; "
                             f"this library reads {', '.join(ARCHS.values())}")
        self.sections = {s.name: s for s in self.elf.iter_sections()}
        self.names = [s.name for s in self.elf.iter_sections()]
        symtab = self.sections.get(".symtab")
        self.symbols: list[Any] = list(symtab.iter_symbols()) if symtab else []

    def cubin(self) -> Cubin:
        kernels = {}
        relocations = self._relocations()
        stack = self._stack_sizes()
        for name in self.names:
            if name.startswith(".text."):
                kernel = self._kernel(name.removeprefix(".text."), relocations, stack)
                kernels[kernel.name] = kernel
        glob = self.sections.get(".nv.global")
        return Cubin(
            self.arch, kernels, self._data(".nv.constant3"), self._variables((".nv.constant3",)),
            self._variables((".nv.global", ".nv.global.init")), self._data(".nv.global.init"),
            glob.header.sh_size if glob else 0, self._data(".nv.constant4"), relocations)

    def _data(self, name: str) -> bytes:
        section = self.sections.get(name)
        if section is None:
            return b""
        if section.header.sh_type == "SHT_NOBITS":
            return bytes(section.header.sh_size)
        data = section.data()
        if len(data) != section.header.sh_size:
            raise CubinError(f"{self.where}: section {name} is cut short: {len(data)} of {section.header.sh_size} bytes")
        return data

    def _variables(self, sections: tuple[str, ...]) -> dict[str, Symbol]:
        out = {}
        for sym in self.symbols:
            shndx = sym.entry.st_shndx
            if sym.entry.st_info.type == "STT_OBJECT" and isinstance(shndx, int) and self.names[shndx] in sections:
                out[sym.name] = Symbol(sym.name, self.names[shndx], sym.entry.st_value, sym.entry.st_size)
        return out

    def _relocations(self) -> tuple[Relocation, ...]:
        out = []
        for name, section in self.sections.items():
            if not name.startswith((".rel.", ".rela.")):
                continue
            data, step = section.data(), 24 if name.startswith(".rela.") else 16
            for at in range(0, len(data) - step + 1, step):
                offset, info = struct.unpack_from("<QQ", data, at)
                target = self.names[section.header.sh_info]
                out.append(Relocation(target, offset, info & 0xFFFFFFFF, self.symbols[info >> 32].name))
        return tuple(out)

    def _attributes(self, name: str) -> tuple[tuple[int, bytes], ...]:
        data, at, out = self._data(name), 0, []
        while at < len(data):
            form, code = data[at], data[at + 1]
            if form == 4:
                (size,) = struct.unpack_from("<H", data, at + 2)
                value = data[at + 4:at + 4 + size]
                if len(value) != size:
                    raise CubinError(f"{self.where}: {name}: attribute 0x{code:02x} runs past the end of the section")
                at += 4 + size
            elif form in (1, 2, 3):
                value = data[at + 2:at + 4]
                at += 4
            else:
                raise CubinError(f"{self.where}: {name}: attribute at 0x{at:x} has unknown format {form}")
            out.append((code, value))
        return tuple(out)

    def _stack_sizes(self) -> dict[str, int]:
        sizes = {}
        for code, value in self._attributes(".nv.info"):
            if code == 0x11 and len(value) == 8:
                index, size = struct.unpack("<II", value)
                sizes[self.symbols[index].name] = max(size, sizes.get(self.symbols[index].name, 0))
            if code in (0x12, 0x23) and len(value) == 8:
                index, size = struct.unpack("<Ii", value)
                sizes[self.symbols[index].name] = max(size, sizes.get(self.symbols[index].name, 0))
        return sizes

    def _kernel(self, name: str, relocations: tuple[Relocation, ...], stack: Mapping[str, int]) -> CubinKernel:
        text: Container = self.sections[f".text.{name}"].header
        code = self._data(f".text.{name}")
        if not code or len(code) % 32:
            raise CubinError(f"{self.where}: kernel {name}: code size {len(code)} is not a multiple of 32 bytes")
        attributes = self._attributes(f".nv.info.{name}")
        shared = self.sections.get(f".nv.shared.{name}")
        constants = {bank: self._data(f".nv.constant{bank}.{name}") for bank in range(18)
                     if f".nv.constant{bank}.{name}" in self.sections}
        textures = tuple((r.symbol, r.offset) for r in relocations
                         if r.kind == 6 and r.section == f".nv.constant0.{name}")
        dims = {code_: struct.unpack("<3I", value) for code_, value in attributes if code_ in (0x05, 0x10)}
        return CubinKernel(
            name, self.arch, code, text.sh_info >> 24, shared.header.sh_size if shared else 0, stack.get(name, 0),
            text.sh_flags >> 20 & 31, _params(attributes), constants, textures, attributes,
            dims.get(0x10), dims.get(0x05))


def _params(attributes: tuple[tuple[int, bytes], ...]) -> tuple[Param, ...]:
    params = []
    for code, value in attributes:
        if code == 0x17:
            _, ordinal, offset, packed = struct.unpack("<IHHI", value)
            params.append(Param(ordinal, offset, packed >> 18))
    return tuple(sorted(params, key=lambda p: p.ordinal))
