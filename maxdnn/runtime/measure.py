"""Plans on a device with arrays of their own, for those who measure and compare: operands in device memory, and seconds
that are the GPU's alone."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from ..planning.plan import Plan
from ..problem.operands import ArrayView, view
from .devices.protocol import Device
from .engine import Engine, load_source

_LONGEST = 0.05  # seconds a stream is kept busy while launches queue up behind
_QUEUE = 400  # launches that may wait; a GPU takes about a thousand


class DeviceArray:
    """float32 values in memory of a device, as what the library's functions take."""

    def __init__(self, device: Device, values: np.ndarray) -> None:
        self._device, self.shape = device, values.shape
        self._buffer = device.alloc(values.nbytes)
        self.set(values)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": "<f4", "data": (self._buffer.address, False), "version": 3}

    def set(self, values: np.ndarray) -> None:
        self._device.upload(self._buffer, np.ascontiguousarray(values, np.float32))

    def get(self) -> np.ndarray:
        values = np.empty(self.shape, np.float32)
        self._device.download(self._buffer, values)
        return values


class Stopwatch:
    """Seconds of plans on a GPU, without the host's share: a kernel that waits goes first, so that the launches behind
    it follow each other as fast as the GPU takes them. `device`: a Device that is a Card."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._delay = load_source(device, "probes/delay").function("probe_delay")

    def seconds(self, call: Callable[[], None], launches: int, samples: int = 1) -> list[float]:
        """Seconds of a call, each the mean of some calls in a row. `call` puts `launches` on the default stream; it has
        been called before, so that everything is loaded."""
        device = self._device
        device.synchronize()
        start = time.perf_counter()
        call()
        host = time.perf_counter() - start
        once = device.elapsed_seconds(call)[0]
        calls = max(1, min(math.ceil(2e-3 / max(once, 1e-6)), 20, _QUEUE // launches))

        def wait() -> None:
            seconds = min(2 * host * calls + 1e-4, _LONGEST)
            self._delay.launch((1, 1, 1), (32, 1, 1), [int(seconds * 1e3 * device.clock_khz)])

        def work() -> None:
            for _ in range(calls):
                call()
        return [t / calls for t in device.elapsed_seconds(work, samples, before=wait)]


class Runner:
    """Runs plans on operands of its own, by an engine of its own, so that what the user's calls have loaded stays
    loaded. Plans that have operands in common share them."""

    def __init__(self, device: Device) -> None:
        self._device, self._engine = device, Engine(device)
        self._operands: dict[tuple[str, tuple[int, ...]], ArrayView] = {}

    def call(self, plan: Plan) -> Callable[[], None]:
        """A call of the plan on the default stream."""
        given = {o.role: self._operand(o.role, o.shape) for o in plan.problem.operands}
        scalars = dict.fromkeys(plan.problem.scalars, np.float32(1))
        return lambda: self._engine.run(plan, given, scalars, None)

    def _operand(self, role: str, shape: tuple[int, ...]) -> ArrayView:
        if (role, shape) not in self._operands:
            values = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)
            self._operands[role, shape] = view(role, DeviceArray(self._device, values), rank=None)
        return self._operands[role, shape]
