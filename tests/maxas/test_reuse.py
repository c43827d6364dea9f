"""One figure for the reuse cache (maxwell.json, operand_cache), and one reading of it: what the assembler counts, what
the timing model serves and what the checker takes for kept are the same reads."""

import random
import re
from pathlib import Path

import numpy as np
import pytest

from maxdnn import cubin
from maxdnn.checker.advice import _kept
from maxdnn.checker.effects import all_effects
from maxdnn.isa import TABLE
from maxdnn.simulator import columns
from maxdnn.simulator.operand import touch
from tests.maxas import tool

READS = 40


def test_the_timing_models_room_is_that_of_the_figure() -> None:
    """Two entries a slot, as measured: registers alternating in pairs are served, in threes not."""
    assert TABLE.reuse_entries == 2
    assert 3 * TABLE.reuse_entries == columns.S_UNIT0 - columns.S_REUSE


@pytest.mark.parametrize("registers", [2, 3, 4])
def test_assembler_timing_model_and_checker_agree_on_what_is_served(registers: int, tmp_path: Path) -> None:
    rng = random.Random(registers)
    reads = [(rng.randrange(registers), rng.random() < 0.7) for _ in range(READS)]
    body = "".join(f"--:-:-:-:1 FADD R20, R{n}{'.reuse' if flag else ''}, 0x0;\n" for n, flag in reads)
    path = tmp_path / "k.sass"
    path.write_text(f"# Kernel: k\n{body}--:-:-:-:f EXIT;\n")
    said = tool.maxas("-c", "-n", "-o", tmp_path / "k.cubin", path).out
    entries = np.full(2, -2, np.int64)
    served = [touch(entries, 0, n, int(flag)) for n, flag in reads]
    assert 0 < sum(served) < READS
    found = re.search(r"([\d.]+)% reuse", said)
    assert found and float(found[1]) == pytest.approx(100 * sum(served) / READS, abs=0.06)
    code = cubin.read(tmp_path / "k.cubin").kernel().instructions
    effects = all_effects(code)
    assert [len(_kept(code, effects, i)) for i in range(READS)] == served


def test_three_registers_in_turn_are_never_served(tmp_path: Path) -> None:
    for count, said in ((2, "93.3% reuse"), (3, "0.0% reuse")):
        body = "".join(f"--:-:-:-:1 FADD R20, R{n % count}, 0x0;\n" for n in range(30))
        (tmp_path / "k.sass").write_text(f"# Kernel: k\n{body}--:-:-:-:f EXIT;\n")
        assert said in tool.maxas("-c", "-o", tmp_path / "k.cubin", tmp_path / "k.sass").out
