"""Types of command-line arguments whose errors say what would be right."""

import argparse
from collections.abc import Callable


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
