"""What an opcode of Hopper says behind its first word."""

from ...isa import Instruction
from ...isa.text import format_opcode


def words(i: Instruction) -> set[str]:
    """The parts of the printed opcode."""
    return set(parts(i))


def parts(i: Instruction) -> list[str]:
    """The same in order."""
    return format_opcode(i).split(".")[1:]
