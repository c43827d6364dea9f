"""The checker of sm_80 to sm_90 finds nothing in compiled code, whose latencies it was given, but what it cannot
follow."""

from pathlib import Path

import pytest

from maxdnn import cubin
from maxdnn.checker import check_hazards
from tests import oracles
from tests.corpus import compiler
from tests.emulator import test_hopper_forms as forms
from tests.maxas.tool import assemble

PROGRAMS = [name for name in compiler.sources() if name != "texref.ptx"]
COMPILED = [(arch, program) for program in PROGRAMS for arch in ("sm_80", "sm_86", "sm_89", "sm_90")]


@pytest.mark.sampled(2, 20)
@pytest.mark.parametrize(("arch", "program"), COMPILED)
def test_compiled_kernels_have_no_errors(arch: str, program: str) -> None:
    for kernel in cubin.read(compiler.compile_source(program, arch)).kernels.values():
        report = check_hazards(kernel)
        assert report.ok, report.text()
        # One program has memory that the launch brings (`extern __shared__`): its cubin declares none.
        brought = {"no-shared"} if program == "integer_programs.cu" else set()
        assert {finding.kind for finding in report.warnings} <= {"not-followed"} | brought


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("form", ["SWITCH", "MATCH", "CONVERSIONS", "TRAP"])
def test_compiled_code_of_rare_forms_has_no_errors(form: str, arch: str) -> None:
    for kernel in cubin.read(oracles.compile_cuda(getattr(forms, form), arch)).kernels.values():
        report = check_hazards(kernel)
        assert report.ok, report.text()


HEAD = """# Kernel: k
# Arch: sm_90
# SharedSize: 4096
--:-:1:-:1      S2R R0, SR_TID.X;
--:-:-:-:6      ULDC.64 UR4, c[0x0][0x208];
01:-:-:-:6      IMAD.SHL.U32 R1, R0, 0x10, RZ;
--:-:-:-:6      IMAD.MOV.U32 R2, RZ, RZ, 0x1000;
--:-:-:-:6      IMAD.MOV.U32 R3, RZ, RZ, RZ;
--:-:-:-:6      IMAD.MOV.U32 R4, RZ, RZ, RZ;
--:-:-:Y:d      ISETP.LT.U32.AND P1, PT, R0, 0x10, PT;
"""
TAIL = """3f:-:-:-:6      NOP;
--:-:-:Y:5      EXIT;
"""


def _kinds(folder: Path, body: str, arch: str = "sm_90") -> set[str]:
    kernel = cubin.read(assemble(folder, (HEAD + body + TAIL).replace("sm_90", arch), "-n", "-w")).kernel("k")
    return {finding.kind for finding in check_hazards(kernel).findings}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first, second, tells", [
    ("LDS R8, [R1+0x400]", "LDS R9, [R1+0x500]", True), ("@P1 LDS R8, [R1+0x400]", "@P1 LDS R9, [R1+0x500]", True),
    ("@P1 LDS R8, [R1+0x400]", "LDS R9, [R1+0x500]", True), ("LDS R8, [R1+0x400]", "@P1 LDS R9, [R1+0x500]", False),
    ("MUFU.RCP R8, R0", "POPC R9, R0", True), ("LDC R8, c[0x0][R1]", "LDC R9, c[0x0][R1+0x4]", False),
    ("LDG.E R8, desc[UR4][R2.64]", "LDG.E R9, desc[UR4][R2.64+0x10]", False),
    ("S2R R8, SR_CTAID.X", "S2R R9, SR_CTAID.Y", False)])
def test_a_barrier_tells_of_earlier_results_only_where_compiled_code_relies_on_it(
        tmp_path: Path, first: str, second: str, tells: bool) -> None:
    """On an H200 results of global memory and of constants came out of order, and a skipped load told of none."""
    found = _kinds(tmp_path, f"--:-:-:-:8 {first};\n--:-:2:-:8 {second};\n02:-:-:-:6 FADD R10, R8, R9;\n")
    assert found == (set() if tells else {"not-awaited"})


