"""Where lanes that took different paths must wait for each other before they exchange values.

SSY, PBK, PCNT and calls push a target together with the active lanes. All these lanes continue from the target
together; the first to arrive waits. Later GPUs do not promise that for a jump. So a translation keeps the mask of each
push and waits for its lanes where they leave the entry: at the target, and where BRK, CONT or RET drop the entry on
the way to a lower one. Every lane waits once for each of its entries, the last pushed first, so two lanes cannot wait
for each other. Lanes that have exited are not waited for."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from ..isa import Instruction
from ..isa.program import conditional
from .paths import BasicBlock, Paths, Position, Stack, does
from .warp_sync import Exchange

Entry = tuple[tuple[str, int], ...]  # the stack up to and with this entry


class Reconvergence:
    """Which stack entries need a wait. With the stack in memory it is all of them or none."""

    def __init__(self, paths: Paths, basic_blocks: Mapping[Position, BasicBlock], exchange: Exchange) -> None:
        self._following = {p: paths.following(s) for p, s in basic_blocks.items()}
        self._exchanging = {p for p, s in basic_blocks.items()
                            if exchange.syncs(p) or any(self._between_lanes(i) for i in s.body)}
        stacks = [s.after[1] for s in basic_blocks.values()
                  if s.jump is not None and (conditional(s.jump) or paths.is_indirect(s.jump))]
        self.anywhere = bool(self._exchanging and stacks)
        self._entries = self._needed(stacks)

    def awaited(self, entry: Stack) -> bool:
        """Whether the lanes that pushed the last of these wait for each other where they leave it."""
        return self.anywhere if entry is None else entry in self._entries

    def any_awaited(self, stack: Stack) -> bool:
        """Whether that holds of any entry of a stack."""
        return self.anywhere if stack is None else any(stack[:n + 1] in self._entries for n in range(len(stack)))

    @staticmethod
    def _between_lanes(inst: Instruction) -> bool:
        return inst.opcode in ("SHFL", "VOTE") or (does(inst) == "barrier" and conditional(inst))

    def _needed(self, stacks: Collection[Stack]) -> set[Entry]:
        """Entries with a branch above them and an exchange behind their target, where none below is left first."""
        entries: dict[int, set[Entry]] = defaultdict(set)
        for stack in {s for s in stacks if s}:
            for size in range(1, len(stack) + 1):
                entries[size - 1].add(stack[:size])
        found: set[Entry] = set()
        for below, these in entries.items():
            before = self._before_exchanges(below)
            found |= {entry for entry in these if (entry[-1][1], entry[:-1]) in before}
        return found

    def _before_exchanges(self, depth: int) -> set[Position]:
        """Positions from which something is exchanged before the stack is less deep."""
        deep = {p for p in self._following if len(p[1] or ()) >= depth}
        came: dict[Position, list[Position]] = defaultdict(list)
        for position in deep:
            for after in self._following[position]:
                came[after].append(position)
        found: set[Position] = set()
        todo = list(self._exchanging & deep)
        while todo:
            position = todo.pop()
            if position not in found:
                found.add(position)
                todo += came[position]
        return found
