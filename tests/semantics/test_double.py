"""Double precision held to rational arithmetic in every rounding mode, one line per family. The payload of a NaN is not
documented: any NaN matches any other."""

import numpy as np
import pytest

from tests.corpus import exact
from tests.semantics.bench import After, Sample, check
from tests.semantics.operands import doubles
from tests.semantics.test_integer import boolean, joined, setp
from tests.semantics.test_single import minmax, relation


def finished(x):
    word = np.ascontiguousarray(x, np.float64).view(np.uint64)
    known = ~np.isnan(x)

    def wrong(got):
        return np.where(known, got != word, ~np.isnan(got.view(np.float64)))

    return After(word, wrong=wrong)


def dadd(s: Sample):
    return finished(exact.add64(s.d("a"), s.d("b"), mode=s.mode))


def dmul(s: Sample):
    return finished(exact.mul64(s.d("a"), s.d("b"), mode=s.mode))


def dfma(s: Sample):
    return finished(exact.fma64(s.d("a"), s.d("b"), s.d("c"), mode=s.mode))


def dmnmx(s: Sample):
    return finished(minmax(s.d("a"), s.d("b"), s.p("ps")))


def related(s: Sample):
    return relation(s.mods["cmp"], s.d("a"), s.d("b"))


CASES = {
    "DADD": (doubles, dadd, {"lanes": 512}),
    "DMUL": (doubles, dmul, {"lanes": 512}),
    "DFMA": (doubles, dfma, {"lanes": 512}),
    "DMNMX": (doubles, dmnmx, {}),
    "DSETP": (doubles, lambda s: setp(s, related(s)), {}),
    "DSET": (doubles, lambda s: boolean(s, joined(s.mods["bool"], related(s), s.p("ps"))), {}),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("names", CASES)
def test_every_form(names):
    inputs, model, options = CASES[names]
    print(check(names, inputs, model, **options), "operand sets")
