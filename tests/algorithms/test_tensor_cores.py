"""Products on the tensor cores of sm_90: pieces bit for bit as documented, results within the documented error on data
that a split of float32 finds hard, not finite exactly where float32's are, the same bits every time."""

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import maxdnn
from maxdnn import ConvShape, ShapeError
from maxdnn.algorithms.common.schedule import split_name
from maxdnn.algorithms.gemm import tensor_cores
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import EmulationFault
from maxdnn.planning.cost import Chip, preset
from maxdnn.planning.plan import FLOAT_BYTES, Launch, Plan
from maxdnn.planning.select import choose, plans, smaller
from maxdnn.problem.problem import Problem, data, filters, forward, product
from maxdnn.runtime import engine
from maxdnn.runtime.devices import find
from tests.sass.native import H200

from .test_every_candidate import Operands, run, told

NAME = "sm90_tensor_product_128x128"
BOTH = pytest.mark.parametrize("name", [NAME, "sm90_tensor_float_b_128x128"])
FLOOR = 2.0**-37
"""What an element of a row and 64 values of k may lose, of the largest: see piece in split.sass."""

Reference = Callable[[Launch, dict[str, np.ndarray], dict[str, float]], None]
"""Of a family."""


def planned(m: int, n: int, k: int, layout: str = "nn", batch: tuple[int, ...] = (), name: str = NAME,
            **how: bool) -> Plan:
    a, b = (k, m) if layout[0] == "t" else (m, k), (n, k) if layout[1] == "t" else (k, n)
    problem = product(batch + a, batch + b, transpose_a=layout[0] == "t", transpose_b=layout[1] == "t", **how)
    return choose(problem, preset(), name)


def multiplied(a: np.ndarray, b: np.ndarray, name: str = NAME, layout: str = "nn") -> np.ndarray:
    a, b = a if layout[0] == "n" else a.T.copy(), b if layout[1] == "n" else b.T.copy()
    problem = product(a.shape, b.shape, transpose_a=layout[0] == "t", transpose_b=layout[1] == "t")
    operands = Operands(problem, np.random.default_rng(0))
    operands.arrays["a"][...], operands.arrays["b"][...] = a, b
    found = run(choose(problem, preset(), name), operands, {"alpha": np.float32(1)}).copy()
    for role, array in (("a", a), ("b", b)):
        assert np.array_equal(operands.arrays[role], array, equal_nan=True)
    return found


