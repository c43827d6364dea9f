"""Probes of atomics that many lanes, warps and SMs bring to few places of L2, of words that lie anywhere in some KiB or
MiB, and of compare-and-swap where warps of a block are not in step."""

from collections.abc import Callable, Iterator

from .frame import control, line
from .gathers import ACCESSES, PATTERNS, SHARED, Place, swaps
from .issue import SETUP, Registers
from .probe import Probe

_AWAY = 0x8000  # bytes from the threads' words to what they change, so that none changes another block's
_ABSENT = 0xFFFFFFFF  # the word of a lane that takes no part


def _first(n: int, place: Place) -> Place:
    return lambda t: place(t) if t % 32 < n else -1


def _apart(nbytes: int) -> Place:
    return lambda t: t % 32 * nbytes


def _of_sectors(lanes: int, sectors: int, nbytes: int) -> Place:
    """So many lanes side by side in each of some sectors, which lie some bytes apart."""
    return lambda t: t % 32 // lanes * nbytes + t % lanes * 4 if t % 32 < lanes * sectors else -1


def _of_warps(nbytes: int) -> Place:
    return lambda t: -1 if t % 32 else t // 32 * nbytes


# Where lane `t` is, in bytes; -1: it takes no part.
MET: dict[str, Place] = {
    **{f"{n} lanes the same": _first(n, lambda t: 0) for n in (1, 2, 4, 8, 16)},
    **{f"{n} lanes side by side": _first(n, lambda t: t % 32 * 4) for n in (2, 4, 8, 16)},
    **{f"{n} lanes, a sector each": _first(n, lambda t: t % 32 * 32) for n in (2, 4, 8)},
    **{f"{n} lanes, a line each": _first(n, lambda t: t % 32 * 128) for n in (2, 4, 8)},
    **{f"{lanes} lanes of 4 sectors": _of_sectors(lanes, 4, 32) for lanes in (2, 4)},
    **{f"{lanes} lanes of a sector of {lines} lines": _of_sectors(lanes, lines, 128)
       for lanes, lines in ((2, 8), (4, 8), (2, 16), (8, 4))},
    **{f"lanes {nbytes} bytes apart": _apart(nbytes) for nbytes in (64, 256, 512, 1024, 4096)},
    **{f"one lane, {nbytes} bytes a warp": _of_warps(nbytes) for nbytes in (4, 32, 128, 1024)},
    **{name: PATTERNS[name] for name in ("pairs the same", "eights the same", "words of 4 KiB", "words of 32 KiB")},
}
_HERE = (
    line("IADD3 R56, P2, R4, R8, RZ", stall=6),
    line("IADD3.X R57, R5, RZ, RZ, P2, !PT", stall=6),
    line("ISETP.NE.AND P3, PT, R8, -0x1, PT", stall=13),
    line("IMAD.MOV.U32 R12, RZ, RZ, RZ", stall=6),
    line("IMAD.MOV.U32 R13, RZ, RZ, RZ", stall=6),
)


def _guarded(text: str) -> Callable[[int], list[str]]:
    text = text.replace("R56.64]", f"R56.64+{_AWAY:#x}]").replace("[R56]", f"[R56+{_AWAY:#x}]")

    def body(count: int) -> list[str]:
        registers = Registers()
        last = control(stall=2, read=2) if "REDG" in text else control(stall=2, write=2)
        return [f"{code}  @P3 {registers.fill(text)};" for code in [*[control(stall=2)] * (count - 1), last]]

    return body


def met() -> Iterator[Probe]:
    """All SMs, or some, at the same places."""
    for name, place in MET.items():
        words = [place(t) % (1 << 32) for t in range(1024)]
        for kind in ("REDG", "REDG F32", "ATOMG", "ATOMG CAS"):
            one = name.startswith(("1 lanes", "one lane"))
            for blocks in (1, 2, 8, 32, 132) if one and kind.startswith("REDG") else (132,):
                yield Probe(f"{kind} of {blocks} SMs, {name}", _guarded(ACCESSES[kind]), (8, 24),
                            (1, 8, 32) if one else (8,), setup=_HERE, words=words, blocks=blocks)


