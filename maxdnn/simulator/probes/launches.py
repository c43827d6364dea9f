"""Probes that a profiler answers: whole launches of many blocks, of which each thread loads and stores a few words of
its own or rests. What a launch costs that no clock within it tells: blocks that follow each other, what L2 has from the
launch before, stores on their way at the end."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .frame import advance, assembled, line, own_place

MIB, SMS = 1 << 20, 132
THREADS = 256  # of a block that loads and stores
SIZES = (4, 8, 16, 24, 32, 36, 40, 44, 48, 64, 96)  # MiB that a launch touches
KINDS = ((1, 0, 16), (4, 0, 16), (0, 1, 16), (0, 4, 16), (1, 1, 16), (2, 2, 16), (4, 4, 16), (4, 1, 16), (1, 4, 16),
         (1, 1, 4), (4, 4, 4), (8, 8, 4), (8, 0, 4), (0, 8, 4),
         (1, 8, 16), (1, 16, 16), (1, 32, 16))  # loads, stores, bytes of each
SPARSE = (1, 8), (1, 16), (1, 32), (1, 64), (1, 128), (2, 16), (4, 16), (4, 32), (8, 32)  # words, of so many bytes
SECTORS = 1, 2, 4  # of each line, of which a thread stores a word
BEHIND = 0, 2, 4, 6, 7, 8, 9, 10, 12, 16  # MiB
PIECES = 32, 64, 128, 256, 512, 1024, 4096, 16384  # bytes that lie side by side
GENERATIONS = 16  # blocks that rest: as many as the SMs hold, so many times one behind the other


@dataclass(frozen=True)
class Launch:
    """A launch of a kernel on a buffer of so many MiB; `sizes`: its arguments behind that."""

    name: str
    kernel: str
    source: str = field(repr=False)
    blocks: int
    threads: int
    mib: int
    sizes: tuple[int, ...] = ()

    def arguments(self, data: Any) -> list[Any]:
        return [data, *self.sizes]


def _begin(kernel: str, width: int, *names: str) -> list[str]:
    """The head of a kernel, and `own_place`."""
    return [
        f"# Kernel: {kernel}",
        "# Arch: sm_90",
        "# Param: ptr data",
        *(f"# Param: u32 {name}" for name in names),
        *own_place("data", width, *names),
    ]


def _end(text: list[str]) -> str:
    return "\n".join([*text, line("NOP", stall=2), "--:-:-:Y:5      EXIT;"]) + "\n"


def _next(to: int, at: int, by: int, wait: int) -> list[str]:
    return [line(f"IADD3 R{to}, P2, R{at}, R{by}, RZ", wait=wait, stall=6),
            line(f"IADD3.X R{to + 1}, R{at + 1}, RZ, RZ, P2, !PT", stall=6)]


def moving(loads: int, stores: int, width: int, mib: int) -> Launch:
    """Threads with so many loads and stores of so many bytes each, on so many MiB; what is stored lies behind what is
    loaded."""
    kernel, suffix = f"launch_{loads}_{stores}_{width}", {4: "", 16: ".128"}[width]
    text = [*_begin(kernel, width, "stores", "across"), *_next(6, 4, 2, 24)]
    for n in range(loads):
        text.append(line(f"LDG.E{suffix} R{8 + n * width // 4}, desc[UR4][R4.64]", write=1, read=2, stall=2))
        text += _next(4, 4, 3, 2) if n < loads - 1 else []
    text.append(line("NOP", wait=3, stall=2))
    for n in range(stores):
        value = 8 + n % max(loads, 1) * width // 4
        text.append(line(f"STG.E{suffix} desc[UR4][R6.64], R{value}", read=2, stall=2))
        text += _next(6, 6, 3, 2) if n < stores - 1 else []
    blocks = mib * MIB // (THREADS * width * (loads + stores))
    across = blocks * THREADS * width  # bytes from a thread's load to its next
    name = f"launch of {loads} loads and {stores} stores of {width} bytes, {mib} MiB"
    return Launch(name, kernel, _end(text), blocks, THREADS, mib, (across * loads, across))


def _words(kernel: str, name: str, count: int, step: int, apart: int, mib: int) -> Launch:
    """Threads, so many bytes apart, that store so many words one behind the other, `step` bytes between two."""
    text = [*_begin(kernel, apart), *(line(f"STG.E desc[UR4][R4.64+{step * n:#x}], R9", read=2, stall=2)
                                      for n in range(count))]
    return Launch(name, kernel, _end(text), mib * MIB // (THREADS * apart), THREADS, mib)


def sparse(words: int, apart: int, mib: int) -> Launch:
    """Threads that store so many neighbouring words one behind the other, so many bytes apart."""
    return _words(f"sparse_{words}_{apart}", f"launch of {words} words of every {apart} bytes, {mib} MiB",
                  words, 4, apart, mib)


def sectors(count: int, mib: int) -> Launch:
    """Threads that store a word of so many sectors of a line each, one behind the other."""
    name = f"launch of a word of each of {count} sectors of every line, one behind the other, {mib} MiB"
    return _words(f"sparse_sectors_{count}", name, count, 32, 128, mib)


def behind(back: int) -> Launch:
    """Blocks, one an SM, that store a word of every 32 bytes of 24 MiB, a MiB at a time, and with each the next word of
    what they have stored so many MiB before."""
    kernel, blocks, mib = f"sparse_behind_{back}", MIB // (THREADS * 32), 24
    text = [*_begin(kernel, 32), line("MOV R6, R4", stall=6), line("MOV R7, R5", stall=6)]
    for n in range(mib):
        text += [line("STG.E desc[UR4][R4.64], R9", read=1, stall=2), *advance(4, MIB)]
        if n >= back:
            text += [line("STG.E desc[UR4][R6.64+0x4], R9", read=1, stall=2), *advance(6, MIB)]
    name = f"launch of a word of every 32 bytes of {mib} MiB and the next one {back} MiB behind it"
    return Launch(name, kernel, _end(text), blocks, THREADS, mib)


def _by_chance(index: str, width: int, piece: int) -> list[str]:
    """R4 goes on to the `index`-th place of so many bytes, in pieces of so many that follow each other as by chance.
    R2: how many pieces there are, a power of two, less 1."""
    each = piece // width
    return [
        line(f"SHF.R.U32.HI R10, RZ, {each.bit_length() - 1:#x}, {index}", stall=6),
        line("IMAD R10, R10, 0x9e3779b1, RZ", wait=8, stall=6),
        line("LOP3.LUT R10, R10, R2, RZ, 0xc0, !PT", stall=6),
        line(f"LOP3.LUT R11, {index}, {each - 1:#x}, RZ, 0xc0, !PT", stall=6),
        line(f"IMAD.WIDE.U32 R4, R10, {piece:#x}, R4", stall=6),
        line(f"IMAD.WIDE.U32 R4, R11, {width:#x}, R4", stall=6),
    ]


def anywhere(stores: bool, piece: int, mib: int) -> Launch:
    """Threads that load or store 16 bytes: of so many MiB all once, in pieces of so many bytes in an order as by
    chance."""
    kernel = f"anywhere_{'stores' if stores else 'loads'}_{piece}"
    text = [
        *_begin(kernel, 0, "mask"),
        *_by_chance("R9", 16, piece),
        line("STG.E.128 desc[UR4][R4.64], R8", read=2, stall=2) if stores else
        line("LDG.E.128 R8, desc[UR4][R4.64]", write=1, read=2, stall=2),
        line("NOP", wait=3, stall=2),
    ]
    name = f"launch of {'stores' if stores else 'loads'} of pieces of {piece} bytes, {mib} MiB"
    return Launch(name, kernel, _end(text), mib * MIB // (16 * THREADS), THREADS, mib, (mib * MIB // piece - 1,))


def halves(piece: int, times: int, mib: int) -> Launch:
    """Threads that store every second word of so many MiB, a power of two, once, or then the others: in pieces of so
    many bytes in an order as by chance, or all in order where that is 0."""
    whole = mib * MIB
    kernel, each = f"halves_{piece}_{mib}", piece or whole
    text = [
        *_begin(kernel, 0, "mask"),
        line(f"SHF.R.U32.HI R13, RZ, {(whole // 8).bit_length() - 1:#x}, R9", stall=6),
        line(f"LOP3.LUT R12, R9, {whole // 8 - 1:#x}, RZ, 0xc0, !PT", stall=6),
        *_by_chance("R12", 8, each),
        line("IMAD.WIDE.U32 R4, R13, 0x4, R4", stall=6),
        line("STG.E desc[UR4][R4.64], R9", read=2, stall=2),
    ]
    order = f"in pieces of {piece} bytes" if piece else "in order"
    name = f"launch of every second word{', then the others' * (times - 1)}, {order}, {mib} MiB"
    return Launch(name, kernel, _end(text), times * whole // 8 // THREADS, THREADS, mib, (whole // each - 1,))


def resting(warps: int, rests: int, stores: int) -> Launch:
    """Blocks of so many warps that rest so many times 15 cycles, and store a word of each thread at the end or
    nothing."""
    kernel, blocks = f"resting_{rests}_{stores}", SMS * min(32, 64 // warps) * GENERATIONS
    text = [*_begin(kernel, 4), *(line("NOP", stall=15, turn=True) for _ in range(rests)),
            *(line("STG.E desc[UR4][R4.64], R9", read=2, stall=2) for _ in range(stores))]
    name = f"blocks of {warps} warps that rest {rests} times{' and store' if stores else ''}"
    return Launch(name, kernel, _end(text), blocks, 32 * warps, -(-4 * blocks * 32 * warps // MIB))


def every() -> Iterator[Launch]:
    for loads, stores, width in KINDS:
        for mib in SIZES:
            yield moving(loads, stores, width, mib)
    for words, apart in SPARSE:
        for mib in SIZES[:4]:
            yield sparse(words, apart, mib)
    for count in SECTORS:
        for mib in (16, 64, 128):
            yield sectors(count, mib)
    for back in BEHIND:
        yield behind(back)
    for piece in (0, 128, 64, 32):
        for mib in (8, 16, 32):
            for times in (1, 2):
                yield halves(piece, times, mib)
    for piece in PIECES:
        for stores in (False, True):
            for mib in (64, 128):
                yield anywhere(stores, piece, mib)
    for rests in (0, 20, 60, 180):
        for stores in (0, 1):
            for warps in (1, 2, 4, 8, 16, 32):
                yield resting(warps, rests, stores)


def cubin() -> bytes:
    """The kernels of all launches."""
    return assembled("".join({launch.kernel: launch.source for launch in every()}.values()))
