#!/usr/bin/env python
"""Run the random C programs of tests/corpus/cprogram.py: on the virtual GPU, or translated to PTX on a real one.

    python tools/random_programs.py check --count 500 [--arch sm_90]       compiled for it, on the virtual GPU
    python tools/random_programs.py check --count 200 --back               translations, compiled for it by ptxas
    python tools/random_programs.py make --count 300 --out BUNDLE.npz      where g++, NVRTC 12 and this library are
    python tools/random_programs.py run BUNDLE.npz                         where the GPU is: needs NumPy and its driver

`check` and `make` compile every program by g++, for what it means. `check` compiles it by NVRTC for `--arch`, or for
sm_52, translates that to PTX and compiles it for `--arch` by ptxas (`--back`), and runs it. `make` compiles it by NVRTC
for sm_52 and translates the cubin as the library does for a GPU that cannot run it; `run` lets the driver compile the
PTX and runs it. Every word the programs write is compared.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time
from typing import Any

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from tests.corpus import net
from tests.corpus.cprogram import BLOCKS, THREADS


def check(args: argparse.Namespace) -> int:
    from maxdnn.emulator import VirtualGpu

    started, wrong = time.perf_counter(), 0
    end = args.first + args.count
    for first in range(args.first, end, net.BATCH):
        seeds = range(first, min(first + net.BATCH, end))
        cubin, shared = net.compiled_back(seeds, args.arch) if args.back else (net.compiled(seeds, args.arch), None)
        differences = net.differences(net.on_device(VirtualGpu(), cubin, seeds, shared), net.expected(seeds))
        for seed, what in differences.items():
            print(f"program {seed}: {what}")
        wrong += len(differences)
        print(f"programs {args.first} to {seeds[-1]}: {wrong} different", flush=True)
    print(f"{args.count} programs for {args.arch}{', translated from sm_52' if args.back else ''}: {wrong} different, "
          f"in {time.perf_counter() - started:.0f} s")
    return int(wrong > 0)


def make(args: argparse.Namespace) -> int:
    from maxdnn.cubin import read
    from maxdnn.ptx.translate import translate

    arrays: dict[str, Any] = {}
    shared: dict[str, int] = {}
    for first in range(args.first, args.first + args.count, net.BATCH):
        seeds = range(first, min(first + net.BATCH, args.first + args.count))
        cubin = read(net.compiled(seeds))
        arrays[f"ptx_{first}"] = np.frombuffer(translate(cubin, args.target).encode(), np.uint8)
        for seed, want in net.expected(seeds).items():
            arrays[f"in_{seed}"], arrays[f"out_{seed}"] = net.inputs(seed), want
            shared[str(seed)] = cubin.kernel(f"net_{seed}").shared_bytes
        print(f"program {seeds[-1]}", flush=True)
    firsts = sorted(int(key[4:]) for key in arrays if key[:4] == "ptx_")
    about = {"target": args.target, "shared": shared, "modules": firsts}
    np.savez_compressed(args.out, about=np.frombuffer(json.dumps(about).encode(), np.uint8), **arrays)
    print(f"{args.count} programs for {args.target}: {args.out}, {args.out.stat().st_size / 1e6:.1f} MB")
    return 0


def run(args: argparse.Namespace) -> int:
    from tests.corpus.driver import DriverDevice, DriverError

    bundle = np.load(args.bundle)
    about = json.loads(bundle["about"].tobytes())
    gpu = DriverDevice()
    print(f"{gpu.name}, {gpu.arch}; programs translated to {about['target']}")
    started, wrong, count = time.perf_counter(), 0, 0
    words, out = gpu.alloc(16 * THREADS * BLOCKS), gpu.alloc(4 * net.WORDS)
    for first in about["modules"]:
        module = gpu.load(bundle[f"ptx_{first}"].tobytes() + b"\0")
        wanted = {s: bundle[f"out_{s}"] for s in map(int, about["shared"]) if first <= s < first + net.BATCH}
        found: dict[int, Any] = {}
        for seed in wanted:
            gpu.upload(words, bundle[f"in_{seed}"])
            gpu.upload(out, net.first_output())
            found[seed] = net.first_output()
            parameters = np.array([words.address, out.address], np.uint64)  # one block of parameters
            try:
                module.function(f"net_{seed}").launch(
                    (BLOCKS, 1, 1), (THREADS, 1, 1), [parameters], shared_bytes=about["shared"][str(seed)])  # fmt: skip
                gpu.synchronize()
                gpu.download(out, found[seed])
            except DriverError as failure:
                print(f"program {seed}: {failure}; the context is lost")
                return 1
        differences = net.differences(found, wanted)
        for seed, what in differences.items():
            print(f"program {seed}: {what}")
        wrong, count = wrong + len(differences), count + len(wanted)
    print(f"{count} programs, {wrong} different, in {time.perf_counter() - started:.1f} s")
    return int(wrong > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    checker = commands.add_parser("check", help="run programs on the virtual GPU")
    checker.add_argument("--count", type=int, default=500, help="how many programs (default 500)")
    checker.add_argument("--first", type=int, default=0, help="number of the first one")
    checker.add_argument("--arch", default="sm_90", help="architecture to compile for (default sm_90)")
    checker.add_argument("--back", action="store_true", help="of the translation of the code for sm_52")
    checker.set_defaults(function=check)
    maker = commands.add_parser("make", help="write a bundle of translated programs, inputs and results")
    maker.add_argument("--count", type=int, default=300, help="how many programs (default 300)")
    maker.add_argument("--first", type=int, default=0, help="number of the first one")
    maker.add_argument("--target", default="sm_90", help="GPU to translate for (default sm_90)")
    maker.add_argument("--out", type=pathlib.Path, required=True, help="file to write (.npz)")
    maker.set_defaults(function=make)
    runner = commands.add_parser("run", help="run a bundle on the GPU of this machine")
    runner.add_argument("bundle", type=pathlib.Path)
    runner.set_defaults(function=run)
    args = parser.parse_args()
    return int(args.function(args))


if __name__ == "__main__":
    sys.exit(main())
