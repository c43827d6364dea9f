"""Wrong sources: each is refused with file, line and what is wrong; exit status 1; no output file appears."""

from pathlib import Path

import pytest

from tests.maxas import tool

OK = "--:-:-:-:1      "
HEADER = "# Kernel: k\n# Arch: sm_52\n# Params(1):\n#\t0:0x140:8:0\n"
END = f"{OK}EXIT;\n"


def _kernel(body: str) -> str:
    return HEADER + body + "\n" + END


def _inst(text: str) -> str:
    return _kernel(OK + text)


# what is wrong -> (source, line of the complaint, words of the complaint)
CASES: dict[str, tuple[str, int, str]] = {
    "unknown mnemonic": (_inst("FMAA R0, R1, R2, R3;"), 5, "unknown instruction 'FMAA'; did you mean FFMA?"),
    "mnemonic like nothing": (_inst("QWERTYUIOP R0;"), 5, "unknown instruction 'QWERTYUIOP'"),
    "unknown modifier": (_inst("FFMA.BIG R0, R1, R2, R3;"), 5, "FFMA has no form with '.BIG'; it is written FFMA["),
    "modifier of another row": (_inst("IADD.FTZ R0, R1, R2;"), 5, "IADD has no form with '.FTZ'"),
    "form not encodable": (
        _inst("FFMA R0, c[0x0][0x140], R2, R3;"), 5,
        "operand 2: a register is wanted; its forms are FFMA R, R, R, R |"),
    "store to a constant": (_inst("STG.E c[0x0][0x140], R2;"), 5, "operand 1: an address [R+offset] is wanted"),
    "too few operands": (_inst("IADD R0, R1;"), 5, "too few operands (2); its forms are IADD"),
    "missing operand of an instruction with many forms": (
        _inst("FFMA R1, R2, R3;"), 5, "FFMA: too few operands (3); its forms are FFMA R, R, R, R |"),
    "missing operand where an immediate may stand": (_inst("IMNMX R0, R1, 0x1;"), 5, "IMNMX: too few operands (3)"),
    "too many operands": (_inst("MOV R0, R1, 0xf, R2, R3;"), 5, "too many operands"),
    "integer immediate out of range": (
        _inst("IADD R0, R1, 0x80000;"), 5,
        "immediate 0x80000 is out of range -0x80000..0x7ffff (IADD32I takes 32 bits)"),
    "negative immediate out of range": (_inst("IADD R0, R1, -0x80001;"), 5, "immediate -0x80001 is out of range"),
    "shift out of range": (_inst("ISCADD R0, R1, R2, 0x20;"), 5, "immediate 0x20 is out of range 0x0..0x1f"),
    "32-bit immediate out of range": (_inst("MOV32I R0, 0x100000000;"), 5, "immediate 0x100000000 is out of range"),
    "immediate beyond 64 bits": (_inst("MOV32I R0, 0x12345678123456789;"), 5, "does not fit 64 bits"),
    "float beyond range": (_inst("FADD R0, R1, 1e99;"), 5, "'1e99' does not fit a 32-bit float"),
    "address offset out of range": (_inst("LDG.E R0, [R2+0x800000];"), 5, "offset 0x800000 is out of range"),
    "shared atomic offset not scaled": (_inst("ATOMS.ADD R0, [R1+0x2], R2;"), 5, "offset must be a multiple of 4"),
    "constant offset misaligned": (_inst("MOV R0, c[0x0][0x141];"), 5, "constant offset 0x141 must be a multiple of 4"),
    "constant bank out of range": (_inst("MOV R0, c[0x12][0x0];"), 5, "constant bank 18 is out of range 0..17"),
    "undefined parameter": (
        _inst("MOV R0, c[0x0][0x148];"), 5,
        "c[0x0][0x148] is undefined: the parameters end at 0x148"),
    "undeclared constant": (_inst("MOV R0, c[0x3][0x0];"), 5, "c[0x3][0x0] is undefined: bank 3 has 0 bytes"),
    "undefined register": (_inst("MOV R0, track;"), 5, "operand 2: undefined register 'track'"),
    "undefined address register": (_inst("LDG.E R0, [track+0x10];"), 5, "undefined register 'track'"),
    "register beyond R254": (_inst("MOV R255, R0;"), 5, "'R255' is not a register (R0..R254, RZ)"),
    "vector beyond R254": (
        _inst("LDG.E.128 R252, [R2];"), 5,
        "needs 4 registers from R252 on: more than 255 registers"),
    "predicate beyond P6": (_inst("ISETP.EQ.AND P7, PT, R0, R1, PT;"), 5, "'P7' is not a predicate (P0..P6, PT)"),
    "guard beyond P6": (_inst("@P7 MOV R0, R1;"), 5, "guard '@P7' must be @P0..@P6"),
    "guard where none can be": (_inst("@P0 SSY 0x8;"), 5, "SSY takes no guard"),
    "undefined label": (_inst("BRA NOWHERE;"), 5, "undefined label 'NOWHERE'"),
    "label too far": (_inst("BRA 0x2000000;"), 5, "label '0x2000000' is too far: 33554416 bytes, at most 8388607"),
    "label twice": (_kernel(f"HERE:\n{OK}NOP;\nHERE:"), 7, "label 'HERE' defined twice"),
    "unknown special register": (
        _inst("S2R R0, SR_TIDX;"), 5,
        "unknown special register 'SR_TIDX'; did you mean SR_TID"),
    "register name twice": (
        _kernel("<REGISTER_MAPPING>\n0 : a\n1 : a\n</REGISTER_MAPPING>"), 7,
        "register 'a' defined twice, first at"),
    "more than 255 registers": (
        _kernel("<REGISTER_MAPPING>\n0-255 : a<0-255>\n</REGISTER_MAPPING>"), 6,
        "beyond R254: more than 255 registers"),
    "more names than registers": (
        _kernel("<REGISTER_MAPPING>\n0-2 : a<0-3>\n</REGISTER_MAPPING>"), 6,
        "4 names for 3 registers"),
    "pool too small": (
        _kernel("<REGISTER_MAPPING>\n0-1 ~ a, b, c\n</REGISTER_MAPPING>"), 6,
        "3 names for a pool of 2 registers"),
    "bank of a pool used up": (
        _kernel("<REGISTER_MAPPING>\n0-4 ~ a[1], b[1]\n</REGISTER_MAPPING>"), 6,
        "no register of bank 1 left in the pool for 'b'"),
    "mapping line without separator": (
        _kernel("<REGISTER_MAPPING>\n0-2 a, b\n</REGISTER_MAPPING>"), 6,
        "'numbers : names'"),
    "register range backwards": (
        _kernel("<REGISTER_MAPPING>\n4-2 : a\n</REGISTER_MAPPING>"), 6,
        "range 4-2 runs backwards"),
    "machine name in mapping": (
        _kernel("<REGISTER_MAPPING>\n4 : R7\n</REGISTER_MAPPING>"), 6,
        "'R7' is a name of the machine's own"),
    "control code with bad wait mask": (
        _kernel("40:-:-:-:1      MOV R0, R1;"), 5,
        "control code '40:-:-:-:1' malformed: wait '40'"),
    "control code with barrier 7": (_kernel("--:7:-:-:1      MOV R0, R1;"), 5, "read barrier '7' must be - or 1..6"),
    "control code with bad write barrier": (
        _kernel("--:-:0:-:1      LDG.E R0, [R2];"), 5,
        "write barrier '0' must be - or 1..6"),
    "control code with bad yield": (_kernel("--:-:-:N:1      MOV R0, R1;"), 5, "yield 'N' must be - or Y"),
    "control code with bad stall": (_kernel("--:-:-:-:g      MOV R0, R1;"), 5, "stall 'g' must be one hex digit"),
    "control code of four parts": (_kernel("--:-:-:1        MOV R0, R1;"), 5, "control code malformed"),
    "no control code": (
        _kernel("MOV R0, R1;"), 5,
        "neither an instruction (control code first), a label nor a block mark"),
    "no semicolon": (_inst("MOV R0, R1"), 5, "instruction does not end with ';'"),
    "write barrier on a store": (_kernel("--:-:1:-:1      STG.E [R2], R0;"), 5, "a write barrier on a store"),
    "write barrier on a reduction": (_kernel("--:-:2:-:1      RED.E.ADD [R2], R0;"), 5, "a write barrier on a store"),
    "block not closed": (_kernel("<REGISTER_MAPPING>\n0 : a"), 5, "<REGISTER_MAPPING> is not closed"),
    "schedule block not closed": (_kernel(f"<SCHEDULE_BLOCK>\n{OK}NOP;"), 5, "<SCHEDULE_BLOCK> is not closed"),
    "label in a schedule block": (
        _kernel("<SCHEDULE_BLOCK>\nHERE:\n</SCHEDULE_BLOCK>"), 6,
        "no labels inside <SCHEDULE_BLOCK>"),
    "ordered outside a schedule block": (
        _kernel("<ORDERED>\n</ORDERED>"), 5,
        "<ORDERED> belongs inside <SCHEDULE_BLOCK>"),
    "macro outside a schedule block": (_inst("XMAD.LO2 R0, R1, R2, RZ;"), 5, "XMAD.LO2 is a macro of schedule blocks"),
    "macro with one operand too few": (
        _kernel(f"<SCHEDULE_BLOCK>\n{OK}XMAD.LO R0, R1, R2, RZ;\n</SCHEDULE_BLOCK>"), 6,
        "XMAD.LO: 5 operands wanted, 4 given"),
    "missing include": (_kernel('<INCLUDE file="nothing.inc"/>'), 5, "INCLUDE: no file 'nothing.inc'"),
    "embedded Perl that dies": (
        _kernel("<CODE>\n  die 'no such luck';\n</CODE>"), 5,
        "embedded Perl failed: no such luck at"),
    "embedded Perl that does not parse": (_kernel("[+ 1 + +]"), 5, "embedded Perl failed: syntax error"),
    "expression that divides by zero": (_inst("IADD R0, R1, 4x<1/0>;"), 5, "cannot be computed"),
    "half-precision on sm_52": (_inst("HADD2 R0, R1, R2;"), 5, "needs sm_53 or later, this kernel is for sm_52"),
    "reuse where there is no cache": (_inst("LDG.E R0, [R2.reuse];"), 5, "LDG.E: operand 2"),
    "both operands negated": (_inst("IADD R0, -R1, -R2;"), 5, "only one operand can be negated here"),
    "negation that does not exist": (_inst("XMAD R0, -R1, R2, R3;"), 5, "- is not available here"),
    "swap register not the next one": (
        _inst("ATOM.E.CAS R0, [R2], R4, R6;"), 5,
        "must be R5, the register after operand b"),
    "accumulator not the destination": (_inst("FFMA32I R0, R1, 1.5, R2;"), 5, "must be the destination register, R0"),
    "unknown architecture": ("# Kernel: k\n# Arch: sm_35\n" + END, 0, "architecture 'sm_35' must be one of sm_50"),
    "header that makes no sense": (
        "# Kernel: k\n# SharedSize: lots\n" + END, 2,
        "header 'SharedSize: lots': SharedSize wants bytes"),
    "shared memory that nothing declares": (
        "# Kernel: k\n--:-:-:-:1 NOP;\n--:1:-:-:2 STS [R0], R1;\n" + END, 3,
        "STS: kernel 'k' has no shared memory: say how many bytes in '# SharedSize: bytes'"),
    "no kernel name": (END, 1, "the kernel has no name: give one with --kernel NAME, or write a line '# Kernel: NAME'"),
    "no instructions": ("# Kernel: k\n", 1, "kernel 'k' has no instructions"),
    "kernel twice": (_kernel("") + _kernel(""), 7, "kernel 'k' defined twice"),
    "texture mapped to another slot": (
        "# Kernel: k\n# Texture: t\n<CONSTANT_MAPPING>\nt : 0x54\n</CONSTANT_MAPPING>\n" + END, 1,
        "texture 't' is mapped to slot 0x54, but its slot is 0x50"),
}


