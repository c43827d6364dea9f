"""The trial of a source's machine code on a GPU (runtime/trust.py), in a process of its own:

    python -m maxdnn.selftest.trial DEVICE NAME SOURCE ARCH      (the cubin on standard input)

Every kernel of the source runs RUNS times on small problems between guard zones. Operands are small integers, whose
sums are exact in any order, so that float64 says every bit of a result; where transforms round (Winograd, FFT) the bits
are those of the same plan translated. Operands of all bits must give the same result every time."""

import functools
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ..algorithms import registry
from ..algorithms.memory_ops import activation as finishing
from ..algorithms.spec import Family
from ..build.cubins import ARCHS, cubin, declared
from ..build.interface import FFMA
from ..cubin import read
from ..errors import DeviceError, MaxdnnError, OutOfMemoryError, ShapeError
from ..planning import select
from ..planning.cost import Chip
from ..planning.plan import Plan
from ..planning.select import chip_of
from ..problem.operands import view
from ..problem.problem import Problem
from ..runtime import trust
from ..runtime.apart import ENDED, FAILED, MARK, NATIVE, PASSED, UNDECIDED
from ..runtime.engine import Engine
from .items import differences, told
from .kernels import POISON, SCALARS, Guarded, GuardError, problems
from .truth import truth

RUNS = 20
LARGEST = 15  # of the integers: a sum of 2^13 products is exact, alpha and beta included
ZERO = np.float32(0)  # added, it takes the sign of a zero away, on which float64 and float32 need not agree
Tell = Callable[[str], object]


class _Wrong(Exception):
    """A result that is not what it must be."""


class _InDoubt(Exception):
    """What decides nothing."""


def sources(chip: Chip) -> list[str]:
    """Those that a chip has machine code of and some family launches."""
    every = {kernel.source.removesuffix(".sass") for kernel in registry.kernels().values()}
    return sorted(source for source in every if trust.native(chip, source))


def covering(source: str, chip: Chip) -> list[Plan]:
    """Plans of small problems that together launch every kernel of a source. For each kernel these are its first
    candidate and its last (split-K). A kernel that no problem here uses is missing."""
    names = {kernel["name"] for kernel in declared(source)}
    found: dict[Plan, None] = {}
    seen: set[str] = set()
    own = tuple(f for f in registry.FAMILIES if any(k.source.removesuffix(".sass") == source for k in f.kernels))
    for families in (own, registry.FAMILIES):
        for _, problem in problems():
            if seen == names:
                break
            for plans in _ways(problem, chip, families, names - seen, names - seen if families is own else None):
                uses = {x.spec.name for x in plans[0].launches} & names
                if uses - seen:
                    seen |= uses
                    found |= dict.fromkeys(plans)
    return list(found)


def _ways(problem: Problem, chip: Chip, families: tuple[Family, ...], wanted: set[str],
          called: set[str] | None) -> Iterator[list[Plan]]:
    """For each group of candidates named alike: the first and the last, if they launch a wanted kernel. `called`:
    kernel names; candidates named after other kernels of the family are skipped."""
    for family in families:
        if problem.kind not in family.kinds or family.unsupported_reason(problem) is not None:
            continue
        candidates = finishing.candidates(family, problem, chip)
        for base in dict.fromkeys(name.split("_split")[0].split("_tail")[0] for name in candidates):
            if called is not None and base not in called and base in {kernel.name for kernel in family.kernels}:
                continue
            alike = [make for name, make in candidates.items() if name == base or name.startswith(f"{base}_")]
            plans = []
            for make in dict.fromkeys((alike[0], alike[-1])):
                with suppress(ShapeError):
                    plans.append(make())
            plans = [p for p in plans if all(x.spec.runs_on(chip.arch) for x in p.launches)]
            if plans and {x.spec.name for x in plans[0].launches} & wanted:
                yield plans


