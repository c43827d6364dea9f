"""The checker on hand-written kernels in the manner of foreign ones, whose truth is decided by running them."""

import collections

import pytest

from maxdnn.checker import check_hazards
from maxdnn.cubin import CubinKernel
from tests.checker.foreign import CASES, Case, built, kernels, outcome, verdict
from tests.checker.handwritten import END
from tests.checker.programs import assembled
from tests.checker.reordered import moved, places


@pytest.mark.sampled(5, 0)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_no_finding_is_false_and_no_fault_is_missed(case: Case) -> None:
    for name, kernel, right in kernels([case]):
        assert right == ("fault" not in name), name
        assert check_hazards(kernel).clean == right, name


@pytest.mark.long
def test_all_faults_but_one_are_errors() -> None:
    every = kernels()
    assert len(every) >= 40 and len({name for name, _, _ in every}) == len(every)
    assert [name for name, _, right in every if right == ("fault" in name)] == []
    judged = [(name, right, check_hazards(kernel)) for name, kernel, right in every]
    assert [name for name, right, report in judged if report.clean != right] == []
    counts = collections.Counter(verdict(report, right) for _, right, report in judged)
    assert counts["wrong: error"] >= 38 and counts["wrong: warning"] <= 1


def test_a_store_that_changed_places_with_a_load_is_found_where_it_matters() -> None:
    """Every store of an exchange within a warp, moved past the next load of another lane: what is said is what comes
    out."""
    seen = set()
    for name, threads, source, _ in CASES:
        if not any(word in name for word in ("own words", "as a loop", "within a warp")):
            continue
        kernel = built(source, threads)
        meant = outcome(kernel, threads, "none", False)
        for start, to in places(kernel):
            changed = moved(kernel, start, to)
            wrong = {outcome(changed, threads, "none", backwards) for backwards in (False, True)} != {meant}
            report = check_hazards(changed)
            said = any(f.kind.startswith("shared-") for f in report.findings + report.warnings)
            assert wrong == said, (name, kernel.instructions[start].text(), kernel.instructions[to].text())
            seen.add(wrong)
    assert seen == {True, False}


# What no run on the delayed device can tell, with the reason why it is right or at the most a doubt.
DOUBTS = {
    "special registers come through one unit, in order": """--:-:-:-:2 S2R R0, SR_TID.X;
--:-:1:-:2 S2R R1, SR_CTAID.X;
01:-:-:-:6 IADD R2, R0, R1;
""",
    "the store has read its operands, so the load before it in the unit has been served": """--:-:-:-:2 LDS R0, [RZ];
--:1:-:-:2 STS [RZ+0x10], R1;
01:-:-:-:6 IADD R2, R0, R1;
""",
    "62 cycles are twice what S2R takes": "--:-:-:-:2 S2R R0, SR_TID.X;\n" + "--:-:-:Y:f MOV R4, RZ;\n" * 4
    + "--:-:-:-:6 IADD R2, R0, R1;\n",
    "operands of a load are read long before 32 cycles are over": "--:-:1:-:2 LDG R0, [R2];\n"
    + "--:-:-:Y:f MOV R4, RZ;\n" * 2 + "--:-:-:-:6 MOV R2, RZ;\n",
}


def of(lines: str, threads: int = 64) -> CubinKernel:
    return assembled(lines + END, 4096, threads)


@pytest.mark.parametrize("why", DOUBTS)
def test_what_order_or_distance_protects_is_a_warning(why: str) -> None:
    report = check_hazards(of(DOUBTS[why]))
    assert report.ok and [w.kind for w in report.warnings if "only" in w.message] in (["raw-barrier"], ["war"])


@pytest.mark.parametrize(("lines", "kind"), [
    ("--:-:-:-:2 S2R R0, SR_TID.X;\n--:-:1:-:2 LDS R1, [RZ];\n01:-:-:-:6 IADD R2, R0, R1;\n", "raw-barrier"),
    ("--:-:-:-:2 LDG R0, [R2];\n--:1:-:-:2 STS [RZ], R1;\n01:-:-:-:6 IADD R2, R0, R1;\n", "raw-barrier"),
    ("--:-:1:-:2 S2R R0, SR_TID.X;\n--:-:-:-:2 S2R R1, SR_CTAID.X;\n01:-:-:-:6 IADD R2, R0, R1;\n", "raw-barrier"),
    ("--:-:-:-:2 LDG R0, [R2];\n" + "--:-:-:Y:f MOV R4, RZ;\n" * 20 + "--:-:-:-:6 IADD R2, R0, R1;\n", "raw-barrier"),
    ("--:-:1:-:2 LDG R0, [R2];\n--:-:-:Y:f MOV R4, RZ;\n--:-:-:-:6 MOV R2, RZ;\n", "war"),
])
def test_other_units_and_short_distances_protect_nothing(lines: str, kind: str) -> None:
    assert kind in {f.kind for f in check_hazards(of(lines)).findings}


