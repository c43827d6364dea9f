"""What an instruction is: table, fields, control codes, codec and text. Knows nothing of meaning or time."""

from .codec import decode, encode
from .control import Control
from .instruction import Guard, Instruction, Operand
from .table import PT, RZ, TABLE, URZ, InstructionClass, OperandField, Row, Table, hopper

__all__ = [
    "PT",
    "RZ",
    "TABLE",
    "URZ",
    "Control",
    "Guard",
    "Instruction",
    "InstructionClass",
    "Operand",
    "OperandField",
    "Row",
    "Table",
    "decode",
    "encode",
    "hopper",
]
