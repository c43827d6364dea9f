"""Every instruction the vendor's compiler emits for the corpus decodes to the vendor's text and encodes to the same
bits, control words included. Nothing is excluded."""

import dataclasses
import struct

import pytest

from maxdnn import cubin
from maxdnn.isa import encode
from maxdnn.isa.control import join_control_word
from tests import oracles
from tests.corpus import compiler


def _code_words(kernel: cubin.CubinKernel) -> list[int]:
    return [word for (word,) in struct.iter_unpack("<Q", kernel.code)]


def _kernels(source: str) -> list[cubin.CubinKernel]:
    return list(cubin.read(compiler.compile_source(source)).kernels.values())


@pytest.mark.parametrize("source", compiler.sources())
def test_instructions_of_the_corpus_print_as_the_vendor_prints_them(source: str) -> None:
    for kernel in _kernels(source):
        vendor = oracles.instruction_lines(oracles.nvdisasm_raw(_code_words(kernel), kernel.arch))
        assert [(inst.address, inst.text()) for inst in kernel.instructions] == vendor


@pytest.mark.parametrize("source", compiler.sources())
def test_instructions_of_the_corpus_encode_to_the_same_code(source: str) -> None:
    for kernel in _kernels(source):
        code = []
        for i in range(0, len(kernel.instructions), 3):
            group = [dataclasses.replace(inst, word=0) for inst in kernel.instructions[i:i + 3]]
            fields = [inst.control.pack() for inst in group]
            code += [join_control_word((fields[0], fields[1], fields[2])), *map(encode, group)]
        assert code == _code_words(kernel)
