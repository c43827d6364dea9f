"""A small kernel with all that tensor cores have beside warps, written by hand: a warpgroup that multiplies and one
that feeds it, by bulk copies (A) and by ordinary stores behind a proxy fence (B), two stages, mbarriers both ways,
registers that change hands."""

from pathlib import Path

import numpy as np

from maxdnn import cubin
from maxdnn.build.assemble import assemble
from maxdnn.cubin import CubinKernel
from maxdnn.emulator import VirtualGpu
from tests.emulator.test_gpu import fetch, on_device

STEPS = 7
_BARS = 0x4c00  # full, full, empty, empty


def _begins(count: int) -> tuple[int, int]:
    """The words of an mbarrier that waits for so many arrivals."""
    return (0x100000 - count) << 1, (0x100000 - count) << 11 & 0xFFFFFFFF


_NEXT = """--:-:-:Y:4      ULOP3.LUT UR6, UR6, 0x1, URZ, 0x3c, !UPT;
--:-:-:Y:d      UISETP.EQ.U32.AND UP0, UPT, UR6, URZ, UPT;
--:-:-:Y:d      USEL UR11, UR8, URZ, UP0;
--:-:-:Y:d      ULOP3.LUT UR7, UR7, UR11, URZ, 0x3c, !UPT;
--:-:-:Y:d      USHF.L.U32 UR9, UR6, 0x3, URZ;
--:-:-:Y:d      USHF.L.U32 UR10, UR6, 0xa, URZ;
--:-:-:-:6      IADD3 R4, R4, -0x1, RZ;
--:-:-:Y:d      ISETP.GT.AND P0, PT, R4, RZ, PT;
"""
_PRODUCTS = "".join(
    f"--:-:-:Y:d      UIADD3 UR{12 + 4 * i}, UR36, {2 * i:#x}, URZ;\n"
    f"--:-:-:Y:d      UIADD3 UR{14 + 4 * i}, UR37, {2 * i:#x}, URZ;\n" for i in range(4)
) + "--:-:-:-:6      WARPGROUP.ARRIVE;\n" + "".join(
    f"--:-:-:-:4      HGMMA.64x8x16.F32 R24, gdesc[UR{12 + 4 * i}], {('RZ, !UPT', 'R24', 'R24', 'R24, gsb0')[i]};\n"
    for i in range(4))
