"""Probes of loops with stalls, of many warps of a scheduler: what a jump costs where other warps issue meanwhile."""

from collections.abc import Callable, Iterator

from .frame import counted, line
from .probe import Probe


def _loop(size: int, stalls: int, stall: int) -> Callable[[int], list[str]]:
    """Rounds of so many instructions, of which some have a stall count. The round's count is far enough from its
    comparison, and that from the branch."""
    plain = size - 3
    apart = plain // stalls if stalls else plain
    codes = (6 if size < 24 else 1), {12: 10, 24: 6}.get(size, 1)

    def body(count: int) -> list[str]:
        texts = [
            line(f"FFMA R{16 + n % 32}, R10, 1.5, R11", stall=stall if n % apart == 1 and n // apart < stalls else 1)
            for n in range(plain)
        ]
        return [line(f"IMAD.MOV.U32 R12, RZ, RZ, {count:#x}", stall=6), *counted(texts, *codes)]

    return body


def loops() -> Iterator[Probe]:
    for size in (12, 24, 48):
        for stalls in (0, 1, 2, 4):
            for stall in (8, 15) if stalls else (1,):
                name = f"loop of {size}, {stalls} stalls of {stall}"
                yield Probe(name, _loop(size, stalls, stall), (20, 60), (4, 8, 16, 32))
