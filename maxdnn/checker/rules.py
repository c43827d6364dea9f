"""What an instruction set says about control codes beside its table: cycles, how far order and distance can be trusted,
and the words of findings. maxwell.py and sm80.py have one each."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..isa import Instruction
from ..isa.program import Graph
from .effects import Effects
from .report import Finding


class Hazard(NamedTuple):
    """A kind of finding: what is wrong with a register, and what helps if that is always the same."""

    kind: str
    message: str
    fix: str = ""


@dataclass(frozen=True)
class Rules:
    """`needs`: of (producer of fixed latency, reader, role, kind of resource, mask of resources) the cycles between the
    two for each part of the mask; `overwriting`: cycles between two writes of one register so that the second stays;
    `reading`: between what reads a uniform register and what writes it, so that it reads what was there before;
    `behind_barrier`: from a block barrier to an access to memory; `behind_arrive`: from WARPGROUP.ARRIVE to HGMMA.
    `hazards`: by kind of resource, read before its cycles are over; `result` and `operands`, of variable latency: read
    before it is there, overwritten before it was read; `overwritten`: written while a result is on its way; `lands`:
    written before the cycles of `overwriting` are over; `unread`: of `reading`; `early`: a wait too soon after its
    barrier was set; `memory`. `static`: findings that hang on no time."""

    needs: Callable[[Instruction, Instruction, str, str, int], Iterable[tuple[int, int]]]
    hazards: Mapping[str, Hazard]
    static: Callable[[Graph, Sequence[Effects]], Iterator[Finding]]
    visible: int  # cycles until a scoreboard that is set can be waited for
    overwriting: Callable[[Instruction, Instruction], int] = lambda first, second: 0
    reading: Callable[[Instruction, Instruction], int] = lambda reader, writer: 0
    behind_barrier: int = 0
    behind_arrive: int = 0
    unyielded: Mapping[int, int] = field(default_factory=dict)  # stalls without yield hint that guarantee fewer cycles
    follows: str = ""  # a block barrier comes behind all that this queue has read
    silent: Collection[str] = ()  # orders of which an operation that its guard skips tells nothing
    each_register: bool = False  # whether each register has a finding of its own
    # Whether what a long distance or the order of a unit protects is a warning only; and whether the overwriting of
    # what is on its way is one finding, without others for each use behind it.
    lenient: bool = False
