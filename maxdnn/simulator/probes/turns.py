"""Probes of whose turn it is: loops of many warps of a scheduler that cannot all go on at once. Each tells when it
began and ended, so that an answer says which warps went first."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from .frame import counted, line
from .probe import Probe

_SIZE = 64  # instructions of a round
_FFMA = "FFMA R{d}, R10, 1.5, R11"
_WAITS = {
    "MUFU": "MUFU.RCP R9, R10",
    "LDS": "LDS R9, [RZ]",
    "LDG": "LDG.E R9, desc[UR4][R14.64]",
    "STG": "STG.E desc[UR4][R14.64], R10",
}


def _loop(texts: Sequence[str]) -> Callable[[int], list[str]]:
    """So many rounds of instructions with the count among them."""

    def body(count: int) -> list[str]:
        return [
            line(f"IMAD.MOV.U32 R12, RZ, RZ, {count:#x}", stall=6),
            line("IADD3 R14, P3, R4, 0x20000, RZ", stall=6),
            line("IADD3.X R15, R5, RZ, RZ, P3, !PT", stall=6),
            *counted(texts),
        ]

    return body


def _plain(count: int, text: str = _FFMA) -> list[str]:
    return [line(text.format(d=16 + n % 32)) for n in range(count)]


def _with_stalls(every: int, stall: int, turn: bool = False) -> list[str]:
    return [
        line(_FFMA.format(d=16 + n % 32), stall=stall, turn=turn) if n % every == every - 1
        else line(_FFMA.format(d=16 + n % 32))
        for n in range(_SIZE - 3)
    ]


def _with_waits(every: int, text: str, codes: dict[str, int]) -> list[str]:
    """Each `every`th instruction is another kind, which the next one waits for."""
    found = []
    for n in range(_SIZE - 3):
        if n % every == every - 1:
            found.append(line(text, stall=2, **codes))
        else:
            found.append(line(_FFMA.format(d=16 + n % 32), wait=2 if n % every == 0 and n else 0))
    return found


def _with_places(every: int) -> list[str]:
    """Lanes meet after each so many instructions."""
    found: list[str] = []
    for n in range(0, _SIZE - 3, every):
        found += [line(f"BSSY B0, MEET{n}"), *_plain(every - 2), f"MEET{n}:", line("BSYNC B0", stall=5)]
    return found


def _bodies() -> Iterator[tuple[str, list[str], int]]:
    for size in (32, 64):
        yield f"{size} FFMA", _plain(size - 3), 16 * 64 // size
    yield "64 IADD3", _plain(_SIZE - 3, "IADD3 R{d}, R10, R11, RZ"), 12
    for every in (1, 4, 16):
        for stall in (2, 4, 8, 12):
            yield f"FFMA, a stall of {stall} after each {every}", _with_stalls(every, stall), 12
    for every in (4, 16):
        for stall in (1, 2, 4, 8):
            name = f"FFMA, a stall of {stall} and the yield hint after each {every}"
            yield name, _with_stalls(every, stall, True), 12
    for kind, text in _WAITS.items():
        for every in (4, 16, 32):
            codes = {"read" if kind == "STG" else "write": 2}
            yield f"FFMA, {kind} waited for after each {every}", _with_waits(every, text, codes), 12
    yield "FFMA, lanes meet after each 16", _with_places(16), 12


def turns() -> Iterator[Probe]:
    """Warps of a block, or blocks of four warps of which eight are on an SM; those of which more follow."""
    for name, texts, rounds in _bodies():
        plain = Probe(f"turns of {name}", _loop(texts), (rounds,), (16, 32), shared=1024, once=True)
        yield plain
        yield replace(plain, name=f"turns of blocks of {name}", warps=(4,), blocks=132 * 8)
        if "after each 1" not in name or "of 4 " in name:
            yield replace(plain, name=f"turns of blocks of {name}, more follow", warps=(4,), blocks=132 * 24,
                          dynamic=25 << 10)
