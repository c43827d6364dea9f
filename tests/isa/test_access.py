"""Which registers, predicates and carry each instruction family reads and writes: hazards, emulation and scheduling
stand on it. The list is written by hand from the meaning of the instructions; the corpus then confirms the whole."""

import pytest

from maxdnn import cubin
from maxdnn.build.assemble import assemble
from maxdnn.isa import Instruction
from tests.corpus import compiler

HEADER = "# Kernel: k\n# Arch: sm_61\n# SharedSize: 0\n"

# source text | registers read | registers written | other effects: P<n> read, >P<n> written, CC read, >CC written
EXPECTED = """
FADD R1, R2, R3                          | 2 3       | 1         |
@P3 FFMA R1, R2, -R3, R4                 | 2 3 4     | 1         | P3
FFMA R1, R2, c[0x0][0x140], R4           | 2 4       | 1         |
FFMA R1, R2, R4, c[0x0][0x140]           | 2 4       | 1         |
FFMA32I R1, R2, 1.5, R1                  | 1 2       | 1         |
FSETP.LT.AND P1, P2, R4, R5, !P0         | 4 5       |           | P0 >P1 >P2
FSET.BF.GT.AND R1, R4, R5, P6            | 4 5       | 1         | P6
FMNMX R1, R2, R3, !PT                    | 2 3       | 1         |
FCMP.LT R1, R2, R3, R4                   | 2 3 4     | 1         |
FCHK.DIVIDE P0, R2, R3                   | 2 3       |           | >P0
MUFU.RCP R1, R2                          | 2         | 1         |
MUFU.RCP64H R1, R2                       | 2         | 1         |
RRO.SINCOS R1, R2                        | 2         | 1         |
DADD R2, R4, R6                          | 4 5 6 7   | 2 3       |
DFMA R2, R4, R6, R8                      | 4 5 6 7 8 9 | 2 3     |
DFMA R2, R4, c[0x0][0x140], R8           | 4 5 8 9   | 2 3       |
DMNMX R2, R4, R6, P0                     | 4 5 6 7   | 2 3       | P0
DSETP.GT.AND P0, PT, R4, R6, PT          | 4 5 6 7   |           | >P0
DSET.BF.GT.AND R1, R4, R6, PT            | 4 5 6 7   | 1         |
IADD R1.CC, R2, R3                       | 2 3       | 1         | >CC
IADD.X R1, R2, R3                        | 2 3       | 1         | CC
IADD.PO R1, R2, R3                       | 2 3       | 1         |
IADD3.RS R1, R2, R3, R4                  | 2 3 4     | 1         |
IADD3.X R1.CC, R2, R3, R4                | 2 3 4     | 1         | CC >CC
ISCADD R1, R2, R3, 0x4                   | 2 3       | 1         |
XMAD.PSL.CBCC R1, R2.H1, R3.H1, R4       | 2 3 4     | 1         |
XMAD.MRG R1, R2, c[0x0] [0x140].H1, RZ   | 2         | 1         |
IMAD R1, R2, R3, R4                      | 2 3 4     | 1         |
ISETP.LT.X.AND P0, PT, R2, R3, PT        | 2 3       |           | CC >P0
ICMP.GE R1, R2, R3, R4                   | 2 3 4     | 1         |
IMNMX.XHI R1.CC, R2, R3, PT              | 2 3       | 1         | >CC
IMNMX.U32.XLO R1, R2, R3, PT             | 2 3       | 1         | CC
IMNMX R1, R2, R3, P2                     | 2 3       | 1         | P2
SEL R1, R2, R3, !P4                      | 2 3       | 1         | P4
LEA R1.CC, R2, R3, 0x2                   | 2 3       | 1         | >CC
LEA P1, R1, R2, R3, 0x2                  | 2 3       | 1         | >P1
LEA.HI.X R1, R2, R3, R4, 0x2             | 2 3 4     | 1         | CC
LOP.AND.NZ P0, RZ, R2, R3                | 2 3       |           | >P0
LOP3.LUT R1, R2, R3, R4, 0x96            | 2 3 4     | 1         |
LOP32I.AND R1, R2, 0xff                  | 2         | 1         |
SHF.L.U64 R1, R2, R3, R4                 | 2 3 4     | 1         |
SHF.R.W R1, R2, 0x4, R4                  | 2 4       | 1         |
SHL.W R1, R2, R3                         | 2 3       | 1         |
SHR.U32.X R1, R2, 0x1                    | 2         | 1         | CC
BFE.U32 R1, R2, R3                       | 2 3       | 1         |
BFI R1, R2, R3, R4                       | 2 3 4     | 1         |
FLO.U32 R1, R2                           | 2         | 1         |
POPC R1, R2                              | 2         | 1         |
PRMT R1, R2, R3, R4                      | 2 3 4     | 1         |
MOV R1, R2                               | 2         | 1         |
S2R R1, SR_TID.X                         |           | 1         |
CS2R R1, SR_CLOCKLO                      |           | 1         |
F2F.F32.F64 R1, R2                       | 2 3       | 1         |
F2F.F64.F32 R2, R1                       | 1         | 2 3       |
F2F.F64.F64.TRUNC R2, R4                 | 4 5       | 2 3       |
F2F.F64.F16 R2, R4.H1                    | 4         | 2 3       |
F2I.S64.F64.TRUNC R2, R4                 | 4 5       | 2 3       |
F2I.U32.F32.TRUNC R1, R2                 | 2         | 1         |
I2F.F64.S32 R2, R1                       | 1         | 2 3       |
I2F.F32.U64 R1, R2                       | 2 3       | 1         |
I2F.F64.U8 R2, R4.B3                     | 4         | 2 3       |
I2I.S8.S32.SAT R1, R2                    | 2         | 1         |
LDG.E R1, [R2]                           | 2 3       | 1         |
LDG R1, [R2]                             | 2         | 1         |
LDG.E.128 R4, [R2+0x10]                  | 2 3       | 4 5 6 7   |
LDG.E.CI.U.128 R4, [R2]                  | 2 3       | 4 5 6 7   |
LDG.E.U8 R4, [R2]                        | 2 3       | 4         |
STG.E.64 [R2], R4                        | 2 3 4 5   |           |
STG.E.128 [R2], R4                       | 2 3 4 5 6 7 |         |
ST.E.128 [R2], R4, P1                    | 2 3 4 5 6 7 |         | P1
LD.E.64 R4, [R2], P0                     | 2 3       | 4 5       | P0
LDS.U.128 R4, [R2]                       | 2         | 4 5 6 7   |
LDS.64 R4, [0x10]                        |           | 4 5       |
STS.128 [R2], R4                         | 2 4 5 6 7 |           |
LDL.64 R4, [R1]                          | 1         | 4 5       |
STL.128 [R1], R4                         | 1 4 5 6 7 |           |
LDC.64 R4, c[0x3][R2]                    | 2         | 4 5       |
ATOM.E.ADD R1, [R2], R4                  | 2 3 4     | 1         |
ATOM.E.EXCH.U64 R6, [R2], R4             | 2 3 4 5   | 6 7       |
ATOM.E.CAS R1, [R2], R4, R5              | 2 3 4 5   | 1         |
ATOM.E.CAS.64 R8, [R2], R4, R6           | 2 3 4 5 6 7 | 8 9     |
ATOMS.ADD R1, [R2], R4                   | 2 4       | 1         |
ATOMS.MIN.S64 R6, [R2], R4               | 2 4 5     | 6 7       |
ATOMS.CAS.64 R8, [R2], R4, R6            | 2 4 5 6 7 | 8 9       |
RED.E.ADD [R2], R4                       | 2 3 4     |           |
RED.E.ADD.U64 [R2], R4                   | 2 3 4 5   |           |
SHFL.BFLY PT, R1, R2, 0x1, 0x1f          | 2         | 1         |
SHFL.IDX P3, R1, R2, R4, R5              | 2 4 5     | 1         | >P3
VOTE.ANY R1, P1, !P2                     |           | 1         | P2 >P1
BAR.SYNC R1, R2                          | 1 2       |           |
BAR.SYNC 0x0                             |           |           |
BAR.RED.POPC 0x0, 0x40, P2               |           |           | P2
B2R.RESULT R1, P2                        |           | 1         | >P2
MEMBAR.CTA                               |           |           |
DEPBAR.LE SB0, 0x1                       |           |           |
PSETP.AND.OR P0, P1, P2, P3, P4          |           |           | P2 P3 P4 >P0 >P1
PSET.BF.AND.AND R1, P2, P3, PT           |           | 1         | P2 P3
CSETP.NE.AND P0, PT, CC, PT              |           |           | CC >P0
P2R R1, PR, R2, 0x5                      | 2         | 1         | P0 P2
P2R R1, PR, RZ, R3                       | 3         | 1         | P0 P1 P2 P3 P4 P5 P6
R2P PR, R1, 0x7f                         | 1         |           | >P0 >P1 >P2 >P3 >P4 >P5 >P6
R2P PR, R1, 0x6                          | 1         |           | >P1 >P2
R2P CC, R1, 0xf                          | 1         |           | >CC
P2R R1, CC, RZ, 0xf                      |           | 1         | CC
EXIT CC.LT                               |           |           | CC
@!P1 EXIT                                |           |           | P1
NOP                                      |           |           |
TLD.B.LZ.T R4, R2, R3, 0x0, 1D, 0xf      | 2 3       | 4 5 6 7   |
TLD.LL.T R4, R2, R8, 0x52, 2D, 0x9       | 2 3 8     | 4 5       |
TLD.LZ.AOFFI.P R4, R8, R2, 0x52, ARRAY_2D, 0x1 | 2 8 9 10 | 4    |
TLDS.LZ.T R4, R2, R0, 0x52, 1D, RGBA     | 0         | 2 3 4 5   |
TLDS.LZ.P R4, R2, R0, R1, 0x52, 2D, RGB  | 0 1       | 2 3 4     |
TLDS.LL.T RZ, R2, R0, R6, 0x52, 2D, RA   | 0 1 6     | 2 3       |
TLDS.LZ.T RZ, R2, R0, R6, 0x52, ARRAY_2D, R | 0 6 7  | 2         |
TEXS.T R4, R2, R0, R1, 0x52, 2D, RGBA    | 0 1       | 2 3 4 5   |
TEXS.LL.T RZ, R2, R0, R6, 0x52, 2D, G    | 0 1 6     | 2         |
TEX.T R4, R8, RZ, 0x52, 3D, 0xf          | 8 9 10    | 4 5 6 7   |
TEX.LL.DC.T R4, R8, R2, 0x52, ARRAY_CUBE, 0x1 | 2 3 8 9 10 11 | 4 |
TEX.B.T R4, R8, R2, 0x0, CUBE, 0x7       | 2 8 9 10  | 4 5 6     |
HFMA2 R1, R2, R3.H0_H0, R4               | 2 3 4     | 1         |
HADD2 R1, R2, 1, 2                       | 2         | 1         |
HSETP2.LT.AND P0, P1, R2, R3, P2         | 2 3       |           | P2 >P0 >P1
VADD.U8.U8.ACC R1, R2.B1, R3.B2, R4      | 2 3 4     | 1         |
VABSDIFF4.U8.U8.ACC R1, R2, R3, R4       | 2 3 4     | 1         |
IDP.4A.U8.U8 R1, R2, R3, R4              | 2 3 4     | 1         |
"""
CASES = [[part.strip() for part in line.split("|")] for line in EXPECTED.strip().splitlines()]