def judge(device: Any, source: str, code: bytes, tell: Tell = lambda step: None) -> str:
    """Run the trial of a cubin; returns what was run. Calls `tell` before machine code runs for the first time. Before
    that it raises DeviceError; after it _Wrong, _InDoubt, GuardError or what the device raises."""
    chip = chip_of(device)
    plans = covering(source, chip)
    missing = {kernel["name"] for kernel in declared(source)} - {x.spec.name for p in plans for x in p.launches}
    if missing:
        raise DeviceError(f"no small problem of a trial uses {', '.join(sorted(missing))}")
    rng = np.random.default_rng(1)
    cases = [(plan, _integers(plan.problem, rng)) for plan in plans]
    trust.trying = trust.Trying(source, code, on=False)
    wanted = [_wanted(device, plan, given) for plan, given in cases]
    trust.trying = replace(trust.trying, on=True)
    tell(NATIVE)
    for (plan, given), bits in zip(cases, wanted, strict=True):
        if bits is not None:
            try:
                _same(device, plan, given, bits)
            except _Wrong:
                _doubt(device, chip, plan, given)
                raise
            tell("plan")
        _same(device, plan, _any(plan.problem, rng), None)
        tell("plan")
    kernels = {x.spec.name for plan in plans for x in plan.launches if x.spec.source.removesuffix(".sass") == source}
    return f"{len(kernels)} kernels, {2 * len(plans)} problems, {RUNS} times each"


