"""Cross-check of the checker by execution: weaken a control code somewhere in a random program, run the program with
value delays, and compare. A wrong result where the checker reports nothing would be a hole in the checker.

    python -m tests.checker.crosscheck [CUBIN...] [--each N] [--seed S]

Cubins are those of `tools/corpus.py random`; without any, the convolution kernels of this library are run. Programs the
delayed device cannot run (BAR.RED ...) are skipped."""

import argparse
import collections
import random

import numpy as np

from maxdnn import cubin
from maxdnn.algorithms.registry import kernels
from maxdnn.build import cubins
from maxdnn.checker import check_hazards
from maxdnn.conv import conv_fprop
from maxdnn.cubin import Cubin, CubinKernel
from maxdnn.errors import DecodeError
from maxdnn.planning.select import plan
from maxdnn.problem.shape import ConvShape
from tests.checker.delayed import random_program
from tests.checker.delayeddevice import DelayedDevice
from tests.checker.delayedmemory import Runaway
from tests.checker.mutation import mutant, weakened
from tests.checker.replay import paths

MODES = ("early", "late")
CONVOLUTIONS = [("sconv_fprop_K64_N64", 64, 64), ("sconv_fprop_K32_N128", 32, 128)]


class Program:
    """A random corpus program and how to run a changed copy of its kernel."""

    def __init__(self, data: Cubin) -> None:
        self.data, self.kernel = data, data.kernel()

    def __call__(self, kernel: CubinKernel, mode: str) -> tuple[bytes, set[int]]:
        return random_program(kernel, self.data, mode)


class Convolution:
    """A small convolution by a kernel of this library, through conv_fprop."""

    def __init__(self, name: str, k: int, n: int) -> None:
        rng = np.random.default_rng(1)
        self.images = rng.standard_normal((3, 2, 2, n)).astype(np.float32)
        self.filters = rng.standard_normal((3, 2, 2, k)).astype(np.float32)
        self.kernel = cubin.read(cubins.cubin(kernels()[name].source.removesuffix(".sass"), "sm_52")).kernel(name)
        self.plan = plan(ConvShape(n, 3, 2, 2, k, 2, 2), kernel=name)

    def __call__(self, kernel: CubinKernel, mode: str) -> tuple[bytes, set[int]]:
        device = DelayedDevice(mode, lambda unchanged: kernel if unchanged.name == kernel.name else unchanged)
        out = conv_fprop(self.images, self.filters, device=device, plan=self.plan)  # type: ignore[arg-type]
        return out.tobytes(), device.executed[kernel.name]


def outcome(program: Program | Convolution, kernel: CubinKernel, mode: str) -> bytes:
    """The output of a run, or a word for a run that went astray."""
    try:
        return program(kernel, mode)[0]
    except (Runaway, KeyError, IndexError):
        return b"astray"


def _said(kernel: CubinKernel) -> set[tuple[str, str, int]]:
    """What the checker reports: warnings too, since what order or distance alone protects is one."""
    report = check_hazards(kernel)
    return {(f.kind, f.resource, f.consumer.address) for f in report.findings + report.warnings}


def run(program: Program | Convolution, each: int, seed: int) -> collections.Counter[tuple[str, bool, bool]]:
    """(kind, result wrong, reported) of `each` random weakenings in the executed part of the program."""
    kernel = program.kernel
    right, executed = program(kernel, "none")
    for mode in MODES:
        if outcome(program, kernel, mode) != right:
            raise AssertionError(f"the unchanged program gives another result under mode {mode}")
    known = _said(kernel)
    by_kind = collections.defaultdict(list)
    for kind, i, control in weakened(kernel, paths(kernel)):
        if i in executed:
            by_kind[kind].append((i, control))
    rng = random.Random(seed)
    counts: collections.Counter[tuple[str, bool, bool]] = collections.Counter()
    for _ in range(each):
        kind = rng.choice(sorted(by_kind))
        i, control = rng.choice(by_kind[kind])
        changed = mutant(kernel, i, control)
        wrong = any(outcome(program, changed, mode) != right for mode in MODES)
        reported = bool(_said(changed) - known)
        counts[kind, wrong, reported] += 1
        if wrong and not reported:
            inst = kernel.instructions[i]
            print(f"NOT REPORTED {kind} {inst.address:04x} {inst.control} {inst.text()} -> {control}", flush=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cubins", nargs="*")
    parser.add_argument("--each", type=int, default=40, help="mutants of each program (default 40)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    total: collections.Counter[tuple[str, bool, bool]] = collections.Counter()
    programs: list[tuple[str, Program | Convolution]] = [(name, Program(cubin.read(name))) for name in args.cubins]
    if not args.cubins:
        programs = [(name, Convolution(name, k, n)) for name, k, n in CONVOLUTIONS]
    for name, program in programs:
        try:
            counts = run(program, args.each, args.seed)
        except (NotImplementedError, DecodeError, Runaway) as e:
            print(f"{name}: skipped: {type(e).__name__} {e}", flush=True)
            continue
        total.update(counts)
        wrong = sum(n for (_, w, _), n in counts.items() if w)
        print(f"{name}: {sum(counts.values())} mutants, {wrong} gave wrong results, "
              f"{sum(n for (_, w, r), n in counts.items() if w and not r)} of those not reported", flush=True)
    print(f"{'kind':14} {'wrong':>6} {'reported':>9} {'right':>6} {'reported':>9}")
    for kind in sorted({key[0] for key in total}):
        wrong = [total[kind, True, r] for r in (True, False)]
        right = [total[kind, False, r] for r in (True, False)]
        print(f"{kind:14} {sum(wrong):6} {wrong[0]:9} {sum(right):6} {right[0]:9}")


if __name__ == "__main__":
    main()
