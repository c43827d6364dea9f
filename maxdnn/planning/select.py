"""Takes a plan for a problem.

Asks every family for its candidates and ranks them by what was measured on such a chip
(records.py), or else by their estimates for it. What is chosen says all of what will run; nothing after this decides.
"""

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..algorithms import registry
from ..algorithms.memory_ops import turned
from ..algorithms.spec import Candidates, Family
from ..errors import ShapeError, shown
from ..problem.problem import PASSES, Problem
from ..problem.shape import ConvShape
from ..runtime import trust
from ..runtime.devices.protocol import able
from ..runtime.remember import HOST_BYTES, remembered
from .cost import Chip, HasChip, SimulatesChip, preset
from .plan import Plan, Terms
from .records import Record, recall

ALGORITHMS = ("auto", "direct", "winograd", "fft")
ARITHMETICS = ("auto", "ffma")
MAX_ERROR = 2e-6
"""Of an output relative to the sum of its |terms|: what is accepted unless a caller says otherwise."""


def choose(problem: Problem, chip: Chip, kernel: str | None = None, *, algorithm: str = "auto",
           max_error: float = MAX_ERROR, arithmetic: str = "auto", prepared: bool = False,
           families: tuple[Family, ...] | None = None, tuned: bool = True) -> Plan:
    """Choose a plan.

    The plan that was measured to be the fastest on such a chip (`maxdnn.tune`; not if `tuned` is False), else the
    one that promises the fewest clocks there, of those of an algorithm and of some families (all if None) whose
    documented error is at most `max_error`, by FFMA alone if `arithmetic` is "ffma"; or the one called `kernel`,
    whatever its error. `prepared`: what is done to the filters alone does not count. Raises ShapeError if no family
    serves the problem (saying what is not served, or which limit it is beyond), or if there is no such candidate.
    """
    terms = Terms(algorithm, max_error, arithmetic, prepared, families or registry.FAMILIES, tuned)
    record = recall(chip, problem, prepared) if tuned and kernel is None else None
    return _trusted(problem, chip, kernel, terms, record)


def smaller(plan: Plan, chip: Chip, most: int) -> Plan:
    """Choose again, within less workspace.

    What `choose` would have taken in the place of `plan`, which it chose, if no workspace were larger than `most`
    bytes. Raises ShapeError if there is nothing.
    """
    assert plan.terms is not None
    own = plan.problem.most_workspace
    problem = replace(plan.problem, most_workspace=most if own is None else min(most, own))
    record = recall(chip, problem, plan.terms.prepared) if plan.terms.tuned else None
    return _trusted(problem, chip, None, plan.terms, record)


def _trusted(problem: Problem, chip: Chip, kernel: str | None, terms: Terms, record: Record | None) -> Plan:
    """The best plan of all that the chip runs.

    If the machine code of its sources has no verdict on this card yet, their trials run first. After a failed trial
    the choice is made again.
    """
    while True:
        refused = trust.refused(chip)
        found: Plan = _choose(problem, chip, kernel, terms, record, refused)
        if trust.certain(chip) or trust.settled(chip, found.sources) or trust.refused(chip) == refused:
            return found  # no trial has failed: sources that are off were left out already


def least_workspace(plan: Plan, chip: Chip) -> int:
    """The fewest bytes of workspace that anything needs which `choose` might have taken in the place of `plan`."""
    terms, problem = plan.terms, plan.problem
    assert terms is not None
    least = plan.workspace_bytes
    while least:  # a smaller limit cuts a plan into more runs of images
        try:
            every = plans(replace(problem, most_workspace=least - 1), chip, algorithm=terms.algorithm,
                          max_error=terms.max_error, arithmetic=terms.arithmetic, families=terms.families)
        except ShapeError:
            break
        least = min(one.workspace_bytes for one in every.values())
    return least


