"""Advice: made in compiled code by loosening it, and gone again when followed."""

import functools

from maxdnn.checker import check_hazards
from maxdnn.checker.report import Finding
from maxdnn.cubin import CubinKernel
from tests.checker.programs import assembled, with_control
from tests.checker.test_static import kernel


def advice(changed: CubinKernel, kind: str) -> list[Finding]:
    report = check_hazards(changed)
    assert report.ok
    return [piece for piece in report.advice if piece.kind == kind]


@functools.cache
def plain() -> CubinKernel:
    return kernel()


def test_a_stall_longer_than_any_use_needs_is_named_with_the_one_that_is_enough() -> None:
    code = plain().instructions
    i = next(i for i, inst in enumerate(code) if inst.opcode == "FFMA" and inst.control.stall == 1
             and not code[i + 1].control.wait_mask)
    address = code[i].address
    assert address not in {piece.consumer.address for piece in advice(plain(), "long-stall")}
    found = {piece.consumer.address: piece.fix for piece in advice(with_control(plain(), i, stall=9), "long-stall")}
    assert found[address] == "stall 1"


def test_following_stall_advice_leaves_no_error() -> None:
    code = plain().instructions
    for piece in advice(plain(), "long-stall"):
        i = next(i for i, inst in enumerate(code) if inst.address == piece.consumer.address)
        assert check_hazards(with_control(plain(), i, stall=int(piece.fix.split()[1]))).ok


def test_a_second_wait_for_the_same_barrier_cannot_block() -> None:
    code = plain().instructions
    i = next(i for i, inst in enumerate(code) if inst.control.wait_mask and not code[i + 1].control.wait_mask
             and inst.control.write_barrier is None and inst.control.read_barrier is None and inst.control.stall)
    changed = with_control(plain(), i + 1, wait_mask=code[i].control.wait_mask)
    assert code[i + 1].address in {piece.consumer.address for piece in advice(changed, "idle-wait")}


def test_a_bank_conflict_goes_with_the_reuse_flag_it_names() -> None:
    kernel = assembled("""
--:-:-:-:6 MOV R4, c[0x0][0x140];
--:-:-:-:6 MOV R8, c[0x0][0x144];
--:-:-:-:6 FADD R1, R4, 1.0;
--:-:-:-:1 FFMA R2, R4, R8, R3;
--:-:-:-:5 EXIT;
""")
    (piece,) = advice(kernel, "bank-conflict")
    assert (piece.resource, piece.fix) == ("R4, R8", "set the reuse flag of R4 (slot 0) at 0018")
    assert str(piece).startswith("advice: bank-conflict")
    assert advice(with_control(kernel, 2, reuse=1), "bank-conflict") == []


def test_a_bank_conflict_without_an_earlier_read_asks_for_another_register() -> None:
    kernel = assembled("""
--:-:-:-:1 MOV R4, c[0x0][0x140];
--:-:-:-:6 MOV R8, c[0x0][0x144];
--:-:-:-:1 FFMA R2, R4, R8, R3;
--:-:-:-:5 EXIT;
""")
    (piece,) = advice(kernel, "bank-conflict")
    assert piece.fix == "renumber R8 to a register of bank 1"


def test_a_barrier_set_twice_for_different_kinds_is_mentioned() -> None:
    kernel = assembled("""
--:-:1:-:2 S2R R0, SR_TID.X;
--:-:1:-:2 LDC R1, c[0x0][RZ+0x140];
01:-:-:-:1 IADD R2, R0, R1;
--:-:-:-:5 EXIT;
""")
    (piece,) = advice(kernel, "barrier-shared")
    assert piece.resource == "barrier 1" and piece.producer is not None and "S2R" in piece.producer.text
