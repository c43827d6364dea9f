"""ELF cubins of Maxwell, Pascal, Ampere, Ada and Hopper to kernels: code, resources, parameters, constants, symbols.

Source of the layout: the ELF sections, attributes and relocations that ptxas 12.9 and 8.0 write.
"""

import io
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
from elftools.elf.elffile import ELFFile

from .errors import CubinError, DecodeError
from .isa import Addressing, Control, Instruction, Table, Undecodable, read_word, table_of, words
from .runtime.files import read_bytes

ARCHS = {50: "sm_50", 52: "sm_52", 53: "sm_53", 60: "sm_60", 61: "sm_61", 62: "sm_62",
         80: "sm_80", 86: "sm_86", 89: "sm_89", 90: "sm_90"}
RELOCATIONS = {1: "R_CUDA_32", 2: "R_CUDA_64", 4: "R_CUDA_G64", 6: "R_CUDA_TEX_HEADER_INDEX",
               7: "R_CUDA_SAMP_HEADER_INDEX", 8: "R_CUDA_SURF_HW_DESC", 9: "R_CUDA_SURF_HW_SW_DESC",
               42: "R_CUDA_ABS32_20", 43: "R_CUDA_ABS32_LO_20", 44: "R_CUDA_ABS32_HI_20",
               50: "R_CUDA_CONST_FIELD19_20", 51: "R_CUDA_SURF_HEADER_INDEX"}
CODE_ADDRESS, ADDRESSES = 1, (2, 4)  # relocation kinds: of a function (4 bytes), of a variable (8 bytes)
_EM_CUDA = 190
_ENTRY = 0x10  # st_other of a kernel's symbol
_MAX_BYTES = 1 << 32  # no section of a real cubin is larger, whatever its header says
_CRS_STACK_SIZE, _FRAME_SIZE, _MIN_STACK_SIZE, _MAX_STACK_SIZE = 0x1E, 0x11, 0x12, 0x23
_MAXNTID, _REQNTID, _PARAM, _REGISTERS = 0x05, 0x10, 0x17, 0x2F


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
    surfaces: tuple[tuple[str, int], ...] = ()  # (surface name, byte offset of its handle word in bank 0)
    channels: tuple[int, ...] = ()  # floats in a texel of each texture, where the file says so

    def texture_channels(self, number: int) -> int:
        """Floats in a texel of texture `number`: 4 unless the source declared another number."""
        return self.channels[number] if number < len(self.channels) else 4

    @property
    def most_threads(self) -> int:
        """Of a CTA: what the file says, but no more than any GPU takes."""
        return min(math.prod(self.maxntid or (MAX_THREADS,)), MAX_THREADS)

    @property
    def crs_stack_bytes(self) -> int:
        """Memory the divergence and call stack needs beyond the on-chip part; 0 if the file does not say."""
        return next((struct.unpack("<I", v)[0] for code, v in self.attributes if code == _CRS_STACK_SIZE), 0)

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


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: Any
    flags: int
    offset: int
    size: int
    info: int