# -- words anywhere ---------------------------------------------------------------------------------------------------

_FAR = {
    **{kind: (ACCESSES[kind],) for kind in ("LDG L2", "STG", "REDG", "REDG F32", "ATOMG", "ATOMG CAS")},
    "ATOMG CAS in vain": (ACCESSES["ATOMG CAS"].replace("R12", "R61"),),
    "LDG and STG": (ACCESSES["LDG"], ACCESSES["STG"]),
}
_ANYWHERE = (
    line("IMAD R60, R9, 0x9e3779b1, RZ", stall=6),
    line("IMAD.MOV.U32 R61, RZ, RZ, 0x3c6ef35f", stall=6),
    line("IMAD.MOV.U32 R12, RZ, RZ, RZ", stall=6),
    line("IMAD.MOV.U32 R13, RZ, RZ, RZ", stall=6),
)


def _next_word(bits: int) -> list[str]:
    """R10 becomes one of 2^bits words by chance."""
    return [line("IMAD R60, R60, 0x19660d, R61", stall=6),
            line(f"SHF.R.U32.HI R10, RZ, {32 - bits:#x}, R60", stall=6)]


def _far(texts: tuple[str, ...], bits: int, waited: bool) -> Callable[[int], list[str]]:
    def body(count: int) -> list[str]:
        registers, found = Registers(), []
        for n in range(count):
            at, barrier = 50 + 2 * (n % 2), 4 + n % 2
            found += [*_next_word(bits),
                      line(f"IMAD.WIDE.U32 R{at}, R10, 0x4, R4", wait=1 << barrier - 1, stall=6)]
            for k, text in enumerate(texts):
                codes = {"read": barrier} if text.startswith(("STG", "REDG")) else {"read": barrier, "write": 2}
                found.append(line(registers.fill(text.replace("R56", f"R{at}")), stall=2, wait=2 if k else 0, **codes))
            if waited:
                found.append(line("NOP", wait=2, stall=2))
        return found

    return body


def anywhere() -> Iterator[Probe]:
    """Words that chance chooses anew for each access: of one SM and of all."""
    for bits, size in ((8, "1 KiB"), (12, "16 KiB"), (16, "256 KiB"), (18, "1 MiB"), (20, "4 MiB"), (26, "256 MiB")):
        for kind, texts in _FAR.items():
            for blocks in (1, 8, 132):
                if blocks == 8 and kind not in ("STG", "ATOMG CAS"):
                    continue
                yield Probe(f"{kind} of {blocks} SMs, any words of {size}", _far(texts, bits, False), (8, 24), (8, 32),
                            setup=_ANYWHERE, blocks=blocks, big=256 << 20)
            if texts[0].startswith(("LDG", "ATOMG")):
                yield Probe(f"{kind} of 132 SMs, any words of {size}, each waited for", _far(texts, bits, True),
                            (8, 24), (1, 8), setup=_ANYWHERE, blocks=132, big=256 << 20)


