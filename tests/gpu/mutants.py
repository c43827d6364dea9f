"""Weakened control codes of the kernels in machine code of sm_90, run on the GPU that is there: whatever gives wrong
results must be something that the checker reports.

    python -m tests.gpu.mutants [--count N] [--runs R] [--seed S] [--kernels PART] [--seconds S] [--out FILE]

takes N of all weaker codes, spread over kernels and kinds: a barrier less to wait for, a barrier that is not set, a
stall of one cycle or of one cycle less, an operand that is kept for reuse. Each runs R times on a large problem, whole
and in parts, on a small one and on two that add to what is there, in processes that are replaced when a mutant faults
or hangs. Exits with 1 if a wrong one was not reported."""

import argparse
import collections
import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from unittest.mock import patch

import numpy as np

from maxdnn import cubin
from maxdnn.algorithms import registry
from maxdnn.build.cubins import HOPPER, HOPPER_FOLDER
from maxdnn.build.cubins import cubin as built
from maxdnn.checker import check_hazards
from maxdnn.cubin import CubinKernel
from maxdnn.errors import ShapeError
from maxdnn.isa import Control, Instruction
from maxdnn.isa.control import CONTROL_BITS, CONTROL_LSB
from maxdnn.planning.plan import Plan
from maxdnn.problem.problem import LAYOUTS, Problem, data, filters, forward, product
from maxdnn.problem.shape import ConvShape
from maxdnn.runtime import trust
from maxdnn.runtime.devices.protocol import Device
from maxdnn.selftest.kernels import GuardError, outcome
from tests.sass.native import H200

KINDS = ("wait", "write barrier", "read barrier", "no stall", "stall", "reuse")
_PATIENCE = 10.0  # seconds without a word from a process
_JOB = "job.pickle"
_STAYS = ("BRA", "EXIT")  # whose stall is theirs, not a distance
_BEFORE = {**dict.fromkeys(("sm90_split_rows", "sm90_split_columns"), "sm90_tensor_product_128x128"),
           "sm90_split_patches": "sm90_tensor_filters_128x128", "sm90_split_windows": "sm90_tensor_windows_128x128",
           "sm90_interleave": "sm90_tensor_phases_128x128", "sm90_fft_split": "fft_16x16_tensor_sm90",
           **dict.fromkeys(("sm90_winograd_split_maps_4x4_3x3", "sm90_winograd_split_gradients_3x3_4x4"),
                           "winograd_3x3_4x4_tensor_pieces_sm90")}
"""Kernels that no candidate is called by, and one whose plans launch them."""

SHAPES = (  # large ones first
    ConvShape(128, 64, 13, 13, 100, 3, 3, 1, 1), ConvShape(128, 3, 13, 13, 100, 3, 3, 1, 1),
    ConvShape(32, 64, 14, 14, 128, 3, 3, 1, 1), ConvShape(16, 96, 14, 14, 136, 1, 1),
    ConvShape(8, 3, 40, 40, 64, 5, 5, 2, 2), ConvShape(1, 40, 20, 20, 72, 3, 3, 1, 1),
    ConvShape(36, 16, 6, 5, 72, 3, 3, 1, 1), ConvShape(4, 16, 11, 9, 24, 5, 5, 1, 2),
    ConvShape(68, 5, 7, 6, 40, 3, 2, (2, 1), 1),
    ConvShape(4, 24, 9, 7, 36, 1, 1), ConvShape(3, 10, 9, 8, 20, 3, 3, 1, 1),
)
PRODUCTS = ((2200, 150, 2048), (67, 75, 83), (130, 41, 140))  # the first is a wave of tiles and a few