def _integers(problem: Problem, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {role: rng.integers(-LARGEST, LARGEST, shape, endpoint=True).astype(np.float32)
            for role, shape in problem.shapes.items()}


def _any(problem: Problem, rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {role: rng.uniform(-1, 1, shape).astype(np.float32) for role, shape in problem.shapes.items()}


def _wanted(device: Any, plan: Plan, given: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The bits that a result must have; None for plans on tensor cores, whose split operands round differently."""
    if plan.arithmetic != FFMA:
        return None
    if plan.algorithm == "direct":
        return _truth(plan, given)
    return next(_results(device, plan, given, 1)) + ZERO


def _doubt(device: Any, chip: Chip, plan: Plan, given: Mapping[str, np.ndarray]) -> None:
    """Raises _InDoubt if the translation, too, differs from float64: then the trial decides nothing. Called only after
    a wrong result, because making the translation takes longer than the whole trial."""
    if plan.algorithm != "direct":  # the wanted bits are a translation's already
        return
    assert trust.trying is not None
    trust.trying = replace(trust.trying, on=False)
    same = plan if chip.runs_maxwell else _translation(plan.problem, chip)
    if differences(next(_results(device, same, given, 1)) + ZERO, _truth(plan, given)):
        raise _InDoubt(f"the translation that it is compared with ({same.spec.name}) is wrong, too")


def _translation(problem: Problem, chip: Chip) -> Plan:
    """The plan of translated kernels with the least code, which the driver compiles fastest."""
    every = select.plans(problem, replace(chip, arch="", trial=""), algorithm="direct").values()
    return min(every, key=lambda plan: sum(_code_bytes(spec.source, spec.name) for spec in
                                           {launch.spec for launch in plan.launches}))


@functools.cache
def _code_bytes(source: str, name: str) -> int:
    return len(read(cubin(source.removesuffix(".sass"), ARCHS[0])).kernel(name).code)


def _truth(plan: Plan, given: Mapping[str, np.ndarray]) -> np.ndarray:
    """The result in float32, exact because the operands are small integers. Zeros have no sign."""
    scalars = {name: float(SCALARS[name]) for name in plan.problem.scalars}
    return np.asarray(truth(plan.problem, given, scalars).astype(np.float32) + ZERO)


def _same(device: Any, plan: Plan, given: Mapping[str, np.ndarray], bits: np.ndarray | None) -> None:
    """Run a plan RUNS times. Raises _Wrong if a result differs from `bits`. Without `bits` the first result is
    compared with float64 by the documented error, and the others with the first."""
    results = (found + ZERO for found in _results(device, plan, given, RUNS))
    if bits is None:
        bits = next(results)
        scalars = {name: float(SCALARS[name]) for name in plan.problem.scalars}
        exact = truth(plan.problem, given, scalars)
        size = truth(replace(plan.problem, activation=None), {role: abs(x) for role, x in given.items()},
                     {name: abs(x) for name, x in scalars.items()})
        far = ~(abs(bits - exact) <= max(plan.error, 2e-6) * size)
        if far.any():
            raise _Wrong(f"{plan.spec.name}: {int(far.sum())} of {far.size} values are wrong")
    for found in results:
        wrong = differences(found, bits)
        if wrong:
            raise _Wrong(f"{plan.spec.name}: {told(wrong)}")


def _results(device: Any, plan: Plan, given: Mapping[str, np.ndarray], times: int) -> Iterator[np.ndarray]:
    """The results of several calls, with operands between guard zones. Raises GuardError where something beside the
    result was written."""
    problem = plan.problem
    placed = {role: Guarded(device, problem.operand(role), x, POISON if role == "out" and not problem.reads_out
                            else None) for role, x in given.items()}
    views = {role: view(role, x, rank=None) for role, x in placed.items()}
    scalars = {name: SCALARS[name] for name in problem.scalars}
    engine = Engine(device)
    for _ in range(times):
        placed["out"].reset()
        engine.run(plan, views, scalars, None)
        device.synchronize()
        after = {role: x.get(role) for role, x in placed.items()}
        spoilt = [role for role in given if role != "out" and differences(after[role], given[role])]
        if spoilt:
            raise GuardError(f"operands were written: {', '.join(spoilt)}")
        yield after["out"]


def outcome(device: Any, source: str, code: bytes, tell: Tell = lambda step: None) -> tuple[str, str]:
    """State and text of a trial, for any exception too."""
    steps: list[str] = []

    def noted(step: str) -> None:
        steps.append(step)
        tell(step)
    try:
        return PASSED, judge(device, source, code, noted)
    except (OutOfMemoryError, _InDoubt) as e:
        return UNDECIDED, str(e)
    except _Wrong as e:
        return FAILED, f"a wrong result: {e}"
    except GuardError as e:
        return FAILED, f"it writes beside its result: {e}"
    except Exception as e:  # whatever it is, machine code that runs is to blame
        text = str(e) if isinstance(e, MaxdnnError) else f"{type(e).__name__}: {e}"
        return (FAILED, f"a fault: {text}") if steps else (UNDECIDED, text)
    finally:
        trust.trying = None


def found_by(name: str) -> Any:
    """The device of a chip's `trial`: "gpu 0"; "virtual sm_86" is the virtual GPU seen as such a card."""
    kind, which = name.split(" ")
    if kind == "virtual":
        return virtual(which)
    from ..runtime.devices import cuda

    return cuda.device(int(which))


def virtual(arch: str, driver: str = "virtual, driver 1") -> Any:
    """The virtual GPU, seen as a card of an architecture. It runs what machine code it is given, so code for Maxwell as
    it is in the place of a translation."""
    from ..emulator import VirtualGpu

    maxwell = arch in ARCHS
    gpu: Any = VirtualGpu()
    gpu.name = f"virtual {arch}"
    gpu.chip = Chip(gpu.name, 16, 180.0, runs_maxwell=maxwell, driver=driver, arch=arch, trial=f"virtual {arch}")
    gpu.load_translated = gpu.load
    return gpu


def main(arguments: list[str]) -> int:
    def say(**step: str) -> None:
        sys.stdout.write(MARK + json.dumps(step) + "\n")
        sys.stdout.flush()
    where, name, source, _ = arguments
    code = sys.stdin.buffer.read()
    try:
        device = found_by(where)
    except MaxdnnError as e:
        say(step=ENDED, state=UNDECIDED, text=str(e))
        return 0
    if device.name != name:
        say(step=ENDED, state=UNDECIDED, text=f"{where} is {device.name} in another process")
        return 0
    state, text = outcome(device, source, code, lambda step: say(step=step))
    say(step=ENDED, state=state, text=text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
