"""Judges of the timing model of an H200 that are none of the library's kernels: programs in CUDA C (benchmarks/judges)
as NVIDIA's compiler makes them, with clocks and counters as Nsight Compute reads them.

    python benchmarks/vendor_judges.py build --cubins DIR                     compile them (NVRTC, no GPU needed)
    python benchmarks/vendor_judges.py check --cubins DIR [--card]            small launches against NumPy
    python benchmarks/vendor_judges.py measure --cubins DIR --json FILE       on the card, needs ncu
    python benchmarks/vendor_judges.py predict --cubins DIR --json FILE       anywhere, adds the model's
    python benchmarks/vendor_judges.py table --json FILE                      errors by group, and the worst

Each launch is measured twice: with empty caches, as the model begins, and as the second of two in a row ("warm")."""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # of the tests: compiler and driver

import judging
import numpy as np
from judges import FOLDER, Program, Work, all_programs

LEAST = 9_900  # clocks: five microseconds
CHUNK = 50  # launches profiled at a time
SMS = 132


def build(folder: Path) -> None:
    from tests import oracles

    folder.mkdir(parents=True, exist_ok=True)
    for source in sorted({program.source for program in all_programs().values()}):
        cubin = oracles.compile_cuda((FOLDER / f"{source}.cu").read_text(), "sm_90", name=f"{source}.cu")
        (folder / f"{source}.cubin").write_bytes(cubin)


def launches(only: Sequence[str] = ()) -> list[tuple[Program, tuple[Any, ...]]]:
    """Every launch that is timed."""
    return [(p, size) for p in all_programs().values() for size in p.sizes if not only or p.kernel in only]


# -- running -----------------------------------------------------------------------------------------------------------


class Placed:
    """A program's memory and kernel on a device."""

    def __init__(self, device: Any, cubins: Path, program: Program, work: Work) -> None:
        self.device, self.work = device, work
        module = device.load((cubins / f"{program.source}.cubin").read_bytes())
        for name, data in work.constants.items():
            module.set_constant(name, data)
        self.function = module.function(program.kernel)
        self.buffers = {name: device.alloc(data.nbytes) for name, data in work.buffers.items()}
        for name, data in work.buffers.items():
            device.upload(self.buffers[name], np.ascontiguousarray(data))
        self.args = [self.buffers[a] if isinstance(a, str) else a for a in work.args]

    def launch(self) -> None:
        self.function.launch(self.work.grid, self.work.block, self.args)

    def result(self, name: str) -> np.ndarray:
        self.device.synchronize()
        out = np.empty_like(self.work.buffers[name])
        self.device.download(self.buffers[name], out)
        return out

    def free(self) -> None:
        for buffer in self.buffers.values():
            buffer.free()


def card() -> Any:
    from tests.corpus.driver import DriverDevice

    return DriverDevice()


def virtual() -> Any:
    from maxdnn.emulator import VirtualGpu

    return VirtualGpu()


def check(cubins: Path, on_card: bool, only: Sequence[str]) -> int:
    """How many programs give other results than NumPy."""
    device, bad = card() if on_card else virtual(), 0
    for program in all_programs().values():
        if only and program.kernel not in only:
            continue
        placed = Placed(device, cubins, program, program.make(*program.small))
        try:
            placed.launch()
            wrong = [
                text
                for name, want in placed.work.expected().items()
                if (text := different(placed.result(name), want, placed.work))
            ]
        except Exception as e:
            wrong = [f"{type(e).__name__}: {e}"]
        bad += bool(wrong)
        print(f"{program.kernel:20} {'; '.join(wrong) or 'as NumPy'}", flush=True)
        placed.free()
    return bad


def different(got: np.ndarray, want: Any, work: Work) -> str:
    """Where a result is not what it should be; "" if nowhere."""
    got, want = got.ravel(), np.asarray(want).ravel()
    if got.dtype.kind in "fc":
        wrong = ~(np.abs(got.astype(want.dtype) - want) <= work.error * np.abs(want).max())
    else:
        wrong = got != want.astype(got.dtype)
    if wrong.sum() <= work.unlike * wrong.size:
        return ""
    at = int(wrong.argmax())
    return f"{wrong.sum()} of {wrong.size} wrong, [{at}]: {got[at]}, not {want[at]}"


def run(cubins: Path, part: slice, warm: bool, only: Sequence[str]) -> None:
    """Some launches, with `warm` each twice; what the profiler watches."""
    device = card()
    for program, size in launches(only)[part]:
        placed = Placed(device, cubins, program, program.make(*size))
        times = 2 if warm and not placed.work.once else 1
        for _ in range(times):
            placed.launch()
        device.synchronize()
        placed.free()
        told = {"program": program.kernel, "group": program.source, "size": list(size)}
        told |= {"grid": placed.work.grid, "block": placed.work.block, "times": times}
        print(json.dumps(told), flush=True)


