"""Exchange between lanes, held to the pseudo-code of `shfl` and the definition of `vote` in the PTX ISA."""

import numpy as np
import pytest

from tests.semantics.bench import After, Sample, check
from tests.semantics.operands import integers


def shfl(s: Sample):
    """Source lane, segment and clamp lane after lane. What a lane without its guard would give is undefined: those
    results are not compared."""
    a, b, c, on = s.n("a"), s.n("b"), s.n("c"), s.guard()
    value, inside, known = np.zeros(s.lanes, np.uint32), np.zeros(s.lanes, bool), np.ones(s.lanes, bool)
    for k in range(s.lanes):
        lane, warp = k % 32, k - k % 32
        bval, cval, mask = int(b[k]) & 31, int(c[k]) & 31, int(c[k]) >> 8 & 31
        least, most = lane & mask, lane & mask | cval & ~mask & 31
        j, ok = {"UP": (lane - bval, lane - bval >= most), "DOWN": (lane + bval, lane + bval <= most),
                 "BFLY": (lane ^ bval, (lane ^ bval) <= most),
                 "IDX": (least | bval & ~mask & 31, (least | bval & ~mask & 31) <= most)}[s.mods["mode"]]
        j = j if ok else lane
        value[k], inside[k], known[k] = a[warp + j], ok, on[warp + j]
    return After(value, pd=inside, wrong=lambda got: known & (got != value))


def vote(s: Sample):
    """Over the lanes that execute; d takes the ballot."""
    on, p = s.guard().reshape(-1, 32), s.p("ps").reshape(-1, 32)
    ballot = ((p & on).astype(np.uint64) << np.arange(32, dtype=np.uint64)).sum(1).astype(np.uint32)
    every, some = (p | ~on).all(1), (p & on).any(1)
    result = {"ALL": every, "ANY": some, "EQ": every | ~some}[s.mods["mode"]]
    return After(np.repeat(ballot, 32), pd=np.repeat(result, 32))


def uniform(draw, lanes):
    """As integers, the predicates equal within some warps, so that votes agree now and then."""
    out = integers(draw, lanes)
    out[8] = np.where(np.repeat(draw.random(lanes // 32) < 0.6, 32), np.repeat(out[8, ::32], 32), out[8])
    return out


CASES = {
    "SHFL": (integers, shfl, {"least": 8}),
    "VOTE": (uniform, vote, {"least": 12}),
}


@pytest.mark.parametrize("names", CASES)
def test_every_form(names):
    inputs, model, options = CASES[names]
    print(check(names, inputs, model, **options), "operand sets")
