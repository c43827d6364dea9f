"""The GPU that tests run on."""

from typing import Any

import pytest


@pytest.fixture(scope="session")
def device() -> Any:
    from maxdnn.runtime.devices import cuda
    device = cuda.device(0)
    print(f"\nrunning on {device.name}, compute capability {device.capability}, native cubins: {device.native}")
    return device


@pytest.fixture(scope="session")
def hopper(device: Any) -> Any:
    """The GPU, if it runs machine code of sm_90."""
    if device.capability != (9, 0):
        pytest.skip("machine code of sm_90")
    return device


@pytest.fixture(scope="session")
def translating(device: Any) -> Any:
    """The GPU, if it runs translations alone."""
    if device.native:
        pytest.skip("this GPU runs the cubins themselves")
    return device
