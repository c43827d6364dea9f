#!/usr/bin/env python
"""Mine how close the vendor's compiler puts the uses of a fixed-latency result to its producer.

    python tools/mine_latencies.py --out maxdnn/checker/latencies.json CUBIN_OR_FOLDER...

For every (producer class, kind of resource, consumer class, role of the operand) the result holds the least number of
cycles that control codes guarantee between the two issues, over all paths, how many uses were seen and how many of
them at that least distance. It also lists the pairs of classes issued in one cycle, the stalls of control flow, and how
far each assumption of the checker was put to the test. Make cubins with `tools/corpus.py build` and `random`.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import sys
from collections.abc import Iterable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from maxdnn import cubin
from maxdnn.checker.effects import Effects, all_effects
from maxdnn.checker.hazards import uses
from maxdnn.checker.maxwell import MAXWELL, dual_class, next_slot_read
from maxdnn.checker.timing import OPERANDS, RESULT, Timing
from maxdnn.errors import DecodeError
from maxdnn.isa import Instruction
from maxdnn.isa.program import Graph

Counts = dict[str, collections.Counter[Any]]
MOST = 30  # distances above are of no interest


def mine_kernel(kernel: cubin.CubinKernel, found: Counts) -> None:
    """Add one kernel's evidence."""
    code = kernel.instructions
    graph = Graph(kernel)
    effects = all_effects(code)
    reachable = graph.reachable()
    found["corpus"]["kernels"] += 1
    found["corpus"]["instructions"] += len(code)
    found["corpus"]["reachable"] += len(reachable)
    _distances(Timing(graph, effects, MAXWELL), code, effects, found)
    for i in reachable:
        _neighbours(code, effects, i, found)


def _distances(timing: Timing, code: tuple[Instruction, ...], effects: tuple[Effects, ...], found: Counts) -> None:
    least: dict[tuple[int, int, Any], int] = {}
    waits: dict[tuple[int, int], int] = {}
    for i, before, state, clock in timing.walk():
        for k, entry in state.items():
            if effects[k].fixed and entry.live & effects[i].reads and not timing.apart(entry, i, state):
                for role, kind, _ in uses(entry, effects[i]):
                    key = code[k].cls.name, kind, code[i].cls.name, role
                    least[k, i, key] = min(least.get((k, i, key), MOST), clock - entry.issued)
            if code[i].mnemonic == "BAR.SYNC" and entry.flags & (RESULT | OPERANDS):
                found["pending_at_barrier"][code[k].opcode] += 1
            if code[i].opcode == "EXIT" and entry.flags & (RESULT | OPERANDS):
                found["pending_at_exit"][code[k].opcode] += 1
        for k, entry in before.items():
            own = code[k].control
            bars = {b for b in (own.write_barrier, own.read_barrier) if b is not None}
            if entry.flags & (RESULT | OPERANDS) and any(code[i].control.wait_mask >> b & 1 for b in bars):
                waits[k, i] = min(waits.get((k, i), MOST), clock - entry.issued)
    for (_, _, key), cycles in least.items():
        found["entries"][*key, cycles] += 1
    found["wait_after_set"].update(waits.values())


def _neighbours(code: tuple[Instruction, ...], effects: tuple[Effects, ...], i: int, found: Counts) -> None:
    inst = code[i]
    if inst.control.stall == 0 and i + 1 < len(code) and inst.opcode != "NOP":
        found["dual_issue"][inst.cls.name, dual_class(code[i + 1])] += 1
    if inst.cls.name in ("flow", "sync") and inst.opcode != "NOP":
        found["flow_stall"][inst.mnemonic, inst.control.stall] += 1
    if inst.control.reuse and inst.cls.pipe != "tex":
        for slot, register in effects[i].slots:
            if inst.control.reuse >> slot & 1:
                writer, reader = next_slot_read(code, effects, i, slot, register)
                found["reuse"]["never read" if reader is None else "stale" if writer is not None else "read"] += 1


def mine_file(path: str) -> Counts:
    found: Counts = collections.defaultdict(collections.Counter)
    for kernel in cubin.read(path).kernels.values():
        try:
            mine_kernel(kernel, found)
        except DecodeError as e:
            found["undecoded"][f"{kernel.name}: {e}"] += 1
    found["corpus"]["cubins"] += 1
    return found


def table(found: Counts) -> dict[str, Any]:
    """The committed form: sorted, plain."""
    uses_of: dict[Any, dict[int, int]] = collections.defaultdict(dict)
    for (*key, cycles), count in found["entries"].items():
        uses_of[tuple(key)][cycles] = count
    entries = [{"producer": key[0], "kind": key[1], "consumer": key[2], "role": key[3], "cycles": min(counts),
                "samples": sum(counts.values()), "at_minimum": counts[min(counts)]}
               for key, counts in sorted(uses_of.items())]
    pairs = [{"first": a, "second": b, "samples": n} for (a, b), n in sorted(found["dual_issue"].items())]
    stalls = collections.defaultdict(dict)
    for (opcode, stall), count in sorted(found["flow_stall"].items()):
        stalls[opcode][str(stall)] = count
    return {
        "about": "Written by tools/mine_latencies.py; not edited by hand. NVRTC and ptxas 12.9, sm_52. cycles:"
                 " least guaranteed distance seen; samples: uses seen; at_minimum: of them at that distance. Entries"
                 " with fewer than 20 samples are not used: the published rule stands (maxdnn/checker/maxwell.py).",
        "corpus": dict(sorted(found["corpus"].items())), "entries": entries, "dual_issue": pairs,
        "flow_stall": stalls, "wait_after_set": {str(k): v for k, v in sorted(found["wait_after_set"].items())},
        "reuse": dict(sorted(found["reuse"].items())),
        "pending_at_barrier": dict(sorted(found["pending_at_barrier"].items())),
        "pending_at_exit": dict(sorted(found["pending_at_exit"].items())),
    }


def files(paths: Iterable[pathlib.Path]) -> list[str]:
    return [str(f) for p in paths for f in (sorted(p.rglob("*.cubin")) if p.is_dir() else [p])]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cubins", type=pathlib.Path, nargs="+", help="cubins, or folders searched for *.cubin")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the JSON file to write")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default 1)")
    args = parser.parse_args()
    found: Counts = collections.defaultdict(collections.Counter)
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        for part in pool.map(mine_file, files(args.cubins), chunksize=8):
            for name, counter in part.items():
                found[name].update(counter)
    text = json.dumps(table(found), indent=None, separators=(",", ":")).replace("},{", "},\n{")
    part_path = args.out.with_suffix(".part")
    part_path.write_text(text.replace('],"', '],\n"').replace('},"', '},\n"') + "\n")
    os.replace(part_path, args.out)
    for note in found["undecoded"]:
        print(f"not decoded: {note}", file=sys.stderr)
    print(f"{found['corpus']['instructions']} instructions of {found['corpus']['kernels']} kernels; "
          f"{sum(found['entries'].values())} uses in {len({k[:-1] for k in found['entries']})} entries")
    return 0


if __name__ == "__main__":
    sys.exit(main())
