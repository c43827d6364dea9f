"""Takes a plan for a problem: asks every family for its candidates and ranks them by their estimates for a chip. What
is chosen says all of what will run; nothing after this decides."""

import functools
from collections.abc import Iterator
from typing import Any

from .chips import Chip, preset
from .errors import ShapeError
from .families import registry
from .families.family import Candidates, Family
from .plans import Plan
from .problem import Problem, data, filters, forward
from .shape import ConvShape

REMEMBERED = 256  # plans


def choose(problem: Problem, chip: Chip, kernel: str | None = None) -> Plan:
    """The plan that promises the fewest clocks on the chip, or the one called `kernel`. Raises ShapeError if no family
    serves the problem (saying what is not served, or which limit it is beyond), or if there is no such candidate."""
    return _choose(problem, chip, kernel, registry.FAMILIES)


def plan(shape: ConvShape, *, layout: str = "CHWN", kernel: str | None = None, copy_images: bool = False,
         copy_filters: bool = False, device: Any = None, bias: bool = False, activation: str | None = None,
         adds_out: bool = False, kind: str = "forward", copy_gradients: bool = False) -> Plan:
    """Plan a layer for arrays of `layout` "CHWN" (images C,H,W,N, filters C/groups,R,S,K, out K,P,Q,N) or "NCHW"
    (N,C,H,W, K,C/groups,R,S, N,K,P,Q). `kernel`: name of the convolution kernel; else the one estimated to be the
    fastest on `device` (the virtual GTX 980 if None). `copy_images`, `copy_filters`: make the plan for arrays that may
    begin at any float; it then copies those that a kernel reads as textures. `bias`, `activation`, `adds_out`: for
    calls with a bias, with an activation (None or "relu"), with a beta other than 0. `kind`: "forward", or "data" or
    "filters" for the gradients with respect to images and filters, which take gradients like the layer's output (and
    `copy_gradients` for those that may begin anywhere), no bias and no activation. Raises ShapeError if the layer is
    beyond what textures, grids or 32-bit counts reach."""
    if kernel is not None and not isinstance(kernel, str):
        raise ShapeError(f"kernel must be the name of a convolution kernel (got {kernel!r})")
    for name, value in (("copy_images", copy_images), ("copy_filters", copy_filters), ("bias", bias),
                        ("adds_out", adds_out), ("copy_gradients", copy_gradients)):
        if not isinstance(value, bool):
            raise ShapeError(f"{name} must be True or False (got {value!r})")
    kinds = {"forward": forward, "data": data, "filters": filters}
    if not isinstance(kind, str) or kind not in kinds:
        raise ShapeError(f"kind must be one of {', '.join(kinds)} (got {kind!r})")
    if kind != "forward" and (bias or activation is not None):
        raise ShapeError(f"bias and activation must be left out for kind={kind!r}: they belong to kind='forward'")
    copied = {"images": copy_images, "filters": copy_filters, "gradients": copy_gradients}
    ending = {"bias": bias, "activation": activation} if kind == "forward" else {}
    problem: Problem = kinds[kind](shape, layout=layout, unaligned=[role for role in copied if copied[role]],
                                   reads_out=adds_out, **ending)
    beyond = [role for role in copied if copied[role] and role not in problem.roles[:2]]
    if beyond:
        raise ShapeError(f"copy_{beyond[0]} must be left out for kind={kind!r}, which takes {problem.roles[0]} and "
                         f"{problem.roles[1]}")
    return choose(problem, chip_of(device), kernel)


def chip_of(device: Any) -> Chip:
    """The chip that plans for a device are estimated for."""
    return getattr(device, "chip", None) or preset()


@functools.lru_cache(maxsize=REMEMBERED)
def _choose(problem: Problem, chip: Chip, kernel: str | None, families: tuple[Family, ...]) -> Plan:
    candidates = dict(_candidates(problem, families))
    if kernel is not None:
        if kernel not in candidates:
            raise ShapeError(f"kernel must be one of {', '.join(candidates)} (got {kernel!r})")
        return candidates[kernel]()
    best: Plan | None = None
    refused: ShapeError | None = None
    for make in candidates.values():
        try:
            made = make()
        except ShapeError as e:
            refused = refused or e
            continue
        if best is None or made.clocks(chip) < best.clocks(chip):
            best = made
    if best is None:
        assert refused is not None
        raise refused
    return best


def _candidates(problem: Problem, families: tuple[Family, ...]) -> Iterator[tuple[str, Any]]:
    """All candidates of all families. Raises ShapeError if there are none."""
    serving = [f for f in families if problem.kind in f.kinds]
    if not serving:
        kinds = sorted({kind for f in families for kind in f.kinds})
        raise ShapeError(f"the kind of a problem must be one of {', '.join(kinds)} (got {problem.kind!r})")
    refusals = {f.name: f.refuses(problem) for f in serving}
    if None not in refusals.values():
        raise ShapeError("not served: " + "; ".join(f"{what} by {name}" for name, what in refusals.items()))
    for family in serving:
        if refusals[family.name] is None:
            found: Candidates = family.candidates(problem)
            yield from found.items()
