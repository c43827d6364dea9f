"""Ampere, Ada and Hopper (sm_80 to sm_90): cycles by the table's latencies, and rules that hang on no time (the reuse
cache, registers that begin vectors)."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

from ..isa import Instruction
from ..isa.program import Graph, Node
from .effects import Effects, names
from .report import Finding, Place
from .rules import Hazard, Rules
from .timing import fixed_point

_UNIFORM = ("umove", "ualu", "r2ur")
_LONGEST_VECTOR = 4  # registers
# What has no result to tell of, what reads nothing late. The vendor's disassembler takes such a barrier for an illegal
# instruction, and an H200 stops there.
_NO_BARRIER = "BAR BRA BREAK BRX BSSY BSYNC CALL DEPBAR EXIT NANOSLEEP RET WARPSYNC YIELD JMP".split()
_NO_RESULT = frozenset([*_NO_BARRIER, *"CCTL MEMBAR REDG ST STG STL STS STSM SUST SURED".split()])
_NO_OPERANDS = frozenset(_NO_BARRIER) - {"BAR"} | {"FENCE"}


def _figures(inst: Instruction) -> dict[str, Any]:
    """The cycles of its architecture."""
    return inst.row.table.latencies


def _class(inst: Instruction) -> str:
    return str(_figures(inst)["classes"][inst.cls.name])


def figure(producer: Instruction, kind: str, register: int, consumer: Instruction, role: str) -> tuple[str, ...]:
    """Where among the latencies of the table stands how many cycles the two must be apart."""
    known, made, used = _figures(producer), _class(producer), _class(consumer)
    uniform, near = used in _UNIFORM, used in known["near"]
    votes = producer.opcode in ("VOTEU", "ELECT")
    if kind == "predicate":
        made = made if made in known["predicates"] else "half"
        return "predicates", made, ("guard" if role == "guard" else
                                    used if used in known["predicates"][made] else "other")
    if kind == "uniform predicate" and role == "guard" and "uniform_guard" in known:
        return "uniform_guard", "votes" if votes else "other"
    if kind.startswith("uniform"):
        if votes and not near:
            return ("votes",)
        made = made if made in known["uniform"] else "r2ur"
        return "uniform", made, "move" if used == "umove" else "uniform" if uniform else "mio" if near else "vector"
    if producer.cls.name == "wide" and used == "alu" and register == producer["d"].value and producer["d"].regs == 2:
        return ("early_pair",)
    return ("registers", made if made in known["registers"] else "mma16",
            "uniform" if uniform else {"cs2r": "alu", "sreg": "mio"}.get(used, used))


def _late(producer: Instruction, kind: str, register: int, consumer: Instruction, role: str) -> int:
    """Cycles by which a result is ready later than its figure or, if negative, by which it is read later."""
    if kind == "predicate" and role != "guard":
        return int(_figures(producer)["late_predicates"].get(producer.opcode, 0))
    return -late_addend(consumer, register) if kind == "register" else 0


def late_addend(inst: Instruction, register: int) -> int:
    """How many cycles late an instruction reads a register: the upper one of the pair that it adds to a product."""
    reading = [op for op in inst.operands if register in op.registers() and "r" in op.field.access]
    if inst.cls.name != "wide" or len(reading) != 1:
        return 0
    sources = [op for op in inst.operands if "r" in op.field.access and op.type not in ("pred", "upred")]
    upper = reading[0] is sources[-1] and register == reading[0].registers()[0] + 1
    return int(_figures(inst)["late_addend"]) if upper else 0


def _needs(old: Instruction, new: Instruction, role: str, kind: str, mask: int) -> Iterator[tuple[int, int]]:
    while mask:
        bit = mask & -mask
        mask ^= bit
        about = old, kind, bit.bit_length() - 1, new, role
        found: Any = _figures(old)
        for name in figure(*about):
            found = found[name]
        yield int(found) + _late(*about), bit


def _overwriting(first: Instruction, second: Instruction) -> int:
    return int(_figures(first)["overwritten"].get(_class(first), {}).get(_class(second), 0))


def _reading(reader: Instruction, writer: Instruction) -> int:
    return int(_figures(reader)["read_late"].get(_class(reader), {}).get(writer.opcode, 0))


# -- what hangs on no time ----------------------------------------------------------------------------------------

# What the cache of operands may hold: (operand slot, register, whether it may be what that was before a write).
Held = frozenset[tuple[int, int, bool]]


def _reads(inst: Instruction) -> list[tuple[int, int]]:
    return [(op.field.slot, r) for op in inst.operands if op.field.slot is not None for r in op.registers()]


def _behind(inst: Instruction, eff: Effects, held: Held) -> Held:
    """What the cache holds behind an instruction."""
    reads, banks = _reads(inst), inst.row.table.banks
    places = {(slot, register % banks) for slot, register in reads}
    kept = {each for each in held if (each[0], each[1] % banks) not in places}
    kept |= {(slot, register, False) for slot, register in reads if inst.control.reuse >> slot & 1}
    return frozenset((slot, register, stale or bool(eff.writes >> register & 1)) for slot, register, stale in kept)


def _stale(graph: Graph, effects: Sequence[Effects]) -> Iterator[Finding]:
    """The cache of operands serves what it holds, whatever its register became: on an H200 a register read with a
    flag, written, and read again in the same place had its old value."""
    def leave(node: Node, held: Held) -> Iterator[tuple[Node, Held]]:
        for i in range(node.first, node.last + 1):
            held = _behind(graph.code[i], effects[i], held)
        for successor in node.successors:
            yield successor, held

    found = {}
    for node, held in fixed_point(graph, Held(), leave, lambda a, b, _: a | b).items():
        for i in range(node.first, node.last + 1):
            inst = graph.code[i]
            for register in {r for slot, r in _reads(inst) if (slot, r, True) in held}:
                found[i, register] = Finding("reuse", names(1 << register), Place.of(inst), Place.of(inst), None, None,
                                             "is read where the reuse cache may hold what it was",
                                             "leave out the flag of the read before")
            held = _behind(inst, effects[i], held)
    yield from found.values()


def _out_of_line(inst: Instruction) -> Iterator[Finding]:
    """Values of two or four registers that do not begin at such a multiple, where an H200 stops (IMAD.WIDE, R225).
    Accumulators of tensor cores are vectors of four to compiled code."""
    for op in inst.operands:
        every = list(op.registers()) if op.type in ("gpr", "addr") else []
        aligned = math.gcd(len(every), _LONGEST_VECTOR)
        if every and every[0] % aligned:
            yield Finding("out-of-line", f"R{every[0]}", None, Place.of(inst), None, None,
                          f"begins {len(every)} registers in a row and must be a multiple of {aligned}",
                          "take another register")


def _never_released(inst: Instruction) -> Iterator[Finding]:
    for kind, bar, opcodes in (("write", inst.control.write_barrier, _NO_RESULT),
                               ("read", inst.control.read_barrier, _NO_OPERANDS)):
        if bar is not None and inst.opcode in opcodes:
            yield Finding("illegal-barrier", f"barrier {bar + 1}", None, Place.of(inst), None, None,
                          f"{inst.opcode} cannot have a {kind} barrier: it is an illegal instruction then",
                          "leave it out, or set one of the other kind")


def _static(graph: Graph, effects: Sequence[Effects]) -> Iterator[Finding]:
    yield from _stale(graph, effects)
    for inst in graph.code:
        yield from _out_of_line(inst)
        yield from _never_released(inst)


_EARLY = Hazard("fixed-latency", "is read before it is there", "stall longer in between")


def rules(figures: dict[str, Any]) -> Rules:
    """The rules of an architecture whose table has such latencies."""
    return Rules(_needs, {
        **dict.fromkeys(("register", "predicate", "uniform register", "uniform predicate"), _EARLY),
        "result": Hazard("not-awaited", "is read, and no wait tells that it is there",
                         "set a write barrier and wait for it"),
        "overwritten": Hazard("overtaken", "is written, and something under way will write it later", "wait for that"),
        "lands": Hazard("overtaken", "is written, and what was written before lands later", "stall longer in between"),
        "unread": Hazard("still-read", "is written, and what reads it before may read it later",
                         "stall longer in between"),
        "operands": Hazard("still-read", "is written, and something under way may not have read it",
                           "set a read barrier and wait for it"),
        "early": Hazard("barrier", "is awaited before it is seen to be set"),
        "arrive": Hazard("unordered", "takes registers before the arrival of the warpgroup is over",
                         "stall longer behind WARPGROUP.ARRIVE"),
        "memory": Hazard("barrier", "of the block may not have stopped this access to memory",
                         "stall longer behind BAR"),
    }, _static, figures["barrier_visible"], _overwriting, _reading, figures["behind_barrier"],
        figures.get("behind_arrive", 0), silent=figures["silent"], each_register=True)
