"""Probes of local memory and of constants: loads behind stores of the same word and of others, words that differ from
lane to lane, how much is kept where, and whether stores go on to L2."""

from collections.abc import Callable, Iterator

from .frame import control, line
from .issue import Registers
from .probe import Probe

STACK = 1024
_WARPS = (1, 4, 8, 16, 32)


def _place(words: int) -> list[str]:
    """R56: the first byte of the thread's local memory; R57: the same, or a word on for each of so many lanes in
    turn. P4: of every second lane; P5: of the first half of the warp."""
    return [
        line("LDC R56, c[0x0][0x28]", write=2, stall=2),
        line("NOP", wait=2, stall=6),
        line(f"IADD3 R56, R56, {-STACK:#x}, RZ", stall=6),
        line(f"LOP3.LUT R57, R7, {words - 1:#x}, RZ, 0xc0, !PT", stall=6),
        line("LEA R57, R57, R56, 0x2", stall=6),
        line("LOP3.LUT R12, R7, 0x1, RZ, 0xc0, !PT", stall=6),
        line("ISETP.EQ.U32.AND P4, PT, R12, RZ, PT", stall=13),
        line("LOP3.LUT R12, R7, 0x10, RZ, 0xc0, !PT", stall=6),
        line("ISETP.EQ.U32.AND P5, PT, R12, RZ, PT", stall=13),
        *(line(f"STL.128 [R56+{n:#x}], R12", stall=4) for n in range(0, 128, 16)),
    ]


def _probe(name: str, body: Callable[[int], list[str]], warps: tuple[int, ...] = _WARPS, words: int = 1) -> Probe:
    return Probe(name, body, (8, 24), warps, setup=_place(words), stack=STACK, quiet=True)


def _guarded(guard: str, text: str, **codes: int) -> str:
    return f"{control(**codes)}  {guard} {text};"  # type: ignore[arg-type]


def behind_stores() -> Iterator[Probe]:
    """A store, then a load that is waited for."""
    for name, words, store, guard, load in (
        ("STL of it", 1, "STL [R56+{a:#x}], R10", "", "LDL R20, [R56+{a:#x}]"),
        ("STL of the next word", 1, "STL [R56+{b:#x}], R10", "", "LDL R20, [R56+{a:#x}]"),
        ("STL of half the lanes", 1, "STL [R56+{a:#x}], R10", "@P5", "LDL R20, [R56+{a:#x}]"),
        ("STL of every second lane", 1, "STL [R56+{a:#x}], R10", "@P4", "LDL R20, [R56+{a:#x}]"),
        ("STL of 2 words by turns", 2, "STL [R57], R10", "", "LDL R20, [R56]"),
        ("STL of 8 words by turns", 8, "STL [R57], R10", "", "LDL R20, [R56]"),
        ("STL of 8 words by turns, as stored", 8, "STL [R57], R10", "", "LDL R20, [R57]"),
        ("STL.128 of it", 1, "STL.128 [R56], R12", "", "LDL.128 R20, [R56]"),
        ("nothing", 1, "", "", "LDL R20, [R56+{a:#x}]"),
        ("nothing, 8 words by turns", 8, "", "", "LDL R20, [R57]"),
    ):

        def body(count: int, store: str = store, guard: str = guard, load: str = load) -> list[str]:
            text = []
            for n in range(count):
                at = {"a": n % 16 * 4, "b": (n + 1) % 16 * 4}
                if store:
                    text.append(_guarded(guard, store.format(**at), read=1, stall=2))
                text += [line(load.format(**at), write=2, stall=2), line("NOP", wait=3, stall=2)]
            return text

        yield _probe(f"LDL behind {name}", body, (1, 4, 8, 16), words)