def test_a_distance_on_one_way_only_protects_nothing() -> None:
    lines = ("--:-:-:-:2 S2R R0, SR_TID.X;\n--:-:-:-:5 @P0 BRA USE;\n" + "--:-:-:Y:f MOV R4, RZ;\n" * 4
             + "USE:\n--:-:-:-:6 IADD R2, R0, R1;\n")
    assert [f.kind for f in check_hazards(of(lines)).findings] == ["raw-barrier"]


STALE = """--:-:-:-:6 IADD3 R4, R2, R2, R7.reuse;
--:-:-:-:6 IADD3 R5, R2, R2, {other};
--:-:-:-:6 MOV R7, 0x2;
--:-:-:-:6 IADD3 R6, R2, R2, R7;
"""


def test_an_operand_is_kept_until_another_is_kept_in_its_slot() -> None:
    assert check_hazards(of(STALE.format(other="R9.reuse"))).clean
    assert [f.kind for f in check_hazards(of(STALE.format(other="R9"))).findings] == ["reuse-stale"]
    other_slot = STALE.replace("R2, R2, {other}", "R2, R9.reuse, RZ")
    assert [f.kind for f in check_hazards(of(other_slot)).findings] == ["reuse-stale"]


UNIFORM = """--:-:-:-:6 {value};
--:1:-:-:2 STS [RZ+0x100], R4;
01:-:2:-:2 LDS R5, [RZ+0x100];
02:-:-:-:6 IADD R6, R5, R0;
"""


@pytest.mark.parametrize(("value", "clean"), [
    ("MOV R4, c[0x0][0x140]", True), ("MOV32I R4, 0x3f800000", True), ("XMAD R4, R12, c[0x0][0x140], RZ", False),
    ("S2R R4, SR_TID.X", False), ("S2R R4, SR_LANEID", False), ("S2R R4, SR_CTAID.X", True)])
def test_only_a_value_that_is_the_same_in_all_threads_may_be_stored_by_all(value: str, clean: bool) -> None:
    lines = UNIFORM.format(value=value)
    if value.startswith("S2R"):
        lines = lines.replace(f"--:-:-:-:6 {value}", f"--:-:3:-:2 {value}").replace("--:1:-:-:2 STS", "04:1:-:-:2 STS")
    lines = "--:-:4:-:2 S2R R0, SR_TID.X;\n08:-:-:-:6 SHL R12, R0, 0x2;\n" + lines
    report = check_hazards(of(lines))
    assert report.clean == clean, report.text()


def test_a_value_that_changes_between_two_rounds_is_not_the_same() -> None:
    """One warp may store the next round's before another has loaded this one's."""
    lines = """--:-:-:-:6 MOV R9, c[0x0][0x140];
LOOP:
--:-:-:-:6 {step};
--:1:-:-:2 STS [RZ+0x100], R4;
01:-:2:-:2 LDS R5, [RZ+0x100];
02:-:-:-:6 IADD R6, R5, R6;
--:-:-:-:6 IADD R9, R9, -0x1;
--:-:-:Y:d ISETP.GT.AND P0, PT, R9, RZ, PT;
--:-:-:-:5 @P0 BRA LOOP;
"""
    assert check_hazards(of(lines.format(step="MOV R4, c[0x0][0x140]"))).clean
    assert not check_hazards(of(lines.format(step="IADD R4, R4, 0x1"))).ok


@pytest.mark.parametrize("code", ["STS [RZ], R0", "LDS R0, [RZ]", "ATOMS.ADD R0, [RZ], R1"])
def test_a_kernel_that_uses_shared_memory_and_has_none_is_told(code: str) -> None:
    line = f"--:1:{'-' if code.startswith('STS') else '1'}:-:2 {code};\n"
    assert [w.kind for w in check_hazards(assembled(line + END, 0)).warnings] == ["no-shared"]
    assert check_hazards(assembled(line + END, 64)).clean
