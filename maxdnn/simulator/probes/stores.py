"""Probes of stores whose lanes write rows of a matrix, and of what an SM brings together of stores one behind the
other."""

from collections.abc import Iterator
from dataclasses import replace

from .frame import advance, line
from .probe import Probe

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


def _in_turn(name: str, of_lane: tuple[str, ...], words: int, on: int, warp: int, blocks: int, warps: int) -> Probe:
    """Stores of a word of each lane to `words` neighbouring words one behind the other, then as many `on` bytes
    further, eight times. `of_lane`: R13 becomes the bytes by which the lane's first one lies beyond the warp's, which
    are `warp` apart."""
    setup = (
        line("SHF.R.U32.HI R12, RZ, 0x5, R9", stall=6),
        line("LOP3.LUT R13, R7, 0x1f, RZ, 0xc0, !PT", stall=6),
        line(f"IMAD.WIDE.U32 R54, R12, {warp:#x}, R4", stall=6),
        *of_lane,
    )

    def body(count: int) -> list[str]:
        return [line(f"STG.E desc[UR4][R54.64+{n // words % 8 * on + n % words * 4:#x}], R16", read=1, stall=2)
                for n in range(count)]

    return Probe(f"{name}, {warps} warps" + (f" of {blocks} SMs" if blocks > 1 else ""), body, (18, 72), (warps,),
                 setup=setup, blocks=blocks, big=blocks * warps * warp + 4096, quiet=True)


def words_in_turn() -> Iterator[Probe]:
    """Lanes so many words apart: until all words of the warp's lines are filled, when it goes on to new lines."""
    for blocks, some in ((1, (2, 4, 9)), (132, (2, 4, 9)), (1, (3, 5, 6, 7, 10, 11, 12, 13, 14))):
        for words in some:
            for warps in (1, 2, 4, 8, 16)[:5 if words in (2, 4, 9) else 4]:
                yield _in_turn(f"STG, words of lanes {words} apart in turn",
                               (line(f"IMAD.WIDE.U32 R54, R13, {4 * words:#x}, R54", stall=6),), words,
                               128 * words, 1024 * words, blocks, warps)


def _of_rows(pitch: int) -> tuple[str, ...]:
    """Eight lanes of each of four rows so far apart, 16 bytes apart."""
    return (
        line("SHF.R.U32.HI R14, RZ, 0x3, R13", stall=6),
        line("LOP3.LUT R13, R13, 0x7, RZ, 0xc0, !PT", stall=6),
        line(f"IMAD.WIDE.U32 R54, R14, {pitch:#x}, R54", stall=6),
        line("IMAD.WIDE.U32 R54, R13, 0x10, R54", stall=6),
    )


def rows_in_turn() -> Iterator[Probe]:
    """Rows of a warp and of warps that lie so far apart."""
    for pitch in (1024, 4096, 8320, 18432, 65536, 1440, 1456, 1452):
        for warps in (1, 2, 4, 8):
            yield _in_turn(f"STG, words of 4 rows {pitch} apart in turn", _of_rows(pitch), 4, 128, 4 * pitch, 1, warps)


def warps_behind() -> Iterator[Probe]:
    """`rows_in_turn` of warps, each of which begins so many waits for shared memory behind the one before: whose stores
    come between two of a warp?"""
    for warps in (4, 3):
        for pitch in (1024, 1452):
            for waits in (1, 4, 16):
                later = [text for warp in range(1, warps) for text in (
                    line(f"ISETP.GE.U32.AND P2, PT, R12, {warp:#x}, PT", stall=13),
                    *(line("@P2 LDS R20, [RZ]", write=5, stall=2, wait=32) for _ in range(waits)),
                    line("NOP", wait=32, stall=2),
                )]
                probe = _in_turn("", _of_rows(pitch), 4, 128, 4 * pitch, 1, warps)
                name = f"STG, words of 4 rows {pitch} apart in turn, each of {warps} warps {waits} LDS behind"
                yield replace(probe, name=name, setup=(*probe.setup, *later), shared=256, meet=False)


def grouped() -> Iterator[Probe]:
    """`rows_in_turn` of which a warp issues so many, then arithmetic: whose store has the next place in a queue?"""
    for pitch in (1024, 73728):
        for stall in (2, 4):
            for stores, sums in ((4, 16), (4, 40), (2, 8)):

                def body(count: int, stall: int = stall, stores: int = stores, sums: int = sums) -> list[str]:
                    text = []
                    for n in range(count):
                        text.append(line(f"STG.E desc[UR4][R54.64+{n // 4 % 8 * 128 + n % 4 * 4:#x}], R16", read=1,
                                         stall=stall))
                        if n % stores == stores - 1:
                            text += [line(f"FFMA R{24 + k % 8}, R{24 + k % 8}, 1.5, R{32 + k % 8}")
                                     for k in range(sums)]
                    return text

                for warps in (4, 8, 16):
                    probe = _in_turn("", _of_rows(pitch), 4, 128, 4 * pitch, 1, warps)
                    name = (f"STG, {stores} words of 4 rows {pitch} apart in turn {stall} cycles apart, "
                            f"then {sums} FFMA, {warps} warps")
                    yield replace(probe, name=name, body=body, lengths=(16, 64))


_ALIGNED = 1 << 27  # a buffer's place, half as long as it is: adding to it changes bits of an address alone


def places() -> Iterator[Probe]:
    """Stores to eight lines, four lanes each. Of their numbers a third comes from bits 2 and 5, one from 3 and 6, one
    from a bit and another one. If all belong to one quarter of L1, it has no room for them."""
    lane = (
        line(f"IADD3 R4, P2, R4, {_ALIGNED - 1:#x}, RZ", stall=13),
        line("IADD3.X R5, R5, RZ, RZ, P2, !PT", stall=6),
        line(f"LOP3.LUT R4, R4, {(1 << 32) - _ALIGNED:#x}, RZ, 0xc0, !PT", stall=6),
        line("LOP3.LUT R13, R7, 0x1f, RZ, 0xc0, !PT", stall=6),
        line("IMAD.WIDE.U32 R54, R13, 0x4, R4", stall=8),
    )
    for bit in range(7, 20):
        for other in (0, 1, 4):
            setup = list(lane)
            for n, both in enumerate(((2, 5), (3, 6), (bit, other))):
                setup += [
                    line(f"SHF.R.U32.HI R12, RZ, {n:#x}, R13", stall=6),
                    line("LOP3.LUT R12, R12, 0x1, RZ, 0xc0, !PT", stall=6),
                    line(f"IMAD.WIDE.U32 R54, R12, {sum(128 << b for b in both):#x}, R54", stall=8),
                ]

            def body(count: int) -> list[str]:
                return [line("STG.E desc[UR4][R54.64], R16", read=1, stall=2) for _ in range(count)]

            yield Probe(f"STG, 8 lines, bits {other} and {bit}", body, (16, 48), (1,), setup=tuple(setup),
                        big=2 * _ALIGNED, quiet=True)
