"""Predicates that imply others. The compiler writes `P0 = true; @!P1 P0 = ...; @!P0 use`: the use then runs only where
!P1 held. Needed to see that what an older instruction left in a register was overwritten wherever the use counts."""

from ..isa import Guard, Instruction
from .effects import PREDICATE
from .timing import GUARD, State, Timing


def overwritten_where_used(timing: Timing, k: int, i: int, state: State, mask: int) -> bool:
    """Whether instruction i runs only where some guard held under which an instruction after k wrote the resources."""
    outer = implied_guard(timing, i, state)
    return outer is not None and any(
        timing.effects[m].guard == outer and entry.flags & GUARD and entry.issued > state[k].issued
        and timing.effects[m].writes & mask == mask for m, entry in state.items())


def implied_guard(timing: Timing, i: int, state: State) -> Guard | None:
    """A guard that holds wherever instruction i runs: that of the writes of i's own predicate, if all other writes that
    reach it are constants under which i does not run. None if there is no such guard."""
    guard = timing.effects[i].guard
    if guard.index == 7:
        return None
    setters = {d for d in definitions(timing, i, 1 << PREDICATE + guard.index)
               if constant(timing.code[d]) is not guard.negated}
    outer = {timing.effects[d].guard for d in setters}
    if len(outer) != 1 or any(d not in state or not state[d].flags & GUARD for d in setters):
        return None
    (found,) = outer
    return None if found.index == 7 else found


def constant(inst: Instruction) -> bool | None:
    """The value an unguarded PSETP.AND.AND of PT and !PT gives its first predicate; None for anything else."""
    if inst.opcode != "PSETP" or inst.guard.index != 7 or (inst.mods["op1"], inst.mods["op2"]) != ("AND", "AND"):
        return None
    sources = [inst[name] for name in ("pa", "pb", "ps")]
    return None if any(op.value != 7 for op in sources) else not any(op.inv for op in sources)


def definitions(timing: Timing, i: int, resource: int) -> set[int]:
    """Instructions whose write of a resource may reach instruction i: backwards, up to unguarded writes."""
    before: dict[int, set[int]] = {}
    for node in timing.graph.nodes:
        for successor in node.successors:
            before.setdefault(successor.first, set()).add(node.last)
    starts = {node.first for node in timing.graph.nodes}
    found, seen, todo = set[int](), set[int](), [i]
    while todo:
        at = todo.pop()
        for earlier in before.get(at, set()) if at in starts else {at - 1}:
            if earlier in seen or earlier < 0:
                continue
            seen.add(earlier)
            if timing.effects[earlier].writes & resource:
                found.add(earlier)
                if timing.effects[earlier].guard.index == 7:
                    continue
            todo.append(earlier)
    return found
