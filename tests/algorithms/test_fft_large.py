"""Filters of up to 32 x 32 by FFT, in parts, and groups of few channels: random problems by every candidate against
float64, what the kernels promise, what is documented of their error, when they are taken. MAXDNN_PROBLEMS sets how many
are drawn."""

import os
import random
from dataclasses import replace

import numpy as np
import pytest

from maxdnn import ConvShape, ShapeError, conv_bprop_data, conv_bprop_filters, conv_fprop
from maxdnn.algorithms.common.correlation import correlations
from maxdnn.algorithms.fft import group_filters, groups, wgrad
from maxdnn.algorithms.fft import plan as fft
from maxdnn.algorithms.fft.cut import Cut
from maxdnn.algorithms.fft.maxwell import GROUPS, SIDES, SUMS
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose, plan
from maxdnn.problem.problem import data, filters, forward
from maxdnn.reference import conv_reference
from tests.algorithms.test_every_candidate import Operands, run, told
from tests.algorithms.test_families import LAYOUTS
from tests.contract import run_plan
from tests.sass.machine_code import accesses, built, issue_slots, path, shared_passes, trace_block
from tests.sass.native import H200

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "12"))
CHUNKS = 6
LARGE = ((17, 17), (31, 31), (32, 20), (1, 31), (24, 5), (19, 16))
SMALL = ((5, 5), (7, 7), (13, 13), (2, 9), (16, 16))
SCALARS = {"alpha": np.float32(-2), "beta": np.float32(0.5)}


