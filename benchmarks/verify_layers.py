"""Run the ten layers of the paper's table, full size, through `conv_fprop` on the virtual GPU, and compare every output
element with a float64 reference. Data: uniform in [-1, 1), fixed seed. Exit status 1 if a layer is off."""

import argparse
import json
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

import maxdnn
from maxdnn.algorithms.paper.maxwell import CONV_64X64, KERNELS
from maxdnn.layers import LAYERS, Layer
from maxdnn.reference import reference_rows, relative_error

TOLERANCE = 2e-6  # largest |out - reference| / sum of |terms|
SEED = 1


@dataclass(frozen=True)
class Result:
    """`error`: largest |out - reference| / sum |terms|. Seconds of the call (wall clock) and of the comparison."""

    network: str
    layer: str
    outputs: int
    error: float
    seconds: float
    gflops_per_second: float
    reference_seconds: float


def verify(layer: Layer, *kernels: str | None) -> list[Result]:
    """Run one layer by each of the kernels (None: the planner's choice of direct kernel); the reference is computed
    once for all."""
    s = layer.shape
    rng = np.random.default_rng(SEED)
    images = rng.uniform(-1, 1, (s.C, s.H, s.W, s.N)).astype(np.float32)
    filters = rng.uniform(-1, 1, (s.C, s.R, s.S, s.K)).astype(np.float32)
    outs, seconds = [], []
    for kernel in kernels:
        outs.append(np.full((s.K, s.P, s.Q, s.N), np.nan, np.float32))
        start = time.perf_counter()
        maxdnn.conv_fprop(images, filters, plan=maxdnn.plan(s, kernel=kernel, algorithm="direct", tuned=False),
                          out=outs[-1])
        seconds.append(time.perf_counter() - start)
    start = time.perf_counter()
    rows = reference_rows(images, filters, s)
    errors = np.max([[relative_error(out[:, p], want, magnitude) for out in outs]
                     for p, (want, magnitude) in enumerate(rows)], axis=0)
    reference_seconds = time.perf_counter() - start
    return [Result(layer.network, layer.name, out.size, float(error), took, s.flops / took / 1e9, reference_seconds)
            for out, error, took in zip(outs, errors, seconds, strict=True)]


def main(argv: Sequence[str] | None = None) -> int:
    names = [f"{x.network}-{x.name}" for x in LAYERS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", nargs="+", choices=names, default=names, metavar="LAYER", help=", ".join(names))
    parser.add_argument("--kernel", choices=[*(spec.name for spec in KERNELS), "best"], default=CONV_64X64.name,
                        help="'best': the planner's choice of direct kernel (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there too")
    args = parser.parse_args(argv)
    chosen = [x for x in LAYERS if f"{x.network}-{x.name}" in args.layers]
    print(f"{'layer':16}{'outputs':>12}{'max error':>12}{'seconds':>10}{'GFLOP/s':>10}{'reference s':>13}")
    results = []
    for layer in chosen:
        result, = verify(layer, None if args.kernel == "best" else args.kernel)
        results.append(result)
        print(f"{layer.network + '-' + layer.name:16}{result.outputs:12,}{result.error:12.2e}{result.seconds:10.2f}"
              f"{result.gflops_per_second:10.1f}{result.reference_seconds:13.2f}", flush=True)
    # Not `>=`: a NaN among the outputs makes the error NaN.
    wrong = [r for r in results if not r.error < TOLERANCE]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{len(results) - len(wrong)} of {len(results)} layers within {TOLERANCE:g} of the sum of |terms|; "
          f"peak memory of the process {peak:.2f} GiB")
    if args.json:
        args.json.write_text(json.dumps([asdict(r) for r in results], indent=1) + "\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
