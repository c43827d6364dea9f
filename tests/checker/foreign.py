"""Kernels in the manner of foreign SGEMM and convolution kernels, that nobody here compiled: counters decremented by 8,
prefetches under predicates, tails unrolled by R2P, epilogues and reductions through shared memory. Each is (name,
threads, source, faults), a fault (what to replace, by what). They are run on the delayed device, warps in either order
and results early and late: whether a kernel is right is what comes out, not what is said here.

    python -m tests.checker.foreign      prints what the checker says of each, and the count
"""

import collections
import functools
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from maxdnn import cubin
from maxdnn.build.assemble import assemble
from maxdnn.checker import Report, check_hazards
from maxdnn.cubin import CubinKernel
from maxdnn.runtime.devices.protocol import Texture
from tests.checker.delayed import launch
from tests.checker.delayedmemory import Memory, Runaway

HEADER = """# Kernel: k
# Arch: sm_52
# SharedSize: 4096
# ReqThreads: {threads}
# Param: ptr in
# Param: ptr out
# Param: i32 n
# Param: i32 mask
# Texture: tex
"""
# R0 thread, R1 4 * thread, R2 in + R1, R8 mask, R9 n, R10 out + R1; R4 and R20 zero
START = """--:-:1:-:2 S2R R0, SR_TID.X;
01:-:-:-:6 SHL R1, R0, 0x2;
--:-:-:-:6 IADD R2.CC, R1, param_in[0];
--:-:-:-:6 IADD.X R3, RZ, param_in[1];
--:-:-:-:6 IADD R10.CC, R1, param_out[0];
--:-:-:-:6 IADD.X R11, RZ, param_out[1];
--:-:-:-:6 MOV R9, param_n;
--:-:-:-:6 MOV R8, param_mask;
--:-:-:-:6 MOV R4, RZ;
--:-:-:-:6 MOV R20, RZ;
"""
END = "--:6:-:-:2 STG.E [R10], R20;\n20:-:-:-:5 EXIT;\n"
N, MASK, SEED = 24, 0x5A, 11
ADD = "02:-:-:-:6 IADD R20, R20, R4;\n"
LOAD = "--:-:2:-:2 LDG.E R4, [R2];\n"
WARP = """--:-:-:-:6 LOP.AND R12, R0, 0x1f;
--:-:-:-:6 LOP.AND R13, R0, 0x20;
--:-:-:-:6 SHL R13, R13, 0x5;
--:-:-:-:6 ISCADD R14, R12, R13, 0x4;
--:-:-:-:6 ISCADD R15, R12, R13, 0x2;
""" + LOAD + """02:-:-:-:6 IADD R5, R4, 0x1;
--:-:-:-:6 IADD R6, R4, 0x2;
--:-:-:-:6 IADD R7, R4, 0x3;
"""  # R14 16 * lane and R15 4 * lane in 1024 bytes of the warp, R4..R7 loaded
OTHER = "--:-:-:-:6 LOP.XOR R12, R1, 0x80;\n"  # 4 * thread of the other warp

Case = tuple[str, int, str, list[tuple[str, str]]]


def _round(first: int) -> str:
    """A round of an epilogue: two vectors of each lane are stored, the warp's words loaded in another order."""
    return f"""--:1:-:-:2 STS.128 [R14], R4;
--:1:-:-:2 STS.128 [R14+0x200], R4;
01:-:2:-:2 LDS R{first}, [R15];
--:-:2:-:2 LDS R{first + 1}, [R15+0x80];
--:-:2:-:2 LDS R{first + 2}, [R15+0x200];
--:-:2:-:2 LDS R{first + 3}, [R15+0x380];
02:-:-:-:6 IADD R20, R20, R{first};
--:-:-:-:6 XMAD R20, R20, 0x3, R{first + 1};
--:-:-:-:6 XMAD R20, R20, 0x3, R{first + 2};
--:-:-:-:6 XMAD R20, R20, 0x3, R{first + 3};
--:-:-:-:6 IADD R4, R4, 0x7;
"""


