"""What a change that only moves or renames things must not change, as digests.

`python tools/freeze.py FILE` writes them; `python tools/freeze.py FILE --compare` says where the tree differs from the
file, with exit status 1 if it does. Frozen are the machine code of every kernel and the bytes of its cubin, its PTX and
the checker's report; for seeded random problems of all kinds and three chips every candidate's launches, workspace,
documented error and estimated clocks, and the choice; the timing model's clocks of the paper's ten layers. Names that a
person gave (of parameters, regions, files, texts of plans) are left out, since renaming changes them. Names that users
and tuning records know (kernels, candidates) are in."""

import argparse
import hashlib
import json
import random
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from maxdnn.build.cubins import architectures, cubin, sources
from maxdnn.checker import check_cubin
from maxdnn.cubin import read
from maxdnn.errors import MaxdnnError, ShapeError
from maxdnn.layers import LAYERS
from maxdnn.planning.cost import Chip, preset
from maxdnn.planning.plan import Launch, Part, Plan
from maxdnn.planning.select import choose, plans
from maxdnn.problem.problem import Problem, bias, data, filters, forward, product
from maxdnn.problem.shape import ConvShape
from maxdnn.ptx.translate import translate
from maxdnn.simulator.timing import call, conv

PROBLEMS = 5000
CHUNK = 50  # problems of a task
CHECKED = 10  # of so many problems, one whose choice is made a second time, by `choose`
PTX_TARGET = "sm_90"
PAPER = "sconv_fprop_paper"  # kernel with the paper's loop
CHIPS: Mapping[str, Callable[[], Chip]] = {
    "gm204": preset,
    "h200": lambda: Chip("NVIDIA H200", 132, 1697.0, runs_maxwell=False, memory=140 << 30, driver="any", arch="sm_90"),
    "made-up": lambda: Chip("made-up", 108, 1100.0, runs_maxwell=False, memory=40 << 30, driver="any", arch="sm_90"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="JSON file of digests")
    parser.add_argument("--compare", action="store_true", help="compare the tree with the file instead of writing it")
    parser.add_argument("--problems", type=int, default=PROBLEMS, help=f"how many (default: {PROBLEMS})")
    parser.add_argument("--only", choices=["kernels", "plans", "clocks"], help="this part alone")
    parser.add_argument("--show", type=int, metavar="N", help="print what is digested of problem N, and write nothing")
    parser.add_argument("--jobs", type=int, default=2)
    args = parser.parse_args()
    if args.show is not None:
        print(json.dumps(planned(args.show), indent=1))
        return 0
    parts = {"kernels": kernels, "plans": lambda: all_plans(args.problems, args.jobs), "clocks": clocks}
    found = {name: make() for name, make in parts.items() if args.only in (None, name)}
    if not args.compare:
        args.file.write_text(json.dumps(found, indent=0, sort_keys=True))
        return 0
    return report(json.loads(args.file.read_text()), found)


def report(before: Mapping[str, Any], now: Mapping[str, Any]) -> int:
    """Prints what differs; 1 if anything does. Of problems, those that both have are compared."""
    status = 0
    for part, found in now.items():
        known = before[part]
        keys = known.keys() & found.keys() if part == "plans" else known.keys() | found.keys()
        odd = sorted(key for key in keys if known.get(key) != found.get(key))
        print(f"{part}: {len(keys)} compared, {len(odd)} differ")
        for key in odd[:20]:
            print(f"  {key}: {known.get(key)} -> {found.get(key)}")
        status |= bool(odd)
    return status


def digest(value: object) -> str:
    data = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()
    return hashlib.sha256(data).hexdigest()[:16]


# -- kernels ----------------------------------------------------------------------------------------------------------


def kernels() -> dict[str, str]:
    """By kernel: bytes of the cubin, code, PTX, report of the checker."""
    found = {}
    for source in sources():
        arch = "sm_52" if "sm_52" in architectures(source) else architectures(source)[0]
        data = cubin(source, arch)
        reports = {one.kernel: digest(one.as_dict()) for one in check_cubin(data)}
        for name, kernel in read(data).kernels.items():
            found[f"{name} cubin"] = digest(data)
            found[f"{name} code"] = digest(kernel.code)
            found[f"{name} check"] = reports[name]
        if arch == "sm_52" and not source.startswith("probes/"):
            text = _ptx(data)
            for name in read(data).kernels:
                found[f"{name} ptx"] = digest(text)
    return found


def _ptx(data: bytes) -> str:
    try:
        return translate(read(data), PTX_TARGET)
    except MaxdnnError as e:
        return str(e)


# -- plans ------------------------------------------------------------------------------------------------------------


def all_plans(count: int, jobs: int) -> dict[str, str]:
    """Digests of the plans of problems 0, 1, ... on each chip."""
    starts = range(0, count, CHUNK)
    ends = [min(start + CHUNK, count) for start in starts]
    found: dict[str, str] = {}
    with ProcessPoolExecutor(jobs) as pool:
        for number, part in enumerate(pool.map(_chunk, starts, ends)):
            found |= part
            print(f"\rproblems: {ends[number]} of {count}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return found


def _chunk(start: int, end: int) -> dict[str, str]:
    return {f"{number} {chip}": digest(value) + " " + str(value["choice"])
            for number in range(start, end) for chip, value in planned(number).items()}


def planned(number: int) -> dict[str, Any]:
    """By chip, every candidate of a problem and the choice."""
    problem = draw(random.Random(number))
    found: dict[str, Any] = {}
    for name, make in CHIPS.items():
        chip = make()
        try:
            made = plans(problem, chip)
        except ShapeError as e:
            found[name] = {"choice": type(e).__name__}
            continue
        choice = min(made, key=lambda one: made[one].clocks(chip))
        if number % CHECKED == 0:
            chosen = choose(problem, chip, tuned=False)
            assert content(chosen) == content(made[choice]), f"{number} {name}: {choice} is not what is chosen"
        found[name] = {"candidates": {one: content(plan, chip) for one, plan in made.items()}, "choice": choice}
    return found


def content(plan: Plan, chip: Chip | None = None) -> dict[str, Any]:
    """What a plan does, without names that a person gave."""
    order = {name: f"region {at}" for at, name in enumerate(plan.workspace)}
    found: dict[str, Any] = {
        "launches": [_launch(launch, order) for launch in plan.launches], "error": plan.error,
        "workspace": [[r.offset, r.nbytes, r.first, r.last] for r in plan.workspace.values()]}
    if chip is not None:
        found["clocks"] = f"{plan.clocks(chip):.9g}"
    return found


def _launch(launch: Launch, order: Mapping[str, str]) -> dict[str, Any]:
    def place(value: Any) -> Any:
        if isinstance(value, Part):
            return [place(value.name), value.offset]
        return order.get(value, value) if isinstance(value, str) else value
    spec = launch.spec
    return {"kernel": spec.name, "grid": launch.grid, "values": [place(launch.values[p.name]) for p in spec.params],
            "textures": [place(launch.textures[name]) for name in spec.textures],
            "tables": [digest(launch.tables[c.name]) for c in spec.constants], "flops": launch.flops,
            "writes": sorted(map(place, launch.writes))}


# -- problems ---------------------------------------------------------------------------------------------------------


def draw(rng: random.Random) -> Problem:
    """A problem of any kind: layers as networks have them, and odd ones."""
    kind = rng.choice(["forward"] * 6 + ["data"] * 3 + ["filters"] * 3 + ["product"] * 2 + ["bias"])
    reads = rng.random() < 0.25
    if kind == "product":
        return _product(rng, reads)
    layout, shape = rng.choice(["CHWN", "NCHW"]), _shape(rng)
    if kind == "bias":
        s = shape
        return bias((s.N, s.K, s.P, s.Q) if layout == "NCHW" else (s.K, s.P, s.Q, s.N), layout=layout, reads_out=reads)
    if kind == "forward":
        made = forward(shape, layout=layout, unaligned=_odd(rng, "images", "filters", "out"), reads_out=reads,
                       bias=rng.random() < 0.4, activation=rng.choice([None, "relu"]))
    elif kind == "data":
        made = data(shape, layout=layout, unaligned=_odd(rng, "gradients", "filters", "out"), reads_out=reads)
    else:
        made = filters(shape, layout=layout, unaligned=_odd(rng, "images", "gradients", "out"), reads_out=reads)
    return replace(made, most_workspace=rng.choice([None] * 8 + [1 << 20, 1 << 26]))


def _odd(rng: random.Random, *roles: str) -> list[str]:
    return [role for role in roles if rng.random() < 0.15]


def _product(rng: random.Random, reads: bool) -> Problem:
    m, n, k = (rng.choice([1, 7, 33, 64, 128, 255, 512, 1000, 1024, 2048, 4096, rng.randint(1, 700)]) for _ in "MNK")
    ta, tb = rng.random() < 0.5, rng.random() < 0.5
    stack = tuple(rng.randint(1, 5) for _ in range(rng.choice([0, 0, 1, 2])))
    return product(stack + ((k, m) if ta else (m, k)), stack + ((n, k) if tb else (k, n)), transpose_a=ta,
                   transpose_b=tb, unaligned=_odd(rng, "a", "b", "out"), reads_out=reads)


def _shape(rng: random.Random) -> ConvShape:
    while True:
        n = rng.choice([1, 1, 2, 4, 8, 16, 32, 33, 64, 100, 128])
        c, k = (rng.choice([1, 3, 16, 32, 48, 64, 96, 128, 192, 256, 512, rng.randint(1, 300)]) for _ in "CK")
        groups = rng.choice([1] * 8 + [2, 4, c])
        hw = rng.choice([1, 4, 7, 13, 14, 24, 27, 28, 32, 56, 112, 224, rng.randint(1, 80)])
        h, w = hw, rng.choice([hw, hw, hw, rng.randint(1, 80)])
        r, s = rng.choice([(1, 1), (1, 1), (3, 3), (3, 3), (3, 3), (3, 3), (5, 5), (5, 5), (7, 7), (11, 11), (1, 7),
                           (7, 1), (rng.randint(1, 9), rng.randint(1, 9))])
        stride = rng.choice([1, 1, 1, 2, 4, (2, 1)])
        dilation = rng.choice([1] * 6 + [2, (1, 3)])
        padding = rng.choice([0, (r // 2, s // 2), (r // 2, s // 2), (rng.randint(0, 12), rng.randint(0, 12))])
        k = -(-k // groups) * groups if c % groups == 0 else k
        try:
            shape = ConvShape(n, c, h, w, k, r, s, stride, padding, dilation, groups)
        except ShapeError:
            continue
        if shape.flops < 2e12:
            return shape


# -- clocks -----------------------------------------------------------------------------------------------------------


def clocks() -> dict[str, list[int]]:
    """Simulated clocks of each launch of the ten layers, by the paper's kernel and by a whole call of the best plan."""
    return {f"{one.network}-{one.name}": [x.clocks for timing in (conv(one.shape, kernel=PAPER), call(one.shape))
                                          for x in timing.launches] for one in LAYERS}


if __name__ == "__main__":
    sys.exit(main())
