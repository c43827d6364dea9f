"""Assembling probes, running them on a device and writing what they said."""

import functools
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...runtime.devices.protocol import Device
from . import (
    amid,
    atomics,
    branches,
    bursts,
    contention,
    deferred,
    fences,
    gathers,
    in_turn,
    issue,
    loaded,
    local,
    loops,
    memory,
    misses,
    more_kinds,
    order,
    shared_pipe,
    stores,
    tensor,
    turns,
    wide,
)
from .frame import REPEATS, assembled
from .probe import Probe

_CONSTANTS = re.compile("^# Constant: .*\\n", re.MULTILINE)
_WORDS = 4  # of a run of a thread: clock before, clock after, SM, nanoseconds
_LONG = 20_000  # nanoseconds that tell how fast the clock runs


_PARTS: tuple[Callable[[], Iterator[Probe]], ...] = (
    issue.streams,
    issue.banks,
    issue.chains,
    issue.depth,
    memory.shared,
    memory.hits,
    memory.latencies,
    memory.rates,
    memory.code,
    memory.blocks,
    tensor.products,
    tensor.products_queue,
    tensor.products_beside,
    tensor.barriers,
    tensor.copies,
    tensor.thread_copies,
    tensor.products_amid,
    tensor.shared_copies,
    memory.shared_rates,
    memory.sector_stores,
    memory.long_rates,
    memory.copies,
    contention.beside,
    contention.kept,
    contention.line_parts,
    gathers.gathers,
    gathers.shared_atomics,
    gathers.stored,
    loaded.waited_for,
    loaded.beside_stores,
    loaded.few_sms,
    loaded.parts_of_sectors,
    gathers.places,
    gathers.kept_apart,
    gathers.filling,
    gathers.swapped,
    issue.flows,
    bursts.bursts,
    bursts.kept_written,
    bursts.kept_plain,
    tensor.kept_copies,
    branches.jumps,
    branches.loops,
    branches.alone,
    branches.among,
    branches.left,
    branches.calls,
    more_kinds.more_kinds,
    more_kinds.guarded,
    local.behind_stores,
    local.local_rates,
    local.kept,
    local.constants,
    misses.missing,
    misses.mixed,
    misses.partly,
    misses.on_their_way,
    misses.scoreboards,
    misses.words_of_sectors,
    misses.walks,
    amid.products,
    amid.writes,
    amid.gaps,
    fences.fences,
    stores.rows,
    stores.new_rows,
    stores.words_in_turn,
    stores.rows_in_turn,
    stores.warps_behind,
    memory.shared_apart,
    tensor.copies_apart,
    atomics.met,
    atomics.anywhere,
    atomics.anywhere_in_shared,
    atomics.swapped_by_turns,
    atomics.loaded_and_changed,
    turns.turns,
    order.behind,
    order.beside,
    order.batches,
    order.filled,
    branches.lines_in_turn,
    gathers.far_lines,
    amid.waited_for,
    amid.waited_by_sums,
    shared_pipe.loads,
    shared_pipe.waited_for,
    shared_pipe.beside_some,
    in_turn.rounds,
    in_turn.chains,
    in_turn.streams,
    deferred.kinds,
    stores.places,
    wide.followed,
    wide.read,
    wide.divisions,
    wide.mixes,
    loops.loops,
    stores.grouped,
    loaded.tiles,
    tensor.fences_beside,
)


@functools.cache
def _with_modules() -> tuple[tuple[str, Probe], ...]:
    return tuple((part.__module__.rpartition(".")[2], probe) for part in _PARTS for probe in part())


@functools.cache
def probes() -> tuple[Probe, ...]:
    """All of them, in a fixed order."""
    return tuple(probe for _, probe in _with_modules())


def modules() -> list[str]:
    """The modules of this package that have probes. All of them are too much for one assembly."""
    return list(dict.fromkeys(module for module, _ in _with_modules()))


def of_modules(names: Sequence[str]) -> list[Probe]:
    """Those of some modules of this package."""
    return [probe for module, probe in _with_modules() if module in names]


def cubin(chosen: Sequence[Probe] | None = None) -> bytes:
    """The kernels of all probes, or of some."""
    wanted = {id(probe) for probe in (probes() if chosen is None else chosen)}
    text, constants = [], False
    for number, probe in enumerate(probes()):
        for kernel in probe.kernels(number) if id(probe) in wanted else ():
            # the bank is the module's: the first kernel that reads it declares it
            text.append(kernel.source if not constants else _CONSTANTS.sub("", kernel.source))
            constants = constants or _CONSTANTS.search(kernel.source) is not None
    return assembled("".join(text))


