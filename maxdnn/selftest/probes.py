"""Small programs in machine code (sass/probes) that ask a card what no document says: what instructions leave in their
corners, compared with the virtual GPU bit by bit, and how many clocks loops take, beside what the timing model says."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..build.cubins import cubin
from ..cubin import read
from ..errors import TranslationError
from ..runtime.devices.protocol import Device, Texture
from .items import DIFFERENT, NOTED, SAME, SHOWN, Result, Stand, digest

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
    return [
        Question("flags", "condition codes: every test as CSETP and as a branch (BRA CC.SFF ends the kernels' loops)"),
        Question("constants", "LDC with a negative register as base (the tables of the pixel kernels)"),
        Question("texture", "texture fetches: before the beginning and behind the end there are zeros"),
        Question("lanes", "lanes in step: votes, shuffles, shared memory handed over without a barrier"),
        Question("floats", "float32: payloads of NaN, denormals, flushing, clamping, rounding, conversions"),
        Question("integers", "integers: XMAD parts and signs, saturation, shifts beyond the word, bit fields, PRMT"),
        Question("mufu", "special functions: how far RCP, RSQ, EX2, LG2, SIN, COS are from the virtual GPU's",
                 exact=False),
    ]


TURNS = 16, 48

CLOCKS = {
    "ffma_chain": "32 FFMA, each waiting for the one before: stall counts are cycles",
    "ffma_rate": "32 FFMA of 16 warps: one a scheduler and cycle",
    "xmad_rate": "32 XMAD of 16 warps",
    "bank_conflict": "32 FFMA of 16 warps, three operands of one register bank",
    "conflict_pairs_stall_6": "96 FFMA, two operands of one bank: 4 warps a scheduler, stall 6",
    "conflict_pairs_stall_8": "the same, stall 8",
    "conflict_threes_stall_6": "96 FFMA, three operands of one bank: 4 warps a scheduler, stall 6",
    "conflict_threes_stall_8": "the same, stall 8",
    "reuse_2_warps_stall_4": "96 FFMA, three operands of one bank, two flagged for reuse: 2 warps a scheduler, stall 4",
    "reuse_3_warps_stall_3": "the same, 3 warps a scheduler, stall 3 (turn_stall; who keeps a reuse entry)",
    "reuse_3_warps_stall_4": "the same, stall 4",
    "reuse_3_warps_stall_5": "the same, stall 5",
    "reuse_3_warps_stall_6": "the same, stall 6",
    "reuse_3_warps_stall_8": "the same, stall 8",
    "reuse_4_warps_stall_4": "the same, 4 warps a scheduler, stall 4",
    "reuse_4_warps_stall_8": "the same, 4 warps a scheduler, stall 8",
    "reuse_three_registers": "96 FFMA of one warp, an operand of which is one of three flagged registers in turn",
    "reuse_one_beside_two": "96 FFMA of 2 warps a scheduler: one flags the same two operands, one two of each in turn",
    "branch_3_warps": "12 times 8 FFMA and a branch: 3 warps a scheduler, stall 5 (turn_stall at a branch)",
    "mufu_rate": "8 MUFU a warp, one warp a scheduler",
    "dfma_rate": "4 DFMA a warp, one warp a scheduler",
    "i2f_rate": "8 I2F a warp, one warp a scheduler",
    "shfl_rate": "8 SHFL a warp, one warp a scheduler",
    "lds_gap": "8 LDS of one warp (memory_issue_gap)",
    "lds_chain": "8 LDS, each waiting for the one before (shared_latency)",
    "lds_2_ways": "8 LDS with two-way conflicts (shared_way_cycles)",
    "lds128_pairs": "4 LDS.128 of 8 warps, lanes alike in pairs (shared_pair_merge)",
    "lds128_apart": "4 LDS.128 of 8 warps, all lanes apart",
    "l2_chain": "4 LDG, each waiting for the one before (l2_latency)",
    "l1_chain": "4 LDG.CI, each waiting for the one before (l1_latency)",
    "tld_chain": "4 texture fetches, each waiting for the one before",
    "tld_4_channels": "4 texture fetches of 4 floats by 16 warps (texture_units, texture_cycles_per_channel)",
    "tld_1_channel": "4 texture fetches of 1 float by 16 warps (texture_cycles_per_channel)",
    "constant_chain": "16 LDC, each waiting for the one before (constant_latency)",
    "constant_15_chain": "128 LDC over 8 KiB, each waiting for the one before (constant15_latency)",
    "barrier_8_warps": "8 BAR of 8 warps (barrier_cycles)",
    "red_one_address": "8 RED.ADD of 32 lanes on one address (atomic_cycles)",
    "code_600": "600 FFMA, which the instruction cache holds (instruction_kib)",
    "code_900": "900 FFMA, a little more than it holds",
    "code_2400": "2400 FFMA, three times as many",
}


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
