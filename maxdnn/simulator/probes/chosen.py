"""What the SMs of a CPC, of a GPC and of the whole chip share on their way to L2: the same work on SMs that are chosen,
while the others rest. Which TPCs make a CPC is asked first: stores of two of them slow each other down.

    python -m maxdnn.simulator.probes --chosen FILE.json --cubin FILE.cubin
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import tensor
from .frame import REPEATS, again, assembled, control, kernel, line, of_block, rounds

SMS, WARPS, ROUNDS, ACCESSES = 132, (4, 16), 32, 8
COPIES, PIECE = 32, 1 << 14  # of bulk copies: how many, bytes of each
LINES, APART = 256, 4096 + 128  # of a chain: how many, bytes from one to the next
FLAGS, REGION = 4096, 1 << 18  # bytes: whether each SM works, and behind them what a block accesses
SLOWED = 1.03  # by how much two TPCs of a CPC slow each other's stores down at least
GPC = range(0, 24, 8)  # TPCs of all CPCs of the first of eight GPCs
TPCS = [(sm, sm + 1) for sm in range(0, SMS, 2)]


def _begin() -> list[str]:
    """Only warps of chosen SMs go on; R20 is the number of the block."""
    return [
        line("S2R R20, SR_CTAID.X", write=1, stall=2),
        line("IMAD.WIDE.U32 R60, R2, 0x4, R4", stall=6),
        line("LDG.E R21, desc[UR4][R60.64]", write=1, stall=2),
        line("NOP", wait=1, stall=6),
        line("ISETP.EQ.AND P3, PT, R21, RZ, PT", stall=13),
        "--:-:-:Y:5  @P3 BRA REST;",
    ]


def _rest() -> list[str]:
    return ["REST:", line("NOP", stall=4)]


def _accesses(text: str, apart: int, codes: dict[str, int]) -> list[str]:
    """Rounds of accesses of warps, so many bytes apart from lane to lane."""
    body = [*_begin(), *of_block(20, REGION, ACCESSES * 32 * apart, apart), *rounds("ROUND")]
    for n in range(ACCESSES):
        at = f"desc[UR4][R10.64+{FLAGS + n * 32 * apart:#x}]"
        body.append(line(text.format(at=at, d=16 + 4 * n), stall=2, **codes))
    return [*body, line("NOP", wait=2, stall=2), *again("ROUND"), *_rest()]


def _copies() -> list[str]:
    """Bulk copies of a warp, two at a time, of the same two pieces of memory again and again."""
    body = [*_begin(), line(f"UMOV UR28, {PIECE // 16:#x}", stall=6),
            line(f"IMAD.MOV.U32 R15, RZ, RZ, {2 * PIECE:#x}", stall=6),
            line(f"IMAD.WIDE.U32 R10, R20, {REGION:#x}, R4", stall=6)]
    for n in range(COPIES // 2):
        body.append(f"{control(stall=2)} @!P4 SYNCS.ARRIVE.TRANS64 RZ, [R13+URZ], R15;")
        for k in range(2):
            body += tensor.copied(10, FLAGS + k * PIECE, 0x400 + k * PIECE)
        body += [*tensor.waiting(f"HERE{n}"), tensor.turned()]
    return [*body, *_rest()]


def _chain() -> list[str]:
    """Loads of a warp that are waited for, the same lines of all SMs."""
    body = _begin()
    for n in range(LINES):
        body += [line(f"LDG.E.STRONG.GPU R10, desc[UR4][R4.64+{FLAGS + n * APART:#x}]", write=2, stall=2),
                 line("NOP", wait=2, stall=2)]
    return [*body, *_rest()]


CHAIN, BULK = "chain", "bulk copies of 16 KiB"
KINDS = {
    "loads": _accesses("LDG.E.128.STRONG.GPU R{d}, {at}", 16, {"write": 2}),
    "loads of sectors": _accesses("LDG.E.STRONG.GPU R{d}, {at}", 32, {"write": 2}),
    "loads of lines": _accesses("LDG.E.STRONG.GPU R{d}, {at}", 128, {"write": 2}),
    "stores": _accesses("STG.E.128 {at}, R48", 16, {"read": 2}),
    "stores of sectors": _accesses("STG.E {at}, R48", 32, {"read": 2}),
    "stores of lines": _accesses("STG.E {at}, R48", 128, {"read": 2}),
}


def named(kind: str) -> str:
    return "chosen_" + kind.replace(" ", "_")


def cubin() -> bytes:
    kinds = KINDS | {CHAIN: _chain()}
    plain = [kernel(named(kind), body, quiet=True) for kind, body in kinds.items()]
    copies = kernel(named(BULK), _copies(), setup=tensor.COPY, shared=tensor.SHARED, quiet=True)
    return assembled("".join(each.source for each in (*plain, copies)))


class Chosen:
    """A device with the kernels and their memory."""

    def __init__(self, device: Any, code: bytes) -> None:
        self.device, self.module = device, device.load(code)
        self.data = device.alloc(FLAGS + SMS * REGION)
        self.words = device.alloc(16 * REPEATS * 32 * max(WARPS) * SMS)
        device.upload(self.data, np.zeros((FLAGS + SMS * REGION) // 4, np.uint32))

    def clocks(self, kind: str, warps: int, sms: Iterable[int], accesses: int = ROUNDS * ACCESSES) -> dict[int, float]:
        """Of one of so many accesses of each SM's slowest warp, in the median of all runs but the first."""
        flags, chosen = np.zeros(FLAGS // 4, np.uint32), list(sms)
        flags[chosen] = 1
        self.device.upload(self.data, flags)
        self.module.function(named(kind)).launch((SMS, 1, 1), (32 * warps, 1, 1),
                                                [self.words, self.data, ROUNDS, 0])
        self.device.synchronize()
        seen = np.zeros((SMS, 32 * warps, REPEATS, 4), np.uint32)
        self.device.download(self.words, seen)
        runs = (seen[:, ::32, 1:, 1].astype(np.int64) - seen[:, ::32, 1:, 0]).max(1)
        found = dict(zip(seen[:, 0, 0, 2].tolist(), np.median(runs, 1) / accesses, strict=True))
        return {sm: round(float(found[sm]), 1) for sm in chosen}


def groups(edges: Iterable[tuple[int, int]], count: int) -> list[list[int]]:
    """What hangs together by some edges."""
    of = list(range(count))
    for a, b in edges:
        of = [of[a] if group == of[b] else group for group in of]
    return [[n for n in range(count) if of[n] == group] for group in sorted(set(of))]


def cpcs(chosen: Chosen) -> list[list[int]]:
    """The TPCs of each CPC."""
    pairs = list(itertools.combinations(range(len(TPCS)), 2))
    mean = [float(np.mean(list(chosen.clocks("stores of sectors", 16, TPCS[a] + TPCS[b]).values()))) for a, b in pairs]
    least = SLOWED * float(np.median(mean))
    return groups((pair for pair, clocks in zip(pairs, mean, strict=True) if clocks > least), len(TPCS))


def choices(found: Sequence[Sequence[int]]) -> Iterator[tuple[str, list[int]]]:
    """Names and SMs of what is chosen; `found`: the TPCs of each CPC."""
    of = [[TPCS[tpc][half] for half in (0, 1) for tpc in cpc] for cpc in found]  # SMs, one of each TPC first
    for size in sorted({len(cpc) for cpc in found}, reverse=True):
        one = next(sms for sms in of if len(sms) == 2 * size)
        for count in range(1, 2 * size + 1):
            yield f"{count} SMs of a CPC of {size} TPCs", one[:count]
    yield "a GPC", [sm for sms, cpc in zip(of, found, strict=True) if set(cpc) & set(GPC) for sm in sms]
    for count in range(1, 6):
        yield f"{count} SMs of each CPC", [sm for sms in of for sm in sms[:count]]
    yield "all SMs", [sm for sms in of for sm in sms]


def run(device: Any, code: bytes, out: Path) -> None:
    """CPCs by their TPCs, the clocks of a load of L2 that each SM waits for, and those of an access of each choice."""
    chosen = Chosen(device, code)
    found = cpcs(chosen)
    chain = [chosen.clocks(CHAIN, 1, [sm], LINES)[sm] for sm in range(SMS)]
    rows = []
    kinds = [(kind, warps, ROUNDS * ACCESSES) for kind in KINDS for warps in WARPS] + [(BULK, 1, COPIES)]
    for kind, warps, accesses in kinds:
        for what, sms in choices(found):
            clocks = list(chosen.clocks(kind, warps, sms, accesses).values())
            rows.append({"kind": kind, "warps": warps, "what": what, "sms": len(sms), "least": min(clocks),
                         "mean": round(float(np.mean(clocks)), 1), "most": max(clocks)})
    out.write_text(json.dumps({"cpcs": found, "chain": chain, "rows": rows}) + "\n")
