#!/usr/bin/env python
"""Run the vendor corpus on the GPU of this machine, judge it by the references, and compare bits with the emulator.

    python tools/compare_gpu.py gpu --out RESULTS.json [--translated | --reassembled | --cubins DIR] [CASE ...]
    python tools/compare_gpu.py emulator --against RESULTS.json [CASE ...]

`gpu` compiles the sources for the GPU that is present (NVRTC from PyPI; or takes cubins made elsewhere for its
architecture by `tools/corpus.py build --arch sm_NN --out DIR`), runs every case with the same seeded inputs, checks the
outputs against the reference and writes a digest of every output to RESULTS.json. With --translated it runs the sm_52
cubins instead, through maxdnn's translation to PTX; with --reassembled what tools/maxas assembles of the source that it
extracts (sm_90).

A case whose outputs are not those of the reference is recorded as wrong, with the digests of what there was.

`emulator` runs the sm_52 cubins on the virtual GPU and reports every output whose bits differ from the GPU's.  Rows
with a documented error bound (approximate functions) are checked against the bound only.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import sys
import tempfile
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from tests.corpus import cases, compiler, record
from tests.corpus.cases._random import random_case
from tests.corpus.runner import Case


def run_case(gpu: Any, case: Case, cubin: bytes) -> dict[str, Any]:
    problem = case.problem()
    started = time.perf_counter()
    try:
        outputs = case.run(gpu, cubin, problem)
        seconds = time.perf_counter() - started
        case.check(outputs, problem)
    except AssertionError as wrong:
        return {"wrong": str(wrong), "digests": record.digests(problem, outputs)}
    except Exception as failure:
        return {"failed": f"{type(failure).__name__}: {failure}"}
    return {"seconds": round(seconds, 4), "digests": record.digests(problem, outputs)}


def selected(args: argparse.Namespace) -> list[Case]:
    every = cases.ALL + [random_case(seed) for seed in range(args.random)]
    return [case for case in every if not args.cases or any(name in case.name for name in args.cases)]


def on_gpu(args: argparse.Namespace) -> int:
    gpu: Any
    if args.translated:
        from maxdnn.runtime.devices import cuda as gpus

        gpu = gpus.device()
        how = f"{gpu.arch} translated to {gpu.ptx_target}"
    else:
        from tests.corpus.driver import DriverDevice

        gpu = DriverDevice()
        how = f"{gpu.arch}{', reassembled' * args.reassembled}, driver for CUDA {gpu.driver}"
    print(f"{gpu.name}, {how}")
    part = args.out.with_suffix(".part")
    results: dict[str, Any] = json.loads(part.read_text())["cases"] if args.resume else {}
    for case in selected(args):
        if case.name in results:
            continue
        cubin = cubin_of(case.source, args, gpu.arch)
        results[case.name] = {"source": compiler.source_digest(case.source), **run_case(gpu, case, cubin)}
        report(case, results[case.name])
        part.write_text(json.dumps({"gpu": gpu.name, "how": how, "cases": results}, indent=1) + "\n")
        if "failed" in results[case.name]:
            start_afresh()
    good = sum("seconds" in result for result in results.values())
    print(f"{good} of {len(results)} cases right on {gpu.name}")
    os.replace(part, args.out)
    return int(good < len(results))


@functools.cache
def reassembled(source: str, arch: str) -> bytes:
    from tests.maxas import tool

    with tempfile.TemporaryDirectory() as folder:
        return tool.again(compiler.compile_source(source, arch), pathlib.Path(folder))


def cubin_of(source: str, args: argparse.Namespace, arch: str) -> bytes:
    if args.cubins:
        return (args.cubins / (pathlib.Path(source).stem + ".cubin")).read_bytes()
    if args.reassembled:
        return reassembled(source, arch)
    return compiler.compile_source(source, "sm_52" if args.translated else arch)


def start_afresh() -> None:
    """A fault leaves the GPU's context unusable: go on with the next case in a new process."""
    sys.stdout.flush()
    resume = [] if "--resume" in sys.argv else ["--resume"]
    os.execv(sys.executable, [sys.executable, *sys.argv, *resume])


def on_emulator(args: argparse.Namespace) -> int:
    from maxdnn import emulator as emu

    where = json.loads(args.against.read_text())["gpu"]
    bad = compared = 0
    for case in selected(args):
        result = run_case(emu.VirtualGpu(), case, compiler.compile_source(case.source))
        theirs, ours = record.recorded(case, args.against), result.get("digests", {})
        stale = theirs is None
        theirs = theirs or {}
        different = [key for key in theirs if theirs[key] != ours.get(key)]
        compared += len(theirs)
        bad += bool(different) or stale or "seconds" not in result
        report(case, result)
        if stale:
            print("  not compared: the record is missing or of another version of the source")
        if different:
            print(f"  bits differ from {where}: {', '.join(different)}")
    print(f"{compared} outputs compared with {where}, {bad} cases bad")
    return int(bad > 0)


def report(case: Case, result: dict[str, Any]) -> None:
    state = f"{result['seconds']:9.4f} s" if "seconds" in result else "WRONG" if "wrong" in result else "FAILED"
    print(f"{case.name:28} {state}", flush=True)
    if "seconds" not in result:
        print("  " + str(result.get("wrong") or result["failed"]).replace("\n", "\n  "))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    gpu = commands.add_parser("gpu", help="run on the GPU of this machine and record the outcome")
    gpu.add_argument("--out", type=pathlib.Path, required=True, help="JSON file to write")
    gpu.add_argument("--cubins", type=pathlib.Path, help="folder of cubins for this GPU (default: compile here)")
    gpu.add_argument("--resume", action="store_true", help="go on after the cases in the .part file of an earlier run")
    gpu.add_argument("--translated", action="store_true", help="sm_52 cubins through maxdnn's translation to PTX")
    gpu.add_argument("--reassembled", action="store_true", help="cubins extracted as source and assembled again")
    gpu.set_defaults(function=on_gpu)
    emulator = commands.add_parser("emulator", help="run on the virtual GPU and compare bits with a recorded run")
    emulator.add_argument("--against", type=pathlib.Path, required=True, help="JSON file that `gpu` wrote")
    emulator.set_defaults(function=on_emulator)
    emulator.set_defaults(reassembled=False)
    for command in (gpu, emulator):
        command.add_argument("--random", type=int, default=0, metavar="N", help="also run N random programs")
        command.add_argument("cases", nargs="*", metavar="CASE", help="part of a case name (default: all)")
    args = parser.parse_args()
    return int(args.function(args))


if __name__ == "__main__":
    sys.exit(main())
