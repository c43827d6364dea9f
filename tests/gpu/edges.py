"""Instructions of sm_90, one by one, over values at the edges of their types: what a GPU must give as the virtual GPU
does. And whether the chip serves an operand from the reuse cache after its register was written."""

import functools
import pathlib
import tempfile
from typing import Any

import numpy as np

from maxdnn.runtime.devices.protocol import Device
from tests.maxas import tool

# x is R4, y is R5; the result R10, or R10 and R11, which are zero before.
FAST = (
    *(f"PRMT R10, R4, {how}, RZ" for how in ("0x9910", "0x7710", "0x8880", "0xb910", "0x9bba", "0xbbb3")),
    "PRMT R10, R4, R5, RZ", "IABS R10, R4", "I2FP.F32.S32 R10, R4", "I2FP.F32.S32.RZ R10, R4", "I2FP.F32.U32 R10, R4",
    "VIADD R10, R4, R5", "VIADD.16x2 R10, R4, R5", "IADD3 R10, RZ, -R4, RZ",
    "IADD3 R10, -R4, R5, -R4", "IADD3 R10, R4, -R5, -R4",
    "IADD3.X R10, ~R4, R5, ~R4, !PT, !PT",
    "IMAD.MOV R10, RZ, RZ, -R4", "IMAD R10, R4, R4, -R5", "SHF.R.S32.HI R10, RZ, 0x1f, R4",
    "LEA R10, R4, R5, 0x10", "LEA.HI R10, R4, R5, RZ, 0x10", "LEA.HI.SX32 R10, R4, R5, 0x10",
    "SGXT R10, R4, 0x10", "SGXT.U32 R10, R4, 0x10", "SGXT R10, R4, R5", "SGXT.W R10, R4, R5", "BMSK R10, R4, R5",
    "VIMNMX R10, R4, R5, PT", "VIMNMX R10, R4, R5, !PT", "VIMNMX.U32 R10, R4, R5, PT", "VIMNMX.S16x2 R10, R4, R5, PT",
    "VIMNMX.U16x2 R10, R4, R5, !PT", "VIMNMX.S16x2.RELU R10, R4, R5, PT", "VIMNMX.RELU R10, R4, R5, !PT",
    "VABSDIFF R10, R4, R5, RZ", "VABSDIFF.U32 R10, R4, R5, RZ", "VABSDIFF4.U8.ACC R10, R4, R5, R4",
    "VABSDIFF4 R10, R4, R5, R4", "VABSDIFF4.ACC R10, R4, R5, R4",
    *(f"IDP.4A.{a}.{b} R10, R4, R5, R4" for a in ("U8", "S8") for b in ("U8", "S8")),
    "VIADDMNMX R10, R4, R5, R4, PT", "VIADDMNMX.U32 R10, R4, R5, R4, !PT", "VIMNMX3 R10, R4, R5, R4, PT",
    "SHF.L.U32 R10, R4, R5, RZ", "SHF.R.S32.HI R10, R4, R5, R4", "SHF.R.U64 R10, R4, R5, R4",
    "SHF.R.W.U32.HI R10, R4, R5, R4",
    "SHF.L.W.U32.HI R10, R4, R5, R4", "SHF.L.U64.HI R10, R4, R5, R4", "LOP3.LUT R10, R4, R5, RZ, 0x96, !PT",
    "IMAD.HI R10, R4, R5, RZ", "IMAD.HI.U32 R10, R4, R5, RZ", "FMNMX R10, R4, R5, PT", "FMNMX R10, R4, R5, !PT",
    "FADD R10, R4, R5", "FMUL R10, R4, R5", "FFMA R10, R4, R5, -R4", "FADD.FTZ R10, |R4|, -R5",
    "FSEL R10, -R4, |R5|, PT",
    "FMUL.SAT R10, R4, R5", "FADD.RZ R10, R4, R5", "FMUL.D2 R10, R4, R5", "FMUL.FTZ.M8 R10, R4, R5",
)
SLOW = (
    *(f"I2F{to}.{of} R10, R4" for to in ("", ".F16") for of in ("S16", "U16", "S8", "U8", "U32")),
    "I2F R10, R4", "I2F.F16 R10, R4", "I2F.RZ R10, R4", "I2F.RP R10, R4", "I2F.S16 R10, R4.H1",
    "I2F.S8 R10, R4.B3", "I2F.U8 R10, R4.B2",
    *(f"F2I{to}{how} R10, R4" for to in ("", ".U32", ".S16", ".U16", ".S8", ".U8")
      for how in ("", ".TRUNC.NTZ", ".FLOOR")),
    *(f"I2I.{to}.S32.SAT R10, R4" for to in ("S16", "U16", "S8", "U8")), "FRND R10, R4",
    "FRND.TRUNC R10, R4", "FRND.CEIL R10, R4",
    "POPC R10, R4", "FLO.U32 R10, R4", "FLO R10, R4", "FLO.U32.SH R10, R4", "BREV R10, R4",
)
SLOW_PAIRS = ("I2F.F64.S16 R10, R4", "I2F.F64.U16 R10, R4", "I2F.F64 R10, R4", "I2F.F64.U32 R10, R4",
              "F2I.S64.TRUNC R10, R4", "F2I.U64.TRUNC R10, R4", "F2F.F64.F32 R10, R4")
