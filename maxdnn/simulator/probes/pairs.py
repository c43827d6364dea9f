"""What the SMs of a TPC and of a GPC share: the same work on so many SMs, each with a block.

    python -m maxdnn.simulator.probes --pairs FILE.json --cubin FILE.cubin
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from .frame import REPEATS, again, assembled, kernel, line, of_block, rounds

BLOCKS = 1, 8, 40, 66, 72, 84, 96, 120, 132
WARPS, ROUNDS, REGION = (1, 4, 16), 64, 1 << 20
ACCESSES = 8  # of a warp in a round


def _accesses(text: str, width: int, wait: bool, codes: dict[str, int]) -> list[str]:
    """Rounds of accesses of a warp, each to so many bytes of the thread's own."""
    body = [
        line("S2R R13, SR_CTAID.X", write=1, stall=2),
        line("NOP", wait=1, stall=6),
        *of_block(13, REGION, ACCESSES * 32 * width, width),
        *rounds("ROUND"),
    ]
    for n in range(ACCESSES):
        body.append(line(text.format(at=f"desc[UR4][R10.64+{n * 32 * width:#x}]", d=16 + 4 * n), stall=2, **codes))
        if wait:
            body.append(line("NOP", wait=2, stall=2))
    return [*body, line("NOP", wait=2, stall=2), *again("ROUND")]


KINDS = {
    "loads": _accesses("LDG.E.128.STRONG.GPU R{d}, {at}", 16, False, {"write": 2}),
    "loads of words": _accesses("LDG.E.STRONG.GPU R{d}, {at}", 4, False, {"write": 2}),
    "chain": _accesses("LDG.E.STRONG.GPU R{d}, {at}", 4, True, {"write": 2}),
    "stores": _accesses("STG.E.128 {at}, R48", 16, False, {"read": 2}),
    "stores of words": _accesses("STG.E {at}, R48", 4, False, {"read": 2}),
    "loads that hit": _accesses("LDG.E.128 R{d}, {at}", 16, False, {"write": 2}),
}


def named(kind: str) -> str:
    return "pairs_" + kind.replace(" ", "_")


def cubin() -> bytes:
    return assembled("".join(kernel(named(kind), body, quiet=True).source for kind, body in KINDS.items()))


def run(device: Any, code: bytes, out: Path) -> None:
    """Clocks of an access of each block's slowest warp, in the median of all runs but the first: their mean, the most,
    and those of each block with its SM."""
    module, rows = device.load(code), []
    big = device.alloc(REGION * 132)
    device.upload(big, np.zeros(REGION * 132 // 4, np.float32))
    for kind in KINDS:
        for warps in WARPS:
            for blocks in BLOCKS:
                words = device.alloc(16 * REPEATS * 32 * warps * blocks)
                module.function(named(kind)).launch((blocks, 1, 1), (32 * warps, 1, 1), [words, big, ROUNDS, 0])
                device.synchronize()
                seen = np.zeros((blocks, 32 * warps, REPEATS, 4), np.uint32)
                device.download(words, seen)
                runs = (seen[:, ::32, 1:, 1].astype(np.int64) - seen[:, ::32, 1:, 0]).max(1)
                clocks = np.median(runs, 1) / (ROUNDS * ACCESSES)
                rows.append({"kind": kind, "warps": warps, "blocks": blocks,
                             "mean": round(float(clocks.mean()), 1), "most": round(float(clocks.max()), 1),
                             "sm": seen[:, 0, 0, 2].astype(int).tolist(), "clocks": clocks.tolist()})
    out.write_text(json.dumps(rows) + "\n")
