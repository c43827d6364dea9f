"""The native products of sm_90 on the virtual GPU: right at any edge, batch, transposition and split, nothing written
outside; and what the machine code promises."""

import os
import re
import struct
from dataclasses import replace

import numpy as np
import pytest

from maxdnn import ConvShape, cubin
from maxdnn.algorithms.gemm import plan as family
from maxdnn.algorithms.gemm import tensor_cores
from maxdnn.algorithms.gemm.maxwell import LAYOUTS, ProductKernel
from maxdnn.algorithms.gemm.sm90 import NATIVE
from maxdnn.build.cubins import cubin as built
from maxdnn.checker import check_cubin, check_hazards
from maxdnn.errors import ShapeError
from maxdnn.isa import hopper
from maxdnn.planning.cost import preset
from maxdnn.planning.plan import Plan
from maxdnn.planning.select import choose
from maxdnn.problem.operands import view
from maxdnn.problem.problem import forward, product
from maxdnn.runtime import engine
from maxdnn.runtime.devices import find
from tests.contract import run_plan
from tests.corpus import compiler

from .native import ANOTHER, H200

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "20"))  # every kernel once
GUARD = np.float32(-7.25)
SEEN_TO_RUN = {"ldg_uniform__Ra32", "uiadd3__URURUR_URURUR"}  # on an H200, in no compiled code here
SOURCES = ("sm90/product_128x128", "sm90/product_64x64", "sm90/product_32x64")


def _random(seed: int):
    rng = np.random.default_rng(seed)
    spec = NATIVE[seed % len(NATIVE)]
    m, n, k = (int(rng.integers(1, most)) for most in (2 * spec.rows, 2 * spec.tile, 70))
    ta, tb = (letter == "t" for letter in spec.layout)
    batch = (int(rng.integers(1, 4)),) if seed % 3 == 0 else ()
    a = rng.uniform(-1, 1, (*batch, *((k, m) if ta else (m, k)))).astype(np.float32)
    b = rng.uniform(-1, 1, (*batch, *((n, k) if tb else (k, n)))).astype(np.float32)
    splits = int(rng.choice(spec.splits(k)[:3]))
    problem = product(a.shape, b.shape, transpose_a=ta, transpose_b=tb, reads_out=bool(seed % 5 == 1))
    return spec, splits, problem, a, b, rng


