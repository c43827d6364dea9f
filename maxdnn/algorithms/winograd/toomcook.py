"""Matrices of Winograd convolution (Toom-Cook) from interpolation points, in exact fractions.

F(m, r) computes m outputs of a filter of r taps from a = m + r - 1 inputs by a multiplications:
y = A' [(G g) * (B' d)]. The inputs' transform B' interpolates at a - 1 points and infinity: row i holds the
coefficients of the product of all (x - point) but the i-th, the last row those of all. G evaluates the filter at the
points, divided by what the others are worth there, and A' the result. In two dimensions all three apply along rows and
along columns.

As a program it prints what the kernels are generated from, sass/maxwell/winograd_matrices.inc."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from ..gemm.maxwell import GROUP

FEW_CHANNELS = 32
FEWER = 128  # see needs_slices
_MOST = 512  # channels that launches sum at once at most
OTHERS = 16  # see in_parts; by experiment 8 to 14, F(2x2, 3x3) to F(4x4, 5x5)
Matrix = tuple[tuple[Fraction, ...], ...]


@dataclass(frozen=True)
class Points:
    """F(outputs x outputs, taps x taps) with the finite points; infinity comes with them. `errors`: the largest of an
    output relative to the sum of its |terms| that is documented for padding 0, 1 .. half a filter or, as gradients of
    layers without padding have it, more, for maps and filters uniform in [-1, 1] and 32 channels or more, all summed
    at once; it serves no padding of up to half a filter that they do not say. `most`:
    channels that are summed at once at most; `halved`: sums come in two parts at least. `measured`: the largest over
    the ten layers of the paper's table and those of VGG-E (128 images), summed as `together` says, on an H200."""

    outputs: int
    taps: int
    finite: tuple[Fraction, ...]
    errors: tuple[float, ...]
    most: int
    halved: bool
    measured: float

    @property
    def inputs(self) -> int:
        """Rows of an input tile."""
        return self.outputs + self.taps - 1

    def serves(self, padding: int) -> bool:
        return min(padding, self.taps // 2) < len(self.errors)

    def _like(self, padding: int) -> int:
        """The widest padding that is documented, up to this one."""
        return min(padding, len(self.errors) - 1)

    def together(self, channels: int, slices: int = 0) -> int:
        """How many of so many channels are summed at once, unless smaller errors are asked for: groups of them. Of two
        parts one is larger, since not all blocks keep their sums at the same time then (product.inc); that costs 3 % of
        the error. On sm_90 blocks of two and more `slices` have parts anyway; for others parts are launches."""
        most, halved = self.most, self.halved and slices < 2
        if slices and most > FEWER:
            most, halved = _MOST, False
        return min(channels, most * max(1, slices), groups(-(-5 * channels // 8)) if halved else channels)

    def needs_slices(self, channels: int) -> bool:
        """Whether whole sums came out beyond 1e-6 on an H200: those of F(4x4, 3x3) with 64 and 128 channels. In two
        launches they took up to 40 % longer, so that only kernels with slices serve there on sm_90."""
        return self.halved and self.most > FEWER and channels <= FEWER

    def expected_error(self, channels: int, padding: int, fewest_rows: int, fewest_columns: int,
                       together: int | None = None) -> float:
        """With so many channels, of which so many are summed `together` (all if None), and so many taps inside the map
        at its corners. The error follows the sum of |terms| of a tile; that of an output may be much smaller where it
        has few terms."""
        usual = self.taps - self._like(padding)
        few = FEW_CHANNELS / channels, usual / fewest_rows, usual / fewest_columns
        return self.errors[self._like(padding)] * math.prod(max(1, x) for x in few) * in_parts(
            channels, together or channels)


def groups(channels: int) -> int:
    """So many channels or some more: what a sum is cut into. Fewer than FEW_CHANNELS take longer to add than they
    gain."""
    return max(FEW_CHANNELS, -(-channels // GROUP) * GROUP)


def in_parts(channels: int, together: int) -> float:
    """What is left of the error of a sum over channels if so many are summed together, and such sums added. A sum's
    roundings grow with what is summed already: their variance is that of the parts. What the transforms round does not;
    it is as much as OTHERS channels' sums add."""
    if together >= channels:
        return 1.0
    parts, rest = divmod(channels, together)
    return min(1.0, math.sqrt((parts * together**2 + rest**2) / channels**2 + OTHERS / channels))


def _points(outputs: int, taps: int, finite: str, errors: tuple[float, ...], most: int, halved: bool,
            measured: float) -> Points:
    return Points(outputs, taps, tuple(Fraction(x) for x in finite.split()), errors, most, halved, measured)


TABLE = (
    _points(2, 3, "0 1 -1", (2e-7, 3e-7), 80, True, 1.2e-7),
    _points(4, 3, "0 11/16 -11/16 23/16 -23/16", (7e-7, 1.13e-6), 320, True, 9.2e-7),
    _points(3, 5, "1/4 -1/4 7/8 -7/8 7/4 -7/4", (8e-7, 1e-6, 1.4e-6, 1.6e-6, 3.5e-6), _MOST, False,
            9e-7),
    _points(4, 5, "0 1 -1 1/2 -1/2 2 -2", (2e-6,), _MOST, False, 1.5e-6),
)
"""Points p and -p share half of their arithmetic. Of small fractions those that make most of rounding errors vanish, in
outputs at the border too, where with padding fewer terms are summed."""

_ERRORS = {3: (5e-7, 3e-7), 5: (2.5e-6, 2.0e-6)}  # by outputs, documented and measured, of 32 tiles and more
GRADIENTS = tuple(Points(p.taps, p.outputs, p.finite, (_ERRORS[p.taps][0],), 2**31, False, _ERRORS[p.taps][1])
                  for p in TABLE if p.outputs == 4)
"""For gradients of filters: the taps are results then, and tiles of the layer's results the filter. The same points, so
the same transform of maps."""


class Matrices(NamedTuple):
    """A' (outputs x inputs), G (inputs x taps), B' (inputs x inputs)."""

    A: Matrix
    G: Matrix
    B: Matrix


def matrices(points: Points) -> Matrices:
    """The three matrices, exactly."""
    m, r, finite = points.outputs, points.taps, points.finite
    a, g, b = [], [], []
    for at, p in enumerate(finite):
        others = finite[:at] + finite[at + 1:]
        weight = Fraction(1)
        for q in others:
            weight *= p - q
        a.append([p**k for k in range(m)])
        g.append(tuple(p**k / weight for k in range(r)))
        b.append((*_with_roots(others), Fraction(0)))
    a.append([Fraction(int(k == m - 1)) for k in range(m)])
    g.append(tuple(Fraction(int(k == r - 1)) for k in range(r)))
    b.append(_with_roots(finite))
    return Matrices(tuple(zip(*a, strict=True)), tuple(g), tuple(b))


def _with_roots(roots: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    """Coefficients of the product of all (x - root), the constant one first."""
    found = [Fraction(1)]
    for root in roots:
        found = [low - root * high for low, high in zip([Fraction(0), *found], [*found, Fraction(0)], strict=True)]
    return tuple(found)


def generated() -> str:
    """What sass/maxwell/winograd_matrices.inc must hold."""
    lines = ["# Printed by `python -m maxdnn.algorithms.winograd.toomcook`, which holds the interpolation points: "
             "do not edit.", "# Takes: nothing", "<CODE>", "    our %WINOGRAD = ("]
    for points in (*TABLE, *GRADIENTS):
        lines.append(f"        '{points.outputs} {points.taps}' => {{")
        for name, matrix in zip(Matrices._fields, matrices(points), strict=True):
            if points in TABLE or name != "B":
                lines.append(f"            {name} => [")
                lines += [f"                [{', '.join(repr(float(x)) for x in row)}]," for row in matrix]
                lines.append("            ],")
        lines.append("        },")
    lines += ["    );", "    # wgrad exchanges outputs and taps. Its interpolation points are the same, and so is B."]
    lines += [f"    $WINOGRAD{{'{m} {r}'}}{{B}} = $WINOGRAD{{'{r} {m}'}}{{B}};"
              for m, r in ((p.outputs, p.taps) for p in GRADIENTS)]
    return "\n".join([*lines, "    return '';", "</CODE>"])


if __name__ == "__main__":
    print(generated())
