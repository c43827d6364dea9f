"""Probes of loads of which L1 has some and L2 the rest: lines that are missing, lines that are on their way, lanes of
which a part misses, how many may be on their way; and stores to words of several sectors of a line."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .frame import REPEATS, advance, again, line
from .probe import Probe

LOADS = 24  # of new lines of a warp, at most, in a run
KEPT = 4  # loads of a warp whose lines L1 has from the begin


@dataclass(frozen=True)
class Place:
    """Where the lanes of a warp's load are: in so many lines, those of a line so many bytes apart, or `wrap` of them
    and the others where those are, all moved by `offset`. A run has a region of its own, each warp its own lines of
    it, or all warps the same. `banks`: no two lanes of several lines have a bank of L1 in common."""

    lines: int = 1
    apart: int = 4
    offset: int = 0
    warps: int = 32
    blocks: int = 1
    shared: bool = False
    loads: int = LOADS
    wrap: int = 32
    banks: bool = True

    @property
    def step(self) -> int:
        """Bytes from a load to the next."""
        of_warp = (self.lines + (self.offset > 0)) * 128
        return of_warp * (1 if self.shared else self.warps)

    @property
    def region(self) -> int:
        return self.step * self.loads

    @property
    def area(self) -> int:
        """Bytes of a block: what L1 has from the begin, then a region for each run."""
        return self.region * REPEATS + max(self.region, KEPT * self.step)

    def setup(self) -> tuple[str, ...]:
        """R54:R55 becomes the thread's place in the region that L1 has. What a run loads for the first time L2 has."""
        of_line, threads = 32 // self.lines, 32 * self.warps
        skew = (128 // self.lines if self.apart == 4 else 4) if self.banks and self.lines > 1 else 0
        own = 0 if self.shared else self.step // self.warps
        return (
            line(f"SHF.R.U32.HI R14, RZ, {threads.bit_length() - 1:#x}, R9", stall=6),
            line(f"IMAD.WIDE.U32 R56, R14, {self.area:#x}, R4", stall=6),
            line("LOP3.LUT R12, R7, 0x1f, RZ, 0xc0, !PT", stall=6),
            line(f"LOP3.LUT R13, R12, {min(of_line, self.wrap) - 1:#x}, RZ, 0xc0, !PT", stall=6),
            line(f"SHF.R.U32.HI R12, RZ, {of_line.bit_length() - 1:#x}, R12", stall=6),
            line(f"IMAD R15, R12, {128 + skew:#x}, RZ", stall=6),
            line(f"IMAD R13, R13, {self.apart:#x}, R15", stall=6),
            line("SHF.R.U32.HI R15, RZ, 0x5, R7", stall=6),
            line(f"IMAD R13, R15, {own:#x}, R13", stall=6),
            line(f"IADD3 R13, R13, {self.offset:#x}, RZ", stall=6),
            line("IADD3 R54, P2, R56, R13, RZ", stall=6),
            line("IADD3.X R55, R57, RZ, RZ, P2, !PT", stall=6),
            *self._touch(),
            *(line(f"LDG.E R16, desc[UR4][R54.64+{n * self.step:#x}]", write=2, stall=2) for n in range(KEPT)),
            line("NOP", wait=2, stall=6),
        )

    def _touch(self) -> tuple[str, ...]:
        """Load the block's area past L1, all threads as often."""
        together = 32 * self.warps * 16
        return (
            line("IMAD.WIDE.U32 R16, R7, 0x10, R56", stall=6),
            line(f"IMAD.MOV.U32 R15, RZ, RZ, {-(-self.area // together):#x}", stall=6),
            "TOUCH:",
            line("LDG.E.128.STRONG.GPU R20, desc[UR4][R16.64]", read=1, write=2, stall=2),
            *advance(16, together),
            *again("TOUCH", 15),
            line("NOP", wait=2, stall=6),
        )

    def probe(
        self, name: str, body: Callable[[int], list[str]], lengths: tuple[int, ...], *, drain: bool = True
    ) -> Probe:
        return Probe(name, body, lengths, (self.warps,), setup=self.setup(), blocks=self.blocks,
                     big=self.area * self.blocks + (1 << 20), drain=drain, quiet=True)

    def begin(self) -> str:
        """R10:R11 becomes the place in the region of this run."""
        return line(f"IMAD.WIDE.U32 R10, R6, {self.region:#x}, R54", stall=6)

    def load(self, n: int, new: bool = True, number: int = 0, width: str = "") -> str:
        """The n-th load, of a line for the first time or of one that L1 has from the begin."""
        at, n = ("R10", n) if new else ("R54", n % KEPT)
        return line(f"LDG.E{width} R{16 + 4 * (number % 8)}, desc[UR4][{at}.64+{n * self.step:#x}]", write=2, stall=2)


def _count(place: Place) -> str:
    return f"{place.warps} warps" + (f" of {place.blocks} SMs" if place.blocks > 1 else "")


def missing() -> Iterator[Probe]:
    """Loads that all miss: of one line or several, of a part of a line or the whole."""
    for warps in (1, 4, 8, 16, 32):
        for name, lines, apart, wrap in (("a sector of a line", 1, 4, 8), ("2 sectors of a line", 1, 4, 16),
                                         ("a line", 1, 4, 32), ("a sector of 8 lines", 8, 4, 32),
                                         ("8 lines", 8, 32, 32), ("a word of 32 lines", 32, 4, 32),
                                         ("2 sectors of 16 lines", 16, 64, 32)):
            place = Place(lines, apart, warps=warps, wrap=wrap)

            def body(count: int, place: Place = place) -> list[str]:
                return [place.begin(), *(place.load(n, number=n) for n in range(count))]

            if lines < 32 or warps <= 8:
                yield place.probe(f"LDG misses {name}, {_count(place)}", body, (8, 24))
    for warps in (8, 32):
        for offset in (4, 32, 64):
            place = Place(offset=offset, warps=warps)

            def across(count: int, place: Place = place) -> list[str]:
                return [place.begin(), *(place.load(n, number=n) for n in range(count))]

            def there(count: int, place: Place = place) -> list[str]:
                return [place.load(n, False, n) for n in range(count)]

            yield place.probe(f"LDG misses a line and the next, {offset} bytes on, {_count(place)}", across, (8, 24))
            yield place.probe(f"LDG hits a line and the next, {offset} bytes on, {_count(place)}", there, (8, 24))


def _lengths(place: Place, of_line: int, most: int) -> tuple[int, int]:
    """Loads of which so many are to a new line each, at most `most`."""
    lines = min(place.loads, most // of_line)
    return max(lines // 3, 1) * of_line, lines * of_line


def mixed() -> Iterator[Probe]:
    """Of so many loads one misses; or all load the lines that the warp, or the block, has just asked for."""
    for warps, blocks in ((1, 1), (4, 1), (8, 1), (16, 1), (32, 1), (8, 132), (32, 132)):
        place = Place(warps=warps, blocks=blocks, loads=LOADS if blocks == 1 else 8)
        for every in (1, 2, 4, 8, 16):

            def some(count: int, place: Place = place, every: int = every) -> list[str]:
                return [place.begin(), *(place.load(n // every, n % every == 0, n) for n in range(count))]

            yield place.probe(f"LDG, one of {every} misses, {_count(place)}", some, _lengths(place, every, 96))
        for together in (2, 4, 8):

            def same(count: int, place: Place = place, together: int = together) -> list[str]:
                return [place.begin(), *(place.load(n // together, number=n) for n in range(count))]

            yield place.probe(f"LDG, {together} to each missing line, {_count(place)}", same,
                              _lengths(place, together, 96))
        place = Place(warps=warps, blocks=blocks, shared=True)

        def of_all(count: int, place: Place = place) -> list[str]:
            return [place.begin(), *(place.load(n, number=n) for n in range(count))]

        yield place.probe(f"LDG, all warps a missing line, {_count(place)}", of_all, (8, 24))


def partly() -> Iterator[Probe]:
    """Loads of lanes in several lines, of which some are missing. Each of the lanes there has an address of its own."""
    loads = 16
    for warps in (1, 8, 16):
        for lines, some in ((8, (0, 1, 2, 4, 8)), (16, (0, 1, 4, 8, 16))):
            for few in some:
                place = Place(lines, 4, warps=warps, loads=loads)

                def body(count: int, place: Place = place, few: int = few) -> list[str]:
                    text = [
                        line("LOP3.LUT R12, R7, 0x1f, RZ, 0xc0, !PT", stall=6),
                        line(f"ISETP.LT.U32.AND P3, PT, R12, {few * 32 // place.lines:#x}, PT", stall=13),
                        line("SEL R13, R6, RZ, P3", stall=6),
                        line(f"IMAD.WIDE.U32 R20, R13, {place.region:#x}, R54", stall=6),
                        line(f"IMAD.MOV.U32 R14, RZ, RZ, {place.step:#x}", stall=6),
                        line("SEL R14, R14, RZ, P3", stall=6),
                    ]
                    for n in range(1, loads):
                        at = 20 + 2 * n
                        text += [line(f"IADD3 R{at}, P2, R{at - 2}, R14, RZ", stall=6),
                                 line(f"IADD3.X R{at + 1}, R{at - 1}, RZ, RZ, P2, !PT", stall=6)]
                    return text + [
                        line(f"LDG.E R{10 + n % 8}, desc[UR4][R{20 + 2 * n}.64]", write=2, stall=2)
                        for n in range(count)
                    ]

                yield place.probe(f"LDG of {lines} lines, {few} missing, {_count(place)}", body, (8, 16))


def on_their_way() -> Iterator[Probe]:
    """The clock right behind so many loads: how many lines, or loads of a line, may be on their way."""
    for warps in (1, 4, 8, 16, 32):
        for name, together, shared in (("missing", 1, False), ("of missing lines, 8 to each", 8, False),
                                       ("of missing lines, all warps the same", 1, True), ("of lines there", 0, False)):
            for n in (4, 8, 12, 16, 20, 24):
                place = Place(warps=warps, shared=shared)

                def body(count: int, place: Place = place, together: int = together) -> list[str]:
                    return [place.begin(),
                            *(place.load(n // (together or 1), together > 0, n) for n in range(count)),
                            line("CS2R.32 R1, SR_CLOCKLO", stall=11)]

                yield place.probe(f"queue of {n} LDG {name}, {_count(place)}", body, (n,), drain=False)


_COUNTED = (32, 48, 52, 54, 55, 56, 57, 58, 60, 62, 63, 64, 66, 72)  # operations that a scoreboard is to count


def scoreboards() -> Iterator[Probe]:
    """The clock right behind so many loads of a scoreboard, or of two by turns, none of which is waited for: how many
    it counts."""
    for warps, boards, width, new, counts in (
        (1, (2,), "", True, _COUNTED), (1, (2,), "", False, _COUNTED), (1, (2, 3), "", True, (56, 64, 72)),
        (1, (2,), ".128", True, (16, 32, 48, 56, 60, 64)), (4, (2,), "", True, (48, 56, 60, 64)),
        (8, (2,), "", True, (48, 56, 60, 64)), (1, (2, 3, 4, 5), "", True, (56, 64, 72)),
    ):
        place = Place(apart=16 if width else 4, lines=4 if width else 1, warps=warps, loads=72, banks=False)
        for n in counts:

            def body(count: int, place: Place = place, boards: tuple[int, ...] = boards, width: str = width,
                     new: bool = new) -> list[str]:
                text = [place.begin()]
                for n in range(count):
                    at = place.load(n, new, n, width)
                    text.append(at.replace(":2:-:", f":{boards[n % len(boards)]}:-:") if len(boards) > 1 else at)
                return [*text, line("CS2R.32 R1, SR_CLOCKLO", stall=11)]

            name = f"{n} LDG{width} {'missing' if new else 'of lines there'} on {len(boards)} scoreboards"
            yield place.probe(f"{name}, {warps} warps", body, (n,), drain=False)


def words_of_sectors() -> Iterator[Probe]:
    """Stores of a word of each of several sectors of a line, and the sector's other words one after another."""
    for blocks in (1, 132):
        for lines, apart, sectors in ((32, 4, 1), (16, 64, 2), (8, 32, 4)):
            for name, in_turn in (("a word", 1), ("eight words in turn", 8)):
                place = Place(lines, apart, warps=8, blocks=blocks, loads=32 // lines, banks=False)

                def body(count: int, place: Place = place, in_turn: int = in_turn) -> list[str]:
                    return [place.begin()] + [
                        line(f"STG.E desc[UR4][R10.64+{n // in_turn % place.loads * place.step + n % in_turn * 4:#x}],"
                             " R16", read=1, stall=2)
                        for n in range(count)
                    ]

                yield place.probe(f"STG, {name} of {sectors} sectors of {lines} lines, {_count(place)}", body, (16, 64))



def walks() -> Iterator[Probe]:
    """Batches of 16 loads of a word for all lanes, one behind the other so many bytes apart: sectors that are missing
    of lines that L1 has."""
    for warps, blocks in ((4, 1), (8, 1), (16, 1), (32, 1), (32, 132)):
        for stride in (4, 8, 16, 32, 64, 128):
            of_line = 128 // stride
            place = Place(apart=0, warps=warps, blocks=blocks, loads=24)

            def body(count: int, place: Place = place, stride: int = stride, of_line: int = of_line) -> list[str]:
                text = [place.begin()]
                for n in range(count):
                    at = n // of_line * place.step + n % of_line * stride
                    text.append(line(f"LDG.E R{16 + n % 16}, desc[UR4][R10.64+{at:#x}]", write=2, stall=2,
                                     wait=2 if n % 16 == 0 else 0))
                return text

            longest = min(24 * of_line, 192) // 16 * 16
            yield place.probe(f"walk of words {stride} bytes apart, {_count(place)}", body, (longest // 3, longest))