SECOND = "--:1:-:-:2 STS.128 [R14+0x200], R4;\n"


def _late(first: int) -> tuple[str, str]:
    """The fault of a round whose second store comes behind the loads of its neighbours."""
    late = _round(first).replace(SECOND, "").replace("02:-:-:-:6 IADD R20", SECOND + "03:-:-:-:6 IADD R20")
    return _round(first), late


TILE = """--:1:-:-:2 STS.128 [R14], RZ;
--:1:-:-:2 STS.128 [R14+0x200], RZ;
01:-:-:-:5 BAR.SYNC 0x0;
--:-:2:-:2 LDS.128 R24, [R14];
02:-:2:-:2 LDS.128 R28, [R14+0x200];
02:-:-:-:6 IADD R20, R24, R28;
--:-:-:-:5 BAR.SYNC 0x0;
"""

CASES: list[Case] = [
    ("counter by 8, prefetch under P1", 64, LOAD + """LOOP:
--:-:-:-:1 ISETP.GE.AND P1, PT, R9, RZ, PT;
--:-:-:Y:d ISETP.GE.AND P0, PT, R9, -0x8, PT;
02:-:-:-:6 IADD R9, R9, -0x8;
--:-:-:-:6 IADD R20, R20, R4;
--:-:2:-:2 @P1 LDG.E R4, [R2];
--:-:-:-:5 @P0 BRA LOOP;
--:-:-:-:6 MOV R4, 0x1;
""" + ADD, [("P1, PT, R9, RZ", "P1, PT, R9, -0x10"), ("02:-:-:-:6 IADD R9", "--:-:-:-:6 IADD R9")]),
    ("counter decremented between its two bounds", 64, LOAD + """LOOP:
--:-:-:Y:d ISETP.GT.AND P1, PT, R9, 0x8, PT;
02:-:-:-:6 IADD R9, R9, -0x8;
--:-:-:-:6 IADD R20, R20, R4;
--:-:2:-:2 @P1 LDG.E R4, [R2];
--:-:-:Y:d ISETP.GT.AND P0, PT, R9, RZ, PT;
--:-:-:-:5 @P0 BRA LOOP;
--:-:-:-:6 MOV R4, 0x1;
""" + ADD, [("P1, PT, R9, 0x8", "P1, PT, R9, -0x8")]),
    ("a mask of R2P or of zeros", 64, """--:-:-:Y:d PSETP.AND.AND P3, PT, PT, PT, PT;
--:-:-:Y:d ISETP.GE.AND P1, PT, R0, 0x10, PT;
--:-:-:-:1 @P1 R2P PR, R8, 0x8;
--:-:-:Y:d @!P1 R2P PR, RZ, 0x8;
--:-:2:-:2 @P3 LDG.E R4, [R2];
--:-:-:-:6 @!P1 MOV R4, 0x1;
""" + ADD, [("@!P1 R2P PR, RZ, 0x8", "@!P1 R2P PR, RZ, 0x4")]),
    ("bounds a constant apart", 64, """--:-:-:-:6 IADD R12, R9, 0x20;
--:-:-:-:1 ISETP.LT.AND P5, PT, R0, R9, PT;
--:-:-:Y:d ISETP.LT.AND P6, PT, R0, R12, PT;
--:-:2:-:2 @P5 LDG.E R4, [R2];
--:-:-:-:6 @!P6 MOV R4, 0x1;
""" + ADD, [("IADD R12, R9, 0x20", "IADD R12, R9, -0x10")]),
    ("a bound moved on after its comparison", 64, """--:-:-:Y:d ISETP.LT.AND P5, PT, R0, R9, PT;
--:-:-:-:6 IADD R9, R9, 0x10;
--:-:-:Y:d ISETP.LT.AND P6, PT, R0, R9, PT;
--:-:2:-:2 @P5 LDG.E R4, [R2];
--:-:-:-:6 @!P6 MOV R4, 0x1;
""" + ADD, [("IADD R9, R9, 0x10", "IADD R9, R9, -0x10")]),
    ("a bit of the counter alternates", 64, """--:-:-:-:6 IADD R7, R9, 0x38;
LOOP:
--:-:-:Y:d LOP.AND.NZ P0, RZ, R7, 0x10;
--:-:-:-:6 @P0 IADD R20, R20, R4;
--:-:2:-:2 @P0 LDG.E R4, [R2];
--:-:-:-:5 @P0 BRA ODD;
02:-:-:-:6 IADD R20, R20, R4;
ODD:
--:-:-:-:6 IADD R7, R7, -0x10;
--:-:-:Y:d ISETP.GT.AND P2, PT, R7, RZ, PT;
--:-:-:-:5 @P2 BRA LOOP;
""" + ADD, [("R7, R7, -0x10", "R7, R7, -0x20")]),
    ("PSETP of three conditions", 64, """--:-:-:-:1 ISETP.LT.AND P1, PT, R0, 0x30, PT;
--:-:-:-:1 ISETP.GE.AND P2, PT, R0, 0x8, PT;
--:-:-:Y:d ISETP.NE.AND P3, PT, R0, 0x10, PT;
--:-:-:Y:d PSETP.AND.AND P4, PT, P1, P2, P3;
--:-:-:Y:d PSETP.OR.OR P5, PT, !P1, !P2, !P3;
--:-:2:-:2 @P4 LDG.E R4, [R2];
--:-:-:-:6 @P5 MOV R4, 0x1;
""" + ADD, [("!P2, !P3;", "!P2, P3;")]),
    ("PSETP of three conditions, one computed anew", 64, """--:-:-:-:1 ISETP.LT.AND P1, PT, R0, 0x30, PT;
--:-:-:-:1 ISETP.GE.AND P2, PT, R0, 0x8, PT;
--:-:-:Y:d ISETP.NE.AND P3, PT, R0, 0x10, PT;
--:-:-:Y:d PSETP.AND.AND P3, PT, P1, P2, P3;
--:-:2:-:2 @P3 LDG.E R4, [R2];
--:-:-:Y:d PSETP.OR.AND P1, PT, !P1, !P2, PT;
--:-:-:-:6 @P1 MOV R4, 0x1;
""" + ADD, [("PSETP.OR.AND P1, PT, !P1, !P2", "PSETP.OR.AND P1, PT, !P1, P2")]),
    ("a mask selected to zero in the last iteration", 64, """LOOP:
02:-:-:-:6 IADD R20, R20, R4;
--:-:-:-:6 IADD R9, R9, -0x8;
--:-:-:Y:d ISETP.GT.AND P0, PT, R9, RZ, PT;
--:-:-:-:6 SEL R8, R8, RZ, P0;
--:-:-:Y:d R2P PR, R8, 0x6;
--:-:2:-:2 @P1 LDG.E R4, [R2];
--:-:-:-:5 @P0 BRA LOOP;
--:-:-:-:6 MOV R4, 0x1;
""" + ADD, [("SEL R8, R8, RZ, P0", "SEL R8, R8, R8, P0")]),
    ("a mask moved to zero in the last iteration", 64, """LOOP:
02:-:-:-:6 IADD R20, R20, R4;
--:-:-:-:6 IADD R9, R9, -0x8;
--:-:-:Y:d ISETP.GT.AND P0, PT, R9, RZ, PT;
--:-:-:-:6 @!P0 MOV R8, RZ;
--:-:-:Y:d R2P PR, R8, 0x6;
--:-:2:-:2 @P1 LDG.E R4, [R2];
--:-:-:-:5 @P0 BRA LOOP;
--:-:-:-:6 MOV R4, 0x1;
""" + ADD, [("@!P0 MOV R8, RZ", "@!P0 MOV R12, RZ")]),
    ("a tail unrolled by bits of the count", 64, """--:-:-:-:6 IADD R9, R9, -0x11;
--:-:-:Y:d R2P PR, R9, 0x7;
--:-:2:-:2 @P2 LDG.E R4, [R2];
02:-:-:-:6 @P2 IADD R20, R20, R4;
--:-:2:-:2 @P1 LDG.E R4, [R2+0x4];
02:-:-:-:6 @P1 IADD R20, R20, R4;
--:-:2:-:2 @P0 LDG.E R4, [R2+0x8];
02:-:-:-:6 @P0 IADD R20, R20, R4;
""", [("02:-:-:-:6 @P1 IADD", "--:-:-:-:6 @P1 IADD")]),
    ("an epilogue of two rounds in each warp's own words", 64, WARP + TILE + _round(24) + _round(32),
     [_late(24), _late(32)]),
    ("an epilogue as a loop", 64, WARP + TILE + "ROUND:\n" + _round(24) + """--:-:-:-:6 IADD R9, R9, -0x8;
--:-:-:Y:d ISETP.GT.AND P0, PT, R9, RZ, PT;
--:-:-:-:5 @P0 BRA ROUND;
""", [_late(24)]),
    ("an epilogue across warps", 64, OTHER + LOAD + """02:1:-:-:2 STS [R1], R4;
01:-:-:-:5 BAR.SYNC 0x0;
--:-:2:-:2 LDS R5, [R12];
02:-:-:-:6 IADD R20, R5, R4;
--:-:-:-:5 BAR.SYNC 0x0;
--:1:-:-:2 STS [R1], R20;
01:-:-:-:5 BAR.SYNC 0x0;
--:-:2:-:2 LDS R5, [R12];
02:-:-:-:6 XMAD R20, R5, 0x3, R20;
""", [("IADD R20, R5, R4;\n--:-:-:-:5 BAR.SYNC 0x0", "IADD R20, R5, R4;\n--:-:-:-:5 NOP"),
          ("STS [R1], R20;\n01:-:-:-:5 BAR.SYNC 0x0", "STS [R1], R20;\n01:-:-:-:5 NOP")]),
    ("two buffers in turn by XOR", 64, OTHER + """LOOP:
--:-:2:-:2 LDG.E R4, [R2];
02:1:-:-:2 STS [R1], R4;
01:-:-:-:5 BAR.SYNC 0x0;
--:-:2:-:2 LDS R5, [R12];
02:-:-:-:6 IADD R20, R20, R5;
--:-:-:-:6 LOP.XOR R1, R1, 0x100;
--:-:-:-:6 LOP.XOR R12, R12, 0x100;
--:-:-:-:6 IADD R2, R2, 0x100;
--:-:-:-:6 IADD R9, R9, -0x8;
--:-:-:Y:d ISETP.GT.AND P0, PT, R9, RZ, PT;
--:-:-:-:5 @P0 BRA LOOP;
""", [("R1, R1, 0x100;\n--:-:-:-:6 LOP.XOR R12, R12, 0x100", "R1, R1, 0x0;\n--:-:-:-:6 LOP.XOR R12, R12, 0x0")]),
    ("a reduction by SHFL", 64, LOAD + "".join(
        f"{'02' if n == 16 else '--'}:-:3:-:2 SHFL.BFLY PT, R5, R4, 0x{n:x}, 0x1f;\n04:-:-:-:6 IADD R4, R4, R5;\n"
        for n in (16, 8, 4, 2, 1)) + "--:-:-:-:6 MOV R20, R4;\n",
     [("SHFL.BFLY PT, R5, R4, 0x4, 0x1f;\n04", "SHFL.BFLY PT, R5, R4, 0x4, 0x1f;\n--"),
      ("02:-:3:-:2 SHFL", "--:-:3:-:2 SHFL")]),
    ("a reduction across warps through shared memory", 64, LOAD + """02:1:-:-:2 STS [R1], R4;
01:-:-:-:5 BAR.SYNC 0x0;
--:-:-:Y:d ISETP.LT.AND P0, PT, R0, 0x20, PT;
--:-:3:-:2 @P0 LDS R5, [R1+0x80];
04:-:-:-:6 @P0 IADD R4, R4, R5;
--:1:-:-:2 @P0 STS [R1], R4;
01:-:-:-:5 BAR.SYNC 0x0;
--:-:3:-:2 LDS R20, [RZ];
04:-:-:-:6 IADD R20, R20, 0x1;
""", [("02:1:-:-:2 STS [R1], R4;\n01:-:-:-:5 BAR.SYNC 0x0", "02:1:-:-:2 STS [R1], R4;\n01:-:-:-:5 NOP"),
      ("@P0 STS [R1], R4;\n01:-:-:-:5 BAR.SYNC 0x0", "@P0 STS [R1], R4;\n01:-:-:-:5 NOP")]),
    ("a reduction within a warp, no barrier", 32, LOAD + "02:1:-:-:2 STS [R1], R4;\n" + "".join(
        f"01:-:3:-:2 LDS R5, [R1+0x{4 * n:x}];\n04:-:-:-:6 IADD R4, R4, R5;\n--:1:-:-:2 STS [R1], R4;\n"
        for n in (16, 8, 4, 2, 1)) + "01:-:3:-:2 LDS R20, [RZ];\n04:-:-:-:6 IADD R20, R20, 0x1;\n",
     [("IADD R4, R4, R5;\n--:1:-:-:2 STS [R1], R4;\n01:-:3:-:2 LDS R20, [RZ];\n",
       "IADD R4, R4, R5;\n--:-:3:-:2 LDS R20, [RZ];\n--:1:-:-:2 STS [R1], R4;\n")]),
    ("texture loads for a tile", 64, OTHER + """--:-:2:-:2 TLD.LZ.T R4, R0, RZ, tex, 1D, 0x1;
02:1:-:-:2 STS [R1], R4;
01:-:-:-:5 BAR.SYNC 0x0;
--:-:3:-:2 LDS R5, [R12];
04:-:-:-:6 IADD R20, R5, R4;
""", [("02:1:-:-:2 STS", "--:1:-:-:2 STS"), ("04:-:-:-:6 IADD R20", "--:-:-:-:6 IADD R20")]),
    ("a histogram of atomics", 64, """--:-:-:-:6 LOP.AND R12, R1, 0x3c;
--:1:-:-:2 STS [R1], RZ;
01:-:-:-:5 BAR.SYNC 0x0;
--:1:2:-:2 ATOMS.ADD R5, [R12], R0;
03:-:-:-:5 BAR.SYNC 0x0;
--:-:3:-:2 LDS R20, [R1];
04:-:-:-:6 IADD R20, R20, 0x1;
""", [("R0;\n03:-:-:-:5 BAR.SYNC 0x0", "R0;\n03:-:-:-:5 NOP")]),
    ("sums added to memory, their register used again", 64, LOAD + """02:1:-:-:2 RED.E.ADD [R10+0x400], R4;
01:-:-:-:6 MOV R4, RZ;
--:-:-:-:6 IADD R20, R4, 0x5;
""", [("01:-:-:-:6 MOV R4", "--:-:-:-:6 MOV R4")]),
    ("loads left by count", 64, """--:-:2:-:2 LDG.E R4, [R2];
--:-:2:-:2 LDG.E R5, [R2+0x100];
--:-:-:-:3 DEPBAR.LE SB1, 0x1;
--:-:-:-:6 IADD R20, R20, R4;
02:-:-:-:6 IADD R20, R20, R5;
""", [("DEPBAR.LE SB1, 0x1", "DEPBAR.LE SB1, 0x2"),
          ("02:-:-:-:6 IADD R20, R20, R5", "--:-:-:-:6 IADD R20, R20, R5")]),
    ("conversions through one unit", 64, """--:-:-:-:2 I2F.F32.S32 R4, R0;
--:-:3:-:2 I2F.F32.S32 R5, R1;
04:-:-:-:6 IADD R20, R4, R5;
""", [("--:-:-:-:2 I2F.F32.S32 R4, R0;\n--:-:3:-:2 I2F.F32.S32 R5, R1;",
       "--:-:3:-:2 I2F.F32.S32 R4, R0;\n--:-:-:-:2 I2F.F32.S32 R5, R1;")]),
    ("one value stored by all threads", 64, """--:1:-:-:2 STS [RZ+0x800], R9;
01:-:3:-:2 LDS R5, [RZ+0x800];
04:-:-:-:6 IADD R20, R5, R0;
""", [("STS [RZ+0x800], R9", "STS [RZ+0x800], R0")]),
    ("the last prefetch of a loop", 64, OTHER + LOAD + """02:1:-:-:2 STS [R1], R4;
01:-:-:-:5 BAR.SYNC 0x0;
--:-:3:-:2 LDS R5, [R12];
LOOP:
04:-:-:-:6 IADD R20, R20, R5;
--:-:3:-:2 LDS R5, [R12];
--:-:-:-:6 IADD R9, R9, -0x8;
--:-:-:Y:d ISETP.GT.AND P0, PT, R9, RZ, PT;
04:-:-:-:5 @P0 BRA LOOP;
--:-:-:-:5 BAR.SYNC 0x0;
--:1:3:-:2 LDS R5, [R12];
05:1:-:-:2 STS [R1], R20;
01:-:3:-:2 LDS R7, [R1];
04:-:-:-:6 IADD R20, R7, R20;
""", [("04:-:-:-:6 IADD R20, R7, R20", "04:-:-:-:6 IADD R20, R7, R5")]),
    ("operands kept in turn", 64, LOAD + """02:-:-:-:6 MOV R7, R4;
--:-:-:-:6 MOV R9, R0;
--:-:-:-:6 IADD3 R4, R0, R1, R7.reuse;
--:-:-:-:6 IADD3 R5, R0, R1, R9.reuse;
--:-:-:-:6 MOV R7, 0x2;
--:-:-:-:6 IADD3 R20, R4, R5, R7;
""", [("R0, R1, R9.reuse", "R0, R1, R9")]),
    ("addresses moved on behind their loads", 64, """LOOP:
--:3:2:-:2 LDG.E R4, [R2];
04:-:-:-:6 IADD R2, R2, 0x100;
02:-:-:-:6 IADD R20, R20, R4;
--:-:-:-:6 IADD R9, R9, -0x8;
--:-:-:Y:d ISETP.GT.AND P0, PT, R9, RZ, PT;
--:-:-:-:5 @P0 BRA LOOP;
""", [("04:-:-:-:6 IADD R2", "--:-:-:-:6 IADD R2"), ("Y:d ISETP", "Y:c ISETP")]),
    ("a product of tiles: prefetch, two buffers, epilogue", 64, WARP + OTHER + """--:-:-:-:6 IADD R12, R12, 0x800;
--:-:-:-:6 IADD R1, R1, 0x800;
--:1:-:-:2 STS [R1], R4;
01:-:-:-:5 BAR.SYNC 0x0;
LOOP:
--:-:-:-:1 ISETP.GT.AND P1, PT, R9, 0x8, PT;
--:-:-:Y:d ISETP.GT.AND P0, PT, R9, 0x8, PT;
--:-:-:-:6 IADD R2, R2, 0x100;
--:-:2:-:2 @P1 LDG.E R4, [R2];
--:-:3:-:2 LDS R5, [R12];
--:-:3:-:2 LDS R6, [R1];
04:-:-:-:6 LOP.XOR R1, R1, 0x100;
--:-:-:-:6 LOP.XOR R12, R12, 0x100;
--:-:-:-:6 XMAD R20, R5, R6, R20;
02:1:-:-:2 @P1 STS [R1], R4;
--:-:-:-:6 IADD R9, R9, -0x8;
01:-:-:-:5 BAR.SYNC 0x0;
--:-:-:-:5 @P0 BRA LOOP;
--:-:-:-:6 MOV R4, R20;
--:-:-:-:6 MOV R5, R20;
--:-:-:-:6 MOV R6, R20;
--:-:-:-:6 MOV R7, R20;
""" + _round(24), [_late(24), ("04:-:-:-:6 LOP.XOR R1,", "--:-:-:-:6 LOP.XOR R1,"),
                   ("02:1:-:-:2 @P1 STS", "--:1:-:-:2 @P1 STS"), ("01:-:-:-:5 BAR.SYNC 0x0;\n--:-:-:-:5 @P0",
                                                                  "01:-:-:-:5 NOP;\n--:-:-:-:5 @P0")]),
]