def problems(reads_out: bool = False) -> Iterator[Problem]:
    """Of every kind, large ones first; `reads_out`: those that add to what is there, small ones first."""
    for shape in reversed(SHAPES) if reads_out else SHAPES:
        for layout in LAYOUTS:
            yield forward(shape, layout=layout, bias=True, activation="relu", reads_out=reads_out)
            yield data(shape, layout=layout, reads_out=reads_out)
            yield filters(shape, layout=layout, reads_out=reads_out)
    for m, k, n in PRODUCTS[1:] if reads_out else PRODUCTS:
        for ta in (False, True):
            for tb in (False, True):
                yield product((k, m) if ta else (m, k), (n, k) if tb else (k, n), transpose_a=ta, transpose_b=tb,
                              reads_out=reads_out)


Key = tuple[str, str]  # source, kernel
Plans = dict[Key, list[Plan]]


def _native() -> set[Key]:
    return {(k.source.removesuffix(".sass"), k.name) for k in registry.kernels().values()
            if k.source.startswith(f"{HOPPER_FOLDER}/")}


def reached(part: str = "") -> Plans:
    """Every native kernel with `part` in its name, with plans of the largest problem that has one, whole and in parts,
    of the smallest, and of two that add to what is there."""
    every, adding = list(problems()), list(problems(reads_out=True))
    kernels = sorted(key for key in _native() if part in key[1])
    ways = [_first(kernels, every), _first(kernels, every, last=True), _first(kernels, reversed(every)),
            _first(kernels, adding), _first(kernels, reversed(adding))]
    return {key: list(dict.fromkeys(way[key] for way in ways if key in way)) for key in kernels if key in ways[0]}


def _first(kernels: Sequence[Key], wanted: Iterable[Problem], last: bool = False) -> dict[Key, Plan]:
    """The plan of the first problem that has one, by kernel, by the first or the last candidate of it: candidates are
    called by their kernels, or by those that follow them."""
    found: dict[Key, Plan] = {}
    names = {name: (source, name) for source, name in kernels}
    for problem, family in itertools.product(wanted, registry.FAMILIES):
        missing = {name for name, key in names.items() if key not in found}
        open_ = missing & {*_BEFORE, *(k.name for k in family.kernels)}
        if not open_ or problem.kind not in family.kinds or family.unsupported_reason(problem) is not None:
            continue
        candidates = family.candidates(problem, H200).items()
        for candidate, make in reversed(candidates) if last else candidates:
            if any(candidate.startswith(_BEFORE.get(name, name)) for name in open_):
                with contextlib.suppress(ShapeError):
                    plan = make()
                    for name in open_.intersection(launch.spec.name for launch in plan.launches):
                        found[names[name]] = plan
                        open_.discard(name)
    return found


# -- mutants ----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Mutant:
    source: str
    kernel: str
    index: int
    kind: str
    control: Control

    def __str__(self) -> str:
        inst = _kernel(self.source, self.kernel).instructions[self.index]
        return f"{self.kernel}+0x{inst.address:04x} {self.kind}: {inst.control} -> {self.control} {inst.text()}"

    def image(self) -> bytes:
        """The whole cubin with this one code changed."""
        image, kernel = built(self.source, HOPPER), _kernel(self.source, self.kernel)
        at = image.index(kernel.code) + kernel.addressing.word * self.index
        old = int.from_bytes(image[at:at + 16], "little")
        word = old & ~(CONTROL_BITS << CONTROL_LSB) | self.control.pack() << CONTROL_LSB
        return image[:at] + word.to_bytes(16, "little") + image[at + 16:]

    def reported(self) -> bool:
        """Whether the checker has anything to say, which the build would refuse."""
        return not check_hazards(cubin.read(self.image()).kernel(self.kernel)).clean


@functools.cache
def _kernel(source: str, name: str) -> CubinKernel:
    return cubin.read(built(source, HOPPER)).kernel(name)