def loaded_and_changed() -> Iterator[Probe]:
    """Words that chance chooses are loaded and then stored or changed, by all lanes or by the first ones alone, or
    whole sectors are."""
    changes = {kind: ACCESSES[kind] for kind in ("STG", "REDG", "ATOMG CAS")}
    for bits, size in ((18, "1 MiB"), (20, "4 MiB")):
        for kind, text in changes.items():
            for lanes, sectors in ((32, False), (4, False), (32, True)):
                if (sectors and kind != "STG") or (kind == "STG" and lanes == 32 and not sectors):
                    continue

                def body(count: int, bits: int = bits, text: str = text, sectors: bool = sectors) -> list[str]:
                    load, codes = ACCESSES["LDG"].format(d=16), control(stall=2, wait=2, read=4, write=3)
                    if "ATOMG" not in text:
                        codes = control(stall=2, wait=2, read=4)
                    once = [
                        *_next_word(bits),
                        *([line("LOP3.LUT R10, R11, R10, R7, 0xca, !PT", stall=6)] if sectors else []),
                        line("IMAD.WIDE.U32 R56, R10, 0x4, R4", wait=8, stall=6),
                        f"{control(stall=2, write=2)}  @P3 {load};",
                        f"{codes}  @P3 {text.format(d=17)};",
                    ]
                    return once * count

                what = "sectors" if sectors else f"words, {lanes} lanes"
                yield Probe(f"LDG and {kind} of 132 SMs, any {what} of {size}", body, (8, 24), (1, 8),
                            setup=(*_ANYWHERE,
                                   line("LOP3.LUT R11, R7, 0x1f, RZ, 0xc0, !PT", stall=6),
                                   line(f"ISETP.LT.U32.AND P3, PT, R11, {lanes:#x}, PT", stall=13),
                                   *([line("SHF.R.U32.HI R60, RZ, 0x3, R9", stall=6),
                                      line("IMAD R60, R60, 0x9e3779b1, RZ", stall=6)] if sectors else []),
                                   line("IMAD.MOV.U32 R11, RZ, RZ, -0x8", stall=6)),
                            blocks=132, big=256 << 20)


def anywhere_in_shared() -> Iterator[Probe]:
    """The same in shared memory."""
    for bits, size in ((5, "128 bytes"), (8, "1 KiB"), (12, "16 KiB")):
        for kind, text in (*SHARED.items(), ("LDS", "LDS R{d}, [R8]")):

            def body(count: int, bits: int = bits, text: str = text) -> list[str]:
                registers, found = Registers(), []
                for _ in range(count):
                    codes = {"read": 4} if "RZ" in text else {"read": 4, "write": 2}
                    found += [*_next_word(bits), line("IMAD.SHL.U32 R8, R10, 0x4, RZ", wait=8, stall=6),
                              line(registers.fill(text).replace("[R8", "[R8+0x400" if "UR30" not in text else "[R8"),
                                   stall=2, **codes)]
                return found

            yield Probe(f"{kind}, any words of {size}", body, (8, 24), (1, 8, 32),
                        setup=(*SETUP, *_ANYWHERE, line("UMOV UR30, 0x400", stall=12)), shared=33 << 10)


# -- compare-and-swap -------------------------------------------------------------------------------------------------


def swapped_by_turns() -> Iterator[Probe]:
    """Loops of compare-and-swap of shared memory until all lanes have been, with a rest behind each; the warps of the
    block begin one after the other."""
    begin = [
        line("SHF.R.U32.HI R10, RZ, 0x5, R7", stall=6),
        "LATER:",
        *(line("NOP", stall=15, turn=True) for _ in range(2)),
        line("IADD3 R10, R10, -0x1, RZ", stall=6),
        line("ISETP.GE.AND P2, PT, R10, RZ, PT", stall=13),
        "--:-:-:Y:5  @P2 BRA LATER;",
    ]
    places = {name: PATTERNS[name] for name in ("the same", "eights the same", "side by side", "words of 1 KiB",
                                                "words of 4 KiB", "32 lines, 4 lanes to a bank")}
    for name, place in {**places, "threads side by side": lambda t: t * 4}.items():
        for rest in (0, 10, 40):

            def body(count: int, rest: int = rest) -> list[str]:
                return [*begin, *swaps(count, rest)]

            yield Probe(f"swaps by turns, {name}, {15 * rest} cycles between", body, (4, 12), (1, 2, 4, 8, 16, 32),
                        setup=SETUP, shared=33 << 10, words=[place(t) // 4 * 4 for t in range(1024)])