# From no predicates on; all of them come out as bits.
PACKED = ("R2P PR, R4, R5", "R2P PR, R4.B1, R5", "R2P PR, R4, 0x55", "R2P PR, R4.B3, 0x2a")

# R4 (x) is read with a flag, then y is written to it, then it is read: whether the cache may serve x, which the checker
# then reports, and what is done.
KEPT = {
    "written by a move": (True, ("02 FADD R8, R4.reuse, R6", "06 IMAD.MOV.U32 R4, RZ, RZ, R5", "06 FADD R10, R4, R6")),
    "written by what read it": (True, ("06 FADD R4, R4.reuse, R5", "06 FADD R10, R4, R6")),
    "written by an FFMA": (True, ("02 FFMA R8, R4.reuse, R6, R6", "06 FFMA R4, R5, R7, R6", "06 FFMA R10, R4, R7, R6")),
    "written by a load": (True, ("02 FADD R8, R4.reuse, R6", "12 LDG.E R4, desc[UR4][R2.64+0x4]",
                                 "86 FADD R10, R4, R6")),
    "an odd one read between": (True, ("02 FADD R8, R4.reuse, R6", "06 IMAD.MOV.U32 R4, RZ, RZ, R5",
                                       "06 FADD R8, R7, R6", "06 FADD R10, R4, R6")),
    "read late": (True, ("02 FADD R8, R4.reuse, R6", "06 IMAD.MOV.U32 R4, RZ, RZ, R5", *["0b NOP"] * 8,
                         "06 FADD R10, R4, R6")),
    "an even one read between": (False, ("02 FADD R8, R4.reuse, R6", "06 IMAD.MOV.U32 R4, RZ, RZ, R5",
                                         "06 FADD R9, R8, R6", "06 FADD R10, R4, R6")),
    "an even one read before it is written": (False, ("02 FADD R8, R4.reuse, R6", "06 FADD R9, R6, R6",
                                                      "06 IMAD.MOV.U32 R4, RZ, RZ, R5", "06 FADD R10, R4, R6")),
    "read in another place": (False, ("02 FADD R8, R4.reuse, R6", "06 IMAD.MOV.U32 R4, RZ, RZ, R5",
                                      "06 FADD R10, R6, R4")),
    "read once more before it is written": (False, (
        "02 FADD R8, R4.reuse, R6", "06 FADD R9, R4, R6", "06 IMAD.MOV.U32 R4, RZ, RZ, R5", "06 FADD R10, R4, R6")),
}


def _line(text: str) -> str:
    """Wait for (8) or set (1) barrier 1, the stall, the instruction."""
    return f"{'01' if text[0] == '8' else '--'}:-:{'1' if text[0] == '1' else '-'}:-:{text[1]}      {text[3:]};\n"


