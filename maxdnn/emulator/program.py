"""A kernel as basic blocks: where control can enter, what can be reached, what each block ends with."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ..cubin import CubinKernel
from ..isa import Instruction, Undecodable, read_word
from ..isa.program import conditional, noted_targets
from ..isa.program import static_target as named_target
from ..semantics import spins, waits
from .beside import Units

_NAMING = ("jump", "call", "push", "place")  # what names an address that control may come to
_FALL_THROUGH = ("call", "trap")  # of what leaves; a trap is a fault of the virtual GPU


@dataclass(frozen=True)
class Block:
    """Straight code from `start`; the last instruction may be control flow."""

    start: int
    items: tuple[Instruction | Undecodable, ...]

    @property
    def last(self) -> Instruction | Undecodable:
        return self.items[-1]


def ends_block(item: Instruction | Undecodable) -> bool:
    """Whatever does something to control; at a barrier the warp is given back to the scheduler."""
    return isinstance(item, Undecodable) or item.flow is not None


def _of(what: Callable[[Instruction], bool], item: Instruction | Undecodable) -> bool:
    return isinstance(item, Instruction) and what(item)


def static_target(inst: Instruction) -> int | None:
    """The fixed address an instruction names, if any."""
    return named_target(inst) if inst.flow is not None and inst.flow.does in _NAMING else None


class Program:
    """The reachable basic blocks of a kernel by start address. `extra` are entries found while running (indirect
    branches whose targets the file does not list)."""

    def __init__(self, kernel: CubinKernel, extra: Iterable[int] = ()) -> None:
        self.kernel = kernel
        self.at = kernel.addressing
        self.words = {address: (word, control) for address, word, control in kernel.words()}
        self._items: dict[int, Instruction | Undecodable] = {}
        leaders = self._leaders([self.at.address_of(0), *(self.at.normal(a) for a in extra),
                                 *self._listed_targets()])
        self.blocks = {start: self._block(start, leaders) for start in sorted(leaders) if start in self.words}
        self.spins = {start for start, block in self.blocks.items() if _of(spins, block.items[0])}

    def units(self) -> Units:
        return Units(item for block in self.blocks.values() for item in block.items if isinstance(item, Instruction))

    def item(self, address: int) -> Instruction | Undecodable:
        if address not in self._items:
            word, control = self.words[address]
            self._items[address] = read_word(word, control, address, self.kernel.table)
        return self._items[address]

    def _listed_targets(self) -> list[int]:
        """Addresses of everything the compiler noted as a target."""
        found = {self.at.address_of(t) for targets in noted_targets(self.kernel).values() for t in targets}
        return sorted(found & self.words.keys())

    def _leaders(self, roots: list[int]) -> set[int]:
        """Everything reachable from the roots, as block starts."""
        leaders: set[int] = set()
        seen: set[int] = set()
        work = list(roots)
        while work:
            start = work.pop()
            if start in leaders:
                continue
            leaders.add(start)
            address = start
            while address in self.words and address not in seen:
                item = self.item(address)
                if address != start and (_of(waits, item) or _of(spins, item)):
                    work.append(address)  # a warp comes here again until it need not wait, or lets others go first
                    break
                seen.add(address)
                if ends_block(item):
                    if isinstance(item, Instruction):
                        work += self._successors(item)
                    break
                address = self.at.following(address)
        return leaders

    def _successors(self, inst: Instruction) -> list[int]:
        out = []
        target = static_target(inst)
        if target is not None:
            out.append(target)
        if inst.flow is None or not inst.leaves() or inst.flow.does in _FALL_THROUGH or conditional(inst):
            out.append(self.at.following(inst.address))
        return out

    def _block(self, start: int, leaders: set[int]) -> Block:
        items = []
        address = start
        while address in self.words:
            item = self.item(address)
            items.append(item)
            address = self.at.following(address)
            if ends_block(item) or address in leaders:
                break
        return Block(start, tuple(items))
