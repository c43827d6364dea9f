"""What a caller should know of a call that takes longer than one expects: a line each on standard error."""

import contextlib
import sys


def say(text: str) -> None:
    """Print a line. Whatever is wrong with standard error never stops the work."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(f"maxdnn: {text}", file=sys.stderr, flush=True)
