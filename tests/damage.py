"""Damages cubins: `spoil` changes bits, bytes, headers, counts, symbols, relocations, attributes or code of a file,
cuts it, or exchanges sections. The same file for the same arguments."""

import random
import struct
from dataclasses import dataclass

_HEADER = 64  # bytes of an ELF header, and of a section header
_COUNTS = {0x28: 8, 0x20: 8, 0x34: 2, 0x36: 2, 0x38: 2, 0x3A: 2, 0x3C: 2, 0x3E: 2, 0x12: 2, 0x30: 4}
_FIELDS = {0: 4, 4: 4, 8: 8, 16: 8, 24: 8, 32: 8, 40: 4, 44: 4, 48: 8, 56: 8}  # of a section header: where, bytes
_FORMATS = {2: "<H", 4: "<I", 8: "<Q"}


@dataclass(frozen=True)
class _Part:
    """A section: where its header is, its name, where its content is."""

    header: int
    name: str
    start: int
    end: int


class _File:
    def __init__(self, data: bytes, rng: random.Random) -> None:
        self.data, self.rng, self.size = bytearray(data), rng, len(data)
        first, count, names = *struct.unpack_from("<Q", data, 0x28), *struct.unpack_from("<2H", data, 0x3C)
        rows = [struct.unpack_from("<IIQQQQ", data, first + _HEADER * n) for n in range(count)]
        text = rows[names][4]
        self.parts = [_Part(first + _HEADER * n, data[text + row[0]:data.index(0, text + row[0])].decode(), row[4],
                            row[4] + (0 if row[1] == 8 else row[5])) for n, row in enumerate(rows)]

    def part(self, *prefixes: str) -> _Part:
        """One of the sections with content whose names begin so."""
        return self.rng.choice([p for p in self.parts if p.end > p.start and p.name.startswith(prefixes)])

    def number(self, at: int, nbytes: int) -> None:
        """Another value for a field: an edge, its neighbour, or anything."""
        form = _FORMATS[nbytes]
        old, most = struct.unpack_from(form, self.data, at)[0], (1 << 8 * nbytes) - 1
        edges = [0, 1, 2, most, most >> 1, most // 2 + 1, old + 1, old - 1, old * 2, old + 4, old - 8, self.size,
                 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 33, 1 << 40, self.rng.getrandbits(8 * nbytes)]
        struct.pack_into(form, self.data, at, self.rng.choice(edges) & most)

    def touch(self, start: int, end: int) -> None:
        """A bit, a byte or a word between two places."""
        at, rng = self.rng.randrange(start, end), self.rng
        if rng.random() < 0.6:
            self.data[at] ^= 1 << rng.randrange(8)
        elif rng.random() < 0.6:
            self.data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif end - start >= 8:
            self.number(start + (at - start) // 8 * 8 if at + 8 <= end else end - 8, 8)

    # -- kinds of damage ------------------------------------------------------------------------------------------

    def bits(self) -> None:
        self.touch(0, self.size)

    def header(self) -> None:
        at = self.rng.choice(list(_COUNTS))
        self.number(at, _COUNTS[at])

    def sections(self) -> None:
        at = self.rng.choice(list(_FIELDS))
        self.number(self.rng.choice(self.parts).header + at, _FIELDS[at])

    def symbols(self) -> None:
        part = self.part(".symtab", ".strtab", ".shstrtab")
        self.touch(part.start, part.end)

    def relocations(self) -> None:
        part = self.part(".rel.", ".rela.")
        at = self.rng.randrange(part.start, part.end) // 8 * 8
        self.number(min(at, part.end - 8), 8)

    def attributes(self) -> None:
        part = self.part(".nv.info")
        self.touch(part.start, part.end)

    def code(self) -> None:
        part = self.part(".text.")
        self.touch(part.start, part.end)

    def constants(self) -> None:
        part = self.part(".nv.constant", ".nv.global")
        self.touch(part.start, part.end)

    def cut(self) -> None:
        del self.data[self.rng.choice([self.rng.randrange(self.size), self.rng.randrange(1, 200), self.size - 1,
                                       self.rng.choice(self.parts).header]):]

    def swap(self) -> None:
        """Two sections change places: their headers, their contents' places, their names, or their contents."""
        one, two = self.rng.sample(self.parts, 2)
        start, size = self.rng.choice([(0, 64), (24, 16), (0, 4), (4, 4), (40, 8)])
        a, b = one.header + start, two.header + start
        self.data[a:a + size], self.data[b:b + size] = self.data[b:b + size], self.data[a:a + size]

    def copy(self) -> None:
        """A piece of the file stands in another place, too."""
        size = self.rng.choice([8, 16, 24, 64, 128, 512])
        to, source = (self.rng.randrange(0, max(self.size - size, 1)) // 8 * 8 for _ in range(2))
        self.data[to:to + size] = self.data[source:source + size]

    def blank(self) -> None:
        part = self.rng.choice([p for p in self.parts if p.end > p.start])
        start = self.rng.randrange(part.start, part.end)
        size = min(part.end - start, self.rng.choice([1, 8, 64, 4096]))
        self.data[start:start + size] = bytes([self.rng.choice([0, 0xFF])]) * size


KINDS = ("bits", "header", "sections", "symbols", "relocations", "attributes", "code", "code", "constants", "cut",
         "swap", "copy", "blank")


def spoil(original: bytes, seed: int) -> tuple[bytes, str]:
    """The file with one kind of damage, in turn, at one to three places; what was done, in a word."""
    rng, kind = random.Random(f"damage {seed}"), KINDS[seed % len(KINDS)]
    file = _File(original, rng)
    for _ in range(1 if kind == "cut" else rng.choice([1, 1, 1, 2, 3])):
        getattr(file, kind)()
    return bytes(file.data), kind
