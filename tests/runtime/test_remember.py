"""Tables that forget: bounded, without a cliff where the keys are a few too many."""

import threading
from importlib import import_module

import numpy as np
import pytest

import maxdnn
from maxdnn.algorithms import registry
from maxdnn.emulator import VirtualGpu
from maxdnn.planning import records, select
from maxdnn.planning.cost import preset
from maxdnn.problem import problem
from maxdnn.runtime.remember import Table, remembered


def around(table, keys, times):
    """How many of the keys, asked for in a circle, were not there."""
    missed = 0
    for key in list(range(keys)) * times:
        if table.get(key) is None:
            missed += 1
            table.remember(key, -key - 1)
    return missed


@pytest.mark.parametrize("room, keys, most", [(256, 256, 0), (256, 257, 0.1), (256, 299, 0.5)])
def test_a_circle_of_a_few_more_keys_than_there_is_room_for_misses_a_few(room, keys, most):
    table = Table(room)
    around(table, keys, 2)
    assert around(table, keys, 10) <= 10 * keys * most
    assert len(table) == table.weight == min(room, keys)


def test_weights_count_and_what_may_not_go_stays():
    table = Table(100, entries=20)
    for key in range(40):
        table.remember(key, key, 10, may_go=lambda value: value % 4)
        assert table.weight <= 100 or all(value % 4 == 0 or value == key for value in table.values())
    assert {key for key in range(0, 40, 4)} <= set(table.values())
    table.trim()
    assert table.weight == 10 * len(table) == 100
    kept = table.values()[0]
    table.weigh(kept, 60)
    assert table.weight == 150
    table.trim(keep=kept)
    assert table.get(kept) == kept and table.weight == 100
    table.replace(kept, "other")
    assert table.get(kept) == "other" and table.weight == 100
    table.clear()
    assert len(table) == table.weight == 0
    for key in range(30):
        table.remember(key, key, 0)
    assert len(table) == 20, "what weighs nothing is bounded by number"


def test_threads_change_a_table_at_once():
    table, wrong = Table(50), []

    def work(me):
        try:
            for n in range(2000):
                key = (n * (me + 1)) % 90
                found = table.get(key)
                assert found in (None, key)
                table.remember(key, key)
                if n % 500 == 0:
                    table.drop(lambda value: value % 2)
        except BaseException as e:
            wrong.append(e)
    threads = [threading.Thread(target=work, args=(me,)) for me in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and 25 <= len(table) <= 50 and table.weight == len(table) == len(table._keys)


def test_what_a_function_gave_is_remembered_but_not_that_it_failed():
    asked = []

    @remembered(3)
    def double(x, y=None):
        """Twice."""
        asked.append(x)
        return 2 * x if x else None if x == 0 else 1 / 0
    assert [double(x) for x in (1, 2, 0, 1, 2, 0)] == [2, 4, None] * 2 and asked == [1, 2, 0]
    assert double.__doc__ == "Twice."
    for x in range(10):
        double(x)
    assert len(double.table) == 3


def counted(monkeypatch, where, name):
    """The calls of a function, from now on."""
    calls, real = [], getattr(where, name)
    monkeypatch.setattr(where, name, lambda *given, **options: (calls.append(given), real(*given, **options))[1])
    return calls


def test_two_thousand_choices_are_made_once(monkeypatch):
    chip, family = preset("gm204"), [f for f in registry.FAMILIES if f.name == "depthwise"]
    asked = counted(monkeypatch, select, "plans")
    shapes = [maxdnn.ConvShape(1, 8, 3 + n // 50, 3 + n % 50, 8, 3, 3, groups=8) for n in range(2000)]
    found = [[select.choose(problem.forward(shape, layout="NCHW"), chip, families=tuple(family))
              for shape in shapes] for _ in range(2)]
    assert len(asked) == 2000 and all(a is b for a, b in zip(*found, strict=True))


def test_two_thousand_products_are_chosen_once(monkeypatch):
    matmul = import_module("maxdnn.product")
    chip, asked = preset("gm204"), counted(monkeypatch, matmul, "product")
    for _ in range(2):
        for n in range(2000):
            assert matmul._result((3, 4), (4, n + 1), False, False) == (3, n + 1)
    assert len(asked) == 2000
    how = False, False, (), False, chip, "auto", False
    first = [matmul._chosen((8, 4), (4, n + 1), *how) for n in range(300)]
    assert first == [matmul._chosen((8, 4), (4, n + 1), *how) for n in range(300)]
    assert len(asked) == 2300


def test_two_thousand_problems_are_looked_up_in_the_cache_once(monkeypatch):
    monkeypatch.setenv("MAXDNN_TUNED", "1")
    asked, chip = counted(monkeypatch, records.cache, "load"), preset("gm204")
    for _ in range(2):
        for n in range(2000):
            records.recall(chip, problem.product((3, 4), (4, n + 1)))
    assert len(asked) == 2000


@pytest.mark.long
def test_shapes_on_the_virtual_gpu_are_loaded_once(monkeypatch):
    gpu = VirtualGpu(workers=1)
    loads, asked = counted(monkeypatch, gpu, "load"), counted(monkeypatch, select, "plans")
    filters = np.ones((4, 1, 1, 4), np.float32)
    for _ in range(2):
        for n in range(299):
            images = np.full((4, 1 + n // 20, 1 + n % 20, 4), n, np.float32)
            assert (maxdnn.conv_fprop(images, filters, device=gpu) == 4 * n).all()
    first = len(loads)
    assert len(asked) == 299 and first <= 2 * 299
    for n in range(299):
        maxdnn.conv_fprop(np.zeros((4, 1 + n // 20, 1 + n % 20, 4), np.float32), filters, device=gpu)
    assert len(loads) == first
