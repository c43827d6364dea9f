"""A device of one warp at a time that takes control codes at their word: a fixed-latency result appears only after its
cycles, the result of a load, texture fetch, conversion ... only when a scoreboard proves it, and (mode "late") such an
instruction reads its registers as late as it may. Wrong control codes give wrong numbers here; right ones do not.
Modes: "none" (no delays: what the program means), "early" and "late".

For cross-checking the checker: slow, and only as much of the machine as that needs. Latencies are those of the public
rules (6, 13, operands 2 or 4 cycles after issue); scoreboards, queues and their order as in the checker's evidence."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from maxdnn import cubin
from maxdnn.cubin import CubinKernel
from maxdnn.isa import PT, RZ, TABLE, Instruction
from maxdnn.isa.text import CC_TESTS
from maxdnn.runtime.devices.protocol import Texture
from maxdnn.semantics import meaning
from maxdnn.semantics.machine import FLAGS
from maxdnn.semantics.move import flag_test
from tests.checker.delayedmemory import LOCAL_WINDOW, SHARED_WINDOW, STACK, Access, Memory, Runaway
from tests.checker.numpymachine import LANES, V

_READ = {"mem": 4, "tex": 4, "qtr": 4, "s2r": 4, "smem": 2, "x64": 2, "imul": 0}
_POPS = {"SYNC": "SSY", "BRK": "PBK", "CONT": "PCNT", "RET": "CAL", "EXIT": "EXIT"}


@dataclasses.dataclass(eq=False)
class Op:
    """A variable-latency instruction under way."""

    inst: Instruction
    time: int
    mask: V
    queue: str
    order: str
    number: int  # of the step that issued it
    performed: bool = False
    complete: bool = False
    results: list[tuple[str, int, V, V]] = dataclasses.field(default_factory=list)


class Warp(Access):
    """One warp: the machine its instructions' semantics act on, its timing and its control flow."""

    def __init__(self, block: "Block", index: int) -> None:
        threads = np.arange(32 * index, 32 * index + 32)
        x, y, _ = block.shape
        self.block, self.index = block, index
        self.tid = [(threads % x), (threads // x % y), (threads // (x * y))]
        self.alive = threads < block.threads
        self.active = self.alive.copy()
        self.regs = np.zeros((256, LANES), np.uint32)
        self.preds = np.zeros((8, LANES), bool)
        self.flags = {name: np.zeros(LANES, bool) for name in FLAGS}
        self.local = np.zeros((LANES, STACK), np.uint8)
        self.commits: list[tuple[int, str, Any, V, V, int]] = []
        self.flying: list[Op] = []
        self.stack: list[tuple[str, int, V]] = []
        self.kept: dict[tuple[int, int], V] = {}
        self.served: dict[int, V] = {}
        self.pc, self.time, self.steps, self.done = 0, 0, 0, False
        self.current: Op | None = None
        self.inst: Instruction | None = None
        self.mask = self.active

    # -- results in time ---------------------------------------------------------------------------------------

    def _settle(self, now: int) -> None:
        """Bring every fixed-latency result due by `now` to the registers, in order."""
        left = []
        for commit in self.commits:
            if commit[0] <= now:
                self._write(*commit[1:5])
            else:
                left.append(commit)
        self.commits = left

    def _write(self, kind: str, index: Any, value: V, mask: V) -> None:
        if kind == "R":
            self.regs[index] = np.where(mask, value, self.regs[index])
        elif kind == "P":
            self.preds[index] = np.where(mask, value, self.preds[index])
        else:
            self.flags[index] = np.where(mask, value, self.flags[index])

    def _result(self, kind: str, index: Any, value: V) -> None:
        value = np.array(value)
        if self.current is not None:
            self.current.results.append((kind, index, value, self.mask))
        elif self.block.mode == "none":
            self._write(kind, index, value, self.mask)
        else:
            self.commits.append((self.time + (13 if kind == "P" else 6), kind, index, value, self.mask, self.steps))

    def _perform(self, op: Op) -> None:
        """Read the operands, touch memory; in queue order."""
        for earlier in self.flying:
            if not earlier.performed and (earlier is op or (op.queue and earlier.queue == op.queue)):
                saved = self.inst, self.mask, self.current
                state = self.commits, self.regs.copy(), self.preds.copy(), dict(self.flags)
                read = 2 if earlier.inst.opcode == "LDC" else _READ.get(earlier.inst.cls.name, 4)
                self._settle(max(self.time, earlier.time + read))
                self.inst, self.mask, self.current = earlier.inst, earlier.mask, earlier
                function = meaning(earlier.inst)
                if function is None:
                    raise NotImplementedError(earlier.inst.mnemonic)
                function(self, earlier.inst)  # type: ignore[arg-type]
                self.inst, self.mask, self.current = saved
                self.commits, self.regs, self.preds, self.flags = state
                earlier.performed = True
            if earlier is op:
                return

    def _complete(self, op: Op) -> None:
        self._perform(op)
        for earlier in self.flying:
            if not earlier.complete and (earlier is op or (op.order and earlier.order == op.order)):
                self._perform(earlier)
                for result in earlier.results:
                    self._older_first(earlier, result)
                    self._write(*result)
                earlier.complete = True
            if earlier is op:
                return

    def _older_first(self, op: Op, result: tuple[str, int, V, V]) -> None:
        """What was issued before the operation to the same place has been written long before its result."""
        older = [c for c in self.commits if c[1:3] == result[:2] and c[5] < op.number]
        for commit in older:
            self._write(*commit[1:5])
        self.commits = [c for c in self.commits if not any(c is o for o in older)]

    def _wait(self, inst: Instruction) -> None:
        mask = inst.control.wait_mask
        if inst.opcode == "DEPBAR":
            mask |= inst["mask"].value
        seen = [op for op in self.flying if self.time - op.time >= 2 or inst.opcode == "DEPBAR"]
        for op in seen:
            control = op.inst.control
            if control.write_barrier is not None and mask >> control.write_barrier & 1:
                self._complete(op)
            if control.read_barrier is not None and mask >> control.read_barrier & 1:
                self._perform(op)
        if inst.operand("sb") is not None:
            bar, most = inst["sb"].value, inst["n"].value
            counted = [op for op in self.flying if op.inst.control.write_barrier == bar and not op.complete]
            for n, op in enumerate(counted):
                if sum(later.order == op.order != "" for later in counted[n + 1:]) >= most:
                    self._complete(op)
        self.flying = [op for op in self.flying if not op.complete or not op.performed]

    # -- one instruction ---------------------------------------------------------------------------------------

    def step(self) -> str:
        """Run one instruction; gives "barrier", "done" or nothing."""
        code = self.block.code
        if not 0 <= self.pc < len(code) or self.steps > self.block.limit:
            raise Runaway
        inst = code[self.pc]
        self.steps += 1
        self._settle(self.time)
        self._wait(inst)
        guard = np.ones(LANES, bool) if inst.guard.index == PT else self.preds[inst.guard.index]
        self.inst, self.mask = inst, self.active & (guard ^ inst.guard.negated)
        if self.mask.any():
            self.block.executed.add(self.pc)
        state = ""
        if inst.cls.name == "flow":
            state = self._flow(inst)
            self.kept.clear()
        elif inst.opcode == "BAR":
            self.pc += 1
            for op in self.flying:
                if op.queue == "lsu":
                    self._perform(op)
            state = "barrier"
        else:
            self.pc += 1
            if inst.opcode not in ("DEPBAR", "MEMBAR", "CCTL"):
                self._execute(inst)
        control = inst.control
        self.time += {12: 8, 13: 8, 14: 8, 15: 9}.get(control.stall, control.stall) if not control.yield_hint else \
            control.stall
        return state

    def _execute(self, inst: Instruction) -> None:
        if inst.cls.latency == "fixed":
            self._reuse(inst)
            function = meaning(inst)
            if function is None:
                raise NotImplementedError(inst.mnemonic)
            self.current = None
            function(self, inst)  # type: ignore[arg-type]
            self.served = {}
            return
        pipe = inst.cls.pipe
        queue = pipe if pipe in ("lsu", "tex", "fp64") or (pipe == "sfu" and inst.opcode not in ("S2R", "B2R")) else ""
        order = {"lsu": inst.access.order if inst.access else "", "tex": "global"}.get(queue, queue)
        op = Op(inst, self.time, self.mask, queue, order, self.steps)
        self.flying.append(op)
        if self.block.mode == "early":
            self._perform(op)
        elif self.block.mode == "none":
            self._complete(op)

    def _reuse(self, inst: Instruction) -> None:
        """Serve flagged operands from the operand cache, whatever was written since."""
        flags, self.served, kept = inst.control.reuse, {}, {}
        places: dict[int, set[int]] = {}
        for op in inst.operands:
            if op.type == "gpr" and "r" in op.field.access and op.value != RZ:
                slot = op.field.slot if op.field.slot is not None else {8: 0, 20: 1, 39: 2}.get(op.field.spec["lsb"], 3)
                places.setdefault(op.value, set()).add(slot)
        for register, slots in places.items():
            for slot in slots:
                old = self.kept.pop((slot, register), None)
                if old is not None and len(slots) == 1:
                    self.served[register] = old
                if flags >> slot & 1:
                    kept[slot, register] = self.served.get(register, self.regs[register].copy())
        for slot, _ in kept:  # what is kept takes the slot from what was
            self.kept = {place: value for place, value in self.kept.items() if place[0] != slot}
        self.kept.update(kept)

    # -- control flow ------------------------------------------------------------------------------------------

    def _taken(self, inst: Instruction) -> V:
        test = inst.operand("cc")
        if test is None or test.type != "cc_test" or test.value == 15:
            return self.mask
        return self.mask & flag_test(self, CC_TESTS[test.value])  # type: ignore[arg-type]

    def _flow(self, inst: Instruction) -> str:
        op, taken, after = inst.opcode, self._taken(inst), self.pc + 1
        target = inst.operand("target")
        to = TABLE.addressing.index_of(target.value) if target is not None and target.type == "rel_target" else -1
        if op in ("SSY", "PBK", "PCNT"):
            self.stack.append((op, to, self.active.copy()))
        elif op == "CAL":
            self.stack.append(("CAL", after, self.active.copy()))
            after = to
        elif op == "BRA":
            after = self._branch(taken, to, after)
        elif op == "BRX":
            assert target is not None
            lanes = self.regs[target.base].astype(np.int64) + target.value + inst.address + 8
            where = {TABLE.addressing.index_of(int(a) & 0xFFFFFFFF) for a in lanes[taken]}
            for way in sorted(where)[1:]:
                chosen = taken & np.array([TABLE.addressing.index_of(int(a) & 0xFFFFFFFF) == way for a in lanes])
                self.stack.append(("DIV", way, chosen))
                self.active = self.active & ~chosen
            after = min(where)
        elif op in _POPS:
            return self._leave(_POPS[op], taken, after)
        elif op != "NOP":
            raise NotImplementedError(op)
        self.pc = after
        return ""

    def _branch(self, taken: V, to: int, after: int) -> int:
        if not taken.any():
            return after
        rest = self.active & ~taken
        if rest.any():
            self.stack.append(("DIV", after, rest))
            self.active = taken.copy()
        return to

    def _leave(self, kind: str, lanes: V, after: int) -> str:
        """SYNC, BRK, CONT, RET, EXIT: the lanes wait at the matching entry, or are gone."""
        if kind == "EXIT":
            self.alive = self.alive & ~lanes
        else:
            at = next((n for n in range(len(self.stack) - 1, -1, -1) if self.stack[n][0] == kind), None)
            if at is None:
                if not lanes.any():
                    self.pc = after
                    return ""
                raise Runaway
            for n in range(at + 1, len(self.stack)):  # the lanes pass by every entry above
                if self.stack[n][0] != "DIV":
                    self.stack[n] = (self.stack[n][0], self.stack[n][1], self.stack[n][2] & ~lanes)
        self.active = self.active & ~lanes
        self.pc = after
        while not self.active.any():
            if not self.stack:
                self.done = True
                for op in self.flying:
                    self._perform(op)
                return "done"
            _, self.pc, mask = self.stack.pop()
            self.active = mask & self.alive
        return ""

    # -- state, as semantics see it ----------------------------------------------------------------------------

    def reg(self, index: int) -> V:
        return self.served[index] if index in self.served else self.regs[index].copy()

    def set_reg(self, index: int, value: V) -> None:
        if index != RZ:
            self._result("R", index, value)

    def pred(self, index: int) -> V:
        return np.ones(LANES, bool) if index == PT else self.preds[index].copy()

    def set_pred(self, index: int, value: V) -> None:
        if index != PT:
            self._result("P", index, value)

    def flag(self, name: str) -> V:
        return self.flags[name].copy()

    def set_flag(self, name: str, value: Any) -> None:
        self._result("C", name, value())

    def constant(self, bank: int, offset: int) -> V:
        data = self.block.banks.get(bank, b"")[offset:offset + 4]
        if len(data) < 4:
            raise Runaway
        return self.const("i32", int.from_bytes(data, "little"))

    def special(self, name: str) -> V:
        name = name.removeprefix("SR_")
        lane = np.arange(LANES)
        values: dict[str, Any] = {"LANEID": lane, "EQMASK": 1 << lane, "LTMASK": (1 << lane) - 1,
                                  "LEMASK": (2 << lane) - 1}
        if name.startswith("TID."):
            values[name] = self.tid["XYZ".index(name[4])]
        if name.startswith("CTAID."):
            values[name] = np.full(LANES, self.block.place["XYZ".index(name[6])])
        if name not in values and name not in TABLE.special_registers.values() and not name.startswith("CLOCK"):
            return self.const("i32", 0)
        return np.asarray(values.get(name, np.zeros(LANES))).astype(np.uint32)

    # -- between lanes -----------------------------------------------------------------------------------------

    def shuffle(self, value: V, lane: V) -> V:
        return value[lane.astype(np.int64)]

    def ballot(self, p: V) -> V:
        chosen = p & self.mask
        return self.const("i32", sum(1 << n for n in range(LANES) if chosen[n]))

    def executing(self) -> V:
        return self.ballot(np.ones(LANES, bool))

    def barrier_result(self) -> V:
        raise NotImplementedError("BAR.RED")

    def unsupported(self, why: str) -> None:
        raise NotImplementedError(why)


class Block:
    """One block: its warps run in turn from barrier to barrier."""

    def __init__(self, kernel: CubinKernel, memory: Memory, shape: tuple[int, int, int], place: tuple[int, int, int],
                 banks: Mapping[int, bytes], textures: Mapping[int, Texture], mode: str, limit: int,
                 backwards: bool = False) -> None:
        self.code, self.memory, self.shape, self.place, self.mode, self.limit = (
            kernel.instructions, memory, shape, place, mode, limit)
        self.threads = shape[0] * shape[1] * shape[2]
        self.banks, self.textures = banks, textures
        self.executed: set[int] = set()
        self.shared = np.zeros(max(kernel.shared_bytes, 4) + 1024, np.uint8)
        self.warps = [Warp(self, n) for n in range(-(-self.threads // 32))][::-1 if backwards else 1]

    def run(self) -> None:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            while any(not warp.done for warp in self.warps):
                for warp in self.warps:
                    while not warp.done and not warp.step():
                        pass


def launch(kernel: CubinKernel, memory: Memory, grid: tuple[int, int, int], block: tuple[int, int, int],
           params: bytes, *, mode: str, banks: Mapping[int, bytes] | None = None,
           textures: Mapping[int, Texture] | None = None, limit: int = 200_000,
           backwards: bool = False) -> set[int]:
    """Run a kernel; gives the indices of the instructions some thread executed. `params`: the parameter block from
    0x140 on, texture words included; `textures`: handle -> what it fetches; `backwards`: the last warp goes first.
    Raises Runaway after `limit` instructions of a warp, or outside memory."""
    bank = bytearray(0x140) + params
    words = {0: SHARED_WINDOW, 4: LOCAL_WINDOW, 0x20: STACK - 0x100}
    words |= {0x8 + 4 * i: n for i, n in enumerate(block)} | {0x14 + 4 * i: n for i, n in enumerate(grid)}
    for at, word in words.items():
        bank[at:at + 4] = word.to_bytes(4, "little")
    all_banks = {**kernel.constants, **(banks or {}), 0: bytes(bank)}
    executed: set[int] = set()
    for z in range(grid[2]):
        for y in range(grid[1]):
            for x in range(grid[0]):
                here = Block(kernel, memory, block, (x, y, z), all_banks, textures or {}, mode, limit, backwards)
                here.run()
                executed |= here.executed
    return executed


def random_program(kernel: CubinKernel, data: cubin.Cubin, mode: str, seed: int = 3) -> tuple[bytes, set[int]]:
    """A random corpus program (`in`, `out`, `n`) run by one warp of 32 threads: its output, and which instructions some
    thread executed."""
    memory, n = Memory(1 << 16), 32
    source, target, table = memory.alloc(4 * n), memory.alloc(32 * n), memory.alloc(len(data.global_init) + 64)
    values = np.random.default_rng(seed).integers(0, 1 << 32, n, np.uint32)
    memory.data[source - memory.base:][:4 * n] = values.view(np.uint8)
    memory.data[table - memory.base:][:len(data.global_init)] = np.frombuffer(data.global_init, np.uint8)
    params = source.to_bytes(8, "little") + target.to_bytes(8, "little") + n.to_bytes(4, "little") + bytes(60)
    addresses = bytearray(data.global_addresses)
    for relocation in data.relocations:
        if relocation.kind == 2 and relocation.section == ".nv.constant4":
            where = table + data.globals[relocation.symbol].offset if relocation.symbol in data.globals else table
            addresses[relocation.offset:relocation.offset + 8] = where.to_bytes(8, "little")
    executed = launch(kernel, memory, (1, 1, 1), (n, 1, 1), params, mode=mode,
                      banks={3: data.constant_bank, 4: bytes(addresses)})
    return memory.data[target - memory.base:][:4 * n].tobytes(), executed
