"""Probes of what is touched for the first time: parameters, constants, memory of a page, lines of code. Each warp runs
the steps once, with a clock behind each; Nsight Compute around the process decides what the caches hold at the begin.

    ncu --cache-control all|none --clock-control none --metrics sm__cycles_active.max ... \
        python -m maxdnn.simulator.probes --first FILE.json --cubin FILE.cubin
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from .frame import assembled, line, own_place

PLACES = 32  # stamps of a thread
BIG = 512 << 20
_FIRST = 20  # register of the first stamp


def _loads(offset: int) -> list[str]:
    return [
        line(f"IADD3 R10, P2, R4, {offset:#x}, RZ", stall=6),
        line("IADD3.X R11, R5, RZ, RZ, P2, !PT", stall=6),
        line("LDG.E R12, desc[UR4][R10.64]", write=2, stall=2),
        line("NOP", wait=2, stall=6),
    ]


def _jump(number: int, instructions: int) -> list[str]:
    return [
        f"--:-:-:Y:5      BRA FAR{number};",
        *(line("NOP") for _ in range(instructions)),
        f"FAR{number}:",
    ]


STEPS: tuple[tuple[str, list[str]], ...] = (
    ("begin", []),
    ("again", []),
    ("ULDC of a parameter", [line("ULDC UR8, param_step", stall=9), line("MOV R12, UR8", stall=6)]),
    ("LDC of a parameter", [line("LDC.64 R4, param_data[0]", write=2, stall=2), line("NOP", wait=2, stall=6)]),
    ("S2R", [line("S2R R9, SR_CTAID.X", write=2, stall=2), line("NOP", wait=2, stall=6)]),
    ("place", [line("IMAD.WIDE.U32 R4, R9, R12, R4", stall=6), line("ULDC.64 UR4, c[0x0][0x208]", stall=9)]),
    ("LDG, first", _loads(0)),
    ("LDG, the same", _loads(0)),
    ("LDG, next line", _loads(128)),
    ("LDG, 4 KiB on", _loads(4 << 10)),
    ("LDG, 64 KiB on", _loads(64 << 10)),
    ("LDG, 2 MiB on", _loads(2 << 20)),
    ("LDG, 2 MiB and 256 on", _loads((2 << 20) + 256)),
    ("LDG, 32 MiB on", _loads(32 << 20)),
    ("LDG, 128 MiB on", _loads(128 << 20)),
    ("LDG, 128 MiB and 256 on", _loads((128 << 20) + 256)),
    ("straight code, 128", [line("NOP") for _ in range(128)]),
    ("straight code, 512", [line("NOP") for _ in range(512)]),
    ("jump over 4 KiB", _jump(1, 256)),
    ("straight code, 128, behind it", [line("NOP") for _ in range(128)]),
    ("jump over 16 KiB", _jump(2, 1024)),
    ("jump over 48 KiB", _jump(3, 3072)),
    ("straight code, 128, far", [line("NOP") for _ in range(128)]),
    ("BAR", [line("BAR.SYNC.DEFER_BLOCKING 0x0", stall=6)]),
    ("end", []),
)


def source(name: str = "first") -> str:
    body: list[str] = []
    for number, (_, steps) in enumerate(STEPS):
        body += [*steps, line(f"CS2R.32 R{_FIRST + number}, SR_CLOCKLO", stall=11)]
    end = [
        line("S2R R7, SR_TID.X", write=1),
        line("ULDC UR6, c[0x0][0x0]", stall=9),
        line("LDC.64 R58, param_out[0]", write=3, stall=8),
        line("IMAD R9, R9, UR6, R7", wait=1, stall=6),
        line(f"IMAD.WIDE.U32 R58, R9, {4 * PLACES:#x}, R58", wait=4, stall=6),
        *(
            line(f"STG.E.128 desc[UR4][R58.64+{16 * n:#x}], R{_FIRST + 4 * n}", stall=2)
            for n in range(-(-len(STEPS) // 4))
        ),
        "--:-:-:Y:5      EXIT;",
    ]
    head = [f"# Kernel: {name}", "# Arch: sm_90", "# Param: ptr out", "# Param: ptr data", "# Param: u32 n",
            "# Param: u32 step"]
    return "\n".join([*head, *body, *end]) + "\n"


BEGIN = 0, 2, 4, 8, 16, 24, 32, 40, 48, 56, 60  # KiB over which kernels jump as they begin


def beginning(kib: int) -> str:
    """A kernel that jumps so far at once and runs 128 instructions there, with a clock before and behind each."""
    far = _jump(0, 64 * kib) if kib else []
    stamp = [line(f"CS2R.32 R{_FIRST + n}, SR_CLOCKLO", stall=11) for n in range(3)]
    body = [stamp[0], *far, stamp[1], *(line("NOP") for _ in range(128)), stamp[2]]
    end = [
        *own_place("out", 16),
        line(f"STG.E.128 desc[UR4][R4.64], R{_FIRST}", stall=6),
        "--:-:-:Y:5      EXIT;",
    ]
    return "\n".join([f"# Kernel: begin_{kib}", "# Arch: sm_90", "# Param: ptr out", *body, *end]) + "\n"


def empty(name: str = "nothing") -> str:
    """A kernel that ends at once: what a launch takes besides."""
    return "\n".join([f"# Kernel: {name}", "# Arch: sm_90", "# Param: ptr out", "--:-:-:Y:5      EXIT;"]) + "\n"


def cubin() -> bytes:
    return assembled(source() + empty() + "".join(map(beginning, BEGIN)))


def run(device: Any, code: bytes, out: Path) -> None:
    """Launches of one block and of one for each SM, whose loads are a line or a MiB apart: clocks between the stamps of
    each block's first thread. Of kernels that jump as they begin ("begin n KiB on") those of each warp."""
    module = device.load(code)
    big, rows = device.alloc(BIG), []
    device.upload(big, np.zeros(BIG // 4, np.float32))
    for blocks, step, warps in ((1, 0, 1), (132, 128, 1), (132, 1 << 20, 1), (132, 0, 1), (132, 128, 8)):
        for _ in range(2):
            words = device.alloc(4 * PLACES * 32 * warps * blocks)
            module.function("first").launch((blocks, 1, 1), (32 * warps, 1, 1), [words, big, 1, step])
            device.synchronize()
            found = np.zeros((blocks, warps, 32, PLACES), np.uint32)
            device.download(words, found)
            clocks = np.diff(found[:, 0, 0, :len(STEPS)].astype(np.int64), axis=1)
            rows.append({"blocks": blocks, "step": step, "warps": warps,
                         "names": [name for name, _ in STEPS[1:]],
                         "median": np.median(clocks, 0).tolist(), "most": clocks.max(0).tolist()})
    for blocks, threads in ((1, 32), (132, 32), (132, 256)):
        for kib in BEGIN:
            words = device.alloc(16 * blocks * threads)
            module.function(f"begin_{kib}").launch((blocks, 1, 1), (threads, 1, 1), [words])
            device.synchronize()
            stamps = np.zeros((blocks, threads, 4), np.uint32)
            device.download(words, stamps)
            clocks = np.diff(stamps[:, ::32, :3].astype(np.int64), axis=2).reshape(-1, 2)
            rows.append({"blocks": blocks, "threads": threads, "begin": kib,
                         "median": np.median(clocks, 0).tolist(), "most": clocks.max(0).tolist()})
    for blocks, threads in ((1, 32), (132, 32), (132, 1024), (1320, 128)):
        for _ in range(2):
            module.function("nothing").launch((blocks, 1, 1), (threads, 1, 1), [big])
            device.synchronize()
    out.write_text(json.dumps(rows, indent=0) + "\n")
