"""Mutation test of the checker: weaken one control code at a time where replay of concrete paths says it is needed, and
see whether the checker reports the mutant.

    python -m tests.checker.mutation CUBIN... [--kernels N] [--each N]

prints found/total per kind and every miss."""

import argparse
import collections
import dataclasses
import random
from collections.abc import Iterator

from maxdnn import cubin
from maxdnn.checker import control_findings
from maxdnn.cubin import CubinKernel
from maxdnn.errors import DecodeError
from maxdnn.isa import Control
from tests.checker.programs import with_controls
from tests.checker.replay import Path, paths, stale_flags, tight_stalls, violates

KINDS = ("stall", "yield", "wait", "write barrier", "read barrier", "reuse")


def weakened(kernel: CubinKernel, ways: list[Path]) -> Iterator[tuple[str, int, Control]]:
    """(kind, instruction index, weaker control code) of every single-step weakening that may matter; those of the kinds
    wait and barrier still have to be shown necessary."""
    code = kernel.instructions
    reached = {i for path in ways for i in path}
    for i in sorted(tight_stalls(kernel, ways)):
        control = code[i].control
        if control.stall > 11 and control.yield_hint:
            yield "yield", i, dataclasses.replace(control, yield_hint=False)
        if 0 < control.stall <= 11 or control.yield_hint:
            yield "stall", i, dataclasses.replace(control, stall=control.stall - 1)
    for i in sorted(reached):
        control = code[i].control
        for bar in range(6):
            if control.wait_mask >> bar & 1:
                yield "wait", i, dataclasses.replace(control, wait_mask=control.wait_mask & ~(1 << bar))
        if control.write_barrier is not None:
            yield "write barrier", i, dataclasses.replace(control, write_barrier=None)
        if control.read_barrier is not None:
            yield "read barrier", i, dataclasses.replace(control, read_barrier=None)
    for i, slot in sorted(stale_flags(kernel, ways)):
        yield "reuse", i, dataclasses.replace(code[i].control, reuse=code[i].control.reuse | 1 << slot)


def mutant(kernel: CubinKernel, i: int, control: Control) -> CubinKernel:
    changed = with_controls(kernel, {i: control})
    code = list(kernel.instructions)
    code[i] = dataclasses.replace(code[i], control=control)
    changed.__dict__["instructions"] = tuple(code)  # spare decoding everything again
    return changed


def run(kernel: CubinKernel, each: int | None = None, seed: int = 1) -> tuple[collections.Counter[tuple[str, bool]],
                                                                              list[str]]:
    """Counts of (kind, found) over the necessary mutants, at most `each` per kind drawn at random, and the misses."""
    ways = paths(kernel)
    if violates(kernel, ways):
        raise AssertionError(f"{kernel.name}: replay finds a hazard in the unchanged kernel")
    by_kind = collections.defaultdict(list)
    for kind, i, control in weakened(kernel, ways):
        by_kind[kind].append((i, control))
    counts: collections.Counter[tuple[str, bool]] = collections.Counter()
    misses = []
    rng = random.Random(seed)
    for kind, candidates in by_kind.items():
        if each is not None:
            rng.shuffle(candidates)
        wanted = each if each is not None else len(candidates)
        for i, control in candidates:
            if counts[kind, True] + counts[kind, False] >= wanted:
                break
            changed = mutant(kernel, i, control)
            if "barrier" in kind or kind == "wait":
                through = [path for path in ways if i in path]
                if not violates(changed, through):
                    continue
            found = bool(control_findings(changed))  # warnings too: the build refuses both
            counts[kind, found] += 1
            if not found:
                inst = kernel.instructions[i]
                misses.append(f"{kernel.name} {kind} {inst.address:04x} {inst.control} {inst.text()} -> {control}")
    return counts, misses


def spread(names: list[str], kernels: int) -> list[tuple[str, CubinKernel]]:
    """Kernels of all cubins that decode, sorted by size, `kernels` of them evenly chosen."""
    found = []
    for name in names:
        for kernel in cubin.read(name).kernels.values():
            try:
                found.append((len(kernel.instructions), name, kernel))
            except DecodeError:
                continue
    found.sort(key=lambda entry: (entry[0], entry[2].name, entry[1]))
    step = max(1, len(found) / kernels)
    return [found[int(n * step)][1:] for n in range(min(kernels, len(found)))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cubins", nargs="+")
    parser.add_argument("--kernels", type=int, default=10**6, help="so many kernels, evenly spread over sizes")
    parser.add_argument("--each", type=int, help="at most so many mutants of a kind and kernel")
    args = parser.parse_args()
    total: collections.Counter[tuple[str, bool]] = collections.Counter()
    for name, kernel in spread(args.cubins, args.kernels):
        counts, misses = run(kernel, args.each)
        total.update(counts)
        print(f"{kernel.name:28} {len(kernel.instructions):5} {sum(counts.values()):6} mutants, {len(misses)} missed "
              f"({name})", flush=True)
        for miss in misses:
            print("   ", miss, flush=True)
    for kind in KINDS:
        found, missed = total[kind, True], total[kind, False]
        print(f"{kind:14} {found:6} of {found + missed:6}")


if __name__ == "__main__":
    main()
