"""Shared memory used again without a block barrier in between: along paths through the kernel (loops entered twice),
two warps touch the same word, one of them storing, with no BAR.SYNC between. Only accesses whose addresses follow from
the thread index are judged; a branch on anything else is taken both ways, by all threads alike."""

import collections
from collections.abc import Sequence

import numpy as np

from ..cubin import CubinKernel
from ..isa import RZ, Instruction
from ..isa.program import Graph, Node
from .effects import Effects
from .lanes import Lanes
from .report import Finding, Place

_PATHS = 12
_STEPS = 6000
_WORDS = 1 << 14  # 64 KiB
_SIZES = {"": 1, "32": 1, "64": 2, "128": 4}


class SharedUse:
    """Reads or writes of one stretch between barriers: per word the lowest and highest warp and the instruction."""

    def __init__(self) -> None:
        self.low = np.full(_WORDS, 1 << 20)
        self.high = np.full(_WORDS, -1)
        self.who = np.full(_WORDS, -1)

    def add(self, words: np.ndarray, warps: np.ndarray, i: int) -> None:
        np.minimum.at(self.low, words, warps)
        np.maximum.at(self.high, words, warps)
        self.who[words] = i

    def other_warp(self, words: np.ndarray, warps: np.ndarray) -> int | None:
        """An instruction by which another warp used one of the words."""
        clash = (self.high[words] >= 0) & ((self.low[words] != warps) | (self.high[words] != warps))
        return int(self.who[words[clash][0]]) if clash.any() else None


def shared_findings(kernel: CubinKernel, timing) -> list[Finding]:
    return _old(kernel, timing.graph, timing.effects)[0]


def _old(kernel, graph, effects):
    code = graph.code
    block = kernel.reqntid or (None if any(_second_dimension(inst) for inst in code) else kernel.maxntid)
    if not any(inst.opcode == "STS" for inst in code):
        return [], ""
    if block is None:
        return [], "shared memory not judged: the kernel does not say its block size"
    if any(inst.mnemonic.startswith("BAR.") and not _whole_block(inst) for inst in code):
        return [], "shared memory not judged: barriers for part of the block"
    if block[0] * block[1] * block[2] <= 32:
        return [], ""
    taken: collections.Counter[tuple[Node, Node]] = collections.Counter()
    found: dict[tuple[int, int], Finding] = {}
    relevant = _relevant(code, effects)
    idle = 0
    for _ in range(_PATHS):
        before = len(taken), len(found)
        _follow(graph, relevant, Lanes(block), taken, found)
        idle = idle + 1 if before == (len(taken), len(found)) else 0
        if idle == 2:
            break
    return list(found.values()), ""


def _whole_block(inst: Instruction) -> bool:
    """BAR.SYNC or BAR.RED with a constant id and no thread count."""
    count = inst.operand("cnt")
    return inst.mnemonic != "BAR.ARV" and inst["bar"].type == "uimm" and (count is None or count.value in (0, RZ))


def _second_dimension(inst: Instruction) -> bool:
    """Whether the instruction reads TID.Y or TID.Z: a bound on the block's size then says nothing of its shape."""
    return inst.opcode == "S2R" and inst.operands[1].value in (0x22, 0x23)


def _relevant(code: Sequence[Instruction], effects: Sequence[Effects]) -> set[int]:
    """Instructions that may decide a shared address, a guard or a branch: the rest need no values."""
    needed = 0
    for inst, eff in zip(code, effects, strict=True):
        shared = inst.opcode in ("LDS", "STS")
        for role, mask in eff.by_role:
            if (shared and role == "addr") or role == "guard":
                needed |= mask
    found: set[int] = set()
    while True:
        more = {i for i, eff in enumerate(effects) if eff.writes & needed} - found
        if not more:
            return found
        found |= more
        for i in more:
            needed |= effects[i].reads


def _follow(graph: Graph, relevant: set[int], lanes: Lanes, taken: "collections.Counter[tuple[Node, Node]]",
            found: dict[tuple[int, int], Finding]) -> None:
    node, steps, loads, stores = graph.nodes[0], 0, SharedUse(), SharedUse()
    while steps < _STEPS:
        for i in range(node.first, node.last + 1):
            inst = graph.code[i]
            if inst.mnemonic in ("BAR.SYNC", "BAR.RED"):
                loads, stores = SharedUse(), SharedUse()
            elif inst.opcode in ("LDS", "STS"):
                _access(graph, i, lanes, loads, stores, found)
                if i in relevant:
                    lanes.step(inst)
            elif i in relevant:
                lanes.step(inst)
        steps += node.last + 1 - node.first
        following = _next(graph.code, node, lanes, taken)
        if following is None:
            return
        taken[node, following] += 1
        node = following


def _next(code: Sequence[Instruction], node: Node, lanes: Lanes,
          taken: "collections.Counter[tuple[Node, Node]]") -> Node | None:
    """The successor to take: the only one a known guard leaves, else the one less taken; threads of the other way are
    dropped."""
    ways = node.successors
    if len(ways) < 2:
        guard = lanes.guard(code[node.last])
        if code[node.last].opcode == "EXIT" and guard is not None and ways:
            lanes.active = lanes.active & ~guard
        return ways[0] if ways and lanes.active.any() else None
    guard = lanes.guard(code[node.last])
    test = code[node.last].operand("cc")
    if guard is None or (test is not None and test.type == "cc_test" and test.value != 15):
        return min(ways, key=lambda way: taken[node, way])
    through = [way for way in ways if way.first == node.last + 1]
    jump = [way for way in ways if way.first != node.last + 1]
    options = [(way, mask) for way, mask in [(jump[0] if jump else ways[0], guard),
                                             (through[0] if through else ways[0], lanes.active & ~guard)] if mask.any()]
    way, lanes.active = min(options, key=lambda option: taken[node, option[0]])
    return way


def _access(graph: Graph, i: int, lanes: Lanes, loads: SharedUse, stores: SharedUse,
            found: dict[tuple[int, int], Finding]) -> None:
    inst = graph.code[i]
    guard, address = lanes.guard(inst), inst["addr"]
    base = lanes.constant(0) if address.base == RZ else lanes.registers.get(address.base)
    count = _SIZES.get(inst.mods.get("size", "").removeprefix("U."))
    if guard is None or base is None or count is None or not guard.any():
        return
    first = (base + address.value & 0xFFFFFFFF)[guard] // 4
    words = (first[:, None] + np.arange(count)).ravel()
    warps = np.repeat(lanes.warp[guard], count)
    inside = words < _WORDS
    words, warps = words[inside], warps[inside]
    earlier = (stores if inst.opcode == "LDS" else loads).other_warp(words, warps)
    if earlier is not None and (earlier, i) not in found:
        found[earlier, i] = Finding(
            "shared-reuse", "shared memory", Place.of(graph.code[earlier]), Place.of(inst), None, None,
            "another warp uses the same words with no block barrier in between", "BAR.SYNC between the two")
    (loads if inst.opcode == "LDS" else stores).add(words, warps, i)