@pytest.mark.sampled(25)
@pytest.mark.parametrize("title", CASES)
def test_a_wrong_source_is_refused_with_file_line_and_reason(title: str, tmp_path: Path) -> None:
    source, line, words = CASES[title]
    path, cubin = tmp_path / "wrong.sass", tmp_path / "wrong.cubin"
    path.write_text(source)
    ran = tool.maxas("-c", "-o", cubin, path)
    assert ran.status == 1
    assert words in ran.err
    assert not list(tmp_path.glob("*.cubin*")), "an output file was left behind"
    if line:
        assert f"{path}:{line}: " in ran.err, ran.err
        assert source.split("\n")[line - 1].strip() in ran.err, "the line itself is not shown"


def test_an_old_output_survives_a_wrong_source(tmp_path: Path) -> None:
    (tmp_path / "wrong.sass").write_text(_inst("FMAA R0;"))
    (tmp_path / "wrong.cubin").write_bytes(b"old")
    assert tool.maxas("-c", "-o", tmp_path / "wrong.cubin", tmp_path / "wrong.sass").status == 1
    assert (tmp_path / "wrong.cubin").read_bytes() == b"old"


def test_an_error_inside_an_include_names_the_included_file(tmp_path: Path) -> None:
    (tmp_path / "part.inc").write_text(f"{OK}NOP;\n{OK}FMAA R0;\n")
    (tmp_path / "main.sass").write_text(_kernel('<INCLUDE file="part.inc"/>'))
    ran = tool.maxas("-c", "-o", tmp_path / "o.cubin", tmp_path / "main.sass")
    assert f"{tmp_path / 'part.inc'}:2: unknown instruction 'FMAA'" in ran.err


