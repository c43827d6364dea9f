"""Trials of machine code with the virtual GPU as the card: kernels as they are pass, and no damage does."""

import numpy as np
import pytest

from maxdnn.build.cubins import AMPERE, ARCHS, FOR_AMPERE, declared
from maxdnn.build.cubins import cubin as built
from maxdnn.errors import OutOfMemoryError
from maxdnn.planning.select import chip_of
from maxdnn.problem.problem import bias, data, filters, forward, product
from maxdnn.problem.shape import ConvShape
from maxdnn.runtime import apart, trust
from maxdnn.runtime.apart import FAILED, PASSED, UNDECIDED
from maxdnn.selftest import trial
from maxdnn.selftest.truth import truth
from tests.contract import run_plan
from tests.gpu import spoiled

SOURCE = "sm90/product_32x64"
ALL = [*spoiled.KINDS, *spoiled.FILES]


@pytest.fixture
def few_runs(monkeypatch):
    monkeypatch.setattr(trial, "RUNS", 2)


def card(arch="sm_86"):
    gpu = trial.virtual(arch)
    gpu.instruction_budget = 1 << 18  # an endless loop is over soon
    return gpu


@pytest.mark.parametrize("arch", ["sm_86", "sm_90", pytest.param("sm_52", marks=pytest.mark.long)])
def test_small_problems_use_every_kernel_of_every_source(arch):
    chip = card(arch).chip
    found = trial.sources(chip)
    assert {*found} >= (FOR_AMPERE if arch in (*AMPERE, "sm_90") else {"maxwell/pad", "maxwell/winograd_maps"})
    for source in found:
        used = {launch.spec.name for plan in trial.covering(source, chip) for launch in plan.launches}
        assert {kernel["name"] for kernel in declared(source)} <= used, source


@pytest.mark.exhaustive
@pytest.mark.parametrize("source", sorted(FOR_AMPERE))
def test_kernels_as_they_are_pass(source, few_runs):
    steps = []
    state, text = trial.outcome(card(), source, built(source, "sm_86"), steps.append)
    assert state == PASSED and text.endswith("2 times each") and steps[0] == "native" and {*steps[1:]} == {"plan"}
    assert trust.trying is None


def test_sources_that_have_no_translation_run_beside_the_one_that_is_tried(few_runs):
    """Products on tensor cores want their operands split by another source."""
    assert trial.outcome(card("sm_90"), "sm90/split", built("sm90/split", "sm_90"))[0] == PASSED


@pytest.mark.parametrize("source", ["maxwell/sum", *(pytest.param(s, marks=pytest.mark.exhaustive) for s in (
    "maxwell/transpose", "maxwell/fill", "maxwell/product_64x64", "maxwell/winograd_maps"))])
def test_kernels_of_maxwell_are_tried_alike(source, few_runs):
    assert trial.outcome(card(ARCHS[1]), source, built(source, ARCHS[1]))[0] == PASSED


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=[] if kind in (
    "results 512 bytes further", *spoiled.FILES) else [pytest.mark.exhaustive]) for kind in ALL])
def test_no_damage_passes(kind, few_runs):
    assert len(ALL) > 20
    steps = []
    state, text = trial.outcome(card(), SOURCE, spoiled.spoilt(built(SOURCE, "sm_86"), kind), steps.append)
    assert state == FAILED and steps[0] == "native", text


@pytest.mark.exhaustive
def test_what_goes_wrong_in_another_process_never_reaches_a_result(monkeypatch, tmp_path, few_runs):
    """The whole way: a choice, a trial of a spoiled kernel, a translation in its place, the verdict remembered."""
    device = trial.virtual("sm_86")
    monkeypatch.delenv("MAXDNN_NATIVE", raising=False)
    monkeypatch.setattr(trust, "_KEY", f"{tmp_path}")  # of this test alone, in the cache that compiled code is in, too
    monkeypatch.setattr(apart, "STEP", 5.0)
    images = {source: spoiled.spoilt(built(source, "sm_86"), "a branch to itself")
              for source in ("sm90/product_32x64", "sm90/product_64x64", "sm90/product_128x128")}
    with spoiled.unmeasured(images):
        plan = spoiled.planned(device)
        assert not plan.archs and "it hangs" in plan.explain()
        assert spoiled.error(device, plan) < 2e-6
        off = next(source for source in images if f": {source}" in plan.explain())
    with spoiled.unmeasured(images):
        monkeypatch.setattr(trust, "tried", None)
        assert not trust.standing(device.chip, off).on


def test_without_memory_nothing_is_decided(monkeypatch):
    def full(*_):
        raise OutOfMemoryError("out of memory", 1)
    device = card()
    monkeypatch.setattr(device, "alloc", full)
    state, text = trial.outcome(device, SOURCE, b"")
    assert (state, text) == (UNDECIDED, "out of memory") and trust.trying is None


def test_a_translation_that_is_wrong_decides_nothing(monkeypatch):
    """Then the fault is not the machine code's."""
    device = card()
    monkeypatch.setattr(trial, "_results", lambda device, plan, given, times: iter([np.zeros_like(given["out"])]))
    state, text = trial.outcome(device, SOURCE, b"")
    assert state == UNDECIDED and "the translation that it is compared with" in text


S = ConvShape(2, 6, 7, 6, 9, 3, 2, (2, 1), (1, 2), (1, 2), 3)


@pytest.mark.parametrize("layout", ["CHWN", "NCHW"])
@pytest.mark.parametrize("kind", [forward, data, filters])
def test_float64_is_what_the_kernels_promise(kind, layout):
    """Of small integers, in which every order of sums gives the same."""
    epilogue = {"bias": True, "activation": "relu"} if kind is forward else {}
    _agrees(kind(S, layout=layout, reads_out=True, **epilogue))


def test_float64_of_products_and_of_gradients_of_bias():
    _agrees(product((3, 4, 5), (3, 5, 6)))
    _agrees(product((5, 4), (6, 5), transpose_a=True, transpose_b=True, reads_out=True))
    _agrees(bias((2, 5, 3, 4), layout="NCHW"))


def _agrees(problem):
    from maxdnn.planning.cost import preset
    from maxdnn.planning.select import plans

    rng = np.random.default_rng(3)
    given = trial._integers(problem, rng)
    scalars = {name: float(trial.SCALARS[name]) for name in problem.scalars}
    exact = truth(problem, given, scalars)
    assert exact.dtype == np.float64
    name, plan = next((n, p) for n, p in plans(problem, preset()).items() if p.algorithm == "direct")
    assert np.array_equal(run_plan(plan, given, **scalars)["out"].reshape(exact.shape), exact), name
    assert chip_of(card()).arch == "sm_86"