class Stand:
    """A device with the probes' kernels and buffers."""

    def __init__(self, device: Device, code: bytes, most: int = 1 << 40) -> None:
        self.device, self.module, self.most = device, device.load(code), most
        self._big: Any = None
        self.words = device.alloc(1 << 18)  # threads read beyond their words, too

    def _data(self, probe: Probe) -> tuple[Any, int]:
        if not probe.big:
            self.device.upload(self.words, np.array(probe.words, np.uint32))
            return self.words, 0
        size = min(probe.big, self.most)
        if self._big is None or self._big.nbytes < size:
            self._big = self.device.alloc(size)
        if probe.chase[0]:
            nbytes, stride = min(probe.chase[0], size), probe.chase[1]
            places = np.arange(0, nbytes, stride)
            order = np.random.default_rng(1).permutation(places)
            order = np.roll(order, -int(np.flatnonzero(order == 0)[0]))
            image = np.zeros(nbytes // 8, np.uint64)
            image[order // 8] = np.uint64(self._big.address) + np.roll(order, -1).astype(np.uint64)
            self.device.upload(self._big, image)
        return self._big, size

    def run(self, number: int, probe: Probe, length: int, warps: int, blocks: int | None = None) -> np.ndarray:
        """(blocks, warps, REPEATS, words): what the first thread of each warp kept."""
        data, size = self._data(probe)
        blocks = probe.blocks if blocks is None else blocks
        n = probe.n if not size or size == probe.big else 1
        out = self.device.alloc(4 * _WORDS * REPEATS * 32 * warps * blocks)
        function = self.module.function(f"probe_{number}_{length}")
        function.launch((blocks, 1, 1), (32 * warps, 1, 1), [out, data, n, probe.step], shared_bytes=probe.dynamic)
        self.device.synchronize()
        found = np.empty((blocks, warps, 32, REPEATS, _WORDS), np.uint32)
        self.device.download(out, found)
        return found[:, :, 0, :1] if probe.once else found[:, :, 0]


def _summary(found: np.ndarray) -> dict[str, Any]:
    """Clocks of each run: of a block the last end less the first start; of several the median. Of the last run each
    warp's start and end."""
    start, end = found[..., 0].astype(np.int64), found[..., 1].astype(np.int64)
    first = start.min(1, keepdims=True)
    span = (end - first).max(1) % (1 << 32)
    row: dict[str, Any] = {"clocks": np.median(span, 0).astype(int).tolist()}
    ends = found[:, 0, :, [1, 3]].astype(np.int64)
    clocks, passed = (ends[:, :, -1] - ends[:, :, 0]) % (1 << 32)
    if passed.min() > _LONG:
        row["mhz"] = round(1000 * float(np.median(clocks / passed)))
    if len(found) == 1:
        row["each"] = np.stack([(start - first)[0, :, -1], (end - first)[0, :, -1]], 1).tolist()
    else:
        row["each"] = [
            [int(b[0, 0, 2]), int(b[:, 0, 0].min()), int(b[:, -1, 1].max())] for b in found if b[0, 0, 2] < 4
        ]
        row["most"] = int(span[:, -1].max())
    return row


def row_of(stand: Stand, number: int, length: int, warps: int) -> dict[str, Any]:
    """What a probe of some length says in blocks of so many warps."""
    probe = probes()[number]
    return {
        "probe": probe.name,
        "length": length,
        "warps": warps,
        "grid": probe.blocks,
        "n": probe.n,
        **_summary(stand.run(number, probe, length, warps)),
    }


def tasks(code: bytes) -> list[tuple[int, int, int]]:
    """(probe, length, warps) of all that the cubin has kernels for."""
    return [
        (number, length, warps)
        for number, probe in enumerate(probes())
        for warps in probe.warps
        for length in probe.lengths
        if f"probe_{number}_{length}\0".encode() in code
    ]


def work(device: Any, code: bytes, first: int, rows: Path) -> None:
    """Run tasks from `first` on and add a line for each, what is run next before it is."""
    with rows.open("a") as file:

        def tell(row: dict[str, Any]) -> None:
            file.write(json.dumps(row) + "\n")
            file.flush()

        if rows.stat().st_size == 0:
            tell({"device": device.facts(), "repeats": REPEATS})
        stand = Stand(device, code)
        for at, (number, length, warps) in enumerate(tasks(code)[first:], first):
            tell({"next": at})
            tell(row_of(stand, number, length, warps))


def report(cubins: Sequence[Path], out: Path, seconds: float) -> None:
    """Run everything on GPU 0 and write a line of JSON for each answer."""
    end = time.monotonic() + seconds
    out.write_text("")
    every = sum(_reported(code, out, end) for code in cubins)
    print(f"{sum('length' in text for text in out.read_text().splitlines())} of {every} answers")


def _reported(code: Path, out: Path, end: float) -> int:
    """Add the answers of a cubin until the clock says `end`: how many there should be. What a GPU refuses ends the
    process that asked, and another one goes on behind it."""
    first, every = 0, tasks(code.read_bytes())
    begin = len(out.read_text().splitlines())
    while first < len(every) and time.monotonic() < end:
        command = [sys.executable, "-m", __package__, "--cubin", str(code), "--work", str(first), "--out", str(out)]
        try:
            done = subprocess.run(
                command, timeout=max(5.0, end - time.monotonic()), check=False, capture_output=True, text=True
            )
        except subprocess.TimeoutExpired:
            print(f"{code.name}: time is up")
            break
        if done.returncode == 0:
            break
        said = [json.loads(text) for text in out.read_text().splitlines()[begin:]]
        at = next((row["next"] for row in reversed(said) if "next" in row), -1)
        print(f"task {at}: {every[at] if at >= 0 else 'none'} {probes()[every[at][0]].name}\n{done.stderr[-600:]}")
        if at < first:
            break
        first = at + 1
    return len(every)