@pytest.mark.sampled(1, 6)
@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_random_products_are_right_and_write_nothing_else(seed: int) -> None:
    spec, splits, problem, a, b, rng = _random(seed)
    name = spec.name if splits == 1 else f"{spec.name}_split{splits}"
    plan = choose(problem, preset(), name)
    assert plan.archs == ("sm_90",) and spec.name in plan.explain()
    _is_right(plan, a, b, rng)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(PROBLEMS // 4))
def test_tails_of_tiles_in_parts_are_right_and_write_nothing_else(seed: int) -> None:
    chip = replace(H200, sms=1)  # so that few tiles make a wave
    rng = np.random.default_rng(seed)
    layout = LAYOUTS[seed % 4]
    ta, tb = (letter == "t" for letter in layout)
    m, n, k = int(rng.integers(257, 380)), int(rng.integers(25, 32)) * 4 - seed // 2 % 2, int(rng.integers(20, 90))
    a = rng.uniform(-1, 1, (k, m) if ta else (m, k)).astype(np.float32)
    b = rng.uniform(-1, 1, (n, k) if tb else (k, n)).astype(np.float32)
    problem = product(a.shape, b.shape, transpose_a=ta, transpose_b=tb, reads_out=bool(seed % 3 == 1))
    (name,) = (x for x in family.candidates(problem, chip) if "_tail" in x)
    plan = choose(problem, chip, name)
    assert "the sums of the last 1 rows of tiles, which do not fill the chip, are split" in plan.explain()
    _is_right(plan, a, b, rng)


def _is_right(plan: Plan, a: np.ndarray, b: np.ndarray, rng: np.random.Generator) -> None:
    """Against float64 and the contract, with guard zones around the result."""
    problem = plan.problem
    shape = problem.shapes["out"]
    size = int(np.prod(shape))
    memory = np.full(size + 64, GUARD)
    out = memory[32:32 + size].reshape(shape)
    if problem.reads_out:
        out[:] = rng.uniform(-1, 1, shape).astype(np.float32)
    before = out.copy()
    given = {name: view(name, array, rank=array.ndim) for name, array in (("a", a), ("b", b), ("out", out))}
    scalars = {"alpha": np.float32(1.5), "beta": np.float32(0.5)}
    engine.run(plan, given, scalars, find.host())
    ta, tb = (letter == "t" for letter in problem.layout)
    x, y = (np.swapaxes(v, -1, -2) if t else v for v, t in ((a.astype(float), ta), (b.astype(float), tb)))
    want = 1.5 * (x @ y) + (0.5 * before if problem.reads_out else 0)
    magnitude = 1.5 * (abs(x) @ abs(y)) + abs(before if problem.reads_out else 0)
    assert (abs(out - want) <= 2e-6 * magnitude + 1e-12).all()
    assert (memory[:32] == GUARD).all() and (memory[32 + size:] == GUARD).all()
    told = run_plan(plan, {"a": a, "b": b} | ({"out": before} if problem.reads_out else {}), alpha=1.5, beta=0.5)["out"]
    assert np.allclose(told.reshape(shape), want, rtol=0, atol=1e-5)


def test_the_choice_takes_machine_code_where_it_runs_and_nowhere_else() -> None:
    large = product((2048, 2048), (2048, 2048))
    assert choose(large, H200).spec is tensor_cores.PRODUCT
    by_ffma = choose(large, H200, families=(family.FAMILY,))
    assert by_ffma.spec in NATIVE and "sm90_product_128x128_nn" in by_ffma.explain()
    assert not choose(large, preset()).archs
    assert not choose(large, ANOTHER).archs
    with pytest.raises(ShapeError, match="machine code of sm_90, which another does not run"):
        choose(large, ANOTHER, "sm90_product_128x128_nn")


def test_few_tiles_have_slices_of_k_in_a_block_instead_of_a_second_launch() -> None:
    plan = choose(product((1024, 1024), (1024, 1024)), H200, families=(family.FAMILY,))
    assert len(plan.launches) == 1 and plan.spec in NATIVE
    assert "64 x 64 results each, in " in plan.explain() and "parts that the block adds" in plan.explain()


def test_smaller_tiles_reach_every_multiprocessor() -> None:
    plan = choose(product((512, 512), (512, 512)), H200)
    assert len(plan.launches) == 1 and "32 x 64 results each, in 4 parts that the block adds" in plan.explain()


@pytest.mark.parametrize(("m", "n", "k", "name", "microseconds"), [
    (128, 128, 128, "32x64x4_nn", 4.7), (384, 384, 384, "32x64x4_nn", 8.0), (512, 512, 512, "32x64x4_nn", 9.8),
    (768, 768, 768, "32x64x4_nn", 30.6), (896, 896, 896, "32x64x4_nn", 34.4), (896, 896, 896, "64x64x2_nn", 41.3),
    (1024, 1024, 1024, "64x64x4_nn", 45.2), (1024, 1024, 1024, "64x64x2_nn", 47.1),
    (1280, 1280, 1280, "64x64x4_nn", 107.3), (1536, 1536, 1536, "32x64x4_nn", 163.4),
    (2048, 2048, 2048, "64x64x2_nn", 326.5), (2048, 2048, 2048, "128x128_nn", 305.0),
    (3072, 3072, 512, "128x128_nn", 241.8), (128, 4096, 1024, "64x64x4_nn", 26.5)])
def test_one_launch_takes_what_is_estimated(m: int, n: int, k: int, name: str, microseconds: float) -> None:
    """As timed on an H200 in graphs of ten calls, within 8 percent."""
    plan = choose(product((m, k), (k, n)), H200, f"sm90_product_{name}")
    assert plan.clocks(H200) / 1980 == pytest.approx(microseconds, rel=0.08)


def test_a_begun_wave_of_many_tiles_is_split() -> None:
    plan = choose(product((4096, 4096), (4096, 4096)), H200, families=(family.FAMILY,))
    assert plan.spec.name == "sm90_product_128x128_nn" and plan.launches[0].grid[1] > 32
    assert "the sums of the last 8 rows of tiles, which do not fill the chip, are split" in plan.explain()


@pytest.mark.parametrize("images", [1, 8])
def test_small_products_of_winograd_are_machine_code(images: int) -> None:
    plan = choose(forward(ConvShape(images, 64, 56, 56, 64, 3, 3, 1, 1), layout="NCHW"), H200, arithmetic="ffma")
    assert plan.family == "winograd" and any(launch.spec in NATIVE for launch in plan.launches)
    assert re.search("sm90_product_(32|64)x64", plan.explain())


@pytest.mark.sampled(1)
@pytest.mark.parametrize("spec", [spec for spec in NATIVE if spec.slices == 4], ids=lambda spec: spec.name)
def test_a_slice_without_any_part_of_k_adds_nothing(spec) -> None:
    """Not even where infinities lie behind the operands."""
    ta, tb = (letter == "t" for letter in spec.layout)
    memory = np.full((2, 64 * 64), np.inf, np.float32)
    a, b = (x[:64 * 8].reshape((8, 64) if along else (64, 8))
            for x, along in zip(memory, (ta, not tb), strict=True))
    a[:], b[:] = 2, 3
    plan = choose(product(a.shape, b.shape, transpose_a=ta, transpose_b=tb), preset(), spec.name)
    out = np.empty((64, 64), np.float32)
    given = {name: view(name, array, rank=2) for name, array in (("a", a), ("b", b), ("out", out))}
    engine.run(plan, given, {"alpha": np.float32(1)}, find.host())
    assert (out == 48).all()


@pytest.mark.sampled(0, 1)
@pytest.mark.parametrize(("source", "name"), [(SOURCES[0], NATIVE[0].name), (SOURCES[1], "sm90_product_64x64x4_nn"),
                                               (SOURCES[2], "sm90_product_32x64x4_tt")])
def test_the_machine_code_is_checked_and_a_weaker_code_is_found(source: str, name: str) -> None:
    image = built(source, "sm_90")
    assert all(report.clean for report in check_cubin(image))
    kernel = cubin.read(image).kernel(name)
    at = image.index(kernel.code)
    code = bytearray(kernel.code)
    mutants = {
        "a wait less": next(i for i, inst in enumerate(kernel.instructions) if inst.opcode == "FFMA"
                            and inst.control.wait_mask),
        "a stall shorter": next(i for i, inst in enumerate(kernel.instructions) if inst.opcode == "ISETP"
                                and kernel.instructions[i + 1].guard.index == inst["pd"].value),
        "a barrier less": next(i for i, inst in enumerate(kernel.instructions) if inst.opcode == "LDC"),
    }
    for what, index in mutants.items():
        word = int.from_bytes(code[16 * index:16 * index + 16], "little")
        if what == "a wait less":
            word &= ~(63 << 116)
        elif what == "a stall shorter":
            word = word & ~(15 << 105) | 5 << 105
        else:
            word |= 7 << 110
        changed = image[:at + 16 * index] + word.to_bytes(16, "little") + image[at + 16 * index + 16:]
        assert not check_hazards(cubin.read(changed).kernel(name)).ok, what


@pytest.mark.sampled(0, 2)
@pytest.mark.parametrize("source", SOURCES)
def test_the_code_has_only_words_that_compiled_code_has(source: str) -> None:
    """Of other words nobody has seen that the chip takes them."""
    compiled = {kernel.table.find(word) for name in ("memory.cu", "int_arith.cu", "f32.cu", "integer_programs.cu",
                                                     "float_programs.cu", "barrier.cu", "warp.cu", "int_bits.cu")
                for kernel in cubin.read(compiler.compile_source(name, "sm_90")).kernels.values()
                for _, word, _ in kernel.words()}
    for kernel in cubin.read(built(source, "sm_90")).kernels.values():
        assert {inst.row.spec["name"] for inst in kernel.instructions if inst.row not in compiled} == SEEN_TO_RUN


@pytest.mark.sampled(5)
@pytest.mark.parametrize("spec", NATIVE, ids=lambda spec: spec.name)
def test_the_loop_spends_its_slots_on_ffma(spec: ProductKernel) -> None:
    code = cubin.read(built(spec.source.removesuffix(".sass"), "sm_90")).kernel(spec.name).instructions
    end = next(i for i, inst in enumerate(code) if inst.opcode == "BRA" and inst["target"].value < inst.address)
    start = next(i for i, inst in enumerate(code) if inst.address == code[end]["target"].value)
    loop = code[start:end + 1]
    ffma, lds = (1024, 48) if spec.tile == 128 or (spec.rows, spec.slices > 1) == (64, True) else (512, 32)
    assert sum(inst.opcode == "FFMA" for inst in loop) == ffma
    assert sum(inst.opcode == "LDS" for inst in loop) == lds
    assert len(loop) == spec.slots[0]
    assert len(re.findall(r"\.reuse", " ".join(inst.text() for inst in loop))) >= ffma - 8
    assert hopper().reuse_entries == 1


@pytest.mark.long
def test_the_cubin_says_where_a_warp_meets() -> None:
    """Where it reads what its lanes stored, compiled code has a NOP, of which tools that look for races are told."""
    meets = 0x28
    for source in SOURCES:
        for kernel in cubin.read(built(source, "sm_90")).kernels.values():
            nops = [inst.address for inst in kernel.instructions if inst.opcode == "NOP" and inst.control.stall]
            told = [list(struct.unpack(f"<{len(value) // 4}I", value))
                    for code, value in kernel.attributes if code == meets]
            assert told == ([nops] if nops else []) and bool(nops) == bool(re.search("x[24]_", kernel.name))