def test_a_load_does_not_tell_of_one_under_an_earlier_value_of_its_guard(tmp_path: Path) -> None:
    body = "--:-:-:-:8 @P1 LDS R8, [R1+0x400];\n{}--:-:2:-:8 @P1 LDS R9, [R1+0x500];\n02:-:-:-:6 FADD R10, R8, R9;\n"
    assert _kinds(tmp_path, body.format("")) == set()
    assert _kinds(tmp_path, body.format("--:-:-:Y:d ISETP.LT.U32.AND P1, PT, R0, 0x8, PT;\n")) == {"not-awaited"}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("between, stale", [
    ("", False), ("--:-:-:-:6 IMAD.MOV.U32 R4, RZ, RZ, R0;", True), ("--:-:-:-:6 FFMA R4, R3, R2, R0;", True),
    ("--:-:1:-:2 LDS R4, [R1];", True), ("--:-:-:-:6 FFMA R4, R2, R2, R0;", False),
    ("--:-:-:-:6 IMAD.MOV.U32 R5, RZ, RZ, R0;", False), ("--:-:-:-:6 @P1 IMAD.MOV.U32 R4, RZ, RZ, R0;", True)])
def test_a_register_is_not_read_where_the_reuse_cache_holds_what_it_was(
        tmp_path: Path, between: str, stale: bool) -> None:
    """R4 is kept for the first place; what reads an even register there takes its place."""
    body = f"--:-:-:-:2 FADD R8, R4.reuse, R2;\n{between}\n01:-:-:-:6 FADD R9, R4, R2;\n"
    assert _kinds(tmp_path, body) == ({"reuse"} if stale else set())


@pytest.mark.parametrize("line, odd", [
    ("IMAD.WIDE.U32 R7, R0, R1, RZ", {"out-of-line"}), ("IMAD.WIDE.U32 R6, R0, R1, RZ", set()),
    ("LDG.E.128 R10, desc[UR4][R2.64]", {"out-of-line"}), ("LDG.E.64 R10, desc[UR4][R3.64]", {"out-of-line"}),
    ("LDG.E.128 R12, desc[UR4][R2.64]", set())])
def test_vectors_that_begin_between_their_multiples_are_found(tmp_path: Path, line: str, odd: set[str]) -> None:
    """A kernel with IMAD.WIDE into R225 ended in "illegal instruction" on an H200."""
    assert _kinds(tmp_path, f"--:-:{'2' if 'LDG' in line else '-'}:-:6 {line};\n") == odd


@pytest.mark.parametrize("line, odd", [
    ("--:-:6:-:6 MEMBAR.ALL.CTA", {"illegal-barrier"}), ("--:6:-:-:6 MEMBAR.ALL.CTA", set()),
    ("--:6:-:-:2 FENCE.VIEW.ASYNC.S", {"illegal-barrier"}), ("--:-:6:-:2 FENCE.VIEW.ASYNC.S", set())])
def test_barriers_that_make_an_instruction_illegal_are_found(tmp_path: Path, line: str, odd: set[str]) -> None:
    """A kernel with a write barrier at MEMBAR ended in "unspecified launch failure" on an H200."""
    assert _kinds(tmp_path, f"{line};\n20:-:-:-:6 NOP;\n") & {"illegal-barrier"} == odd


def test_memory_is_not_accessed_right_behind_a_block_barrier(tmp_path: Path) -> None:
    """With a stall of 1 an H200 read what others had not stored yet."""
    body = "--:-:-:Y:{} BAR.SYNC.DEFER_BLOCKING 0x0;\n--:-:1:-:2 LDS R8, [R1+0x400];\n"
    assert _kinds(tmp_path, body.format(6)) == set()
    assert _kinds(tmp_path, body.format(1)) == {"barrier"}


@pytest.mark.parametrize("behind, found", [("LDC R9, c[0x0][0x210]", {"still-read"}),
                                           ("LDG.E R9, desc[UR4][R2.64]", set())])
