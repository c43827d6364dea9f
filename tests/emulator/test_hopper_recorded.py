"""What an H200 gave for instructions of sm_90 with marks, predicates and NaN that compilers hardly make."""

import functools
import pathlib
import tempfile
from typing import Any

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from tests.maxas import tool

CONSTANTS = (0x12345678, 0x80000001, 0x3FC00000, 0xFF)  # from c[0x0][0x220] on

# Instruction -> "x y: R10 R11 P2P3", x in R4 and UR8, y in R5 and UR9 (so the pair is a double), 1.0 in R7, P1: y < 0,
# P4: x < y. Before it R10 is 0x55, R11 0x66, P2 x != y, P3 x == y; a result in UR12 and UP2 is moved there.
RECORDED = {
    "DADD R10, R4, -R4": ("0 7fff8000: 0 7fff8000 10", "796ac378 7ff3965d: 796ac378 7ffb965d 10"),
    "DADD.RM R10, |R4|, |R4|": ("0 7fff8000: 0 7fff8000 10", "796ac378 7ff3965d: 796ac378 7ffb965d 10"),
    "DMUL R10, -R4, R4": ("0 7fff8000: 0 7fff8000 10", "796ac378 7ff3965d: 796ac378 7ffb965d 10"),
    "DFMA R10, -R4, R4, R4": ("0 7fff8000: 0 7fff8000 10", "796ac378 7ff3965d: 796ac378 7ffb965d 10"),
    "DSETP.MIN.XOR P2, P3, -R4, -R4, !P4": ("80000000 0: 55 66 10", "f829a7b 5a48dc3d: 55 66 10"),
    "DSETP.MIN.OR P2, P3, |R4|, |R4|, !P1": ("0 0: 55 66 10", "f6bca017 a9664f4d: 55 66 10"),
    "DSETP.MAX.OR P2, P3, R4, -UR8, P1": ("0 80000000: 55 66 10",),
    "F2F.FTZ.F16.F32.RZ R10, R4": ("371b7b1b 4a897d99: 0 66 10", "b7013090 e442a1fa: 8000 66 10"),
    "F2F.FTZ.F16.F32.RM R10, R4": ("371b7b1b 4a897d99: 0 66 10", "b202ff84 8ba8eea: 8000 66 10"),
    "F2F.FTZ.F16.F64 R10, R4": ("0 7fff8000: 7fe0 66 10", "4ff3320 bef535eb: 8000 66 10"),
    "F2F.F32.F64 R10, |R4|": ("0 7fff8000: 7ffc0000 66 10", "796ac378 7ff3965d: 7fdcb2eb 66 10"),
    "F2F.FTZ.F32.F64.RM R10, -|R4|": ("0 7fff8000: 7ffc0000 66 10", "796ac378 7ff3965d: 7fdcb2eb 66 10"),
    "F2F.FTZ.F64.F32.RP R10, |R4|": ("ffff0000 0: 0 ffffe000 10", "ff9a1800 b9f28041: 0 fffb4300 10"),
    "F2I.FTZ.U32.F64.CEIL R10, R4": ("1 0: 0 66 10", "6b26 8696: 0 66 10"),
    "F2I.FTZ.S8.F64.CEIL R10, R4": ("1 0: 0 66 10", "6b26 8696: 0 66 10"),
    "FSEL.FTZ R10, -R4, R4, PT": ("1 0: 80000000 66 10", "7e0041 2cb6014d: 80000000 66 10"),
    "FSEL.FTZ R10, |RZ|, -R5, !P4": ("0 1: 80000000 66 10", "f33037ea 3258d7: 80000000 66 10"),
    "FSEL.FTZ R10, R4, c[0x0][0x224], P4": ("0 0: 80000000 66 01", "f6bca017 a9664f4d: 80000000 66 10"),
    "FSEL.FTZ R10, -|R4|, |UR9|, !P4": ("1 0: 80000000 66 10",),
    "IMAD.WIDE.U32 R10, P2, R7, c[0x0][0x220], -R4": ("0 0: c4000000 483fb72 11",),
    "IMAD.WIDE R10, P2, R7, R5, -R4": ("0 0: 0 0 11",),
    "IMAD.HI R10, P2, R7, R4, -R4": ("0 0: 0 66 11",),
    "UIMAD.WIDE UR12, UP2, UR9, UR9, -UR8": ("0 0: 0 0 11",),
    "LEA.HI R10, P2, -R4, R7, R5, 0x13": ("0 0: 3f800000 66 11", "f6bca017 a9664f4d: c5104a1b 66 00"),
    "LEA.HI.SX32 R10, P2, -R4, 0x1, 0x1c": ("0 0: 1 66 11", "f6bca017 a9664f4d: 943600 66 00"),
    "ULEA.HI UR12, UP2, -UR8, UR8, UR9, 0x0": ("0 0: 0 88 11",),
    "VIADD.16x2 R10, R4, -R5": ("0 1: ffff 66 10", "f6bca017 a9664f4d: 4d5650ca 66 10"),
    "VIADD.16x2 R10, R4, -c[0x0][0x22c]": ("0 0: ff01 66 01", "f6bca017 a9664f4d: f6bc9f18 66 10"),
    "IDP.4A.S8.U8 R10, R4, R5, -R5": ("0 1: ffffffff 66 10", "f6bca017 a9664f4d: 5699784c 66 10"),
    "IDP.4A.U8.U8 R10, R5, c[0x0][0x224], -R7": ("0 0: c0800000 66 01", "f6bca017 a9664f4d: c08054cd 66 10"),
    "VABSDIFF R10, P2, R4, R5, 0x81d99fbf": ("1 0: 81d99fc0 66 00", "f6bca017 a9664f4d: cf2ff089 66 00"),
    "VABSDIFF.U32 R10, P2, R5, R4, c[0x0][0x224]": ("1 0: 80000002 66 00", "f6bca017 a9664f4d: cd5650cb 66 00"),
    "VABSDIFF4 R10, P2, R4, RZ, 0xca0": ("1 0: 1 66 00", "f6bca017 a9664f4d: a446017 66 00"),
    "VABSDIFF4.ACC R10, P2, R5, R7, 0x7fffffff": ("1 0: 800000be 66 00", "f6bca017 a9664f4d: 80000217 66 00"),
    "F2IP.S8.F32.TRUNC R10, R4, R4, RZ": ("7fff8000 0: 8080 66 10", "7fdd8da1 2eb3b7a5: 8080 66 10"),
    "F2IP.S8.F32.TRUNC.RELU R10, R4, R7, R5": ("ff800000 0: 1 66 10", "f6bca017 a9664f4d: 4f4d0001 66 10"),
    "F2IP.S8.F32.TRUNC R10, R5, RZ, R4.H1": ("1 0: 0 66 10", "f6bca017 a9664f4d: f6bc0000 66 10"),
    "F2IP.S8.F32.TRUNC R10, R4, R4, R4": ("7fff8000 0: 80008080 66 10", "7fdd8da1 2eb3b7a5: 8da18080 66 10"),
    "FCHK P2, R4, c[0x0][0x228]": ("fe9a068b eb464ae1: 55 66 00", "ce0d4f7 25a303cf: 55 66 00"),
    "FCHK P2, -|R5|, -0.011565798893570899963": ("8688b04c 7b050492: 55 66 00", "e80bf36f fa9928d8: 55 66 00"),
    "FCHK P2, -R4, 1.554625717273534476e-36": ("42ce3cf3 45e8a0bd: 55 66 00", "ce0d4f7 25a303cf: 55 66 00"),
    "FCHK P2, -|R5|, -0.00038508718716911971569": ("ea041e97 f80b90f2: 55 66 00", "e7283b5c f8595e75: 55 66 00"),
    "FCHK P2, |R4|, 4.99479224320000000000e+10": ("1304ee28 7828fed0: 55 66 00", "937f2ce1 c363ce55: 55 66 00"),
}

