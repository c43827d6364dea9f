"""The net under the scheduler: random schedule blocks compute what their lines say. MAXDNN_BLOCKS sets how many."""

import dataclasses
import os
import shutil
from pathlib import Path

import pytest

from tests.maxas import blocks, tool

COUNT = int(os.environ.get("MAXDNN_BLOCKS", "20"))
AT_ONCE = 5


@pytest.mark.sampled(1)
@pytest.mark.parametrize("first", range(0, COUNT, AT_ONCE))
def test_scheduled_blocks_leave_the_memory_their_lines_describe(first: int, tmp_path: Path) -> None:
    wrong = blocks.different(tmp_path, list(range(first, min(first + AT_ONCE, COUNT))))
    assert not wrong, f"python -m tests.maxas.blocks {wrong[0]} prints the first"


def test_the_machine_notices_what_the_waits_are_for(tmp_path: Path) -> None:
    """Without any wait most programs leave other memory: the comparison above can fail."""
    programs = [blocks.program(seed) for seed in range(6)]
    careless = []
    for program in programs:
        parts = tuple((block, tuple((n, dataclasses.replace(line, wait=0)) for n, line in lines))
                      for block, lines in program.parts)
        careless.append(dataclasses.replace(program, parts=parts))
    right, wrong = (blocks.kernels(tmp_path, some, True) for some in (programs, careless))
    differ = [blocks.outcome(a, "late", n) != blocks.outcome(b, "late", n)
              for n, (a, b) in enumerate(zip(right, wrong, strict=True))]
    assert sum(differ) >= 3


@pytest.mark.sampled(1)
@pytest.mark.parametrize("first", range(0, COUNT, AT_ONCE))
def test_lanes_that_exchange_words_read_what_their_lines_say(first: int, tmp_path: Path) -> None:
    assert not blocks.different(tmp_path, list(range(first, min(first + AT_ONCE, COUNT))),
                                author_of=blocks.Exchanging)


def test_an_order_of_shared_memory_that_only_follows_addresses_is_noticed(tmp_path: Path) -> None:
    """A scheduler that lets a store pass a load from another base register makes programs that leave other memory, so
    the test above holds ours to the order of the source."""
    folder = shutil.copytree(tool.MAXAS.parent, tmp_path / "tools" / "maxas")
    shutil.copytree(tool.ROOT / "maxdnn" / "isa", tmp_path / "maxdnn" / "isa")
    depend = folder / "lib" / "MaxAs" / "Depend.pm"
    text, rule = depend.read_text(), "my $memory = $both && ("
    assert text.count(rule) == 1
    depend.write_text(text.replace(
        rule, "my ($mine, $theirs) = map { $_->{args}{addr}{value} // '' } @{ $state->{run} }[$i, $j];\n"
              "        my $memory = $both && $mine eq $theirs && ("))
    assert blocks.different(tmp_path, list(range(10)), folder / tool.MAXAS.name, blocks.Exchanging)


def test_the_programs_hold_what_authors_write() -> None:
    """Groups under one barrier, stores under one read barrier, macros, predicates, carry, vectors, ORDERED, loops."""
    text = "".join(blocks.program(seed).source("k", True) for seed in range(20))
    for part in ("XMAD.LO ", "XMAD.LO2 ", "@!P", ".CC,", "IADD.X", ".128", "<ORDERED>", "LOOP:", "R2P", "P2R", "TLD",
                 "LDC", "MUFU", "DADD", "S2R", "SHFL", "ATOMS", "RED", "LDS", "LDG", "STS", "STG", " p3"):
        assert part in text, part
    for kinds in (("LDS", "LDG"), ("STS", "STG")):
        lines = [line for line in text.split("\n") if any(kind in line for kind in kinds)]
        assert sum(":-:-:-:1" in line for line in lines) >= 10, "loads and stores without a barrier of their own"
