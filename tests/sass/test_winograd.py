"""The transforms as built: their slots, what they fetch and store, and how neighbouring threads do."""

import json
import re
from collections import Counter

import numpy as np
import pytest

from maxdnn import ConvShape
from maxdnn.algorithms.winograd.maxwell import KERNELS, OF_GRADIENTS
from maxdnn.algorithms.winograd.toomcook import TABLE, matrices
from maxdnn.build.cubins import asset
from maxdnn.cli import main
from maxdnn.planning.select import plan

from .machine_code import accesses, built, issue_slots, path, trace_block

LINE = 128  # bytes of a warp's access to neighbouring floats


def own(spec):
    """Lines that a thread does in the first half and in the second."""
    return {"maps": (2, 2), "filters": (2 if spec.points.inputs == 4 else 1, 2), "out": (2, 1)}[spec.step]


@pytest.fixture(scope="module", params=[spec for spec in KERNELS if spec.points in TABLE], ids=lambda spec: spec.name)
def spec(request):
    return request.param


@pytest.fixture(scope="module")
def traced(spec):
    """The traces of one block in the middle of a layer, where every tile lies inside, and the launch."""
    return trace(spec, 8 * spec.points.outputs)


def trace(spec, side):
    m, r = spec.points.outputs, spec.points.taps
    shape = ConvShape(32, 8, side + r - 1, side + r - 1, 128, r, r)
    layout = spec.layout or "CHWN"
    made = plan(shape, layout=layout, kernel=f"winograd_{m}x{m}_{r}x{r}_64")
    found = trace_block(made, spec, lambda launch: (launch.grid[0] // 2, 3, 0), race=True)
    return found.warps, found.launch


def memory(spec, trace):
    """What a warp accessed, where all lanes did."""
    return [(inst, lanes) for inst, lanes in accesses(built(spec), trace) if None not in lanes]


def slots(spec, warps):
    return sum(issue_slots(path(built(spec), one)) for one in warps)


@pytest.mark.sampled(2)
def test_a_block_takes_the_issue_slots_that_plans_are_ranked_by(spec, traced):
    assert slots(spec, traced[0]) == spec.slots


@pytest.mark.sampled(2)
@pytest.mark.parametrize("spec", OF_GRADIENTS.values(), ids=lambda spec: spec.name)
def test_so_do_blocks_of_transforms_for_gradients_of_filters(spec):
    m, r = spec.points.outputs, spec.points.taps
    shape = ConvShape(32, 8, 8 * r + m - 1, 8 * r + m - 1, 32, m, m)
    made = plan(shape, layout=spec.layout or "CHWN", kind="filters", kernel=f"winograd_{m}x{m}_{r}x{r}_64")
    found = trace_block(made, spec, lambda launch: (launch.grid[0] // 2, 3, 0), race=True)
    assert slots(spec, found.warps) == spec.slots


@pytest.mark.sampled(5)
def test_the_arithmetic_is_that_of_the_matrices_with_common_parts_once(spec, traced):
    """Rows (columns of A) of points p and -p: both parts once, then their sum and difference; a coefficient of 1 saves
    the multiplication."""
    name = {"maps": "B", "filters": "G", "out": "A"}[spec.step]
    single, pairs = _line(getattr(matrices(spec.points), name), columns=name == "A")
    ending = spec.points.outputs if spec.step == "out" else 0
    kinds = Counter(inst.opcode for inst in path(built(spec), traced[0][0]))
    lines = sum(own(spec))
    assert sum(kinds[op] for op in ("FFMA", "FMUL", "FADD", "FFMA32I", "FMUL32I")) == lines * (single + pairs) + ending


def budgets(step):
    """Issue slots of a block as the comments of the transforms' sources have them, by row and (outputs, taps)."""
    text = (asset("sass") / f"maxwell/winograd_{step}.inc").read_text()
    rows = re.findall(r"^#   (\w+) +(F\(.*)$", text.partition("# Budget")[2], re.M)
    return {name: {(int(m), int(r)): int(slots) for m, r, slots in re.findall(r"F\((\d)x\d, (\d)x\d\) (\d+)", row)}
            for name, row in rows}


def test_the_comments_budget_every_transform():
    """All kernels and no others. That a block issues so many are the tests above."""
    found = {step: budgets(step) for step in ("maps", "filters", "out")}
    for spec in KERNELS:
        source, row = {"maps": ("maps", spec.layout), "gradients": ("maps", "gradients"),
                       "filters": ("filters", "filters"), "out": ("out", spec.layout or "taps")}[spec.step]
        assert found[source][row][spec.points.outputs, spec.points.taps] == spec.slots, spec.name
    assert sum(len(row) for rows in found.values() for row in rows.values()) == len({
        (x.step, x.points.outputs, x.points.taps, x.step != "gradients" and x.layout) for x in KERNELS})


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", ["CHWN", "NCHW"])
def test_simulate_issues_what_the_comments_budget(layout, capsys):
    """Whole blocks of tiles and filters, and in all of them as many instructions as slots: nothing shares one."""
    shape, points = "32,128,8,8,128,3,3,1,1", (4, 3)
    assert main(["simulate", shape, "--layout", layout, "--algorithm", "winograd", "--kernel", "winograd_4x4_3x3_64",
                 "--json"]) == 0
    launches = json.loads(capsys.readouterr().out)["launches"]
    for launch, step, row in ((launches[0], "filters", "filters"), (launches[1], "maps", layout),
                              (launches[3], "out", layout)):
        assert launch["kernel"].startswith(f"swinograd_{step}_4x4_3x3")
        assert sum(launch["executed"].values()) == launch["blocks"] * budgets(step)[row][points]


def _line(matrix, columns):
    """Instructions for a line: of rows that stand alone, of pairs."""
    rows = list(zip(*matrix, strict=True)) if columns else list(matrix)
    twins = [(i, j) for i in range(len(rows)) for j in range(i + 1, len(rows))
             if [abs(x) for x in rows[i]] == [abs(x) for x in rows[j]] and sum(x != 0 for x in rows[i]) > 1]
    paired = {i for pair in twins for i in pair}
    if columns:  # sums and differences, then for each result its terms, one of them free if its coefficient is 1
        terms = [[rows[i][k] for i, _ in twins] + [rows[i][k] for i in range(len(rows)) if i not in paired]
                 for k in range(len(rows[0]))]
        return sum(_sum(row) for row in terms), 2 * len(twins)
    alone = sum(_sum(rows[i]) for i in range(len(rows)) if i not in paired)
    pairs = 0
    for i, j in twins:
        even = [x for x, y in zip(rows[i], rows[j], strict=True) if x and x == y]
        odd = [x for x, y in zip(rows[i], rows[j], strict=True) if x and x != y]
        factor = np.float32(float(odd[-1]))
        fits = not factor.view(np.uint32) & 0xfff
        pairs += _sum(even) + _sum([x / odd[-1] for x in odd] if fits else odd) + 2
    return alone, pairs


def _sum(coefficients):
    left = [x for x in coefficients if x]
    free = any(abs(x) == 1 for x in left)
    return len(left) - free if len(left) > free else int(left[0] < 0)


def lanes_of(spec, warps, *opcodes):
    """The addresses of a block's accesses, an array for each of a warp, without lanes that do not take part."""
    found = [[x for x in lanes if x is not None] for one in warps for inst, lanes in accesses(built(spec), one)
             if inst.opcode in opcodes]
    return [np.array(lanes) for lanes in found if lanes]


@pytest.mark.sampled(4)
def test_a_block_fetches_and_stores_each_value_once(spec, traced):
    """But that tiles of maps overlap, and columns of maps that fill a group of threads may be nobody's."""
    a, m, r = spec.points.inputs, spec.points.outputs, spec.points.taps
    fetched = np.concatenate(lanes_of(spec, traced[0], "TLD", "LDG"))
    stored = np.concatenate(lanes_of(spec, traced[0], "STG"))
    assert len(stored) == len(set(stored)) == spec.units * {"maps": a * a, "filters": a * a, "out": m * m}[spec.step]
    if spec.step == "maps":
        assert spec.units * a * a <= len(fetched) <= spec.units * a * 8
    else:
        assert len(fetched) == len(set(fetched)) == spec.units * {"filters": r * r, "out": a * a}[spec.step]


@pytest.mark.sampled(4)
def test_planes_are_accessed_by_whole_lines(spec, traced):
    """And so are maps and results with images innermost."""
    for trace in traced[0]:
        for inst, lanes in memory(spec, trace):
            plane = inst.opcode == ("LDG" if spec.step == "out" else "STG")
            if plane or spec.layout == "CHWN":
                assert np.array_equal(np.diff(lanes), np.full(31, 4)), inst.text()
            if plane:
                assert lanes[0] % 32 == 0


@pytest.mark.sampled(4)
def test_no_access_touches_more_lines_of_the_cache_than_rows_and_filters_make_it(spec, traced):
    """Where a warp with 32 tiles side by side, or 32 filters one behind the other, would touch as many as
    4 * 32 * (outputs or taps^2) bytes have."""
    m, r = spec.points.outputs, spec.points.taps
    fetches = lanes_of(spec, traced[0], "TLD", "LDG")
    stores = lanes_of(spec, traced[0], "STG")
    touched = {len({x // LINE for x in lanes}) for lanes in (stores if spec.step == "out" else fetches)}
    if spec.layout == "NCHW":  # 8 tiles in a row of 32 m bytes; up to 16 tiles a warp
        assert max(touched) <= 2 * (-(-4 * (8 * m + r - 1) // LINE) + 1) < 4 * m
    elif spec.step == "filters":  # with K innermost there are several columns of 8 or 4 neighbouring filters
        assert max(touched) <= 2 * r


@pytest.mark.sampled(1)
@pytest.mark.parametrize("spec", [x for x in KERNELS if x.step == "out" and x.layout == "NCHW"], ids=lambda x: x.name)
def test_rows_of_any_length_are_stored_by_neighbours(spec):
    """Threads whose numbers follow each other store pixels that do, but where a row ends: nine tiles, the last of which
    has one column."""
    m = spec.points.outputs
    found, _ = trace(spec, 8 * m + 1)
    stores = lanes_of(spec, found, "STG")
    assert stores
    for lanes in stores:
        assert np.sum(np.diff(lanes) != 4) <= 2


def test_registers_leave_warps_enough_to_wait_for_memory(spec):
    """Three eighths of an SM's warps at least."""
    kernel = built(spec)
    blocks = min(65536 // (-(-kernel.registers // 8) * 8 * spec.threads), 98304 // kernel.shared_bytes)
    assert blocks * spec.threads // 32 >= 24
