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
from maxdnn.checker import sm80
from maxdnn.checker.effects import all_effects
from maxdnn.checker.hazards import uses
from maxdnn.checker.timing import Timing
from maxdnn.errors import DecodeError
from maxdnn.isa.program import Graph


def mined(kernel: cubin.CubinKernel) -> Iterator[tuple[tuple[str, ...], int]]:
    """(where the figure stands, least cycles between the two) of every use of a result of fixed latency."""
    code, effects = kernel.instructions, all_effects(kernel.instructions)
    timing = Timing(Graph(kernel), effects, sm80.rules(kernel.table.latencies))
    least: dict[tuple[int, str, int, int, str], int] = {}
    for i, _, state, clock in timing.walk():
        for k, entry in state.items():
            judged = effects[k].fixed and not timing.apart(entry, i, state)
            for role, kind, mask in uses(entry, effects[i]) if judged else ():
                for register in (bit for bit in range(mask.bit_length()) if mask >> bit & 1):
                    use, cycles = (k, kind, register, i, role), clock - entry.issued
                    least[use] = min(least.get(use, 99), cycles + sm80.late_addend(code[i], register))
    for (k, kind, register, i, role), cycles in least.items():
        yield sm80.figure(code[k], kind, register, code[i], role), cycles


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
            if not kernel.table.latencies:
                continue
            tables[kernel.arch] = kernel.table.latencies
            try:
                found = list(mined(kernel))
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
