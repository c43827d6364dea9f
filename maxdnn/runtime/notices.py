"""Messages on standard error, one line each, about a call that takes longer than its user expects."""

import contextlib
import sys


def say(text: str) -> None:
    """Print a line. An error of standard error is ignored."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(f"maxdnn: {text}", file=sys.stderr, flush=True)
