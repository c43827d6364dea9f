"""Seconds of whole plans on a card, and what the timing model says for a machine like it."""

import statistics
from dataclasses import dataclass
from typing import Any

from ..build.cubins import cubin
from ..planning.plan import Plan
from ..planning.select import chip_of, choose
from ..problem.problem import Problem, data, filters, forward, product
from ..problem.shape import ConvShape
from ..runtime.measure import Runner, Stopwatch
from .items import NOTED, Result, Stand

_LIKE = {(5, 0): "gm107", (5, 2): "gm204", (5, 3): "gm20b", (6, 0): "gp104", (6, 1): "gp104", (6, 2): "gp104"}
_BIG = 20  # SMs from which sm_52 is like the larger chip
_DELAY = 20_000_000  # clocks that the card's clock is measured by

SHAPES: dict[str, tuple[Problem, str | None]] = {
    "128 images, the paper's loop": (forward(ConvShape(128, 64, 13, 13, 64, 3, 3, 1, 1)), "sconv_fprop_paper"),
    "128 images": (forward(ConvShape(128, 64, 13, 13, 64, 3, 3, 1, 1)), None),
    "8 images": (forward(ConvShape(8, 64, 28, 28, 64, 3, 3, 1, 1), layout="NCHW"), None),
    "one image": (forward(ConvShape(1, 128, 14, 14, 128, 3, 3, 1, 1), layout="NCHW"), None),
    "1x1": (forward(ConvShape(8, 256, 14, 14, 64, 1, 1), layout="NCHW"), None),
    "gradient of the images": (data(ConvShape(8, 32, 28, 28, 64, 3, 3, 1, 1), layout="NCHW"), None),
    "gradient of the filters": (filters(ConvShape(8, 32, 14, 14, 64, 3, 3, 1, 1), layout="NCHW"), None),
    "product of 512": (product((512, 512), (512, 512)), None),
}


@dataclass(frozen=True)
class Time:
    """Seconds of a call, measured and simulated."""

    title: str
    problem: Problem
    kernel: str | None
    part: str = "times"

    @property
    def name(self) -> str:
        return f"{self.title}: {self.problem.describe()}"

    def run(self, stand: Stand) -> Result:
        plan = choose(self.problem, chip_of(stand.device), self.kernel, tuned=False)
        figures: dict[str, Any] = {"kernels": [x.spec.name for x in plan.launches]}
        texts = []
        if stand.card:
            figures["sm_mhz"] = round(sm_mhz(stand), 1)
            figures["measured_us"] = round(1e6 * self._measured(stand, plan), 2)
            texts.append(f"measured {figures['measured_us']} us at {figures['sm_mhz']:.0f} MHz")
        if stand.native:
            from ..simulator import timing
            figures["simulated_us"] = round(1e6 * timing.call(plan, machine=machine_of(stand)).seconds, 2)
            texts.append(f"simulated {figures['simulated_us']} us")
        return Result(self.part, self.name, NOTED, f"{plan.spec.name}, {', '.join(texts)}", figures)

    def _measured(self, stand: Stand, plan: Plan) -> float:
        call = Runner(stand.device).call(plan)
        call()
        return statistics.median(Stopwatch(stand.device).seconds(call, len(plan.launches), 7))


def sm_mhz(stand: Stand) -> float:
    """The clock of the SMs as it runs now: a loop of so many of its clocks, timed from outside."""
    delay = stand.device.load(cubin("probes/delay", stand.device.arch)).function("probe_delay")

    def wait() -> None:
        delay.launch((1, 1, 1), (32, 1, 1), [_DELAY])
    wait()
    return _DELAY / min(stand.device.elapsed_seconds(wait, 3)) * 1e-6


def machine_of(stand: Stand) -> Any:
    """The machine of the timing model that is like the card: the preset of its generation with its sizes and its clock
    as it runs now. For the virtual GPU its own preset. Made once."""
    from ..simulator.machine import preset

    if not stand.card:
        return preset(stand.device.preset)
    if "machine" not in stand.kept:
        facts = stand.device.facts()
        capability, sms = tuple(facts["capability"]), facts["sms"]
        like = "gm200" if capability == (5, 2) and sms >= _BIG else _LIKE[capability]
        figures = {"sms": sms, "clock_mhz": round(sm_mhz(stand)), "l2_kib": facts["l2_kib"],
                   "dram_gb_per_s": 2 * facts["memory_mhz"] * facts["bus_bits"] / 8 / 1000}
        stand.kept["machine"] = preset(like).replace(**{k: v for k, v in figures.items() if v})
    return stand.kept["machine"]


def items(quick: bool = False) -> list[Time]:
    found = [Time(title, problem, kernel) for title, (problem, kernel) in SHAPES.items()]
    return found[3:4] if quick else found
