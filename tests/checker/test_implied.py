"""Predicates that imply others, in the shape the vendor's compiler makes and in shapes that prove nothing."""

from maxdnn.checker import check_hazards
from tests.checker.programs import assembled

CODE = """
--:-:-:Y:d ISETP.EQ.AND P1, PT, RZ, c[0x0][0x140], PT;
--:-:-:Y:d {before};
--:-:-:Y:d @!P1 ISETP.EQ.AND P0, PT, RZ, c[0x0][0x144], PT;
--:-:-:-:2 @!P0 FMUL R3, R4, 2.0;
--:-:1:-:2 @!P1 MUFU.LG2 R3, R3;
01:-:-:-:2 {use} FADD R5, R3, 1.0;
--:-:-:-:5 EXIT;
"""


def kinds(before: str, use: str) -> list[str]:
    return [finding.kind for finding in check_hazards(assembled(CODE.format(before=before, use=use))).findings]


def test_a_use_that_runs_only_where_the_register_was_overwritten_is_safe() -> None:
    assert kinds("PSETP.AND.AND P0, PT, PT, PT, PT", "@!P0") == []


def test_a_predicate_that_may_hold_elsewhere_proves_nothing() -> None:
    assert kinds("PSETP.AND.AND P0, PT, !PT, PT, PT", "@!P0") == ["raw-fixed"]
    assert kinds("ISETP.EQ.AND P0, PT, RZ, c[0x0][0x144], PT", "@!P0") == ["raw-fixed"]


def test_a_write_under_a_guard_replaces_what_was_written_under_one_that_implies_it() -> None:
    """FMUL ran only where MUFU did: what is left of it there nobody reads. Without the implication somebody may."""
    assert kinds("PSETP.AND.AND P0, PT, PT, PT, PT", "") == []
    assert kinds("PSETP.AND.AND P0, PT, !PT, PT, PT", "") == ["raw-fixed"]
