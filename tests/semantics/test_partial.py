"""Warps that are not full run through code of their own: families of every kind again, with 8 lanes in a block's second
warp."""

import pytest

from tests.semantics import test_convert, test_integer, test_logic, test_predicates, test_single
from tests.semantics.bench import check

FAMILIES = {
    "IADD": test_integer.CASES["IADD IADD.PO IADD32I IADD32I.PO"],
    "XMAD": test_integer.CASES["XMAD"],
    "ISETP": test_integer.CASES["ISETP"],
    "SHF.L": test_logic.CASES["SHF.L SHF.R"],
    "MOV": test_logic.CASES["MOV MOV32I"],
    "FFMA": test_single.CASES["FFMA FFMA32I"],
    "F2I": test_convert.CASES["F2I"],
    "R2P": test_predicates.CASES["R2P"],
    "CSETP": test_predicates.CASES["CSETP"],
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("names", FAMILIES)
def test_lanes_of_a_partial_warp_get_the_same_results(names):
    inputs, model, options = FAMILIES[names]
    print(check(names, inputs, model, threads=40, **options), "operand sets")
