"""Probes of fences behind accesses that are under way, and of stores whose lanes write rows of a matrix."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from .frame import advance, line
from .misses import LOADS, Place
from .probe import Probe

_FENCES = {
    "nothing": [],
    "MEMBAR": [line("MEMBAR.ALL.CTA", read=4, stall=6), line("NOP", wait=8, stall=2)],
    "MEMBAR and FENCE": [
        line("MEMBAR.ALL.CTA", read=4, stall=6),
        line("FENCE.VIEW.ASYNC.S", wait=8, write=4, stall=2),
        line("NOP", wait=8, stall=2),
    ],
    "FENCE": [line("FENCE.VIEW.ASYNC.S", write=4, stall=2), line("NOP", wait=8, stall=2)],
}


def _accesses(place: Place) -> dict[str, Callable[[int], str]]:
    """The n-th access of a run, by kind. Those of shared memory are to 16 bytes of the thread's own, from R14 on."""
    return {
        "LDG that miss": lambda n: place.load(n, number=n),
        "LDG that hit": lambda n: place.load(n, False, n),
        "STG": lambda n: line(f"STG.E desc[UR4][R10.64+{n * place.step:#x}], R16", read=2, stall=2),
        "STS.128": lambda n: line(f"STS.128 [R14+{n % 2 * 16384:#x}], R48", read=2, stall=2),
        "LDS": lambda n: line(f"LDS R{16 + 4 * (n % 8)}, [R14]", write=2, stall=2),
    }


def fences() -> Iterator[Probe]:
    """Batches of accesses, a fence behind each batch: which of the warp's accesses it waits for."""
    for warps in (1, 4):
        place = Place(warps=warps)
        for kind, access in _accesses(place).items():
            for batch in (1, 4, 8):
                for fence, text in _FENCES.items():

                    def body(count: int, place: Place = place, access: Callable[[int], str] = access,
                             batch: int = batch, text: list[str] = text) -> list[str]:
                        found = [line("IMAD.SHL.U32 R14, R7, 0x10, RZ", stall=6), place.begin()]
                        for n in range(count):
                            found += [access(n), *(text if n % batch == batch - 1 else ())]
                        return found

                    probe = place.probe(f"{batch} {kind}, then {fence}, {warps} warps", body, (8, LOADS))
                    yield replace(probe, shared=36 << 10) if kind in ("STS.128", "LDS") else probe


ROWS = 64  # of a block of eight warps: four lanes have one


def _at_rows(pitch: int, offset: int, to: int) -> tuple[str, ...]:
    """Registers `to` and `to` + 1 become the place of the thread's eight bytes of a row."""
    return (
        line("SHF.R.U32.HI R12, RZ, 0x2, R9", stall=6),
        line(f"IMAD.WIDE.U32 R{to}, R12, {pitch:#x}, R4", stall=6),
        line("LOP3.LUT R13, R7, 0x3, RZ, 0xc0, !PT", stall=6),
        line(f"IMAD.WIDE.U32 R{to}, R13, 0x8, R{to}", stall=6),
        *advance(to, offset),
    )


def rows() -> Iterator[Probe]:
    """Stores of 64 bits of four lanes to each of eight rows, one behind the other along the rows: whole sectors where
    the rows begin with one, halves of two where they begin in the middle."""
    for blocks in (1, 132):
        for pitch, offset in ((2080, 0), (2080, 16), (2064, 0), (2056, 0)):

            def body(count: int) -> list[str]:
                return [line(f"STG.E.64 desc[UR4][R10.64+{n * 32:#x}], R16", read=1 + n % 4, stall=2, wait=1 << n % 4)
                        for n in range(count)]

            yield Probe(f"STG.64, rows {pitch} apart from {offset} on, 32 bytes further each, {blocks} SMs", body,
                        (16, 48), (8,), setup=_at_rows(pitch, offset, 10), blocks=blocks,
                        big=blocks * ROWS * pitch + 4096, quiet=True)


def new_rows() -> Iterator[Probe]:
    """`rows` of which each store of all SMs begins new ones, in each line or in every other."""
    blocks = 132
    for pitch in (128, 256):
        for offset in (0, 16):

            def body(count: int, pitch: int = pitch) -> list[str]:
                text = [line("IMAD.MOV.U32 R10, RZ, RZ, R54"), line("IMAD.MOV.U32 R11, RZ, RZ, R55", stall=6)]
                for _ in range(count):
                    text += [line("STG.E.64 desc[UR4][R10.64], R16", read=1, stall=2),
                             *advance(10, blocks * ROWS * pitch)]
                return text

            yield Probe(f"STG.64, new rows {pitch} apart from {offset} on", body, (8, 24), (8,),
                        setup=_at_rows(pitch, offset, 54), blocks=blocks, big=24 * blocks * ROWS * pitch + 4096,
                        quiet=True)


def words_in_turn() -> Iterator[Probe]:
    """Stores of a word of each lane, lanes so many words apart, one behind the other until all their words are filled:
    what of it an SM brings together. Each warp goes on to new lines then."""
    for blocks in (1, 132):
        for words in (2, 4, 9):
            for warps in (1, 2, 4, 8, 16):
                of_warp = 32 * 4 * words
                setup = (
                    line("SHF.R.U32.HI R12, RZ, 0x5, R9", stall=6),
                    line("LOP3.LUT R13, R7, 0x1f, RZ, 0xc0, !PT", stall=6),
                    line(f"IMAD.WIDE.U32 R54, R12, {8 * of_warp:#x}, R4", stall=6),
                    line(f"IMAD.WIDE.U32 R54, R13, {4 * words:#x}, R54", stall=6),
                )

                def body(count: int, words: int = words, of_warp: int = of_warp) -> list[str]:
                    return [line(f"STG.E desc[UR4][R54.64+{n // words % 8 * of_warp + n % words * 4:#x}], R16",
                                 read=1, stall=2) for n in range(count)]

                name = f"STG, words of lanes {words} apart in turn, {warps} warps"
                yield Probe(name + (f" of {blocks} SMs" if blocks > 1 else ""), body, (18, 72), (warps,), setup=setup,
                            blocks=blocks, big=blocks * warps * 8 * of_warp + 4096, quiet=True)
