"""What a call tells of itself: `explain(verbose=True)` and MAXDNN_VERBOSE."""

import re

import numpy as np
import pytest

import maxdnn
from maxdnn.algorithms import registry
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import MaxdnnError
from maxdnn.planning.cost import Chip, preset
from maxdnn.planning.select import choose, plans
from maxdnn.problem.problem import forward
from maxdnn.runtime import engine, verbose
from maxdnn.runtime.measure import Runner
from tests.card import Card, spare_assembling

SHAPE = maxdnn.ConvShape(4, 3, 6, 6, 8, 3, 3, 1, 1)
IMAGES, FILTERS = np.ones((3, 6, 6, 4), np.float32), np.ones((3, 3, 3, 8), np.float32)
GRADIENTS = np.ones((8, 6, 6, 4), np.float32)
CALLS = {
    "forward": lambda device: maxdnn.conv_fprop(IMAGES, FILTERS, padding=1, device=device),
    "data": lambda device: maxdnn.conv_bprop_data(GRADIENTS, FILTERS, (6, 6), padding=1, device=device),
    "filters": lambda device: maxdnn.conv_bprop_filters(IMAGES, GRADIENTS, (3, 3), padding=1, device=device),
    "bias": lambda device: maxdnn.conv_bprop_bias(GRADIENTS, device=device),
    "product": lambda device: maxdnn.matmul(np.ones((6, 4), np.float32), np.ones((4, 5), np.float32), device=device),
}


@pytest.fixture(autouse=True)
def _nothing_is_assembled(monkeypatch):
    spare_assembling(monkeypatch)


def told(capsys):
    return [line.removeprefix("maxdnn: ") for line in capsys.readouterr().err.splitlines()
            if "assembling" not in line]


@pytest.mark.parametrize("kind", CALLS)
def test_a_line_for_each_call_and_the_candidates_with_the_first(kind, monkeypatch, capsys):
    monkeypatch.setenv("MAXDNN_VERBOSE", "1")
    card = Card()
    CALLS[kind](card)
    first, *candidates = told(capsys)
    problem, plan, arithmetic, estimated = first.split("; ")
    assert problem.split()[0] == kind and "FLOP" in problem
    assert re.fullmatch(r"plan \w+, \d+ launch(es)?, \w+", plan)
    assert re.fullmatch(r"(direct|winograd), float32 by FFMA, error at most \S+ of the sum of \|terms\|", arithmetic)
    assert re.fullmatch(r"estimated [\d,]+ clocks on stand-in", estimated)
    assert all(re.match(r"  (not taken: |does not serve: |\w+ is estimated at )", line) for line in candidates)
    assert candidates or kind == "bias"
    CALLS[kind](card)
    assert told(capsys) == [first]


def test_no_line_and_nothing_in_the_way_where_nobody_asks(monkeypatch, capsys):
    for value in (None, "", "0"):
        if value is None:
            monkeypatch.delenv("MAXDNN_VERBOSE", raising=False)
        else:
            monkeypatch.setenv("MAXDNN_VERBOSE", value)
        card = Card()
        CALLS["forward"](card)
        assert told(capsys) == []
        plan = maxdnn.plan(SHAPE, device=card)
        assert type(engine.of(card).loaded(plan)) is engine._Loaded  # which knows nothing of all this
        monkeypatch.setenv("MAXDNN_VERBOSE", "1")  # read once for each device
        CALLS["forward"](card)
        assert told(capsys) == []


def test_a_time_where_it_is_asked_for(monkeypatch, capsys):
    monkeypatch.setenv("MAXDNN_VERBOSE", "2")
    card = Card(cost=lambda name, grid: 25e-6)
    CALLS["filters"](card)
    launches = len(card.launched)
    CALLS["filters"](card)
    first, *_, last = told(capsys)
    assert first.endswith(f"; measured {25.0 * launches:.1f} us, loading included")
    assert last.endswith(f"; measured {25.0 * launches:.1f} us")
    gpu = VirtualGpu()
    CALLS["bias"](gpu)
    assert re.search(r"; emulated in \d+\.\d{3} s, loading included$", told(capsys)[0])


