"""Measures the candidates for a problem on a device and remembers them (records.py).

So `choose` takes the fastest
from then on. On a GPU the figures are seconds of whole calls; on the virtual GPU they are those of the timing model.
"""

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..errors import DeviceError, ShapeError, shown
from ..problem.problem import PASSES, Problem, forward
from ..problem.shape import ConvShape
from ..runtime.arguments import check_device
from ..runtime.devices import find
from ..runtime.devices.protocol import Card, Device, able
from ..runtime.measure import Runner, Stopwatch
from . import records
from .cost import Chip
from .plan import Plan
from .select import MAX_ERROR, check_wanted, chip_of, plans

Progress = Callable[[int, int], None]
SECONDS, SIMULATED_SECONDS = 5.0, 60.0
"""Of measuring a problem, if the caller does not say."""

_FINALISTS, _NEAR, _SAMPLES = 6, 1.25, 7  # that are measured again: at most, within this of the best, how often


@dataclass(frozen=True)
class Tuning:
    """What `tune` found for a problem.

    `plan`: of the fastest candidate. `record`: seconds of every candidate that was measured, and more. `estimated`: the
    candidate that the estimate takes. `new`: whether it was measured now. `remembered`: whether it could be stored.
    """

    problem: Problem
    plan: Plan
    record: records.Record
    estimated: str
    new: bool
    remembered: bool

    @property
    def gain(self) -> float | None:
        """How many times faster the fastest is than the one the estimate takes; None if that was not measured."""
        found = dict(self.record.results)
        return found[self.estimated] / min(found.values()) if self.estimated in found else None

    def __str__(self) -> str:
        record, (name, seconds) = self.record, self.record.results[0]
        text = f"{record.about}\n  {name}: {seconds * 1e6:.1f} us{' (simulated)' * record.simulated}"
        if name == self.estimated:
            text += ", as estimated"
        elif self.gain is not None:
            text += f", {self.gain:.2f} times as fast as {self.estimated}, which the estimate takes"
        text += f", of {len(record.results)} candidates"
        if record.left_out:
            text += f"; {record.left_out} were not measured for lack of time"
        if not self.remembered:
            text += "\n  not remembered: there is no cache folder that can be written (MAXDNN_CACHE names one)"
        return text


def tune(what: Any, example: Any = None, *, device: Device | None = None, kind: str | Iterable[str] = "forward",
         layout: str = "CHWN", bias: bool = False, activation: str | None = None, adds_out: bool = False,
         max_error: float = MAX_ERROR, prepared_filters: bool = False, seconds: float | None = None,
         again: bool = False, progress: Progress | None = None) -> list[Tuning]:
    """Measure every candidate for some problems and remember which is the fastest.

    Calls without a plan, and `maxdnn.plan`, take it from then on, in other processes too.

    Parameters
    ----------
    what, example : ConvShape, Problem, iterable of them, or torch.nn.Module and a torch.Tensor
        What to tune. The layers of a module (convolutions, transposed ones, linear ones of some size) are found by
        running it on `example` once.
    device : Device, optional
        Where to measure. If None the GPU of `example`, else the first GPU, else the virtual GTX 980 (simulated
        seconds).
    kind : str or iterable of str
        Passes of shapes and modules: "forward", "data", "filters".
    layout, bias, activation, adds_out, max_error, prepared_filters
        As for `maxdnn.plan`; layout and bias of shapes alone, activation of shapes and modules.
    seconds : float, optional
        For each problem: 5, simulated 60, if None. Candidates come in the order of their estimates; those that time
        does not reach are left out.
    again : bool
        Measure what is remembered already, too.
    progress : callable, optional
        progress(done, of) is called now and then.

    Returns
    -------
    list of Tuning
        What was found, for each problem.

    Raises
    ------
    ShapeError
        `what` is none of these, or nothing serves a problem.
    DeviceError
        The device is none, or runs no candidate.

    Notes
    -----
    What is remembered belongs to the GPU's name and driver, the version of the library and the problem without bias,
    activation and beta. It lies in the cache (MAXDNN_CACHE). MAXDNN_TUNED=0 makes every choice by estimate.
    """
    if seconds is not None and not (isinstance(seconds, (int, float)) and seconds > 0):
        raise ShapeError(f"seconds must be a positive number (got {shown(seconds)})")
    if device is not None:
        check_device(device)
    problems = _problems(what, example, kind, layout, bias, activation, adds_out)
    check_wanted("auto", max_error, None)
    target = device or _device_of(example) or find.first_gpu() or find.host()
    records.library()  # named before anything is measured: the sources may change meanwhile
    for problem in problems:
        plans(problem, chip_of(target), max_error=max_error)  # what is not served is said before any work
    found = []
    for number, problem in enumerate(problems):
        tell = partial(_tell, progress, number, len(problems))
        found.append(_tuned(problem, target, max_error, prepared_filters, seconds, again, tell))
        tell(1, 1)
    return found