_HEAD = """# Kernel: recorded_{number}
# Arch: sm_90
# ReqThreads: 32
# Param: ptr out           four words
# Param: ptr pair          x, y
# Param: u32 k0
# Param: u32 k1
# Param: u32 k2
# Param: u32 k3
--:-:3:-:8      LDC.64 R2, param_pair[0];
--:-:4:-:2      LDC.64 R12, param_out[0];
--:-:-:-:9      ULDC.64 UR4, c[0x0][0x208];
0c:-:1:-:2      LDG.E.64 R4, desc[UR4][R2.64];
01:-:-:Y:d      IMAD.MOV.U32 R7, RZ, RZ, 0x3f800000;
"""
_BEFORE = ("ISETP.LT.AND P1, PT, R5, RZ, PT", "ISETP.LT.AND P4, PT, R4, R5, PT", "R2UR UR8, R4", "R2UR UR9, R5",
           "NOP", "NOP", "UMOV UR13, 0x88", "IMAD.MOV.U32 R10, RZ, RZ, 0x55", "IMAD.MOV.U32 R11, RZ, RZ, 0x66",
           "ISETP.NE.AND P2, PT, R4, R5, PT", "ISETP.EQ.AND P3, PT, R4, R5, PT")
_MOVED = ("MOV R10, UR12", "MOV R11, UR13", "PLOP3.LUT P2, PT, PT, PT, UP2, 0x80, 0x0")
_AFTER = ("IMAD.MOV.U32 R16, RZ, RZ, R10", "IMAD.MOV.U32 R17, RZ, RZ, R11", "SEL R18, R7, RZ, P2",
          "SEL R19, R7, RZ, P3", "STG.E.128 desc[UR4][R12.64], R16", "EXIT")


def _lines(*texts: str) -> str:
    return "".join(f"--:-:-:Y:f      {text};\n" for text in texts)


def _kernel(number: int, text: str) -> str:
    moved = _MOVED if "UR12" in text else ()
    slow = text[0] == "D" or text.startswith(("F2F.", "F2I.", "FCHK"))
    line = f"--:-:{'1:-:2' if slow else '-:Y:f'}      {text};\n{'01' if slow else '--'}:-:-:Y:f      NOP;\n"
    return _HEAD.format(number=number) + _lines(*_BEFORE) + line + _lines(*moved, *_AFTER)


@functools.cache
def _module() -> tuple[VirtualGpu, Any]:
    gpu = VirtualGpu()
    with tempfile.TemporaryDirectory() as folder:
        source = "".join(_kernel(number, text) for number, text in enumerate(RECORDED))
        return gpu, gpu.load(tool.assemble(pathlib.Path(folder), source, "-n", "-w"))


@pytest.mark.parametrize("text", RECORDED)
def test_an_h200_gave_the_same(text: str) -> None:
    gpu, module = _module()
    source, out = gpu.alloc(8), gpu.alloc(16)
    for record in RECORDED[text]:
        pair, _, wanted = record.partition(": ")
        gpu.upload(source, np.array([int(word, 16) for word in pair.split()], np.uint32))
        kernel = module.function(f"recorded_{list(RECORDED).index(text)}")
        kernel.launch((1, 1, 1), (32, 1, 1), [out, source, *map(np.uint32, CONSTANTS)])
        gpu.synchronize()
        found = np.empty(4, np.uint32)
        gpu.download(out, found)
        assert f"{found[0]:x} {found[1]:x} {int(found[2] > 0)}{int(found[3] > 0)}" == wanted, record
