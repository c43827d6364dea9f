"""`python -m maxdnn.selftest.worker ORDINAL QUICK`: items of a self-test on a GPU, in a process of their own, whose
numbers it reads line by line."""

import sys

from ..runtime.devices import cuda
from .run import serve


def _write(line: str) -> None:
    sys.stdout.write(line)
    sys.stdout.flush()


if __name__ == "__main__":
    ordinal, quick = map(int, sys.argv[1:])
    sys.exit(serve(cuda.device(ordinal), bool(quick), sys.stdin, _write))