def test_an_error_after_an_include_and_code_still_has_its_own_line(tmp_path: Path) -> None:
    (tmp_path / "part.inc").write_text(f"{OK}NOP;\n" * 5)
    body = '<INCLUDE file="part.inc"/>\n<CODE>\n  return "' + OK + 'NOP;\\n" x 7;\n</CODE>\n' + f"{OK}FMAA R0;"
    (tmp_path / "main.sass").write_text(_kernel(body))
    ran = tool.maxas("-c", "-o", tmp_path / "o.cubin", tmp_path / "main.sass")
    assert f"{tmp_path / 'main.sass'}:9: unknown instruction 'FMAA'" in ran.err


def test_an_error_in_generated_text_shows_the_expanded_line(tmp_path: Path) -> None:
    (tmp_path / "main.sass").write_text(_kernel(f"{OK}MOV R0, [+ 'R' . 999 +];"))
    ran = tool.maxas("-c", "-o", tmp_path / "o.cubin", tmp_path / "main.sass")
    assert f"{tmp_path / 'main.sass'}:5: MOV: operand 2: 'R999' is not a register" in ran.err
    assert "MOV R0, [+ 'R' . 999 +];" in ran.err
    assert f"expands to: {OK}MOV R0, R999;" in ran.err
    assert ran.status == 1


