"""Every kernel in machine code of sm_90 again and again, on the GPU that is there: the same bits each time, nothing
written beside its operands. Whole sums, parts of them, what adds to what is there (`mutants.reached`).

    python -m tests.gpu.again [--runs R] [--kernels PART]
    compute-sanitizer --tool racecheck python -m tests.gpu.again --runs 1

Exits with 1 if something differs."""

import argparse
import sys

from maxdnn.build.cubins import HOPPER
from tests.gpu import mutants


def differing(stand: mutants.Stand, plans: mutants.Plans, runs: int) -> list[str]:
    """What did not give the same bits every time, or wrote beside its operands, in words."""
    found = []
    for (_, kernel), every in plans.items():
        for plan in every:
            results = [stand.bits(plan) for _ in range(runs)]
            beside = next((result["guard"].decode() for result in results if "guard" in result), None)
            wrong = beside or ("not the same bits" if any(result != results[0] for result in results) else None)
            if wrong:
                found.append(f"{kernel}: {plan.problem.kind} of {plan.problem.shape}: {wrong}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--kernels", default="", metavar="PART", help="part of a kernel's name (default: all)")
    args = parser.parse_args()
    plans = mutants.reached(args.kernels)
    if not plans:
        parser.error(f"--kernels must be part of the name of a kernel of {HOPPER} (got {args.kernels!r})")
    from maxdnn.runtime.devices import cuda as gpus
    found = differing(mutants.Stand(gpus.device(0), plans), plans, args.runs)
    print(*found, f"{len(plans)} kernels, {sum(map(len, plans.values()))} plans, {args.runs} runs: {len(found)} differ",
          sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
