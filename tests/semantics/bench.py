"""A test bench for single instructions on the virtual GPU.

`variants` draws legal words of a table row: every value of every modifier, mark and part occurs. `run` executes each
word once in every lane of one launch, with operands, predicates and flags that differ from lane to lane, and gives back
what the instruction left. `check` holds that to a model written from the documents, which sees a `Sample`.
"""

import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from maxdnn.cubin import Cubin, CubinKernel, Param
from maxdnn.emulator import VirtualGpu
from maxdnn.isa import PT, RZ, TABLE, Control, Guard, Instruction, Operand, Row, decode, encode
from maxdnn.isa.control import join_control_word

Array = np.ndarray[Any, Any]
BLOCK, SETS = 256, 10_000  # threads of a block; operand sets every family gets at least
HERE = {"d": 12, "a": 4, "b": 6, "c": 8}  # register pairs of the operands
OLD, STATE = 20, 24  # what d held before; predicates (bits 0..6) and flags Z S C O (bits 8..11)
CONSTANTS = 0x150  # byte offset in bank 0 of 16 pairs of words
FLAGS = "ZSCO"
_MARKS = ("neg_bit", "neg_bit_suffix", "abs_bit", "abs_bit_suffix", "inv_bit", "inv_bit_suffix", "not_bit", "cc_bit")
_IDLE = 0x7EF


# -- words --------------------------------------------------------------------------------------------------------


def make(mnemonic: str, form: str = "R", guard: Guard | None = None, **given: Any) -> int:
    """One word. Operands by name: a number, (bank, offset) of a constant, (register, offset) of an address; `d_cc`,
    `a_neg`, `ps_inv`, `b_part` set marks; modifiers by name. What is not given is RZ, PT, 0 or the plain value."""
    row = next(r for r in TABLE.named(mnemonic) if r.form == form)
    operands = []
    for field in row.operands:
        plain_value = {"gpr": RZ, "pred": PT, "cc_test": 15}.get(field.type, 0)
        value = plain_value if field.type == "literal" else given.pop(field.name, plain_value)
        marks = {n: given.pop(f"{field.name}_{n}") for n in ("neg", "abs", "inv", "cc", "part")
                 if f"{field.name}_{n}" in given}
        place = {}
        if isinstance(value, tuple):
            place, value = {"bank" if field.type == "cbank" else "base": value[0]}, value[1]
        operands.append(Operand(field, value, **marks, **place))
    mods = {}
    for name, modifier in row.modifiers.items():
        plain = modifier.values.get(0, next(iter(modifier.values.values())))
        mods[name] = given.pop(name, plain.strip("."))
    assert not given, f"{mnemonic} {form} has no {sorted(given)}"
    return encode(Instruction(0, 0, Control(), row, guard or Guard(), tuple(operands), mods))


def code_of(words: Sequence[int]) -> bytes:
    """Machine code; an EXIT and the usual endless branch follow the words."""
    words = [*words, make("EXIT", "-"), *[make("NOP", "-")] * (-(len(words) + 1) % 3)]
    out = []
    for at in range(0, len(words), 3):
        out += [join_control_word((_IDLE, _IDLE, _IDLE)), *words[at:at + 3]]
    return np.array(out, np.uint64).tobytes()


def load(gpu: VirtualGpu, words: Sequence[int], *, pointers: int = 2, constants: int = 32, shared: int = 0,
         local: int = 0) -> Any:
    """A kernel made of these words. Parameters: pointers, then words from CONSTANTS on."""
    params = [Param(i, 8 * i, 8) for i in range(pointers)]
    if constants:
        params.append(Param(pointers, CONSTANTS - 0x140, 4 * constants))
    end = max(p.offset + p.size for p in params)
    kernel = CubinKernel("probe", gpu.arch, code_of(words), 64, shared, local, 1, tuple(params),
                         {0: bytes(0x140 + end)}, (), ())
    return gpu.load(Cubin(gpu.arch, {"probe": kernel}, b"", {}, {}, b"", 0, b"", ())).function("probe")


def lane_addresses(*pairs: tuple[int, int, int]) -> list[int]:
    """R0 = index of the thread in the grid; for each (register, parameter, log2 bytes per thread) a pair of registers
    with the thread's address."""
    words = [make("S2R", sr=0x21, d=0), make("S2R", sr=0x25, d=1), make("ISCADD", d=0, a=1, b=0, s=8)]
    for register, parameter, size in pairs:
        at = 0x140 + 8 * parameter
        words += [make("SHL", "I", d=28, a=0, b=size), make("IADD", "C", d=register, d_cc=True, a=28, b=(0, at)),
                  make("IADD", "C", d=register + 1, a=RZ, b=(0, at + 4), x="X")]
    return words


# -- variants -----------------------------------------------------------------------------------------------------


