"""Read-after-write, write-after-read and write-after-write over all paths, and waits that come too early.

Nothing is asked for before EXIT or a block barrier: the vendor's compiler leaves loads, stores and conversions pending
at both (latencies.json, pending_at_exit and pending_at_barrier), and a barrier follows the shared-memory queue. Nor is
it a hazard to set a scoreboard that is still pending: scoreboards count, a wait is for all of them; a wait by count
(DEPBAR.LE) is believed only as far as the operations counted come back in order.

Where the rules are lenient, what no scoreboard tells of is a warning if the order of a unit or a long distance protects
it: twice the cycles that a result takes on an idle machine, HORIZON for operands."""

from collections.abc import Iterator

from .effects import PREDICATE, UNIFORM_REGISTERS, Effects, kind_of, names, resource_name
from .products import arrives, multiplies
from .report import ERROR, WARNING, Finding, Place
from .timing import HORIZON, LIKELY, OPERANDS, RESULT, Entry, State, Timing

_REGISTERS = (1 << PREDICATE) - 1
_BARRIER = "barrier"  # what an opcode does to control


def uses(entry: Entry, new: Effects) -> Iterator[tuple[str, str, int]]:
    """(role, kind of resource, mask) of every use of an earlier result; registers that have one role go together."""
    for role, mask in new.by_role:
        used = mask & entry.live
        while used:
            low = used & -used
            kind = kind_of(low.bit_length() - 1)
            same = used & (_REGISTERS if kind == "register" else low)
            yield role, kind, same
            used &= ~same


