"""What instructions of sm_80 to sm_90 read and write, in which order, and how many cycles after each other."""

from collections.abc import Iterator
from typing import Any

from ..isa import PT, Instruction

_UNIFORM = ("umove", "ualu", "r2ur")
_PREDICATES = range(7)
Key = tuple[str, int]


def does(inst: Instruction) -> str:
    """What it does to control."""
    return inst.flow.does if inst.flow is not None else ""


def figures(inst: Instruction) -> dict[str, Any]:
    """The cycles of its architecture."""
    return inst.row.table.latencies


def _class(inst: Instruction) -> str:
    return str(figures(inst)["classes"][inst.cls.name])


def fixed(inst: Instruction) -> bool:
    """Whether its results come a fixed number of cycles after its issue."""
    return inst.cls.latency == "fixed"


def _packed(inst: Instruction) -> Iterator[Key]:
    """The predicates that P2R reads and R2P writes: those of a mask, all where it is in a register."""
    mask = inst["b"].value if inst["b"].type in ("uimm", "simm") else -1
    yield from (("P", n) for n in _PREDICATES if mask >> n & 1)


def reads(inst: Instruction) -> Iterator[tuple[Key, str, int]]:
    """(register, role, cycles it is read late) of an instruction's sources."""
    if inst.guard.index != PT:
        yield ("UP" if inst.guard.uniform else "P", inst.guard.index), "guard", 0
    sources = [op for op in inst.operands if "r" in op.field.access and op.type not in ("pred", "upred")]
    for op in inst.operands:
        if op.type in ("pred", "upred") and "r" in op.field.access and op.value != PT:
            yield ("UP" if op.type == "upred" else "P", op.value), "pred", 0
        elif op.type == "literal" and "r" in op.field.access:
            yield from ((key, "pred", 0) for key in _packed(inst))
        elif op.type in ("addr", "cx", "cbank_indexed") or (op.type == "ugpr" and "r" in op.field.access):
            yield from ((("U", r), "source", 0) for r in op.uniforms())
        if op.type != "ugpr" and "r" in op.field.access:
            for n, register in enumerate(op.registers()):
                late = n == 1 and op is sources[-1] and inst.cls.name == "wide"
                yield ("R", register), "source", figures(inst)["late_addend"] if late else 0


def writes(inst: Instruction) -> Iterator[Key]:
    """Registers and predicates that it writes."""
    for op in inst.operands:
        if "w" not in op.field.access:
            continue
        if op.type in ("pred", "upred"):
            if op.value != PT:
                yield "UP" if op.type == "upred" else "P", op.value
        elif op.type == "ugpr":
            yield from (("U", r) for r in op.uniforms())
        elif op.type == "literal":
            yield from _packed(inst)
        else:
            yield from (("R", r) for r in op.registers())


def figure(producer: Instruction, key: Key, consumer: Instruction, role: str) -> tuple[str, ...]:
    """Where among the latencies of the table stands how many cycles the two must be apart."""
    known, made, used = figures(producer), _class(producer), _class(consumer)
    uniform, near = used in _UNIFORM, used in ("mio", "ldc", "branch")
    if key[0] == "P":
        made = made if made in known["predicates"] else "half"
        return "predicates", made, ("guard" if role == "guard" else
                                    used if used in known["predicates"][made] else "other")
    if key[0] == "UP" and role == "guard" and "uniform_guard" in known:
        return "uniform_guard", "votes" if producer.opcode == "VOTEU" else "other"
    if key[0] in ("U", "UP"):
        if producer.opcode == "VOTEU" and not near:
            return ("votes",)
        made = made if made in known["uniform"] else "r2ur"
        return "uniform", made, "uniform" if uniform else "mio" if near else "vector"
    if producer.cls.name == "wide" and used == "alu" and key[1] == producer["d"].value and producer["d"].regs == 2:
        return ("early_pair",)
    return ("registers", made if made in known["registers"] else "mma16",
            "uniform" if uniform else {"cs2r": "alu", "sreg": "mio"}.get(used, used))


def required(producer: Instruction, key: Key, consumer: Instruction, role: str) -> int:
    """Cycles from the issue of a producer of fixed latency to that of a reader."""
    found: Any = figures(producer)
    for name in figure(producer, key, consumer, role):
        found = found[name]
    late = figures(producer)["late_predicates"].get(producer.opcode, 0) if key[0] == "P" and role != "guard" else 0
    return int(found) + late


def overwriting(first: Instruction, second: Instruction) -> int:
    """Cycles between two writes of one register, so that the second is what stays."""
    return int(figures(first)["overwritten"].get(_class(first), {}).get(_class(second), 0))


# Which read operands in order. Special registers do not queue behind loads: on an H200 one was written before a load of
# shared memory in front of it had read its address there.
_QUEUES = {"mio": "mio", "ldc": "mio", "xu": "xu", "sreg": "sreg"}


def queue(inst: Instruction) -> str:
    """The queue it waits in to read its operands; of none if it is empty."""
    return _QUEUES.get(_class(inst), "")


def loads_memory(inst: Instruction) -> bool:
    """Whether it loads from memory, constants aside."""
    return inst.access is not None and inst.access.does == "load" and not inst.touches("constant")


def order(inst: Instruction) -> str:
    """Results of one such kind come in the order of issue; of none if it is empty."""
    return inst.access.order if inst.access is not None else ""
