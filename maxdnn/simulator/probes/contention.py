"""Probes of what is shared: a chain of one warp beside the accesses of others, and what L2 keeps and gives when all SMs
ask it."""

from collections.abc import Iterator

from .frame import FIRST_WARP, advance, again, first_and_others, in_lines, line, rounds
from .probe import Probe

# What the other warps of the block do, whose number is not 0.
BESIDE = {
    "nothing": (),
    "LDS.128": ("LDS.128 R16, [R56]",),
    "STS.128": ("STS.128 [R56], R16",),
    "LDG a line each": ("LDG.E R16, desc[UR4][R50.64]",),
    "LDG.128 side by side": ("LDG.E.128 R16, desc[UR4][R52.64]",),
    "STG a line each": ("STG.E desc[UR4][R50.64], R16",),
    "STG.128 side by side": ("STG.E.128 desc[UR4][R52.64], R16",),
}
CHAINS = {"LDS": "LDS R8, [R8]", "LDG": "LDG.E.64 R44, desc[UR4][R44.64]"}
_SETUP = (
    line("IADD3 R8, R8, 0x400, RZ", stall=6),
    line("IMAD.SHL.U32 R56, R7, 0x10, RZ", stall=6),
    line("IADD3 R56, R56, 0x800, RZ", stall=6),
    line("IMAD.WIDE.U32 R50, R7, 0x80, R4", stall=6),
    line("IMAD.WIDE.U32 R52, R7, 0x10, R4", stall=6),
    line("IMAD.MOV.U32 R44, RZ, RZ, R4", stall=6),
    line("IMAD.MOV.U32 R45, RZ, RZ, R5", stall=6),
    line("IMAD.MOV.U32 R9, RZ, RZ, 0x400", stall=6),
    line("STS [R9], R9", stall=6),
    line("IMAD.MOV.U32 R8, RZ, RZ, 0x400", stall=6),
    FIRST_WARP,
    line("BAR.SYNC.DEFER_BLOCKING 0x0", stall=15),
)


def beside() -> Iterator[Probe]:
    """A chain of loads of the first warp while the others load or store without end: its `each` tells."""
    for chain, text in CHAINS.items():
        for name, accesses in BESIDE.items():

            def body(count: int, text: str = text, accesses: tuple[str, ...] = accesses) -> list[str]:
                mine = [line(text, wait=2, write=2, stall=2) for _ in range(count)]
                theirs = [
                    line(access, **{"read" if access.startswith("ST") else "write": 3}, stall=2)
                    for _ in range(2 * count)
                    for access in accesses
                ]
                return first_and_others(mine, theirs)

            yield Probe(f"chain of {chain} beside {name}", body, (32, 96), (4, 8), setup=_SETUP, shared=32768,
                        words=(0,) * 1024, big=1 << 20, chase=(128, 128))


def kept() -> Iterator[Probe]:
    """Some MiB that all SMs read again and again, each its own lines, or those that follow it the same ones."""
    threads, mib = 512, 1 << 20
    for blocks, name in ((132, "each its own"), (66, "two the same")):
        for size in (12, 20, 24, 28, 32, 36, 40, 44, 48, 60):
            across = blocks * threads * 16
            loads = size * mib // across

            def body(count: int, blocks: int = blocks, across: int = across) -> list[str]:
                number = "R9" if blocks == 132 else "R12"
                return [
                    line(f"SHF.R.U32.HI R12, RZ, {threads.bit_length():#x}, R9", stall=6),
                    line(f"LEA R12, R12, R7, {threads.bit_length() - 1:#x}", stall=6),
                    line(f"IMAD.WIDE.U32 R10, {number}, 0x10, R4", stall=6),
                    *rounds("READ"),
                    *(
                        text
                        for n in range(count)
                        for text in (
                            line(f"LDG.E.128.STRONG.GPU R{16 + 4 * n}, desc[UR4][R10.64]", read=1, write=2, stall=2,
                                 wait=2 if n == 0 else 0),
                            *advance(10, across),
                        )
                    ),
                    *again("READ"),
                ]

            yield Probe(f"kept by L2, {size} MiB, {name}", body, (4,), (threads // 32,), blocks=132,
                        n=max(1, loads // 4), big=64 * mib)


def line_parts() -> Iterator[Probe]:
    """Loads and stores of all SMs of some sectors of each line: whether L2 counts lines or sectors."""
    for kind in ("LDG", "STG"):
        for sectors in (1, 2, 4):
            yield sectors_of_lines(132, kind, sectors)


def sectors_of_lines(blocks: int, kind: str, sectors: int) -> Probe:
    """Loads or stores of so many SMs, so many sectors of each line."""
    threads, of_line = 256, 2 * sectors  # 16 bytes each
    across = blocks * threads // of_line * 128

    def body(count: int) -> list[str]:
        text = in_lines(of_line, 4)
        for n in range(count):
            at = f"desc[UR4][R10.64+{n % 4 * across:#x}]"
            text.append(
                line(f"STG.E.128 {at}, R48", read=1, stall=2)
                if kind == "STG"
                else line(f"LDG.E.128.STRONG.GPU R{16 + 4 * (n % 8)}, {at}", write=2, stall=2)
            )
        return text

    return Probe(f"lines of L2, {blocks} SMs, {kind}, {sectors} sectors of each", body, (16, 64), (threads // 32,),
                 blocks=blocks, big=64 << 20)
