"""How near the transforms of Winograd's layers come to a plain copy, on a real GPU: every transform of a plan alone,
and in the same run a copy that reads and writes as many bytes altogether, both captured into CUDA graphs. A byte counts
once, however often it is fetched. What a transform is held against is the slower of that copy and one of a gigabyte:
launches of a few megabytes last as long as a launch does, whatever they do, and a copy of some dozens of megabytes
never leaves the GPU's cache, where it is faster than memory.

Needs what suite.py needs. Prints rows as they come; exit status 1 if one is below three quarters of that."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from suite import Suite, shapes

import maxdnn
from maxdnn.choose import choose
from maxdnn.plans import Plan
from maxdnn.problem import forward

ENOUGH = 0.75  # of the copy's rate
STEPS = {"maps": "maps", "out": "results", "filters": "filters"}


def rows(suite: Suite, name: str, plan: Plan) -> list[dict[str, Any]]:
    """The transforms of a plan, each on what a whole call left."""
    s = plan.shape
    chwn = plan.layout == "CHWN"
    x, w = suite.uniform((s.C, s.H, s.W, s.N) if chwn else (s.N, s.C, s.H, s.W),
                         (s.C, s.R, s.S, s.K) if chwn else (s.K, s.C, s.R, s.S))
    out = suite.torch.empty((s.K, s.P, s.Q, s.N) if chwn else (s.N, s.K, s.P, s.Q), device="cuda")
    suite.torch.cuda.synchronize()
    maxdnn.conv_fprop(x, w, plan=plan, out=out, stream=suite.queue)
    found = []
    for launch in plan.launches:
        step = getattr(launch.spec, "step", None)
        if step not in STEPS:
            continue
        alone = dataclasses.replace(plan, launches=(launch,))
        nbytes = int(launch.work.nbytes)
        source, target = suite.torch.zeros((2, nbytes // 8), device="cuda")
        seconds = suite.seconds_of(lambda alone=alone: maxdnn.conv_fprop(x, w, plan=alone, out=out, stream=suite.queue))
        copy = suite.seconds_of(lambda target=target, source=source: target.copy_(source))
        found.append({"layer": name, "n": s.N, "layout": plan.layout, "kernel": launch.spec.name, "step": STEPS[step],
                      "bytes": nbytes, "blocks": launch.grid[0] * launch.grid[1], "seconds": seconds,
                      "copy_seconds": copy})
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ordinal", type=int, default=0, help="which GPU")
    parser.add_argument("--n", type=int, nargs="+", default=[8, 32, 128], help="minibatches")
    parser.add_argument("--match", nargs="+", default=["alexnet", "overfeat", "vgg", "3x3"],
                        help="only layers whose name holds one of these")
    parser.add_argument("--layout", nargs="+", default=["NCHW"], help="of our arrays: NCHW, CHWN or both")
    parser.add_argument("--seconds", type=float, default=0.02, help="how long to repeat each measurement")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows there, too")
    args = parser.parse_args(argv)
    suite = Suite(args.ordinal, args.seconds)
    every: list[dict[str, Any]] = []
    memory = suite.copy_rate()
    print(f"{suite.device.name}: a copy of 1 GiB reads and writes {memory / 1e12:.2f} TB/s", flush=True)
    print(f"{'layer':32} layout N {'kernel':36}{'MB':>9}{'blocks':>8}{'us':>9}{'copy us':>9}{'TB/s':>7}{'share':>7}")
    for layout in args.layout:
        for n in args.n:
            for name, shape in shapes(n):
                if not any(part in name for part in args.match):
                    continue
                plan = choose(forward(shape, layout=layout), suite.device.chip, tuned=False)
                for row in rows(suite, name, plan):
                    row["share"] = max(row["copy_seconds"], row["bytes"] / memory) / row["seconds"]
                    every.append(row)
                    print(f"{name:32} {layout} N={n:<4} {row['kernel']:34}{row['bytes'] / 1e6:9.2f}{row['blocks']:8}"
                          f"{1e6 * row['seconds']:9.2f}{1e6 * row['copy_seconds']:9.2f}"
                          f"{row['bytes'] / row['seconds'] / 1e12:7.2f}{row['share']:7.2f}", flush=True)
                suite.torch.cuda.empty_cache()
    if args.json:
        found = {"gpu": suite.device.name, "driver": suite.clock.driver_version, "copy_bytes_per_second": memory,
                 "rows": every}
        args.json.write_text(json.dumps(found, indent=1) + "\n")
    short = [r for r in every if r["share"] < ENOUGH]
    print(f"{len(every) - len(short)} of {len(every)} transforms at {ENOUGH:.0%} of a copy or more, the least at "
          f"{min(r['share'] for r in every):.2f}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
