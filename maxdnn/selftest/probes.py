"""Small programs in machine code (sass/probes) that ask a card what no document says: what instructions leave in their
corners, compared with the virtual GPU bit by bit, and how many clocks loops take, beside what the timing model says."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..build.cubins import cubin
from ..cubin import read
from ..errors import TranslationError
from ..runtime.devices.protocol import Device, Texture
from .items import DIFFERENT, NOTED, SAME, SHOWN, Result, Stand, digest

_ABOUT = json.loads(Path(__file__).with_suffix(".json").read_bytes())  # what each probe asks, in words
THREADS, BLOCK = 4096, 32
TEXELS = 1024

_CORNERS = np.array(
    [0, 0x80000000, 1, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x00800000, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0x7F800000,
     0xFF800000, 0x7F800001, 0x7FC00000, 0xFFC12345, 0x7FFFFFFF, 0x4F000000, 0xCF000000, 0x4F7FFFFF, 0x4F800000, 2, 3,
     31, 32, 33, 63, 64, 65, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0xFFFF8000, 0xFFFFFFFE, 0x00010001,
     0x1F01, 0x2000, 0x477FE000, 0x47800000, 0x33800000, 0x33000000, 0x3F000000, 0x3FC00000, 0x40490FDB], np.uint32)


@dataclass(frozen=True)
class Question:
    """A kernel `probe_<source>` whose answers are words. `asks`: in words. `exact`: whether the virtual GPU promises
    the same bits; else differences are figures."""

    source: str
    asks: str
    exact: bool = True
    part: str = "questions"

    @property
    def name(self) -> str:
        return self.asks

    def run(self, stand: Stand) -> Result:
        given = inputs(self.source)
        said = answers(self.source)
        try:
            found = self._words(stand.device, given, len(said))
        except TranslationError as e:
            return Result(self.part, self.name, NOTED, f"not translated: {e}")
        bits = {"answers": len(said), "bits": digest(found)}
        if not stand.card:
            return Result(self.part, self.name, NOTED, "", bits)
        wanted = self._words(stand.virtual, given, len(said))
        wrong = [self._difference(said[j], found[j], wanted[j], given) for j in range(len(said))
                 if (found[j] != wanted[j]).any()]
        if not wrong:
            return Result(self.part, self.name, SAME, "", bits)
        text = f"{len(wrong)} of {len(said)} answers differ: " + "; ".join(
            f"{w['asked']} ({w['different']} of {THREADS} inputs, at most by {w['most']})" for w in wrong[:SHOWN])
        return Result(self.part, self.name, DIFFERENT if self.exact else NOTED, text, bits | {"differences": wrong})

    def _words(self, device: Device, given: np.ndarray, count: int) -> np.ndarray:
        """The answers: (count, THREADS)."""
        module = device.load(cubin(f"probes/{self.source}", device.arch))
        function = module.function(f"probe_{self.source}")
        kernel = read(cubin(f"probes/{self.source}", "sm_52"))
        for name, symbol in kernel.constants.items():
            module.set_constant(name, (np.arange(symbol.size // 4, dtype=np.uint32) * np.uint32(0x9E3779B1)).tobytes())
        out, source = device.alloc(4 * THREADS * count), device.alloc(given.nbytes)
        device.upload(source, given)
        device.upload(out, np.full(THREADS * count, 0xDEADBEEF, np.uint32))
        textures = {name: Texture(source.address, 16 * TEXELS) for name, _ in kernel.kernel(function.name).textures}
        function.launch((THREADS // BLOCK, 1, 1), (BLOCK, 1, 1), [out, source], textures=textures)
        found = np.empty((count, THREADS), np.uint32)
        device.download(out, found)
        return found

    @staticmethod
    def _difference(asked: str, found: np.ndarray, wanted: np.ndarray, given: np.ndarray) -> dict[str, Any]:
        where = np.flatnonzero(found != wanted)
        apart = abs(found[where].view(np.int32).astype(np.int64) - wanted[where].view(np.int32))
        first = [{"inputs": [f"{x:08x}" for x in given[:, at]], "found": f"{found[at]:08x}",
                  "wanted": f"{wanted[at]:08x}"} for at in where[:SHOWN]]
        return {"asked": asked, "different": len(where), "most": int(apart.max()), "first": first}


def inputs(source: str) -> np.ndarray:
    """Three words for each thread: corners, small numbers, any bits. For textures: a texel inside, one anywhere."""
    rng = np.random.default_rng(2015)
    kinds = rng.integers(0, 3, (3, THREADS))
    words = np.choose(kinds, [rng.choice(_CORNERS, (3, THREADS)), rng.integers(0, 100, (3, THREADS), dtype=np.uint32),
                              rng.integers(0, 2**32, (3, THREADS), dtype=np.uint32)]).astype(np.uint32)
    if source == "texture":
        edge = np.array([TEXELS - 1, TEXELS, TEXELS + 1, 2**27, 2**28, 0x40000000, 2**31, 2**32 - 1], np.uint32)
        words[0] %= TEXELS
        words[1] = np.where(kinds[1] == 0, rng.choice(edge, THREADS), words[1])
    return words


def answers(source: str) -> list[str]:
    """The instruction behind each answer of a question: what wrote R16 last before it was stored."""
    found, last = [], ""
    for instruction in read(cubin(f"probes/{source}", "sm_52")).kernel(f"probe_{source}").instructions:
        text = str(instruction)
        if instruction.mnemonic == "STG":
            found.append(last)
        elif instruction.mnemonic not in ("NOP", "SSY", "SYNC") and not text.startswith("MOV R16, RZ"):
            last = text
    return found


def questions() -> list[Question]:
    return [Question(source, **asked) for source, asked in _ABOUT["questions"].items()]


TURNS = 16, 48

CLOCKS: dict[str, str] = _ABOUT["clocks"]


@dataclass(frozen=True)
class Clock:
    """Clocks of a turn of a loop of `probe_<probe>`, by the card's clock register and by the timing model."""

    probe: str
    part: str = "clocks"

    @property
    def name(self) -> str:
        return f"{self.probe}: {CLOCKS[self.probe]}"

    def run(self, stand: Stand) -> Result:
        from .times import machine_of

        if stand.card and not stand.native:  # a translation has other instructions
            return Result(self.part, self.name, NOTED, "")
        few, many = TURNS
        simulated = (self._simulated(stand, many, machine_of(stand)) - self._simulated(stand, few, machine_of(stand)))
        figures = {"simulated": round(simulated / (many - few), 2)}
        if not stand.card:
            return Result(self.part, self.name, NOTED, f"simulated {figures['simulated']}", figures)
        measured = (self._measured(stand, many) - self._measured(stand, few)) / (many - few)
        figures["measured"] = round(measured, 2)
        return Result(self.part, self.name, NOTED, f"measured {figures['measured']}, simulated {figures['simulated']}",
                      figures)

    def _ready(self, device: Device) -> tuple[Any, Any, dict[str, Texture], int, list[Any]]:
        data = cubin("probes/clocks", device.arch)
        function = device.load(data).function(f"probe_{self.probe}")
        kernel = read(cubin("probes/clocks", "sm_52")).kernel(function.name)
        assert kernel.reqntid is not None
        out, zeros = device.alloc(4 * kernel.reqntid[0]), device.alloc(65536)
        device.upload(zeros, np.zeros(65536 // 4, np.uint32))
        textures = {name: Texture(zeros.address, 65536) for name, _ in kernel.textures}
        return function, out, textures, kernel.reqntid[0], [out, zeros]

    def _measured(self, stand: Stand, turns: int) -> int:
        """The least of a few runs, of the slowest thread."""
        function, out, textures, threads, args = self._ready(stand.device)
        found, runs = np.empty(threads, np.uint32), []
        for _ in range(4):  # the first one fills caches
            function.launch((1, 1, 1), (threads, 1, 1), [*args, turns], textures=textures)
            stand.device.download(out, found)
            runs.append(int(found.max()))
        return min(runs[1:])

    def _simulated(self, stand: Stand, turns: int, machine: Any) -> int:
        from ..simulator import timing

        function, _, textures, threads, args = self._ready(stand.virtual)
        return timing.launch(function, (1, 1, 1), (threads, 1, 1), [*args, turns], textures=textures,
                             machine=machine).cycles


def clocks(quick: bool = False) -> list[Clock]:
    return [Clock(name) for name in (list(CLOCKS)[:2] if quick else CLOCKS)]