def test_a_call_that_a_graph_records_is_not_measured(monkeypatch, capsys):
    monkeypatch.setenv("MAXDNN_VERBOSE", "2")
    card, ran = Card(), []
    teller = verbose.Teller(maxdnn.plan(SHAPE, device=card), card, verbose.level())
    monkeypatch.setattr(card, "synchronize", lambda: pytest.fail("a capture would be lost"))
    teller.tell(lambda: ran.append(1), 7, recorded=True)
    assert ran == [1] and told(capsys)[0].endswith("; recorded into a graph")


def test_what_measures_plans_tells_nothing(monkeypatch, capsys):
    monkeypatch.setenv("MAXDNN_VERBOSE", "2")
    card = Card()
    Runner(card).call(maxdnn.plan(SHAPE, device=card))()
    assert card.launched and told(capsys) == []


@pytest.mark.parametrize("value", ["3", "yes", "-1"])
def test_what_the_variable_cannot_be_is_said_before_any_work(value, monkeypatch):
    monkeypatch.setenv("MAXDNN_VERBOSE", value)
    card = Card()
    with pytest.raises(MaxdnnError, match=re.escape(f"MAXDNN_VERBOSE must be 0, 1 (a line for each call) or 2 (with "
                                                    f"its time) (got {value!r})")):
        CALLS["forward"](card)
    assert not card.launched


# -- explain(verbose=True) ---------------------------------------------------------------------------------------------

H200 = Chip("NVIDIA H200", 132, 1697.0, runs_maxwell=False, memory=140 << 30, arch="sm_90", clock_mhz=1980)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("chip", [preset(), H200], ids=lambda chip: chip.name)
@pytest.mark.parametrize("options", [{}, {"algorithm": "direct"}, {"max_error": 1e-4}, {"prepared": True}], ids=str)
def test_every_candidate_is_named_with_its_cost_or_with_a_reason(chip, options):
    problem = forward(maxdnn.ConvShape(32, 64, 14, 14, 64, 3, 3, 1, 1), layout="NCHW")
    plan = choose(problem, chip, **options)
    brief, full = plan.explain(), plan.explain(verbose=True)
    assert full.startswith(brief + "\n")
    own, *lines = full[len(brief) + 1:].splitlines()
    costs = {line.split(": ")[1]: line.split(": ")[2] for line in lines if line.startswith("not taken: ")}
    reasons = {line.split(": ")[1]: line.split(": ", 2)[2] for line in lines if line.startswith("does not serve: ")}
    assert len(lines) == len(costs) + len(reasons)
    prepared = options.get("prepared", False)
    served = plans(problem, chip, **{key: value for key, value in options.items() if key != "prepared"})
    assert own.startswith(f"{plan.name} is estimated at ") and own.endswith(f" on {chip.name}")
    assert {plan.name, *costs} == set(served) and not set(reasons) & set(served)
    every = {name: (x.apart[1] if prepared else x).clocks(chip) for name, x in served.items()}
    untimed = {family.name for family in registry.FAMILIES if not family.timed}
    for name, text in costs.items():
        if served[name].family in untimed:
            assert text == chip.said(every[name]) + ", which no card has confirmed"
        else:
            assert text == chip.said(every[name]) and every[name] >= every[plan.name]
    assert f"({every[plan.name] / chip.clock_mhz:.1f} us)" in own
    assert list(costs) == sorted(costs, key=lambda name: every[name]) and all(reasons.values())
    assert any("depthwise" in name for name in reasons)


def test_a_plan_asked_for_by_name_tells_what_else_there_was():
    problem = forward(SHAPE)
    best = choose(problem, preset())
    name = next(name for name in plans(problem, preset()) if name != best.name)
    plan = choose(problem, preset(), name)
    assert plan.name == name and f"not taken: {best.name}: " in plan.explain(verbose=True)


def test_a_bound_of_the_workspace_is_a_reason():
    layer = maxdnn.ConvShape(32, 256, 14, 14, 256, 3, 3, 1, 1)
    sizes = {name: plan.workspace_bytes for name, plan in plans(forward(layer, layout="NCHW"), preset()).items()}
    least = min(sizes.values())
    told = maxdnn.plan(layer, layout="NCHW", max_workspace_bytes=least).explain(verbose=True)
    beyond = re.findall(rf"does not serve: (\w+): its workspace is \d+ bytes \(at most {least} are wanted\)", told)
    assert beyond and all(sizes[name] > least for name in beyond)
