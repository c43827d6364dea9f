"""Arrays whose channels lie innermost (PyTorch's channels_last) where a family's kernels want them otherwise: launches
in front of its plan turn what they read, one behind it what they write. Maps that the kernels read as they lie are left
alone."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

from ...planning.cost import Chip
from ...planning.plan import FLOAT_BYTES, Launch, Part, Plan, Value, begin, make
from ...problem.problem import Alignment, Operand, Problem
from ..common.limits import MAX_ELEMENTS, MAX_GRID_YZ, within
from ..spec import Candidates, Family
from . import activation
from .plan import transpose

_READ_WHERE_THEY_LIE = "images", "gradients"


def refusal(family: Family, problem: Problem) -> str | None:
    """What of a problem a family does not serve, in words; None if all is, perhaps behind a change of layout."""
    why = family.unsupported_reason(problem)
    return None if why is None or _way(family, problem) is not None else why


def candidates(family: Family, problem: Problem, chip: Chip) -> Candidates:
    """Those of a family that serves a problem, with any activation."""
    roles = _way(family, problem)
    if not roles:
        return activation.candidates(family, problem, chip)
    found = activation.candidates(family, _plain(problem, roles), chip)
    return {name: partial(_turned, each, problem, roles) for name, each in found.items()}


def _way(family: Family, problem: Problem) -> tuple[str, ...] | None:
    """The fewest operands to turn round for the family to serve the rest, filters first; None if there is no way."""
    return next((roles for roles in _ways(problem) if family.unsupported_reason(_plain(problem, roles)) is None), None)


def _ways(problem: Problem) -> Iterator[tuple[str, ...]]:
    yield ()
    turnable = [o.role for o in problem.operands if o.strides and o.channels_last]
    ways = [roles for count in range(1, 1 + len(turnable)) for roles in combinations(turnable, count)]
    yield from sorted(ways, key=lambda roles: (sum(role in _READ_WHERE_THEY_LIE for role in roles), len(roles)))


def _plain(problem: Problem, roles: tuple[str, ...]) -> Problem:
    """The problem where some operands are regions of the workspace instead."""
    return replace(problem, operands=tuple(replace(o, strides=None, alignment=Alignment.TEXTURE) if o.role in roles
                                           else o for o in problem.operands))


def _turned(made: Callable[[], Plan], problem: Problem, roles: tuple[str, ...]) -> Plan:
    """The plan that is made of the problem without these operands' strides, between launches that turn them."""
    plan = made()
    operands = [problem.operand(role) for role in roles]
    regions = {name: region.nbytes for name, region in plan.workspace.items()}
    regions |= {_region(o.role): FLOAT_BYTES * math.prod(o.shape) for o in operands}
    before = [_launch(problem, o, True) for o in operands if o.role != "out" or problem.reads_out]
    after = [_launch(problem, o, False) for o in operands if o.role == "out"]
    names = {role: _region(role) for role in roles}
    launches = (*before, *(renamed(launch, names) for launch in _untold(plan, problem, roles)), *after)
    note = f"channels lie innermost in {' and '.join(roles)}: launches of their own turn what no kernel here takes so"
    return make(problem, plan.family, plan.spec, launches, regions, (*plan.notes, note), plan.error)


def _untold(plan: Plan, problem: Problem, roles: tuple[str, ...]) -> Iterator[Launch]:
    """The launches, those in front of the first that writes a turned result without its address: what they are given it
    for is not of their part of the work, and a region begins its life where it is written."""
    written = "out" not in roles or problem.reads_out
    for launch in plan.launches:
        written = written or "out" in launch.writes
        values = {name: 0 if begin(value)[0] == "out" else value for name, value in launch.values.items()
                  if isinstance(value, str | Part)}
        yield launch if written else replace(launch, values={**launch.values, **values})


def _region(role: str) -> str:
    return f"{role}_nchw"


def _launch(problem: Problem, o: Operand, reads: bool) -> Launch:
    """Turns an operand into its region, or back."""
    n, c, *size = o.shape
    pixels = math.prod(size)
    within(problem.shape, ((f"matrices of {o.role}", n, MAX_GRID_YZ, "blocks along z of a grid"),
                           (f"elements of {o.role}", math.prod(o.shape), MAX_ELEMENTS, "that a kernel counts")))
    if reads:
        return transpose(_region(o.role), o.role, pixels, c, f"channels of {o.role} move outside of the pixels", n)
    return transpose(o.role, _region(o.role), c, pixels, f"channels of {o.role} move inside", n)


def renamed(launch: Launch, names: Mapping[str, str]) -> Launch:
    """The same with other memory in the place of some."""
    def of(value: Value) -> Value:
        if isinstance(value, Part):
            return replace(value, name=names.get(value.name, value.name))
        return names.get(value, value) if isinstance(value, str) else value

    values = {key: of(value) for key, value in launch.values.items()}
    textures: Any = {key: of(value) for key, value in launch.textures.items()}
    return replace(launch, values=values, textures=textures, writes=tuple(names.get(x, x) for x in launch.writes))