_FULL, _EMPTY = _begins(129), _begins(4)
SOURCE = f"""# Kernel: pipeline
# Arch: sm_90
# MaxRegs: 40
# ReqThreads: 256
# SharedSize: {_BARS + 0x20 - 0x400}
# Param: ptr a
# Param: ptr b
# Param: ptr out
# Param: u32 steps
--:-:1:-:1      S2R R0, SR_TID.X;
--:-:2:-:1      LDC R4, param_steps;
--:-:3:-:1      LDC.64 R10, param_b[0];
--:-:-:-:1      ULDC.64 UR4, c[0x0][0x208];
--:-:-:-:1      ULDC.64 UR32, param_a[0];
--:-:-:-:1      UMOV UR6, URZ;
--:-:-:-:1      UMOV UR7, URZ;
--:-:-:-:1      UMOV UR8, 0x80000000;
--:-:-:-:1      UMOV UR9, URZ;
--:-:-:-:1      UMOV UR10, URZ;
--:-:-:-:1      UMOV UR16, {_FULL[0]:#x};
--:-:-:-:1      UMOV UR17, {_FULL[1]:#x};
--:-:-:-:1      UMOV UR18, {_EMPTY[0]:#x};
--:-:-:-:1      UMOV UR19, {_EMPTY[1]:#x};
--:-:-:-:2      UMOV UR20, {_BARS:#x};
--:-:-:-:6      MOV R3, {_BARS:#x};
07:-:-:Y:d      ISETP.NE.AND P0, PT, R0, RZ, PT;
--:-:-:Y:d      ISETP.GE.U32.AND P1, PT, R0, 0x80, PT;
--:-:-:Y:d      ISETP.EQ.AND P5, PT, R0, 0x80, PT;
--:-:-:-:6      LOP3.LUT R1, R0, 0x1f, RZ, 0xc0, !PT;
--:-:-:Y:d      ISETP.EQ.AND P2, PT, R1, RZ, PT;
--:-:-:-:2      BSSY B0, READY;
--:-:-:Y:5  @P0 BRA INITIALIZED;
--:1:2:-:2      SYNCS.EXCH.64 URZ, [UR20], UR16;
--:1:2:-:2      SYNCS.EXCH.64 URZ, [UR20+0x8], UR16;
--:1:2:-:2      SYNCS.EXCH.64 URZ, [UR20+0x10], UR18;
--:1:2:-:2      SYNCS.EXCH.64 URZ, [UR20+0x18], UR18;
03:-:-:-:5      NOP;
INITIALIZED:
--:-:-:-:5      BSYNC B0;
READY:
03:-:-:Y:6      BAR.SYNC.DEFER_BLOCKING 0x0;
--:-:-:Y:5  @P1 BRA PRODUCER;
--:-:-:-:5      WARPSYNC.ALL;
--:-:-:-:1      NOP;
TAKE:
--:-:3:-:2      USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0x38;
04:-:-:Y:d      PLOP3.LUT P0, PT, PT, PT, UP0, 0x80, 0x0;
--:-:-:Y:5 @!P0 BRA TAKE;
--:-:-:-:6      IMAD.SHL.U32 R8, R1, 0x4, RZ;
--:-:-:-:6      MOV R9, RZ;
--:-:-:-:6      MOV R50, RZ;
--:-:-:-:6      CS2R R28, SRZ;
--:-:-:-:6      CS2R R30, SRZ;
{''.join(f'--:-:-:Y:4      UMOV UR{r}, 0x40000040;' + chr(10) for r in range(13, 28, 2))}CHUNK:
--:-:-:-:6      MOV R6, UR7;
FULL:
--:-:1:-:2      SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R3+UR9], R6;
01:-:-:Y:5 @!P0 BRA FULL;
--:-:2:-:2      LDS R7, [R8+UR10+0x4400];
--:-:-:Y:d      UIMAD UR36, UR6, 0x200, URZ;
--:-:-:Y:d      UIADD3 UR36, UR36, 0x40, URZ;
--:-:-:Y:d      UIMAD UR37, UR6, 0x40, URZ;
--:-:-:Y:d      UIADD3 UR37, UR37, 0x440, URZ;
{_PRODUCTS}02:-:-:-:6      LOP3.LUT R9, R9, R7, RZ, 0x3c, !PT;
--:-:-:-:6      MOV R53, R9;
--:-:-:-:4      WARPGROUP.DEPBAR.LE gsb0, 0x0;
--:-:-:-:2  @P2 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R3+UR9+0x10], RZ;
{''.join(f'--:-:-:-:6      FADD R{28 + i}, R{28 + i}, R{24 + i};' + chr(10) for i in range(4))}{_NEXT}\
--:-:-:Y:5  @P0 BRA CHUNK;
--:-:2:-:1      LDC.64 R12, param_out[0];
--:-:-:-:6      IMAD.SHL.U32 R0, R0, 0x20, RZ;
02:-:-:-:6      IADD3 R12, P0, R12, R0, RZ;
--:-:-:-:6      IADD3.X R13, R13, RZ, RZ, P0, !PT;
--:1:-:-:2      STG.E.128 desc[UR4][R12.64], R28;
--:1:-:-:2      STG.E desc[UR4][R12.64+0x10], R53;
--:-:-:Y:5      EXIT;
PRODUCER:
--:-:-:-:5      WARPSYNC.ALL;
--:-:-:-:1      NOP;
--:-:3:-:2      USETMAXREG.DEALLOC.CTAPOOL 0x18;
04:-:-:-:5      NOP;
--:-:-:-:6      MOV R12, 0x2000;
--:-:-:-:6      IADD3 R16, R0, -0x80, RZ;
--:-:-:-:6      IMAD.SHL.U32 R16, R16, 0x8, RZ;
--:-:-:-:6      IADD3 R10, P0, R10, R16, RZ;
--:-:-:-:6      IADD3.X R11, R11, RZ, RZ, P0, !PT;
--:-:-:-:4      UMOV UR30, 0x200;
FILL:
--:-:-:Y:d      ULOP3.LUT UR31, UR7, 0x80000000, URZ, 0x3c, !UPT;
--:-:-:-:6      MOV R6, UR31;
EMPTY:
--:-:1:-:2      SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R3+UR9+0x10], R6;
01:-:-:Y:5 @!P0 BRA EMPTY;
--:-:-:-:2      BSSY B1, COPIED;
--:-:-:Y:5 @!P5 BRA COPY;
--:-:-:-:2      SYNCS.ARRIVE.TRANS64 RZ, [R3+UR9], R12;
--:-:-:Y:d      UIMAD UR12, UR6, 0x2000, URZ;
--:-:-:Y:d      UIADD3 UR12, UR12, 0x400, URZ;
--:-:-:Y:d      UIADD3 UR13, UR9, {_BARS:#x}, URZ;
--:3:-:-:2      UBLKCP.S.G [UR12], [UR32], UR30;
COPY:
--:-:-:-:5      BSYNC B1;
COPIED:
04:-:-:Y:d      UIADD3 UR32, UP1, UR32, 0x2000, URZ;
--:-:-:Y:d      UIADD3.X UR33, UR33, URZ, URZ, UP1, !UPT;
--:1:2:-:2      LDG.E.64 R14, desc[UR4][R10.64];
02:1:-:-:2      STS.64 [R16+UR10+0x4400], R14;
01:-:-:-:6      IADD3 R10, P0, R10, 0x400, RZ;
--:-:-:-:6      IADD3.X R11, R11, RZ, RZ, P0, !PT;
--:-:1:-:2      FENCE.VIEW.ASYNC.S;
01:-:-:-:2      SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R3+UR9], RZ;
{_NEXT}--:-:-:Y:5  @P0 BRA FILL;
--:-:-:Y:5      EXIT;
"""
_LOADED = """--:1:2:-:2      LDG.E.64 R14, desc[UR4][R10.64];
02:1:-:-:2      STS.64 [R16+UR10+0x4400], R14;
01:-:-:-:6      IADD3 R10,"""
COPIED = SOURCE.replace(_LOADED, """--:-:-:-:6      IADD3 R14, R16, UR10, RZ;
--:4:-:-:2      LDGSTS.E.64 [R14+0x4400], desc[UR4][R10.64];
--:-:1:-:2      LDGDEPBAR;
--:-:-:-:4      DEPBAR.LE SB0, 0x0;
08:-:-:-:6      IADD3 R10,""").replace(
    "--:-:1:-:2      FENCE.VIEW.ASYNC.S;\n01:", "--:-:2:-:2      FENCE.VIEW.ASYNC.S;\n02:")
"""The same with copies of threads (LDGSTS) in place of loads and ordinary stores."""


def built(folder: Path, text: str = SOURCE) -> CubinKernel:
    source, output = folder / "pipeline.sass", folder / "pipeline.cubin"
    source.write_text(text)
    assemble(source, output)
    return cubin.read(output).kernel()


def outcome(image: bytes, steps: int = STEPS) -> bytes:
    """What the kernel of a cubin writes, on the virtual GPU. Raises EmulationFault."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 8, count * steps).astype(np.float16) for count in (4096, 512))
    gpu = VirtualGpu(instruction_budget=100000)
    buffers = on_device(gpu, a, b, np.zeros(256 * 8, np.uint32))
    gpu.load(image).function("pipeline").launch((1, 1, 1), (256, 1, 1), [*buffers, np.int32(steps)])
    return fetch(gpu, buffers[-1], np.zeros(256 * 8, np.uint32)).tobytes()
