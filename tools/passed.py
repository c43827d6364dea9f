#!/usr/bin/env python
"""Write maxdnn/build/passed.json: which cubins the checker has passed, by its rules of now.

    python tools/passed.py [--check]

What is assembled for it is checked unless the file says already that it has passed. --check changes nothing, checks
every cubin whatever the file says, and exits 1 if that is not what the file says."""

import argparse
import json
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from maxdnn.build import cubins, passed

EVERY = *cubins.ARCHS, *cubins.AMPERE, cubins.HOPPER


def lines(check: bool) -> dict[str, str]:
    """What the file ought to say, the largest cubins first, which take longest. Raises AssemblyError if one does not
    pass."""
    paths = dict(zip([passed.name(*one) for one in cubins.wanted(EVERY)], cubins.build_all(EVERY), strict=True))
    if check:
        with ProcessPoolExecutor() as pool:
            list(pool.map(cubins.check, paths.values()))
    code = {name: path.read_bytes() for name, path in paths.items()}
    return {name: passed.verdict(code[name], cubins.checked_by())
            for name in sorted(code, key=lambda name: (-len(code[name]), name))}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(arguments).check
    text = json.dumps(lines(check), indent=0) + "\n"
    if not check:
        passed.FILE.write_text(text, "utf-8")
    elif passed.FILE.read_text("utf-8") != text:
        print(f"{passed.FILE} is not what the checker says: run python tools/passed.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