def test_a_constant_does_not_tell_that_a_store_has_read(tmp_path: Path, behind: str, found: set[str]) -> None:
    """It comes another way: stores of an H100 wrote what had been put into their registers after a constant behind
    them had arrived."""
    body = f"""--:1:-:-:2 STG.E desc[UR4][R2.64], R8;
--:-:2:-:2 {behind};
02:-:-:-:6 FADD R9, R9, R9;
--:-:-:-:6 MOV R8, RZ;
"""
    assert _kinds(tmp_path, body) == found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("body, found", [
    ("--:-:-:-:2 ISETP.LT.AND P2, PT, R0, RZ, PT;\n--:-:-:-:6 P2R R8, PR, RZ, 0x4;\n", {"fixed-latency"}),
    ("--:-:-:-:4 ISETP.LT.AND P2, PT, R0, RZ, PT;\n--:-:-:-:6 P2R R8, PR, RZ, 0x4;\n", set()),
    ("--:-:-:-:2 ISETP.LT.AND P2, PT, R0, RZ, PT;\n--:-:-:-:6 P2R R8, PR, RZ, 0x2;\n", set()),
    ("--:-:-:-:2 ISETP.LT.AND P2, PT, R0, RZ, PT;\n--:-:-:-:6 P2R R8, PR, RZ, R1;\n", {"fixed-latency"}),
    ("--:-:-:-:6 R2P PR, R0, R1;\n--:-:-:-:6 @P2 FADD R8, R8, R8;\n", {"fixed-latency"}),
    ("--:-:-:-:6 R2P PR, R0, 0x2;\n--:-:-:-:6 @P2 FADD R8, R8, R8;\n", set())])
def test_packed_predicates_are_those_of_a_mask_or_all(tmp_path: Path, body: str, found: set[str]) -> None:
    assert _kinds(tmp_path, body) == found


@pytest.mark.parametrize("before, wait, found", [("", "--", {"not-awaited"}), ("", "02", set()),
                                                 ("02:-:-:-:2 NOP;\n", "--", set())])
def test_what_a_function_leaves_under_way_is_seen_behind_its_call(
        tmp_path: Path, before: str, wait: str, found: set[str]) -> None:
    body = f"""--:-:-:Y:5 CALL.REL.NOINC FUNCTION;
{wait}:-:-:-:6 FADD R10, R8, R8;
3f:-:-:-:6 NOP;
--:-:-:Y:5 EXIT;
FUNCTION:
--:-:2:-:2 LDS R8, [R1+0x400];
{before}--:-:-:Y:5 RET.REL.NODEC R6 0x0;
"""
    assert _kinds(tmp_path, body) == found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("first, second, cycles", [
    ("DADD R8, R0, R2", "IMAD.MOV.U32 R9, RZ, RZ, R0", 2), ("HFMA2.MMA R8, R0, R2, R0", "IADD3 R8, R0, R1, RZ", 2),
    ("UIADD3 UR8, UR4, 0x7, URZ", "UMOV UR8, 0x5", 6),
    ("UIMAD.WIDE.U32 UR8, UR4, 0x7, URZ", "ULDC UR9, c[0x0][0x0]", 6),
    ("R2UR UR8, R0", "UMOV UR8, 0x5", 10), ("R2UR UR8, R0", "UIADD3 UR8, UR4, 0x7, URZ", 4),
    ("IMAD R8, R0, R1, RZ", "IADD3 R8, R0, R1, RZ", 1), ("UMOV UR8, 0x5", "UIADD3 UR8, UR4, 0x7, URZ", 1)])
def test_a_second_write_is_not_overtaken_by_the_first(tmp_path: Path, first: str, second: str, cycles: int) -> None:
    """With a cycle less an H200 kept the first one's result."""
    body = "--:-:-:-:6 NOP;\n--:-:-:{}:{:x} {};\n--:-:-:Y:f {};\n"
    assert _kinds(tmp_path, body.format("-", cycles, first, second)) == set()
    if cycles > 1:
        assert _kinds(tmp_path, body.format("-", cycles - 1, first, second)) == {"overtaken"}


