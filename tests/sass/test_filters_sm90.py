"""The native gradients of filters of sm_90 on the virtual GPU: right for any layer they serve, nothing written outside,
and what the machine code promises."""

import os
import random
import re
from collections import Counter

import pytest

from maxdnn import ConvShape, cubin
from maxdnn.algorithms.wgrad import plan as texels
from maxdnn.algorithms.wgrad import sm90_nchw as wgrad_nchw
from maxdnn.build.cubins import asset
from maxdnn.build.cubins import cubin as built
from maxdnn.checker import check_cubin, check_hazards
from maxdnn.layers import LAYERS
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose, plans
from maxdnn.problem.problem import filters
from tests.algorithms.test_families import draw
from tests.checker.test_shared import barriers, judged, without_barrier
from tests.test_backward import CORNERS, check, families_of

from .native import ANOTHER, BY_FFMA, H200

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "12"))
NATIVE = (*texels.NATIVE, *wgrad_nchw.KERNELS)


def random_problem(number: int):
    """A layer, its layout and beta, the candidate of one of the kernels: each kernel as often."""
    rng = random.Random(f"native {number}")
    spec = NATIVE[number % len(NATIVE)]
    while True:
        shape, layout, beta = draw(rng), rng.choice(("CHWN", "NCHW")), rng.choice([0.0, 0.0, -1.5])
        problem = filters(shape, layout=layout, reads_out=beta != 0)
        found = families_of([name for family in (texels, wgrad_nchw)
                             if family.FAMILY.unsupported_reason(problem) is None
                             for name in family.candidates(problem, preset())])
        if spec.name in found and shape.flops < 2e7:
            return shape, layout, beta, rng.choice(found[spec.name]), rng


@pytest.mark.sampled(1, 3)
@pytest.mark.parametrize("number", range(PROBLEMS))
def test_random_layers_are_right_and_write_nothing_else(number: int) -> None:
    shape, layout, beta, kernel, rng = random_problem(number)
    made = check(shape, layout, "filters", rng, kernel=kernel, alpha=rng.choice([1.0, -0.75]), beta=beta)
    assert made.archs == ("sm_90",) and made.spec.name in made.explain()


@pytest.mark.sampled(1, 11)
@pytest.mark.parametrize("name", CORNERS)
def test_corners(name) -> None:
    """By a kernel for either layout, and by one for N,C,H,W as it lies."""
    rng = random.Random(name)
    for layout, family in (("CHWN", texels), ("NCHW", wgrad_nchw)):
        problem = filters(CORNERS[name], layout=layout)
        if family.FAMILY.unsupported_reason(problem):
            assert "padding of filters 17x18 of more than 16" in family.FAMILY.unsupported_reason(problem)
            continue
        names = [x for x in family.candidates(problem, preset()) if x.startswith("sm90_")]
        check(CORNERS[name], layout, "filters", rng, kernel=rng.choice(names))


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
@pytest.mark.parametrize("layout", ["CHWN", "NCHW"])
def test_the_papers_layers_take_machine_code_where_it_runs_and_nowhere_else(layer, layout) -> None:
    problem = filters(layer.shape, layout=layout)
    plan = choose(problem, H200, **BY_FFMA)
    assert plan.spec in NATIVE and plan.spec.name in plan.explain()
    assert not choose(problem, preset(), algorithm="direct").archs
    assert not choose(problem, ANOTHER, algorithm="direct").archs


def test_few_channels_or_filters_take_the_kernel_that_is_narrow_there_in_either_layout() -> None:
    for layout in ("CHWN", "NCHW"):
        for shape, name in ((ConvShape(128, 16, 16, 16, 64, 3, 3), "sm90_filters_128x64_e"),
                            (ConvShape(128, 64, 16, 16, 256, 1, 1), "sm90_filters_64x128_k")):
            every = plans(filters(shape, layout=layout), H200, families=(texels.FAMILY,)).values()
            plan = min((plan for plan in every if plan.spec in NATIVE), key=lambda plan: plan.clocks(H200))
            assert plan.spec.name == name, (layout, plan.explain())
            turned = (layout == "CHWN") == name.endswith("e")
            assert ("the result changes layout" in plan.explain()) == turned