def test_expressions_without_code_are_arithmetic_only(tmp_path: Path) -> None:
    """The same expression is computed where code may run."""
    path = tmp_path / "main.sass"
    for expression, value in (("join('', 1, 2)", "0x18"), ("$value + 1", "0x2"), ("(1 << 3) % 5", "0x6")):
        path.write_text(_kernel(f"{OK}IADD R0, R1, 2x<{expression}>;"))
        assert tool.maxas("-c", "-o", tmp_path / "o.cubin", path).status == 0
        assert tool.texts((tmp_path / "o.cubin").read_bytes())["k"][0] == f"IADD R0, R1, {value}"
        ran = tool.maxas("-c", "--no-code", "-o", tmp_path / "o.cubin", path)
        if "join" in expression:
            assert ran.status == 1 and "(with --no-code arithmetic only)" in ran.err
        else:
            assert ran.status == 0, ran.err


@pytest.mark.long
def test_endless_embedded_code_is_stopped(tmp_path: Path) -> None:
    (tmp_path / "main.sass").write_text(_kernel("[- 1 while 1; -]"))
    ran = tool.maxas("-c", "-o", tmp_path / "o.cubin", tmp_path / "main.sass", timeout=60)
    assert "it ran longer than" in ran.err


def test_no_code_refuses_embedded_perl_without_running_it(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "main.sass").write_text(_kernel(f"<CODE>\nopen my $f, '>', '{mark}'; return '';\n</CODE>"))
    ran = tool.maxas("-c", "--no-code", "-o", tmp_path / "o.cubin", tmp_path / "main.sass")
    assert ran.status == 1
    assert f"{tmp_path / 'main.sass'}:5: embedded Perl is refused (--no-code)" in ran.err
    assert not mark.exists()