def _tell(progress: Progress | None, number: int, problems: int, done: int, of: int) -> None:
    """How far all problems are, by how far one of them is."""
    if progress:
        progress(1000 * number + 1000 * done // max(of, 1), 1000 * problems)


def _problems(what: Any, example: Any, kind: str | Iterable[str], layout: str, bias: bool, activation: str | None,
              adds_out: bool) -> list[Problem]:
    """What is to be tuned, each once."""
    kinds = (kind,) if isinstance(kind, str) else tuple(kind)
    unknown = [k for k in kinds if not isinstance(k, str) or k not in PASSES]
    if unknown or not kinds:
        raise ShapeError(f"kind must be one or several of {', '.join(PASSES)} (got {shown(kind)})")

    def problems_of(shape: ConvShape, layout: str, bias: bool) -> list[Problem]:
        return [forward(shape, layout=layout, bias=bias, activation=activation, reads_out=adds_out) if k == "forward"
                else PASSES[k](shape, layout=layout, reads_out=adds_out) for k in kinds]
    if callable(getattr(what, "modules", None)):
        if example is None:
            raise ShapeError("example must be an input of the model: its layers get their sizes from a run on it")
        from ..torch.shapes import layers

        problems = [layer.problem(k, activation, adds_out) for layer in layers(what, example) for k in kinds]
        if not problems:
            raise ShapeError("the model must have a convolution, or a linear layer of some size, in float32 that runs "
                             "on the example (got none)")
    else:
        if example is not None:
            raise ShapeError(f"example goes with a model (got {type(what).__name__})")
        problems = [p for one in _given(what)
                    for p in ([one] if isinstance(one, Problem) else problems_of(one, layout, bias))]
    return list(dict.fromkeys(problems))


def _given(what: Any) -> list[ConvShape | Problem]:
    every = [what] if isinstance(what, (ConvShape, Problem)) else what
    if isinstance(every, (str, bytes)) or not isinstance(every, Iterable):
        raise ShapeError(f"what must be a ConvShape, a Problem, an iterable of them or a PyTorch module "
                         f"(got {shown(what)})")
    found = list(every)
    for one in found:
        if not isinstance(one, (ConvShape, Problem)):
            raise ShapeError(f"what must hold ConvShapes or Problems alone (got {shown(one)})")
    return found


def _device_of(example: Any) -> Device | None:
    """The GPU that an example is on."""
    interface = getattr(example, "__cuda_array_interface__", None) if getattr(example, "is_cuda", True) else None
    return find.of_address(interface["data"][0]) if interface else None


def _tuned(problem: Problem, device: Device, max_error: float, prepared: bool, seconds: float | None, again: bool,
           progress: Progress) -> Tuning:
    chip = chip_of(device)
    by_name = plans(problem, chip, max_error=max_error)
    work = {name: plan.apart[1] if prepared else plan for name, plan in by_name.items()}  # what is measured
    estimated = sorted(work.items(), key=lambda item: item[1].clocks(chip))
    record = None if again else records.recall(chip, problem, prepared)
    if record is not None and (there := [name for name, _ in record.results if name in by_name]):
        plan = replace(by_name[there[0]], chosen=record.why(there[0]))
        return Tuning(problem, plan, record, estimated[0][0], False, True)
    simulated = able(device, Card) is None
    measure, usual = (_simulated, SIMULATED_SECONDS) if simulated else (_measured, SECONDS)
    found = measure(estimated, device, chip, usual if seconds is None else seconds, progress)
    record = records.measured(chip, problem, found, simulated=simulated, left_out=len(estimated) - len(found),
                            prepared=prepared)
    best = record.results[0][0]
    plan = replace(by_name[best], chosen=record.why(best))
    return Tuning(problem, plan, record, estimated[0][0], True, records.remember(record))


def _simulated(candidates: list[tuple[str, Plan]], device: Any, chip: Chip, seconds: float,
               progress: Progress) -> dict[str, float]:
    """Seconds by the timing model, of as many candidates as time allows, at least one."""
    from ..simulator import timing

    found: dict[str, float] = {}
    end = time.monotonic() + seconds
    for number, (name, plan) in enumerate(candidates):
        if found and time.monotonic() > end:
            break
        progress(number, len(candidates))
        found[name] = timing.call(plan, machine=chip.name).seconds
    return found


def _measured(candidates: list[tuple[str, Plan]], device: Any, chip: Chip, seconds: float,
              progress: Progress) -> dict[str, float]:
    """Median seconds of a call on a GPU.

    A sample of each candidate, then more of those near the best, in turn, so that
    what drifts (clocks, temperature) meets all alike. A candidate the GPU cannot run (no memory for its workspace) is
    left out. Raises DeviceError if there is none that it can run.
    """
    runner, watch = Runner(device), Stopwatch(device)
    samples: dict[str, list[float]] = {}
    failed: DeviceError | None = None
    end = time.monotonic() + seconds
    for number, (name, plan) in enumerate(candidates):
        if samples and time.monotonic() > end - seconds / 3:
            break
        progress(number, len(candidates))
        try:
            runner.call(plan)()
            samples[name] = watch.seconds(runner.call(plan), len(plan.launches))
        except DeviceError as e:
            failed = e.with_traceback(None)  # as in choose.plans
    if not samples:
        raise failed or DeviceError(f"{device.name} runs no candidate")
    best = min(min(x) for x in samples.values())
    finalists = sorted((n for n in samples if min(samples[n]) <= _NEAR * best), key=lambda n: min(samples[n]))
    by_name = dict(candidates)
    for _ in range(_SAMPLES - 1):
        for name in finalists[:_FINALISTS]:
            plan = by_name[name]
            samples[name] += watch.seconds(runner.call(plan), len(plan.launches))
        if time.monotonic() > end:
            break
    return {name: statistics.median(x) for name, x in samples.items()}
