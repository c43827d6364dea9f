"""Launches of probes in the model."""

from maxdnn.emulator.gpu import VirtualGpu
from maxdnn.simulator import timing
from maxdnn.simulator.machine import preset
from maxdnn.simulator.probes import launches
from maxdnn.simulator.probes.frame import assembled
from maxdnn.simulator.simulate import Result, l2_after


def launched(name: str, warm: bool, machine: str = "h100", times: int = 1) -> Result:
    """A launch with empty caches, or behind so many of its like."""
    launch, chip, contents = next(launch for launch in launches.every() if launch.name == name), preset(machine), None
    device, block = VirtualGpu(), (launch.threads, 1, 1)
    function = device.load(assembled(launch.source)).function(launch.kernel)
    args = launch.arguments(device.alloc(launch.mib << 20))
    work = timing.workload(function, (launch.blocks, 1, 1), block, args, machine=chip)
    for _ in range((times - 1) * warm):
        contents = l2_after(work, chip, registers=function.kernel.registers, shared_bytes=0, threads=launch.threads,
                            before=contents)
    return timing.simulated(work, function, block, chip, options=timing.Options(warm=warm), contents=contents)
