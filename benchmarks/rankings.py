"""How the estimate and the timing model rank candidates of an H200, beside the times that a card takes for them.

    python benchmarks/rankings.py list --plans candidates.pickle [--of SET]          choose problems, once
    python benchmarks/rankings.py measure --plans candidates.pickle --json FILE      on the card
    python benchmarks/rankings.py predict --plans candidates.pickle --json FILE      anywhere, adds the model's clocks
    python benchmarks/rankings.py estimate --json FILE [--of SET]                    anywhere, the estimates of now
    python benchmarks/rankings.py table --json FILE                                  the tables of docs/timing-h200.md

Sets: "own", plans of which every launch is machine code of sm_90, as translated kernels are not in the model; "others",
the same of problems that the estimate was not mended by; "likely", the plans with the least estimates, of any kind.
Each is measured behind itself, many calls in a row, and simulated so."""

import argparse
import itertools
import json
import math
import pickle
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from model_judges import H200, evenly, family, layers, products, sm90_launches, tau

from maxdnn.errors import MaxdnnError
from maxdnn.planning.cost import BETWEEN
from maxdnn.planning.plan import Plan
from maxdnn.planning.select import plans
from maxdnn.problem.problem import Problem

FEWEST = 3  # candidates of a problem
MHZ = 1980  # of the SMs: clocks of the table
WRONG = 0.2  # of the time: an estimate that is further off
MINIBATCHES = {
    "own": ((1, "NCHW"), (4, "NCHW"), (8, "NCHW"), (32, "NCHW"), (32, "CHWN"), (64, "CHWN")),
    "others": ((2, "NCHW"), (16, "NCHW"), (96, "CHWN")),
    "likely": ((1, "NCHW"), (8, "NCHW"), (32, "NCHW"), (32, "CHWN")),
}
OTHER_PRODUCTS = ((640, 640, 640), (1536, 384, 768), (2000, 1000, 300), (200, 5000, 500), (5000, 128, 1000),
                  (300, 300, 3000))  # m, k, n
SIZES = {"own": (200, 120_000), "others": (100, 200_000), "likely": (1000, 400_000)}
"""Of a set: the most problems, and the clocks of a problem's best plan, which takes less."""
LEAST, WITHIN = 10, 1.7  # of "likely": so many plans, of at most so much of the least estimate

Candidates = dict[str, Plan]
Row = dict[str, Any]


def every(of: str) -> Iterator[tuple[str, Problem]]:
    """The problems that those of a set are chosen from."""
    found = itertools.chain.from_iterable(layers(*minibatch) for minibatch in MINIBATCHES[of])
    if of == "likely":
        yield from itertools.islice(found, 0, None, 5)
    else:
        yield from found
        yield from products() if of == "own" else products(OTHER_PRODUCTS)


def candidates(of: str) -> dict[str, Candidates]:
    """The plans of a set by problem, evenly spaced ones of those that are short enough."""
    (count, longest), found = SIZES[of], {}
    for name, problem in every(of):
        one = plans(problem, H200)
        if of != "likely":
            one = {key: plan for key, plan in one.items() if len(sm90_launches(plan)) == len(plan.launches)}
        estimates = {key: plan.clocks(H200) for key, plan in one.items()}
        if len(one) < FEWEST or min(estimates.values()) >= longest:
            continue
        if of == "likely":
            least = sorted(estimates, key=estimates.__getitem__)[:LEAST]
            one = {key: one[key] for key in least if estimates[key] < WITHIN * estimates[least[0]]}
        found[name] = one
    return {name: found[name] for name in evenly(list(found), count)}


def measure(found: Mapping[str, Candidates], out: Path) -> None:
    """Microseconds of a call of each, the median of five samples."""
    from maxdnn.runtime.devices import cuda
    from maxdnn.runtime.measure import Runner, Stopwatch

    device: Any = cuda.device(0)
    rows: list[Row] = []
    watch = Stopwatch(device)
    for name, one in found.items():
        runner = Runner(device)
        for candidate, plan in one.items():
            try:
                call = runner.call(plan)
                call()
                seconds = statistics.median(watch.seconds(call, len(plan.launches), 5))
            except MaxdnnError as e:
                print(f"{name}, {candidate}: {e}", file=sys.stderr, flush=True)
                continue
            rows.append({"problem": name, "candidate": candidate, "kernels": [x.spec.name for x in plan.launches],
                         "estimate": round(plan.clocks(H200)), "measured_us": round(1e6 * seconds, 2)})
        write(out, rows)


