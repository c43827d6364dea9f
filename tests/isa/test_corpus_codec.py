"""Every instruction the vendor's compiler emits for the corpus decodes to the vendor's text and encodes to the same
bits, control words included. Nothing is excluded."""

import dataclasses
import struct

import pytest

from maxdnn import cubin
from maxdnn.isa import encode
from maxdnn.isa.control import join_control_word
from tests import oracles
from tests.corpus import compiler, randomprog

RANDOM_SEEDS = range(20, 23)
PROGRAMS = [*compiler.sources(), *(f"random {seed}" for seed in RANDOM_SEEDS)]


def _code_words(kernel: cubin.CubinKernel) -> list[int]:
    return [word for (word,) in struct.iter_unpack("<Q", kernel.code)]


def _kernels(program: str) -> list[cubin.CubinKernel]:
    if program.startswith("random "):
        image = compiler.compile_text(randomprog.program(int(program.removeprefix("random "))), ".cu")
    else:
        image = compiler.compile_source(program)
    return list(cubin.read(image).kernels.values())


@pytest.mark.sampled(2, 4)
@pytest.mark.parametrize("program", PROGRAMS)
def test_instructions_of_the_corpus_print_as_the_vendor_prints_them(program: str) -> None:
    for kernel in _kernels(program):
        vendor = oracles.instruction_lines(oracles.nvdisasm_raw(_code_words(kernel), kernel.arch))
        assert [(inst.address, inst.text()) for inst in kernel.instructions] == vendor


@pytest.mark.sampled(2, 2)
@pytest.mark.parametrize("program", PROGRAMS)
def test_instructions_of_the_corpus_encode_to_the_same_code(program: str) -> None:
    for kernel in _kernels(program):
        code = []
        for i in range(0, len(kernel.instructions), 3):
            group = [dataclasses.replace(inst, word=0) for inst in kernel.instructions[i:i + 3]]
            fields = [inst.control.pack() for inst in group]
            code += [join_control_word((fields[0], fields[1], fields[2])), *map(encode, group)]
        assert code == _code_words(kernel)
