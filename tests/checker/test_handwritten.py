"""Sources in the style of hand-written kernels: no error as they stand, the right one with a fault planted."""

import pytest

from maxdnn.checker import check_hazards
from tests.checker.handwritten import CASES, END
from tests.checker.programs import assembled

Case = tuple[str, int, str, str, str, str, str]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_a_right_source_has_no_error_and_a_planted_fault_is_named(case: Case) -> None:
    _, threads, source, good, bad, kind, where = case
    right = check_hazards(assembled(source + END, 4096, threads))
    assert right.clean, right.text()
    assert source.count(good) == 1
    wrong = check_hazards(assembled(source.replace(good, bad) + END, 4096, threads))
    assert any(f.kind == kind and where in f.consumer.text for f in wrong.findings), wrong.text()


def test_there_are_enough_of_them() -> None:
    assert len(CASES) >= 20 and len({case[0] for case in CASES}) == len(CASES)


def test_a_result_that_only_a_wait_in_between_gives_its_time_is_a_warning() -> None:
    """FADD has R0 long before the load's data is there, though the stalls between are 4 cycles of 6."""
    lines = "--:-:-:-:1 MOV R0, RZ;\n--:-:1:-:3 LDS R1, [RZ];\n{wait}:-:-:-:6 FADD R2, R0, 1.0;\n" + END
    waited = check_hazards(assembled(lines.format(wait="01")))
    assert waited.ok and [w.kind for w in waited.warnings] == ["raw-fixed"]
    assert [f.kind for f in check_hazards(assembled(lines.format(wait="--"))).findings] == ["raw-fixed"]


def test_a_guarded_wait_holder_tells_about_its_predecessor() -> None:
    """As in the vendor's division: the wait for `@P0 MUFU` serves the reader of `@!P0 MUFU` too."""
    lines = ("--:-:-:Y:d ISETP.LT.AND P0, PT, RZ, c[0x0][0x140], PT;\n--:-:-:-:2 @!P0 MUFU.RCP R1, R0;\n"
             "--:-:1:-:2 @P0 MUFU.RCP R2, R0;\n{wait}:-:-:-:6 @!P0 FADD R3, R1, 1.0;\n" + END)
    assert check_hazards(assembled(lines.format(wait="01"))).clean
    assert [f.kind for f in check_hazards(assembled(lines.format(wait="--"))).findings] == ["raw-barrier"]
