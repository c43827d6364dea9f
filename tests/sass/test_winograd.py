"""The transforms as built: their slots, what they fetch and store, and how neighbouring threads do."""

import json
import re
from collections import Counter

import numpy as np
import pytest

from maxdnn import ConvShape
from maxdnn.choose import plan
from maxdnn.cli import main
from maxdnn.cubins import asset
from maxdnn.families.toomcook import TABLE, matrices
from maxdnn.families.winograd import KERNELS, THREADS

from .machine_code import accesses, built, issue_slots, path, trace_block

LINE = 128  # bytes of a warp's access to neighbouring floats


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


def test_a_warp_takes_the_issue_slots_that_plans_are_ranked_by(spec, traced):
    assert {issue_slots(path(built(spec), trace)) for trace in traced[0]} == {spec.slots}


def test_the_arithmetic_is_that_of_the_matrices_with_common_parts_once(spec, traced):
    """Rows (columns of A) of points p and -p: both parts once, then their sum and difference; a coefficient of 1 saves
    the multiplication."""
    name = {"maps": "B", "filters": "G", "out": "A"}[spec.step]
    matrix = getattr(matrices(spec.points), name)
    single, pairs = _line(matrix, columns=name == "A")
    rows, columns = len(matrix), len(matrix[0])
    lines = columns + rows
    ending = spec.points.outputs**2 if spec.step == "out" else 0
    kinds = Counter(inst.opcode for inst in path(built(spec), traced[0][0]))
    assert sum(kinds[op] for op in ("FFMA", "FMUL", "FADD", "FFMA32I", "FMUL32I")) == lines * (single + pairs) + ending


def budgets(step):
    """Issue slots of a warp as the comments of the transforms' sources have them, by row and (outputs, taps)."""
    text = (asset("sass") / f"winograd_{step}.inc").read_text()
    rows = re.findall(r"^#   (\w+) +(F\(.*)$", text.partition("# Budget")[2], re.M)
    return {name: {(int(m), int(r)): int(slots) for m, r, slots in re.findall(r"F\((\d)x\d, (\d)x\d\) (\d+)", row)}
            for name, row in rows}


def test_the_comments_budget_every_transform():
    """All kernels and no others. That a warp issues so many is the test above, for the gradients those of the table."""
    found = {step: budgets(step) for step in ("maps", "filters", "out")}
    for spec in KERNELS:
        source, row = {"maps": ("maps", "maps"), "gradients": ("maps", "gradients"), "filters": ("filters", "filters"),
                       "out": ("out", spec.layout or "taps")}[spec.step]
        assert found[source][row][spec.points.outputs, spec.points.taps] == spec.slots, spec.name
    assert sum(len(row) for rows in found.values() for row in rows.values()) == len({
        (x.step, x.points.outputs, x.points.taps, x.step == "out" and x.layout) for x in KERNELS})


@pytest.mark.parametrize("layout", ["CHWN", "NCHW"])
def test_simulate_issues_what_the_comments_budget(layout, capsys):
    """Whole blocks of tiles and filters, and in all of them as many instructions as slots: nothing shares one."""
    shape, points = "32,128,8,8,128,3,3,1,1", (4, 3)
    assert main(["simulate", shape, "--layout", layout, "--algorithm", "winograd", "--kernel", "winograd_4x4_3x3_64",
                 "--json"]) == 0
    launches = json.loads(capsys.readouterr().out)["launches"]
    for launch, step, row in ((launches[0], "filters", "filters"), (launches[1], "maps", "maps"),
                              (launches[3], "out", layout)):
        assert launch["kernel"].startswith(f"swinograd_{step}_4x4_3x3")
        assert sum(launch["executed"].values()) == launch["blocks"] * THREADS // 32 * budgets(step)[row][points]


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


def test_a_thread_fetches_and_stores_each_value_once(spec, traced):
    a, m, r = spec.points.inputs, spec.points.outputs, spec.points.taps
    kinds = Counter(inst.opcode for inst, lanes in memory(spec, traced[0][0]))
    vectors = spec.step == "out" and spec.layout == "NCHW" and m in (2, 4)
    assert (kinds["TLD"], kinds["LDG"], kinds["STG"]) == {
        "maps": (a * a, 0, a * a), "filters": (0, r * r, a * a), "out": (0, a * a, m if vectors else m * m)}[spec.step]


def test_planes_are_accessed_by_whole_lines(spec, traced):
    """And so are maps and results with images innermost, and filters."""
    for trace in traced[0]:
        for inst, lanes in memory(spec, trace):
            plane = inst.opcode == ("LDG" if spec.step == "out" else "STG")
            if plane or spec.layout != "NCHW":
                size = 4
                assert np.array_equal(np.diff(lanes), np.full(31, size)), inst.text()
            if plane:
                assert lanes[0] % 32 == 0


@pytest.mark.parametrize("spec", [x for x in KERNELS if x.step == "out" and x.layout == "NCHW"], ids=lambda x: x.name)
def test_rows_of_any_length_are_stored_by_neighbours(spec):
    """Threads whose numbers follow each other store pixels that do, up to the end of a row."""
    m = spec.points.outputs
    found, _ = trace(spec, 8 * m + 1)
    apart = set()
    for one in found:
        stores = [lanes for inst, lanes in accesses(built(spec), one) if inst.opcode == "STG"]
        assert len(stores) == m * m
        for n, lanes in enumerate(stores):
            # the column that a thread stores of its tile; the last tile of a row has one
            column = [(32 * (n % m) + i) % m for i in range(32)]
            apart |= {lanes[i + 1] - lanes[i] for i in range(31)
                     if None not in (lanes[i], lanes[i + 1]) and column[i + 1] == column[i] + 1}
    assert apart == {4}


def test_registers_leave_warps_enough_to_wait_for_memory(spec):
    """A quarter of an SM's warps at least."""
    registers = -(-built(spec).registers // 8) * 8
    assert 65536 // (registers * THREADS) * THREADS // 32 >= 16