@functools.cache
def built(source: str, threads: int) -> CubinKernel:
    """The kernel of a source's body."""
    with tempfile.TemporaryDirectory() as folder:
        text, output = Path(folder, "k.sass"), Path(folder, "k.cubin")
        text.write_text(HEADER.format(threads=threads) + "\n" + START + source + END)
        assemble(text, output, no_reuse=True)
        return cubin.read(output).kernel()


def outcome(kernel: CubinKernel, threads: int, mode: str, backwards: bool) -> bytes:
    """What it leaves in memory."""
    memory = Memory(1 << 16)
    source, target = memory.alloc(4096), memory.alloc(4096)
    values = np.random.default_rng(SEED).integers(1, 1000, 1024, np.uint32)
    memory.data[:4096] = values.view(np.uint8)
    params = b"".join(n.to_bytes(size, "little") for n, size in ((source, 8), (target, 8), (N, 4), (MASK, 4), (0, 8)))
    try:
        launch(kernel, memory, (1, 1, 1), (threads, 1, 1), params, mode=mode, backwards=backwards, limit=5000,
               textures={0: Texture(source, 4096, 1)})
    except Runaway:
        return b"astray"
    return memory.data[4096:8192].tobytes()


def outcomes(kernel: CubinKernel, threads: int) -> set[bytes]:
    """All that may come out."""
    return {outcome(kernel, threads, mode, backwards)
            for mode in ("none", "early", "late") for backwards in (False, True)}


