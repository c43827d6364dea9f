"""Probes of memory: phases of shared memory, sectors of L1, latencies and rates of every level, the instruction cache,
blocks that follow each other."""

from collections.abc import Callable, Iterator, Sequence

from .frame import advance, again, line, rounds
from .issue import SETUP, Registers
from .probe import Probe

# How 32 lanes lie in shared memory, as byte offsets for a width in bytes.
PATTERNS: dict[str, Callable[[int, int], int]] = {
    "side by side": lambda lane, width: lane * width,
    "all the same": lambda lane, width: 0,
    "pairs the same (lane ^ 1)": lambda lane, width: lane // 2 * width,
    "pairs the same (lane ^ 2)": lambda lane, width: (lane // 4 * 2 + lane % 2) * width,
    "fours the same": lambda lane, width: lane // 4 * width,
    "eights the same": lambda lane, width: lane // 8 * width,
    "half warps the same": lambda lane, width: lane % 16 * width,
    "quarter warps the same": lambda lane, width: lane % 8 * width,
    "2 different, odd and even": lambda lane, width: lane % 2 * width,
    "4 different, lane % 4": lambda lane, width: lane % 4 * width,
    "8 different by 64 bytes": lambda lane, width: lane // 4 * 64,
    "2 apart": lambda lane, width: lane * width * 2,
    "4 apart": lambda lane, width: lane * width * 4,
    "8 apart": lambda lane, width: lane * width * 8,
    "32 words apart": lambda lane, width: lane * 128 % 32768,
    "33 words apart": lambda lane, width: (lane * 132 // width * width) % 32768,
    "library x of a row": lambda lane, width: lane % 8 * 16,
    "library y of a row": lambda lane, width: lane // 8 * 16,
    "library x, pairs": lambda lane, width: lane // 2 % 8 * 16,
    "library y, pairs": lambda lane, width: (lane % 2 + lane // 16 * 2) * 16,
}


def _access(text: str) -> Callable[[int], list[str]]:
    def body(count: int) -> list[str]:
        registers = Registers()
        store = text.startswith(("STS", "STG"))
        return [
            line(registers.fill(text), stall=2, **({"read" if store else "write": 2} if n == count - 1 else {}))
            for n in range(count)
        ]

    return body


def _in_shared(name: str, text: str, words: list[int]) -> Probe:
    return Probe(f"shared {name}", _access(text), (16, 48), (1, 4, 8), setup=SETUP, shared=32768 + 1024, words=words)


def shared() -> Iterator[Probe]:
    for width, suffix, register in ((4, "", "d"), (8, ".64", "e"), (16, ".128", "q")):
        for name, place in PATTERNS.items():
            words = [place(t % 32, width) // width * width for t in range(1024)]
            yield _in_shared(f"LDS{suffix} {name}", f"LDS{suffix} R{{{register}}}, [R8]", words)
            if name in (
                "side by side",
                "all the same",
                "2 apart",
                "4 apart",
                "8 apart",
                "32 words apart",
                "33 words apart",
            ):
                yield _in_shared(f"STS{suffix} {name}", f"STS{suffix} [R8], R12", words)
    # the latency of one load that meets conflicts
    for name in ("side by side", "2 apart", "4 apart", "8 apart", "32 words apart"):
        words = [PATTERNS[name](t % 32, 4) for t in range(1024)]

        def one(count: int) -> list[str]:
            return [
                text
                for _ in range(count)
                for text in (line("LDS R20, [R8]", write=2, stall=2), line("NOP", wait=2, stall=2))
            ]

        yield Probe(f"shared latency LDS {name}", one, (16, 48), (1,), setup=SETUP, shared=32768 + 1024, words=words)


_AT = (line("IADD3 R56, P2, R4, R8, RZ", stall=6), line("IADD3.X R57, R5, RZ, RZ, P2, !PT", stall=6))


def hits() -> Iterator[Probe]:
    """Loads of 1 to 32 sectors that L1 has, and stores of as many."""
    for width, suffix, register in ((4, "", "d"), (8, ".64", "e"), (16, ".128", "q")):
        for name, place in {
            "the same": lambda lane, width: 0,
            "side by side": lambda lane, width: lane * width,
            "2 apart": lambda lane, width: 2 * lane * width,
            "a sector each": lambda lane, width: 32 * lane,
            "a line each": lambda lane, width: 128 * lane,
            "8 lines": lambda lane, width: lane // 4 * 128 + lane % 4 * width,
            "a line for 8 lanes, sectors": lambda lane, width: lane % 4 * 128 + lane // 4 * width,
        }.items():
            words = [place(t % 32, width) for t in range(1024)]
            for ops, text in (
                ("LDG", f"LDG.E{suffix} R{{{register}}}, desc[UR4][R56.64]"),
                ("LDG L2", f"LDG.E{suffix}.STRONG.GPU R{{{register}}}, desc[UR4][R56.64]"),
                ("STG", f"STG.E{suffix} desc[UR4][R56.64], R12"),
            ):
                yield Probe(f"{ops}{suffix} {name}", _access(text), (8, 24), (1, 4, 8, 16), setup=_AT, words=words)


def _chain(count: int, strong: str = "") -> list[str]:
    """`n` rounds of so many loads, each at the address the last one gave. `strong`: past L1."""
    return [
        line("IMAD.MOV.U32 R10, RZ, RZ, R4", stall=6),
        line("IMAD.MOV.U32 R11, RZ, RZ, R5", stall=6),
        *rounds("CHAIN"),
        *(line(f"LDG.E.64{strong} R10, desc[UR4][R10.64]", write=2, wait=2 if n else 0, stall=2) for n in range(count)),
        *again("CHAIN", wait=2),
    ]


def _chains(name: str, strong: str, sizes: Sequence[tuple[int, int]]) -> Iterator[Probe]:
    """Chains of loads through memory of so many KiB, so many bytes apart."""
    for kib, stride in sizes:
        yield Probe(
            f"{name} of {kib} KiB by {stride}",
            lambda count: _chain(count, strong),
            (16,),
            (1,),
            n=max(1, kib * 1024 // stride // 16),
            big=kib * 1024,
            chase=(kib * 1024, stride),
        )


def latencies() -> Iterator[Probe]:
    yield from _chains("chain", "", (
        (4, 128), (32, 128), (128, 128), (192, 128), (224, 128), (240, 128), (256, 128), (512, 256), (2048, 1024),
        (8192, 4096), (16384, 8192), (32768, 16384), (131072, 65536),
    ))
    yield from _chains("chain past L1", ".STRONG.GPU", (
        (32, 128), (512, 256), (2048, 1024), (8192, 4096), (16384, 8192), (24576, 2048), (32768, 2048),
        (40960, 2048), (65536, 4096), (262144, 65536),
    ))


def _reading(width: str, step: int, store: bool, strong: str = "") -> Callable[[int], list[str]]:
    """`n` rounds of so many accesses, `step` bytes apart, of all threads side by side."""
    size = {"": 4, ".64": 8, ".128": 16}[width]

    def body(count: int) -> list[str]:
        text = [
            line(f"IMAD.WIDE.U32 R10, R9, {size:#x}, R4", stall=6),
            *rounds("READ"),
        ]
        for n in range(count):
            codes = {"wait": 2 if n == 0 else 0}
            if store:
                text.append(line(f"STG.E{width} desc[UR4][R10.64], R48", read=1, stall=2, **codes))
            else:
                text.append(
                    line(f"LDG.E{width}{strong} R{16 + 4 * n}, desc[UR4][R10.64]", read=1, write=2, stall=2, **codes)
                )
            text += advance(10, step)
        return text + again("READ")

    return body


def rates() -> Iterator[Probe]:
    """Bytes a clock of every level: (name, blocks, bytes in all, store)."""
    mib = 1 << 20
    for name, blocks, nbytes, store in (
        ("L1, an SM", 1, 64 << 10, False),
        ("L2, an SM", 1, 2 * mib, False),
        ("L2, a quarter of the SMs", 33, 8 * mib, False),
        ("L2, all SMs", 132, 24 * mib, False),
        ("L2, half of the SMs", 66, 24 * mib, False),
        ("DRAM, all SMs", 264, 1024 * mib, False),
        ("DRAM, a quarter of the SMs", 33, 512 * mib, False),
        ("L2, an SM, stores", 1, 2 * mib, True),
        ("L2, all SMs, stores", 132, 16 * mib, True),
        ("DRAM, all SMs, stores", 264, 1024 * mib, True),
    ):
        for threads in (1024, 256):
            across = max(blocks, 1) * threads * 16
            if nbytes >= 8 * across:
                yield Probe(
                    f"rate {name}, {threads} threads",
                    _reading(".128", across, store),
                    (8,),
                    (threads // 32,),
                    blocks=max(blocks, 1),
                    n=nbytes // (8 * across),
                    big=nbytes + (1 << 20),
                )
                if not store:
                    yield Probe(
                        f"rate {name}, {threads} threads, past L1",
                        _reading(".128", across, store, ".STRONG.GPU"),
                        (8,),
                        (threads // 32,),
                        blocks=max(blocks, 1),
                        n=nbytes // (8 * across),
                        big=nbytes + (1 << 20),
                    )


def _at_same_lines(together: int, behind: str = "", setup: Sequence[str] = ()) -> Probe:
    """Loads of all SMs, of so many blocks with numbers side by side from the same lines at a time."""
    blocks, threads, nbytes = 132, 1024, 24 << 20
    across = -(-blocks // together) * threads * 16

    def body(count: int) -> list[str]:
        text = _reading(".128", across, False, ".STRONG.GPU")(count)
        at = (threads * together).bit_length() - 1
        return [
            line(f"SHF.R.U32.HI R10, RZ, {at:#x}, R9", stall=6),
            line(f"LEA R12, R10, R7, {threads.bit_length() - 1:#x}", stall=6),
            line("IMAD.WIDE.U32 R10, R12, 0x10, R4", stall=6),
            *text[1:],
        ]

    return Probe(f"rate L2, all SMs, {together} at the same lines{behind}", body, (8,), (threads // 32,), setup=setup,
                 blocks=blocks, n=min(16, nbytes // (8 * across)), big=nbytes)


def shared_rates() -> Iterator[Probe]:
    """Bytes a clock where so many blocks with numbers side by side read the same lines at a time: whether requests
    for a line are brought together on their way to L2."""
    for together in (1, 2, 4, 16, 256):
        yield _at_same_lines(together)


def behind_each_other(together: int, turns: int) -> list[str]:
    """Blocks with numbers side by side begin so many turns of some 45 cycles one behind the other. R12, R13, P2 are
    scratch."""
    return [
        line("S2R R12, SR_CTAID.X", write=1, stall=2),
        line(f"LOP3.LUT R12, R12, {together - 1:#x}, RZ, 0xc0, !PT", wait=1, stall=6),
        line(f"IMAD R12, R12, {turns:#x}, RZ", stall=6),
        line("IADD3 R12, R12, 0x1, RZ", stall=6),
        "BEHIND:",
        line("NOP", stall=15, turn=True),
        *again("BEHIND"),
    ]


def shared_apart() -> Iterator[Probe]:
    """`shared_rates` of four blocks each that begin one behind the other."""
    for turns in (0, 1, 2, 4, 8, 16, 32, 64):
        yield _at_same_lines(4, f", {turns} turns behind each other", behind_each_other(4, turns))


def sector_stores() -> Iterator[Probe]:
    """Stores as those of a tile of a product: four lanes to a sector, each sector in a line of its own; `lines`: or as
    many sectors of a line by the warps that follow each other."""
    for blocks in (1, 132):
        for name, shift in (("a sector of a line", 7), ("all sectors of a line", 5)):
            across = blocks * 256 // 4 << shift

            def body(count: int, shift: int = shift, across: int = across) -> list[str]:
                return [
                    line("SHF.R.U32.HI R12, RZ, 0x2, R9", stall=6),
                    line("LOP3.LUT R13, R9, 0x3, RZ, 0xc0, !PT", stall=6),
                    line(f"IMAD.SHL.U32 R12, R12, {1 << shift:#x}, RZ", stall=6),
                    line("LEA R12, R13, R12, 0x3", stall=6),
                    line("IADD3 R10, P2, R12, R4, RZ", stall=6),
                    line("IADD3.X R11, R5, RZ, RZ, P2, !PT", stall=6),
                    *(
                        line(f"STG.E.64 desc[UR4][R10.64+{n % 8 * across:#x}], R48", read=1, stall=2)
                        for n in range(count)
                    ),
                ]

            yield Probe(f"rate L2, {blocks} SMs, stores, {name}", body, (16, 64), (8,), blocks=blocks, big=24 << 20)


def long_rates() -> Iterator[Probe]:
    """Bytes a clock of L2, from runs of two lengths, so that latencies drop out: loads past L1 of all SMs and of one,
    of lines of their own and of the same ones."""
    threads = 512
    for blocks, own in ((1, True), (33, True), (132, True), (132, False)):
        across = (blocks if own else 1) * threads * 16
        place = (
            line(f"IMAD.WIDE.U32 R10, {'R9' if own else 'R7'}, 0x10, R4", stall=6),
            line("IADD3 R11, R11, RZ, RZ", stall=6),
        )

        def body(count: int, across: int = across, place: tuple[str, ...] = place) -> list[str]:
            return [
                *place,
                *(
                    text
                    for n in range(count)
                    for text in (
                        line(f"LDG.E.128.STRONG.GPU R{16 + 4 * (n % 8)}, desc[UR4][R10.64]", read=1, write=2, stall=2),
                        *advance(10, across),
                    )
                ),
            ]

        yield Probe(f"long rate L2, {blocks} SMs{'' if own else ', the same lines'}", body, (8, 20), (threads // 32,),
                    blocks=blocks, big=24 << 20)


def copies() -> Iterator[Probe]:
    """Loads and stores of all SMs that go to DRAM at the same time, so many of each by turns."""
    threads, mib = 256, 1 << 20
    across, half = 264 * threads * 16, 512 * mib
    for loads, stores in ((1, 1), (2, 1), (1, 2), (1, 4)):

        def body(count: int, loads: int = loads, stores: int = stores) -> list[str]:
            text = [
                line("IMAD.WIDE.U32 R10, R9, 0x10, R4", stall=6),
                line(f"IADD3 R14, P2, R10, {half:#x}, RZ", stall=6),
                line("IADD3.X R15, R11, RZ, RZ, P2, !PT", stall=6),
                *rounds("COPY"),
            ]
            for n in range(count):
                kind = n % (loads + stores) < loads
                text += [
                    line(f"LDG.E.128 R{16 + 4 * (n % 8)}, desc[UR4][R10.64]", read=1, write=2, stall=2,
                         wait=2 if n == 0 else 0)
                    if kind
                    else line("STG.E.128 desc[UR4][R14.64], R48", read=1, stall=2),
                    *advance(10 if kind else 14, across),
                ]
            return text + again("COPY")

        together = loads + stores
        count = 12 // together * together
        times = half // across * together // (count * max(loads, stores))
        yield Probe(f"copies of all SMs, {loads} loads and {stores} stores by turns", body, (count,), (threads // 32,),
                    blocks=264, n=times, big=2 * half)


def code() -> Iterator[Probe]:
    """Straight code of growing length, again and again: where the levels of the instruction cache end."""
    for length in (128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384):
        yield Probe(
            f"code of {length} instructions",
            lambda count: [line(f"FFMA R{16 + n % 32}, R10, 1.5, R11") for n in range(count)],
            (length,),
            (1, 4, 8),
        )


def blocks() -> Iterator[Probe]:
    """Blocks that follow each other on an SM: how long from the end of one to the first instruction of the next."""

    def body(count: int) -> list[str]:
        return [line("NOP", stall=15, turn=True) for _ in range(count)]

    for warps in (1, 2, 4, 8, 16, 32):
        yield Probe(
            f"blocks four at a time, {warps} warps", body, (64,), (warps,), blocks=132 * 16, shared=48 << 10, once=True
        )
        yield Probe(f"blocks as many as fit, {warps} warps", body, (64,), (warps,), blocks=132 * 64, once=True)
