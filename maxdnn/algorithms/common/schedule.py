"""How tiles are spread over the SMs of a chip: whole sums, split-K, or a tail wave whose sums alone are split."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

# Numbers of splits that are offered as candidates; the estimate takes one.
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
LONG_SPLITS = (*SPLITS, 96, 128, 192, 256, 384, 512)
FINE_SPLITS = (*range(1, 17), *range(18, 32, 2), *range(32, 65, 4))
PHASE_SPLITS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)

LONGEST = 32768
"""Terms that are added one after the other, if splits allow."""

_MOST_PARTS = 16  # of a tail wave's sums, at most


def split_name(name: str, splits: int) -> str:
    """The name of a candidate with split-K; `name`: of the candidate that does not split."""
    return name if splits == 1 else f"{name}_split{splits}"


def divides(iterations: int, parts: int) -> bool:
    """Whether every split gets at least one iteration if all splits but the last get the same number."""
    return -(-iterations // parts) * (parts - 1) < iterations


def splits_of(iterations: int, choices: Iterable[int] = SPLITS) -> Iterator[int]:
    """The numbers of splits that this many iterations allow."""
    return (n for n in choices if divides(iterations, n))


def long_splits(iterations: int, terms: int) -> Iterator[int]:
    """The same where an iteration adds `terms` products: without splits whose sums have more than LONGEST terms,
    unless there is no finer split."""
    for n in splits_of(iterations):
        if terms * -(-iterations // n) <= LONGEST or not any(n < x <= iterations for x in SPLITS):
            yield n


@dataclass(frozen=True)
class Tail:
    """The last `items` (images, pixels, rows of tiles), which do not fill a whole wave: their sums are split in
    `parts`, so that they do."""

    items: int = 0
    parts: int = 1


def tail_parts(ctas: int, slots: int, choices: Iterable[int]) -> int:
    """Into how many parts to split the sums of so many CTAs, so that they fill waves of `slots` CTAs best."""
    return min((n for n in choices if n <= _MOST_PARTS), key=lambda n: -(-ctas * n // slots) / n + n / 100)


def why_split(products: int, splits: int, because: str = "") -> str:
    """For notes of plans."""
    return f"the sums of {products} products are split {splits} ways{because}; the parts are added in a fixed order"


def why_tail(what: str, tail: Tail) -> str:
    """For notes of plans."""
    return (f"the sums of the last {tail.items} {what}, which do not fill the chip, are split {tail.parts} ways; the "
            "parts are added in a fixed order")