def predict(found: Mapping[str, Candidates], out: Path) -> None:
    """Add clocks by the model to rows that have none."""
    from maxdnn.simulator import timing

    rows = read(out)
    for row in rows:
        if "model" not in row:
            begin, plan = time.perf_counter(), found[row["problem"]][row["candidate"]]
            row["model"] = timing.call(plan, machine="h200", options=timing.Options(warm=True)).clocks
            row["seconds"] = round(time.perf_counter() - begin, 1)
            write(out, rows)


def estimate(out: Path, of: str) -> None:
    """Put the estimates of the library as it is into rows that were measured before."""
    rows = read(out)
    by_problem = _by_problem(rows)
    for name, problem in every(of):
        if name in by_problem:
            now = plans(problem, H200)
            for row in by_problem.pop(name):
                row["estimate"] = round(now[row["candidate"]].clocks(H200))
    write(out, rows)


def read(path: Path) -> list[Row]:
    return list(json.loads(path.read_text())["rows"])


def write(path: Path, rows: Sequence[Row]) -> None:
    path.write_text(json.dumps({"rows": rows}, indent=0) + "\n")


# -- the table ---------------------------------------------------------------------------------------------------------


def clocks(row: Row) -> float:
    return float(row["measured_us"]) * MHZ


def _by(key: Callable[[Row], str], rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _by_problem(rows: Sequence[Row]) -> dict[str, list[Row]]:
    return _by(lambda row: str(row["problem"]), rows)


def table(rows: Sequence[Row]) -> str:
    """How the problems' candidates are ranked, and how far estimate and model are off, by kernel. The model knows
    nothing of the time between launches."""
    names = ["estimate"]
    if "model" in rows[0]:
        rows = [row | {"model": row["model"] + BETWEEN * (len(row["kernels"]) - 1)} for row in rows]
        names.append("model")
    lines = ["| by | tau, mean | median | fastest one chosen | chosen over fastest, geometric mean | P90 | largest |",
             "|---|---|---|---|---|---|---|"]
    found = list(_by_problem(rows).values())
    for by in names:
        taus = [tau([(row[by], clocks(row)) for row in one]) for one in found if len(one) > 1]
        over = [clocks(min(one, key=lambda row: row[by])) / min(map(clocks, one)) for one in found]
        mean = math.exp(statistics.mean(map(math.log, over)))
        lines.append(f"| {by} | {statistics.mean(taus):.2f} | {statistics.median(taus):.2f} | "
                     f"{over.count(1)} of {len(over)} | {mean:.3f} | {np.percentile(over, 90):.2f} | {max(over):.2f} |")
    head = "".join(f" {by} over measured: P10, median, P90 | off by more than 20 % |" for by in names)
    lines += ["", f"| kernel | candidates |{head}", "|---|---|" + "---|---|" * len(names)]
    for name, one in [*sorted(_by(lambda row: family(row["candidate"]), rows).items()), ("all", rows)]:
        lines.append(f"| {name} | {len(one)} |" + "".join(f" {_spread(one, by)} |" for by in names))
    return "\n".join(lines)


def _spread(rows: Sequence[Row], by: str) -> str:
    ratios = [row[by] / clocks(row) for row in rows]
    low, middle, high = np.percentile(ratios, [10, 50, 90])
    return f"{low:.2f}, {middle:.2f}, {high:.2f} | {sum(abs(ratio - 1) > WRONG for ratio in ratios)}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("list", "measure", "predict", "estimate", "table"))
    parser.add_argument("--plans", type=Path, metavar="FILE", help="the candidates")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--of", choices=("own", "others", "likely"), default="own", help="of list, estimate: the set")
    args = parser.parse_args(argv)
    if args.what == "list":
        args.plans.write_bytes(pickle.dumps(candidates(args.of)))
    elif args.what == "estimate":
        estimate(args.json, args.of)
    elif args.what == "table":
        print(table(read(args.json)))
    else:
        {"measure": measure, "predict": predict}[args.what](pickle.loads(args.plans.read_bytes()), args.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
