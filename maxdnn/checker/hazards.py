"""Read-after-write, write-after-read and write-after-write over all paths, and waits that come too early.

Nothing is asked for before EXIT or a block barrier: the vendor's compiler leaves loads, stores and conversions pending
at both (latencies.json, pending_at_exit and pending_at_barrier), and a barrier follows the shared-memory queue. Nor is
it a hazard to set a scoreboard that is still pending: scoreboards count, a wait is for all of them; a wait by count
(DEPBAR.LE) is believed only as far as the operations counted come back in order.

What no scoreboard tells of is a warning where the order of a unit or a long distance protects it: twice the cycles that
a result takes on an idle machine, HORIZON for operands."""

from collections.abc import Iterator

from ..isa import Instruction
from .effects import Effects, names
from .report import ERROR, WARNING, Finding, Place
from .rules import Key, kind_of, required_cycles
from .timing import HORIZON, LIKELY, OPERANDS, RESULT, UNYIELDED, VISIBLE, Entry, State, Timing


def uses(code: Instruction, old: Instruction, entry: Entry, new: Effects) -> Iterator[tuple[Key, int]]:
    """(key of the latency table, resource mask) of every use of an earlier result."""
    for role, mask in new.by_role:
        used = mask & entry.live
        while used:
            low = used & -used
            kind = kind_of(low.bit_length() - 1)
            same = used & (_REGISTERS if kind == "register" else low)
            yield (old.cls.name, kind, code.cls.name, role), same
            used &= ~same


_REGISTERS = (1 << 256) - 1


class Hazards:
    """Collects findings; of the same hazard found on several paths the worst is kept."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.code = timing.code
        self.effects = timing.effects
        self._found: dict[tuple[str, int, int], Finding] = {}

    def find(self) -> list[Finding]:
        for i, before, state, clock in self.timing.walk():
            self._early_wait(i, before, clock)
            new = self.effects[i]
            for k, entry in state.items():
                touched = (entry.live & (new.reads | new.writes)) | (self.effects[k].late & new.writes)
                if touched and not self.timing.apart(entry, i, state):
                    self._pair(k, i, entry, clock - entry.issued, state.real(entry.issued, clock))
        return [self._found[key] for key in sorted(self._found, key=lambda key: (key[2], key[1]))]

    def _pair(self, k: int, i: int, entry: Entry, elapsed: int, real: int) -> None:
        old, new = self.effects[k], self.effects[i]
        far = self._long(2 * self.code[k].cls.result_cycles, real)
        result = "the order of its unit" if entry.flags & LIKELY else far
        if old.fixed:
            self._fixed(k, i, entry, elapsed, real)
        elif entry.flags & RESULT and entry.live & new.reads:
            self._tracked(k, i, "raw-barrier", entry.live & new.reads, "result is read before it is known to be there",
                          result)
        elif entry.flags & RESULT and entry.live & new.writes and not (old.order and old.order == new.order):
            self._tracked(k, i, "waw", entry.live & new.writes, "register is overwritten while a result is on its way",
                          result)
        if entry.flags & OPERANDS and old.late & new.writes and not (old.queue and old.queue == new.queue):
            self._tracked(k, i, "war", old.late & new.writes, "register is overwritten before it is known to be read",
                          self._long(0, real))

    @staticmethod
    def _long(expected: int, real: int) -> str:
        """What protects from what is expected to last so long, if that is distance alone."""
        return f"a distance of {real} cycles" if real >= max(expected, HORIZON) else ""

    def _fixed(self, k: int, i: int, entry: Entry, elapsed: int, real: int) -> None:
        for key, mask in uses(self.code[i], self.code[k], entry, self.effects[i]):
            need = required_cycles(key)
            if elapsed < need:
                kind, fix = self._longer(key[1], i, need - elapsed)
                if real < need:
                    self._add(kind, k, i, mask, need, elapsed, "result is used before it is there", fix)
                else:
                    self._add(kind, k, i, mask, need, elapsed,
                              "stalls alone do not give the result its time, only the wait in between does", fix,
                              level=WARNING)

    def _longer(self, resource: str, i: int, more: int) -> tuple[str, str]:
        """The kind of finding and what gives `more` cycles before instruction i."""
        before = self.code[max(i - 1, 0)]
        control = before.control
        if not control.yield_hint and control.stall - UNYIELDED.get(control.stall, control.stall) >= more:
            return "yield", (f"set the yield hint at {before.address:04x}: stall {control.stall} counts in full only "
                             "with it")
        kind = {"register": "raw-fixed", "predicate": "raw-predicate", "carry": "raw-carry"}[resource]
        return kind, f"add {more} to the stall at {before.address:04x} (or move independent instructions in between)"

    def _tracked(self, k: int, i: int, kind: str, mask: int, message: str, protected: str) -> None:
        """`protected`: what nobody promises keeps the two apart."""
        control = self.code[k].control
        bar = control.read_barrier if kind == "war" and control.read_barrier is not None else control.write_barrier
        where = f"{self.code[i].address:04x}"
        if bar is not None:
            fix = f"wait for barrier {bar + 1} at or before {where}"
        else:
            which = "read" if kind == "war" else "write"
            fix = f"give {self.code[k].address:04x} a {which} barrier and wait for it at or before {where}"
        message += f": only {protected} protects it" if protected else ""
        self._add(kind, k, i, mask, None, None, message, fix, level=WARNING if protected else ERROR)

    def _early_wait(self, i: int, before: State, clock: int) -> None:
        mask = self.code[i].control.wait_mask
        if not mask:
            return
        for k, entry in before.items():
            control = self.code[k].control
            own = {control.write_barrier, control.read_barrier} - {None}
            hit = [b for b in own if b is not None and mask >> b & 1]
            elapsed = clock - entry.issued
            if hit and entry.flags and elapsed < VISIBLE:
                self._add("early-wait", k, i, 0, VISIBLE, elapsed, f"the wait may not see barrier {hit[0] + 1} set",
                          f"stall at least {VISIBLE} after the setter", f"barrier {hit[0] + 1}")

    def _add(self, kind: str, k: int, i: int, mask: int, need: int | None, have: int | None, message: str, fix: str,
             resource: str = "", level: str = ERROR) -> None:
        known = self._found.get((kind, k, i))
        if known is not None and (known.level == ERROR, -(known.guaranteed or 0)) >= (level == ERROR, -(have or 0)):
            return
        self._found[kind, k, i] = Finding(kind, resource or names(mask), Place.of(self.code[k]), Place.of(self.code[i]),
                                          need, have, message, fix, level)
