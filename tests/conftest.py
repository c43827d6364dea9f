"""For all tests."""

import pytest


@pytest.fixture(autouse=True, scope="session")
def _by_estimate():
    """What a developer once tuned decides no test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MAXDNN_TUNED", "0")
        yield
