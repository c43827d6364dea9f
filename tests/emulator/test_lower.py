"""Whatever a word decodes to, its tracing gives valid code or a fault at that instruction, never an exception."""

import random

import llvmlite.binding as llvm
import pytest

from maxdnn.cubin import CubinKernel
from maxdnn.emulator import native
from maxdnn.emulator.lower import Lowering
from maxdnn.emulator.program import Program
from maxdnn.errors import DecodeError
from maxdnn.isa import TABLE, Control, decode
from maxdnn.semantics import SEMANTICS

NOP, EXIT = 0x50B0000000070F00, 0xE30000000007000F
CONTROL = 0x001F8000FC0007E0
BANKS = (0x200, 0, 64, 64, 16) + (0,) * 13


def kernel(words):
    """A kernel of these words, exit after the last."""
    words = [*words, EXIT]
    words += [NOP] * (-len(words) % 3)
    groups = [(CONTROL, *words[k:k + 3]) for k in range(0, len(words), 3)]
    code = b"".join(w.to_bytes(8, "little") for group in groups for w in group)
    return CubinKernel("k", "sm_52", code, 255, 1024, 64, 16, (), {}, (), ())


def samples(row, count, rng):
    """Random words of a row that decode."""
    found = []
    while len(found) < count:
        word = row.value | rng.getrandbits(64) & ~row.mask
        word = word & ~0xF0000 | 0x70000 if row.guard and rng.random() < 0.7 else word
        try:
            if decode(word, Control(), 8).row is row:
                found.append(word)
        except DecodeError:
            continue
    return found


def lowered(words, full):
    native.target()
    module = llvm.parse_assembly(str(Lowering(Program(kernel(words)), full, BANKS).module))
    module.verify()
    return module


@pytest.mark.sampled(40)
@pytest.mark.parametrize("mnemonic", sorted({row.mnemonic for row in TABLE.rows}))
def test_every_row_of_the_table_lowers_to_valid_code(mnemonic):
    rng = random.Random(mnemonic)
    for row in TABLE.named(mnemonic):
        words = samples(row, 6, rng)
        for full in (True, False):
            for k in range(0, 6, 3):
                lowered(words[k:k + 3], full)


def test_every_semantic_function_serves_a_row():
    known = {row.mnemonic for row in TABLE.rows} | {row.opcode for row in TABLE.rows}
    assert set(SEMANTICS) <= known