def draw(rng):
    """A layer of any kind with groups, or dense with large filters, of a size that tiles do not divide."""
    while True:
        grouped = rng.random() < 0.6
        r, s = rng.choice(LARGE + SMALL * grouped)
        padding = rng.choice([0, r // 2, r - 1]), rng.choice([0, s // 2, s - 1])
        h, w = (max(1, taps - 2 * pad) + rng.choice([0, 1, 3, 8, 18, 37])
                for taps, pad in zip((r, s), padding, strict=True))
        c, k = (rng.choice([1, 1, 2, 3]) for _ in "CK")
        n, times = rng.choice([1, 2, 3, 9]), rng.choice([2, 3, 5]) if grouped else 1
        shape = ConvShape(n, c * times, h, w, k * times, r, s, 1, padding, 1, times)
        if shape.flops < 2e7 and (grouped or max(r, s) > 16):
            break
    kind, layout, reads = rng.choice(["forward", "data", "filters"]), rng.choice(LAYOUTS), rng.random() < 0.3
    if kind == "filters" and shape.pad_h < min(shape.P, r) and shape.pad_w < min(shape.Q, s):
        return filters(shape, layout=layout, reads_out=reads, unaligned=rng.choice([[], ["images", "gradients"]]))
    if kind == "data":
        return data(shape, layout=layout, reads_out=reads, unaligned=rng.choice([[], ["gradients", "filters"]]))
    return forward(shape, layout=layout, bias=rng.random() < 0.4, reads_out=reads,
                   activation=rng.choice([None, "relu"]), unaligned=rng.choice([[], ["images"]]))


def names(problem):
    """Candidates by FFT, one product of each kind."""
    if problem.shape.groups > 1:
        family = group_filters if problem.kind == "filters" else groups
        return list(family.candidates(problem, preset()))
    family = wgrad if problem.kind == "filters" else fft
    return [name for name in family.candidates(problem, preset()) if name.endswith(("_64", "tensor_sm90"))]


def judge(made, problem, seed):
    """The kernels between guards from a poisoned workspace, and their references, within what is documented."""
    operands = Operands(problem, np.random.default_rng(seed))
    scalars = {name: SCALARS[name] for name in problem.scalars}
    want, size = told(problem, operands.before, float(SCALARS["alpha"]), float(SCALARS["beta"]))
    promised = run_plan(made, operands.before, **{name: float(value) for name, value in scalars.items()})["out"]
    # Where that much is documented, results have a few terms, each of which may be as small as chance makes it.
    most = made.error * (size if made.error < 1e-5 else size.max())
    assert (abs(promised - want) <= most).all(), made.name
    error = abs(run(made, operands, scalars) - want)
    assert operands.intact(), made.name
    assert (error <= most).all(), f"{problem.describe()} by {made.name}: {(error / most).max():.2f}"


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_problems_by_a_random_candidate(chunk):
    for number in range(chunk, PROBLEMS, CHUNKS):
        rng = random.Random(20281000 + number)
        problem = draw(rng)
        judge(choose(problem, preset(), rng.choice(names(problem))), problem, number)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", [filters, data, forward])
def test_depthwise_31x31(kind, layout):
    """From the API; errors beside float64 are below a millionth of the sums of |terms|, as documented."""
    shape = ConvShape(2, 2, 34, 33, 2, 31, 31, 1, 15, 1, 2)
    kernel = "fft_group_filters_32x32" if kind is filters else f"fft_groups_32x32_{layout}"
    made = choose(kind(shape, layout=layout), preset(), kernel)
    assert made.error <= 1e-6
    rng = np.random.default_rng(31)
    arrays = {role: rng.uniform(-1, 1, size).astype(np.float32) for role, size in made.array_shapes().items()}
    call, sizes = {"forward": (conv_fprop, ()), "data": (conv_bprop_data, [(34, 33)]),
                   "filters": (conv_bprop_filters, [(31, 31)])}[made.problem.kind]
    want, size = told(made.problem, arrays, 1, 0)
    found = call(*(arrays[role] for role in made.problem.roles if role != "out"), *sizes, plan=made)
    assert (abs(found - want) <= made.error * size).all()


def test_a_filter_is_cut_into_parts_that_cover_it_once():
    for side, r, s, parts in ((32, 17, 31, (2, 2)), (32, 17, 31, (1, 2)), (32, 32, 1, (2, 1)), (32, 21, 21, (1, 1)),
                              (32, 16, 33 // 2, (1, 1)), (16, 5, 8, (1, 1))):
        cut, seen = Cut(side, (r, s), parts), np.zeros((r, s), int)
        for row, column, rows, columns in cut:
            assert rows <= cut.part[0] and columns <= cut.part[1]
            seen[row:row + rows, column:column + columns] += 1
        assert (seen == 1).all() and len(list(cut)) == len(cut)
        assert all(step + part == side + 1 for step, part in zip(cut.step, cut.part, strict=True))


@pytest.mark.parametrize("taps, size, parts", [
    ((21, 21), 48, (1, 1)),  # 16 tiles of 12 x 12 results, or 9 of 22 x 22 with four parts
    ((31, 31), 64, (2, 2)),  # of 2 x 2, or of 17 x 17
    ((21, 31), 48, (1, 2)), ((17, 17), 16, (1, 1)), ((17, 5), 24, (2, 1)), ((13, 13), 28, (1, 1))])
def test_a_filter_is_cut_where_that_saves_work(taps, size, parts):
    shape = ConvShape(32, 32, size, size, 32, *taps, 1, (taps[0] // 2, taps[1] // 2))
    (s,) = correlations(forward(shape))
    cut = Cut.best(32, s)
    assert cut.parts == parts
    said = choose(forward(shape), preset(), "fft_32x32_64").explain()
    whole = f"filters of {taps[0]}x{taps[1]} come whole"
    assert (whole in said) == (len(cut) == 1 and max(taps) > 16)
    assert (f"come in {len(cut)} parts" in said) == (len(cut) > 1)


@pytest.mark.sampled(0, 1)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dense_filters_in_parts_and_runs_of_images(layout):
    """All three passes in runs, by FFMA and on tensor cores."""
    shape = ConvShape(40, 8, 23, 18, 3, 17, 19, 1, (8, 9))
    for kind, by in ((forward, "fft"), (data, "fft"), (filters, "fft_filters")):
        problem = kind(shape, layout=layout)
        whole = choose(problem, preset(), f"{by}_32x32_64")
        assert "filters of 17x19 come in 4 parts of at most 9x10" in whole.explain()
        cut = choose(replace(problem, most_workspace=4 * whole.workspace_bytes // 5), preset(), whole.name)
        assert len(whole.passes) < len(cut.passes) and cut.workspace_bytes <= 4 * whole.workspace_bytes // 5
        judge(cut, problem, 3)
        judge(choose(problem, preset(), f"{by}_32x32_tensor_sm90"), problem, 3)


@pytest.mark.long
def test_gradients_of_filters_in_groups_in_runs_of_images():
    problem = filters(ConvShape(20, 6, 20, 18, 9, 7, 20, 1, (3, 10), 1, 3), reads_out=True)
    whole = choose(problem, preset(), "fft_group_filters_32x32")
    cut = choose(replace(problem, most_workspace=whole.workspace_bytes * 4 // 5), preset(), whole.name)
    assert len(whole.passes) < len(cut.passes) and "which are added in a fixed order" in cut.explain()
    judge(cut, problem, 4)


@pytest.mark.long
@pytest.mark.parametrize("taps", [17, 31])
def test_hard_data_stays_within_the_floor(taps):
    """As of filters in one part, but that each part is a channel: a pixel of 10^6 among ones, filters of a single tap,
    magnitudes over 60 powers of two."""
    rng = np.random.default_rng(taps)
    shape = ConvShape(1, 3, 36, 33, 3, taps, taps, 1, 0, 1, 3)
    made = plan(shape, kernel="fft_groups_32x32_CHWN")
    bound = 2.0**-24 * (24 * np.log2(32**2) + 4 + 2 * 4)
    few = np.zeros((1, taps, taps, 3))
    few[:, 2, taps - 1] = 1
    peak = rng.uniform(-1, 1, (3, 36, 33, 1))
    peak[:, 20, 20] = 1e6
    uniform = rng.uniform(-1, 1, (1, taps, taps, 3))
    for images, bank in ((peak, uniform), (peak, few), (np.ldexp(peak, rng.integers(-30, 31, peak.shape)), uniform)):
        images, bank = images.astype(np.float32), bank.astype(np.float32)
        out = conv_fprop(images, bank, plan=made)
        want, _ = conv_reference(images, bank, groups=3)
        of_map, of_bank = (np.sqrt((x.astype(float)**2).sum((1, 2))) for x in (images, bank))
        norms = 4 * of_map * of_bank[0, :, None]
        assert (abs(out - want) <= bound * norms[:, None, None]).all()


@pytest.fixture(scope="module", params=[*GROUPS, SUMS], ids=lambda spec: spec.name)
def spec(request):
    return request.param


def warps(spec, taps, images=32):
    """The traces of one block in the middle of a layer; no two of its threads race for shared memory."""
    shape = ConvShape(images, 8, 40, 40, 8, taps, taps, 1, taps // 2, 1, 8)
    if spec is SUMS:
        made = plan(shape, layout="NCHW", kind="filters", kernel="fft_group_filters_32x32")
        return trace_block(made, spec, lambda launch: (0, 300, 0)).warps
    made = plan(shape, layout=spec.layout, kernel="fft_groups_32x32_" + spec.layout)
    return trace_block(made, spec, lambda launch: (launch.grid[0] // 2, 3, 0), race=True).warps


@pytest.mark.sampled(1)
def test_a_block_takes_the_issue_slots_that_plans_are_ranked_by(spec):
    one, more = [sum(issue_slots(path(built(spec), warp)) for warp in warps(spec, *of))
                 for of in (((5, 32), (5, 64)) if spec is SUMS else ((13,), (31,)))]  # rounds of 128 tiles; parts
    if spec is SUMS:
        assert (one, more) == tuple(4 * (group_filters.ROUND * rounds + group_filters.REST) for rounds in (1, 2))
    else:
        term, rest = spec.slots
        assert (one, more) == (term + rest, 4 * term + rest)


@pytest.mark.sampled(0, 1)
@pytest.mark.parametrize("kernel", GROUPS, ids=lambda spec: spec.name)
def test_shared_memory_has_no_conflicts(kernel):
    def vector(inst):
        return ".128" in inst.text()
    for inst, lanes in accesses(built(kernel), warps(kernel, 13)[0]):
        if inst.opcode in ("LDS", "STS"):
            assert shared_passes(lanes, 16 if vector(inst) else 4) <= (4 if vector(inst) else 1), inst.text()


def test_they_are_taken_where_they_are_estimated_to_be_faster():
    for taps in (13, 31):
        shape = ConvShape(8, 32, 32, 32, 32, taps, taps, 1, taps // 2, 1, 32)
        for kind in (forward, data, filters):
            problem = kind(shape, layout="NCHW")
            made = choose(problem, preset())
            assert made.algorithm == "fft" and made.error <= 1e-6, problem.describe()
            assert choose(problem, preset(), algorithm="direct").clocks(preset()) > taps / 13 * made.clocks(preset())
            assert choose(problem, H200).family.startswith("fft group")
    shape = ConvShape(32, 96, 56, 56, 96, 7, 7, 1, 3, 1, 96)
    assert choose(forward(shape, layout="NCHW"), preset()).algorithm == "direct"
    dense = choose(forward(ConvShape(8, 32, 40, 40, 32, 21, 21, 1, 10)), preset())
    assert dense.family == "fft" and "filters of 21x21 come in 4 parts of at most 11x11" in dense.explain()


@pytest.mark.parametrize("change, words", [
    (dict(stride=2), "stride 2x2"), (dict(dilation=2), "dilation 2x2"), (dict(R=33), "filters of 33x9"),
    (dict(R=3, S=3), "filters of 3x3"), (dict(padding=(1, 9)), "padding 1x9 of filters 9x9")])
def test_what_groups_do_not_serve_is_said(change, words):
    sizes = dict(N=2, C=4, H=40, W=40, K=4, R=9, S=9, groups=4) | change
    with pytest.raises(ShapeError, match=f"not served: .*{words}.* by fft groups"):
        plan(ConvShape(**sizes), algorithm="fft")


def test_sides_of_every_candidate_serve_the_filter():
    for taps in (5, 8, 9, 12, 13, 16, 17, 31):
        shape = ConvShape(2, 4, 40, 40, 4, taps, taps, 1, taps // 2, 1, 4)
        found = group_filters.candidates(filters(shape), preset())
        assert set(found) == {f"fft_group_filters_{side}x{side}" for side in SIDES if taps <= side // 2 or side == 32}