def test_what_lies_as_texels_is_read_so_and_the_rest_pixel_by_pixel() -> None:
    whole = choose(filters(ConvShape(32, 256, 56, 56, 128, 1, 1), layout="NCHW"), H200, **BY_FFMA)
    assert whole.spec.name == "sm90_filters_128x128_e" and "change layout" not in whole.explain()
    odd = choose(filters(ConvShape(32, 1024, 14, 14, 512, 1, 1), layout="NCHW"), H200, **BY_FFMA)
    assert odd.spec.name == "sm90_filters_nchw_128x128_e" and "change layout" not in odd.explain()
    strided = choose(filters(ConvShape(32, 256, 56, 56, 512, 1, 1, 2), layout="NCHW"), H200, **BY_FFMA)
    assert strided.spec.name == "sm90_filters_nchw_128x128_e"
    padded = choose(filters(ConvShape(32, 128, 56, 56, 128, 3, 3, 2, 1), layout="NCHW"), H200, **BY_FFMA)
    assert padded.spec.name == "sm90_filters_borders_128x128_e" and len(padded.launches) == 2


def _loop(kernel):
    """The innermost one with products."""
    code = kernel.instructions
    places = {inst.address: i for i, inst in enumerate(code)}
    loops = (code[places[inst["target"].value]:i + 1] for i, inst in enumerate(code) if inst.opcode == "BRA")
    return min((loop for loop in loops if any(inst.opcode == "FFMA" for inst in loop)), key=len)


@pytest.mark.long
@pytest.mark.parametrize("source", ["filters", "filters_nchw", "filters_borders"])
def test_the_machine_code_is_checked_and_its_budget_is_that_of_the_source(source) -> None:
    image = built(f"sm90/{source}", "sm_90")
    assert all(report.clean for report in check_cubin(image))
    text = (asset("sass") / f"sm90/{source.replace('borders', 'nchw')}.inc").read_text()
    for kernel in cubin.read(image).kernels.values():
        spec = next(spec for spec in NATIVE if spec.name == kernel.name)
        loop, name = _loop(kernel), spec.name.removeprefix("sm90_filters_")
        budget = re.search(rf"^#   [^:\n]*\b{name}\b[^:\n]*: (.*); (.*)$", text, re.MULTILINE)
        mix = {name: int(count) for count, name in re.findall(r"(\d+) ([A-Z]+3?)\b", budget[1])}
        assert mix == Counter(inst.opcode for inst in loop)
        assert len(loop) == spec.slots[0] and budget[2] == f"FFMA share 1024/{len(loop)} = {102400 / len(loop):.2f}%"
        assert len(re.findall(r"\.reuse", " ".join(inst.text() for inst in loop))) >= 1016


@pytest.mark.long
def test_a_special_register_does_not_wait_for_a_load_to_read_its_address() -> None:
    """Without its wait an H200 gave a misaligned address: S2R wrote the register that an LDS in front of it took its
    address from."""
    image = built("sm90/filters_borders", "sm_90")
    kernel = cubin.read(image).kernel("sm90_filters_borders_128x128_e")
    late = max(i for i, inst in enumerate(kernel.instructions) if inst.opcode == "S2R" and inst.control.wait_mask)
    at = image.index(kernel.code) + 16 * late
    word = int.from_bytes(image[at:at + 16], "little") & ~(63 << 116)
    changed = image[:at] + word.to_bytes(16, "little") + image[at + 16:]
    report = check_hazards(cubin.read(changed).kernel(kernel.name))
    assert not report.ok and {finding.kind for finding in report.findings} == {"still-read"}


@pytest.mark.sampled(0, 2)
@pytest.mark.parametrize("name", ["sm90_filters_64x128_k", "sm90_filters_borders_128x64_e"])
def test_each_barrier_is_needed(name) -> None:
    spec = next(spec for spec in NATIVE if spec.name == name)
    kernel = cubin.read(built(spec.source.removesuffix(".sass"), "sm_90")).kernel(name)
    found = barriers(kernel)
    assert len(found) == 2
    for i in found:
        assert "shared-race" in {finding.kind for finding in judged(without_barrier(kernel, i))}