def _effects(inst: Instruction) -> str:
    words = [f"P{p}" for p in sorted(inst.pred_reads())] + ["CC"] * inst.cc_reads()
    return " ".join(words + [f">P{p}" for p in sorted(inst.pred_writes())] + [">CC"] * inst.cc_writes())


@pytest.fixture(scope="module")
def instructions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Instruction, ...]:
    folder = tmp_path_factory.mktemp("access")
    banks = "# ConstantSize: bank 3 65536\n"
    lines = "".join(f"--:-:-:-:1 {text};\n" for text, *_ in CASES)
    (folder / "k.sass").write_text(banks + HEADER + lines + "--:-:-:-:f EXIT;\n")
    assemble(folder / "k.sass", folder / "k.cubin", no_reuse=True)
    return cubin.read(folder / "k.cubin").kernel().instructions


@pytest.mark.parametrize("index", range(len(CASES)), ids=[case[0] for case in CASES])
def test_an_instruction_touches_what_its_meaning_says(index: int, instructions: tuple[Instruction, ...]) -> None:
    inst, (_, reads, writes, effects) = instructions[index], CASES[index]
    assert sorted(inst.reads()) == [int(r) for r in reads.split()], inst.text()
    assert sorted(inst.writes()) == [int(r) for r in writes.split()], inst.text()
    assert _effects(inst) == effects, inst.text()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("source", compiler.sources())
