"""An ELF file as CUDA writes them: sections and symbols, whose places are checked before they are used."""

import io
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from elftools.elf.elffile import ELFFile

from ..errors import CubinError

ARCHS = {50: "sm_50", 52: "sm_52", 53: "sm_53", 60: "sm_60", 61: "sm_61", 62: "sm_62",
         80: "sm_80", 86: "sm_86", 89: "sm_89", 90: "sm_90"}
_EM_CUDA = 190
_ENTRY = 0x10  # st_other of a kernel's symbol
MAXNTID, REQNTID, PARAM, REGISTERS = 0x05, 0x10, 0x17, 0x2F  # attributes of kernels
FRAME_SIZE, MIN_STACK_SIZE, MAX_STACK_SIZE, _CRS_STACK_SIZE = 0x11, 0x12, 0x23, 0x1E
_LENGTHS = {FRAME_SIZE: 8, MIN_STACK_SIZE: 8, MAX_STACK_SIZE: 8, _CRS_STACK_SIZE: 4, MAXNTID: 12, REQNTID: 12,
            PARAM: 12}
_MAX_BYTES = 1 << 32  # no section of a real cubin is larger, whatever its header says


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    kind: Any
    flags: int
    offset: int
    size: int
    info: int


class Elf:
    """pyelftools reads headers and symbols; sizes are checked here before they are used. `where`: what errors call the
    file."""

    def __init__(self, data: bytes, where: str) -> None:
        self._data, self.where = data, where
        if data[:4] != b"\x7fELF":
            raise self.error("not a cubin: it does not begin with an ELF header")
        if len(data) < 64:
            raise self.error(f"cut short: {len(data)} bytes, an ELF header has 64")
        if data[4] != 2 or data[5] != 1:
            raise self.error("not a 64-bit little-endian ELF file")
        elf = ELFFile(io.BytesIO(data))
        self.arch = self._architecture(elf.header)
        self.sections = self._sections(elf)
        self.symbols = self._symbols(elf)

    def error(self, what: str) -> CubinError:
        return CubinError(f"{self.where}: {what}")

    def _architecture(self, header: Any) -> str:
        if header.e_machine not in (_EM_CUDA, "EM_CUDA"):
            raise self.error(f"ELF machine is {header.e_machine}, want {_EM_CUDA} (CUDA)")
        sm = header.e_flags & 0xFF
        if sm not in ARCHS:
            raise self.error(f"built for sm_{sm}; this library reads {', '.join(ARCHS.values())}")
        end = header.e_shoff + header.e_shnum * header.e_shentsize
        if header.e_shentsize != 64 or not header.e_shnum or end > len(self._data):
            raise self.error(f"cut short or damaged: {header.e_shnum} section headers of {header.e_shentsize} bytes "
                              f"at 0x{header.e_shoff:x} do not lie within its {len(self._data)} bytes")
        if header.e_shstrndx >= header.e_shnum:
            raise self.error(f"section {header.e_shstrndx} is to hold the section names; there are {header.e_shnum}")
        return ARCHS[sm]

    def _sections(self, elf: ELFFile) -> list[Section]:
        out = []
        for s in elf.iter_sections():
            h = s.header
            out.append(Section(s.name, h.sh_type, h.sh_flags, h.sh_offset, h.sh_size, h.sh_info))
        names = [s.name for s in out if s.name]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice:
            raise self.error(f"section {twice} is there twice")
        return out

    def _symbols(self, elf: ELFFile) -> list[Any]:
        section = self.section(".symtab")
        if section is None:
            return []
        self.data(".symtab")  # its size, before pyelftools walks it
        table = elf.get_section_by_name(".symtab")
        if table is None or section.kind != "SHT_SYMTAB" or table.header.sh_entsize != 24:
            raise self.error("section .symtab is no symbol table of 24-byte entries")
        return list(table.iter_symbols())  # type: ignore[attr-defined]

    def section(self, name: str) -> Section | None:
        return next((s for s in self.sections if s.name == name), None)

    def data(self, name: str) -> bytes:
        """A section's bytes, zeros where the file holds none; empty if there is no such section."""
        s = self.section(name)
        if s is None:
            return b""
        if s.size > _MAX_BYTES or (s.kind != "SHT_NOBITS" and s.offset + s.size > len(self._data)):
            raise self.error(f"section {name} is cut short: bytes 0x{s.offset:x} to 0x{s.offset + s.size:x} of a file "
                              f"of 0x{len(self._data):x}")
        if s.kind == "SHT_NOBITS":
            raise self.error(f"section {name} has a size and no content")
        return self._data[s.offset:s.offset + s.size]

    def symbol(self, index: int, user: str) -> Any:
        if index >= len(self.symbols):
            raise self.error(f"{user} names symbol {index}; there are {len(self.symbols)}")
        return self.symbols[index]

    def named(self, index: Any, user: str) -> Section:
        """The section with an index that a symbol or a relocation section holds."""
        if not isinstance(index, int) or index >= len(self.sections):
            raise self.error(f"{user} refers to section {index}; there are {len(self.sections)}")
        return self.sections[index]

    def size(self, section: Section) -> int:
        """Of a section that may have no content."""
        if section.size > _MAX_BYTES:
            raise self.error(f"section {section.name} claims 0x{section.size:x} bytes")
        return section.size

    def symbols_in(self, kind: str, *sections: str) -> Iterator[tuple[str, str, int, int]]:
        """(name, section, offset, size) of the symbols of a kind that lie in some sections."""
        for symbol in self.symbols:
            e = symbol.entry
            if e.st_info.type == kind and isinstance(e.st_shndx, int):
                section = self.named(e.st_shndx, f"symbol {symbol.name}")
                if section.name not in sections:
                    continue
                if e.st_value + e.st_size > section.size:
                    raise self.error(f"symbol {symbol.name} spans bytes 0x{e.st_value:x} to "
                                     f"0x{e.st_value + e.st_size:x} of section {section.name}, which has "
                                     f"0x{section.size:x}")
                yield symbol.name, section.name, e.st_value, e.st_size

    def is_kernel(self, name: str) -> bool:
        """Whether the code section of this name holds a kernel, not only functions that kernels call."""
        table = self.data(".symtab")  # the byte st_other, of which pyelftools keeps only the standard bits
        others = [table[24 * i + 5] for i, s in enumerate(self.symbols)
                  if s.name == name and s.entry.st_info.type == "STT_FUNC"]
        return not others or any(other & _ENTRY for other in others)

    def relocations(self) -> Iterator[tuple[str, int, int, str, int | None, bool]]:
        """(section, offset, kind, symbol, addend, whether the file lacks the symbol)."""
        for section in self.sections:
            if not section.name.startswith((".rel.", ".rela.")):
                continue
            data, step = self.data(section.name), 24 if section.name.startswith(".rela.") else 16
            if len(data) % step:
                raise self.error(f"section {section.name}: {len(data)} bytes are no multiple of {step}")
            target = self.named(section.info, f"section {section.name}")
            for at in range(0, len(data), step):
                offset, info = struct.unpack_from("<QQ", data, at)
                if offset >= target.size:
                    raise self.error(f"section {section.name}: offset 0x{offset:x} is outside {target.name}")
                symbol = self.symbol(info >> 32, f"section {section.name}")
                addend = struct.unpack_from("<q", data, at + 16)[0] if step == 24 else None
                outside = symbol.entry.st_shndx == "SHN_UNDEF" and bool(symbol.name)
                yield target.name, offset, info & 0xFFFFFFFF, symbol.name, addend, outside

    def attributes(self, name: str) -> tuple[tuple[int, bytes], ...]:
        """(code, value) of a .nv.info section. Formats 1..3 hold a value in their own 4 bytes, 4 has a length."""
        data, at, out = self.data(name), 0, []
        while at < len(data):
            if at + 4 > len(data):
                raise self.error(f"section {name}: attribute at 0x{at:x} is cut short")
            form, code, size = struct.unpack_from("<BBH", data, at)
            if form not in (1, 2, 3, 4):
                raise self.error(f"section {name}: attribute at 0x{at:x} has unknown format {form}")
            end = at + 4 + (size if form == 4 else 0)
            if end > len(data):
                raise self.error(f"section {name}: attribute 0x{code:02x} runs past the end of the section")
            value = data[at + 4:end] if form == 4 else data[at + 2:at + 4]
            want = _LENGTHS.get(code, len(value))
            if len(value) != want:
                raise self.error(f"section {name}: attribute 0x{code:02x} has {len(value)} bytes, want {want}")
            out.append((code, value))
            at = end
        return tuple(out)
