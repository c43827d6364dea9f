#!/usr/bin/env python
"""Compile the vendor corpus, count its instructions, or generate more programs.

    python tools/corpus.py build --out DIR [--arch sm_52] [--jobs N]
    python tools/corpus.py stats [--arch sm_52] [--opcodes]
    python tools/corpus.py random --count N --seed S --out DIR [--exact]

The sources are under tests/corpus; the compilers are the vendor's, from PyPI packages (see tests/oracles.py).
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from tests import oracles
from tests.corpus import compiler, randomprog


def opcode(text: str) -> str:
    """The mnemonic without guard and modifiers: "@!P0 FADD.FTZ R1, R2, R3" -> "FADD"."""
    return re.sub(r"^@!?U?P[0-9T]\s+", "", text).split(" ")[0].split(".")[0]


def _write(folder: pathlib.Path, name: str, data: bytes) -> None:
    part = folder / (name + ".part")
    part.write_bytes(data)
    os.replace(part, folder / name)


def _build_one(job: tuple[str, str, str]) -> tuple[str, int]:
    name, arch, folder = job
    cubin = compiler.compile_source(name, arch)
    _write(pathlib.Path(folder), pathlib.Path(name).stem + ".cubin", cubin)
    return name, len(cubin)


def _random_one(job: tuple[int, str, str, bool]) -> tuple[str, int]:
    seed, arch, folder, exact = job
    text = compiler.source_text(f"random_{seed}.cu") if exact else randomprog.program(seed)
    cubin = compiler.compile_text(text, ".cu", arch)
    (pathlib.Path(folder) / f"random_{seed}.cu").write_text(text)
    _write(pathlib.Path(folder), f"random_{seed}.cubin", cubin)
    return f"random_{seed}.cu", sum(len(lines) for lines in oracles.disassembly(cubin).values())


def build(args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    jobs = [(name, args.arch, str(args.out)) for name in compiler.sources()]
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        for name, size in pool.map(_build_one, jobs):
            print(f"{name:24} {size:9} bytes")


def random_programs(args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    seeds = range(args.seed, args.seed + args.count)
    jobs = [(seed, args.arch, str(args.out), args.exact) for seed in seeds]
    total = 0
    with concurrent.futures.ProcessPoolExecutor(args.jobs) as pool:
        for name, count in pool.map(_random_one, jobs):
            print(f"{name:24} {count:7} instructions")
            total += count
    print(f"{'total':24} {total:7} instructions (padding included)")


def stats(args: argparse.Namespace) -> None:
    opcodes: collections.Counter[str] = collections.Counter()
    kernels = total = 0
    print(f"{'source':24} {'functions':>9} {'instructions':>12}")
    for name in compiler.sources():
        functions = oracles.disassembly(compiler.compile_source(name, args.arch))
        count = sum(len(lines) for lines in functions.values())
        print(f"{name:24} {len(functions):9} {count:12}")
        kernels, total = kernels + len(functions), total + count
        opcodes.update(opcode(text) for lines in functions.values() for _, text in lines)
    print(f"{'total':24} {kernels:9} {total:12}   {len(opcodes)} opcodes")
    if args.opcodes:
        for name, count in sorted(opcodes.items()):
            print(f"  {name:10} {count:7}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, function, text in (
        ("build", build, "compile every corpus program into DIR"),
        ("random", random_programs, "write N random programs, sources and cubins, into DIR"),
        ("stats", stats, "count functions, instructions and opcodes of the corpus"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        command.set_defaults(function=function)
        command.add_argument("--arch", default="sm_52", help="real architecture (default sm_52)")
        if name != "stats":
            command.add_argument("--out", type=pathlib.Path, required=True, help="folder for the cubins")
            command.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes (default: all cores)")
        if name == "random":
            command.add_argument("--count", type=int, required=True, help="number of programs")
            command.add_argument("--seed", type=int, default=0, help="seed of the first program (default 0)")
            command.add_argument(
                "--exact",
                action="store_true",
                help="short, and only operations whose bits are defined (for compare_gpu.py)",
            )
        if name == "stats":
            command.add_argument("--opcodes", action="store_true", help="list every opcode with its count")
    args = parser.parse_args()
    args.function(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
