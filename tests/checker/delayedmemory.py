"""Memory of the delayed machine: global memory as one array, a block's shared and a lane's local memory, constants and
textures; loads, stores and atomics lane by lane."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from maxdnn.isa import RZ
from tests.checker.numpymachine import LANES, Arithmetic, V

_SIZES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "32": 4, "64": 8, "128": 16}
SHARED_WINDOW, LOCAL_WINDOW, STACK = 0x01000000, 0x02000000, 0x2000


class Runaway(Exception):
    """The program ran on and on, or left its code or memory: what a wrong control code may lead to."""


class Memory:
    """Global memory: one array, handed out in 256-byte pieces."""

    def __init__(self, nbytes: int = 1 << 24) -> None:
        self.base, self.used = 1 << 32, 0
        self.data = np.zeros(nbytes, np.uint8)

    def alloc(self, nbytes: int) -> int:
        at = self.used
        self.used += -(-max(nbytes, 1) // 256) * 256
        if self.used > len(self.data):
            raise MemoryError("the delayed device has 16 MiB")
        return self.base + at


class Access(Arithmetic):
    """Loads, stores, atomics and texture fetches of a warp; registers and lanes are the warp's."""

    block: Any
    local: V
    mask: V

    def reg(self, index: int) -> V:
        raise NotImplementedError

    def set_reg(self, index: int, value: V) -> None:
        raise NotImplementedError

    def _bytes(self, space: str, address: int, lane: int) -> tuple[Any, int]:
        memory = self.block.memory
        if space == "generic":
            space = {SHARED_WINDOW: "shared", LOCAL_WINDOW: "local"}.get(address & ~0xFFFFFF, "global")
            address = address & 0xFFFFFF if space != "global" else address
        if space == "shared":
            return self.block.shared, address
        if space == "local":
            return self.local[lane], address
        if space.startswith("const"):
            return np.frombuffer(self.block.banks.get(int(space[5:]), b""), np.uint8), address
        return memory.data, address - memory.base

    def _span(self, space: str, address: V, lane: int, size: int) -> Any:
        data, at = self._bytes(space, int(address[lane]), lane)
        if not 0 <= at <= len(data) - size:
            raise Runaway
        return data[at:at + size]

    def load(self, space: str, address: V, kind: str, dest: int) -> None:
        size = _SIZES[kind]
        words = np.zeros((max(1, size // 4), LANES), np.uint32)
        for lane in np.flatnonzero(self.mask):
            raw = self._span(space, address, lane, size).tobytes()
            if size < 4:
                raw = int.from_bytes(raw, "little", signed=kind[0] == "S").to_bytes(4, "little", signed=kind[0] == "S")
            words[:, lane] = np.frombuffer(raw, np.uint32)
        for n, word in enumerate(words):
            self.set_reg(dest if dest == RZ else dest + n, word)

    def store(self, space: str, address: V, kind: str, source: int) -> None:
        size = _SIZES[kind]
        words = [self.const("i32", 0) if source == RZ else self.reg(source + n) for n in range(max(1, size // 4))]
        for lane in np.flatnonzero(self.mask):
            raw = b"".join(int(word[lane]).to_bytes(4, "little") for word in words)
            self._span(space, address, lane, size)[:] = np.frombuffer(raw[:size], np.uint8)

    def atomic(self, space: str, address: V, op: str, kind: str, operands: Sequence[V], dest: int | None) -> None:
        size = int(kind[1:]) // 8
        old = np.zeros(LANES, np.uint64)
        integer = np.dtype(f"{'i' if kind[0] == 'S' else 'u'}{size}")
        for lane in np.flatnonzero(self.mask):
            span = self._span(space, address, lane, size)
            value = span.view(np.dtype(f"f{size}") if kind[0] == "F" else integer)
            bits = [int(operand[lane]).to_bytes(operand.dtype.itemsize, "little") for operand in operands]
            given = [np.frombuffer(b[:size], value.dtype)[0] for b in bits]
            old[lane] = int(span.view(f"u{size}")[0])
            value[0] = _combined(op, value[0], given)
        if dest is not None:
            self.set_reg(dest, old.astype(np.uint32))
            if size == 8:
                self.set_reg(dest + 1, (old >> np.uint64(32)).astype(np.uint32))

    def texture(self, handle: V, coord: V, dests: Sequence[int | None]) -> None:
        texels = np.zeros((4, LANES), np.uint32)
        for lane in np.flatnonzero(self.mask):
            texture = self.block.textures[int(handle[lane])]
            at, size = int(coord[lane]), 4 * texture.channels
            if at < texture.nbytes // size:
                start = texture.address + at * size - self.block.memory.base
                found = np.frombuffer(self.block.memory.data[start:start + size].tobytes(), np.uint32)
                texels[:texture.channels, lane] = found
        for n, dest in enumerate(dests):
            if dest is not None:
                self.set_reg(dest, texels[n])


def _combined(op: str, old: Any, given: list[Any]) -> Any:
    b = given[0]
    with np.errstate(all="ignore"):
        rules = {"ADD": lambda: old + b, "MIN": lambda: min(old, b), "MAX": lambda: max(old, b), "AND": lambda: old & b,
                 "OR": lambda: old | b, "XOR": lambda: old ^ b, "EXCH": lambda: b,
                 "INC": lambda: type(old)(0) if old >= b else old + type(old)(1),
                 "DEC": lambda: b if old == 0 or old > b else old - type(old)(1),
                 **dict.fromkeys(("CAS", "SPIN"), lambda: given[1] if old == b else old)}
        return rules[op]()
