"""Probes of what works beside warps: tensor cores, mbarriers, bulk copies, copies of threads, fences.

Products have R64 and what follows for sums, R60 to R63 for A in registers. A lies at 1 KiB of shared memory, B behind
it, both with the swizzle of 128 bytes. What is multiplied does not matter."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from .frame import control, first_and_others, line
from .kinds import KINDS
from .memory import behind_each_other
from .probe import Probe

A, B, SHARED = 0x400, 0x2400, 0xA400  # where operands lie: 64 rows and 256 columns of 128 bytes
BARS = 0x40  # where mbarriers lie
_SETUP = [
    line(f"UMOV UR16, {A >> 4:#x}", stall=6),
    line("UMOV UR17, 0x40000040", stall=6),
    line(f"UMOV UR18, {B >> 4:#x}", stall=6),
    line("UMOV UR19, 0x40000040", stall=6),
]
_FIRST_WARPGROUP = line("ISETP.GE.U32.AND P3, PT, R7, 0x80, PT", stall=13)  # as FIRST_WARP says it of a warp
_ARRIVE, _WAIT = line("WARPGROUP.ARRIVE", stall=6), line("WARPGROUP.DEPBAR.LE gsb0, 0x0", stall=4)


def _product(columns: int, *, kind: str = "", registers: bool = False, to: int = 64, adds: bool = True,
             closes: bool = False) -> str:
    depth = 8 if kind == ".TF32" else 16
    a = "R60, " if registers else ""
    descriptor = "UR18" if registers else "UR16"
    text = f"HGMMA.64x{columns}x{depth}.F32{kind} R{to}, {a}gdesc[{descriptor}], "
    text += f"R{to}" if adds else "RZ, !UPT"
    return line(text + (", gsb0" if closes else ""), stall=4)


def _products(count: int, columns: int, *, sums: Sequence[int] = (64,), kind: str = "", registers: bool = False,
              each: bool = False) -> list[str]:
    """So many products and a wait for them; `sums`: where they take turns; `each`: every one is waited for."""
    text = []
    for n in range(count):
        if each or n == 0:
            text.append(_ARRIVE)
        text.append(_product(columns, kind=kind, registers=registers, to=sums[n % len(sums)],
                             adds=n >= len(sums), closes=each or n == count - 1))
        if each:
            text.append(_WAIT)
    return text if each else [*text, _WAIT]


def products() -> Iterator[Probe]:
    """Rates of products by shape, operand and type; what follows on the same sums or on others; a wait for each."""
    def probe(name: str, body: Callable[[int], list[str]], warps: Sequence[int] = (4, 8),
              lengths: Sequence[int] = (8, 24)) -> Probe:
        return Probe(f"tensor {name}", body, lengths, warps, setup=_SETUP, shared=SHARED)

    for columns in (8, 16, 32, 64, 96, 128, 192):
        yield probe(f"64x{columns}x16", partial(_products, columns=columns))
        yield probe(f"64x{columns}x16, A in registers", partial(_products, columns=columns, registers=True))
    yield probe("64x128x8 TF32", lambda count: _products(count, 128, kind=".TF32"))
    yield probe("64x64x16, sums in turn", lambda count: _products(count, 64, sums=(64, 96)))
    yield probe("64x64x16, each waited for", lambda count: _products(count, 64, each=True))
    yield probe("64x128x16, each waited for", lambda count: _products(count, 128, each=True))
    yield probe("turns of two warpgroups", lambda count: _products(count, 128), (8,), (12,))


def products_queue() -> Iterator[Probe]:
    """When the last of a few products has issued: the clock right behind them."""
    def body(count: int) -> list[str]:
        return [*_products(count, 128)[:-1], line("CS2R.32 R1, SR_CLOCKLO", stall=11), _WAIT]

    for count in (1, 2, 3, 4, 6, 8):
        yield Probe(f"tensor queue {count}", body, (count,), (4, 8), setup=_SETUP, shared=SHARED, drain=False)


def products_beside() -> Iterator[Probe]:
    """Eight products of one warpgroup, and so many instructions of another kind of the same warps, or of another
    warpgroup."""
    for kind in ("FFMA", "IADD3", "LDS", "LDS.128", "STS.128"):
        def same(count: int, kind: str = kind) -> list[str]:
            text = _others(kind, count)
            return [*_products(8, 128)[:-1], *text, _WAIT]

        def apart(count: int, kind: str = kind) -> list[str]:
            return [_FIRST_WARPGROUP, *first_and_others(_products(8, 128), _others(kind, count))]

        yield Probe(f"tensor beside {kind} of the warp", same, (16, 256), (4,), setup=_SETUP, shared=SHARED)
        yield Probe(f"tensor beside {kind} of another warp", apart, (16, 256), (8,), setup=_SETUP, shared=SHARED)


def fences_beside() -> Iterator[Probe]:
    """Fences of a warpgroup, behind stores to shared memory or none, while another one has products: so many of each by
    turns."""
    fence = [line("MEMBAR.ALL.CTA", read=4, stall=6), line("FENCE.VIEW.ASYNC.S", wait=8, write=4, stall=2),
             line("NOP", wait=8, stall=2)]
    store = line("STS.128 [R14], R16", read=2, stall=2)
    for name, turn in (("STS.128", [store, line("NOP", wait=2, stall=2)]), ("MEMBAR and FENCE", fence),
                       ("2 STS.128, MEMBAR and FENCE", [store, store, *fence])):
        for products, turns in ((0, 1), (1, 1), (1, 2), (2, 1)):

            def body(count: int, turn: list[str] = turn, products: int = products, turns: int = turns) -> list[str]:
                return [line("IMAD.SHL.U32 R14, R7, 0x10, RZ", stall=6),
                        line(f"IADD3 R14, R14, {SHARED:#x}, RZ", stall=6),
                        _FIRST_WARPGROUP,
                        *first_and_others(_products(products * count, 128) if products else (), turn * (turns * count))]

            yield Probe(f"{turns} {name} beside {products} products", body, (8, 40), (8,), setup=_SETUP,
                        shared=SHARED + 0x1000)


_AMID = {  # what is issued while tensor cores work, and how far apart
    "nothing": ("NOP", 1),
    "of no register": ("IMAD.MOV.U32 R{d}, RZ, RZ, RZ", 2),
    "FFMA": ("FFMA R{d}, R10, 1.5, R11", 1),
    "FFMA 2 apart": ("FFMA R{d}, R10, 1.5, R11", 2),
    "FFMA 3 apart": ("FFMA R{d}, R10, 1.5, R11", 3),
    "FFMA 4 apart": ("FFMA R{d}, R10, 1.5, R11", 4),
    "FFMA of three": ("FFMA R{d}, R10, R11, R{d}", 1),
    "FFMA of three 2 apart": ("FFMA R{d}, R10, R11, R{d}", 2),
    "FMUL of one": ("FMUL R{d}, R10, 1.5", 1),
    "FMUL of one 2 apart": ("FMUL R{d}, R10, 1.5", 2),
    "IADD3": ("IADD3 R{d}, R10, R11, RZ", 2),
    "IADD3 of one": ("IADD3 R{d}, R10, 0x1, RZ", 2),
    "IADD3 4 apart": ("IADD3 R{d}, R10, R11, RZ", 4),
    "UIADD3": ("UIADD3 UR{u}, UR8, UR9, URZ", 2),
}


def products_amid() -> Iterator[Probe]:
    """Six products, all of which the queue takes, and instructions of the same warps behind them, or of another
    warpgroup from the moment the products have been issued."""
    for name, (text, stall) in _AMID.items():
        def others(count: int, text: str = text, stall: int = stall) -> list[str]:
            return [line(text.format(d=14 + n % 40, u=20), stall=stall) for n in range(count)]

        def same(count: int, others: Callable[[int], list[str]] = others) -> list[str]:
            return [*_products(6, 128)[:-1], *others(count), _WAIT]

        def apart(count: int, others: Callable[[int], list[str]] = others) -> list[str]:
            return [_FIRST_WARPGROUP,
                    *first_and_others(_products(6, 128), [*[line("NOP", stall=15)] * 5, *others(count)])]

        yield Probe(f"tensor amid {name} of the warp", same, (8, 64, 192), (4,), setup=_SETUP, shared=SHARED)
        yield Probe(f"tensor amid {name} of another warp", apart, (8, 64, 192), (8,), setup=_SETUP, shared=SHARED)


def _others(kind: str, count: int) -> list[str]:
    """Instructions of a kind that do not depend on each other."""
    text, last = [], count - 1
    for n in range(count):
        place = KINDS[kind].format(d=14 + n % 40, e=14 + n % 20 * 2, q=16 + n % 8 * 4, u=20)
        codes = {"write": 2} if kind.startswith("LD") and n == last else {"read": 2} if kind.startswith("ST") else {}
        text.append(line(place, stall=2 if kind.startswith(("LD", "ST", "IADD")) else 1, **codes))
    return [*text, line("NOP", wait=2, stall=6)]


# -- mbarriers --------------------------------------------------------------------------------------------------------

_BEGIN = [  # a barrier of one arrival at BARS
    line("UMOV UR20, 0x1ffffe", stall=6), line("UMOV UR21, 0x7ffff800", stall=6),
    line(f"UMOV UR22, {BARS:#x}", stall=6),
    line("ISETP.NE.AND P4, PT, R7, RZ, PT", stall=13),
    line("IMAD.MOV.U32 R12, RZ, RZ, RZ", stall=6),
    line(f"IMAD.MOV.U32 R13, RZ, RZ, {BARS:#x}", stall=6),
    line("IMAD.MOV.U32 R14, RZ, RZ, -0x80000000", stall=6),
    line("BSSY B0, BEGUN", stall=2),
    "--:-:-:Y:5  @P4 BRA MET;",
    line("SYNCS.EXCH.64 URZ, [UR22], UR20", read=1, stall=2),
    line("NOP", wait=1, stall=6),
    "MET:",
    line("BSYNC B0", stall=5),
    "BEGUN:",
    line("BAR.SYNC.DEFER_BLOCKING 0x0", stall=6),
]


def waiting(label: str, parity: str = "R12") -> list[str]:
    return [f"{label}:", line(f"SYNCS.PHASECHK.TRANS64.TRYWAIT P5, [R13+URZ], {parity}", write=1, stall=2),
            f"01:-:-:Y:5 @!P5 BRA {label};"]


def turned() -> str:
    """The other parity."""
    return line("LOP3.LUT R12, R12, R14, RZ, 0x3c, !PT", stall=6)


def barriers() -> Iterator[Probe]:
    """A try-wait for a phase that is over; an arrival and the wait for its phase; fences."""
    def passed(count: int) -> list[str]:
        return [text for n in range(count) for text in waiting(f"PASSED{n}", "R14")]

    def turns(count: int) -> list[str]:
        text = []
        for n in range(count):
            text.append(f"{control(stall=2)} @!P4 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R13+URZ], RZ;")
            text += [*waiting(f"TURN{n}"), turned()]
        return text

    yield Probe("mbarrier that has been passed", passed, (4, 12), (1, 4), setup=_BEGIN, shared=SHARED)
    yield Probe("mbarrier, an arrival and its phase", turns, (4, 12), (1, 4), setup=_BEGIN, shared=SHARED)
    for code, told in (("FENCE.VIEW.ASYNC.S", "write"), ("MEMBAR.ALL.CTA", "read")):
        def fences(count: int, code: str = code, told: str = told) -> list[str]:
            return [line(code, wait=1, stall=6, **{told: 1}) for _ in range(count)] + [line("NOP", wait=1, stall=6)]
        yield Probe(f"fence {code}", fences, (4, 12), (1, 4), shared=1024)


COPY = [
    *_BEGIN,
    line("R2UR UR24, R4", stall=13), line("R2UR UR25, R5", stall=13),
    line(f"UMOV UR27, {BARS:#x}", stall=6),
]


def copied(base: int, nbytes: int, to: int) -> list[str]:
    """A bulk copy of UR28 pieces of 16 bytes from so many bytes behind the address in register `base` and the next one
    to shared memory. R16, R17 and P2 are scratch."""
    return [
        line(f"IADD3 R16, P2, R{base}, {nbytes:#x}, RZ", wait=4, stall=6),
        line(f"IADD3.X R17, R{base + 1}, RZ, RZ, P2, !PT", stall=6),
        line("R2UR UR24, R16", stall=13),
        line("R2UR UR25, R17", stall=13),
        line(f"UMOV UR26, {to:#x}", stall=13),
        line("UBLKCP.S.G [UR26], [UR24], UR28", read=3, stall=2),
    ]


def _copying(count: int, nbytes: int, at_once: int) -> list[str]:
    text = [line(f"UMOV UR28, {nbytes // 16:#x}", stall=6),
            line(f"IMAD.MOV.U32 R15, RZ, RZ, {nbytes * at_once:#x}", stall=6)]
    for n in range(count):
        text.append(f"{control(stall=2)} @!P4 SYNCS.ARRIVE.TRANS64 RZ, [R13+URZ], R15;")
        for k in range(at_once):
            text += [line(f"UMOV UR26, {0x400 + k * nbytes:#x}", wait=4, stall=13),
                     line("UBLKCP.S.G [UR26], [UR24], UR28", read=3, stall=2)]
        text += [*waiting(f"HERE{n}"), turned()]
    return text


def _at_same_place(together: int, behind: str = "", setup: Sequence[str] = ()) -> Probe:
    """Bulk copies of all SMs at once, of so many with numbers side by side from the same place."""
    place = [line(f"SHF.R.U32.HI R10, RZ, {together.bit_length() + 4:#x}, R9", stall=6),
             line("IMAD.WIDE.U32 R4, R10, 0x8000, R4", stall=6)]
    return Probe(f"bulk 16384 bytes, 2 at a time, all SMs, {together} at the same place{behind}",
                 partial(_copying, nbytes=16384, at_once=2), (8, 24), (1,), setup=[*place, *COPY, *setup],
                 shared=SHARED, big=8 << 20, blocks=132)


def shared_copies() -> Iterator[Probe]:
    """Whether what copies ask for is brought together on its way to L2."""
    for together in (1, 2, 4, 16, 256):
        yield _at_same_place(together)


def copies_apart() -> Iterator[Probe]:
    """`shared_copies` of four blocks each that begin one behind the other."""
    for turns in (0, 1, 2, 4, 8, 16, 32, 64):
        yield _at_same_place(4, f", {turns} turns behind each other", behind_each_other(4, turns))


def kept_copies() -> Iterator[Probe]:
    """So many bulk copies of 16 KiB of each SM, two at a time, of its own memory, again and again: what L2 keeps."""
    for copies_of_sm in (6, 10, 12, 14, 16, 18, 20, 22, 24):

        def body(count: int) -> list[str]:
            text = [line("UMOV UR28, 0x400", stall=6), line("IMAD.MOV.U32 R15, RZ, RZ, 0x8000", stall=6)]
            for n in range(count // 2):
                text.append(f"{control(stall=2)} @!P4 SYNCS.ARRIVE.TRANS64 RZ, [R13+URZ], R15;")
                for k in range(2):
                    text += copied(4, (2 * n + k) * 0x4000, 0x400 + k * 0x4000)
                text += [*waiting(f"HERE{n}"), turned()]
            return text

        place = [line("SHF.R.U32.HI R10, RZ, 0x5, R9", stall=6),
                 line(f"IMAD.WIDE.U32 R4, R10, {copies_of_sm * 0x4000:#x}, R4", stall=6)]
        yield Probe(f"kept by L2, {copies_of_sm} bulk copies of 16 KiB an SM", body, (copies_of_sm,), (1,),
                    setup=[*place, *COPY], shared=SHARED, big=64 << 20, blocks=132)


def copies() -> Iterator[Probe]:
    """Bulk copies of some sizes, one after another and several at a time; copies of threads."""
    setup, body = COPY, _copying
    for nbytes in (16, 128, 1024, 4096, 8192, 16384, 32768):
        for at_once in (1, 2, 4):
            if nbytes * at_once <= SHARED - 0x400:
                yield Probe(f"bulk {nbytes} bytes, {at_once} at a time",
                            partial(body, nbytes=nbytes, at_once=at_once), (2, 6), (1,),
                            setup=setup, shared=SHARED, big=1 << 21)
    for blocks in (33, 132):
        yield Probe(f"bulk 16384 bytes, 2 at a time, {blocks} SMs", lambda count: body(count, 16384, 2), (2, 6), (1,),
                    setup=setup, shared=SHARED, big=1 << 21, blocks=blocks)


def thread_copies() -> Iterator[Probe]:
    """LDGSTS of 16 bytes a lane: from L2 past L1, and groups of them."""
    setup = [line("IMAD.WIDE.U32 R56, R7, 0x10, R4", stall=6), line("LEA R13, R7, RZ, 0x4", stall=6)]

    def body(count: int, each: bool) -> list[str]:
        text = []
        for n in range(count):
            text.append(line(f"LDGSTS.E.BYPASS.128 [R13+{n % 2 * 0x4000:#x}], desc[UR4][R56.64]", read=2, stall=2))
            if each or n == count - 1:
                text += [line("LDGDEPBAR", write=1, stall=3), line("DEPBAR.LE SB0, 0x0", stall=4)]
        return text

    yield Probe("LDGSTS.128", lambda count: body(count, False), (8, 24), (1, 4, 8), setup=setup, shared=0x8000,
                big=1 << 20)
    yield Probe("LDGSTS.128, each waited for", lambda count: body(count, True), (8, 24), (1, 4, 8), setup=setup,
                shared=0x8000, big=1 << 20)
    few = (line("IMAD.WIDE.U32 R56, R7, 0x4, R4", stall=6), line("LEA R13, R7, RZ, 0x2", stall=6))

    def through_l1(count: int) -> list[str]:
        return [
            text for _ in range(count)
            for text in (line("LDGSTS.E [R13], desc[UR4][R56.64]", read=2, stall=2),
                         line("LDGDEPBAR", write=1, stall=3), line("DEPBAR.LE SB0, 0x0", stall=4))
        ]

    yield Probe("LDGSTS of 4 bytes, each waited for", through_l1, (8, 24), (1,), setup=few, shared=0x8000, big=1 << 20)
