"""ELF cubins of Maxwell, Pascal, Ampere, Ada and Hopper to kernels: code, resources, parameters, constants, symbols.

Source of the layout: the ELF sections, attributes and relocations that ptxas 12.9 and 8.0 write.
"""

import json
import math
import os
import struct
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError

from .errors import CubinError, DecodeError
from .isa import Addressing, Control, Instruction, Table, Undecodable, read_word, table_of, words
from .runtime.elf import FRAME_SIZE, MAX_STACK_SIZE, MAXNTID, MIN_STACK_SIZE, PARAM, REGISTERS, REQNTID, Elf
from .runtime.files import read_bytes

RELOCATIONS = {1: "R_CUDA_32", 2: "R_CUDA_64", 4: "R_CUDA_G64", 6: "R_CUDA_TEX_HEADER_INDEX",
               7: "R_CUDA_SAMP_HEADER_INDEX", 8: "R_CUDA_SURF_HW_DESC", 9: "R_CUDA_SURF_HW_SW_DESC",
               42: "R_CUDA_ABS32_20", 43: "R_CUDA_ABS32_LO_20", 44: "R_CUDA_ABS32_HI_20",
               50: "R_CUDA_CONST_FIELD19_20", 51: "R_CUDA_SURF_HEADER_INDEX"}
CODE_ADDRESS, ADDRESSES = 1, (2, 4)  # relocation kinds: of a function (4 bytes), of a variable (8 bytes)


@dataclass(frozen=True, slots=True)
class Param:
    """A kernel parameter: position, byte offset from the parameter base, size in bytes."""

    ordinal: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable or function: its section ("bank 3" is .nv.constant3), byte offset and size."""

    name: str
    section: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """A relocation.

    A value the loader must write at byte `offset` of `section`: `kind` 2 or 4 = 64-bit address of a global, 6 =
    texture handle word, others as named in RELOCATIONS. `addend` is added to it; None: what stands there already.
    `external`: the file does not hold the symbol.
    """

    section: str
    offset: int
    kind: int
    symbol: str
    addend: int | None = None
    external: bool = False

    def __str__(self) -> str:
        kind = RELOCATIONS.get(self.kind, f"of unknown type {self.kind}")
        return f"relocation {kind} against {self.symbol or 'a section'} at {self.section} + 0x{self.offset:x}"


MAX_THREADS = 1024  # of a CTA (CUDA C Programming Guide, technical specifications per compute capability)


@dataclass(frozen=True)
class CubinKernel:
    """One kernel.

    Sizes in bytes; `constants` maps constant bank to its initial bytes (bank 0: zeros up to the end of parameters and
    texture words).
    """

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
    functions: tuple[Symbol, ...] = ()  # device functions inside the code, by offset
    channels: tuple[int, ...] = ()  # floats in a texel of each texture, where the file says so

    def texture_channels(self, number: int) -> int:
        """Floats in a texel of texture `number`: 4 unless the source declared another number."""
        return self.channels[number] if number < len(self.channels) else 4

    @property
    def most_threads(self) -> int:
        """Of a CTA: what the file says, but no more than any GPU takes."""
        return min(math.prod(self.maxntid or (MAX_THREADS,)), MAX_THREADS)

    @property
    def system_shared_bytes(self) -> int:
        """Of shared memory, those in front of a CTA's own, which `shared_bytes` counts."""
        return 0x400 if int(self.arch[3:5]) >= 90 else 0

    @property
    def launch_shared_bytes(self) -> int:
        """Of shared memory, what each launch must bring: all that the kernel declared, or nothing."""
        own = self.shared_bytes - self.system_shared_bytes
        return own if own > STATIC_SHARED else 0

    @property
    def param_bytes(self) -> int:
        """Bytes of all parameters, gaps included."""
        return max((p.offset + p.size for p in self.params), default=0)

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """All instructions in address order, padding included. Raises DecodeError at a word that is none."""
        found = []
        for item in self.listing:
            if isinstance(item, Undecodable):
                raise DecodeError(f"kernel {self.name}: {item.why}")
            found.append(item)
        return tuple(found)

    @cached_property
    def listing(self) -> tuple[Instruction | Undecodable, ...]:
        """All words in address order, those that are no instructions, too."""
        return tuple(read_word(word, control, address, self.table) for address, word, control in self.words())

    @property
    def table(self) -> Table:
        """The instruction set the code is written in."""
        return table_of(self.arch)

    @property
    def addressing(self) -> Addressing:
        """Where parameters and shared memory begin on this instruction set."""
        return self.table.addressing

    @property
    def param_base(self) -> int:
        """First byte of the parameters in constant bank 0."""
        return self.table.bank0["params"]

    def words(self) -> list[tuple[int, int, Control]]:
        """(byte address, word of 64 or 128 bits without control code, control code) of every instruction slot."""
        return list(words(self.code, self.table))


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
        if name is None:
            raise CubinError(f"the kernel must be named: this cubin has {', '.join(self.kernels) or 'none'}")
        if name not in self.kernels:
            raise CubinError(f"no kernel {name!r} in this cubin; it has: {', '.join(self.kernels) or 'none'}")
        return self.kernels[name]


