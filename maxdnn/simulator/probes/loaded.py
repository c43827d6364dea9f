"""Probes of L2 and DRAM under load: how long loads take when so many warps have so many on the way, loads beside
stores, and what few SMs get."""

from collections.abc import Iterator

from .contention import sectors_of_lines
from .frame import advance, again, in_lines, line, rounds
from .memory import _reading
from .probe import Probe

MIB = 1 << 20


def waited_for() -> Iterator[Probe]:
    """All SMs read memory from begin to end, each thread so many loads at a time."""
    for level, nbytes, most in (("L2", 24 * MIB, 64), ("DRAM", 192 * MIB, 1 << 20)):
        for width, size in (("", 4), (".128", 16)):
            for blocks, threads in ((132, 32), (132, 128), (132, 256), (132, 512), (132, 1024), (264, 1024)):
                for at_a_time in (1, 2, 4, 8):
                    across = blocks * threads * size
                    rounds = min(most, nbytes // (across * at_a_time))
                    if rounds >= 2:
                        yield Probe(
                            f"loads{width} of {level}, {blocks} blocks of {threads}, {at_a_time} at a time",
                            _reading(width, across, False, ".STRONG.GPU"), (at_a_time,), (threads // 32,),
                            blocks=blocks, n=rounds, big=nbytes,
                        )


def tiles() -> Iterator[Probe]:
    """Blocks that read DRAM as a product on tensor cores does: of each round all threads ask for the next one's data,
    do something else for so many turns of 45 cycles, wait for the data and meet. So many blocks with numbers side by
    side read the same."""
    threads = 256
    for together in (1, 2, 8):
        for turns in (1, 10, 20, 40):
            for loads in (2, 4, 8):
                across = -(-132 // together) * threads * 16

                def body(count: int, together: int = together, turns: int = turns, across: int = across) -> list[str]:
                    text = [
                        line(f"SHF.R.U32.HI R10, RZ, {(threads * together).bit_length() - 1:#x}, R9", stall=6),
                        line(f"LEA R12, R10, R7, {threads.bit_length() - 1:#x}", stall=6),
                        line("IMAD.WIDE.U32 R10, R12, 0x10, R4", stall=6),
                        *rounds("READ"),
                        line("NOP", wait=2, stall=2),
                        line("BAR.SYNC.DEFER_BLOCKING 0x0", stall=6),
                    ]
                    for n in range(count):
                        load = f"LDG.E.128.STRONG.GPU R{16 + 4 * n}, desc[UR4][R10.64]"
                        text += [line(load, read=1, write=2, stall=2), *advance(10, across)]
                    return [*text, line(f"IMAD.MOV.U32 R13, RZ, RZ, {turns:#x}", stall=6), "ELSE:",
                            line("NOP", stall=15, turn=True), *again("ELSE", 13), *again("READ")]

                many = 160 * MIB // (across * loads)
                yield Probe(f"tiles of DRAM, {loads} loads.128 at a time, {turns} turns between, "
                            f"{together} blocks at the same lines", body, (loads,), (threads // 32,), blocks=132,
                            n=many, big=161 * MIB)


def beside_stores() -> Iterator[Probe]:
    """Loads and stores of what L2 has, by turns, of all SMs."""
    threads, blocks = 256, 264
    for width, size in (("", 4), (".128", 16)):
        across = blocks * threads * size
        for loads, stores in ((1, 0), (2, 1), (1, 1), (1, 2), (0, 1)):

            def body(count: int, width: str = width, across: int = across, loads: int = loads,
                     stores: int = stores, size: int = size) -> list[str]:
                text = [
                    line(f"IMAD.WIDE.U32 R10, R9, {size:#x}, R4", stall=6),
                    line(f"IADD3 R14, P2, R10, {8 * across:#x}, RZ", stall=6),
                    line("IADD3.X R15, R11, RZ, RZ, P2, !PT", stall=6),
                ]
                for n in range(count):
                    at = n % 7 * across
                    if n % (loads + stores) < loads:
                        text.append(line(f"LDG.E{width}.STRONG.GPU R{16 + 4 * (n % 8)}, desc[UR4][R10.64+{at:#x}]",
                                         write=2, stall=2))
                    else:
                        text.append(line(f"STG.E{width} desc[UR4][R14.64+{at:#x}], R48", read=1, stall=2))
                return text

            yield Probe(f"L2, all SMs, {loads} loads{width} and {stores} stores by turns", body, (24, 96),
                        (threads // 32,), blocks=blocks, big=24 * MIB)


def few_sms() -> Iterator[Probe]:
    """Loads and stores of so many SMs, a sector of each line or all four."""
    for blocks in (1, 8, 16, 33, 66):
        for kind in ("LDG", "STG"):
            for sectors in (1, 4):
                yield sectors_of_lines(blocks, kind, sectors)


def parts_of_sectors() -> Iterator[Probe]:
    """Stores of so many SMs to lines of their own that write a part of a sector of each, or the whole."""
    threads = 256
    for blocks in (1, 33, 66, 132):
        for width, together in ((4, 1), (8, 1), (16, 1), (4, 8), (4, 32)):
            across = blocks * threads // together * 128

            def body(count: int, width: int = width, together: int = together, across: int = across) -> list[str]:
                suffix = {4: "", 8: ".64", 16: ".128"}[width]
                return [
                    *in_lines(together, 2),
                    *(line(f"STG.E{suffix} desc[UR4][R10.64+{n % 2 * across:#x}], R48", read=1, stall=2)
                      for n in range(count)),
                ]

            yield Probe(f"stores of {blocks} SMs, {width * together} bytes of each line", body, (32, 128, 256),
                        (threads // 32,), blocks=blocks, big=32 * MIB)