class _Reader:
    """One pass over an ELF file. pyelftools reads headers and symbols; sizes are checked here before they are used."""

    def __init__(self, data: bytes, where: str) -> None:
        self.data, self.where = data, where
        if data[:4] != b"\x7fELF":
            raise self._error("not a cubin: it does not begin with an ELF header")
        if len(data) < 64:
            raise self._error(f"cut short: {len(data)} bytes, an ELF header has 64")
        if data[4] != 2 or data[5] != 1:
            raise self._error("not a 64-bit little-endian ELF file")
        elf = ELFFile(io.BytesIO(data))
        self.arch = self._architecture(elf.header)
        self.sections = self._sections(elf)
        self.symbols = self._symbols(elf)

    def _error(self, what: str) -> CubinError:
        return CubinError(f"{self.where}: {what}")

    def _architecture(self, header: Any) -> str:
        if header.e_machine not in (_EM_CUDA, "EM_CUDA"):
            raise self._error(f"ELF machine is {header.e_machine}, want {_EM_CUDA} (CUDA)")
        sm = header.e_flags & 0xFF
        if sm not in ARCHS:
            raise self._error(f"built for sm_{sm}; this library reads {', '.join(ARCHS.values())}")
        end = header.e_shoff + header.e_shnum * header.e_shentsize
        if header.e_shentsize != 64 or not header.e_shnum or end > len(self.data):
            raise self._error(f"cut short or damaged: {header.e_shnum} section headers of {header.e_shentsize} bytes "
                              f"at 0x{header.e_shoff:x} do not lie within its {len(self.data)} bytes")
        if header.e_shstrndx >= header.e_shnum:
            raise self._error(f"section {header.e_shstrndx} is to hold the section names; there are {header.e_shnum}")
        return ARCHS[sm]

    def _sections(self, elf: ELFFile) -> list[_Section]:
        out = []
        for s in elf.iter_sections():
            h = s.header
            out.append(_Section(s.name, h.sh_type, h.sh_flags, h.sh_offset, h.sh_size, h.sh_info))
        names = [s.name for s in out if s.name]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice:
            raise self._error(f"section {twice} is there twice")
        return out

    def _symbols(self, elf: ELFFile) -> list[Any]:
        section = self._section(".symtab")
        if section is None:
            return []
        self._data(".symtab")  # its size, before pyelftools walks it
        table = elf.get_section_by_name(".symtab")
        if table is None or section.kind != "SHT_SYMTAB" or table.header.sh_entsize != 24:
            raise self._error("section .symtab is no symbol table of 24-byte entries")
        return list(table.iter_symbols())  # type: ignore[attr-defined]

    def _section(self, name: str) -> _Section | None:
        return next((s for s in self.sections if s.name == name), None)

    def _data(self, name: str) -> bytes:
        """A section's bytes, zeros where the file holds none; empty if there is no such section."""
        s = self._section(name)
        if s is None:
            return b""
        if s.size > _MAX_BYTES or (s.kind != "SHT_NOBITS" and s.offset + s.size > len(self.data)):
            raise self._error(f"section {name} is cut short: bytes 0x{s.offset:x} to 0x{s.offset + s.size:x} of a file "
                              f"of 0x{len(self.data):x}")
        if s.kind == "SHT_NOBITS":
            raise self._error(f"section {name} has a size and no content")
        return self.data[s.offset:s.offset + s.size]

    def _symbol(self, index: int, user: str) -> Any:
        if index >= len(self.symbols):
            raise self._error(f"{user} names symbol {index}; there are {len(self.symbols)}")
        return self.symbols[index]

    def _named(self, index: Any, user: str) -> _Section:
        """The section with an index that a symbol or a relocation section holds."""
        if not isinstance(index, int) or index >= len(self.sections):
            raise self._error(f"{user} refers to section {index}; there are {len(self.sections)}")
        return self.sections[index]

    # -- parts ----------------------------------------------------------------------------------------------------

    def cubin(self) -> Cubin:
        relocations = tuple(self._relocations())
        stack = self._stack_sizes()
        names = [s.name.removeprefix(".text.") for s in self.sections if s.name.startswith(".text.")]
        kernels = {name: self._kernel(name, relocations, stack) for name in names if self._is_kernel(name)}
        plain = self._section(".nv.global")
        return Cubin(
            self.arch, kernels, self._data(".nv.constant3"), self._variables(".nv.constant3"),
            self._variables(".nv.global", ".nv.global.init"), self._data(".nv.global.init"),
            self._size(plain) if plain else 0, self._data(".nv.constant4"), relocations)

    def _size(self, section: _Section) -> int:
        if section.size > _MAX_BYTES:
            raise self._error(f"section {section.name} claims 0x{section.size:x} bytes")
        return section.size

    def _is_kernel(self, name: str) -> bool:
        """Whether the code section of this name holds a kernel, not only functions that kernels call."""
        table = self._data(".symtab")  # the byte st_other, of which pyelftools keeps only the standard bits
        others = [table[24 * i + 5] for i, s in enumerate(self.symbols)
                  if s.name == name and s.entry.st_info.type == "STT_FUNC"]
        return not others or any(other & _ENTRY for other in others)

    def _variables(self, *sections: str) -> dict[str, Symbol]:
        out = {}
        for s in self.symbols:
            if s.entry.st_info.type == "STT_OBJECT" and isinstance(s.entry.st_shndx, int):
                section = self._named(s.entry.st_shndx, f"symbol {s.name}")
                if section.name in sections:
                    self._check_inside(s, section)
                    out[s.name] = Symbol(s.name, section.name, s.entry.st_value, s.entry.st_size)
        return out

    def _check_inside(self, symbol: Any, section: _Section) -> None:
        e = symbol.entry
        if e.st_value + e.st_size > section.size:
            raise self._error(f"symbol {symbol.name} spans bytes 0x{e.st_value:x} to 0x{e.st_value + e.st_size:x} of "
                              f"section {section.name}, which has 0x{section.size:x}")

    def _functions(self, name: str) -> tuple[Symbol, ...]:
        found = []
        for s in self.symbols:
            if s.entry.st_info.type == "STT_FUNC" and isinstance(s.entry.st_shndx, int) and s.name != name:
                section = self._named(s.entry.st_shndx, f"symbol {s.name}")
                if section.name == f".text.{name}":
                    self._check_inside(s, section)
                    found.append(Symbol(s.name, section.name, s.entry.st_value, s.entry.st_size))
        return tuple(sorted(found, key=lambda f: f.offset))

    def _relocations(self) -> Iterator[Relocation]:
        for section in self.sections:
            if not section.name.startswith((".rel.", ".rela.")):
                continue
            data, step = self._data(section.name), 24 if section.name.startswith(".rela.") else 16
            if len(data) % step:
                raise self._error(f"section {section.name}: {len(data)} bytes are no multiple of {step}")
            target = self._named(section.info, f"section {section.name}")
            for at in range(0, len(data), step):
                offset, info = struct.unpack_from("<QQ", data, at)
                if offset >= target.size:
                    raise self._error(f"section {section.name}: offset 0x{offset:x} is outside {target.name}")
                symbol = self._symbol(info >> 32, f"section {section.name}")
                addend = struct.unpack_from("<q", data, at + 16)[0] if step == 24 else None
                outside = symbol.entry.st_shndx == "SHN_UNDEF" and bool(symbol.name)
                yield Relocation(target.name, offset, info & 0xFFFFFFFF, symbol.name, addend, outside)

    def _attributes(self, name: str) -> tuple[tuple[int, bytes], ...]:
        """(code, value) of a .nv.info section. Formats 1..3 hold a value in their own 4 bytes, 4 has a length."""
        data, at, out = self._data(name), 0, []
        while at < len(data):
            if at + 4 > len(data):
                raise self._error(f"section {name}: attribute at 0x{at:x} is cut short")
            form, code, size = struct.unpack_from("<BBH", data, at)
            if form not in (1, 2, 3, 4):
                raise self._error(f"section {name}: attribute at 0x{at:x} has unknown format {form}")
            end = at + 4 + (size if form == 4 else 0)
            if end > len(data):
                raise self._error(f"section {name}: attribute 0x{code:02x} runs past the end of the section")
            out.append((code, data[at + 4:end] if form == 4 else data[at + 2:at + 4]))
            at = end
        self._check_lengths(name, out)
        return tuple(out)

    def _check_lengths(self, name: str, attributes: list[tuple[int, bytes]]) -> None:
        want = {_FRAME_SIZE: 8, _MIN_STACK_SIZE: 8, _MAX_STACK_SIZE: 8, _CRS_STACK_SIZE: 4, _MAXNTID: 12, _REQNTID: 12,
                _PARAM: 12}
        for code, value in attributes:
            if len(value) != want.get(code, len(value)):
                raise self._error(f"section {name}: attribute 0x{code:02x} has {len(value)} bytes, want {want[code]}")

    def _stack_sizes(self) -> dict[str, int]:
        """Bytes of local memory per thread by function: the largest of its frame and stack attributes."""
        sizes: dict[str, int] = {}
        for code, value in self._attributes(".nv.info"):
            if code in (_FRAME_SIZE, _MIN_STACK_SIZE, _MAX_STACK_SIZE):
                index, size = struct.unpack("<Ii", value)
                name = self._symbol(index, "section .nv.info").name
                sizes[name] = max(size, sizes.get(name, 0))
        return sizes

    def _register_count(self, name: str) -> int:
        """What newer files keep with the module's attributes only."""
        for code, value in self._attributes(".nv.info"):
            if code == _REGISTERS and len(value) == 8:
                index, count = struct.unpack("<II", value)
                if self._symbol(index, "section .nv.info").name == name:
                    return int(count)
        return 0

    def interface(self) -> list[dict[str, Any]]:
        text = self._data(".maxdnn.interface")
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

    def _kernel(self, name: str, relocations: tuple[Relocation, ...], stack: Mapping[str, int]) -> CubinKernel:
        text, code = self._section(f".text.{name}"), self._data(f".text.{name}")
        if text is None or not code or len(code) % 32:
            raise self._error(f"kernel {name}: code size {len(code)} is not a multiple of 32 bytes")
        attributes = self._attributes(f".nv.info.{name}")
        shared = self._section(f".nv.shared.{name}")
        banks = [f".nv.constant{bank}" for bank in range(18)]
        constants = {bank: self._data(f"{b}.{name}") for bank, b in enumerate(banks) if self._section(f"{b}.{name}")}
        handles = [(r.kind, r.symbol, r.offset) for r in relocations if r.section == f".nv.constant0.{name}"]
        dims = {code_: struct.unpack("<3I", value) for code_, value in attributes if code_ in (_MAXNTID, _REQNTID)}
        return CubinKernel(
            name, self.arch, code, text.info >> 24 & 0xFF or self._register_count(name),
            self._size(shared) if shared else 0, stack.get(name, 0),
            text.flags >> 20 & 31, _params(attributes), constants,
            tuple((symbol, offset) for kind, symbol, offset in handles if RELOCATIONS.get(kind, "")[7:10] == "TEX"),
            attributes, dims.get(_REQNTID), dims.get(_MAXNTID), self._functions(name),
            tuple((symbol, offset) for kind, symbol, offset in handles if RELOCATIONS.get(kind, "")[7:11] == "SURF"),
            self._channels(name))


def _params(attributes: tuple[tuple[int, bytes], ...]) -> tuple[Param, ...]:
    params = []
    for code, value in attributes:
        if code == _PARAM:
            _, ordinal, offset, packed = struct.unpack("<IHHI", value)
            params.append(Param(ordinal, offset, packed >> 18))
    return tuple(sorted(params, key=lambda p: p.ordinal))
