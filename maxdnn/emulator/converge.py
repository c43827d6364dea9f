"""Control flow of Hopper: every lane has a place of its own, and convergence barriers bring lanes together (see
runtime/convergence.py)."""

from llvmlite import ir

from ..isa import PT, Instruction
from ..isa.program import conditional, register_target
from ..semantics.machine import UNIFORM
from ..semantics.operands import pred, raw
from .irkit import I32, at, c32, field, get, put
from .layout import VECTOR_BYTES, WARP
from .lower import Lowering
from .program import static_target
from .runtime.memory import VI1, VI32

_WARP_BARRIER = 16
_VOID = ir.VoidType()


class ConvergenceLowering(Lowering):
    def _control(self, inst: Instruction) -> None:
        op, does = inst.opcode, inst.flow.does if inst.flow is not None else ""
        if does in ("jump", "call") and static_target(inst) is not None:
            self._branch(inst)
        elif does in ("jump", "call", "pop"):
            self._scatter(inst)
        elif does == "end":
            self._exit(inst)
        elif does == "barrier":
            self._barrier(inst)
        elif op in ("BSYNC", "WARPSYNC"):
            self._come(inst)
        elif does == "meet":
            self._masks(inst)
            self._go(self.at.following(inst.address), inst.address)
        else:
            self._unsupported(inst)

    def _taken(self, inst: Instruction) -> ir.Value:
        """i32 mask of the lanes that are active, guarded and whose predicate holds."""
        ps = inst.operand("ps")
        if ps is None or (ps.value == PT and not ps.inv):
            return self.t.mask_bits
        return self.b.and_(self.b.bitcast(pred(self.t, ps), I32), self.t.mask_bits)

    def _branch(self, inst: Instruction) -> None:
        target, after = static_target(inst) or 0, self.at.following(inst.address)
        how = inst.mods.get("mod_conv") or inst.mods.get("mod_div")
        if how:
            self._divergent(inst, how, target, after)
        elif conditional(inst):
            self._split(self._taken(inst), target, after, inst)
        else:
            self._go(target, inst.address)

    def _divergent(self, inst: Instruction, how: str, target: int, after: int) -> None:
        """BRA.DIV goes where not all lanes of the mask are together; BRA.CONV where they are."""
        if inst.operand("a") is None and inst.operand("b") is None:
            self._unsupported(inst)  # which lanes are meant is not known
            return
        mask = self.t.reg(256 + inst["a"].value) if inst.operand("a") is not None else self.t.reg(256 + inst["b"].value)
        wanted = self.b.and_(self.b.extract_element(mask, c32(0)), get(self.b, self.warp, WARP, "alive"))
        missing = self.b.and_(wanted, self.b.not_(self.t.active_bits))
        apart = self.b.icmp_unsigned("!=", missing, c32(0))
        with self.b.if_then(apart if how == "DIV" else self.b.not_(apart)):
            self._go(target, inst.address)
        self._go(after, inst.address)

    def _split(self, taken: ir.Value, target: int, after: int, inst: Instruction) -> None:
        b = self.b
        self._agreed(taken, target, after, inst)
        if self.t.tracing:
            self._add_run(self.at.index_of(inst.address), 0)
        self._park(b.and_(self.t.active_bits, b.not_(taken)), after)
        self._park(taken, target)
        self._settle(inst)

    def _park(self, lanes: ir.Value, target: int) -> None:
        self.t.call("rt_park", _VOID, self.warp, lanes, c32(target))

    def _settle(self, inst: Instruction) -> None:
        """Whoever can go on does; nobody else may be running."""
        self._unless_elsewhere(self.t.call("rt_settle", I32, self.ctx, self.warp), inst)
        put(self.b, self.warp, WARP, "pc", self.at.following(inst.address))
        self.b.branch(self._dispatch)

    def _exit(self, inst: Instruction) -> None:
        lanes = self._taken(inst)
        self._some(lanes, inst)
        self.t.call("rt_gone", _VOID, self.warp, lanes)
        self._settle(inst)

    def _scatter(self, inst: Instruction) -> None:
        lanes = self._taken(inst)
        self._some(lanes, inst)
        op = inst.operand("target")
        if op is None:
            self._scatter_to(raw(self.t, inst["b"]), lanes, inst)  # an address in a constant
            return
        base = self.t.reg(UNIFORM + op.ubase if "ureg" in op.field.spec else op.base)
        targets = self.t.add(base, self.t.const("i32", register_target(inst)))
        self._scatter_to(targets, lanes, inst)

    def _scatter_to(self, targets: ir.Value, lanes: ir.Value, inst: Instruction) -> None:
        self.t.call("rt_scatter", _VOID, self.warp, targets, lanes)
        self._settle(inst)

    def _come(self, inst: Instruction) -> None:
        """BSYNC waits for the lanes of a barrier, WARPSYNC for those of a mask."""
        t, lanes, number = self.t, self._taken(inst), _WARP_BARRIER
        self._some(lanes, inst)
        if inst.opcode == "BSYNC":
            number = inst["bar"].value
        else:
            a = inst.operand("a")
            self._set_masks(_WARP_BARRIER, lanes, t.const("i32", -1) if a is None else raw(t, a))
        t.call("rt_come", _VOID, self.warp, c32(number), c32(self.at.following(inst.address)), lanes)
        self._settle(inst)

    def _row(self, number: int) -> ir.Value:
        return at(self.b, field(self.b, self.warp, WARP, "masks"), VECTOR_BYTES * number)

    def _waited(self, number: int) -> ir.Value:
        """Which lanes each lane waits for at a barrier."""
        return self.b.load(self._row(number), typ=VI32, align=64)

    def _set_masks(self, number: int, lanes: ir.Value, value: ir.Value) -> None:
        chosen = self.b.select(self.b.bitcast(lanes, VI1), value, self._waited(number))
        self.b.store(chosen, self._row(number), align=64)

    def _masks(self, inst: Instruction) -> None:
        """BSSY makes the running lanes those of a barrier, BREAK takes them out of it, BMOV saves and restores."""
        b, t = self.b, self.t
        lanes = self._taken(inst)
        if inst.opcode == "BSSY":
            self._set_masks(inst["bar"].value, lanes, t.broadcast(lanes))
        elif inst.opcode == "BREAK":
            number = inst["bar"].value
            b.store(b.and_(self._waited(number), t.broadcast(b.not_(lanes))), self._row(number), align=64)
        else:
            if inst.operand("bar") is not None or inst["b" if inst.operand("b") else "d"].type == "convergence":
                t.unsupported("a copy of a convergence barrier")
                return
            d, source = inst.operand("d"), inst.operand("src")
            label = source.label if source is not None else ""
            if not label.startswith("B") or not label[1:].isdigit():
                t.unsupported("a thread state")
                return
            number = int(label[1:])
            if d is None:
                self._set_masks(number, lanes, raw(t, inst["b"]))
                return
            t.set_reg(d.value, self._waited(number))
            if inst.mods.get("mod_clear"):
                self._set_masks(number, lanes, t.const("i32", 0))
