"""What the checker has passed already, as the source tree says: passed.json has a line for each kernel source and
generation, the slowest to assemble first, with a hash of the cubin and of the rules that passed it.

Checking all takes longer than assembling it. A cubin of other bytes, or other rules, is in no such line and is checked
where it is made. `tools/passed.py` checks everything and writes the lines; a test does so again and compares."""

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

FILE = Path(__file__).with_name("passed.json")


def name(source: str, archs: Iterable[str]) -> str:
    """Of a line."""
    return f"{source} {next(iter(archs))}"


def verdict(data: bytes, rules: str) -> str:
    """That this cubin has passed by these rules."""
    return hashlib.sha256(rules.encode() + b"\0" + data).hexdigest()


@functools.cache
def verdicts() -> Mapping[str, str]:
    """By name; none where the file is missing or damaged, since all can be checked."""
    try:
        found = json.loads(FILE.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def has(data: bytes, rules: str) -> bool:
    """Whether the tree says that this cubin has passed by these rules."""
    return verdict(data, rules) in verdicts().values()
