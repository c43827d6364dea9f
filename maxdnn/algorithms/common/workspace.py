"""A plan while it is made: regions of the workspace, launches, notes."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from ...build.interface import KernelSpec
from ...planning.plan import DIRECT_ERROR, FLOAT_BYTES, Launch, Part, Plan, make
from ...problem.problem import Problem
from ..memory_ops import plan as memory_ops
from ..spec import Family


def part(name: str, elements: int) -> str | Part:
    """Memory from so many elements on."""
    return Part(name, FLOAT_BYTES * elements) if elements else name


@dataclass
class Draft:
    """`regions`: bytes by name."""

    problem: Problem
    regions: dict[str, int] = field(default_factory=dict)
    launches: list[Launch] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def region(self, name: str, elements: int) -> str:
        """Room for so many elements, or for more if it was asked for before."""
        self.regions[name] = max(FLOAT_BYTES * elements, self.regions.get(name, 0))
        return name

    def add(self, launches: Iterable[Launch]) -> None:
        self.launches += launches

    def transposed(self, name: str, source: str, rows: int, columns: int, doing: str) -> str:
        """A region with the transpose of a matrix."""
        self.region(name, rows * columns)
        self.launches.append(memory_ops.transpose(name, source, rows, columns, doing))
        return name

    def padded(self, name: str, source: str | Part, size: tuple[int, int, int, int], padded: tuple[int, int, int],
               padding: tuple[int, int], doing: str) -> str:
        """A region with maps of `size` C, H, W, N, padded to Hp, Wp, Ns."""
        hp, wp, ns = padded
        self.region(name, size[0] * hp * wp * ns)
        self.launches.append(memory_ops.pad(name, source, size, padded, padding, doing))
        return name

    def transposed_back(self, source: str, rows: int, columns: int, doing: str = "") -> None:
        """The output, from a region with its transpose."""
        doing = doing or "the output K,P,Q,N changes layout"
        self.launches.append(memory_ops.transpose("out", source, rows, columns, doing))

    def plan(self, family: Family, spec: KernelSpec, error: float = DIRECT_ERROR) -> Plan:
        return make(self.problem, family.name, spec, self.launches, self.regions, self.notes, error, family.algorithm)
