"""Small kernels as somebody writes them by hand in the MaxAs dialect, right as they stand, each with one fault to
plant: (name, threads, source, what to replace, by what, kind of the error, text of the instruction it must name)."""

LOOP = """--:-:1:-:2 S2R R8, SR_TID.X;
01:-:-:-:6 SHL R8, R8, 0x2;
--:-:-:-:1 MOV R9, c[0x0][0x140];
--:-:-:-:6 MOV R10, RZ;
"""
WARP = """--:-:1:-:2 S2R R0, SR_TID.X;
01:-:-:-:6 LOP.AND R1, R0, 0x1f;
--:-:-:-:6 SHL R2, R0, 0x2;
--:-:-:-:6 LOP.XOR R3, R2, 0x40;
"""
END = "--:-:-:-:5 EXIT;\n"

CASES: list[tuple[str, int, str, str, str, str, str]] = [
    ("one barrier for a group of loads", 64, """--:-:-:-:2 LDS R0, [RZ];
--:-:-:-:2 LDS R1, [RZ+0x4];
--:-:-:-:2 LDS R2, [RZ+0x8];
--:-:1:-:2 LDS R3, [RZ+0xc];
01:-:-:-:6 FADD R4, R0, R1;
--:-:-:-:6 FADD R4, R4, R2;
--:-:-:-:6 FADD R4, R4, R3;
""", "01:-:-:-:6 FADD R4, R0", "--:-:-:-:6 FADD R4, R0", "raw-barrier", "FADD R4, R0, R1"),
    ("the load with the barrier comes first", 64, """--:-:-:-:2 LDS R3, [RZ+0xc];
--:-:1:-:2 LDS R0, [RZ];
01:-:-:-:6 FADD R4, R0, R3;
""", "--:-:-:-:2 LDS R3, [RZ+0xc];\n--:-:1:-:2 LDS R0, [RZ];", "--:-:1:-:2 LDS R0, [RZ];\n--:-:-:-:2 LDS R3, [RZ+0xc];",
     "raw-barrier", "FADD R4, R0, R3"),
    ("one read barrier for a group of stores", 64, """--:-:-:-:2 STS [RZ], R0;
--:1:-:-:2 STS [RZ+0x4], R1;
01:-:-:-:1 MOV R0, RZ;
--:-:-:-:1 MOV R1, RZ;
""", "01:-:-:-:1 MOV R0", "--:-:-:-:1 MOV R0", "war", "MOV R0, RZ"),
    ("complementary guards of a load and a zero", 64, LOOP + """--:-:-:Y:d ISETP.LT.AND P0, PT, R8, c[0x0][0x144], PT;
--:-:1:-:1 @P0 LDG R0, [R8];
--:-:-:-:6 @!P0 MOV R0, RZ;
01:-:-:-:6 FADD R1, R0, 1.0;
""", "@!P0 MOV R0", "MOV R0", "waw", "MOV R0, RZ"),
    ("a branch over the use of a guarded load", 64, LOOP + """--:-:-:Y:d ISETP.LT.AND P0, PT, R8, c[0x0][0x144], PT;
--:-:1:-:2 @P0 LDG R0, [R8];
--:-:-:-:5 @P0 BRA USE;
--:-:-:-:6 MOV R0, RZ;
--:-:-:-:6 FADD R1, R0, 1.0;
--:-:-:-:5 EXIT;
USE:
01:-:-:-:6 FADD R1, R0, 2.0;
""", "5 @P0 BRA USE", "5 @!P0 BRA USE", "waw", "MOV R0, RZ"),
    ("a comparison and its opposite", 64, LOOP + """--:-:-:-:1 ISETP.LT.AND P0, PT, R8, c[0x0][0x144], PT;
--:-:-:Y:d ISETP.GE.AND P1, PT, R8, c[0x0][0x144], PT;
--:-:1:-:2 @P0 LDG R0, [R8];
--:-:-:-:6 @P1 MOV R0, RZ;
01:-:-:-:6 FADD R1, R0, 1.0;
""", "ISETP.GE.AND P1", "ISETP.NE.AND P1", "waw", "MOV R0, RZ"),
    ("both results of one comparison", 64, LOOP + """--:-:-:Y:d FSETP.GT.AND P0, P1, R8, c[0x0][0x144], PT;
--:-:1:-:2 @P0 LDG R0, [R8];
--:-:-:-:6 @P1 MOV R0, RZ;
01:-:-:-:6 FADD R1, R0, 1.0;
""", "@P1 MOV", "@P0 MOV", "waw", "MOV R0, RZ"),
    ("bounds of one counter", 64, LOOP + """--:-:-:-:1 ISETP.GT.AND P0, PT, R9, 0x10, PT;
--:-:-:Y:d ISETP.LT.AND P1, PT, R9, 0x8, PT;
--:-:1:-:2 @P0 LDG R0, [R8];
--:-:-:-:6 @P1 MOV R0, RZ;
01:-:-:-:6 FADD R1, R0, 1.0;
""", "R9, 0x8, PT", "R9, 0x18, PT", "waw", "MOV R0, RZ"),
    ("a counter that moved between two comparisons", 64, LOOP + """--:-:-:Y:d ISETP.GT.AND P0, PT, R9, 0x10, PT;
--:-:1:-:2 @P0 LDG R0, [R8];
--:-:-:-:6 IADD R9, R9, -0x8;
--:-:-:Y:d ISETP.LE.AND P0, PT, R9, 0x8, PT;
--:-:-:-:6 @P0 MOV R0, RZ;
01:-:-:-:6 FADD R1, R0, 1.0;
""", "IADD R9, R9, -0x8", "IADD R9, R9, -0x9", "waw", "MOV R0, RZ"),
    ("PSETP of two bounds", 64, LOOP + """--:-:-:-:1 ISETP.LT.AND P0, PT, R8, c[0x0][0x144], PT;
--:-:-:Y:d ISETP.LT.AND P1, PT, R9, c[0x0][0x8], PT;
--:-:-:Y:d PSETP.AND.AND P2, PT, P0, P1, PT;
--:-:1:-:2 @P2 LDG R0, [R8];
--:-:-:-:6 @!P0 MOV R0, RZ;
01:-:-:-:6 FADD R1, R0, 1.0;
""", "PSETP.AND.AND", "PSETP.OR.AND", "waw", "MOV R0, RZ"),
    ("ISETP chained by AND", 64, LOOP + """--:-:-:Y:d ISETP.LT.AND P0, PT, R8, c[0x0][0x144], PT;
--:-:-:Y:d ISETP.LT.AND P1, PT, R9, c[0x0][0x8], P0;
--:-:1:-:2 @P1 LDG R0, [R8];
--:-:-:-:6 @!P0 MOV R0, RZ;
01:-:-:-:6 FADD R1, R0, 1.0;
""", "c[0x0][0x8], P0", "c[0x0][0x8], PT", "waw", "MOV R0, RZ"),
    ("a double-buffered loop fetching one step ahead", 64, LOOP + """--:-:1:-:2 LDG R0, [R8];
LOOP:
--:-:-:-:6 IADD R9, R9, -0x8;
--:-:-:Y:d ISETP.GT.AND P0, PT, R9, 0x0, PT;
01:-:-:-:6 MOV R1, R0;
--:-:1:-:2 @P0 LDG R0, [R8];
--:-:-:-:6 FFMA R2, R1, R1, R2;
--:-:-:-:5 @P0 BRA LOOP;
--:-:-:-:6 MOV R0, R2;
--:-:-:-:6 FADD R1, R0, 1.0;
""", "2 @P0 LDG R0", "2 LDG R0", "waw", "MOV R0, R2"),
    ("a guarded prologue", 64, LOOP + """--:-:-:Y:d ISETP.GT.AND P0, PT, R9, 0x0, PT;
--:-:1:-:2 @P0 LDG R0, [R8];
--:-:-:-:5 @!P0 BRA DONE;
LOOP:
01:-:-:-:6 FFMA R2, R0, R0, R2;
--:-:-:-:6 IADD R9, R9, -0x1;
--:-:-:Y:d ISETP.GT.AND P0, PT, R9, 0x0, PT;
--:-:1:-:2 @P0 LDG R0, [R8];
--:-:-:-:5 @P0 BRA LOOP;
DONE:
--:-:-:-:6 MOV R0, R2;
--:-:-:-:6 FADD R0, R0, 1.0;
""", "-:2 @P0 LDG R0, [R8];\n--:-:-:-:5 @!P0", "-:2 LDG R0, [R8];\n--:-:-:-:5 @!P0", "waw", "MOV R0, R2"),
    ("a stall on one side of a branch only", 64, LOOP + """--:-:-:Y:d ISETP.GT.AND P0, PT, R9, 0x0, PT;
--:-:-:-:1 @P0 MOV R0, R9;
--:-:-:-:5 @!P0 BRA OTHER;
--:-:-:-:6 FADD R1, R0, 1.0;
--:-:-:-:5 EXIT;
OTHER:
--:-:-:-:2 NOP;
""", "1 @P0 MOV R0, R9;\n--:-:-:-:5", "0 @P0 MOV R0, R9;\n--:-:-:-:5", "raw-fixed", "FADD R1, R0, 1"),
    ("an exchange within each warp", 64, WARP + """--:-:-:-:2 STS [R2], R0;
--:-:1:-:2 LDS R4, [R3];
01:-:-:-:6 FADD R5, R4, 1.0;
""", "STS [R2], R0", "STS [R3+0x80], R0", "shared-race", "LDS R4, [R3]"),
    ("an exchange across warps", 64, WARP + """--:-:-:-:6 LOP.XOR R3, R2, 0x80;
--:-:-:-:2 STS [R2], R0;
--:-:-:-:5 BAR.SYNC 0x0;
--:-:1:-:2 LDS R4, [R3];
01:-:-:-:6 FADD R5, R4, 1.0;
""", "5 BAR.SYNC 0x0", "5 NOP", "shared-race", "LDS R4, [R3]"),
    ("an epilogue of two rows for each warp", 64, WARP + """--:-:-:-:6 SHL R5, R2, 0x1;
--:-:-:-:6 LOP.XOR R6, R5, 0x80;
--:-:-:-:2 STS [R5], R0;
--:-:-:-:2 STS [R5+0x4], R1;
--:-:-:-:5 BAR.SYNC 0x0;
--:1:-:-:2 STS [R5], R0;
--:1:-:-:2 STS [R5+0x4], R1;
01:-:2:-:2 LDS.64 R8, [R6];
02:-:-:-:6 FADD R10, R8, R9;
""", "--:1:-:-:2 STS [R5+0x4], R1;\n01:-:2:-:2 LDS.64 R8, [R6];",
     "01:-:2:-:2 LDS.64 R8, [R6];\n--:1:-:-:2 STS [R5+0x4], R1;", "shared-late", "STS [R5+0x4], R1"),
    ("half a warp stores, then the other", 32, WARP + """--:-:-:Y:d ISETP.LT.U32.AND P0, PT, R1, 0x10, PT;
--:-:-:-:2 @P0 STS [R2], R0;
--:-:-:-:2 @!P0 STS [R2], R1;
--:-:1:-:2 LDS R4, [R3];
01:-:-:-:6 FADD R5, R4, 1.0;
""", "--:-:-:-:2 @!P0 STS [R2], R1;\n--:-:1:-:2 LDS R4, [R3];",
     "--:-:1:-:2 LDS R4, [R3];\n--:-:-:-:2 @!P0 STS [R2], R1;",
     "shared-late", "@!P0 STS [R2], R1"),
    ("all threads store zero to one address", 64, WARP + """--:-:-:-:2 STS.128 [RZ+0x100], RZ;
--:-:1:-:2 LDS.128 R4, [RZ+0x100];
01:-:-:-:6 FADD R5, R4, 1.0;
""", "STS.128 [RZ+0x100], RZ", "STS.128 [R0+0x100], R4", "shared-race", "LDS.128 R4"),
    ("a tile used again behind a barrier", 64, WARP + """--:-:-:-:6 LOP.XOR R3, R2, 0x80;
--:-:-:-:2 STS [R2], R0;
--:-:-:-:5 BAR.SYNC 0x0;
--:-:1:-:2 LDS R4, [R3];
01:-:-:-:6 FADD R5, R4, 1.0;
--:-:-:-:5 BAR.SYNC 0x0;
--:-:-:-:2 STS [R2], R5;
""", "R5, R4, 1.0;\n--:-:-:-:5 BAR.SYNC 0x0", "R5, R4, 1.0;\n--:-:-:-:5 NOP", "shared-reuse", "STS [R2], R5"),
    ("conversion behind its wait", 64, """--:-:1:-:2 I2F.F32.S32 R1, R0;
01:-:-:-:6 FADD R2, R1, 1.0;
""", "01:-", "--:-", "raw-barrier", "FADD R2, R1"),
    ("addresses made in time", 64, """--:-:-:-:6 IADD R2.CC, R0, 0x4;
--:-:-:-:2 IADD.X R3, R1, RZ;
--:-:1:-:2 LDG.E R4, [R2];
01:-:-:-:6 FADD R5, R4, 1.0;
""", "-:6 IADD R2.CC", "-:5 IADD R2.CC", "raw-carry", "IADD.X R3"),
]
