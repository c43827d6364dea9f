"""Mutants of a kernel in which one access to shared memory changed places with others: what a scheduler makes that
keeps the order of registers only."""

import dataclasses
from collections.abc import Iterator

from maxdnn.cubin import CubinKernel
from maxdnn.isa.operands import barrier_kind
from maxdnn.isa.program import Graph
from tests.checker.programs import with_controls


def moved(kernel: CubinKernel, start: int, to: int) -> CubinKernel:
    """The kernel with the instruction at index `start` taken to index `to`, those in between moving up."""
    order = list(range(len(kernel.instructions)))
    order.insert(to, order.pop(start))
    words = kernel.words()
    code = bytearray(kernel.code)
    for at, old in enumerate(order):
        code[words[at][0]:words[at][0] + 8] = words[old][1].to_bytes(8, "little")
    changed = dataclasses.replace(kernel, code=bytes(code))
    return with_controls(changed, {at: words[old][2] for at, old in enumerate(order) if at != old})


def _kind(kernel: CubinKernel, i: int) -> str:
    access = kernel.instructions[i].access
    found = access is not None and access.spaces == {"shared"} and access.does in ("load", "store")
    return access.does if access is not None and found else ""


def places(kernel: CubinKernel) -> Iterator[tuple[int, int]]:
    """(from, to) of every store that may move behind or in front of the next load of its straight piece, as far as
    registers and predicates are concerned."""
    for node in {node.first: node for node in Graph(kernel).nodes}.values():
        for s in range(node.first, node.last + 1):
            if _kind(kernel, s) != "store":
                continue
            for way in (1, -1):
                end = s + way
                while node.first <= end <= node.last and _free(kernel, s, end):
                    if _kind(kernel, end) == "load":
                        yield s, end
                        break
                    end += way


def _free(kernel: CubinKernel, s: int, end: int) -> bool:
    """Whether a store may pass an instruction: it is no jump or barrier and writes nothing that the store reads."""
    store, other = kernel.instructions[s], kernel.instructions[end]
    return not (other.leaves() or other.pushes() or barrier_kind(other) or other.waits
                or store.reads() & other.writes() or store.pred_reads() & other.pred_writes())
