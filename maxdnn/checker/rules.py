"""How many cycles a fixed-latency result needs before each kind of use. The figures are mined from the vendor
compiler's output (latencies.json, written by tools/mine_latencies.py); where fewer than MIN_SAMPLES uses were seen the
published rule stands: ALU result 6, predicate 13, carry 6 for an .X consumer and 13 for a test, less the cycles after
issue at which the consumer reads its registers by the instruction table."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from ..isa import TABLE, Instruction
from .effects import CC, PREDICATE

LATENCIES_PATH = Path(__file__).with_name("latencies.json")
MIN_SAMPLES = 20

Key = tuple[str, str, str, str]  # producer class, kind of resource, consumer class, role


def kind_of(bit: int) -> str:
    """register, predicate or carry, of a resource bit."""
    return "carry" if bit == CC else "predicate" if bit >= PREDICATE else "register"


def published(key: Key) -> int:
    """The published rule for a use without enough samples."""
    _, kind, consumer, role = key
    if kind == "predicate":
        return 13
    if kind == "carry":
        return 6 if role == "x" else 13
    return 6 - TABLE.classes[consumer].read_cycles


@cache
def _data() -> dict[str, list[dict[str, Any]]]:
    return json.loads(LATENCIES_PATH.read_bytes())


@cache
def _mined() -> dict[Key, int]:
    return {(e["producer"], e["kind"], e["consumer"], e["role"]): e["cycles"]
            for e in _data()["entries"] if e["samples"] >= MIN_SAMPLES}


@cache
def _pairs() -> frozenset[tuple[str, str]]:
    return frozenset((e["first"], e["second"]) for e in _data()["dual_issue"])


def dual_pair_known(first: Instruction, second: Instruction) -> bool:
    """Whether the two may issue in one cycle: an ALU instruction, then one of another pipe [published rule], or a pair
    of classes the vendor's compiler was seen to issue."""
    if first.cls.pipe == "alu" and second.cls.pipe != "alu":
        return True
    return (first.cls.name, dual_class(second)) in _pairs()


def dual_class(inst: Instruction) -> str:
    """What a mined pair is looked up by: control flow and B2R by opcode, the rest by class."""
    return inst.opcode if inst.cls.name == "flow" or inst.opcode == "B2R" else inst.cls.name


@cache
def required_cycles(key: Key) -> int:
    """Cycles between the issue of producer and consumer: the least the vendor's compiler ever leaves, never more than
    the published rule (a pair it happened to keep further apart proves no longer latency)."""
    rule = published(key)
    return min(rule, _mined().get(key, rule))