def _kernel(name: str, body: str) -> str:
    return f"""# Kernel: {name}
# Arch: sm_90
# ReqThreads: 128
# Param: ptr out           two words of a thread
# Param: ptr pairs         x, y of a thread
--:-:1:-:1      S2R R0, SR_TID.X;
--:-:2:-:1      S2R R1, SR_CTAID.X;
--:-:3:-:8      LDC.64 R2, param_pairs[0];
--:-:4:-:2      LDC.64 R12, param_out[0];
--:-:-:-:9      ULDC.64 UR4, c[0x0][0x208];
03:-:-:-:6      LEA R0, R1, R0, 0x7;
04:-:-:-:6      IMAD.WIDE.U32 R2, R0, 0x8, R2;
08:-:-:-:6      IMAD.WIDE.U32 R12, R0, 0x8, R12;
--:-:1:-:2      LDG.E.64 R4, desc[UR4][R2.64];
--:-:-:-:6      IMAD.MOV.U32 R10, RZ, RZ, RZ;
--:-:-:-:6      IMAD.MOV.U32 R11, RZ, RZ, RZ;
--:-:-:-:6      IMAD.MOV.U32 R6, RZ, RZ, RZ;
01:-:-:-:d      IMAD.MOV.U32 R7, RZ, RZ, 0x3f800000;
{body}01:-:-:-:6      NOP;
--:-:-:-:6      STG.E.64 desc[UR4][R12.64], R10;
--:-:-:Y:5      EXIT;
""".replace(":-:d ", ":Y:d ")


def programs() -> dict[str, str]:
    """Instruction (or how a register is written) -> source of a kernel, `edges_N`."""
    bodies = {text: f"--:-:-:-:b      {text};\n" for text in FAST}
    bodies |= {text: f"--:-:1:-:2      {text};\n" for text in (*SLOW, *SLOW_PAIRS)}
    for text in PACKED:
        lines = ("0b R2P PR, RZ, 0x7f", "06 NOP", f"0b {text}", "06 NOP", "06 P2R R10, PR, RZ, 0x7f")
        bodies[text] = "".join(map(_line, lines))
    bodies |= {text: "".join(map(_line, lines)) for text, (_, lines) in KEPT.items()}
    return {text: _kernel(f"edges_{n}", body) for n, (text, body) in enumerate(bodies.items())}


@functools.cache
def image() -> bytes:
    """All of them in one cubin."""
    with tempfile.TemporaryDirectory() as folder:
        return tool.assemble(pathlib.Path(folder), "".join(programs().values()), "-n", "-w")


def pairs() -> np.ndarray:
    """x and y: all pairs of edges, then random words, small numbers and floats."""
    rng = np.random.default_rng(1)
    edges = np.array([0, 1, 2, 0x7F, 0x80, 0x81, 0xFF, 0x100, 0x7FFE, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x10000, 0x18000,
                      0x7FFF8000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0x80008000, 0xFFFF0000, 0xFFFF7FFF, 0xFFFF8000,
                      0xFFFF8001, 0xFFFFFF7F, 0xFFFFFF80, 0xFFFFFFFF, 0x3F800000, 0xBF000000, 0x4F000000, 0x7F800000,
                      0xFF800000], np.uint32)
    x, y = np.meshgrid(edges, edges)
    small = rng.integers(-70000, 70000, (512, 2)).astype(np.int32).view(np.uint32)
    floats = (rng.standard_normal((512, 2)) * 2.0 ** rng.integers(-20, 40, (512, 2))).astype(np.float32).view(np.uint32)
    words = rng.integers(0, 1 << 32, (1024, 2), np.uint64).astype(np.uint32)
    return np.concatenate([np.stack([x.ravel(), y.ravel()], 1), small, floats, words])


def results(gpu: Device, number: int, module: Any = None) -> np.ndarray:
    """Both words of every pair, by the kernel of that number."""
    given = np.ascontiguousarray(pairs())
    source, out = gpu.alloc(given.nbytes), gpu.alloc(given.nbytes)
    gpu.upload(source, given)
    gpu.upload(out, np.full_like(given, 0xDEADBEEF))
    module = module or gpu.load(image())
    module.function(f"edges_{number}").launch((len(given) // 128, 1, 1), (128, 1, 1), [out, source])
    gpu.synchronize()
    found = np.empty_like(given)
    gpu.download(out, found)
    return found
