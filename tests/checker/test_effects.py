"""What instructions touch, where the table alone does not say it in one field."""

from maxdnn.checker.effects import CC, PREDICATE, all_effects, names
from maxdnn.checker.effects import Effects as E
from tests.checker.programs import assembled


def effect(line: str) -> E:
    return all_effects(assembled(f"{line}\n--:-:-:-:5 EXIT;\n").instructions)[0]


def test_a_wide_store_reads_its_address_pair_and_four_data_registers_late() -> None:
    found = effect("--:-:-:-:1 STG.E.128 [R2], R4;")
    assert dict(found.by_role) == {"addr": 0b11 << 2, "data": 0b1111 << 4}
    assert found.late == found.reads and found.writes == 0 and not found.fixed


def test_a_guard_is_told_from_a_predicate_operand() -> None:
    found = effect("--:-:-:-:1 @P2 SEL R0, R1, R2, P3;")
    assert dict(found.by_role) == {"src": 0b110, "guard": 1 << PREDICATE + 2, "pred": 1 << PREDICATE + 3}


def test_carry_is_written_by_cc_and_read_by_x() -> None:
    assert effect("--:-:-:-:1 IADD R0.CC, R1, R2;").writes == 1 | 1 << CC
    assert dict(effect("--:-:-:-:1 IADD.X R0, R1, R2;").by_role)["x"] == 1 << CC


def test_a_short_texture_fetch_writes_two_pairs() -> None:
    assert names(effect("--:-:1:-:1 TLDS.LZ.T R4, R2, R0, 0x52, 1D, RGBA;").writes) == "R2, R3, R4, R5"


def test_rz_and_pt_are_nothing() -> None:
    found = effect("--:-:-:-:1 ISETP.EQ.AND P0, PT, RZ, RZ, PT;")
    assert (found.reads, found.writes) == (0, 1 << PREDICATE)