def spread(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.exp(4 * rng.standard_normal(shape))


def outliers(rng: np.random.Generator, size: float, *shape: int) -> np.ndarray:
    return rng.standard_normal(shape) * np.where(rng.random(shape) < 2e-3, size, 1)


def zero_rows(rng: np.random.Generator, m: int, n: int) -> np.ndarray:
    return rng.standard_normal((m, n)) * (rng.random((m, 1)) < 0.5)


def relu(*arrays: np.ndarray) -> list[np.ndarray]:
    return [array.clip(0) for array in arrays]


def k_scaled(rng: np.random.Generator, m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    scale = spread(rng, k)
    return rng.standard_normal((m, k)) * scale, rng.standard_normal((k, n)) / scale[:, None]


WIDE: dict[str, Any] = {
    "outliers of 1e5 in both, after a ReLU": lambda r, m, n, k: relu(outliers(r, 1e5, m, k), outliers(r, 1e5, k, n)),
    "outliers of 1e15 in both, after a ReLU": lambda r, m, n, k: relu(outliers(r, 1e15, m, k),
                                                                      outliers(r, 1e15, k, n)),
    "outliers of 1e30 in A, after a ReLU": lambda r, m, n, k: relu(outliers(r, 1e30, m, k), r.standard_normal((k, n))),
    "outliers of 1e30 in B, after a ReLU": lambda r, m, n, k: relu(r.standard_normal((m, k)), outliers(r, 1e30, k, n)),
    "k scaled": k_scaled,
    "k scaled in A": lambda r, m, n, k: (k_scaled(r, m, n, k)[0], r.standard_normal((k, n))),
}
"""Data whose rows FP16 parts do not hold."""

DATA = {
    "normal": lambda r, m, n, k: (r.standard_normal((m, k)), r.standard_normal((k, n))),
    "uniform": lambda r, m, n, k: (r.uniform(-1, 1, (m, k)), r.uniform(-1, 1, (k, n))),
    "positive": lambda r, m, n, k: (r.random((m, k)), r.random((k, n))),
    "after a ReLU": lambda r, m, n, k: (r.standard_normal((m, k)), r.standard_normal((k, n)).clip(0)),
    "rows apart": lambda r, m, n, k: (spread(r, m, 1) * r.standard_normal((m, k)) * spread(r, m, k)**0.5,
                                      spread(r, 1, n) * r.standard_normal((k, n)) * spread(r, k, n)**0.5),
    "outliers of 1e5": lambda r, m, n, k: (outliers(r, 1e5, m, k), r.standard_normal((k, n))),
    "outliers of 1e30": lambda r, m, n, k: (outliers(r, 1e30, m, k), r.standard_normal((k, n))),
    "zero rows": lambda r, m, n, k: (zero_rows(r, m, k), zero_rows(r, n, k).T),
    "tiny by tiny": lambda r, m, n, k: (1e-17 * r.standard_normal((m, k)), 1e-17 * r.standard_normal((k, n))),
    "tiny by huge": lambda r, m, n, k: (1e-36 * r.standard_normal((m, k)), 1e36 * r.standard_normal((k, n))),
    "subnormal by huge": lambda r, m, n, k: (1e-40 * r.standard_normal((m, k)), 1e36 * r.standard_normal((k, n))),
    "huge rows, tiny columns": lambda r, m, n, k: (r.standard_normal((m, k)) * 2.0**r.integers(-120, 120, (m, 1)),
                                                   r.standard_normal((k, n)) * 2.0**r.integers(-120, 0, (1, n))),
}


def floors(a: np.ndarray, b: np.ndarray, name: str = "") -> np.ndarray:
    """What results of a tile may lose of the largest of their row (column) and 64 values of k where FFMA does not
    multiply, which it does in the kernels of that name, and two roundings of a subnormal number for each 64 values of
    k."""
    found = np.full((len(a), b.shape[1]), 2.0**-148 * -(-len(b) // tensor_cores.CHUNK))
    for first in range(0, len(b), tensor_cores.CHUNK):
        some = slice(first, first + tensor_cores.CHUNK)
        spreads = [tensor_cores.spread(x.astype(np.float32)) for x in (a[:, some], b[some].T)]
        spread_b = spreads[1] if name == NAME else tensor_cores.FLOAT_B_SPREAD
        if name and spreads[0] * spread_b > tensor_cores.MOST_SPREAD:
            continue
        left, right = abs(a[:, some]), abs(b[some])
        found += FLOOR * (left.max(1)[:, None] * right.sum(0) + left.sum(1)[:, None] * right.max(0))
    return found


@pytest.mark.long
@BOTH
@pytest.mark.parametrize("kind", DATA)
def test_hard_data_within_the_documented_error(kind, name):
    """Of the sum of |terms|, plus `floors`."""
    rng = np.random.default_rng(len(kind))
    m, n, k = 70, 40, 200
    with np.errstate(over="ignore"):
        a, b = (x.astype(np.float32) for x in DATA[kind](rng, m, n, k))
    found = multiplied(a, b, name)
    wide = a.astype(float), b.astype(float)
    want, terms = wide[0] @ wide[1], abs(wide[0]) @ abs(wide[1])
    within = abs(want) + terms * 1e-6 < np.finfo(np.float32).max  # else infinity is right
    error = abs(found.astype(float) - want)
    assert within.any() and not np.isnan(found).any()
    assert (error <= 1e-6 * terms + floors(*wide, name))[within].all()
    assert np.isinf(found[~within & (terms > 2 * np.finfo(np.float32).max) & (abs(want) > 2**129)]).all()


@BOTH
@pytest.mark.parametrize("kind", WIDE)
def test_ffma_multiplies_what_parts_do_not_hold(kind, name):
    """Several tiles, all layouts in turn, a last chunk of 60 values. No loss of the largest at all, but where spreads
    are small."""
    rng = np.random.default_rng(list(WIDE).index(kind))
    with np.errstate(over="ignore"):
        a, b = (x.astype(np.float32) for x in WIDE[kind](rng, 130, 133, 700))
    layout = "nn" if name != NAME else ("nn", "nt", "tn", "tt")[list(WIDE).index(kind) % 4]
    found = multiplied(a, b, name, layout).astype(float)
    wide = a.astype(float), b.astype(float)
    want, terms = wide[0] @ wide[1], abs(wide[0]) @ abs(wide[1])
    for rows in (slice(0, 128), slice(128, 130)):
        for columns in (slice(0, 128), slice(128, 133)):
            error, most = abs(found - want)[rows, columns], terms[rows, columns]
            assert (error <= 1e-6 * most + floors(wide[0][rows], wide[1][:, columns], name)).all()
            assert (error <= 2e-6 * most).all()


@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_pieces_tell_their_spread(layout):
    """Some zeros, and magnitudes around those that decide: bit for bit against the reference; 2^6 unless asked for."""
    rng = np.random.default_rng(len(layout))
    m, k = 128 * 3, 64 * 40 - 5
    plan = planned(m, m, k, layout)
    assert all(launch.values["spreads"] == 1 for launch in plan.launches[:2])
    values = rng.uniform(1, 2, (m, k)).astype(np.float32)
    for row, chunk in np.ndindex(3, 40):
        at = 128 * row + rng.integers(128), slice(64 * chunk, 64 * chunk + 64)
        far = rng.integers(0, rng.choice([18, 19, 22, 120, 220]), values[at].shape) if rng.random() < 0.5 else \
            rng.choice([0, 8, rng.integers(16, 20)], values[at].shape)
        sign = rng.choice([-1, 0, 1], values[at].shape, p=[0.4, 0.2, 0.4])
        values[at] *= sign * 2.0**(rng.choice([-100, 0, 90]) - far)
    values[:128, :64] = 0
    spreads = [tensor_cores.spread(np.pad(values, ((0, 0), (0, 5)))[128 * r:128 * r + 128, 64 * c:64 * c + 64])
               for r, c in np.ndindex(3, 40)]
    assert min(spreads) == 64 and max(spreads) == 2.0**100 and len(set(spreads)) > 6
    for role, launch in zip("ab", plan.launches, strict=False):
        ours = values if (layout == "nn") == (role == "a") else values.T.copy()
        for asked in (1, 0):
            pieces = np.full(plan.workspace[f"{role}_pieces"].nbytes // FLOAT_BYTES, 7, np.float32)
            memory = {role: ours.reshape(-1), f"{role}_pieces": pieces}
            same_pieces(find.host(), replace(launch, values={**launch.values, "spreads": asked}), memory,
                        tensor_cores.reference)
            found = pieces.view(np.uint8).reshape(-1, tensor_cores.PIECE_BYTES)[:, 33800:33804].copy()
            assert found.view(np.float32).reshape(-1).tolist() == (spreads if asked else [64.0] * 120)


@pytest.mark.parametrize("problem", [
    forward(ConvShape(2, 70, 9, 9, 130, 3, 3, padding=1), layout="NCHW"),
    filters(ConvShape(2, 70, 9, 9, 130, 3, 3, padding=1), layout="NCHW")], ids=["forward", "filters"])
def test_only_products_of_matrices_look_at_spreads(problem):
    """Pieces of convolutions have none: what lies there does not matter."""
    checked = 0
    for name, plan in plans(problem, H200, max_error=np.inf).items():
        multiplying = [x for x in plan.launches if isinstance(x.spec, tensor_cores.TensorKernel)]
        if any("most_spread" in x.values for x in multiplying):
            operands, scalars = Operands(problem, np.random.default_rng(1)), {"alpha": np.float32(1)}
            found = [run(plan, operands, scalars, workspace).copy() for workspace in (0, 3e38)]
            assert np.array_equal(*found), name
            checked += 1
    assert checked > 1


@BOTH
def test_what_is_not_finite_is_not_finite_in_float32_and_nothing_else(name):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((40, 150)).astype(np.float32), rng.standard_normal((150, 30)).astype(np.float32)
    a[3, 7], a[20, 149], b[100, 9] = np.inf, -np.inf, np.nan
    b[7, 4] = 0  # times infinity
    found = multiplied(a, b, name)
    with np.errstate(invalid="ignore"):
        want = np.isfinite(a @ b)
    assert (np.isfinite(found) == want).all() and (~want).sum() == 2 * 30 + 40 - 2
    a = np.full((2, 3), 2.0**100, np.float32)
    assert np.isposinf(multiplied(a, a.T.copy(), name)).all()


@BOTH
def test_twenty_runs_give_the_same_bits(name):
    rng = np.random.default_rng(4)
    a, b = rng.standard_normal((140, 130)).astype(np.float32), rng.standard_normal((130, 135)).astype(np.float32)
    first = multiplied(a, b, name)
    assert all(np.array_equal(multiplied(a, b, name), first) for _ in range(19))


@pytest.mark.parametrize("number", range(12))
def test_b_that_is_split_on_the_way_gives_the_bits_of_its_pieces(number):
    """Rows and columns of all magnitudes and some of zeros, last chunks of one to 63 values, split sums."""
    rng = np.random.default_rng(number)
    m, n, k = (int(rng.choice(some)) for some in ([1, 64, 130, 300], [1, 5, 127, 260], [1, 63, 64, 65, 200, 511]))
    batch, splits = (2,) if number % 3 else (), -(-k // 64) if number % 2 else 1
    sizes = 2.0**rng.integers(-130, 60, (m, 1)), 2.0**rng.integers(-130, 60, n)
    left, right = ((rng.standard_normal(batch + shape) * size).astype(np.float32)
                   for shape, size in zip(((m, k), (k, n)), sizes, strict=True))
    right[..., ::7] = 0
    problem, found = product(left.shape, right.shape), []
    for name in (NAME, "sm90_tensor_float_b_128x128"):
        operands = Operands(problem, rng)
        operands.arrays["a"][...], operands.arrays["b"][...] = left, right
        plan = choose(problem, preset(), split_name(name, splits))
        found.append(run(plan, operands, {"alpha": np.float32(1)}).copy())
        assert np.array_equal(operands.arrays["a"], left) and np.array_equal(operands.arrays["b"], right)
    assert np.array_equal(*found) and np.isfinite(found[0]).all()


def random_problem(number: int) -> tuple[Problem, random.Random]:
    rng = random.Random(20260000 + number)
    m, n = (rng.choice([1, 2, 7, 8, 9, 63, 64, 65, 127, 128, 129, 200, 257]) for _ in "mn")
    k = rng.choice([1, 3, 31, 63, 64, 65, 128, 130, 300])
    layout, batch = rng.choice(["nn", "nt", "tn", "tt"]), rng.choice([(), (), (2,), (3, 2)])
    a, b = (k, m) if layout[0] == "t" else (m, k), (n, k) if layout[1] == "t" else (k, n)
    return product(batch + a, (batch if rng.random() < 0.7 else ()) + b, transpose_a=layout[0] == "t",
                   transpose_b=layout[1] == "t", reads_out=rng.random() < 0.3,
                   unaligned=rng.choice([(), ("a",), ("b",), ("a", "b", "out")])), rng


def against_float64(problem: Problem, names: Iterable[str], rng: random.Random, number: int,
                    chip: Chip | None = None) -> tuple[Plan, Operands, dict[str, np.float32], np.ndarray, np.ndarray]:
    """Run one of these candidates on operands between guards; returns the plan, these, the scalars, what is right, and
    what an element may be off."""
    plan = choose(problem, chip or preset(), rng.choice(list(names)))
    operands = Operands(problem, np.random.default_rng(number))
    scalars = {name: np.float32({"alpha": rng.choice([1, -0.75]), "beta": 1.5}[name]) for name in problem.scalars}
    want, size = told(problem, operands.before, float(scalars["alpha"]), float(scalars.get("beta", 0)))
    found = run(plan, operands, scalars)
    assert operands.intact()
    assert (abs(found - want) <= plan.error * size).all()
    return plan, operands, scalars, want, plan.error * size


@pytest.mark.parametrize("number", range(40))
def test_random_problems(number):
    """All layouts, batches, edges, split-K, operands that begin anywhere, into poison between guards."""
    problem, rng = random_problem(number)
    against_float64(problem, tensor_cores.candidates(problem, preset()), rng, number)


@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_pieces_are_bit_for_bit_what_is_documented(layout):
    """Both kernels, on rows of all magnitudes, zeros, infinities and NaN, and edges, against the reference."""
    rng = np.random.default_rng(5)
    m, n, k = 150, 140, 100
    plan = planned(m, n, k, layout, (2,))
    device: Any = find.host()
    for role, launch in zip("ab", plan.launches, strict=False):
        operand = plan.problem.operand(role)
        values = (rng.standard_normal(operand.shape) * 2.0**rng.integers(-140, 125, operand.shape)).astype(np.float32)
        flat = values.reshape(-1)
        flat[rng.integers(0, flat.size, 50)] = 0
        if role == "a":
            flat[:3] = np.inf, -np.inf, np.nan
            values[:, :, -30:] = 0
        pieces = np.full(plan.workspace[f"{role}_pieces"].nbytes // FLOAT_BYTES, 7, np.float32)
        same_pieces(device, launch, {role: flat, f"{role}_pieces": pieces}, tensor_cores.reference)


def same_pieces(device: Any, launch: Launch, memory: dict[str, np.ndarray], reference: Reference) -> None:
    """Asserts that a launch which splits the first of these makes of the second what is promised, bit for bit but for
    the payloads of NaN."""
    places = {name: device.alloc(array.nbytes) for name, array in memory.items()}
    for name, array in memory.items():
        device.upload(places[name], array)
    function = engine.load(device, launch.spec).function(launch.spec.name)
    arguments = launch.arguments({name: (place.address, 0) for name, place in places.items()}, {})
    function.launch(launch.grid, launch.block, arguments)
    _, pieces = memory
    found = np.empty_like(memory[pieces])
    device.download(places[pieces], found)
    reference(launch, memory, {})
    found, want = (x.view(np.uint8).reshape(-1, tensor_cores.PIECE_BYTES) for x in (found, memory[pieces]))
    parts = [x[:, :32768].copy().view(np.float16) for x in (found, want)]
    assert np.array_equal(*parts, equal_nan=True)
    same = parts[0].view(np.uint16) == parts[1].view(np.uint16)
    assert (same | np.isnan(parts[0])).all()
    assert np.array_equal(found[:, 32768:], want[:, 32768:])


@pytest.mark.parametrize("problem", [
    product((2048, 2048), (2048, 2048)),
    forward(ConvShape(32, 256, 14, 14, 256, 3, 3, 1, 1), layout="NCHW"),
    data(ConvShape(32, 256, 14, 14, 256, 3, 3, 1, 1), layout="NCHW")], ids=["product", "forward", "data"])
def test_ffma_is_asked_for(problem):
    taken, other = (choose(problem, H200, arithmetic=arithmetic) for arithmetic in ("auto", "ffma"))
    assert multiplies_parts(taken) and taken.arithmetic != "FFMA"
    assert not multiplies_parts(other) and other.arithmetic == "FFMA"
    assert "arithmetic: float32 by FFMA" in other.explain() and "on tensor cores" in taken.explain()
    assert f"{taken.name}: its arithmetic is 3 FP16 products on tensor cores ('ffma' is asked for)" in \
        other.explain(verbose=True)
    assert smaller(other, H200, other.workspace_bytes).arithmetic == "FFMA"


def multiplies_parts(plan: Plan) -> bool:
    return any(isinstance(launch.spec, tensor_cores.TensorKernel) for launch in plan.launches)


def test_only_an_arithmetic_that_there_is_can_be_asked_for():
    ones = np.ones((4, 4), np.float32)
    for given in ("FFMA", "tf32", None, ["ffma"]):
        with pytest.raises(ShapeError, match=r"arithmetic must be one of auto, ffma \(got "):
            maxdnn.matmul(ones, ones, arithmetic=given)
        with pytest.raises(ShapeError, match=r"arithmetic must be one of auto, ffma \(got "):
            maxdnn.conv_fprop(np.ones((1, 4, 4, 4), np.float32), np.ones((1, 3, 3, 4), np.float32), arithmetic=given)
    assert (maxdnn.matmul(ones, ones, arithmetic="ffma") == 4).all()
    plan = maxdnn.plan(ConvShape(4, 1, 4, 4, 4, 3, 3), arithmetic="ffma")
    assert plan.terms.arithmetic == "ffma"
    with pytest.raises(ShapeError, match="arithmetic"):
        maxdnn.conv_fprop(np.ones((1, 4, 4, 4), np.float32), np.ones((1, 3, 3, 4), np.float32), plan=plan,
                          arithmetic="ffma")


@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_matrices_of_4_gib_begin_where_they_lie(layout):
    """The second of two: nothing is there, and not the first one again."""
    (launch, *_), gpu = planned(5, 6, 7, layout, (2,)).launches, VirtualGpu()
    places = {name: (gpu.alloc(nbytes).address, nbytes) for name, nbytes in (("a", 280), ("a_pieces", 2 * 34816))}
    values = replace(launch, values={**launch.values, "batch": 1 << 30})
    with pytest.raises(EmulationFault, match="LDG"):
        engine.load(gpu, launch.spec).function(launch.spec.name).launch(
            launch.grid, launch.block, values.arguments(places, {}))


def test_b_of_4_gib_is_not_split_on_the_way():
    problem = product((2, 8, 1 << 15), (2, 1 << 15, 1 << 15))
    with pytest.raises(ShapeError, match="elements from one B to the next must be at most 1073741823"):
        choose(problem, preset(), "sm90_tensor_float_b_128x128")


def test_too_many_tiles_are_refused_by_number():
    with pytest.raises(ShapeError, match="tiles must be at most 32768"):
        planned(1 << 19, 1 << 12, 8)
