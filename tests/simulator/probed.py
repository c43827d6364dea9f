"""Probes of sm_90 in the timing model, beside what cards answered."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from maxdnn.emulator.gpu import VirtualGpu
from maxdnn.simulator import timing
from maxdnn.simulator.probes import run

ROOT = Path(__file__).parents[2]
H200, H100 = (json.loads((ROOT / "benchmarks" / "results" / f"probes.{card}.json").read_text())
              for card in ("h200", "h100"))
ANSWERS, OF_H100 = H200["slopes"], H100["slopes"]
CLOCK = "SR_CLOCKLO"


def stand_of(name: str) -> tuple[int, run.Stand]:
    number = [probe.name for probe in run.probes()].index(name)
    return number, run.Stand(VirtualGpu(), run.cubin([run.probes()[number]]))


def slope(name: str, warps: int, stand: run.Stand, number: int, blocks: int = 1, machine: str = "h200",
          trace: int = 1000000) -> float:
    """Clocks that one more instruction takes, as the probe's kernel would count them on the modelled chip; of a probe
    of one length the clocks."""
    probe, clocks = run.probes()[number], []
    for length in probe.lengths:
        function = stand.module.function(f"probe_{number}_{length}")
        stand.device.upload(stand.words, np.array(probe.words, np.uint32))
        own = blocks == 1 and probe.big <= stand.words.nbytes
        data = stand.words if own else stand.device.alloc(probe.big)
        out = stand.device.alloc(1 << 22)
        result = timing.launch(
            function,
            (blocks, 1, 1),
            (32 * warps, 1, 1),
            [out, data, 1, 0],
            machine=machine,
            options=timing.Options(trace=(0, trace)),
            full=True,
        )
        begins, ends = stamps(function, result)
        clocks.append(ends.max() - begins[:, -1].min())
    if len(clocks) == 1:
        return float(clocks[0])
    return float(clocks[-1] - clocks[0]) / (probe.lengths[-1] - probe.lengths[0])


def clocks_of_runs(number: int, stand: run.Stand, length: int, rounds: int) -> np.ndarray:
    """Of each run of a probe that all SMs of an H100 run, from the first warp's begin to the last one's end."""
    probe, function = run.probes()[number], stand.module.function(f"probe_{number}_{length}")
    data, out = stand.device.alloc(probe.big), stand.device.alloc(1 << 24)
    result = timing.launch(function, (probe.blocks, 1, 1), (32 * probe.warps[0], 1, 1), [out, data, rounds, 0],
                           machine="h100", options=timing.Options(trace=(0, 1000000)))
    begins, ends = stamps(function, result)
    return ends.max(0) - begins.min(0)


def stamps(function: Any, result: Any) -> tuple[np.ndarray, np.ndarray]:
    """The clocks that each warp reads first and last in each run: (warps, runs)."""
    code, events = function.kernel.instructions, result.events
    clocks = [i for i, inst in enumerate(code) if inst.opcode == "CS2R" and CLOCK in inst.text()]
    first, last = (events[events[:, 3] == at] for at in (clocks[0], clocks[-1]))
    return _by_warp(first), _by_warp(last)


def _by_warp(events: np.ndarray) -> np.ndarray:
    return np.array([np.sort(events[events[:, 2] == warp, 0]) for warp in np.unique(events[:, 2])])
