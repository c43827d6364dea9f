"""Probes of DRAM and L2 where all SMs load at the same time and then rest, and of what L2 keeps of written lines."""

from collections.abc import Iterator

from .frame import advance, again, line, rounds
from .probe import Probe

MIB = 1 << 20
THREADS = 256


def _begin(other: int, number: str = "R9") -> list[str]:
    """R10: the place of the thread of a number, R14: the place so many bytes on, R12: rounds."""
    return [
        line(f"IMAD.WIDE.U32 R10, {number}, 0x10, R4", stall=6),
        line(f"IADD3 R14, P2, R10, {other:#x}, RZ", stall=6),
        line("IADD3.X R15, R11, RZ, RZ, P2, !PT", stall=6),
        *rounds("ROUND"),
    ]


def _load(n: int, across: int, strong: str = ".STRONG.GPU", wait: int = 0) -> list[str]:
    """The n-th load of a round; then R10 goes on."""
    return [line(f"LDG.E.128{strong} R{16 + 4 * n}, desc[UR4][R10.64]", read=1, write=2, stall=2, wait=wait),
            *advance(10, across)]


def _store(at: int, across: int, value: int = 48) -> list[str]:
    """A store; then its address goes on."""
    return [line(f"STG.E.128 desc[UR4][R{at}.64], R{value}", read=1, stall=2), *advance(at, across)]


_MEET = line("BAR.SYNC.DEFER_BLOCKING 0x0", wait=2, stall=6)


def bursts() -> Iterator[Probe]:
    """Rounds of all SMs: each thread has so many loads from DRAM, the block waits for all of them, stores as much or
    nothing, and rests for so many times 15 cycles (the length)."""
    half, rounds = 512 * MIB, 12
    for per_sm in (1, 2, 4):
        for loads in (2, 8):
            for stores in (False, True):
                across = 132 * per_sm * THREADS * 16

                def body(count: int, loads: int = loads, stores: bool = stores, across: int = across) -> list[str]:
                    text = _begin(half)
                    for n in range(loads):
                        text += _load(n, across)
                    text.append(_MEET)
                    for n in range(loads if stores else 0):
                        text += _store(14, across, 16 + 4 * n)
                    return [*text, *(line("NOP", stall=15, turn=True) for _ in range(count)), *again("ROUND")]

                yield Probe(f"bursts of {loads} loads{' and stores' if stores else ''}, {per_sm} blocks an SM", body,
                            (1, 40, 100, 250), (THREADS // 32,), blocks=132 * per_sm, n=rounds, big=2 * half)


def kept_written() -> Iterator[Probe]:
    """Some MiB that all SMs write again and again, each its own lines, or of which they read one half and write the
    other."""
    blocks, threads = 132, 512
    across = blocks * threads * 16
    for name, loads in (("written", False), ("read and written by halves", True)):
        for size in (12, 20, 24, 28, 32, 36, 40, 44, 48, 60):
            places = size * MIB // across

            def body(count: int, loads: bool = loads, size: int = size) -> list[str]:
                text = _begin(size * MIB // 2)
                for n in range(count):
                    if loads and n % 2 == 0:
                        text += _load(n, across, wait=2 if n == 0 else 0)
                    else:
                        text += _store(14 if loads else 10, across)
                return text + again("ROUND")

            yield Probe(f"kept by L2, {size} MiB, {name}", body, (4,), (threads // 32,), blocks=blocks,
                        n=max(1, places // 4), big=64 * MIB)


def kept_plain() -> Iterator[Probe]:
    """Some MiB that all SMs read again and again by loads without .STRONG, past an L1 that shared memory leaves little
    of: each its own lines, or two the same ones, or each its own beside as many that it writes."""
    blocks, threads = 132, 512
    for name, apart in (("each its own", 132), ("two the same", 66), ("beside as many written", 132)):
        across = apart * threads * 16
        for size in (28, 32, 36, 40, 44, 48):
            half, stores = size * MIB // 2, name.startswith("beside")

            def body(count: int, apart: int = apart, across: int = across, half: int = half,
                     stores: bool = stores) -> list[str]:
                alike = [line(f"SHF.R.U32.HI R12, RZ, {threads.bit_length():#x}, R9", stall=6),
                         line(f"LEA R13, R12, R7, {threads.bit_length() - 1:#x}", stall=6)]
                text = [*alike, *_begin(half, "R13")] if apart < blocks else _begin(half)
                for n in range(count):
                    if stores and n % 2:
                        text += _store(14, across)
                    else:
                        text += _load(n, across, "", 2 if n == 0 else 0)
                return text + again("ROUND")

            yield Probe(f"kept by L2, {size} MiB of plain loads, {name}", body, (4,), (threads // 32,), blocks=blocks,
                        n=max(1, size * MIB // across // 4), big=64 * MIB, shared=47 << 10)