def _choices(row: Row, rng: random.Random) -> dict[str, list[int]]:
    """The bits of every field that is to take all its values, by a name."""
    found = {}
    for op in row.operands:
        for key in _MARKS:
            if key in op.spec:
                found[f"{op.name}.{key}"] = [0, 1 << op.spec[key]]
        if op.part:
            found[f"{op.name}.part"] = [op.part.put(v) for v in op.part.values]
        if op.values and op.type != "enum_from_modifier":
            found[op.name] = [v << op.spec["lsb"] for v in op.values]
        if op.type == "cc_test":
            found[op.name] = [v << op.spec["lsb"] for v in range(24)]
    for name, field in row.modifiers.items():
        found[name] = [field.put(v) for v in field.values]
    return found


def _operand_bits(row: Row, rng: random.Random) -> int:
    """Registers as in HERE, sometimes RZ; any predicate; any immediate, edges often; any constant of the table."""
    word, free = 0, rng.sample(range(7), 7)
    for op in row.operands:
        s = op.spec
        if op.type == "gpr":
            register = HERE["d"] if s["lsb"] == 0 else HERE[op.name]
            word |= (RZ if op.access == "r" and s["lsb"] and rng.random() < 0.04 else register) << s["lsb"]
        elif op.type == "pred":
            value = PT if rng.random() < 0.2 else free.pop() if "w" in op.access else rng.randrange(7)
            word |= (7 - value if "complement" in s else value) << s["lsb"]
        elif op.type == "cbank":
            word |= (CONSTANTS // 4 + 2 * rng.randrange(16)) << s["lsb"]
        elif op.type == "f16_pair_split":
            word |= sum(_immediate(rng, h["lsb"], h.get("w", 9)) | rng.getrandbits(1) << h["sign"]
                        for h in (s["hi"], s["lo"]))
        elif op.type in ("simm20_split", "f32_top20_split", "f64_top20_split"):
            word |= _immediate(rng, s["lsb"], 19) | rng.getrandbits(1) << s["sign_bit"]
        elif op.type in ("simm", "uimm", "f32"):
            word |= _immediate(rng, s["lsb"], s["width"])
    return word


def _immediate(rng: random.Random, lsb: int, width: int) -> int:
    ones = (1 << width) - 1
    floats = [value >> max(0, 31 - width) & ones for value in (0x7F800000, 0x3F800000, 0x7FC00000)]
    edges = [0, 1, ones, ones >> 1, ones ^ ones >> 1, *floats]
    value = rng.choice(edges) if rng.random() < 0.3 else rng.getrandbits(width)
    return (rng.randrange(48) & ones if rng.random() < 0.3 else value) << lsb


def variants(row: Row, count: int, rng: random.Random, skip: Callable[[Instruction], bool]) -> Iterator[Instruction]:
    """At least `count` words of a row: each field goes through all its values in an order of its own. A quarter run
    under a guard. Words of a more special row, and what `skip` names, are replaced."""
    choices = _choices(row, rng)
    decks: dict[str, list[int]] = {name: [] for name in choices}
    for _ in range(max(count, *(len(v) for v in choices.values())) if choices else count):
        for attempt in range(400):
            word = row.value | _operand_bits(row, rng)
            for name, values in choices.items():
                if attempt:
                    word |= rng.choice(values)
                    continue
                if not decks[name]:
                    decks[name] = rng.sample(values, len(values))
                word |= decks[name].pop()
            if row.guard:
                word |= (rng.getrandbits(4) if rng.random() < 0.25 else 7) << 16
            if TABLE.find(word) is row and not skip(decode(word, Control(), 8)):
                yield decode(word, Control(), 8)
                break


# -- what a model sees --------------------------------------------------------------------------------------------


class Sample:
    """One instruction and the state of every lane before it."""

    def __init__(self, inst: Instruction, inputs: Array, constants: Array) -> None:
        self.inst, self.mods, self.inputs, self.constants = inst, inst.mods, inputs, constants
        self.lanes = inputs.shape[1]
        self.registers = {RZ: np.zeros(self.lanes, np.uint32)}
        places = [r + k for r in (HERE["a"], HERE["b"], HERE["c"], HERE["d"]) for k in (0, 1)]
        self.registers |= dict(zip(places, inputs, strict=False))
        self.state = inputs[8]
        self.ran = np.ones(self.lanes, bool)

    def __getitem__(self, name: str) -> Operand:
        return self.inst[name]

    def u(self, name: str) -> Array:
        """The 32 bits of an operand, without marks and parts, as uint32."""
        op = self.inst[name]
        if op.type in ("gpr", "implied_next_gpr"):
            return self.registers[op.value]
        if op.type == "cbank":
            return np.full(self.lanes, self.constants[(op.value - CONSTANTS) // 4], np.uint32)
        return np.full(self.lanes, op.value & 0xFFFFFFFF, np.uint32)

    def s(self, name: str) -> Array:
        """The operand as a signed number in int64."""
        return self.u(name).view(np.int32).astype(np.int64)

    def n(self, name: str) -> Array:
        """The operand as an unsigned number in int64."""
        return self.u(name).astype(np.int64)

    def wide(self, name: str) -> Array:
        """64 bits as uint64: a register pair, two words of constants or an immediate."""
        op = self.inst[name]
        if op.type == "gpr":
            low, high = self.registers[op.value], self.registers[op.value + 1 if op.value != RZ else RZ]
            return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        if op.type == "cbank":
            at = (op.value - CONSTANTS) // 4
            return np.full(self.lanes, self.constants[at:at + 2].copy().view(np.uint64)[0], np.uint64)
        return np.full(self.lanes, op.value & 0xFFFFFFFF_FFFFFFFF, np.uint64)

    def f(self, name: str) -> Array:
        """A single-precision operand with its absolute value and negation."""
        return self._signed(name, self.u(name).view(np.float32))

    def d(self, name: str) -> Array:
        """A double-precision operand with its absolute value and negation."""
        return self._signed(name, self.wide(name).view(np.float64))

    def _signed(self, name: str, value: Array) -> Array:
        op = self.inst[name]
        value = np.abs(value) if op.abs else value
        return -value if op.neg else value

    def p(self, name: str) -> Array:
        """A predicate operand with its inversion."""
        op = self.inst[name]
        value = np.ones(self.lanes, bool) if op.value == PT else (self.state >> op.value & 1).astype(bool)
        return ~value if op.inv else value

    def flag(self, name: str) -> Array:
        return (self.state >> 8 + FLAGS.index(name) & 1).astype(bool)

    def n_state(self, source: str) -> Array:
        """The predicates (PR) or flags (CC) as a number."""
        return (self.state >> 8 & 0xF if source == "CC" else self.state & 0x7F).astype(np.int64)

    def guard(self) -> Array:
        guard = self.inst.guard
        value = np.ones(self.lanes, bool) if guard.index == PT else (self.state >> guard.index & 1).astype(bool)
        return ~value if guard.negated else value

    @property
    def mode(self) -> str:
        """Rounding mode as `exact` names it."""
        return {"": "rn", "RM": "rd", "RP": "ru", "RZ": "rz"}[self.mods.get("rnd", "")]

    @property
    def ftz(self) -> bool:
        return bool(self.mods.get("ftz"))


@dataclass
class After:
    """What an instruction leaves: d (uint32 or uint64; None: nothing), the predicate operands by name, and those flags
    that the documents define. A flag left out is not compared if the instruction writes flags at all. Predicates
    that are not named in `free` and not written keep their values."""

    d: Array | None = None
    pd: Array | None = None
    pq: Array | None = None
    flags: dict[str, Array] | None = None
    preds: dict[int, Array] | None = None  # by number
    wrong: Callable[[Array], Array] | None = None  # judges d instead of equality


Model = Callable[[Sample], After]


# -- running ------------------------------------------------------------------------------------------------------


def stateful(inst: Instruction) -> bool:
    return bool(inst.pred_reads() or inst.pred_writes() or inst.cc_reads() or inst.cc_writes())


Body = tuple[Sequence[int], bool]  # words, and whether they use predicates or flags


def program(bodies: Sequence[Body], lanes: int) -> list[int]:
    """Load the operands, then for each body: restore d and the state, execute, store d and the state."""
    words = lane_addresses((16, 0, 2), (18, 1, 4))
    homes = [4, 5, 6, 7, 8, 9, OLD, OLD + 1, STATE]
    words += [make("LDG", d=r, addr=(16, 4 * lanes * k), e="E", size="") for k, r in enumerate(homes)]
    for k, (body, uses_state) in enumerate(bodies):
        words += [make("MOV", d=12 + i, b=OLD + i, m=15) for i in (0, 1)]
        if uses_state:
            words += [make("R2P", "I", a=STATE, b=0x7F), make("SHR", "I", d=25, a=STATE, b=8, u="U32"),
                      make("R2P", "I", a=25, b=0xF, dst=1)]
        words += body
        if uses_state:
            words += [make("P2R", "I", d=14, a=RZ, b=0x7F), make("P2R", "I", d=14, a=14, b=0xF, src=1, byte="B1")]
        words.append(make("STG", addr=(18, 16 * lanes * k), d=12, e="E", size="128"))
    return words


def run(bodies: Sequence[Body], inputs: Array, constants: Array, arch: str = "gm204", threads: int = BLOCK) -> Array:
    """uint32 [body, lane, (d, d+1, state, -)]. inputs: uint32 [9, lanes]: a b c d as pairs, then the state. Of every
    BLOCK lanes the first `threads` run."""
    lanes = inputs.shape[1]
    gpu = VirtualGpu(arch, workers=1)
    source, out = gpu.alloc(inputs.nbytes), gpu.alloc(16 * lanes * len(bodies))
    gpu.upload(source, np.ascontiguousarray(inputs))
    load(gpu, program(bodies, lanes)).launch((lanes // BLOCK, 1, 1), (threads, 1, 1), [source, out, constants])
    result = np.empty((len(bodies), lanes, 4), np.uint32)
    gpu.download(out, result)
    return result


def check(names: str, inputs: Callable[[np.random.Generator, int], Array], model: Model, *, lanes: int = 2560,
          skip: Callable[[Instruction], bool] = lambda i: False, arch: str = "gm204", least: int = 6,
          threads: int = BLOCK) -> int:
    """Hold all forms of some mnemonics to a model on at least SETS operand sets; gives the number of sets. With fewer
    `threads` than BLOCK there are warps that are not full."""
    seed = zlib.crc32(names.encode())
    print(f"seed {seed}")
    rng, draw = random.Random(seed), np.random.default_rng(seed)
    rows = [row for name in names.split() for row in TABLE.named(name)]
    assert rows, names
    count = max(least, -(-SETS // (lanes * len(rows))))
    samples = [inst for row in rows for inst in variants(row, count, rng, skip)]
    assert {s.row for s in samples} == set(rows), "a form without any variant"
    for at in range(0, len(samples), 48):
        chunk = samples[at:at + 48]
        before = np.ascontiguousarray(inputs(draw, lanes), np.uint32)
        constants = np.ascontiguousarray(inputs(draw, lanes)[0:2, draw.integers(0, lanes, 16)].T, np.uint32).reshape(-1)
        bodies = [((encode(inst),), stateful(inst)) for inst in chunk]
        for inst, got in zip(chunk, run(bodies, before, constants, arch, threads), strict=True):
            sample = Sample(inst, before, constants)
            sample.ran = np.arange(lanes) % BLOCK < threads
            with np.errstate(all="ignore"):
                _compare(sample, model(sample), got)
    sets = len(samples) * lanes // BLOCK * threads
    assert sets >= SETS or threads < BLOCK
    return sets


def _compare(sample: Sample, want: After, got: Array) -> None:
    on = sample.guard()
    d = sample.inst.operand("d")
    if want.d is not None and d is not None:
        pair = want.d.dtype.itemsize == 8
        old, new = sample.registers[12].astype(want.d.dtype), got[:, 0].astype(want.d.dtype)
        if pair:
            old |= sample.registers[13].astype(np.uint64) << np.uint64(32)
            new |= got[:, 1].astype(np.uint64) << np.uint64(32)
        judged = want.wrong(new) if want.wrong else new != want.d
        _report(sample, "d", np.where(on, judged, new != old), new, np.where(on, want.d, old))
    if stateful(sample.inst):
        _compare_state(sample, want, got[:, 2], on)


def _compare_state(sample: Sample, want: After, state: Array, on: Array) -> None:
    expected = {p: (sample.state >> p & 1).astype(bool) for p in range(7)}
    for name in ("pd", "pq"):
        op, value = sample.inst.operand(name), getattr(want, name)
        if op is not None and op.value != PT and value is not None:
            expected[op.value] = np.where(on, value, expected[op.value])
    for p, value in (want.preds or {}).items():
        expected[p] = np.where(on, value, expected[p])
    for p, value in expected.items():
        _report(sample, f"P{p}", (state >> p & 1).astype(bool) != value, state >> p & 1, value)
    for at, name in enumerate(FLAGS):
        bit, value = (state >> 8 + at & 1).astype(bool), sample.flag(name)
        if sample.inst.cc_writes():
            if name not in (want.flags or {}):
                continue
            value = np.where(on, (want.flags or {})[name], value)
        _report(sample, f"CC.{name}", bit != value, bit, value)


def _report(sample: Sample, what: str, wrong: Array, got: Array, want: Array) -> None:
    wrong = wrong & sample.ran
    if not wrong.any():
        return
    lane = int(np.flatnonzero(wrong)[0])
    inputs = " ".join(f"{v:08x}" for v in sample.inputs[:, lane])
    constants = {o.name: sample.wide(o.name)[0] for o in sample.inst.operands if o.type == "cbank"}
    raise AssertionError(f"{sample.inst.text()}: {what} is {int(got[lane]):x}, want {int(want[lane]):x} in "
                         f"{wrong.sum()} of {sample.lanes} lanes; a b c d state: {inputs}; "
                         f"{ {k: hex(int(v)) for k, v in constants.items()} }")