class Hazards:
    """Collects findings; of the same hazard found on several paths the worst is kept."""

    def __init__(self, timing: Timing) -> None:
        self.timing, self.rules = timing, timing.rules
        self.code = timing.code
        self.effects = timing.effects
        self._found: dict[tuple[str, int, int], Finding] = {}

    def find(self) -> list[Finding]:
        for i, before, state, clock in self.timing.walk():
            self._early_wait(i, before, clock)
            self._behind_barrier(i, state, clock)
            self._behind_arrive(i, state, clock)
            new = self.effects[i]
            for k, entry in state.items():
                touched = (entry.live & (new.reads | new.writes)) | (self.effects[k].late & new.writes)
                if touched and not self.timing.apart(entry, i, state):
                    self._pair(k, i, entry, clock - entry.issued, state.real(entry.issued, clock))
                unread = self.effects[k].reads & new.writes & UNIFORM_REGISTERS
                if unread and not self.timing.apart(entry, i, state):
                    self._unread(k, i, unread, clock - entry.issued)
        return [self._found[key] for key in sorted(self._found, key=lambda key: key[1:])]

    def _pair(self, k: int, i: int, entry: Entry, elapsed: int, real: int) -> None:
        old, new = self.effects[k], self.effects[i]
        read, written = entry.live & new.reads, entry.live & new.writes
        if old.fixed:
            self._fixed(k, i, entry, elapsed, real)
        elif entry.flags & RESULT:
            protected = self._protected(2 * self.code[k].cls.result_cycles, real)
            protected = "the order of its unit" if entry.flags & LIKELY else protected
            if read:
                self._tracked("result", k, i, read, protected)
            if written and not (old.order and old.order == new.order) and (not read or self.rules.each_register):
                self._tracked("overwritten", k, i, written, protected)
        if entry.flags & OPERANDS and old.late & new.writes and not (old.queue and old.queue == new.queue):
            self._tracked("operands", k, i, old.late & new.writes, self._protected(0, real))

    def _unread(self, k: int, i: int, mask: int, elapsed: int) -> None:
        need, hazard = self.rules.reading(self.code[k], self.code[i]), self.rules.hazards.get("unread")
        if hazard is not None and k != i and elapsed < need:
            self._add(hazard.kind, k, i, mask, need, elapsed, hazard.message, hazard.fix)

    def _protected(self, expected: int, real: int) -> str:
        """What protects from what is expected to last so long, if that is distance alone."""
        return f"a distance of {real} cycles" if self.rules.lenient and real >= max(expected, HORIZON) else ""

    def _fixed(self, k: int, i: int, entry: Entry, elapsed: int, real: int) -> None:
        for role, kind, mask in uses(entry, self.effects[i]):
            for need, part in self.rules.needs(self.code[k], self.code[i], role, kind, mask):
                if elapsed < need:
                    name, fix = self._longer(kind, i, need - elapsed)
                    message = self.rules.hazards[kind].message if real < need else (
                        "stalls alone do not give the result its time, only the wait in between does")
                    self._add(name, k, i, part, need, elapsed, message, fix, level=ERROR if real < need else WARNING)
        need = self.rules.overwriting(self.code[k], self.code[i])
        if elapsed < need and entry.live & self.effects[i].writes:
            lands = self.rules.hazards["lands"]
            self._add(lands.kind, k, i, entry.live & self.effects[i].writes, need, elapsed, lands.message, lands.fix)

    def _longer(self, resource: str, i: int, more: int) -> tuple[str, str]:
        """The kind of finding and what gives `more` cycles before instruction i."""
        before, hazard = self.code[max(i - 1, 0)], self.rules.hazards[resource]
        control = before.control
        if not control.yield_hint and control.stall - self.rules.unyielded.get(control.stall, control.stall) >= more:
            return "yield", (f"set the yield hint at {before.address:04x}: stall {control.stall} counts in full only "
                             "with it")
        return hazard.kind, hazard.fix or (
            f"add {more} to the stall at {before.address:04x} (or move independent instructions in between)")

    def _tracked(self, name: str, k: int, i: int, mask: int, protected: str) -> None:
        """`protected`: what nobody promises keeps the two apart."""
        hazard, control = self.rules.hazards[name], self.code[k].control
        reading = name == "operands"
        bar = control.read_barrier if reading and control.read_barrier is not None else control.write_barrier
        where = f"{self.code[i].address:04x}"
        if bar is not None:
            fix = f"wait for barrier {bar + 1} at or before {where}"
        else:
            which = "read" if reading else "write"
            fix = f"give {self.code[k].address:04x} a {which} barrier and wait for it at or before {where}"
        message = hazard.message + (f": only {protected} protects it" if protected else "")
        self._add(hazard.kind, k, i, mask, None, None, message, hazard.fix or fix,
                  level=WARNING if protected else ERROR)

    def _early_wait(self, i: int, before: State, clock: int) -> None:
        mask, need = self.code[i].control.wait_mask, self.rules.visible
        if not mask:
            return
        for k, entry in before.items():
            control = self.code[k].control
            own = {control.write_barrier, control.read_barrier} - {None}
            hit = [b for b in own if b is not None and mask >> b & 1]
            elapsed = clock - entry.issued
            if hit and entry.flags and elapsed < need:
                early = self.rules.hazards["early"]
                self._add(early.kind, k, i, 0, need, elapsed, early.message.format(hit[0] + 1),
                          f"stall at least {need} after the setter", f"barrier {hit[0] + 1}")

    def _behind_barrier(self, i: int, state: State, clock: int) -> None:
        inst, need = self.code[i], self.rules.behind_barrier
        if not need or inst.access is None or inst.touches("constant"):
            return
        for k, entry in state.items():
            flow = self.code[k].flow
            if flow is not None and flow.does == _BARRIER and clock - entry.issued < need:
                memory = self.rules.hazards["memory"]
                self._add(memory.kind, k, i, 0, need, clock - entry.issued, memory.message, memory.fix, "block barrier")

    def _behind_arrive(self, i: int, state: State, clock: int) -> None:
        need = self.rules.behind_arrive
        if not multiplies(self.code[i]):
            return
        for k, entry in state.items():
            elapsed = clock - entry.issued
            if arrives(self.code[k]) and elapsed < need:
                hazard = self.rules.hazards["arrive"]
                self._add(hazard.kind, k, i, 0, need, elapsed, hazard.message, hazard.fix, "warpgroup")

    def _add(self, kind: str, k: int, i: int, mask: int, need: int | None, have: int | None, message: str, fix: str,
             resource: str = "", level: str = ERROR) -> None:
        every = [(k, resource or names(mask))]
        if self.rules.each_register and not resource:
            every = [(bit, resource_name(bit)) for bit in range(mask.bit_length()) if mask >> bit & 1]
        for which, name in every:
            key = kind, i, which
            known = self._found.get(key)
            if known is None or (known.level == ERROR, -(known.guaranteed or 0)) < (level == ERROR, -(have or 0)):
                self._found[key] = Finding(kind, name, Place.of(self.code[k]), Place.of(self.code[i]), need, have,
                                           message, fix, level)