def kernels(cases: Iterable[Case] = CASES) -> list[tuple[str, CubinKernel, bool]]:
    """(name, kernel, whether it is right), by running it: one outcome, that of the source without a fault."""
    found = []
    for name, threads, source, faults in cases:
        meant = outcomes(built(source, threads), threads)
        found.append((name, built(source, threads), len(meant) == 1))
        for n, (old, new) in enumerate(faults, 1):
            assert source.count(old) == 1, (name, old)
            kernel = built(source.replace(old, new), threads)
            found.append((f"{name}, fault {n}", kernel, outcomes(kernel, threads) == meant and len(meant) == 1))
    return found


def verdict(report: Report, right: bool) -> str:
    """right or wrong kernel, and what was said: error, warning or nothing."""
    said = "error" if report.findings else "warning" if report.warnings else "nothing"
    return f"{'right' if right else 'wrong'}: {said}"


def main() -> None:
    counts: collections.Counter[str] = collections.Counter()
    findings: collections.Counter[str] = collections.Counter()
    for name, kernel, right in kernels():
        report = check_hazards(kernel)
        counts[verdict(report, right)] += 1
        findings["false" if right else "true"] += len(report.findings)
        print(f"{verdict(report, right):16} {name}: {', '.join(f.kind for f in report.findings + report.warnings)}")
    print(dict(counts), dict(findings))


if __name__ == "__main__":
    main()
