"""Probes of L2 and DRAM under load: how long loads take when so many warps have so many on the way, loads beside
stores, and what few SMs get."""

from collections.abc import Iterator

from .contention import sectors_of_lines
from .frame import in_lines, line
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
