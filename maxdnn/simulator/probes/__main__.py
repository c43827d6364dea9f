"""python -m maxdnn.simulator.probes: probes of an sm_90 card."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from . import chosen, first, pairs, placing, run
from .answers import Answers


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m maxdnn.simulator.probes", description=run.__doc__)
    parser.add_argument("--cubin", type=Path, required=True, help="the assembled probes: read if it is there, else "
                        "written; of --out a file for each module, with its name behind this one's")
    parser.add_argument("--modules", nargs="+", metavar="NAME", choices=run.modules(),
                        help="of --out: those of some modules alone, as misses")
    parser.add_argument("--out", type=Path, help="run them on GPU 0 and write the answers there, a line of JSON each")
    parser.add_argument("--seconds", type=float, default=120.0, help="stop after so long")
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--slopes", type=Path, help="write the clocks of an instruction of each probe of --out there")
    parser.add_argument("--first", type=Path, help="what first touches cost instead, into a file (first.py)")
    parser.add_argument("--places", type=Path, help="which SM takes which block instead, into a file (placing.py)")
    parser.add_argument("--pairs", type=Path, help="what SMs share instead, into a file (pairs.py)")
    parser.add_argument("--chosen", type=Path, help="what SMs of a CPC share instead, into a file (chosen.py)")
    args = parser.parse_args(argv)
    others = (args.first, first), (args.places, placing), (args.pairs, pairs), (args.chosen, chosen)
    for out, asked in others:
        if out:
            from ...runtime.devices import cuda

            if not args.cubin.exists():
                args.cubin.write_bytes(asked.cubin())
            asked.run(cuda.device(0), args.cubin.read_bytes(), out)
            return 0
    if args.work is not None:
        from ...runtime.devices import cuda

        run.work(cuda.device(0), args.cubin.read_bytes(), args.work, args.out)
        return 0
    cubins = {module: args.cubin.with_stem(f"{args.cubin.stem}-{module}") for module in args.modules or run.modules()}
    for module, path in cubins.items():
        if not path.exists():
            path.write_bytes(run.cubin(run.of_modules([module])))
    if args.out:
        run.report(list(cubins.values()), args.out, args.seconds)
        if args.slopes:
            found = Answers(args.out)
            args.slopes.write_text(json.dumps({"device": found.device, "slopes": found.slopes()}, indent=0) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
