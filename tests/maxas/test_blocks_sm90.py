"""Schedule blocks of sm_90: what they compute, what the checker says, and what they are made of. MAXDNN_BLOCKS sets how
many random ones."""

import os
import re
from pathlib import Path

import pytest

from maxdnn import cubin
from tests.maxas import blocks_sm90 as blocks
from tests.maxas import tool

COUNT = int(os.environ.get("MAXDNN_BLOCKS", "12"))
AT_ONCE = 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize("first", range(0, COUNT, AT_ONCE))
def test_scheduled_blocks_leave_the_memory_their_lines_describe_and_have_no_hazard(first: int, tmp_path: Path) -> None:
    wrong = blocks.different(tmp_path, range(first, min(first + AT_ONCE, COUNT)))
    assert not wrong, f"python -m tests.maxas.blocks_sm90 {wrong[0]} prints the first"
    assert not blocks.hazards((tmp_path / "blocks1.cubin").read_bytes())


def test_the_checker_notices_what_the_waits_are_for(tmp_path: Path) -> None:
    text = "".join(blocks.source(seed, f"k{seed}", True) for seed in range(6))
    careless = re.sub(r"<SCHEDULE_BLOCK>.*?</SCHEDULE_BLOCK>", lambda m: re.sub(r"(?m)^[0-9a-f]{2}:", "--:", m[0]),
                      text, flags=re.DOTALL)
    assert len(blocks.hazards(tool.assemble(tmp_path, careless, "-w"))) >= 3


def test_the_programs_hold_what_authors_write() -> None:
    text = "".join(blocks.source(seed, "k", True) for seed in range(30))
    for part in ("@!P", "IADD3.X", "IMAD.WIDE", ".128", "R2P", "P2R", "LDC", "MUFU", "DADD", "S2R", "SHFL", "ATOMS",
                 "REDG", "R2UR", "UIADD3", "ULDC", "ULOP3", ".reuse", " p3", "PLOP3", "@UP", "@!UP", "UISETP",
                 "USEL"):
        assert part in text, part


SOURCE = """# Kernel: k
# Arch: sm_90
# ReqThreads: 32
--:-:1:-:2      S2R R0, SR_TID.X;
01:-:-:-:6      IMAD.SHL.U32 R1, R0, 0x4, RZ;
<SCHEDULE_BLOCK>
{}</SCHEDULE_BLOCK>
--:-:-:Y:5      EXIT;
"""


def _scheduled(folder: Path, *lines: str) -> list[str]:
    body = "".join(f"{line}\n" if line.startswith("<") else f"--:-:-:-:1 {line};\n" for line in lines)
    image = tool.assemble(folder, SOURCE.format(body), "-w")
    assert not blocks.hazards(image)
    code = cubin.read(image).kernel("k").instructions
    return [f"{inst.control.stall} {inst.text()}" for inst in code[2:] if inst.opcode not in ("BRA", "EXIT")]


def test_stalls_are_those_between_producer_and_consumer(tmp_path: Path) -> None:
    """An integer result is there for its own kind after 4 cycles, for products after 5; a guard after 13."""
    made = _scheduled(tmp_path, "IADD3 R2, R0, R1, RZ", "LOP3.LUT R3, R2, R1, RZ, 0xc0, !PT", "IMAD R4, R3, R3, RZ")
    assert [line.split()[:2] for line in made[:2]] == [["4", "IADD3"], ["5", "LOP3.LUT"]]
    assert _scheduled(tmp_path, "ISETP.LT.AND P0, PT, R0, R1, PT", "@P0 FADD R2, R0, R1")[0].startswith("13 ISETP")


@pytest.mark.parametrize("producer, consumer, cycles", [
    ("UISETP.LT.AND UP0, UPT, UR4, UR5, UPT", "@UP0 UIADD3 UR6, UR4, 0x1, URZ", 12),
    ("UISETP.LT.AND UP0, UPT, UR4, UR5, UPT", "@!UP0 UMOV UR6, 0x1", 12),
    ("VOTEU.ANY UR7, UP0, P1", "@UP0 UMOV UR6, 0x5", 5),
    ("UISETP.LT.AND UP0, UPT, UR4, UR5, UPT", "USEL UR6, UR4, UR5, UP0", 4)])
def test_a_uniform_guard_has_its_time(tmp_path: Path, producer: str, consumer: str, cycles: int) -> None:
    """The checker wants as much; what the scheduler left for a guard were 6 cycles."""
    made = _scheduled(tmp_path, "<ORDERED>", producer, consumer, "</ORDERED>")
    assert int(made[0].split()[0]) == cycles


@pytest.mark.parametrize("reader", ["ULOP3.LUT UR6, UR4, UR5, URZ, 0xfc, !UPT", "USEL UR6, UR4, UR5, UP0"])
@pytest.mark.parametrize("between", ["", "</SCHEDULE_BLOCK>\n<SCHEDULE_BLOCK>\n", "</SCHEDULE_BLOCK>\n"])
def test_a_uniform_register_is_read_before_umov_writes_it(tmp_path: Path, reader: str, between: str) -> None:
    """In a block, from one to the next, and behind the last: three cycles, as the checker wants."""
    write = "--:-:-:-:1 UMOV UR5, 0x1;\n" + ("" if between == "</SCHEDULE_BLOCK>\n" else "</SCHEDULE_BLOCK>\n")
    body = f"<SCHEDULE_BLOCK>\n--:-:-:-:1 {reader};\n{between}{write}"
    image = tool.assemble(tmp_path, SOURCE.replace("<SCHEDULE_BLOCK>\n{}</SCHEDULE_BLOCK>\n", body), "-w")
    assert not blocks.hazards(image)


def test_what_is_behind_a_block_may_be_guarded_by_what_it_made(tmp_path: Path) -> None:
    body = ("<SCHEDULE_BLOCK>\n--:-:-:-:1 UISETP.LT.AND UP0, UPT, UR4, UR5, UPT;\n</SCHEDULE_BLOCK>\n"
            "--:-:-:Y:f @UP0 UMOV UR6, 0x1;\n")
    image = tool.assemble(tmp_path, SOURCE.replace("<SCHEDULE_BLOCK>\n{}</SCHEDULE_BLOCK>\n", body), "-w")
    assert not blocks.hazards(image)


def test_what_a_stall_cannot_say_is_said_by_instructions_that_do_nothing(tmp_path: Path) -> None:
    """What R2UR writes is there for vector instructions after 17 cycles."""
    made = _scheduled(tmp_path, "R2UR UR6, R0", "IADD3 R2, R1, UR6, RZ")
    assert [line.split()[1] for line in made[:3]] == ["R2UR", "NOP", "IADD3"]
    assert [int(line.split()[0]) for line in made[:2]] == [15, 2]


def test_flags_are_those_of_the_new_order(tmp_path: Path) -> None:
    """R0 is read again in its place; R1 is written before it is, so that its flag would serve what it was."""
    made = _scheduled(tmp_path, "<ORDERED>", "FADD R2, R0, R1.reuse", "FMUL R1, R0, R6", "FADD R3, R0, R1",
                      "FMUL R4, R2, R3", "</ORDERED>")
    assert "FADD R2, R0.reuse, R1" in made[0] and "R1.reuse" not in "".join(made)
