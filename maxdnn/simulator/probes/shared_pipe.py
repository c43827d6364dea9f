"""Probes of accesses of shared memory amid, behind and beside loads and stores of global memory: how long each keeps
the pipe that both take, and which goes first."""

from collections.abc import Iterator

from .frame import FIRST_WARP, first_and_others, line
from .probe import Probe

_STEP = 256 << 10  # bytes from the lines of a load to those of the next one

# How many lanes are side by side, 16 bytes each, and how many bytes on the next ones are.
PATTERNS = {
    "side by side": (32, 512),
    "4 lanes a line": (4, 128),
    "2 lanes a line": (2, 128),
    "2 lanes a line, sectors in turn": (2, 160),
    "a line each": (1, 128),
}
LOADS = {
    "LDG": ("LDG.E.128 R{d}, desc[UR4][R56.64]", 0),
    "new LDG": ("LDG.E.128 R{d}, desc[UR4][R56.64+{at:#x}]", _STEP),
    "LDG L2": ("LDG.E.128.STRONG.GPU R{d}, desc[UR4][R56.64]", 0),
}


def _setup(beside: int, apart: int) -> tuple[str, ...]:
    """Each warp has 8 KiB of its own."""
    return (
        line("LOP3.LUT R8, R7, 0x1f, RZ, 0xc0, !PT", stall=6),
        line(f"SHF.R.U32.HI R12, RZ, {beside.bit_length() - 1:#x}, R8", stall=6),
        line(f"LOP3.LUT R13, R8, {beside - 1:#x}, RZ, 0xc0, !PT", stall=6),
        line("IMAD.SHL.U32 R8, R8, 0x10, RZ", stall=6),
        line(f"IMAD R12, R12, {apart:#x}, RZ", stall=6),
        line("LEA R12, R13, R12, 0x4", stall=6),
        line("SHF.R.U32.HI R13, RZ, 0x5, R7", stall=6),
        line("LEA R12, R13, R12, 0xd", stall=6),
        line("IADD3 R56, P2, R4, R12, RZ", stall=6),
        line("IADD3.X R57, R5, RZ, RZ, P2, !PT", stall=6),
    )


def loads() -> Iterator[Probe]:
    """A load behind each so many of shared memory, of four cycles each. Of all together the last is waited for."""
    for name, place in PATTERNS.items():
        for kind, (text, step) in LOADS.items():
            for shared in (0, 4, 8, 16):

                def body(count: int, text: str = text, step: int = step, shared: int = shared) -> list[str]:
                    return [
                        each for n in range(count)
                        for each in (
                            line(text.format(d=32 + 4 * (n % 4), at=n * step), write=2, stall=2),
                            *(line(f"LDS.128 R{16 + 4 * (m % 4)}, [R8]", write=3, stall=2) for m in range(shared)),
                        )
                    ]

                yield Probe(f"{kind}.128, {name}, before {shared} LDS.128", body, (8, 24), (4, 8), setup=_setup(*place),
                            shared=1024, big=8 << 20)


WAITED = {
    "LDS.128": ("LDS.128 R16, [R8]", {"write": 3}),
    "STS.128": ("STS.128 [R8], R16", {"read": 3}),
    "LDG": ("LDG.E R16, desc[UR4][R4.64]", {"write": 3}),
}
STORE = "STG.E.128 desc[UR4][R56.64], R32"


def waited_for() -> Iterator[Probe]:
    """An access that is waited for, behind loads or stores of all lanes that are not; then a rest that is longer than
    these take."""
    for name in ("side by side", "2 lanes a line", "a line each"):
        for kind, (text, step) in (LOADS | {"STG": (STORE, 0)}).items():
            for last, (access, codes) in WAITED.items():
                for many in (0, 2, 4, 8, 16, 24):

                    def body(count: int, text: str = text, step: int = step, access: str = access,
                             codes: dict[str, int] = codes, many: int = many) -> list[str]:
                        own = {"read" if text is STORE else "write": 2}
                        return [
                            each for n in range(count)
                            for each in (
                                *(line(text.format(d=32 + 4 * m % 16, at=n * step), stall=2, **own)
                                  for m in range(many)),
                                line(access, stall=2, **codes),
                                line("NOP", wait=4, stall=2),
                                *(line("NOP", stall=15) for _ in range(20 + 12 * many)),
                            )
                        ]

                    if many or kind == "LDG":
                        yield Probe(f"{last} waited for behind {many} {kind}.128, {name}", body, (4, 12), (1, 4, 8),
                                    setup=_setup(*PATTERNS[name]), shared=1024, big=8 << 20)


_FIRST = (
    FIRST_WARP,
    line("IMAD.MOV.U32 R10, RZ, RZ, 0x7c00", stall=6),
    line("STS [R10], R10", stall=15),
    line("BAR.SYNC.DEFER_BLOCKING 0x0", stall=15),
)
_SEVERAL = {
    **{f"{kind}.128": LOADS[kind][0].format(d=16) for kind in ("LDG", "LDG L2")},
    **{kind: WAITED[kind][0] for kind in ("LDS.128", "STS.128")},
}


def beside_some() -> Iterator[Probe]:
    """A chain of loads of shared memory of the first warp, while the others have an access each so many cycles: its
    `each` tells what one takes."""
    for name in ("side by side", "2 lanes a line"):
        for kind, text in _SEVERAL.items():
            cycles = 16 if "LDG" in kind and name != "side by side" else 4
            for warps in (8, 16):
                for percent in (25, 50, 70, 85):
                    rest = (warps - 1) * cycles * 100 // percent

                    def body(count: int, text: str = text, rest: int = rest) -> list[str]:
                        rests = [line("NOP", stall=15) for _ in range(rest // 15)]
                        rests += [line("NOP", stall=rest % 15)] if rest % 15 else []
                        several = [line(text, stall=1, **{"read" if text.startswith("ST") else "write": 2}), *rests]
                        chain = [line("LDS R10, [R10]", wait=2, write=2, stall=2)] * count
                        return first_and_others(chain, several * (80 * count // rest + 1))

                    if name == "side by side" or "LDG" in kind:
                        yield Probe(f"chain of LDS, {kind} of {warps - 1} others, {name}, {percent} percent", body,
                                    (32, 96), (warps,), setup=(*_setup(*PATTERNS[name]), *_FIRST), shared=32 << 10,
                                    big=8 << 20)