def test_compiled_kernels_read_only_registers_they_write(source: str) -> None:
    """A count too high shows as a register read but never written, in any kernel the vendor compiled."""
    for kernel in cubin.read(compiler.compile_source(source)).kernels.values():
        written = frozenset().union(*(inst.writes() for inst in kernel.instructions))
        for inst in kernel.instructions:
            assert inst.reads() <= written, f"{kernel.name} 0x{inst.address:x} {inst.text()}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("source", compiler.sources())
def test_compiled_kernels_do_not_overwrite_results_nobody_read(source: str) -> None:
    """A count too low shows as a result that is overwritten unread. The compiler leaves a few parts of wide results
    unread, never a result of one register."""
    for kernel in cubin.read(compiler.compile_source(source)).kernels.values():
        pending: dict[int, Instruction] = {}
        targets = {op.value & ~31 for inst in kernel.instructions for op in inst.operands if op.type == "rel_target"}
        for inst in kernel.instructions:
            if inst.cls.name == "flow" or inst.address & ~31 in targets:
                pending.clear()
            for register in inst.reads():
                pending.pop(register, None)
            for register in inst.writes():
                lost = pending.get(register)
                unread = lost is not None and not str(inst.guard) and len(lost.writes()) == 1
                assert not unread, f"{kernel.name} 0x{inst.address:x} {inst.text()} overwrites {lost}"
                pending[register] = inst
