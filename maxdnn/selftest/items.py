"""What the self-test is made of: items that run on a device and give a result as plain data."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..planning.select import chip_of
from ..runtime.devices.protocol import Card, Device, able

SAME, DIFFERENT, FAILED, NOTED = "same", "different", "failed", "noted"
"""States of a result: as expected; not so; it could not be run; a figure that nothing is expected of."""

SHOWN = 4  # differences of an array that a report lists


@dataclass(frozen=True)
class Result:
    """`part`: "kernels", "questions", "clocks" or "times". `name`: of the item. `state`: see above. `text`: in a line.
    `data`: figures, by name."""

    part: str
    name: str
    state: str
    text: str
    data: Mapping[str, Any] = field(default_factory=dict)


class Item(Protocol):
    @property
    def part(self) -> str: ...

    @property
    def name(self) -> str: ...

    def run(self, stand: "Stand") -> Result: ...


class Stand:
    """The device under test beside the virtual GPU it is compared with. `card`: whether it is a GPU; else the virtual
    GPU is compared with the contracts of its kernels. `native`: whether it runs the kernels' own machine code."""

    def __init__(self, device: Any) -> None:
        from ..emulator import VirtualGpu

        self.device: Any = device
        self.card = able(device, Card) is not None
        self.native = chip_of(device).runs_maxwell
        self.virtual: Device = VirtualGpu()
        self.kept: dict[str, Any] = {}


def digest(array: np.ndarray) -> str:
    """Of the bits of an array, to compare what several cards give."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def differences(found: np.ndarray, wanted: np.ndarray) -> dict[str, Any]:
    """Where the bits of two arrays of 32-bit values differ: how many, and the first few as (index, found, wanted);
    empty if nowhere."""
    a, b = (np.ascontiguousarray(x).view(np.uint32) for x in (found, wanted))
    if np.array_equal(a, b):
        return {}
    where = np.argwhere(a != b)
    first = [{"index": at.tolist(), "found": f"{a[tuple(at)]:08x}", "wanted": f"{b[tuple(at)]:08x}"}
             for at in where[:SHOWN]]
    return {"elements": int(a.size), "different": len(where), "first": first}


def told(difference: Mapping[str, Any]) -> str:
    """Differences in words."""
    first = difference["first"][0]
    at = ", ".join(map(str, first["index"]))
    return (f"{difference['different']} of {difference['elements']} values differ, the first at [{at}]: "
            f"0x{first['found']} instead of 0x{first['wanted']}")
