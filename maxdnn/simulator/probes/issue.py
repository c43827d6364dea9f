"""Probes of issue: how often each kind of instruction issues from one warp and from several, what two kinds do to each
other, stall counts, register banks, the reuse cache, chains of results that come in their own time."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, product

from .frame import control, interleaved, line
from .kinds import KINDS, STORES, VARIABLE
from .probe import Probe

WARPS = (1, 4, 8, 16, 32)

# Kinds whose issue may collide: each pattern is repeated.
MIXES = (
    ("FFMA", "IMAD"),
    ("FFMA", "IADD3"),
    ("FFMA", "FFMA", "IADD3"),
    ("IMAD", "IADD3"),
    ("IADD3", "ISETP"),
    ("FFMA", "UIADD3"),
    ("IADD3", "UIADD3"),
    ("FFMA", "MUFU"),
    ("FFMA", "FFMA", "FFMA", "FFMA", "FFMA", "FFMA", "FFMA", "MUFU"),
    ("FFMA", "HFMA2"),
    ("IMAD", "HFMA2"),
    ("FFMA", "DFMA"),
    ("IADD3", "DFMA"),
    ("FFMA", "LDS"),
    ("FFMA", "FFMA", "FFMA", "LDS"),
    ("FFMA",) * 7 + ("LDS.128",),
    ("FFMA",) * 15 + ("LDS.128",),
    ("FFMA",) * 21 + ("LDS.128",),
    ("FFMA",) * 7 + ("STS",),
    ("FFMA",) * 15 + ("STS.128",),
    ("FFMA",) * 15 + ("LDG",),
    ("FFMA",) * 15 + ("LDG.128",),
    ("FFMA",) * 15 + ("LDC",),
    ("FFMA", "CS2R"),
    ("FFMA", "NOP"),
    ("FFMA", "IMAD.WIDE"),
    ("FFMA", "FFMA", "FFMA", "IMAD.WIDE"),
    ("LDS", "MUFU"),
    ("LDS", "SHFL"),
    ("LDS", "STS"),
    ("LDS", "LDG"),
    ("LDC", "LDS"),
    ("S2R", "LDS"),
    ("FFMA", "ISETP"),
    ("FFMA", "VOTE"),
    ("IADD3", "IMAD.WIDE"),
    ("FFMA",) * 7 + ("STG",),
    ("FFMA",) * 15 + ("STG.128",),
    ("IADD3", "IADD3", "IADD3", "STS"),
    ("FFMA", "S2R"),
    ("FFMA", "R2UR"),
    ("FFMA", "ULDC"),
    ("FFMA", "VIADD"),
    ("VIADD", "IADD3"),
    ("UIADD3", "ULDC"),
    ("UIADD3", "IMAD"),
    ("UIADD3", "IMAD.WIDE"),
    ("UIADD3", "UIADD3", "UIADD3", "IMAD.WIDE"),
    ("UIADD3", "IMAD UR"),
    ("UIADD3", "UIADD3", "IMAD UR", "IMAD.WIDE"),
    ("UIADD3", "ULOP3"),
    ("IMAD", "IMAD.WIDE"),
    ("IMAD.WIDE", "LDS"),
    ("MOV", "IMAD.WIDE"),
    ("UIADD3", "UIADD3", "FFMA"),
    ("UIADD3", "FADD", "IMAD"),
)


class Registers:
    """Destinations in turn."""

    def __init__(self) -> None:
        self.at = 0

    def fill(self, text: str) -> str:
        self.at += 1
        at = self.at
        return text.format(d=16 + at % 32, e=16 + 2 * (at % 16), q=16 + 4 * (at % 8), u=10 + at % 16)


def _codes(kind: str, last: bool) -> dict[str, int]:
    """Barriers of an instruction of a stream: of those whose results come in their own time the last sets one."""
    if kind not in VARIABLE or not last:
        return {}
    return {"read" if kind.startswith(STORES) else "write": 2 + (kind in ("LDG", "S2R", "MUFU"))}


def stream(pattern: Sequence[str], stall: int = 1, turn: bool = False) -> Callable[[int], list[str]]:
    """A body of so many instructions, the pattern again and again."""

    def body(count: int) -> list[str]:
        registers, found = Registers(), []
        for n in range(count):
            kind = pattern[n % len(pattern)]
            last = n + len(pattern) >= count
            found.append(
                line(
                    registers.fill(KINDS[kind]),
                    stall=max(stall, 2) if last and kind in VARIABLE else stall,
                    turn=turn,
                    **_codes(kind, last),
                )
            )
        return found

    return body


# R8 is an address in shared memory, R56:R57 one in global memory, R60 an index of constants.
SETUP = (
    line("IADD3 R8, R8, 0x400, RZ", stall=6),
    line("IMAD.WIDE.U32 R56, R7, 0x10, R4", stall=6),
    line("IMAD.MOV.U32 R60, RZ, RZ, RZ", stall=6),
    line("UMOV UR30, URZ", stall=2),
)


def mix_name(pattern: Sequence[str]) -> str:
    return "mix " + " ".join(f"{len(list(run))}x{kind}" for kind, run in groupby(pattern))


def of_pattern(
    name: str, size: int, body: Callable[[int], list[str]], warps: Sequence[int], setup: Sequence[str] = SETUP
) -> Probe:
    """A probe of a pattern of so many instructions, which its body repeats."""
    lengths = tuple(-(-n // size) * size for n in (48, 144))
    return Probe(name, body, lengths, warps, setup=setup, shared=32768, words=spread(16))


def _stream(
    name: str, pattern: Sequence[str], stall: int = 1, turn: bool = False, warps: Sequence[int] = WARPS
) -> Probe:
    return of_pattern(name, len(pattern), stream(pattern, stall, turn), warps)


def chained(text: str) -> Callable[[int], list[str]]:
    """An instruction again and again, each waits for the result of the one before."""
    return lambda count: [line(text, wait=2 if n else 0, write=2, stall=2) for n in range(count)]


def spread(nbytes: int) -> list[int]:
    """Offsets of the threads of a block: side by side, each warp in its own place."""
    return [t * nbytes % 32768 for t in range(1024)]


def streams() -> Iterator[Probe]:
    for kind in KINDS:
        yield _stream(f"rate {kind}", (kind,))
    for pattern in MIXES:
        yield _stream(mix_name(pattern), pattern)
    for kind, turn, stall in product(
        ("FFMA", "IADD3", "NOP"), (False, True), (1, 2, 3, 4, 5, 6, 8, 11, 12, 13, 14, 15)
    ):
        if turn or stall <= 11:
            yield _stream(f"stall {kind} {stall}{' yield' if turn else ''}", (kind,), stall, turn, (1, 8, 16))
    for kind in ("LDS", "LDS.128", "LDG.128", "MUFU", "STS", "BRA"):
        if kind == "BRA":
            yield Probe("rate BRA taken", _branches, (16, 48), (1, 4, 8))
        else:
            yield _stream(f"stall {kind} 4", (kind,), 4)


def _branches(count: int) -> list[str]:
    return [text for n in range(count) for text in (f"--:-:-:Y:5      BRA L{n};", line("NOP"), f"L{n}:")]


# -- register banks ---------------------------------------------------------------------------------------------------

# Sources of instructions that are repeated; r: with the reuse flag. e, f, g, h: different even registers, o, p, q, s:
# odd ones, z: none.
_NAMED = {"e": 10, "f": 12, "g": 14, "h": 48, "o": 11, "p": 13, "q": 15, "s": 49}
BANKS = (
    "eop",
    "efo",
    "efg",
    "opq",
    "eef",
    "eeo",
    "eee",
    "ooo",
    "oep",
    "oef",
    "eof",
    "er o p|er o q",
    "er o f|er p f",
    "e r",
    "efgr|efgr",
    "erfg|erfg",
    "erfro|erfro",
    "efor|efor",
    "erop|erop",
    "erfo|erfo",
    "erfrgr|erfrgr",
    "erfo|ergo",
    "erop|erfo",
    "eor f|gor h",
    "efr g|hfr e",
    "efo|eop",
    "efg|opq",
    "efg|eoz",
    "efg|zzz",
    "efg|zzz|zzz",
    "efg|zzz|zzz|zzz",
    "efg|efg|zzz|zzz",
    "erfg|opq|erfg",
    "erfg|fgh|erfg",
)


def _registers(text: str) -> list[str]:
    found: list[str] = []
    for letter in text.replace(" ", ""):
        if letter == "r":
            found[-1] += ".reuse"
        else:
            found.append("RZ" if letter == "z" else f"R{_NAMED[letter]}")
    return found


def _banked(opcode: str, text: str) -> Callable[[int], list[str]]:
    instructions = [_registers(part) for part in text.split("|")]

    def body(count: int) -> list[str]:
        found = []
        for n in range(count):
            a, b, c = (instructions[n % len(instructions)] + ["RZ"] * 3)[:3]
            tail = ", 0x96, !PT" if opcode == "LOP3.LUT" else ""
            found.append(line(f"{opcode} R{16 + n % 32}, {a}, {b}, {c}{tail}"))
        return found

    return body


def product_sum(n: int) -> str:
    """The n-th FFMA in the order of the library's loops, 8 values of x and 6 of y: y stays while x goes to and fro, and
    x where y changes."""
    x, end = n % 8 if n // 8 % 2 == 0 else 7 - n % 8, n % 8 == 7
    total = 20 + 8 * (n // 8 % 3) + (x ^ 1)
    y_stays, x_stays = ("", ".reuse") if end else (".reuse", "")
    return f"FFMA R{total}, R{10 + n // 8 % 6}{y_stays}, R{48 + x}{x_stays}, R{total}"


def banks() -> Iterator[Probe]:
    """Register banks and the reuse cache: patterns of registers, sums as the library's loops have them, by themselves
    and beside other instructions, and what loads write meanwhile."""
    yield from _patterns()
    yield from _outer_products()
    yield from _beside_loads()


def _patterns() -> Iterator[Probe]:
    for opcode, patterns in (("FFMA", BANKS), ("IMAD", BANKS[:12]), ("IADD3", BANKS[:8]), ("LOP3.LUT", BANKS[:8])):
        for text in patterns:
            if text != "e r":
                of = len(text.split("|"))
                yield Probe(
                    f"banks {opcode} {text}", _banked(opcode, text), (of * (48 // of), of * (144 // of)), (1, 4, 8, 16)
                )


def _outer_products() -> Iterator[Probe]:
    """The sums of the library's loops: x stays, the sum lies in the other bank than x."""
    for name, flags in (("all", ".reuse"), ("none", "")):

        def outer(count: int, flags: str = flags) -> list[str]:
            return [
                line(f"FFMA R{20 + (n % 24 ^ 1)}, R{48 + n % 8}, R{10 + n // 8 % 6}{flags}, R{20 + (n % 24 ^ 1)}")
                for n in range(count)
            ]

        yield Probe(f"banks outer product, flags {name}", outer, (64, 192), (1, 4, 8, 16))
    for name, text in (
        ("nothing", ""),
        ("NOP", "NOP"),
        ("IADD3", "IADD3 R56, R57, R61, RZ"),
        ("IADD3 of constants", "IADD3 R56, RZ, 0x1, RZ"),
        ("UIADD3", "UIADD3 UR10, UR8, UR9, URZ"),
        ("LDS", "LDS R56, [R8]"),
        ("LDS.128", "LDS.128 R16, [R8]"),
        ("LDS.128 UR", "LDS.128 R16, [UR30+0x400]"),
        ("STS", "STS [R8], R56"),
        ("STS.128", "STS.128 [R8], R16"),
        ("LDG", "LDG.E R16, desc[UR4][R56.64]"),
        ("IMAD.MOV", "IMAD.MOV.U32 R16, RZ, RZ, RZ"),
    ):
        for gap in (8, 16, 21):
            yield Probe(
                f"outer product beside {name} after {gap}",
                interleaved(product_sum, text, gap, **({"write": 2} if text.startswith("LD") else {})),
                (168, 504),
                (1, 4, 8),
                setup=SETUP,
                shared=32768,
                words=[t % 32 // 8 * 16 for t in range(1024)],
            )


def _beside_loads() -> Iterator[Probe]:
    """What loads write while FFMA read: the bank of the destination."""
    for parity, reuse in product((0, 1), ("", ".reuse")):

        def mixed(count: int, parity: int = parity, reuse: str = reuse) -> list[str]:
            return [
                line(f"LDS R{20 + 2 * (n // 8 % 8) + parity}, [R8]", write=2, stall=2)
                if n % 8 == 0
                else line(f"FFMA R{40 + n % 8}, R10{reuse}, R12, R14")
                for n in range(count)
            ]

        yield Probe(
            f"banks FFMA beside LDS to parity {parity}{reuse}",
            mixed,
            (48, 144),
            (1, 4, 8, 16),
            setup=SETUP,
            shared=32768,
            words=spread(16),
        )


# -- chains -----------------------------------------------------------------------------------------------------------

CHAINS = {
    "MUFU": "MUFU.RCP R10, R10",
    "I2F": "I2F.U32 R10, R10",
    "F2I": "F2I.TRUNC.NTZ R10, R10",
    "POPC": "POPC R10, R10",
    "FLO": "FLO.U32 R10, R10",
    "SHFL": "SHFL.BFLY PT, R10, R10, 0x1, 0x1f",
    "S2R": "S2R R10, SR_TID.X",
    "S2R CTAID": "S2R R10, SR_CTAID.X",
    "S2UR": "S2UR UR10, SR_CTAID.X",
    "LDC": "LDC R10, c[0x0][0x210]",
    "LDC.64": "LDC.64 R10, c[0x0][0x210]",
    "LDC R": "LDC R60, c[0x0][R60+0x224]",
    "LDS": "LDS R8, [R8]",
    "LDS.64": "LDS.64 R8, [R8]",
    "LDS.128": "LDS.128 R16, [R16]",
    "F2F": "F2F.F64.F32 R10, R10",
    "BREV": "BREV R10, R10",
}
_OWN = (
    line("IMAD.MOV.U32 R8, RZ, RZ, 0x400", stall=6),
    line("IMAD.MOV.U32 R16, RZ, RZ, 0x400", stall=6),
    line("IMAD.MOV.U32 R9, RZ, RZ, RZ", stall=6),
    *(line(f"STS [R8+{4 * n:#x}], {'R8' if n % 4 == 0 else 'RZ'}", stall=4) for n in range(4)),
    line("IMAD.MOV.U32 R60, RZ, RZ, RZ", stall=6),
    line("BAR.SYNC.DEFER_BLOCKING 0x0", stall=15),
)


def chains() -> Iterator[Probe]:
    """Each instruction waits for the result of the one before."""
    for name, text in CHAINS.items():
        yield Probe(f"latency {name}", chained(text), (16, 48), (1, 4), setup=_OWN, shared=1024)
    for name, text in {
        "STS": "STS [R8], R10",
        "STS.128": "STS.128 [R8], R12",
        "STG": "STG.E desc[UR4][R56.64], R10",
        "STG.128": "STG.E.128 desc[UR4][R56.64], R12",
        "LDS": "LDS R20, [R8]",
        "LDG": "LDG.E R20, desc[UR4][R56.64]",
        "LDG.128": "LDG.E.128 R20, desc[UR4][R56.64]",
        "MUFU": "MUFU.RCP R20, R10",
    }.items():

        def released(count: int, text: str = text) -> list[str]:
            return [line(text, wait=2 if n else 0, read=2, stall=2) for n in range(count)]

        yield Probe(f"operands read {name}", released, (16, 48), (1, 4), setup=SETUP, shared=32768, words=spread(16))
    for warps in (1, 2, 4, 8, 16, 32):
        yield Probe(
            f"barrier of {warps} warps",
            lambda count: [line("BAR.SYNC.DEFER_BLOCKING 0x0", stall=6)] * count,
            (8, 24),
            (warps,),
        )
    for n in (0, 1):

        def waits(count: int, n: int = n) -> list[str]:
            return [line("NOP", wait=2 * n) for _ in range(count)]

        yield Probe(f"waiting for a free barrier {n}", waits, (48, 144), (1, 4))


def depth() -> Iterator[Probe]:
    """How many memory instructions issue before the queue is full: the clock right behind n of them."""
    for kind in ("LDS", "LDS.128", "STS", "STS.128", "LDG", "LDG.128", "STG", "MUFU", "LDC", "SHFL"):
        for n in (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 48):

            def queued(count: int, kind: str = kind) -> list[str]:
                registers = Registers()
                codes = {"read" if kind.startswith(STORES) else "write": 2}
                return [line(registers.fill(KINDS[kind]), **codes) for _ in range(count)] + [
                    line("CS2R.32 R1, SR_CLOCKLO", stall=11)
                ]

            yield Probe(
                f"queue {kind} {n}", queued, (n,), (1, 4, 8), setup=SETUP, shared=32768, words=spread(16), drain=False
            )


_FLOWS = {
    "BSSY and BSYNC": ("BSSY B0, MEET{n}", "MEET{n}:", "BSYNC B0"),
    "BSSY": ("BSSY B0, MEET{n}", "MEET{n}:"),
    "BRA not taken": ("@!PT BRA PAST{n}", "PAST{n}:"),
    "BRA of no lane": ("@P3 BRA PAST{n}", "PAST{n}:"),
    "BRA over one": ("BRA PAST{n}", "NOP", "PAST{n}:"),
    "BRA of half the lanes": ("BSSY B0, MEET{n}", "@P4 BRA MEET{n}", "NOP", "MEET{n}:", "BSYNC B0"),
    "BRA of half the lanes, others": ("BSSY B0, MEET{n}", "@P4 BRA OTHER{n}", "NOP", "BRA MEET{n}", "OTHER{n}:", "NOP",
                                      "MEET{n}:", "BSYNC B0"),
    "VOTE to a predicate": ("VOTE.ANY RZ, P2, PT",),
}


def flows() -> Iterator[Probe]:
    """Branches and where lanes meet again."""
    setup = (
        line("LOP3.LUT R12, R7, 0x1, RZ, 0xc0, !PT", stall=6),
        line("ISETP.EQ.U32.AND P4, PT, R12, RZ, PT", stall=13),
        line("ISETP.GT.U32.AND P3, PT, R12, 0x1, PT", stall=13),
    )
    for name, texts in _FLOWS.items():

        def body(count: int, texts: tuple[str, ...] = texts) -> list[str]:
            return [
                text.format(n=n) if text.endswith(":") else
                f"{control(turn=True, stall=5)}  {text.format(n=n)};"
                for n in range(count) for text in texts
            ]

        yield Probe(f"flow {name}", body, (16, 48), (1, 4, 8, 16), setup=setup)
