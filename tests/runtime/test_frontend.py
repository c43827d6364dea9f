"""The one way of all calls: what is checked for one kind is checked for all."""

import numpy as np
import pytest

import maxdnn
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import DeviceError, ShapeError
from maxdnn.runtime import engine, frontend, shortage
from tests.card import Card, spare_assembling

IMAGES, FILTERS = np.ones((4, 6, 6, 4), np.float32), np.ones((4, 3, 3, 8), np.float32)
GRADIENTS, A, B = np.ones((8, 4, 4, 4), np.float32), np.ones((8, 4), np.float32), np.ones((4, 12), np.float32)
CALLS = {"forward": lambda **o: maxdnn.conv_fprop(IMAGES, FILTERS, **o),
         "data": lambda **o: maxdnn.conv_bprop_data(GRADIENTS, FILTERS, (6, 6), **o),
         "filters": lambda **o: maxdnn.conv_bprop_filters(IMAGES, GRADIENTS, (3, 3), **o),
         "bias": lambda **o: maxdnn.conv_bprop_bias(GRADIENTS, **o),
         "product": lambda **o: maxdnn.matmul(A, B, **o)}
SHAPES = {"forward": (8, 4, 4, 4), "data": (4, 6, 6, 4), "filters": (4, 3, 3, 8), "bias": (8,), "product": (8, 12)}


@pytest.fixture(autouse=True)
def _nothing_is_assembled(monkeypatch):
    spare_assembling(monkeypatch)


def locked(shape):
    out = np.zeros(shape, np.float32)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize("kind", CALLS)
def test_every_call_checks_and_runs_the_same_way(kind, monkeypatch):
    calls = []
    monkeypatch.setattr(frontend.Call, "run", lambda self, *given, **options: calls.append(self))
    call, card = CALLS[kind], Card()
    out = call(device=card)
    assert out.shape == SHAPES[kind] and len(calls) == 1 and calls[0].device is card
    mine = np.zeros(SHAPES[kind], np.float32)
    assert call(device=card, out=mine, beta=1.0) is mine
    for wrong, kind_of_error, words in (
            ({"out": locked(SHAPES[kind])}, ShapeError, "out must be writable"),
            ({"out": np.zeros((*SHAPES[kind][:-1], SHAPES[kind][-1] + 1), np.float32)}, ShapeError,
             f"out must have shape \\({SHAPES[kind][0]}"),
            ({"beta": 1.0}, ShapeError, r"out must be given for a beta other than 0 \(got beta=1.0\)"),
            ({"alpha": "x"}, ShapeError, "alpha must be a real number"),
            ({"device": 7}, DeviceError, "device must be a device of this library")):
        with pytest.raises(kind_of_error, match=words):
            call(**{"device": card, **wrong})
    assert len(calls) == 2


@pytest.mark.parametrize("kind", ["forward", "data", "filters"])
def test_a_plan_that_is_given_is_run_itself_and_a_chosen_one_may_give_way(kind, monkeypatch):
    given, chosen = [], []
    monkeypatch.setattr(engine, "run", lambda plan, *_: given.append(plan))
    monkeypatch.setattr(shortage, "run", lambda plan, *_: chosen.append(plan))
    plan = maxdnn.plan(maxdnn.ConvShape(4, 4, 6, 6, 8, 3, 3), kind=kind)
    CALLS[kind](plan=plan)
    assert given == [plan] and not chosen
    CALLS[kind]()
    assert given == [plan] and [x.problem for x in chosen] == [plan.problem]


def test_views_with_strides_beside_prepared_filters_are_refused():
    """A plan that is given reads arrays as if they were C-contiguous, and that of prepared filters is given."""
    card = Card()
    plan = maxdnn.plan(maxdnn.ConvShape(4, 4, 6, 3, 8, 3, 3), device=card)
    ready = maxdnn.prepare_filters(FILTERS, plan, device=card)
    assert maxdnn.conv_fprop(IMAGES[:, :, :3].copy(), ready, device=card).shape == (8, 4, 1, 4)
    with pytest.raises(ShapeError, match="images must be C-contiguous"):
        maxdnn.conv_fprop(IMAGES[:, :, ::2], ready, device=card)


def test_arrays_at_odd_addresses_get_the_plan_that_names_them_so():
    room = np.zeros(4 * 6 * 6 * 4 + 1, np.float32)
    images = room[1:].reshape(4, 6, 6, 4) if room.ctypes.data % 16 == 0 else room[:-1].reshape(4, 6, 6, 4)
    card = Card()
    given = {"images": maxdnn.problem.operands.view("images", images)}
    problem = maxdnn.problem.problem.forward(maxdnn.ConvShape(4, 4, 6, 6, 8, 3, 3))
    odd = images.ctypes.data % 16 != 0
    found = frontend.chosen(problem, given, card).problem
    assert (found == problem.with_unaligned(["images"])) == odd and (found == problem) != odd
    assert problem.with_unaligned([]) is problem and problem.with_unaligned(["bias"]) is problem


@pytest.mark.parametrize("layout", ["CHWN", "NCHW"])
def test_a_result_may_begin_at_any_float(layout):
    """Kernels that store vectors elsewhere do not there: the virtual GPU faults at a vector that is out of line."""
    device, rng = VirtualGpu(), np.random.default_rng(3)
    maps = (64, 4, 4, 64)  # in either layout: 64 images, channels and filters
    if layout == "NCHW":
        maps = (64, 64, 4, 4)
    images, gradients = (rng.uniform(-1, 1, maps).astype(np.float32) for _ in range(2))
    filters = rng.uniform(-1, 1, (64, 1, 1, 64) if layout == "CHWN" else (64, 64, 1, 1)).astype(np.float32)
    for call in (lambda **o: maxdnn.conv_fprop(images, filters, layout=layout, device=device, **o),
                 lambda **o: maxdnn.conv_bprop_data(gradients, filters, (4, 4), layout=layout, device=device, **o),
                 lambda **o: maxdnn.conv_bprop_filters(images, gradients, (1, 1), layout=layout, device=device, **o)):
        wanted = call()
        room = np.zeros(wanted.size + 8, np.float32)
        for first in range(4):
            out = room[first:first + wanted.size].reshape(wanted.shape)
            call(out=out)
            assert np.allclose(out, wanted, atol=1e-4)
