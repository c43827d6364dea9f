"""For all tests."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _by_estimate():
    """What a developer once tuned decides no test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAXDNN_TUNED", "0")
        yield


@pytest.hookimpl(tryfirst=True)  # before `-m` takes its choice
def pytest_collection_modifyitems(items):
    """Of a test marked `sampled(n, m)` n parameter sets run as any test, m of the others are long and the rest is
    exhaustive; without m all others are long. What is taken is evenly spaced."""
    same: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            same.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for every in same.values():
        number, *more = every[0].get_closest_marker("sampled").args
        _, others = _spread(every, number)
        long, exhaustive = _spread(others, *more or [len(others)])
        for item in long:
            item.add_marker("long")
        for item in exhaustive:
            item.add_marker("exhaustive")


def _spread(items, number):
    """(`number` of the items, evenly spaced; the others)."""
    taken = {(n + 1) * len(items) // number - 1 for n in range(number)}
    return [items[at] for at in sorted(taken - {-1})], [item for at, item in enumerate(items) if at not in taken]