def plans(problem: Problem, chip: Chip, *, algorithm: str = "auto", max_error: float = MAX_ERROR,
          arithmetic: str = "auto", families: tuple[Family, ...] | None = None) -> dict[str, Plan]:
    """Every candidate that `choose` chooses from, by name. Raises ShapeError as `choose` does."""
    most = problem.most_workspace
    if _unbounded(problem, chip):
        problem = replace(problem, most_workspace=chip.memory // 4)
    made: dict[str, Plan] = {}
    refused: ShapeError | None = None
    off = trust.refused(chip)
    of_the_chip = tuple(f for f in families or registry.FAMILIES if _has_kernels(f, chip))
    for name, make in _candidates(problem, chip, algorithm, of_the_chip):
        try:
            one = make()
        except ShapeError as e:
            refused = refused or e.with_traceback(None)  # its frames would keep the callers' arrays alive
        else:
            if _runs(one, chip, off) and one.computes(arithmetic):
                made[name] = one
    if not made:
        raise refused or ShapeError(f"not served: no kernel of any family is for {problem.describe()}")
    exact = {name: p for name, p in made.items() if p.error <= max_error}
    if not exact:
        least = min(made.values(), key=lambda p: p.error)
        raise ShapeError(f"max_error must be at least {least.error:.1e}, which is documented for algorithm "
                         f"{least.algorithm!r} here (got {max_error})")
    fitting = {name: p for name, p in exact.items() if most is None or p.workspace_bytes <= most}
    if not fitting:
        least_bytes = min(p.workspace_bytes for p in exact.values())
        raise refused or ShapeError(f"max_workspace_bytes must be at least {least_bytes} here (got {most})")
    return fitting


def check_wanted(algorithm: Any, max_error: Any, max_workspace_bytes: Any, arithmetic: Any = "auto") -> None:
    """Raises ShapeError unless these can be asked for."""
    for name, value, values in (("algorithm", algorithm, ALGORITHMS), ("arithmetic", arithmetic, ARITHMETICS)):
        if not isinstance(value, str) or value not in values:
            raise ShapeError(f"{name} must be one of {', '.join(values)} (got {shown(value)})")
    if isinstance(max_error, bool) or not isinstance(max_error, (int, float)) or not max_error > 0:
        raise ShapeError(f"max_error must be a positive number (got {shown(max_error)})")
    if max_workspace_bytes is not None and (isinstance(max_workspace_bytes, bool)
                                            or not isinstance(max_workspace_bytes, int) or max_workspace_bytes < 0):
        raise ShapeError("max_workspace_bytes must be an integer of at least 0, or None for a quarter of the device's "
                         f"memory (got {shown(max_workspace_bytes)})")


def plan(shape: ConvShape, *, layout: str = "CHWN", kernel: str | None = None, copy_images: bool = False,
         copy_filters: bool = False, device: Any = None, bias: bool = False, activation: str | None = None,
         adds_out: bool = False, kind: str = "forward", copy_gradients: bool = False, algorithm: str = "auto",
         max_error: float = MAX_ERROR, max_workspace_bytes: int | None = None, arithmetic: str = "auto",
         prepared_filters: bool = False, tuned: bool = True) -> Plan:
    """Plan a layer: choose what a call will launch.

    Parameters
    ----------
    shape : ConvShape
        The layer.
    layout : {"CHWN", "NCHW"}
        Order of the axes of all arrays, as for `conv_fprop`.
    kernel : str, optional
        Name of the candidate; if None, the fastest by what `maxdnn.tune` measured, or by estimate.
    copy_images, copy_filters : bool
        For arrays that may begin at any float: the plan copies those that a kernel reads as textures.
    device : Device, optional
        The device to plan for: the virtual GTX 980 if None.
    bias : bool
        For calls with a bias (forward alone).
    activation : {None, "relu", "relu6", "hardswish", "silu", "gelu", "gelu_tanh"}
        Of the calls (forward alone).
    adds_out : bool
        For calls with a beta other than 0.
    kind : {"forward", "data", "filters"}
        The pass: fprop, dgrad, wgrad.
    copy_gradients : bool
        As `copy_images`, of dgrad and wgrad.
    algorithm, max_error, max_workspace_bytes, arithmetic
        As for `conv_fprop`.
    prepared_filters : bool
        For calls with filters of `prepare_filters`: the time of that does not count.
    tuned : bool
        Whether measurements of `maxdnn.tune` go before the estimate.

    Returns
    -------
    Plan
        Good for any number of calls.

    Raises
    ------
    ShapeError
        An argument is none of these, the layer is beyond what textures, grids or 32-bit counts reach, or nothing
        serves it within error and workspace.
    """
    if kernel is not None and not isinstance(kernel, str):
        raise ShapeError(f"kernel must be the name of a convolution kernel (got {shown(kernel)})")
    for name, value in (("copy_images", copy_images), ("copy_filters", copy_filters), ("bias", bias),
                        ("adds_out", adds_out), ("copy_gradients", copy_gradients),
                        ("prepared_filters", prepared_filters), ("tuned", tuned)):
        if not isinstance(value, bool):
            raise ShapeError(f"{name} must be True or False (got {shown(value)})")
    check_wanted(algorithm, max_error, max_workspace_bytes, arithmetic)
    copied = {"images": copy_images, "filters": copy_filters, "gradients": copy_gradients}
    problem = _pass(kind, shape, layout, [role for role in copied if copied[role]], adds_out, bias, activation)
    problem = replace(problem, most_workspace=max_workspace_bytes)
    return choose(problem, chip_of(device), kernel, algorithm=algorithm, max_error=max_error,
                  arithmetic=arithmetic, prepared=prepared_filters, tuned=tuned)


def _pass(kind: Any, shape: ConvShape, layout: str, copied: list[str], adds_out: bool, bias: bool,
          activation: str | None) -> Problem:
    """A pass of a layer, with the operands that a plan is to copy."""
    if not isinstance(kind, str) or kind not in PASSES:
        raise ShapeError(f"kind must be one of {', '.join(PASSES)} (got {shown(kind)})")
    if kind != "forward" and (bias or activation is not None):
        raise ShapeError(f"bias and activation must be left out for kind={kind!r}: they belong to kind='forward'")
    epilogue = {"bias": bias, "activation": activation} if kind == "forward" else {}
    problem = PASSES[kind](shape, layout=layout, unaligned=copied, reads_out=adds_out, **epilogue)
    beyond = [role for role in copied if role not in problem.roles[:2]]
    if beyond:
        raise ShapeError(f"copy_{beyond[0]} must be left out for kind={kind!r}, which takes {problem.roles[0]} and "
                         f"{problem.roles[1]}")
    return problem


def chip_of(device: Any) -> Chip:
    """The chip that plans for a device are estimated for."""
    known = able(device, HasChip)
    if known is not None:
        return known.chip
    simulated = able(device, SimulatesChip)
    return preset() if simulated is None else preset(simulated.preset)


@remembered(HOST_BYTES, lambda plan: plan.host_bytes)
def _choose(problem: Problem, chip: Chip, kernel: str | None, terms: Terms, record: Record | None,
            refused: frozenset[str] = frozenset()) -> Plan:
    algorithm, families = terms.algorithm, terms.families
    if kernel is not None:
        if _unbounded(problem, chip):
            problem = replace(problem, most_workspace=chip.memory // 4)
        candidates = dict(_candidates(problem, chip, algorithm, families))
        if kernel not in candidates:
            raise ShapeError(f"kernel must be one of {', '.join(candidates)} (got {shown(kernel)})")
        plan: Plan = candidates[kernel]()
        if chip.arch and not _runs(plan, chip, refused):
            raise ShapeError(f"kernel {kernel!r} is {_foreign(plan, chip, refused)}")
        return replace(plan, chosen="by its name", name=kernel, code=_code(plan, chip),
                       account=functools.partial(_account, kernel, problem, chip, terms, record))
    made = plans(problem, chip, algorithm=algorithm, max_error=terms.max_error, arithmetic=terms.arithmetic,
                 families=families)
    seconds = {} if record is None else _measured(record, problem, chip, terms, made)
    if record is not None and seconds:
        name = min(seconds, key=seconds.__getitem__)
        why = record.why(name)
    else:
        untimed = {family.name for family in families if not _timed(family, chip)}
        name = min(made, key=lambda name: (made[name].family in untimed, _clocks(made[name], chip, terms)))
        why = f"by estimate for {chip.name}"
    return replace(made[name], chosen=why, terms=terms, name=name, code=_code(made[name], chip),
                   account=functools.partial(_account, name, problem, chip, terms, record))


def _timed(family: Family, chip: Chip) -> bool:
    """Whether a family's estimates may decide on the chip.

    On chips that run Maxwell machine code they always do: the timing model is the only source there.
    """
    return family.timed or chip.runs_maxwell


def _clocks(plan: Plan, chip: Chip, terms: Terms) -> float:
    return (plan.apart[1] if terms.prepared else plan).clocks(chip)


def _account(taken: str, problem: Problem, chip: Chip, terms: Terms, record: Record | None) -> list[str]:
    """The estimate of the chosen candidate; for every other one, its estimate or why it cannot be taken."""
    within = replace(problem, most_workspace=chip.memory // 4) if _unbounded(problem, chip) else problem
    measured = {} if record is None else dict(record.results)
    own, costs, reasons = "", [], []
    for family in terms.families:
        if problem.kind not in family.kinds:
            continue
        if why := _excluded(family, chip, terms) or _refusal(family, problem):
            reasons.append(f"{family.name}: {why}")
            continue
        for name, make in turned.candidates(family, within, chip).items():
            try:
                one = make()
            except ShapeError as e:
                reasons.append(f"{name}: {e}")
                continue
            clocks = _clocks(one, chip, terms)
            text = chip.said(clocks) + (f", measured {measured[name] * 1e6:.1f} us" if name in measured else
                                        "" if _timed(family, chip) else ", which no card has confirmed")
            if name == taken:
                own = text
            elif why := _unfit(one, chip, terms, problem.most_workspace):
                reasons.append(f"{name}: {why}")
            else:
                costs.append((clocks, f"{name}: {text}"))
    return [f"{taken} is estimated at {own} on {chip.name}",
            *(f"not taken: {text}" for _, text in sorted(costs)), *(f"does not serve: {text}" for text in reasons)]


def _excluded(family: Family, chip: Chip, terms: Terms) -> str:
    """Why a family is not asked for candidates; "" if it is."""
    if terms.algorithm not in ("auto", family.algorithm):
        return f"its algorithm is {family.algorithm!r} ({terms.algorithm!r} is asked for)"
    return "" if _has_kernels(family, chip) else f"none of its kernels is for {chip.name}"


def _unfit(plan: Plan, chip: Chip, terms: Terms, most: int | None) -> str:
    """Why a candidate that could be planned may not be taken; "" if it may."""
    refused = trust.refused(chip)
    if not _runs(plan, chip, refused):
        return _foreign(plan, chip, refused)
    if not plan.computes(terms.arithmetic):
        return f"its arithmetic is {plan.arithmetic} ({terms.arithmetic!r} is asked for)"
    if plan.error > terms.max_error:
        return f"its documented error is {plan.error:.1e} (max_error is {terms.max_error:.1e})"
    if most is not None and plan.workspace_bytes > most:
        return f"its workspace is {plan.workspace_bytes} bytes (at most {most} are wanted)"
    return ""


def _measured(record: Record, problem: Problem, chip: Chip, terms: Terms, made: dict[str, Plan]) -> dict[str, float]:
    """Seconds of the candidates that were measured and can still be planned, by name.

    A plan that the workspace limit cuts into runs of images was measured uncut. Its time is scaled by the ratio of the
    two estimates.
    """
    found = {name: seconds for name, seconds in record.results if name in made}
    if problem.most_workspace is None or not found:
        return found
    whole = dict(_candidates(replace(problem, most_workspace=chip.memory // 4 or None), chip, terms.algorithm,
                             terms.families))
    for name in found:
        other = whole[name]()
        if len(other.launches) != len(made[name].launches):
            found[name] *= made[name].clocks(chip) / other.clocks(chip)
    return found


def _unbounded(problem: Problem, chip: Chip) -> bool:
    """Whether the workspace has the default limit, a quarter of the chip's memory."""
    return problem.most_workspace is None and chip.memory > 0


def _has_kernels(family: Family, chip: Chip) -> bool:
    return not family.kernels or any(k.runs_on(chip.arch) for k in family.kernels)


def _runs(plan: Plan, chip: Chip, refused: frozenset[str]) -> bool:
    """Whether the chip has the instruction set of every kernel of the plan, and none of their machine code is off."""
    return all(x.spec.runs_on(chip.arch) and not (x.spec.arch and x.spec.source.removesuffix(".sass") in refused)
               for x in plan.launches)


def _foreign(plan: Plan, chip: Chip, refused: frozenset[str]) -> str:
    """Why the chip cannot run a plan."""
    off = [source for source in plan.sources if source in refused]
    if off and all(x.spec.runs_on(chip.arch) for x in plan.launches):
        return f"machine code of {chip.arch}, which is off: {trust.standing(chip, off[0]).why}"
    return f"machine code of {', '.join(plan.archs)}, which {chip.name} does not run"


def _code(plan: Plan, chip: Chip) -> Any:
    """What makes the lines of `explain()` on which sources run as machine code; None for a simulated chip."""
    return functools.partial(trust.said, chip, plan.sources) if chip.arch else None


def _refusal(family: Family, problem: Problem) -> str | None:
    try:
        return turned.refusal(family, problem)
    except ShapeError as e:  # it is too large for the family to examine
        return str(e)


def _candidates(problem: Problem, chip: Chip, algorithm: str,
                families: tuple[Family, ...]) -> Iterator[tuple[str, Any]]:
    """All candidates of all families of an algorithm. Raises ShapeError if there are none."""
    serving = [f for f in families if problem.kind in f.kinds]
    if not serving:
        kinds = sorted({kind for f in families for kind in f.kinds})
        raise ShapeError(f"the kind of a problem must be one of {', '.join(kinds)} (got {problem.kind!r})")
    if algorithm != "auto":
        serving = [f for f in serving if f.algorithm == algorithm]
    refusals = {f.name: _refusal(f, problem) for f in serving}
    if None not in refusals.values():
        raise ShapeError("not served: " + "; ".join(f"{what} by {name}" for name, what in refusals.items()))
    for family in serving:
        if refusals[family.name] is None:
            found: Candidates = turned.candidates(family, problem, chip)
            yield from found.items()
