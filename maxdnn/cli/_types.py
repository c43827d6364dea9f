"""Types of command-line arguments whose errors say what would be right."""

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def file_name(text: str) -> Path:
    """A path that is not empty."""
    if not text:
        raise argparse.ArgumentTypeError("must name a file (got '')")
    return Path(text)


def whole(text: str) -> int:
    """An integer in decimal or with the prefix 0x, 0o or 0b."""
    try:
        return int(text, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"must be an integer (got {text[:80]!r})") from None


def at_least(least: int) -> Callable[[str], int]:
    """An integer of at least `least`."""
    def number(text: str) -> int:
        value = whole(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least} (got {text[:80]})")
        return value
    return number


PASSES = ("forward", "data", "filters")
LAYER = "N,C,H,W,K,R,S[,stride[,padding]], or a layer of the paper such as alexnet-conv2"


def pass_of(text: str) -> str:
    """One of PASSES. Raises ShapeError for anything else."""
    from ..errors import ShapeError

    if text not in PASSES:
        raise ShapeError(f"--pass must be one of {', '.join(PASSES)} (got {text[:200]!r})")
    return text


def layer(text: str) -> Any:
    """The ConvShape of a layer of the paper or of N,C,H,W,K,R,S[,stride[,padding]]. Raises ShapeError for neither."""
    from ..layers import LAYERS

    named = {f"{x.network}-{x.name}": x.shape for x in LAYERS}
    return named[text] if text in named else shape_of(text, "LAYER", named)


def shape_of(text: str, what: str, names: Iterable[str]) -> Any:
    """The ConvShape of N,C,H,W,K,R,S[,stride[,padding]]. Raises ShapeError, which says what else `what` may be."""
    from ..errors import ShapeError
    from ..problem.shape import ConvShape

    try:
        numbers = [int(n) for n in text.split(",")]
    except ValueError:
        numbers = []
    if not 7 <= len(numbers) <= 9:
        raise ShapeError(f"{what} must be one of {', '.join(names)}, or N,C,H,W,K,R,S[,stride[,padding]] "
                         f"(got {text[:200]!r})")
    return ConvShape(*numbers)