@pytest.mark.parametrize("reader, writer, cycles", [
    ("ULOP3.LUT UR9, UR4, UR8, URZ, 0xfc, !UPT", "UMOV UR8, 0x5", 3), ("USEL UR9, UR8, UR4, UP0", "UMOV UR8, UR4", 3),
    ("USEL UR9, UR8, UR4, UP0", "ULDC UR8, c[0x0][0x0]", 1), ("UMOV UR9, UR8", "UMOV UR8, 0x5", 1),
    ("IADD3 R8, R0, UR8, RZ", "UMOV UR8, 0x5", 1), ("UIADD3 UR9, UR8, 0x1, URZ", "UIADD3 UR8, UR4, 0x1, URZ", 1)])
def test_a_uniform_register_is_read_before_umov_writes_it(
        tmp_path: Path, reader: str, writer: str, cycles: int) -> None:
    """ULOP3, UIMAD and USEL of an H100 read what an UMOV one or two cycles behind them wrote. The other pairs were
    right."""
    for stall in range(1, 4):
        body = f"--:-:-:Y:f NOP;\n--:-:-:-:{stall} {reader};\n--:-:-:Y:f {writer};\n"
        assert _kinds(tmp_path, body) == ({"still-read"} if stall < cycles else set()), stall


@pytest.mark.sampled(2)
@pytest.mark.parametrize("first, second, cycles", [
    ("UISETP.LT.AND UP0, UPT, UR4, UR5, UPT", "@UP0 UMOV UR8, 0x5", 12),
    ("VOTEU.ANY UR9, UP0, P1", "@UP0 UMOV UR8, 0x5", 5),
    ("UISETP.LT.AND UP0, UPT, UR4, UR5, UPT", "USEL UR8, UR4, UR5, UP0", 4),
    ("R2P PR, R0, 0x4", "SEL R8, R0, R1, P2", 5), ("IMAD.MOV.U32 R8, RZ, RZ, R0", "BMOV.32 B0, R8", 5)])
