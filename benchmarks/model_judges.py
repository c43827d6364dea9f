"""Judges of the timing model of an H200: launches of the library's kernels in machine code of sm_90, with clocks and
counters as Nsight Compute reads them, none of which any figure of the preset was taken from.

    python benchmarks/model_judges.py list --plans judges.pickle                        choose them, once
    python benchmarks/model_judges.py measure --plans judges.pickle --json FILE         on the card, needs ncu
    python benchmarks/model_judges.py middle --runs FILE FILE FILE --json FILE          of several measurements one
    python benchmarks/model_judges.py predict --plans judges.pickle --json FILE         anywhere, adds the model's
    python benchmarks/model_judges.py table --json FILE                                 the table of docs/timing-h200.md

Each launch is measured twice: cold, with empty caches (ncu --cache-control all), and warm, the second of two in a row
(--cache-control none). The model has the same two."""

import argparse
import dataclasses
import itertools
import json
import math
import pickle
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import judging
from suite import shapes

from maxdnn.errors import MaxdnnError
from maxdnn.planning.cost import Chip
from maxdnn.planning.plan import Plan
from maxdnn.planning.select import plans
from maxdnn.problem.problem import Problem, data, filters, forward, product

H200 = Chip("NVIDIA H200", 132, 2400.0, runs_maxwell=False, arch="sm_90")
CLOCKS = 18_000, 300_000  # of a plan by the estimate
LEAST = 19_800  # clocks: ten microseconds
MOST, MOST_TENSOR, CHUNK = 40, 20, 30  # of a group; plans profiled at a time
PRODUCTS = (
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 512, 1024),
    (1000, 3000, 700),
    (256, 4096, 256),
    (128, 2048, 4096),
    (3000, 64, 3000),
    (777, 777, 777),
    (2560, 2560, 2560),
)  # m, k, n
T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Judge:
    """A plan that is measured, each of its launches of machine code of sm_90 by itself."""

    name: str
    group: str
    problem: Problem
    candidate: str

    plan: Plan


def layers(n: int, layout: str) -> Iterator[tuple[str, Problem]]:
    """The suite's layers in all passes."""
    for name, shape in shapes(n):
        for make in (forward, data, filters):
            yield f"{name} N={n} {layout} {make.__name__}", make(shape, layout=layout)


def products(sizes: Sequence[tuple[int, int, int]] = PRODUCTS) -> Iterator[tuple[str, Problem]]:
    """Products of m x k and k x n, of operands as they lie and transposed."""
    for (m, k, n), ta, tb in itertools.product(sizes, (False, True), (False, True)):
        yield (
            f"product {m}x{k}x{n} {'t' if ta else 'n'}{'t' if tb else 'n'}",
            product((k, m) if ta else (m, k), (n, k) if tb else (k, n), transpose_a=ta, transpose_b=tb),
        )


def problems() -> Iterator[tuple[str, Problem]]:
    for n, layout in ((32, "NCHW"), (1, "NCHW"), (128, "CHWN"), (32, "CHWN")):
        yield from layers(n, layout)
    yield from products()


def family(candidate: str) -> str:
    """What the name of a candidate, or of its kernel, begins with: a judge's group."""
    return "_".join(candidate.split("_")[: 3 if "tensor" in candidate else 2])


