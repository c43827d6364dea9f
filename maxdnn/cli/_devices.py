"""The device that a command works on."""

import argparse
from typing import Any

from ._types import at_least


def number(text: str) -> int | str:
    """Of a GPU, or "virtual"."""
    return text if text == "virtual" else at_least(0)(text)


def add_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", type=number, metavar="N|virtual",
                        help="the GPU with this number, or the virtual one (default: GPU 0; virtual if there is none)")


def chosen(asked: int | str | None) -> Any:
    """The device asked for. Raises DeviceError if there is none."""
    from ..runtime.devices import find

    if asked is None:
        return find.first_gpu() or find.host()
    if asked == "virtual":
        return find.host()
    from ..runtime.devices import cuda
    return cuda.device(int(asked))
