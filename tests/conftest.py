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
    """Of a test marked `sampled(n)` n parameter sets, evenly spaced, run as any test; the others are exhaustive."""
    same: dict[str, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("sampled"):
            same.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for every in same.values():
        (number,) = every[0].get_closest_marker("sampled").args
        kept = {(n + 1) * len(every) // number - 1 for n in range(number)}
        for at, item in enumerate(every):
            if at not in kept:
                item.add_marker("exhaustive")