def _many(text: str, words: int, guard: str = "") -> Callable[[int], list[str]]:
    def body(count: int) -> list[str]:
        registers = Registers()
        board = "read" if text.startswith("STL") else "write"
        return [
            _guarded(guard, registers.fill(text.replace("@", f"{n % words * 4:#x}")), stall=2,
                     **({board: 2} if n == count - 1 else {}))
            for n in range(count)
        ]

    return body


def local_rates() -> Iterator[Probe]:
    for words in (1, 8, 24):
        yield _probe(f"STL, {words} words in turn", _many("STL [R56+@], R10", words))
        yield _probe(f"LDL, {words} words in turn", _many("LDL R{d}, [R56+@]", words))
    for name, text in (("STL.64", "STL.64 [R56], R12"), ("STL.128", "STL.128 [R56], R12"),
                       ("LDL.64", "LDL.64 R{e}, [R56]"), ("LDL.128", "LDL.128 R{q}, [R56]")):
        yield _probe(name, _many(text, 1))
    yield _probe("STL of half the lanes", _many("STL [R56+@], R10", 8, "@P5"))
    yield _probe("STL of every second lane", _many("STL [R56+@], R10", 8, "@P4"))
    for words in (2, 4, 8, 16, 32):
        yield _probe(f"STL, lanes at {words} words", _many("STL [R57], R10", 1), words=words)
        yield _probe(f"LDL, lanes at {words} words", _many("LDL R{d}, [R57]", 1), words=words)
    for n in (4, 8, 12, 16, 24, 32, 48):

        def queued(count: int) -> list[str]:
            return [*_many("STL [R56+@], R10", 16)(count)[:-1], line("STL [R56], R10", read=2, stall=2),
                    line("CS2R.32 R1, SR_CLOCKLO", stall=11)]

        yield Probe(f"queue STL {n}", queued, (n,), (1, 4, 8, 16), setup=_place(1), stack=STACK, drain=False,
                    quiet=True)


def kept() -> Iterator[Probe]:
    """All warps store to so many words and load them again: what L1 keeps, and what is stored twice."""
    for words in (8, 32, 128, 192):
        for name, text in (("STL", "STL [R56+{at:#x}], R10"), ("LDL", "LDL R20, [R56+{at:#x}]")):

            def body(count: int, words: int = words, text: str = text) -> list[str]:
                stores = text.startswith("STL")
                return [
                    line(text.format(at=n % words * 4), stall=2, **{"read" if stores else "write": 2})
                    for n in range(count)
                ]

            yield Probe(f"{name} of {words} words, again and again", body, (192, 384), (8, 32), setup=_place(1),
                        stack=STACK, quiet=True)


# -- constants --------------------------------------------------------------------------------------------------------

_KIB = 64
_READS = {
    "LDC": ("LDC R20, c[0x3][{at:#x}]", {"write": 2, "stall": 2}),
    "ULDC": ("ULDC UR10, c[0x3][{at:#x}]", {"stall": 13}),
    "FFMA": ("FFMA R20, R10, c[0x3][{at:#x}], R11", {"stall": 6}),
}


def constants() -> Iterator[Probe]:
    """Constants of so many lines, one after another, each waited for: the first run brings them from L2, what the
    others take tells which level has them."""
    for lines in (8, 16, 24, 32, 48, 64, 128, 256, 512, 1024):
        for kind, (text, codes) in _READS.items():

            def body(count: int, text: str = text, codes: dict[str, int] = codes) -> list[str]:
                return [
                    line(text.format(at=64 * n), wait=2 if n and "write" in codes else 0, **codes) for n in range(count)
                ]

            yield Probe(f"constants, {lines} lines by {kind}", body, (lines,), (1,), constants=_KIB << 10)
    for step in (4, 16, 32, 128, 256):

        def stepped(count: int, step: int = step) -> list[str]:
            return [line(f"LDC R20, c[0x3][{step * n:#x}]", wait=2 if n else 0, write=2, stall=2) for n in range(count)]

        yield Probe(f"constants {step} apart by LDC", stepped, (128,), (1,), constants=_KIB << 10)
