"""What could be tighter without being wrong: stalls longer than any use needs, waits that cannot block, and register
bank conflicts with the reuse flag or the renumbering that removes them."""

from collections.abc import Iterator, Sequence

from ..isa import TABLE, Instruction
from ..isa.program import Node
from .effects import Effects
from .hazards import uses
from .maxwell import FLOW_STALL, needs_stall, next_slot_read
from .report import ADVICE, Finding, Place
from .timing import OPERANDS, RESULT, State, Timing, in_order

BANKS = TABLE.banks


def advice(timing: Timing) -> list[Finding]:
    """All advice for a kernel without errors, in address order."""
    found = [*_stalls(timing), *_waits(timing), *_shared_barriers(timing), *_conflicts(timing)]
    return sorted(found, key=lambda finding: finding.consumer.address)


def _finding(kind: str, resource: str, inst: Instruction, message: str, fix: str) -> Finding:
    return Finding(kind, resource, None, Place.of(inst), None, None, message, fix, ADVICE)


# -- stalls -------------------------------------------------------------------------------------------------------


def _stalls(timing: Timing) -> Iterator[Finding]:
    room = _room(timing)
    for i, spare in sorted(room.items()):
        inst = timing.code[i]
        control = inst.control
        if not control.counts_cycles:
            continue  # a long wait is expected here; the number means something else
        least = max(control.stall - spare, _floor(timing.code, i))
        waits = i + 1 < len(timing.code) and timing.code[i + 1].control.wait_mask
        if least < control.stall and not waits and inst.opcode != "NOP":
            yield _finding("long-stall", "issue slot", inst, f"{least} of {control.stall} cycles are enough",
                           f"stall {least}")


def _floor(code: Sequence[Instruction], i: int) -> int:
    """The stall below which nothing is gained: control flow, then what the pipe takes (memory goes at half rate)."""
    inst = code[i]
    if needs_stall(inst) or inst.cls.name == "sync":
        return FLOW_STALL
    if inst.cls.pipe in ("lsu", "tex"):
        return 2
    same = i + 1 < len(code) and code[i + 1].cls.name == inst.cls.name
    return min(inst.cls.issue_cycles, 2) if same else 1


def _room(timing: Timing) -> dict[int, int]:
    """How many cycles each stall could lose before some use would come too early (changing that stall only)."""
    room = {i: 15 for node in timing.graph.nodes for i in range(node.first, node.last + 1)}
    predecessors: dict[Node, list[Node]] = {}
    for node in timing.graph.nodes:
        for successor in node.successors:
            predecessors.setdefault(successor, []).append(node)
    for node, i, slack, distance in _slacks(timing):
        first = i
        while first > node.first and distance > 0:
            first -= 1
            distance -= timing.stall(first)
            room[first] = min(room[first], slack)
        if first == node.first and distance > 0:
            _spread(predecessors, node, distance, slack, room, timing)
    return room


def _spread(predecessors: dict[Node, list[Node]], node: Node, distance: int, slack: int, room: dict[int, int],
            timing: Timing) -> None:
    """Charge the stalls on all ways into a node, as far back as `distance` cycles."""
    todo, seen = [(p, distance) for p in predecessors.get(node, [])], set()
    while todo:
        node, left = todo.pop()
        i = node.last
        while i >= node.first and left > 0:
            room[i] = min(room[i], slack)
            left -= timing.stall(i)
            i -= 1
        if left > 0 and (node, left) not in seen:
            seen.add((node, left))
            todo += [(p, left) for p in predecessors.get(node, [])]


def _slacks(timing: Timing) -> Iterator[tuple[Node, int, int, int]]:
    """(node, consumer, slack, guaranteed distance) of every use of a fixed-latency result and every wait."""
    effects, code = timing.effects, timing.code
    for node, i, before, state, clock in timing.walk_nodes():
        for k, entry in state.items():
            if effects[k].fixed and entry.live & effects[i].reads and not timing.apart(entry, i, state):
                elapsed = clock - entry.issued
                for use in uses(entry, effects[i]):
                    for need, _ in timing.rules.needs(code[k], code[i], *use):
                        yield node, i, max(elapsed - need, 0), elapsed
        for k, entry in before.items():
            if entry.flags & (RESULT | OPERANDS) and _set_by(code[k]) & code[i].control.wait_mask:
                yield node, i, max(clock - entry.issued - timing.rules.visible, 0), clock - entry.issued


def _set_by(inst: Instruction) -> int:
    write, read = inst.control.write_barrier, inst.control.read_barrier
    return (0 if write is None else 1 << write) | (0 if read is None else 1 << read)


# -- waits --------------------------------------------------------------------------------------------------------