def test_guards_and_barriers_of_threads_are_read_as_late_as_in_compiled_code(
        tmp_path: Path, first: str, second: str, cycles: int) -> None:
    body = "--:-:-:Y:f NOP;\n--:-:-:{}:{:x} {};\n--:2:-:Y:f {};\n" if "BMOV" in second else (
        "--:-:-:Y:f NOP;\n--:-:-:{}:{:x} {};\n--:-:-:Y:f {};\n")
    assert _kinds(tmp_path, body.format("Y" if cycles >= 12 else "-", cycles, first, second)) == set()
    assert _kinds(tmp_path, body.format("-", cycles - 1, first, second)) == {"fixed-latency"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89"])
def test_results_of_the_double_unit_are_told_by_a_barrier_or_come_in_time(tmp_path: Path, arch: str) -> None:
    """Compiled code for these does either; on sm_90 it waits for cycles alone."""
    body = "--:-:{}:-:{}  DADD R8, R2, R2;\n{}:-:-:-:6 DADD R10, R8, R2;\n"
    assert _kinds(tmp_path, body.format("2", 2, "02"), arch) == set()
    assert _kinds(tmp_path, body.format("-", "b", "--"), arch) == set()
    assert _kinds(tmp_path, body.format("-", 2, "--"), arch) == {"fixed-latency"}
    assert _kinds(tmp_path, body.format("2", 2, "--"), arch) == {"fixed-latency"}
    assert _kinds(tmp_path, body.format("2", 2, "02"), "sm_90") == {"fixed-latency"}


@pytest.mark.parametrize("between, second, late", [
    ("", "@!P1", False), ("", "@P1", True), ("", "", True),
    ("--:-:-:Y:d ISETP.LT.U32.AND P1, PT, R0, 0x8, PT;\n", "@!P1", True)])
def test_a_result_is_not_overtaken_in_lanes_that_do_not_execute_both(
        tmp_path: Path, between: str, second: str, late: bool) -> None:
    """Compiled code for sm_80 has it so."""
    body = f"--:-:2:-:2 @P1 I2F R8, R0;\n{between}--:-:-:-:6 {second} IMAD.MOV.U32 R8, RZ, RZ, R1;\n"
    assert _kinds(tmp_path, body) == ({"overtaken"} if late else set())


@pytest.mark.sampled(5)
@pytest.mark.parametrize("first, second, left, read, told", [
    ("LDS R8, [R1]", "LDS R9, [R1]", 1, "R8", True), ("LDS R8, [R1]", "LDS R9, [R1]", 1, "R9", False),
    ("LDS R8, [R1]", "LDS R9, [R1]", 0, "R9", True), ("LDS R8, [R1]", "@P1 LDS R9, [R1]", 1, "R8", False),
    ("@P1 LDS R8, [R1]", "@P1 LDS R9, [R1]", 1, "R8", True), ("MUFU.RCP R8, R0", "POPC R9, R0", 1, "R8", True),
    ("LDG.E R8, desc[UR4][R2.64]", "LDG.E R9, desc[UR4][R2.64+0x10]", 1, "R8", False),
    ("LDG.E R8, desc[UR4][R2.64]", "LDG.E R9, desc[UR4][R2.64+0x10]", 0, "R8", True)])
@pytest.mark.parametrize("between", ["", "--:-:-:Y:5 @P1 BRA NEXT;\n--:-:-:-:6 IMAD.MOV.U32 R5, RZ, RZ, R0;\nNEXT:\n"])
def test_a_wait_by_count_tells_of_the_earliest_where_results_come_in_order(
        tmp_path: Path, first: str, second: str, left: int, read: str, told: bool, between: str) -> None:
    body = (f"--:-:2:-:8 {first};\n--:-:2:-:8 {second};\n{between}--:-:-:Y:6 DEPBAR.LE SB1, {left:#x};\n"
            f"--:-:-:-:6 FADD R10, {read}, {read};\n")
    assert _kinds(tmp_path, body) == (set() if told else {"not-awaited"})


@pytest.mark.parametrize("first, second, late", [
    ("LDG.E R8, desc[UR4][R2.64]", "LDS R8, [R1]", True), ("LDS R8, [R1]", "LDS R8, [R1+0x4]", False),
    ("LDG.E R8, desc[UR4][R2.64]", "LDG.E R8, desc[UR4][R2.64+0x10]", True), ("MUFU.RCP R8, R0", "POPC R8, R0", False),
    ("@P1 LDG.E R8, desc[UR4][R2.64]", "@!P1 LDS R8, [R1]", False)])
def test_of_two_loads_into_one_register_the_first_may_land_last(
        tmp_path: Path, first: str, second: str, late: bool) -> None:
    """Waiting for both, before the register is read, does not help: operands of one queue are read in order, results
    come as they come."""
    body = f"--:-:2:-:8 {first};\n--:-:3:-:8 {second};\n06:-:-:-:6 FADD R10, R8, R8;\n"
    assert _kinds(tmp_path, body) == ({"overtaken"} if late else set())


@pytest.mark.parametrize("body, found", [
    ("--:-:-:-:1 @P1 IMAD.MOV.U32 R8, RZ, RZ, R0;\n--:-:-:-:6 @!P1 FADD R9, R8, R8;\n", set()),
    ("--:-:-:-:1 @P1 IMAD.MOV.U32 R8, RZ, RZ, R0;\n--:-:-:-:6 FADD R9, R8, R8;\n", {"fixed-latency"}),
    ("--:-:2:-:2 @P1 LDS R8, [R1];\n--:-:-:Y:5 @P1 BRA NEXT;\n--:-:-:-:6 FADD R9, R8, R8;\nNEXT:\n", set()),
    ("--:-:2:-:2 @P1 LDS R8, [R1];\n--:-:-:Y:5 @!P1 BRA NEXT;\n--:-:-:-:6 FADD R9, R8, R8;\nNEXT:\n", {"not-awaited"}),
    # a uniform register is written for all lanes, whichever of them ran the instruction
    ("--:-:-:-:1 @P1 R2UR UR8, R0;\n--:-:-:-:6 @!P1 IMAD.U32 R9, RZ, RZ, UR8;\n", {"fixed-latency"})])
def test_what_lanes_cannot_both_run_is_no_hazard(tmp_path: Path, body: str, found: set[str]) -> None:
    assert _kinds(tmp_path, body) == found
