"""What the plans of strided dgrad share: how filters are packed, and where whole and partial sums go."""

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from ...problem.problem import Problem
from ..common.correlation import Correlation, correlations
from ..common.epilogue import PARTIAL, Epilogue, epilogue_of
from ..common.limits import TEXEL_FLOATS
from ..common.packing import as_they_lie, packed
from ..common.workspace import Draft
from ..memory_ops.plan import fill, reduce

Some = TypeVar("Some")
FILTER_ROW = 32
"""Of a row of filters: a multiple of so many floats."""


class PhaseFilters(NamedTuple):
    """Filters C/groups,R,S,K': `row` texels, `taps` in a row and all taps. `rotated`: the last tap first."""

    place: str
    row: int
    columns: int
    taps: int
    rotated: bool

    def tap(self, s: Correlation, r: int, column: int) -> int:
        """Which of its rows of a channel a tap of a correlation is."""
        (first_r, step_r), (first_s, step_s) = s.taps
        at = (first_r + r * step_r) * self.columns + first_s + column * step_s
        return self.taps - 1 - at if self.rotated else at


def phase_filters(draft: Draft) -> PhaseFilters:
    """Where the filters are read."""
    problem: Problem = draft.problem
    s, layer = correlations(problem)[0], problem.shape
    if isinstance(layer, Correlation):  # as the kernel wants them
        return PhaseFilters("filters", problem.operand("filters").shape[-1] // TEXEL_FLOATS, s.S, s.R * s.S, False)
    if as_they_lie(problem):
        place, row = packed(draft, s, needs=FILTER_ROW, multiple=FILTER_ROW)
        return PhaseFilters(place, row // TEXEL_FLOATS, 1, 1, False)
    every_tap = Correlation(s.N, s.C, s.H, s.W, s.K, layer.R, layer.S, layer.H, layer.W, (1, 1), (0, 0), (1, 1),
                            s.groups, (0, 0), (1, 1), s.whole, ((layer.R - 1, -1), (layer.S - 1, -1)))
    place, row = packed(draft, every_tap)
    return PhaseFilters(place, row // TEXEL_FLOATS, layer.S, layer.R * layer.S, True)


class PhaseSums(NamedTuple):
    """Where a launch over all phases puts its sums. `size`: elements of the whole result."""

    draft: Draft
    parts: int
    size: int
    place: str
    epilogue: Epilogue

    @classmethod
    def of(cls, draft: Draft, s: Correlation, parts: int) -> "PhaseSums":
        size = s.N * s.K * s.outputs
        if parts == 1:
            return cls(draft, 1, size, "out", epilogue_of(draft.problem))
        return cls(draft, parts, size, draft.region("parts", parts * size), PARTIAL)

    def reached(self, phases: tuple[Some, ...], taps: Sequence[bool]) -> tuple[Some, ...]:
        """The phases that a launch computes: those with taps, where the others are cleared."""
        if all(taps) or (self.parts == 1 and self.draft.problem.reads_out):
            return phases
        self.draft.launches.append(fill(self.place, self.parts * self.size, "pixels that no tap reaches are zero"))
        return tuple(phase for phase, some in zip(phases, taps, strict=True) if some)

    def add(self, draft: Draft, s: Correlation) -> None:
        """Adds the parts."""
        if self.parts > 1:
            rows = (s.N * s.outputs, s.K, 1) if draft.problem.layout == "CHWN" else (s.outputs, s.K, s.N)
            draft.launches.append(reduce("parts", "out", self.parts, self.size, rows, s.K, epilogue_of(draft.problem)))
            draft.notes.append(f"the sums over {s.C // s.groups} filters are split {self.parts} ways; the parts are "
                               "added in a fixed order")
