"""The native direct convolutions of sm_90 on the virtual GPU: right for any layer and gradient they serve, nothing
written outside, and what the machine code promises."""

import os

import numpy as np
import pytest

from maxdnn import ConvShape, cubin
from maxdnn.algorithms.interior import sm90 as interior_sm90
from maxdnn.algorithms.interior.sm90 import KERNELS
from maxdnn.build.cubins import cubin as built
from maxdnn.checker import check_hazards
from maxdnn.layers import LAYERS
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose
from maxdnn.problem.activations import ACTIVATIONS
from maxdnn.problem.problem import data, forward
from maxdnn.runtime.devices import find

from .native import BY_FFMA, H200, check_code, check_taken_there_alone, run

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "16"))
SOURCE = "sm90/taps"


def random_layer(rng: np.random.Generator, groups: bool) -> ConvShape:
    """Small layers of all kinds: ragged tiles, taps beyond every border, groups, dilation."""
    group = int(rng.choice([1, 1, 1, 2, 3]))
    channels = 8 * int(rng.integers(1, 4)) if groups else int(rng.choice([1, 2, 3, 5, 9, 12, 20]))
    r, s, dilation = int(rng.integers(1, 5)), int(rng.integers(1, 5)), int(rng.choice([1, 1, 2]))
    reach = (dilation * (r - 1), dilation * (s - 1))
    pad = tuple(int(rng.integers(0, x + 1)) // 2 for x in reach)
    h, w = (int(rng.integers(max(1, x + 1 - 2 * p), x + 6)) for x, p in zip(reach, pad, strict=True))
    return ConvShape(4 * int(rng.integers(1, 48)), channels * group, h, w, int(rng.integers(1, 150)) * group, r, s,
                     int(rng.integers(1, 4)), pad, dilation, group)


def served(rng: np.random.Generator, groups: bool, unaligned: tuple[str, ...] = ()):
    """A problem that the family serves, and how it ends."""
    while True:
        shape = random_layer(rng, groups)
        kind = data if rng.integers(0, 4) == 0 else forward
        epilogue = {} if kind is data else {"bias": bool(rng.integers(0, 2)), "activation": rng.choice(ACTIVATIONS)}
        problem = kind(shape, layout=rng.choice(["CHWN", "CHWN", "NCHW"]), reads_out=bool(rng.integers(0, 3) == 0),
                       unaligned=unaligned, **epilogue)
        if interior_sm90.unsupported_reason(problem) is None:
            return problem


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(PROBLEMS))
def test_random_layers_are_right_and_write_nothing_else(seed: int) -> None:
    rng = np.random.default_rng(seed)
    spec = KERNELS[seed // 2 % len(KERNELS)]
    problem = served(rng, not spec.elements, ("out",) * (seed % 2))
    while spec.elements != bool(problem.shape.C // problem.shape.groups % 8 if problem.kind == "forward"
                                else problem.shape.K // problem.shape.groups % 8):
        problem = served(rng, not spec.elements, ("out",) * (seed % 2))
    tails = [name for name in interior_sm90.candidates(problem, H200) if name.startswith(f"{spec.name}_split")]
    plan = choose(problem, H200, tails[0] if tails and seed % 3 else spec.name)
    assert plan.archs == ("sm_90",) and spec.name in plan.explain()
    out, told = run(plan, problem, rng, find.host(), gap=32 - seed % 2)
    s = problem.shape
    terms = max(1, (s.C if problem.kind == "forward" else s.K) * s.R * s.S)  # of a sum
    assert np.allclose(out, told, rtol=0, atol=3e-6 * terms ** 0.5), problem


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_the_papers_layers_take_machine_code_where_it_runs_and_nowhere_else(layer) -> None:
    check_taken_there_alone(forward(layer.shape), KERNELS)


@pytest.mark.long
def test_the_last_pixels_of_a_layer_are_split_and_a_layer_that_exceeds_its_table_takes_several_launches() -> None:
    plan = choose(forward(LAYERS[3].shape), H200, **BY_FFMA)
    assert "are split" in plan.explain() and len(plan.launches) == 2
    large = choose(forward(ConvShape(4, 3, 80, 80, 8, 3, 3, 1, 1)), preset(), "sm90_elements_K64_N128")
    assert [launch.grid[2] for launch in large.launches] == [3200, 3200]
    rng = np.random.default_rng(1)
    out, told = run(large, large.problem, rng, find.host())
    assert np.allclose(out, told, rtol=0, atol=2e-5)


@pytest.mark.long
def test_the_machine_code_is_checked_and_its_loop_spends_its_slots_on_ffma() -> None:
    check_code(SOURCE, KERNELS)


@pytest.mark.long
def test_a_load_is_not_told_of_by_one_that_a_predicate_may_skip() -> None:
    """Without its barrier an H200 gave wrong results: the next load of that barrier has another guard."""
    image = built(SOURCE, "sm_90")
    kernel = cubin.read(image).kernel("sm90_elements_K96_N128")
    code = kernel.instructions
    first = next(i for i, inst in enumerate(code) if inst.opcode == "LDG" and inst.guard.index == 5)
    assert code[first + 1].opcode == "LDG" and code[first + 1].guard.index == 6
    at = image.index(kernel.code) + 16 * first
    word = int.from_bytes(image[at:at + 16], "little") | 7 << 110
    changed = image[:at] + word.to_bytes(16, "little") + image[at + 16:]
    assert not check_hazards(cubin.read(changed).kernel(kernel.name)).ok