def _waits(timing: Timing) -> Iterator[Finding]:
    blocking: dict[int, int] = {}
    for i, before, _, _ in timing.walk():
        if timing.code[i].control.wait_mask:
            blocking[i] = blocking.get(i, 0) | _pending(timing, before)
    for i, mask in sorted(blocking.items()):
        for bar in range(6):
            if timing.code[i].control.wait_mask & ~mask & 1 << bar:
                yield _finding("idle-wait", f"barrier {bar + 1}", timing.code[i],
                               "nothing can be pending on this barrier here", "drop the wait")


def _shared_barriers(timing: Timing) -> Iterator[Finding]:
    """A barrier set while something of another kind is still pending on it: a wait for one is a wait for both."""
    seen: dict[tuple[int, int], int] = {}
    for i, _, state, _ in timing.walk():
        mine = _set_by(timing.code[i])
        for k, entry in state.items():
            both = mine & _set_by(timing.code[k]) if mine and entry.flags & (RESULT | OPERANDS) and k != i else 0
            old, new = timing.effects[k], timing.effects[i]
            if both and not in_order(old, new) and not (old.queue and old.queue == new.queue):
                seen.setdefault((i, both.bit_length()), k)
    for (i, bar), k in sorted(seen.items()):
        yield Finding("barrier-shared", f"barrier {bar}", Place.of(timing.code[k]), Place.of(timing.code[i]), None,
                      None, "set while still pending: whoever waits for one waits for both",
                      "use another barrier if one is free", ADVICE)


def _pending(timing: Timing, before: State) -> int:
    mask = 0
    for k, entry in before.items():
        control = timing.code[k].control
        if control.write_barrier is not None and entry.flags & RESULT:
            mask |= 1 << control.write_barrier
        if control.read_barrier is not None and entry.flags & OPERANDS:
            mask |= 1 << control.read_barrier
        if not entry.flags & (RESULT | OPERANDS) and not timing.effects[k].late and not timing.effects[k].writes:
            mask |= _set_by(timing.code[k])  # nothing to know it by: it may still be set
    return mask


# -- register banks -----------------------------------------------------------------------------------------------


def _conflicts(timing: Timing) -> Iterator[Finding]:
    code, effects = timing.code, timing.effects
    for i in sorted(timing.graph.reachable()):
        if code[i].cls.pipe != "alu":
            continue
        kept = _kept(code, effects, i)
        read = {register: slot for slot, register in effects[i].slots if (slot, register) not in kept}
        for bank in range(BANKS):
            clash = sorted(r for r in read if r % BANKS == bank)
            if len(clash) > 1:
                yield _finding("bank-conflict", ", ".join(f"R{r}" for r in clash), code[i],
                               f"{len(clash)} reads of register bank {bank} take {len(clash)} cycles",
                               _remedy(code, effects, i, {r: read[r] for r in clash}, set(read)))


def _kept(code: Sequence[Instruction], effects: Sequence[Effects], i: int) -> set[tuple[int, int]]:
    """(slot, register) reads of an instruction that an earlier reuse flag serves."""
    found = set()
    for slot, register in effects[i].slots:
        j = _last_read(code, effects, i, slot, register)
        if j is not None and code[j].control.reuse >> slot & 1:
            found.add((slot, register))
    return found


def _last_read(code: Sequence[Instruction], effects: Sequence[Effects], i: int, slot: int, register: int) -> int | None:
    """The nearest earlier instruction that reads the register in the slot, with nothing in between that ends reuse: a
    write of it, a jump, or so many other registers read in the slot that the cache has lost it."""
    others: set[int] = set()
    for j in range(i - 1, -1, -1):
        others |= {r for s, r in effects[j].slots if s == slot} - {register}
        if len(others) >= TABLE.reuse_entries and (slot, register) not in effects[j].slots:
            return None
        if (slot, register) in effects[j].slots:
            return j if next_slot_read(code, effects, j, slot, register) == (None, i) else None
        if effects[j].writes >> register & 1:
            return None
    return None


def _remedy(code: Sequence[Instruction], effects: Sequence[Effects], i: int, clash: dict[int, int],
            read: set[int]) -> str:
    for register, slot in clash.items():
        j = _last_read(code, effects, i, slot, register)
        if j is not None and code[j].row.operands and _capable(code[j], slot):
            return f"set the reuse flag of R{register} (slot {slot}) at {code[j].address:04x}"
    taken = {r % BANKS for r in read}
    free = [bank for bank in range(BANKS) if bank not in taken]
    return f"renumber R{max(clash)} to a register of bank {free[0]}" if free else "reorder the operands"


def _capable(inst: Instruction, slot: int) -> bool:
    return any(op.field.slot == slot for op in inst.operands)
