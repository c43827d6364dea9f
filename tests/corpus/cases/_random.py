"""Random programs as cases without a reference: two devices must agree on every bit (tools/compare_gpu.py)."""

from __future__ import annotations

import numpy as np

from tests.corpus.cases._values import integers, prefilled
from tests.corpus.runner import Case, Launch, Problem


def random_case(seed: int) -> Case:
    """Exact random program number `seed` on 256 threads; its output is scratch, as no reference exists."""

    def build(rng: np.random.Generator) -> Problem:
        n = 250
        buffers = {"in": rng.permutation(integers(rng, np.uint32, n)), "out": prefilled(n + 16, np.uint32)}
        launch = Launch("random_kernel", (2, 1, 1), (128, 1, 1), ["in", "out", np.int32(n)])
        constants = {"table": integers(rng, np.uint32, 64)}
        return Problem(buffers, [launch], dict, constants=constants, scratch=frozenset({"out"}))

    return Case(f"random_{seed}", f"random_{seed}.cu", build)
