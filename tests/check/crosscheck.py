"""Cross-check of the checker by execution: weaken a control code somewhere in a random program, run the program with
value delays, and compare. A wrong result where the checker reports nothing would be a hole in the checker.

    python -m tests.check.crosscheck CUBIN... [--each N] [--seed S]

Cubins are those of `tools/corpus.py random`. Programs the delayed device cannot run (BAR.RED ...) are skipped."""

import argparse
import collections
import random

from maxdnn import cubin
from maxdnn.check import check_hazards
from maxdnn.cubin import Cubin, CubinKernel
from maxdnn.errors import DecodeError
from tests.check.delayed import Runaway, random_program
from tests.check.mutation import mutant, weakened
from tests.check.replay import paths

MODES = ("early", "late")


def outcome(kernel: CubinKernel, data: Cubin, mode: str) -> bytes:
    """The output of a run, or a word for a run that went astray."""
    try:
        return random_program(kernel, data, mode)[0]
    except (Runaway, KeyError):
        return b"astray"


def run(data: Cubin, each: int, seed: int) -> collections.Counter[tuple[str, bool, bool]]:
    """(kind, result wrong, reported) of `each` random weakenings in the executed part of the program."""
    kernel = data.kernel()
    right, executed = random_program(kernel, data, "none")
    for mode in MODES:
        if outcome(kernel, data, mode) != right:
            raise AssertionError(f"the unchanged program gives another result under mode {mode}")
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
        wrong = any(outcome(changed, data, mode) != right for mode in MODES)
        reported = not check_hazards(changed).ok
        counts[kind, wrong, reported] += 1
        if wrong and not reported:
            inst = kernel.instructions[i]
            print(f"NOT REPORTED {kind} {inst.address:04x} {inst.control} {inst.text()} -> {control}", flush=True)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cubins", nargs="+")
    parser.add_argument("--each", type=int, default=40, help="mutants of each program (default 40)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    total: collections.Counter[tuple[str, bool, bool]] = collections.Counter()
    for name in args.cubins:
        try:
            counts = run(cubin.read(name), args.each, args.seed)
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