def measure(cubins: Path, out: Path, seconds: float, stalls: bool, only: Sequence[str]) -> None:
    """Cold launches, then warm ones, some at a time and as long as there is time; written after each."""
    begin, rows = time.perf_counter(), {}
    chunks = -(-len(launches(only)) // CHUNK)
    for warm in (False, True):
        metrics = judging.chosen_metrics(warm, stalls)
        for at in range(chunks):
            if time.perf_counter() - begin > seconds:
                print("no time is left")
                return
            script = [__file__, "run", "--cubins", str(cubins), "--part", f"{at}:{chunks}", "--only", *only]
            told, table = judging.profiled(script + ["--warm"] * warm, ".", out.with_suffix(".csv"), metrics, warm)
            for launch, row in _matched(told, table):
                key = launch["program"], *launch["size"]
                if warm and launch.pop("times") == 2 and key in rows:
                    rows[key]["warm"] = judging.readings(row, metrics)
                elif not warm:
                    rows[key] = launch | {"measured": judging.readings(row, metrics)}
            out.write_text(json.dumps({"rows": list(rows.values())}, indent=0) + "\n")
            print(f"{len(rows)} launches in {time.perf_counter() - begin:.0f} s", flush=True)


def _matched(told: Sequence[Any], table: Sequence[dict[str, str]]) -> Iterator[tuple[Any, dict[str, str]]]:
    """Each launch with the row of the last time it ran."""
    seen = iter(table)
    for launch in told:
        for _ in range(launch["times"]):
            row = next(seen, None)
            if row is None or not row["Kernel Name"].startswith(launch["program"]):
                print(f"{launch['program']} was expected, {row['Kernel Name'] if row else 'nothing'} was seen")
                return
        yield launch, row


# -- the model ---------------------------------------------------------------------------------------------------------


def predict(cubins: Path, out: Path, only: Sequence[str], again: bool, sizes: str, name: str) -> None:
    """Add what the model says to each launch that was measured, or to all where there is no file yet."""
    if out.exists():
        data = json.loads(out.read_text())
    else:
        data = {"rows": [{"program": p.kernel, "group": p.source, "size": list(size)} for p, size in launches()]}
    for row in data["rows"]:
        program = all_programs()[row["program"]]
        first = tuple(row["size"]) == tuple(program.sizes[0])
        if (only and program.kernel not in only) or (not again and "model" in row) or (sizes == "first" and not first):
            continue
        begin = time.perf_counter()
        try:
            row |= _simulated(cubins, program, row["size"], judging.card(name, row))
        except Exception as e:
            row["refused"] = f"{type(e).__name__}: {e}"
            print(f"{row['program']:20} {row['refused']}", flush=True)
            continue
        row.pop("refused", None)
        row["seconds"] = round(time.perf_counter() - begin, 1)
        out.write_text(json.dumps(data, indent=0) + "\n")
        print(f"{row['program']:20} {row['size']!s:20} {row['model']['clocks']:10,}", end=" ")
        print(*(f"{state} {error:+.1f} %" for state in judging.STATES for error in judging.errors([row], state, 0)),
              flush=True)


def _simulated(cubins: Path, program: Program, size: Sequence[Any], machine: Any) -> dict[str, Any]:
    from maxdnn.simulator import timing

    placed = Placed(virtual(), cubins, program, program.make(*size))
    grid, block = placed.work.grid, placed.work.block
    # memory is as at first when all blocks are traced: what some of them have stored would take others elsewhere
    work = timing.workload(placed.function, grid, block, placed.args, machine=machine)
    return judging.predicted(work, placed.function, block, machine)


def table(out: Path) -> str:
    """Errors by source, of launches of more than 5 microseconds, then each launch."""
    rows = [row for row in json.loads(out.read_text())["rows"] if "model" in row and "measured" in row]
    lines = judging.by_group(rows, lambda row: str(row["group"]), LEAST) + judging.apart(rows, LEAST)
    for state, (measured, model) in judging.STATES.items():
        kept = [row for row in rows if row.get(measured, {}).get("clocks", 0) > LEAST]
        lines += ["", f"| {state} | measured | model | error |", "|---|---|---|---|"]
        for row in sorted(kept, key=lambda row: -abs(judging.errors([row], state, LEAST)[0])):
            lines.append(f"| {row['program']} {' '.join(map(str, row['size']))} | {row[measured]['clocks']:,.0f} | "
                         f"{row[model]['clocks']:,} | {judging.errors([row], state, LEAST)[0]:+.1f} % |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("build", "check", "run", "measure", "predict", "table"))
    parser.add_argument("--cubins", type=Path, metavar="DIR", default=Path("build/judges"))
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--only", nargs="*", default=(), metavar="KERNEL", help="these programs alone")
    parser.add_argument("--card", action="store_true", help="check on GPU 0 instead of the virtual GPU")
    parser.add_argument("--seconds", type=float, default=120.0, help="of measure: start nothing after so long")
    parser.add_argument("--stalls", action="store_true", help="measure reasons of stalls, too")
    parser.add_argument("--again", action="store_true", help="predict what has been predicted, too")
    parser.add_argument("--sizes", choices=("all", "first"), default="all", help="of predict")
    parser.add_argument("--machine", default="h200", help="of predict: the preset of the card that was measured")
    parser.add_argument("--part", default="0:1", help=argparse.SUPPRESS)
    parser.add_argument("--warm", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.what == "build":
        build(args.cubins)
    elif args.what == "check":
        return check(args.cubins, args.card, args.only)
    elif args.what == "run":
        first, step = map(int, args.part.split(":"))
        run(args.cubins, slice(first, None, step), args.warm, args.only)
    elif args.what == "measure":
        measure(args.cubins, args.json, args.seconds, args.stalls, args.only)
    elif args.what == "predict":
        predict(args.cubins, args.json, args.only, args.again, args.sizes, args.machine)
    else:
        print(table(args.json))
    return 0


if __name__ == "__main__":
    sys.exit(main())
