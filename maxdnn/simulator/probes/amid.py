"""Probes of arithmetic amid loads and stores: what the registers that a load writes cost it, by their number, by the
banks that both write, and by what there is between two loads."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product

from .frame import interleaved, line
from .issue import SETUP, product_sum, spread
from .probe import Probe

LOADS = {
    "nothing": "",
    "LDS": "LDS R16, [R8]",
    "LDS.64": "LDS.64 R16, [R8]",
    "LDS.128": "LDS.128 R16, [R8]",
    "LDG": "LDG.E R16, desc[UR4][R56.64]",
    "LDG.64": "LDG.E.64 R16, desc[UR4][R56.64]",
    "LDG.128": "LDG.E.128 R16, desc[UR4][R56.64]",
    "STS": "STS [R8], R16",
    "STS.64": "STS.64 [R8], R16",
    "STS.128": "STS.128 [R8], R16",
    "SHFL": "SHFL.BFLY PT, R16, R17, 0x1, 0x1f",
    "MUFU": "MUFU.RCP R16, R17",
}
_BROADCAST = [t % 32 // 8 * 16 for t in range(1024)]

# Arithmetic by the registers that it writes.
WRITES: dict[str, Callable[[int], str]] = {
    "both banks": lambda n: f"FFMA R{20 + n % 24}, R10, 1.5, R11",
    "even registers": lambda n: f"FFMA R{20 + 2 * (n % 12)}, R10, 1.5, R11",
    "odd registers": lambda n: f"FFMA R{21 + 2 * (n % 12)}, R10, 1.5, R11",
    "none": lambda n: "FFMA RZ, R10, 1.5, R11",
}


def _probe(
    name: str, text: str, gap: int, arithmetic: Callable[[int], str], warps: Sequence[int],
    words: Sequence[int] = _BROADCAST, lengths: Sequence[int] = (384, 1152),
) -> Probe:
    codes = {"read" if text[:2] == "ST" else "write": 2, "stall": 2}
    body = interleaved(arithmetic, text, gap, **codes)
    return Probe(name, body, lengths, warps, setup=SETUP, shared=32768, words=words)


def products() -> Iterator[Probe]:
    """Outer products with a load or store after each so many FFMA."""
    for name, text in LOADS.items():
        for gap in (8, 16, 32):
            yield _probe(f"sums beside {name} after {gap}", text, gap, product_sum, (1, 4, 8, 16))
    for name in ("LDS.128", "LDG.128"):
        yield _probe(f"sums beside {name} side by side after 32", LOADS[name], 32, product_sum, (1, 4, 8), spread(16))


def writes() -> Iterator[Probe]:
    """FFMA that write one bank, both in turn or nothing, with loads that write one register, two or four."""
    for to, arithmetic in WRITES.items():
        for name in ("LDS", "LDS.64", "LDS.128", "LDG.128", "STS.128"):
            for gap in (16, 32):
                yield _probe(f"FFMA to {to} beside {name} after {gap}", LOADS[name], gap, arithmetic, (1, 4, 8))


def gaps() -> Iterator[Probe]:
    """FFMA that write both banks in turn, with a load after each so many: whether there is a cycle without one when
    what is loaded comes."""
    for name in ("LDS", "LDS.64", "LDS.128", "LDG.128"):
        for gap in (10, 12, 14, 15, 17, 18, 20, 22, 24, 28, 36, 40, 48, 64):
            for words, how in ((_BROADCAST, ""), (spread(16), " side by side")):
                yield _probe(f"FFMA beside {name}{how} after each {gap}", LOADS[name], gap, WRITES["both banks"],
                             (1, 4, 8), words, (480 // gap * gap, 1440 // gap * gap))


def _round(name: str, loads: int, sums: list[str], how: str, lengths: Sequence[int]) -> Probe:
    """Rounds of loads of shared memory and what is behind them."""
    several = [line(f"LDS.128 R{44 + 4 * (n % 3)}, [R8]", write=2, stall=2) for n in range(loads)]
    words = spread(16) if how else _BROADCAST
    return Probe(f"{loads} LDS.128{how} {name}", lambda count: [*several, *sums] * count, lengths, (1, 4, 8, 16),
                 setup=SETUP, shared=32768, words=words)


def waited_for() -> Iterator[Probe]:
    """Loads of shared memory that are waited for behind so many FFMA: from how many on nothing is lost."""
    for how, loads, gap, to in product(("", " side by side"), (1, 4), (0, 16, 24, 32, 40, 48, 64, 96),
                                       ("both banks", "none")):
        sums = [*(line(WRITES[to](n)) for n in range(gap)), line("NOP", wait=2, stall=1)]
        yield _round(f"waited for behind {gap} FFMA to {to}", loads, sums, how, (16, 48))


def waited_by_sums() -> Iterator[Probe]:
    """The same, where the last FFMA of a round waits for its loads."""
    for how, loads, gap in product(("", " side by side"), (1, 4), (16, 24, 32, 40, 48, 64)):
        sums = [line(WRITES["both banks"](n), wait=2 if n == gap - 1 else 0) for n in range(gap)]
        yield _round(f"that the last of {gap} FFMA waits for", loads, sums, how, (8, 24))