STATIC_SHARED = 48 * 1024
"""Bytes of shared memory that a driver gives a kernel unasked. The cubin of a kernel with more holds none: its launches
bring all, as its source declared it."""

ASKED_SHARED = {"sm_80": 163 << 10, "sm_86": 99 << 10, "sm_89": 99 << 10, "sm_90": 227 << 10}
"""Likewise if asked, where that is more (CUDA C Programming Guide, technical specifications)."""

_LOADED = (".text.", ".nv.constant", ".nv.global", ".nv.shared", ".nv.local")  # sections a program sees
_HANDLES = ("R_CUDA_TEX_HEADER_INDEX", "R_CUDA_SURF_HW_DESC", "R_CUDA_SURF_HW_SW_DESC", "R_CUDA_SURF_HEADER_INDEX")


def external_functions(cubin: Cubin) -> tuple[str, ...]:
    """The functions that code of the cubin calls and that are not in it (`vprintf` for printf, `malloc` ...)."""
    return tuple(dict.fromkeys(r.symbol for r in cubin.relocations if r.external and r.section.startswith(_LOADED)
                               and r.kind not in ADDRESSES and RELOCATIONS.get(r.kind) not in _HANDLES))


def require_linked(cubin: Cubin, provided: Collection[str] = (), *, who: str = "the virtual GPU",
                   addresses: Collection[str] = (".nv.constant4",)) -> None:
    """Refuse a cubin with a place that nobody would fill in.

    `provided`: external functions that `who` has; `addresses`: sections in which it writes the addresses of variables.
    Raises CubinError naming the function or relocation.
    """
    missing = sorted(set(external_functions(cubin)) - set(provided))
    if missing:
        has = f"; {who} has {', '.join(sorted(provided))}" if provided else ""
        raise CubinError(f"this cubin calls {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not in "
                         f"it: {who} cannot run it{has}")
    for r in cubin.relocations:
        if not r.section.startswith(_LOADED):
            continue  # debug information and the like
        known = r.section in addresses and r.kind in ADDRESSES and r.symbol in cubin.globals
        known |= r.section == ".nv.constant4" and r.kind == CODE_ADDRESS and r.external
        known |= r.section.startswith(".nv.constant0.") and RELOCATIONS.get(r.kind) in _HANDLES
        if not known:
            linked = "" if not r.section.startswith(".text.") else ": it is not linked (nvcc -dlink, nvlink)"
            raise CubinError(f"this cubin cannot be loaded as it is, {r} is not resolved{linked}")


def read(source: str | os.PathLike[str] | bytes) -> Cubin:
    """Read a cubin.

    Parameters
    ----------
    source : str, os.PathLike or bytes
        A path, or the cubin itself.

    Returns
    -------
    Cubin
        Kernels, constants, globals and what a loader needs.

    Raises
    ------
    CubinError
        The file is damaged or no cubin; says what is wrong.
    OSError
        The file cannot be read.
    """
    found: Cubin = _parsed(*_content(source), _Reader.cubin)
    return found


def _content(source: str | os.PathLike[str] | bytes) -> tuple[bytes, str]:
    """The bytes of a cubin, and what errors call it."""
    if isinstance(source, bytes):
        return source, "cubin"
    if not isinstance(source, (str, os.PathLike)):
        raise CubinError(f"a cubin must be given as bytes or as a path (got {type(source).__name__})")
    return read_bytes(source), str(source)


def _parsed(data: bytes, where: str, part: Callable[["_Reader"], Any]) -> Any:
    """A part of a file. Raises CubinError for a damaged one, whatever it was that met the damage."""
    try:
        return part(_Reader(data, where))
    except CubinError:
        raise
    except (ELFError, ConstructError, struct.error, ArithmeticError, AttributeError, LookupError, TypeError,
            ValueError) as e:  # what pyelftools and this reader meet in a file whose parts contradict each other
        raise CubinError(f"{where}: damaged cubin: {type(e).__name__}: {e}") from e


def interface(source: str | os.PathLike[str] | bytes) -> list[dict[str, Any]]:
    """Read the interfaces of kernels.

    What the header of the source declared, per kernel, as the assembler wrote it into the cubin (a path, or its
    bytes): name, threads, shared (bytes), registers (bound), params (name, type, offset, size, meaning), textures and
    their channels (floats in a texel), constants (bank, name, offset, bytes). [] for a cubin of another assembler.
    Raises CubinError for a damaged file.
    """
    found: list[dict[str, Any]] = _parsed(*_content(source), _Reader.interface)
    return found