def evenly(every: Sequence[T], count: int) -> list[T]:
    """So many of them, evenly spaced, or all."""
    count = min(count, len(every))
    return [every[(2 * i + 1) * len(every) // (2 * count)] for i in range(count)]


def judges(groups: Sequence[str] = ()) -> list[Judge]:
    """Of every group, or of some, at most so many, evenly spaced: of each problem the candidate with the least
    estimate."""
    found: dict[str, list[Judge]] = {}
    for name, problem in problems():
        best: dict[str, tuple[float, str, Plan]] = {}
        for candidate, plan in plans(problem, H200).items():
            if candidate.startswith("sm90_") and (not groups or family(candidate) in groups):
                clocks = plan.clocks(H200)
                if CLOCKS[0] <= clocks <= CLOCKS[1]:
                    this = clocks, candidate, plan
                    best[family(candidate)] = min(best.get(family(candidate), this), this, key=lambda t: t[:2])
        for group, (_, candidate, plan) in best.items():
            found.setdefault(group, []).append(Judge(name, group, problem, candidate, plan))
    taken = []
    for group, every in sorted(found.items()):
        taken += evenly(every, MOST_TENSOR if "tensor" in group else MOST)
    return taken


def sm90_launches(plan: Plan) -> list[int]:
    return [n for n, launch in enumerate(plan.launches) if launch.spec.source.startswith("sm90/")]


def run_plans(judges: Sequence[Judge], warm: bool) -> None:
    """Each once; with `warm`, then each launch of machine code of sm_90 twice. What the profiler watches."""
    import numpy as np

    from maxdnn.problem.operands import view
    from maxdnn.runtime.devices import cuda
    from maxdnn.runtime.engine import Engine

    device = cuda.device(0)
    engine = Engine(device)
    for judge in judges:
        problem = judge.problem
        try:
            given = {o.role: view(o.role, Filled(device, o.shape), rank=None) for o in problem.operands}
            engine.run(judge.plan, given, dict.fromkeys(problem.scalars, np.float32(1)), None)
            if warm:
                again(engine, judge.plan)
            device.synchronize()
        except MaxdnnError as e:  # nothing was launched: the next one may do
            print(f"{judge.name}, {judge.candidate}: {e}", file=sys.stderr, flush=True)
            continue
        own = sm90_launches(judge.plan)
        turns = [(n, False) for n in own] + [(n, last) for n in own for last in (False, True)] if warm else [
            (n, True) for n in own]
        launches = [[n, judge.plan.launches[n].spec.name, list(judge.plan.launches[n].grid), last] for n, last in turns]
        told = {"judge": judge.name, "candidate": judge.candidate, "group": judge.group, "launches": launches}
        print(json.dumps(told), flush=True)


def again(engine: Any, plan: Plan) -> None:
    """Launch a plan that has run once more, what is machine code of sm_90 twice in a row."""
    from maxdnn.runtime.devices.cuda.context import driver

    own = sm90_launches(plan)
    for n, prepared in enumerate(engine.loaded(plan)._prepared):
        with engine.device.active():
            prepared.bind()
            for _ in range(2 if n in own else 1):
                driver().launcher([prepared.launch])(0, 0)


class Filled:
    """Device memory with ordinary numbers: tensor cores' kernels have another path for extreme ones."""

    def __init__(self, device: Any, shape: tuple[int, ...]) -> None:
        import numpy as np

        self.shape, self._buffer = shape, device.alloc(4 * math.prod(shape))
        some = np.random.default_rng(1).standard_normal(1 << 16, np.float32)
        device.upload(self._buffer, np.resize(some, math.prod(shape)))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": "<f4", "data": (self._buffer.address, False), "version": 3}


def measure(path: Path, out: Path, seconds: float, stalls: bool) -> None:
    """Launches behind others with empty caches, then each behind itself, some plans at a time and as long as there is
    time; what was seen is written after each."""
    begin, rows = time.perf_counter(), {}
    parts = -(-len(chosen(path)) // CHUNK)
    for warm in (False, True):
        for at in range(parts):
            if time.perf_counter() - begin > seconds:
                print("no time is left")
                return
            metrics = judging.chosen_metrics(warm, stalls)
            for row in _profiled(path, slice(at, None, parts), out.with_suffix(".csv"), metrics, warm):
                key = _key(row)
                if not warm:
                    rows[key] = row
                elif key in rows:
                    rows[key]["warm"] = row["measured"]
            out.write_text(json.dumps({"rows": list(rows.values())}, indent=0) + "\n")
            print(f"{len(rows)} launches in {time.perf_counter() - begin:.0f} s", flush=True)


def _profiled(path: Path, part: slice, log: Path, metrics: Mapping[str, str], warm: bool) -> list[dict[str, Any]]:
    script = [__file__, "run", "--plans", str(path), "--part", f"{part.start}:{part.step}"]
    told, table = judging.profiled(script + ["--warm"] * warm, "sm90_", log, metrics, warm)
    expected = [(judge, launch) for judge in told for launch in judge["launches"]]
    if len(expected) != len(table):
        print(f"{len(expected)} launches told, {len(table)} seen")
    rows = []
    for (judge, launch), row in zip(expected, table, strict=False):
        if not row["Kernel Name"].startswith(launch[1]):
            print(f"{judge['judge']}: {launch[1]} was expected, {row['Kernel Name']} was seen")
            break
        if not launch[3]:
            continue
        rows.append(
            {
                **{key: judge[key] for key in ("judge", "candidate", "group")},
                "launch": launch[0],
                "kernel": launch[1],
                "grid": launch[2],
                "measured": judging.readings(row, metrics),
            }
        )
    return rows


def middle(runs: Sequence[Path], out: Path) -> None:
    """Of the launches that every measurement has the median of each reading; nothing of the model."""
    tables = [{_key(row): row for row in json.loads(path.read_text())["rows"]} for path in runs]
    rows = []
    for key in [key for key in tables[0] if all(key in table for table in tables)]:
        every = [table[key] for table in tables]
        row = {name: every[0][name] for name in ("judge", "candidate", "group", "launch", "kernel", "grid")}
        for state in ("measured", "warm"):
            if all(state in seen for seen in every):
                row[state] = {name: _median([seen[state].get(name) for seen in every]) for name in every[0][state]}
        rows.append(row)
    out.write_text(json.dumps({"rows": rows}, indent=0) + "\n")


def _key(row: Mapping[str, Any]) -> tuple[str, str, int]:
    return row["judge"], row["candidate"], row["launch"]


def _median(readings: Sequence[float | None]) -> float | None:
    known = [reading for reading in readings if reading is not None]
    return statistics.median(known) if known else None


def chosen(path: Path) -> list[Judge]:
    return list(pickle.loads(path.read_bytes()))


def predict(path: Path, out: Path, groups: Sequence[str], again: bool, name: str) -> None:
    """Add what the model says to each launch that was measured and is long enough."""
    from maxdnn.simulator import timing

    data = json.loads(out.read_text())
    found = {(judge.name, judge.candidate): judge for judge in chosen(path)}
    of, before = None, []
    for row in data["rows"]:
        if (groups and row["group"] not in groups) or ("model_warm" in row and not again) or not _long(row):
            continue
        plan, begin, machine = found[row["judge"], row["candidate"]].plan, time.perf_counter(), judging.card(name, row)
        launch = plan.launches[row["launch"]]
        if of is not plan:
            of, before = plan, timing.contents_before(plan, machine)
        ((work, function),) = timing.workloads(plan, [launch], machine)
        row |= judging.predicted(work, function, launch.block, machine, before[row["launch"]])
        row["seconds"] = round(time.perf_counter() - begin, 1)
        out.write_text(json.dumps(data, indent=0) + "\n")
        print(f"{row['kernel']:32} {row['judge']:45}", end="")
        print(*(f"{state} {error:+.1f} %" for state in judging.STATES for error in judging.errors([row], state, 0)),
              flush=True)


def _long(row: dict[str, Any]) -> bool:
    return bool(max(row[key]["clocks"] for key in ("measured", "warm") if key in row) > LEAST)


def table(out: Path) -> str:
    """Errors by group, of launches of more than 10 microseconds, and how the model orders them."""
    rows = [row for row in json.loads(out.read_text())["rows"] if "model" in row]
    lines = judging.by_group(rows, lambda row: family(row["kernel"]), LEAST)
    kept = [row for row in rows if row["warm"]["clocks"] > LEAST]
    lines.append("Kendall's tau of clocks, warm: "
                 f"{tau([(row['model_warm']['clocks'], row['warm']['clocks']) for row in kept]):.3f}")
    return "\n".join(lines + judging.apart(rows, LEAST))


def tau(pairs: Sequence[tuple[float, float]]) -> float:
    """Kendall's, of pairs of figures."""
    signs = [(a[0] > b[0]) - (a[0] < b[0]) for a, b in itertools.combinations(pairs, 2)]
    others = [(a[1] > b[1]) - (a[1] < b[1]) for a, b in itertools.combinations(pairs, 2)]
    return sum(x * y for x, y in zip(signs, others, strict=True)) / len(signs)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("list", "run", "measure", "middle", "predict", "table"))
    parser.add_argument("--plans", type=Path, metavar="FILE", help="the judges with their plans")
    parser.add_argument("--part", default="0:1", help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=100.0, help="start nothing after so long")
    parser.add_argument("--stalls", action="store_true", help="read reasons of stalls, too")
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--machine", default="h200", help="of predict: the preset of the card that was measured")
    parser.add_argument("--groups", nargs="*", default=(), help="of list and predict: these alone")
    parser.add_argument("--again", action="store_true", help="predict what has been predicted, too")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--runs", nargs="+", type=Path, default=(), metavar="FILE", help="of middle: measurements")
    args = parser.parse_args(argv)
    if args.what == "list":
        found = judges(args.groups)
        args.plans.write_bytes(pickle.dumps(found))
        for judge in found:
            print(judge.group, judge.candidate, judge.name, len(sm90_launches(judge.plan)))
    elif args.what == "run":
        first, step = map(int, args.part.split(":"))
        run_plans(chosen(args.plans)[first::step], args.warm)
    elif args.what == "measure":
        measure(args.plans, args.json, args.seconds, args.stalls)
    elif args.what == "middle":
        middle(args.runs, args.json)
    elif args.what == "predict":
        predict(args.plans, args.json, args.groups, args.again, args.machine)
    elif args.what == "table":
        print(table(args.json))
    return 0


if __name__ == "__main__":
    sys.exit(main())
