"""How near the transforms of Winograd's layers come to a plain copy, on a real GPU: every transform of a plan alone,
and in the same run a copy that reads and writes as many bytes altogether, both captured into CUDA graphs. A byte counts
once, however often it is fetched. What a transform is held against is the slower of that copy and one of a gigabyte:
launches of a few megabytes last as long as a launch does, whatever they do, and a copy of some dozens of megabytes
never leaves the GPU's cache, where it is faster than memory.

What no transform of so many blocks can be faster than is measured beside it: a launch of as many threads that do
nothing, and one of threads that together fetch as many floats as tiles have, each thread its share at once, and then
store as many, neighbours beside each other, with no other arithmetic than one address.

Needs what suite.py needs. Prints rows as they come; exit status 1 if one is below three quarters of that."""

import argparse
import dataclasses
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from suite import Suite, shapes

import maxdnn
from maxdnn.planning.plan import Launch, Plan
from maxdnn.planning.select import choose
from maxdnn.problem.problem import forward

ENOUGH = 0.75  # of the copy's rate
ROUNDS = 5  # of transform and copy in turn; whatever else disturbs one is left out
STEPS = {"maps": "maps", "out": "results", "filters": "filters"}


def chain(loads: int, stores: int, threads: int) -> str:
    """PTX of a kernel whose threads each fetch and then store so many floats, `threads` apart."""
    lines = [f"ld.global.f32 %f{i}, [%rd3 + {4 * i * threads}];" for i in range(loads)]
    lines += [f"st.global.f32 [%rd4 + {4 * i * threads}], %f{i % loads};" for i in range(stores)]
    return "\n".join((".version 7.0", ".target sm_70", ".address_size 64",
                      ".visible .entry chain(.param .u64 from, .param .u64 to)", "{",
                      f".reg .f32 %f<{loads + 1}>;", ".reg .b32 %r<6>;", ".reg .b64 %rd<5>;",
                      "ld.param.u64 %rd1, [from];", "ld.param.u64 %rd2, [to];", "mov.u32 %r1, %tid.x;",
                      "mov.u32 %r2, %ctaid.x;", "mov.u32 %r3, %ctaid.y;", "mov.u32 %r4, %nctaid.x;",
                      "mad.lo.u32 %r2, %r3, %r4, %r2;", "mov.u32 %r5, %ntid.x;", "mad.lo.u32 %r1, %r2, %r5, %r1;",
                      "mad.wide.u32 %rd3, %r1, 4, %rd1;", "mad.wide.u32 %rd4, %r1, 4, %rd2;", *lines, "ret;", "}", ""))


def bounds(suite: Suite, launch: Launch, target: Any) -> dict[str, float]:
    """Seconds of a launch of as many threads that do nothing, and of one whose threads fetch and store only."""
    import pycuda.driver as cuda

    (x, y, z), (block, _, _), points = launch.grid, launch.block, launch.spec.points  # type: ignore[attr-defined]
    share = block // launch.spec.units  # type: ignore[attr-defined]
    inside = {"maps": points.inputs**2, "out": points.inputs**2, "filters": points.taps**2}[launch.spec.step]  # type: ignore[attr-defined]
    outside = points.outputs**2 if launch.spec.step == "out" else points.inputs**2  # type: ignore[attr-defined]
    found = {}
    for name, loads, stores in (("launch_seconds", 0, 0), ("chain_seconds", -(-inside // share), -(-outside // share))):
        with suite.device.active():
            function = cuda.module_from_buffer(chain(loads, stores, x * y * z * block).encode()).get_function("chain")
            function.prepare("PP")

        def call(function: Any = function) -> None:
            with suite.device.active():
                function.prepared_async_call((x, y, z), (block, 1, 1), suite.queue, target, target)
        found[name] = suite.seconds_of(call)
    return found


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
        # as many floats of each thread as a tile has, whether fetched or stored
        scratch = suite.torch.zeros(launch.grid[0] * launch.grid[1] * launch.block[0] * 64, device="cuda")

        def call(alone: Plan = alone) -> None:
            maxdnn.conv_fprop(x, w, plan=alone, out=out, stream=suite.queue)

        def copied(target: Any = target, source: Any = source) -> None:
            target.copy_(source)
        graphs = suite.captured(call), suite.captured(copied)
        rounds = [[suite.replayed(*graph) for graph in graphs] for _ in range(ROUNDS)]
        seconds, copy = (statistics.median(one) for one in zip(*rounds, strict=True))
        found.append({"layer": name, "n": s.N, "layout": plan.layout, "kernel": launch.spec.name, "step": STEPS[step],
                      "bytes": nbytes, "blocks": launch.grid[0] * launch.grid[1], "seconds": seconds,
                      "copy_seconds": copy, **bounds(suite, launch, scratch.data_ptr())})
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
    print(f"{'layer':32} layout N {'kernel':36}{'MB':>9}{'blocks':>8}{'us':>9}{'copy us':>9}{'TB/s':>7}{'share':>7}"
          f"{'chain us':>9}{'launch us':>10}")
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
                          f"{row['bytes'] / row['seconds'] / 1e12:7.2f}{row['share']:7.2f}"
                          f"{1e6 * row['chain_seconds']:9.2f}{1e6 * row['launch_seconds']:10.2f}", flush=True)
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
