"""A stand-in for a GPU where there is none: the virtual GPU, seen as a card. What kernels take is said by the test, and
a test may spoil what they compute."""

from types import SimpleNamespace

from maxdnn.emulator import VirtualGpu
from maxdnn.planning.cost import Chip
from maxdnn.runtime import engine


class Card(VirtualGpu):
    """`cost(kernel's name, grid) -> seconds`. `spoil(device, kernel's name, arguments)` is called after each launch.
    `runs`: whether launches compute anything."""

    def __init__(self, cost=lambda name, grid: 1e-6, spoil=None, driver="sm_52, driver 1", runs=False):
        super().__init__()
        self.name, self.native, self.capability, self.sms, self.clock_khz = "stand-in", True, (5, 2), 16, 1_216_000
        self.chip = Chip(self.name, 16, 180.0, driver=driver)
        self.cost, self.spoil, self.runs, self.ticks, self.launched = cost, spoil, runs, 0.0, []
        del self.preset

    def facts(self):
        return {"name": self.name, "capability": [5, 2], "driver": "driver 1, CUDA 12.0", "sms": 16, "clock_mhz": 1216,
                "memory_mhz": 3505, "bus_bits": 256, "l2_kib": 2048, "memory_mib": 4096, "texture_alignment": 512}

    def load(self, cubin):
        return _Module(self, super().load(cubin))

    def elapsed_seconds(self, work, repeats=1, stream=None, before=None):
        times = []
        for _ in range(repeats):
            if before is not None:
                before()
            start = self.ticks
            work()
            times.append(self.ticks - start)
        return times


def spare_assembling(monkeypatch):
    """Launches of cards that compute nothing need no machine code: it is not assembled from now on."""
    real = engine.load
    monkeypatch.setattr(engine, "load", lambda device, spec: _Empty(device) if isinstance(device, Card) and not
                        device.runs else real(device, spec))


class _Empty:
    """In the place of a module."""

    def __init__(self, card):
        self._card = card

    def set_constant(self, *_, **__):
        pass

    def function(self, name):
        return _Function(self._card, SimpleNamespace(name=name))


class _Module:
    def __init__(self, card, module):
        self._card, self._module = card, module

    def __getattr__(self, name):
        return getattr(self._module, name)

    def function(self, name):
        return _Function(self._card, self._module.function(name))


class _Function:
    def __init__(self, card, function):
        self._card, self._function, self.name = card, function, function.name

    def launch(self, grid, block, args, **options):
        card = self._card
        if card.runs:
            self._function.launch(grid, block, args, **options)
        card.launched.append(self.name)
        card.ticks += card.cost(self.name, grid)
        if card.spoil is not None:
            card.spoil(card, self.name, args)
