"""Large numbers in every argument of the functions that take any, in a process with little memory: each call answers or
raises an error of the library, and executes no more lines of Python than some. A loop over rows of an output that a
padding makes long executes a hundred million; planning any layer of a network, some hundred thousand.

    python -m tests.large [PART/PARTS]

Prints what does neither."""

import re
import resource
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import maxdnn
from maxdnn.emulator import VirtualGpu
from maxdnn.planning.cost import Chip
from maxdnn.planning.select import chip_of, choose
from maxdnn.problem import problem

LARGE = (1000, 65537, 10**6, 10**8, 2**31 - 1, 2**31, 2**32, 10**12, 2**62, 10**30, 10**5000)
LINES = 3_000_000
MEMORY = 3 << 30
HOPPER = Chip("an H200", 132, 1600, False, 141 << 30, "none", "sm_90")
ROOMS = r"algorithms(/[a-z_0-9]+)?|emulator|planning|problem|runtime(/devices)?|torch"
OWN = re.compile(rf".*/(maxdnn(/({ROOMS}))?/[a-z_0-9]+\.py|tests/large\.py)")
MADE_ONCE = ("cubins.py", "cubin.py", "elf.py", "assemble.py")  # machine code, whatever the sizes
NAMES = ("N", "C", "H", "W", "K", "R", "S", "stride", "padding", "dilation", "groups")


class TooMuch(Exception):
    """More lines than any call should take."""


def counted(call: Callable[[], Any]) -> None:
    """Raises TooMuch beyond the bound."""
    left = [LINES]

    def line(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "call" and (not OWN.fullmatch(frame.f_code.co_filename)
                                or frame.f_code.co_filename.endswith(MADE_ONCE)):
            return None
        if event == "line":
            left[0] -= 1
            if left[0] < 0:
                raise TooMuch(f"more than {LINES} lines, now {Path(frame.f_code.co_filename).name}:{frame.f_lineno}")
        return line
    sys.settrace(line)
    try:
        call()
    finally:
        sys.settrace(None)


def layers() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Shapes and plans: one argument large, or two that belong together."""
    base: dict[str, Any] = {"N": 4, "C": 8, "H": 9, "W": 9, "K": 8, "R": 3, "S": 3}
    pairs = (("H", "R"), ("padding", "stride"), ("padding", "dilation"), ("padding", "R"), ("H", "stride"),
             ("C", "groups", "K"), ("R", "S", "H", "W"), ("H", "W", "stride"), ("N", "H"), ("H", "padding"))
    for names in (*((name,) for name in NAMES), *pairs):
        for large in LARGE:
            size = base | dict.fromkeys(names, large)
            for kind in ("forward", "data", "filters"):
                for layout in ("CHWN", "NCHW"):
                    for chip in (chip_of(None), HOPPER):
                        def plan(size: dict[str, Any] = size, kind: str = kind, layout: str = layout,
                                 chip: Chip = chip) -> None:
                            shape = maxdnn.ConvShape(**size)
                            choose(getattr(problem, kind)(shape, layout=layout), chip, tuned=False)
                        yield f"{kind} {layout} {chip.name} {names}=2^{large.bit_length()}", plan


def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Functions with arrays."""
    gpu = VirtualGpu()
    images, filters = np.ones((3, 5, 5, 4), np.float32), np.ones((3, 3, 3, 4), np.float32)
    gradients = np.ones((4, 3, 3, 4), np.float32)
    for large in LARGE:
        for value in (large, (large, 1), (1, large), -large):
            for name in ("stride", "padding", "dilation", "groups", "max_workspace_bytes", "alpha", "max_error"):
                options: dict[str, Any] = {name: value}
                yield f"conv_fprop {name}", lambda o=options: maxdnn.conv_fprop(images, filters, **o)
                yield f"bprop_data {name}", lambda o=options: maxdnn.conv_bprop_data(gradients, filters, (5, 5), **o)
                yield f"bprop_filters {name}", lambda o=options: maxdnn.conv_bprop_filters(images, gradients, (3, 3),
                                                                                            **o)
            for size in ((value, 5), (5, value), (value, value), value):
                yield "bprop_data size", lambda s=size: maxdnn.conv_bprop_data(gradients, filters, s)
                yield "bprop_filters size", lambda s=size: maxdnn.conv_bprop_filters(images, gradients, s)
            yield "matmul alpha", lambda v=value: maxdnn.matmul(images[0], images[0, :, :4], alpha=v)
            yield "matmul beta", lambda v=value: maxdnn.matmul(images[0], images[0], beta=v, out=images[1])
            for name in ("memory_bytes", "heap_bytes", "workers", "instruction_budget"):
                yield f"VirtualGpu {name}", lambda v=value, n=name: VirtualGpu(**{n: v})
            yield "alloc", lambda v=value: gpu.alloc(v).free()
            yield "max_error", lambda v=value: maxdnn.plan(maxdnn.ConvShape(4, 3, 5, 5, 4, 3, 3), max_workspace_bytes=v)
        yield "product", lambda x=large: choose(problem.product((x, 8), (8, x)), chip_of(None))
        yield "product K", lambda x=large: choose(problem.product((8, x), (x, 8)), HOPPER)
        yield "product batch", lambda x=large: choose(problem.product((x, 8, 8), (8, 8)), chip_of(None))
        yield "bias", lambda x=large: choose(problem.bias((4, x, 3, 4)), chip_of(None))
    tall, wide = np.ones((1 << 20, 1), np.float32), np.ones((1, 1 << 20), np.float32)
    yield "matmul of a result without end", lambda: maxdnn.matmul(tall, wide)


def main() -> int:
    every = [*calls(), *layers()]
    part, parts = map(int, sys.argv[1].split("/")) if len(sys.argv) > 1 else (1, 1)
    maxdnn.matmul(np.ones((4, 4), np.float32), np.ones((4, 4), np.float32))  # what a process makes once
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    found: dict[str, str] = {}
    for name, call in every[part - 1::parts]:
        try:
            counted(call)
        except maxdnn.MaxdnnError:
            pass
        except BaseException as e:
            place = traceback.extract_tb(e.__traceback__)
            where = " < ".join(f"{Path(p.filename).name}:{p.lineno}" for p in place[:2:-1][:5])
            found.setdefault(where, f"{name}: {type(e).__name__}: {str(e)[:150]} ({where})")
    print(*found.values(), f"{len(every[part - 1::parts])} calls: {len(found)} places", sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