def _weaker(inst: Instruction) -> Iterator[tuple[str, Control]]:
    control = inst.control
    for bar in (n for n in range(6) if control.wait_mask >> n & 1):
        yield "wait", dataclasses.replace(control, wait_mask=control.wait_mask & ~(1 << bar))
    if control.write_barrier is not None:
        yield "write barrier", dataclasses.replace(control, write_barrier=None)
    if control.read_barrier is not None:
        yield "read barrier", dataclasses.replace(control, read_barrier=None)
    if control.stall > 1 and inst.opcode not in _STAYS:
        yield "no stall", dataclasses.replace(control, stall=1, yield_hint=False)  # as compiled code has them
        if control.stall > 2:
            yield "stall", dataclasses.replace(control, stall=control.stall - 1)
    if control.stall <= 2 and not control.yield_hint:  # flags stand nowhere else
        for slot in {op.field.slot for op in inst.operands if op.field.slot is not None and op.registers()}:
            if not control.reuse >> slot & 1:
                yield "reuse", dataclasses.replace(control, reuse=control.reuse | 1 << slot)


def mutants(kernels: Sequence[Key], count: int, seed: int) -> list[Mutant]:
    """At most `count` of all, as many of each kernel, of its kinds in turn, kernels in turn: what is left out for want
    of time is of all."""
    shares = []
    for n, (source, name) in enumerate(kernels):
        rng, by_kind = random.Random(f"{seed} {name}"), {kind: list[Mutant]() for kind in KINDS}
        for index, inst in enumerate(_kernel(source, name).instructions):
            for kind, control in _weaker(inst):
                by_kind[kind].append(Mutant(source, name, index, kind, control))
        for each in by_kind.values():
            rng.shuffle(each)
        turns = [m for turn in itertools.zip_longest(*by_kind.values()) for m in turn if m is not None]
        shares.append(turns[:count * (n + 1) // len(kernels) - count * n // len(kernels)])
    return [m for turn in itertools.zip_longest(*shares) for m in turn if m is not None]


# -- on the GPU -------------------------------------------------------------------------------------------------------


class Stand:
    """A device, and what the kernels as they are give on it."""

    def __init__(self, device: Device, plans_of: Plans) -> None:
        self.device, self._plans, self._good = device, plans_of, {}

    def verdict(self, mutant: Mutant, runs: int) -> str:
        """`right` if every run gives the bits of the kernel as it is, else `wrong`."""
        key, image = (mutant.source, mutant.kernel), mutant.image()
        real = trust.cubin
        if key not in self._good:
            self._good[key] = [self.bits(plan) for plan in self._plans[key]]
        with patch.object(trust, "cubin", lambda *asked: image if asked[0] == mutant.source else real(*asked)):
            for plan, good in zip(self._plans[key], self._good[key], strict=True):
                for _ in range(runs):
                    if self.bits(plan) != good:
                        return "wrong"
        return "right"

    def bits(self, plan: Plan) -> dict[str, bytes]:
        """Its operands after a call; `guard` alone where it wrote beside them. Some numbers of matrices are so large
        that FP16 parts do not hold the rest of their rows, in a third of the pieces of the large problem."""
        rng = np.random.default_rng(1)
        given = {role: rng.uniform(-1, 1, shape).astype(np.float32) for role, shape in plan.array_shapes().items()}
        if plan.problem.kind == "product":
            for array in given.values():
                array[rng.random(array.shape) < 5e-5] *= 2.0**24
        try:
            return {role: array.tobytes() for role, array in outcome(self.device, plan, given).items()}
        except GuardError as e:
            return {"guard": str(e).encode()}


def serve(folder: str, runs: int, numbers: Sequence[int]) -> None:
    """Judge some mutants, one line each before and after."""
    from maxdnn.runtime.devices import cuda as gpus
    kernels, every = pickle.loads((pathlib.Path(folder) / _JOB).read_bytes())
    stand = Stand(gpus.device(0), kernels)
    for number in numbers:
        print("try", number, flush=True)
        print(stand.verdict(every[number], runs), number, flush=True)


def judge(folder: str, runs: int, until: float, numbers: Sequence[int]) -> dict[int, str]:
    """The verdicts of processes, which end with a mutant that faults or hangs; another goes on behind it. What is not
    judged `until` then is left out."""
    found: dict[int, str] = {}
    left = list(numbers)
    while left and time.monotonic() < until:
        tried = None
        with open(f"{folder}/{left[0]}.txt", "w+") as errors:
            command = [sys.executable, "-m", "tests.gpu.mutants", "--serve", folder, str(runs), *map(str, left)]
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            alarm = _alarm(child)
            for line in child.stdout or ():
                alarm.cancel()
                alarm = _alarm(child)
                word, _, number = line.strip().partition(" ")
                if word == "try":
                    tried = int(number)
                elif word in ("right", "wrong"):
                    found[int(number)] = word
                if time.monotonic() > until and tried in found:
                    child.kill()
                    break  # what it has begun meanwhile has no verdict
            alarm.cancel()
            child.wait()
            errors.seek(0)
            if tried is None:
                raise SystemExit(f"a process judged nothing: {errors.read()[-2000:]}")
        found.setdefault(tried, "fault")
        left = [n for n in left if n not in found]
    return found


def _alarm(child: "subprocess.Popen[str]") -> threading.Timer:
    alarm = threading.Timer(_PATIENCE, child.kill)
    alarm.start()
    return alarm


def report(every: Sequence[Mutant], verdicts: dict[int, str]) -> dict[str, object]:
    """Counts, and the mutants that were wrong and not reported."""
    bad = [n for n in sorted(verdicts) if verdicts[n] != "right"]
    with ProcessPoolExecutor() as pool:
        told = dict(zip(bad, pool.map(Mutant.reported, [every[n] for n in bad]), strict=True))
    counts = collections.Counter((every[n].kind, verdict) for n, verdict in verdicts.items())
    return {"mutants": len(verdicts), "kernels": len({m.kernel for m in every}),
            "counts": {kind: {word: counts[kind, word] for word in ("right", "wrong", "fault")} for kind in KINDS},
            "bad": len(bad), "reported": sum(told.values()),
            "wrong": [[verdicts[n], told[n], str(every[n])] for n in bad]}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kernels", default="", metavar="PART", help="part of a kernel's name (default: all)")
    parser.add_argument("--processes", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=math.inf, help="judge no longer than this")
    parser.add_argument("--out", help="JSON file to write")
    parser.add_argument("--serve", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve[0], int(args.serve[1]), [int(n) for n in args.serve[2:]])
        return 0
    kernels = reached(args.kernels)
    if not kernels:
        parser.error(f"--kernels must be part of the name of a kernel of {HOPPER} (got {args.kernels!r})")
    every = mutants(list(kernels), args.count, args.seed)
    shares = [range(first, len(every), args.processes) for first in range(min(args.processes, len(every)))]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(shares)) as pool:
        (pathlib.Path(folder) / _JOB).write_bytes(pickle.dumps((kernels, every)))
        parts = pool.map(functools.partial(judge, folder, args.runs, time.monotonic() + args.seconds), shares)
        verdicts = {n: word for part in parts for n, word in part.items()}
    found = report(every, verdicts)
    if args.out:
        with open(args.out, "w") as file:
            json.dump(found, file, indent=1)
    for kind, counts in found["counts"].items():  # type: ignore[attr-defined]
        print(f"{kind:14} " + "  ".join(f"{n:4} {word}" for word, n in counts.items()))
    for verdict, told, text in found["wrong"]:  # type: ignore[attr-defined]
        print(f"{verdict}, {'reported' if told else 'NOT REPORTED'}: {text}")
    print("{mutants} mutants of {kernels} kernels, {bad} wrong, {reported} of them reported".format(**found))
    return int(found["bad"] != found["reported"])


if __name__ == "__main__":
    sys.exit(main())
