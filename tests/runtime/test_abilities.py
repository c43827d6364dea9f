"""What a device can do besides what all must is asked through protocols, and a wrapper of a device is easy to write."""

import ast
from pathlib import Path

import numpy as np
import pytest

import maxdnn
from maxdnn.emulator import VirtualGpu
from maxdnn.planning.cost import HasChip, preset
from maxdnn.planning.select import chip_of
from maxdnn.runtime import engine
from maxdnn.runtime.devices import protocol
from maxdnn.runtime.devices.protocol import Card, CountsMemory, Device, InPlace, Streams, able
from maxdnn.runtime.stream_workspace import NoEvent, streams_of
from tests.card import Card as StandIn

ROOT = Path(maxdnn.__file__).parent


class Forwards:
    """The shortest wrapper there is."""

    def __init__(self, inner):
        self._inner = inner

    def __getattr__(self, name):
        return getattr(self._inner, name)


def test_a_wrapper_that_forwards_has_the_abilities_of_what_it_wraps():
    inner = VirtualGpu("gm107", memory_bytes=1 << 20)
    wrapper = Forwards(inner)
    assert able(wrapper, Device) is wrapper and able(wrapper, InPlace) is wrapper
    assert able(wrapper, CountsMemory).free_bytes() == inner.free_bytes()
    assert chip_of(wrapper) == preset("gm107")
    assert all(able(wrapper, x) is None for x in (Streams, Card, HasChip, protocol.Launching, protocol.SharesMemory))
    assert able(Forwards(StandIn()), Card).clock_khz == StandIn().clock_khz


def test_an_ability_that_is_none_or_in_part_is_none():
    class Remote(Forwards):
        adopt = None
        stream_handle = elapsed_seconds = int

    remote = Remote(VirtualGpu())
    assert [able(remote, x) for x in (InPlace, Streams, Card)] == [None] * 3
    on = engine.of(remote)
    assert on.in_place is None and on.alignment == protocol.TEXTURE_ALIGNMENT
    remote.texture_alignment = 512
    assert protocol.texture_alignment(remote) == 512


def test_a_device_without_streams_has_one_that_is_always_done():
    streams = streams_of(VirtualGpu())
    event = streams.event()
    assert isinstance(event, NoEvent) and event.passed() and event.handle == 0
    assert streams.stream_handle(None) == 0 and streams.graph_of(0) is None
    event.record(None), event.wait(), streams.wait_for(None, 1)


@pytest.mark.parametrize("wrong", [[], "gpu", 0], ids=repr)
def test_what_is_no_device_is_refused(wrong):
    a = np.ones((4, 4), np.float32)
    for call in (lambda: maxdnn.matmul(a, a, device=wrong),
                 lambda: maxdnn.tune(maxdnn.ConvShape(1, 4, 4, 4, 4, 1, 1), device=wrong)):
        with pytest.raises(maxdnn.DeviceError, match="device must be a device of this library"):
            call()


def test_abilities_are_asked_for_in_one_place():
    """No `getattr` or `hasattr` with a device, a module or a function of one, but in `able`."""
    found = set()
    rooms = "runtime", "planning", "selftest", "torch", "cli", "problem"
    for path in [*ROOT.glob("*.py"), *(path for room in rooms for path in (ROOT / room).rglob("*.py"))]:
        for node in ast.walk(ast.parse(path.read_text())):
            if (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
                    and node.func.id in ("getattr", "hasattr")):
                what = node.args[0]
                name = what.attr if isinstance(what, ast.Attribute) else getattr(what, "id", "")
                if name in ("device", "_device", "thing", "card", "gpu", "module", "function", "stand", "kernel"):
                    found.add((str(path.relative_to(ROOT)), name))
    assert found == {("runtime/devices/protocol.py", "thing")}
