"""Control codes: 21 bits, their fields and their spelling."""

import pytest

from maxdnn.isa import Control
from maxdnn.isa.control import join_control_word, split_control_word


@pytest.mark.parametrize(("bits", "text", "control"), [
    (0x7E0, "--:-:-:Y:0", Control(0, True)),
    (0x7FF, "--:-:-:-:f", Control(15)),
    (0x7ED, "--:-:-:Y:d", Control(13, True)),
    (0x712, "--:-:1:-:2", Control(2, False, write_barrier=0)),
    (0x2F1, "--:3:-:-:1", Control(1, False, read_barrier=2)),
    (0x1FDE5, "3f:6:-:Y:5", Control(5, True, read_barrier=5, wait_mask=63)),
    (0xE07F4, "--:-:-:-:4", Control(4, False, reuse=7)),
])
def test_fields_stand_where_the_hardware_reads_them(bits: int, text: str, control: Control) -> None:
    assert Control.unpack(bits) == control
    assert control.pack() == bits
    assert str(control) == text


def test_every_legal_field_value_survives_unpacking() -> None:
    for bits in range(0, 1 << 20, 37):
        if bits >> 5 & 7 != 6 and bits >> 8 & 7 != 6:
            assert Control.unpack(bits).pack() == bits


def test_a_control_word_holds_three_fields_first_instruction_lowest() -> None:
    assert split_control_word(0x001F8000FC0007E0) == (0x7E0, 0x7E0, 0x7E0)
    assert join_control_word((1, 2, 3)) == 1 | 2 << 21 | 3 << 42
    assert split_control_word(join_control_word((0x1FFFFF, 0, 0x12345))) == (0x1FFFFF, 0, 0x12345)
