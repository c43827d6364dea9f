"""Linear layers, and batches of products as attention has them, by this library beside PyTorch in FP32, replayed as
CUDA graphs: what `products.LEAST_PRODUCTS` and `matrices.LEAST_EACH` are set by. python
benchmarks/linear_layers.py. Needs a CUDA GPU."""

import torch
from torch.nn import functional as F

from maxdnn.torch import products
from maxdnn.torch.measure import Bench

SIZES = [(rows, features, outputs) for features, outputs in ((9216, 4096), (4096, 4096)) for rows in (1, 16, 32, 64)]
SIZES += [(rows, *pair) for pair in ((768, 768), (768, 2304), (768, 3072), (3072, 768)) for rows in (197, 3152, 6304)]
SIZES += [(100352, 96, 384), (100352, 384, 96), (25088, 192, 768), (1568, 768, 3072)]
"""Rows, features, outputs."""

BATCHES = [(12, 197, 64), (384, 197, 64), (8, 1024, 64), (64, 1024, 64), (16, 512, 128), (96, 128, 64), (8, 256, 256)]
"""Products, tokens, features of a head."""


def main() -> None:
    """Print microseconds of both, forward and of the two derivatives."""
    products.LEAST_PRODUCTS = 0
    bench = Bench(0, 0.05)
    print(f"{'rows':>7} {'features':>8} {'outputs':>8} {'2^27':>6}   forward: ours, FP32   of input   of weight")
    for rows, features, outputs in SIZES:
        x, w, g = (torch.rand(size, device="cuda") - 0.5 for size in ((rows, features), (outputs, features),
                                                                         (rows, outputs)))
        line = f"{rows:7} {features:8} {outputs:8} {rows * features * outputs / 2 ** 27:6.2f}"
        with torch.inference_mode():
            for ours, theirs in ((lambda x=x, w=w: products.layer(x, w, None), lambda x=x, w=w: F.linear(x, w)),
                                 (lambda g=g, w=w: products.product(g, w, False, False), lambda g=g, w=w: g @ w),
                                 (lambda g=g, x=x: products.product(g, x, True, False), lambda g=g, x=x: g.mT @ x)):
                one, other = bench._times([ours, theirs], "graph")
                line += f"   {1e6 * one:7.1f} {1e6 * other:7.1f} {other / one:5.2f}"
        print(line, flush=True)
    print(f"{'batch':>7} {'tokens':>8} {'features':>8} {'2^21':>6}   scores: ours, FP32   of values")
    for batch, tokens, features in BATCHES:
        q, p = (torch.rand(batch, tokens, last, device="cuda") - 0.5 for last in (features, tokens))
        line = f"{batch:7} {tokens:8} {features:8} {tokens * tokens * features / 2 ** 21:6.2f}"
        with torch.inference_mode():
            for ours, theirs in ((lambda q=q: products.product(q, q, False, True), lambda q=q: q @ q.mT),
                                 (lambda p=p, q=q: products.product(p, q, False, False), lambda p=p, q=q: p @ q)):
                one, other = bench._times([ours, theirs], "graph")
                line += f"   {1e6 * one:7.1f} {1e6 * other:7.1f} {other / one:5.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
