"""Which SM takes which block, and when: kernels whose blocks wait, some of them longer.

    python -m maxdnn.simulator.probes --places FILE.json --cubin FILE.cubin
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .frame import REPEATS, assembled, line, once

ROUND = 2000  # clocks of a block's wait, about
LONGER = 6


SHARED = 0, 8, 16, 24, 32, 40, 47  # KiB of the kernels


def cubin() -> bytes:
    """Kernels whose blocks wait `n` rounds, those below `step` LONGER times as many, one for each size of SHARED."""
    body = [
        line("S2R R10, SR_CTAID.X", write=1),
        line("ULDC UR8, param_n", stall=9),
        line("ULDC UR9, param_step", stall=9),
        line("MOV R12, UR8", stall=6),
        line("ISETP.GE.U32.AND P2, PT, R10, UR9, PT", wait=1, stall=13),
        "--:-:-:Y:5  @P2 BRA WAIT;",
        line(f"IMAD R12, R12, {LONGER:#x}, RZ", stall=6),
        "WAIT:",
        *(line("NOP", stall=15, turn=True) for _ in range(ROUND // 16)),
        line("IADD3 R12, R12, -0x1, RZ", stall=6),
        line("ISETP.NE.AND P3, PT, R12, RZ, PT", stall=13),
        "--:-:-:Y:5  @P3 BRA WAIT;",
    ]
    return assembled("".join(once(f"places_{kib}", body, shared=kib << 10).source for kib in SHARED))


def grids() -> Iterator[tuple[int, int, int, int]]:
    """(blocks, threads, KiB of shared memory, blocks that wait longer)."""
    for blocks, threads, kib in ((264, 1024, 0), (528, 512, 0), (528, 128, 47), (660, 128, 40), (792, 128, 32),
                                 (1056, 128, 24), (1056, 256, 0), (2112, 128, 16), (4224, 64, 0), (528, 128, 0),
                                 (224, 128, 47), (256, 128, 47), (256, 256, 0), (400, 128, 47), (400, 128, 40),
                                 (425, 128, 47), (84, 128, 40), (132, 32, 0), (100, 128, 47), (264, 256, 0),
                                 (140, 128, 47), (160, 128, 47), (192, 128, 47), (200, 128, 47), (212, 128, 47),
                                 (240, 128, 47), (192, 64, 0), (50, 128, 47), (66, 128, 47), (72, 128, 47),
                                 (120, 128, 47)):
        for part in (0, 8, 4, 2):
            yield blocks, threads, kib, blocks // part if part else 0


def run(device: Any, code: bytes, out: Path) -> None:
    """SM, begin and end of each block, in the order of their numbers."""
    module, rows = device.load(code), []
    for blocks, threads, kib, longer in grids():
        for _ in range(2):
            words = device.alloc(16 * REPEATS * threads * blocks)
            module.function(f"places_{kib}").launch((blocks, 1, 1), (threads, 1, 1), [words, words, 1, longer])
            device.synchronize()
            seen = np.zeros((blocks, threads, REPEATS, 4), np.uint32)
            device.download(words, seen)
        start, end, sm = (seen[:, 0, 0, k].astype(int).tolist() for k in range(3))
        rows.append({"blocks": blocks, "threads": threads, "shared": kib, "longer": longer, "sm": sm,
                     "start": start, "end": end})
    out.write_text(json.dumps(rows) + "\n")
