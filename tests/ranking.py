"""How far two rankings agree."""

import itertools
from collections.abc import Iterable


def tau(pairs: Iterable[tuple[float, float]]) -> float:
    """Kendall's tau of (estimate, truth): pairs in the same order less those in the other, over all whose truths
    differ. 1: the same ranking; 0: no better than a coin; two that are estimated alike count as half wrong."""
    agree = count = 0
    for (estimate, truth), (other_estimate, other_truth) in itertools.combinations(pairs, 2):
        if truth == other_truth:
            continue
        count += 1
        if estimate != other_estimate:
            agree += 1 if (estimate < other_estimate) == (truth < other_truth) else -1
    return agree / count if count else 1.0
