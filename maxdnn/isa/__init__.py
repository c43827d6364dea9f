"""What an instruction is: table, fields, control codes, codec and text. Knows nothing of meaning or time."""

from .addressing import Addressing
from .codec import Undecodable, decode, encode, read_word, words
from .control import Control
from .instruction import Instruction
from .operand import Guard, Operand
from .table import PT, RZ, TABLE, URZ, Flow, InstructionClass, OperandField, Row, Table, hopper, table_of

__all__ = ["PT", "RZ", "TABLE", "URZ", "Addressing", "Control", "Flow", "Guard", "Instruction", "InstructionClass",
           "Operand", "OperandField", "Row", "Table", "Undecodable", "decode", "encode", "hopper", "read_word",
           "table_of", "words"]
