"""The main loops of the pixel, class and taps kernels as built: instruction mix, issue slots, banks, registers."""

import re
from collections import Counter

import pytest

from maxdnn import ConvShape
from maxdnn.algorithms.dgrad_strided import maxwell as dgrad_strided
from maxdnn.algorithms.implicit_gemm import kernels as implicit_gemm_kernels
from maxdnn.algorithms.interior.maxwell import TAPS_64X64
from maxdnn.build.cubins import asset, cubin
from maxdnn.cubin import read
from maxdnn.planning.select import plan
from maxdnn.ptx import translate as ptx
from tests import oracles

from .machine_code import bank_conflicts, built, issue_slots, main_loop, path, trace_block

SPECS = (*implicit_gemm_kernels.KERNELS, *dgrad_strided.KERNELS, TAPS_64X64)


@pytest.fixture(scope="module", params=SPECS, ids=lambda spec: spec.name)
def spec(request):
    return request.param


@pytest.fixture(scope="module")
def loop(spec):
    return main_loop(built(spec))


def each_tap(spec):
    return getattr(spec, "tests", "") == "each"


def tile_plan(spec):
    """Three iterations of one full tile."""
    (j, k), kcrs = spec.tile, getattr(spec, "kcrs", False)
    if spec in dgrad_strided.KERNELS:
        return plan(ConvShape(j, k, 1, 1, 24, 1, 1), kernel=spec.name, kind="data")
    shape = ConvShape(j // 4, 6, 1, 1, k, 2, 2, padding=1) if each_tap(spec) else ConvShape(j, 24, 1, 1, k, 1, 1)
    return plan(shape, layout="NCHW" if kcrs else "CHWN", kernel=spec.name)


def traces(spec, made=None):
    """Of the warps of the first block; of three iterations if no plan is given."""
    return trace_block(made or tile_plan(spec), spec).warps


@pytest.mark.sampled(1, 8)
def test_a_warp_takes_the_issue_slots_that_plans_are_ranked_by(spec, loop):
    assert issue_slots(loop) == spec.slots[0]
    for trace in traces(spec):
        assert issue_slots(path(built(spec), trace)) == 3 * spec.slots[0] + spec.slots[1]


def test_floating_point_takes_97_percent_of_the_issue_slots(spec, loop):
    """Where the taps of each element are tested, and where two coordinates of filters are needed, a little less; least
    where a thread fetches for two pixels."""
    assert Counter(inst.opcode for inst in loop)["FFMA"] == 512
    if spec in dgrad_strided.KERNELS:  # addresses of 64 bits
        least = {(64, 64): 0.953, (64, 32): 0.925, (128, 128): 0.97}[spec.tile]
        assert 512 / issue_slots(loop) >= least
        return
    least = 0.955 if each_tap(spec) or spec.tile[1] == 32 else 0.969 if spec.tile == (32, 64) else 0.97
    assert 512 / issue_slots(loop) >= least


@pytest.mark.parametrize("spec", implicit_gemm_kernels.KERNELS, ids=lambda spec: spec.name)
def test_the_loop_of_the_pixel_kernels_is_512_multiplications_and_what_a_tile_needs(spec):
    mix = Counter(inst.opcode for inst in main_loop(built(spec)))
    threads = 32 * spec.warps
    texels, filters = spec.tile[0] * 8 // threads, 2 * spec.tile[1] // threads
    tests = {"none": 0, "one": 1, "each": texels}[spec.tests]
    words = min(8, texels) // 2 * (2 if spec.tests == "each" else 1) + 1
    stores = texels + filters * (4 if spec.kcrs else 1)
    assert mix == Counter({"FFMA": 512, "LDS": 32, "TLD": texels + filters, "LDC": words, "BAR": 1, "BRA": 1,
                           "STS": stores, "IADD": texels + max(1, filters // 2) + 1, "LOP": 4 + tests})


@pytest.mark.parametrize("spec", dgrad_strided.KERNELS, ids=lambda spec: spec.name)
def test_the_loop_of_the_class_kernels_steps_and_exchanges(spec):
    """Steps of the bases, the addresses but those of each pixel's first channel and of the first filters, 64 bits
    each, a step of what is left, four exchanges of buffers."""
    mix = Counter(inst.opcode for inst in main_loop(built(spec)))
    texels, filters = spec.tile[0] * 8 // (32 * spec.warps), 2 * spec.tile[1] // (32 * spec.warps)
    assert mix == Counter({"FFMA": 512, "LDS": 32, "LDG": texels + filters, "LDC": 3, "BAR": 1, "BRA": 1,
                           "STS": texels + filters, "IADD": 2 * (texels + filters) + 1, "LOP": 4})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("spec", [x for x in implicit_gemm_kernels.KERNELS if x.tile[1] == 32],
                         ids=lambda spec: spec.name)
def test_registers_of_a_translation_are_those_that_the_vendor_takes(spec):
    data = cubin(spec.source.removesuffix(".sass"), "sm_52")
    made = oracles.ptxas(ptx.translate(read(data), "sm_90"), "sm_90")
    assert read(made).kernels[spec.name].registers == spec.translated_registers
    warps = 4 * (16384 // (32 * -(-spec.translated_registers // 8) * 8))  # a scheduler has 16384 registers
    assert spec.translated_ctas_per_sm == warps // spec.warps


@pytest.mark.sampled(4)
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("spec", implicit_gemm_kernels.KERNELS, ids=lambda spec: spec.name)
def test_first_layers_multiply_what_there_is_and_no_more(spec, channels):
    """3 x 3 filters over few channels are 9 to 63 elements, of which the loop takes 8 at a time."""
    if spec.kcrs and channels != 4:
        return  # filters that begin where no texel does are not read as they lie
    shape = ConvShape(4, channels, 5, 5, spec.tile[1], 3, 3, padding=int(each_tap(spec)))
    made = plan(shape, layout="NCHW" if spec.kcrs else "CHWN", kernel=spec.name)
    code = built(spec).instructions
    for trace in traces(spec, made):
        path = [code[first + i].opcode for first, count in trace.runs.tolist() for i in range(count)]
        assert path.count("FFMA") == 64 * (9 * channels + 1)  # the last 64 scale by alpha


def test_the_budget_in_the_source_is_the_budget_of_the_cubin():
    spec, loop = TAPS_64X64, main_loop(built(TAPS_64X64))
    text = (asset("sass") / spec.source).read_text()
    budget = text[text.index("#   per iteration"):text.index("LOOP:")]
    mix = {name: int(count) for count, name in re.findall(r"(\d+) ([A-Z]{3,5})\b", budget)}
    assert mix == Counter(inst.opcode for inst in loop)
    slots = issue_slots(loop)
    assert f"512/{slots} = {100 * 512 / slots:.2f}%" in budget


def test_no_multiplication_meets_a_bank_conflict(loop):
    assert not [inst for inst in bank_conflicts([*loop, *loop]) if inst.opcode == "FFMA"]


def test_registers_and_shared_memory_leave_room_for_16_warps_an_sm(spec):
    """Or for 12 of the small tile, whose blocks are of one warp."""
    kernel, warps = built(spec), getattr(spec, "warps", 2)
    assert kernel.registers <= (144 if warps == 1 else 128)
    assert (12 if warps == 1 else 16 // warps) * kernel.shared_bytes <= 96 * 1024
