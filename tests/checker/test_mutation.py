"""A sample of the mutation test (tests/checker/mutation.py runs all of it): weakened control codes are found."""

import collections
import pathlib

import pytest

from maxdnn import cubin
from maxdnn.build.assemble import assemble
from tests.checker import mutation
from tests.checker.programs import with_control
from tests.checker.replay import paths, violates
from tests.corpus import compiler

SASS = pathlib.Path(__file__).resolve().parents[2] / "sass"
SEED = 7


def conv(folder: pathlib.Path) -> cubin.CubinKernel:
    output = folder / "conv.cubin"
    assemble(SASS / "maxwell/conv_fprop_64x64.sass", output)
    return cubin.read(output).kernel()


def sample(source: str) -> list[cubin.CubinKernel]:
    """Three kernels of a corpus program: the smallest, the middle one and the largest of moderate size."""
    kernels = sorted(cubin.read(compiler.compile_source(source, "sm_52")).kernels.values(),
                     key=lambda kernel: len(kernel.code))
    kernels = [kernel for kernel in kernels if len(kernel.code) < 10000]
    return [kernels[0], kernels[len(kernels) // 2], kernels[-1]]


@pytest.mark.long
def test_weakened_conv_kernels_are_found(tmp_path: pathlib.Path) -> None:
    print("seed", SEED)
    counts, misses = mutation.run(conv(tmp_path), each=3, seed=SEED)
    assert {kind for kind, _ in counts} >= {"stall", "wait", "write barrier"}
    assert misses == []


@pytest.mark.sampled(1)
@pytest.mark.parametrize("source", ["int_arith.cu", "math32.cu", "barrier.cu"])
def test_weakened_corpus_kernels_are_found(source: str) -> None:
    print("seed", SEED)
    total: collections.Counter[tuple[str, bool]] = collections.Counter()
    for kernel in sample(source):
        counts, misses = mutation.run(kernel, each=6, seed=SEED)
        total.update(counts)
        assert misses == []
    assert sum(total.values()) > 40


def test_replay_is_no_rubber_stamp(tmp_path: pathlib.Path) -> None:
    kernel = conv(tmp_path)
    waiting = next(i for i, inst in enumerate(kernel.instructions) if inst.control.wait_mask)
    ways = paths(kernel)
    assert not violates(kernel, ways)
    assert violates(with_control(kernel, waiting, wait_mask=0), ways)