class _Reader(Elf):
    """What an ELF file says of kernels."""

    def cubin(self) -> Cubin:
        relocations = tuple(Relocation(*found) for found in self.relocations())
        stack = self._stack_sizes()
        names = [s.name.removeprefix(".text.") for s in self.sections if s.name.startswith(".text.")]
        kernels = {name: self._kernel(name, relocations, stack) for name in names if self.is_kernel(name)}
        plain = self.section(".nv.global")
        return Cubin(
            self.arch, kernels, self.data(".nv.constant3"), self._variables(".nv.constant3"),
            self._variables(".nv.global", ".nv.global.init"), self.data(".nv.global.init"),
            self.size(plain) if plain else 0, self.data(".nv.constant4"), relocations)

    def _variables(self, *sections: str) -> dict[str, Symbol]:
        return {found[0]: Symbol(*found) for found in self.symbols_in("STT_OBJECT", *sections)}

    def _functions(self, name: str) -> tuple[Symbol, ...]:
        found = (Symbol(*f) for f in self.symbols_in("STT_FUNC", f".text.{name}") if f[0] != name)
        return tuple(sorted(found, key=lambda f: f.offset))

    def _of_functions(self, codes: tuple[int, ...]) -> Iterator[tuple[str, int]]:
        """(function, number) of those of the module's attributes that are about a function."""
        for code, value in self.attributes(".nv.info"):
            if code in codes and len(value) == 8:
                index, number = struct.unpack("<Ii", value)
                yield self.symbol(index, "section .nv.info").name, number

    def _stack_sizes(self) -> dict[str, int]:
        """Bytes of local memory per thread by function: the largest of its frame and stack attributes."""
        sizes: dict[str, int] = {}
        for name, size in self._of_functions((FRAME_SIZE, MIN_STACK_SIZE, MAX_STACK_SIZE)):
            sizes[name] = max(size, sizes.get(name, 0))
        return sizes

    def _register_count(self, name: str) -> int:
        """What newer files keep with the module's attributes only."""
        return next((count for of, count in self._of_functions((REGISTERS,)) if of == name), 0)

    def interface(self) -> list[dict[str, Any]]:
        text = self.data(".maxdnn.interface")
        try:
            return list(json.loads(text)["kernels"]) if text else []
        except (ValueError, TypeError, KeyError) as e:
            raise CubinError(f"{self.where}: section .maxdnn.interface is not what the assembler writes: {e}") from e

    def _channels(self, name: str) -> tuple[int, ...]:
        """Floats in a texel of each texture of a kernel, as its source declared them."""
        found = next((k.get("channels", ()) for k in self.interface() if k.get("name") == name), ())
        if any(n not in (1, 2, 4) for n in found):
            raise CubinError(f"{self.where}: a texel of {name} must have 1, 2 or 4 floats (got {found})")
        return tuple(found)

    def _shared_bytes(self, name: str) -> int:
        """Of the section, or as declared where the launch brings it."""
        section = self.section(f".nv.shared.{name}")
        reserved = self.size(section) if section else 0
        declared = next((k.get("shared", 0) for k in self.interface() if k.get("name") == name), 0)
        return reserved + (declared if declared > STATIC_SHARED else 0)

    def _kernel(self, name: str, relocations: tuple[Relocation, ...], stack: Mapping[str, int]) -> CubinKernel:
        text, code = self.section(f".text.{name}"), self.data(f".text.{name}")
        if text is None or not code or len(code) % 32:
            raise self.error(f"kernel {name}: code size {len(code)} is not a multiple of 32 bytes")
        attributes = self.attributes(f".nv.info.{name}")
        banks = [f".nv.constant{bank}" for bank in range(18)]
        constants = {bank: self.data(f"{b}.{name}") for bank, b in enumerate(banks) if self.section(f"{b}.{name}")}
        textures = tuple((r.symbol, r.offset) for r in relocations if r.section == f".nv.constant0.{name}"
                         and RELOCATIONS.get(r.kind) == "R_CUDA_TEX_HEADER_INDEX")
        dims = {code_: struct.unpack("<3I", value) for code_, value in attributes if code_ in (MAXNTID, REQNTID)}
        return CubinKernel(
            name, self.arch, code, text.info >> 24 & 0xFF or self._register_count(name),
            self._shared_bytes(name), stack.get(name, 0),
            text.flags >> 20 & 31, _params(attributes), constants, textures,
            attributes, dims.get(REQNTID), dims.get(MAXNTID), self._functions(name), self._channels(name))


def _params(attributes: tuple[tuple[int, bytes], ...]) -> tuple[Param, ...]:
    found = (struct.unpack("<IHHI", value) for code, value in attributes if code == PARAM)
    return tuple(sorted((Param(ordinal, offset, packed >> 18) for _, ordinal, offset, packed in found),
                        key=lambda p: p.ordinal))
