#!/usr/bin/env python
"""Mine the `latencies` of maxdnn/isa/hopper.json: how close the vendor's compiler puts uses of fixed-latency results to
their producers, over all paths.

    python tools/mine_barriers.py CUBIN_OR_FOLDER...

Prints, for each architecture and figure, the least cycles seen, the table's, and how many uses were seen.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import sys
from collections.abc import Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from maxdnn import cubin
from maxdnn.checker.hopper import Checker, State
from maxdnn.checker.hopper_uses import Key, figure, reads
from maxdnn.errors import DecodeError
from maxdnn.isa import Instruction
from maxdnn.isa.program import Graph

Uses = dict[tuple[int, Key, int, str], int]


class Miner(Checker):
    """Keeps of each use of a result the least cycles between the two."""

    def __init__(self, kernel: cubin.CubinKernel) -> None:
        super().__init__(Graph(kernel))
        self.least: Uses = {}

    def _step(self, index: int, inst: Instruction, state: State) -> None:
        self._wait(index, inst, state)
        for key, role, late in reads(inst):
            for at, since in state.ready.get(key, {}).items():
                use = at, key, index, role
                self.least[use] = min(self.least.get(use, 99), since + late)
        super()._step(index, inst, state)

    def mined(self) -> Iterator[tuple[tuple[str, ...], int]]:
        """(where the figure stands, cycles) of every use."""
        self.find()
        for (at, key, index, role), cycles in self.least.items():
            yield figure(self.code[at], key, self.code[index], role), cycles


def stands(table: Any, place: tuple[str, ...]) -> int:
    for name in place:
        table = table[name]
    return int(table)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cubins", type=pathlib.Path, nargs="+", help="cubins, or folders searched for *.cubin")
    files = [f for p in parser.parse_args().cubins for f in (sorted(p.rglob("*.cubin")) if p.is_dir() else [p])]
    seen: dict[str, dict[tuple[str, ...], collections.Counter[int]]] = collections.defaultdict(dict)
    size: collections.Counter[tuple[str, str]] = collections.Counter()
    tables = {}
    for file in files:
        for kernel in cubin.read(file).kernels.values():
            if kernel.table.divergence != "barriers":
                continue
            tables[kernel.arch] = kernel.table.latencies
            try:
                found = list(Miner(kernel).mined())
            except DecodeError as e:
                print(f"not decoded: {file.name}: {kernel.name}: {e}", file=sys.stderr)
                continue
            size[kernel.arch, "kernels"] += 1
            size[kernel.arch, "instructions"] += len(kernel.instructions)
            for place, cycles in found:
                seen[kernel.arch].setdefault(place, collections.Counter())[cycles] += 1
    for arch, places in sorted(seen.items()):
        print(f"{arch}: {size[arch, 'instructions']} instructions of {size[arch, 'kernels']} kernels")
        for place, counts in sorted(places.items()):
            least = min(counts)
            print(f"  {'.'.join(place):28} {least:3} cycles ({stands(tables[arch], place)} in the table), "
                  f"{counts[least]} of {counts.total()} uses")
    return 0


if __name__ == "__main__":
    sys.exit(main())
