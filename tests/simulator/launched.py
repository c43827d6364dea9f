"""Launches of probes in the model."""

from maxdnn.emulator.gpu import VirtualGpu
from maxdnn.simulator import timing
from maxdnn.simulator.probes import launches
from maxdnn.simulator.probes.frame import assembled
from maxdnn.simulator.simulate import Result


def launched(name: str, warm: bool, machine: str = "h100") -> Result:
    """A launch with empty caches, or behind one of its like."""
    launch = next(launch for launch in launches.every() if launch.name == name)
    device = VirtualGpu()
    function = device.load(assembled(launch.source)).function(launch.kernel)
    args = launch.arguments(device.alloc(launch.mib << 20))
    return timing.launch(function, (launch.blocks, 1, 1), (launch.threads, 1, 1), args, machine=machine,
                         options=timing.Options(warm=warm))
