"""Sets of the values that P0..P6 may have together, as masks of 128 bits (bit v: the values of number v, of which bit n
is Pn), and what instructions make of them."""

from collections.abc import Callable, Iterable

from ..isa import PT

COUNT = 1 << PT
ALL = (1 << COUNT) - 1
_TRUE = [sum(1 << v for v in range(COUNT) if v >> p & 1) for p in range(PT)]


def having(p: int, value: bool) -> int:
    """All values in which predicate p is `value`."""
    return ALL if p == PT and value else 0 if p == PT else _TRUE[p] if value else ALL & ~_TRUE[p]


class Image:
    """What an instruction makes of the predicates: `rule` gives the numbers that one number may become."""

    def __init__(self, rule: Callable[[int], Iterable[int]]) -> None:
        self._becomes = [sum(1 << to for to in set(rule(v))) for v in range(COUNT)]
        self._known: dict[int, int] = {}
        self.tells = self.of(ALL) != ALL

    def of(self, mask: int) -> int:
        """The set that a set becomes."""
        found = self._known.get(mask)
        if found is None:
            found, left = 0, mask
            while left:
                low = left & -left
                found |= self._becomes[low.bit_length() - 1]
                left ^= low
            self._known[mask] = found
        return found


def put(v: int, p: int, value: bool) -> int:
    """The number v with predicate p of a value; PT takes none."""
    return v if p == PT else v | 1 << p if value else v & ~(1 << p)


def free(v: int, predicates: Iterable[int]) -> list[int]:
    """The number v with some predicates of any value."""
    found = [v]
    for p in predicates:
        found = [put(each, p, value) for each in found for value in (False, True)]
    return found
