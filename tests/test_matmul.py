"""maxdnn.matmul on the virtual GPU against float64, and the plans of the family `product` against its contract."""

import os

import numpy as np
import pytest

import maxdnn
from maxdnn import DeviceError, ShapeError, matmul
from maxdnn.algorithms.gemm import plan as family
from maxdnn.emulator import VirtualGpu
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose
from maxdnn.problem.operands import view
from maxdnn.problem.problem import Alignment, Problem, product
from maxdnn.problem.shape import ProductShape
from maxdnn.runtime import engine
from maxdnn.runtime.devices import find
from tests.contract import run_plan
from tests.problem.test_operands import OnGpu
from tests.test_conv import guarded

SEED = 20150125
COUNT = int(os.environ.get("MAXDNN_PRODUCTS", "60"))  # random products; 500 for the full length
CHUNKS = 6
TOLERANCE = 2e-6  # of the sum of |terms|: the project's bar for float32 sums
FLOATS = 128  # 512 bytes, where every texture may begin


def array(rng, shape, shift=0):
    """Random numbers beginning `shift` floats behind a place where a texture may; NaN around them."""
    size = int(np.prod(shape))
    memory = np.full(size + 2 * FLOATS + shift, np.nan, np.float32)
    first = -(memory.ctypes.data // 4) % FLOATS + shift
    found = memory[first:first + size].reshape(shape)
    found[...] = rng.uniform(-1, 1, shape)
    return found


def reference(a, b, ta, tb, alpha, beta, old):
    """The result in float64, and the sum of the absolute terms."""
    a, b = (np.swapaxes(x, -1, -2) if turned else x for x, turned in ((a.astype(float), ta), (b.astype(float), tb)))
    plain = alpha * (a @ b) + (beta * old.astype(float) if beta else 0)
    return plain, abs(alpha) * (abs(a) @ abs(b)) + (abs(beta * old.astype(float)) if beta else 0)


def check(shape_a, shape_b, ta=False, tb=False, alpha=1.0, beta=0.0, seed=SEED, shifts=(0, 0, 0)):
    """Multiply random matrices into a guarded result, poisoned unless it is read, and compare every element."""
    rng = np.random.default_rng(seed)
    a, b = array(rng, shape_a, shifts[0]), array(rng, shape_b, shifts[1])
    shape = product(shape_a, shape_b, transpose_a=ta, transpose_b=tb).shapes["out"]
    out, surroundings_intact = guarded(shape, before=4 + shifts[2])
    if beta:
        out[...] = rng.uniform(-1, 1, shape)
    old, kept = out.copy(), (a.copy(), b.copy())
    assert matmul(a, b, transpose_a=ta, transpose_b=tb, alpha=alpha, beta=beta, out=out) is out
    assert surroundings_intact()
    assert np.array_equal(a, kept[0]) and np.array_equal(b, kept[1])
    want, magnitude = reference(a, b, ta, tb, np.float32(alpha), np.float32(beta), old)
    assert (abs(out - want) <= TOLERANCE * magnitude).all()


def sizes(rng):
    """Sizes around and away from those of tiles, vectors and groups, now and then one; fewer of each when all are
    large."""
    def one(most):
        near = int(rng.choice([4, 8, 64, 128])) * int(rng.integers(1, 3)) + int(rng.integers(-1, 2))
        return int(rng.choice([1, near, rng.integers(1, most), 4 * rng.integers(1, most // 4)]))
    return one(300), one(300), one(400)


def stored(m, n, k, ta, tb):
    return ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_random_products(chunk):
    for number in range(chunk, COUNT, CHUNKS):
        rng = np.random.default_rng(SEED + number)
        ta, tb = (bool(x) for x in rng.integers(0, 2, 2))
        a, b = stored(*sizes(rng), ta, tb)
        stack = tuple(int(x) for x in rng.integers(1, 4, rng.integers(0, 3)))
        shared = rng.integers(0, 4)
        a, b = (a if shared == 1 else stack + a), (b if shared == 2 else stack + b)
        alpha, beta = rng.choice([1.0, -0.5, 3.0]), rng.choice([0.0, 0.0, 1.0, -2.5])
        shifts = tuple(int(x) for x in rng.choice([0, 0, 1, 4, 7], 3))
        try:
            check(a, b, ta, tb, float(alpha), float(beta), SEED + number, shifts)
        except Exception as e:
            raise AssertionError(f"number {number}: {a} {b} {ta} {tb} alpha {alpha} beta {beta} {shifts}") from e


@pytest.mark.sampled(8)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("size", [(1, 1, 1), (1, 300, 1), (300, 1, 7), (1, 1, 1000), (64, 64, 64), (65, 129, 8),
                                  (127, 63, 9)], ids=str)
def test_corners(size, layout):
    a, b = stored(*size, layout[0] == "t", layout[1] == "t")
    check(a, b, layout[0] == "t", layout[1] == "t", beta=0.5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("spec", family.KERNELS, ids=lambda spec: spec.name)
@pytest.mark.parametrize("aligned", [True, False])
def test_every_kernel_of_every_candidate_keeps_the_contract(spec, aligned):
    """Several tiles, all edges ragged, two matrices, split or not: what the kernels do is what the family says."""
    ta, tb = (x == "t" for x in spec.layout)
    n = 132 if aligned else 131
    a, b = stored(137, n, 77, ta, tb)
    for stack, splits, beta in (((2,), 1, 0.0), ((2,), 1, 1.5), ((), 2, 0.0), ((2,), 3, 1.5)):
        problem = product(stack + a, stack + b, transpose_a=ta, transpose_b=tb, reads_out=bool(beta),
                          unaligned=() if aligned else ("a", "b", "out"))
        plan = choose(problem, preset(), spec.name + f"_split{splits}" * (splits > 1))
        rng = np.random.default_rng(SEED)
        given = {role: array(rng, shape, 0 if aligned else 1) for role, shape in plan.array_shapes().items()}
        if not beta:
            given.pop("out")
        scalars = {"alpha": 2.0} | ({"beta": beta} if beta else {})
        want = run_plan(plan, given, **scalars)["out"]
        out, surroundings_intact = guarded(want.shape, before=4 if aligned else 5)
        if beta:
            out[...] = given["out"]
        run(plan, given["a"], given["b"], out, scalars)
        assert surroundings_intact()
        assert np.allclose(out, want, rtol=0, atol=2e-5)
        exact, _ = reference(given["a"], given["b"], ta, tb, 2.0, beta, given.get("out"))
        assert np.allclose(want, exact, rtol=0, atol=2e-5)


def run(plan, a, b, out, scalars, device=None):
    given = {name: view(name, x, rank=None) for name, x in (("a", a), ("b", b), ("out", out))}
    engine.run(plan, given, {name: np.float32(x) for name, x in scalars.items()}, device or find.host())


@pytest.mark.long
@pytest.mark.parametrize("spec", [s for s in family.KERNELS if (s.tile, s.layout) in ((64, "nt"), (128, "tn"))],
                         ids=lambda spec: spec.name)
def test_no_kernel_races_or_reads_a_register_it_never_wrote(spec):
    """All that differs between kernels of a tile is whether operands are turned: here both, or none."""
    ta, tb = (x == "t" for x in spec.layout)
    device = VirtualGpu(race=True, undefined=True)
    for n, splits, reads_out in ((132, 1, False), (131, 1, True), (132, 2, False)):
        a, b = stored(130, n, 41, ta, tb)
        problem = product(a, b, transpose_a=ta, transpose_b=tb, reads_out=reads_out)
        plan = choose(problem, preset(), spec.name + f"_split{splits}" * (splits > 1))
        rng = np.random.default_rng(SEED)
        given = {role: array(rng, shape) for role, shape in plan.array_shapes().items()}
        exact, _ = reference(given["a"], given["b"], ta, tb, 1.0, float(reads_out), given["out"])
        run(plan, *given.values(), {"alpha": 1.0} | ({"beta": 1.0} if reads_out else {}), device)
        assert np.allclose(given["out"], exact, rtol=0, atol=2e-5)


def test_what_lies_behind_the_matrices_does_not_matter():
    """The next matrix of a stack holds infinities; neither it nor what lies behind the last column reaches the sums."""
    rng = np.random.default_rng(SEED)
    for ta in (False, True):
        for tb in (False, True):
            a, b = (array(rng, (2, *shape)) for shape in stored(68, 68, 68, ta, tb))
            a, b = a[..., :, :], b
            a[1], b[1] = np.inf, np.nan
            out = matmul(a, b, transpose_a=ta, transpose_b=tb)
            want, magnitude = reference(a[0], b[0], ta, tb, 1.0, 0.0, None)
            assert (abs(out[0] - want) <= TOLERANCE * magnitude).all()
            assert np.isnan(out[1]).all()


def test_infinities_and_nans_go_where_arithmetic_takes_them():
    a, b = np.ones((70, 20), np.float32), np.ones((20, 66), np.float32)
    a[3, 4], b[7, 5] = np.inf, np.nan
    out = matmul(a, b)
    assert np.isnan(out[:, 5]).all() and np.isinf(np.delete(out[3], 5)).all()
    rest = np.delete(np.delete(out, 3, 0), 5, 1)
    assert (rest == 20).all()


def test_a_matrix_that_serves_every_other_is_read_where_it_is():
    """Untransposed, the stack is one tall matrix; no copy of anything."""
    plan = choose(product((6, 5, 32), (32, 64)), preset(), "sproduct_64x64_nn")
    assert plan.workspace_bytes == 0 and plan.launches[0].numbers["m"] == 30
    check((3, 40, 33), (33, 20))
    check((3, 33, 40), (33, 20), ta=True)
    check((33, 40), (2, 2, 33, 20), ta=True)
    check((40, 33), (2, 2, 20, 33), tb=True)


def test_more_matrices_than_a_grid_has_blocks_take_several_launches(monkeypatch):
    monkeypatch.setattr(family, "MAX_GRID_YZ", 3)
    problem = product((7, 8, 8), (7, 8, 8))
    plan = family.candidates(problem, preset())["sproduct_64x64_nn"]()
    assert [launch.grid[2] for launch in plan.launches] == [3, 3, 1]
    rng = np.random.default_rng(SEED)
    a, b = array(rng, (7, 8, 8)), array(rng, (7, 8, 8))
    out, surroundings_intact = guarded((7, 8, 8))
    run(plan, a, b, out, {"alpha": 1.0})
    assert surroundings_intact() and np.allclose(out, a @ b, atol=1e-5)
    assert np.allclose(run_plan(plan, {"a": a, "b": b}, alpha=1.0)["out"], a @ b, atol=1e-5)


def test_explain_says_what_is_copied_and_split():
    text = choose(product((30, 4097), (4097, 24)), preset()).explain()
    assert text.startswith("30 x 4097 by 4097 x 24, 0.006 GFLOP\nspad: 8 x 1 x 1 blocks of 128 threads, a is copied: "
                           "its rows of 4097 do not all begin at multiples of 16 bytes\nsproduct_64x64_nn: 1 x 1 x ")
    assert "parts of each sum are added" in text and "tiles do not fill the chip" in text
    assert "b is copied: it begins where no texture may" in choose(
        product((32, 64), (64, 32), unaligned=["b"]), preset()).explain()


def test_a_problem_says_its_work_and_layout():
    problem = product((2, 9, 5), (2, 7, 9), transpose_a=True, transpose_b=True, reads_out=True)
    assert (problem.kind, problem.layout, problem.scalars) == ("product", "tt", ("alpha", "beta"))
    assert problem.shape == ProductShape(5, 7, 9, 2) and problem.shape.flops == 2 * 2 * 5 * 7 * 9
    assert problem.shapes["out"] == (2, 5, 7)
    assert problem.operand("a").alignment == Alignment.TEXTURE
    assert isinstance(problem, Problem) and problem.describe() == "2 times 5 x 9 by 9 x 7, 0.000 GFLOP"
    assert ProductShape(64, 64, 64).efficiency_from_clocks(64**3 / 128) == 1


def ones(*shape):
    return np.ones(shape, np.float32)


@pytest.mark.parametrize(("arguments", "message"), [
    (dict(a=ones(3, 4), b=ones(5, 6)), r"axis -1 of a and axis -2 of b must be equal, the length of the sums "
     r"\(got a \(3, 4\), b \(5, 6\)\)"),
    (dict(a=ones(3, 4), b=ones(4, 6), transpose_a=True),
     r"axis -2 of a and axis -2 of b must be equal.*\(got a \(3, 4\), b \(4, 6\), transpose_a=True\)"),
    (dict(a=ones(3, 4), b=ones(4, 6), transpose_b=True), r"axis -1 of a and axis -1 of b .*transpose_b=True\)"),
    (dict(a=ones(4), b=ones(4, 6)), r"a must have at least 2 axes \(got 1: shape \(4,\)\)"),
    (dict(a=ones(4, 4), b=ones(6)), r"b must have at least 2 axes"),
    (dict(a=ones(2, 4, 4), b=ones(3, 4, 4)), r"the axes of a and b in front of the last two must be equal, or 1 or not "
     r"there in one of them \(got a \(2, 4, 4\), b \(3, 4, 4\)\)"),
    (dict(a=ones(2, 3, 4, 4), b=ones(2, 4, 4)), r"the axes of a and b in front of the last two"),
    (dict(a=ones(1, 3, 4), b=ones(5, 5, 6)), r"axis -1 of a and axis -2 of b .*got a \(1, 3, 4\), b \(5, 5, 6\)\)"),
    (dict(a=ones(4, 4).astype(float), b=ones(4, 4)), r"a must be float32 \(got float64\)"),
    (dict(a=ones(4, 4), b=ones(4, 8)[:, ::2]), r"b must be C-contiguous"),
    (dict(a=ones(4, 4), b=ones(2, 4, 4).transpose(1, 2, 0)), r"b must be C-contiguous"),
    (dict(a=ones(4, 4), b=ones(4, 4), out=ones(4, 4).T), r"out must be C-contiguous"),
    (dict(a=ones(4, 0), b=ones(0, 4)), r"a must have no axis of size zero"),
    (dict(a=[[1.0]], b=ones(1, 1)), r"a must be a NumPy array or have __cuda_array_interface__ \(got list\)"),
    (dict(a=ones(4, 4), b=ones(4, 4), alpha="2"), r"alpha must be a real number \(got '2'\)"),
    (dict(a=ones(4, 4), b=ones(4, 4), beta=None), r"beta must be a real number \(got None\)"),
    (dict(a=ones(4, 4), b=ones(4, 4), beta=1), r"out must be given for a beta other than 0 \(got beta=1\)"),
    (dict(a=ones(4, 4), b=ones(4, 4), transpose_a=1), r"transpose_a must be True or False \(got 1\)"),
    (dict(a=ones(4, 4), b=ones(4, 4), out=ones(4, 5)), r"out must have shape \(4, 4\) \(got \(4, 5\)\)"),
    (dict(a=ones(4, 4), b=ones(4, 4), out=ones(1, 4, 4)), r"out must have 2 axes \(got 3: shape \(1, 4, 4\)\)"),
], ids=lambda value: value[:40] if isinstance(value, str) else "")
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ShapeError, match=message):
        matmul(**arguments)


@pytest.mark.parametrize(("a", "b"), [
    ((1, 5, 8), (3, 8, 6)), ((3, 5, 8), (1, 8, 6)), ((1, 1, 5, 8), (3, 8, 6)), ((2, 3, 5, 8), (3, 8, 6)),
    ((3, 5, 8), (2, 3, 8, 6)), ((2, 1, 5, 8), (3, 8, 6)), ((2, 1, 3, 5, 8), (4, 1, 8, 6)), ((1, 5, 8), (8, 6)),
    ((5, 8), (1, 1, 8, 6)), ((2, 3, 1, 5, 8), (2, 1, 4, 8, 6)), ((1, 5, 8), (1, 1, 8, 6)), ((1, 3, 5, 7), (2, 1, 7, 6)),
], ids=str)
@pytest.mark.parametrize("flags", [(False, False), (True, True)], ids=str)
def test_axes_in_front_broadcast_as_those_of_numpy(a, b, flags):
    rng = np.random.default_rng(5)
    one, two = (rng.random((*s[:-2], *(s[-2:][::-1] if turned else s[-2:])), np.float32) - np.float32(0.5)
                for s, turned in zip((a, b), flags, strict=True))
    wanted = np.matmul(*(x.swapaxes(-1, -2) if turned else x for x, turned in zip((one, two), flags, strict=True)))
    found = matmul(one, two, transpose_a=flags[0], transpose_b=flags[1])
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    held = rng.random(wanted.shape, np.float32)
    np.testing.assert_allclose(matmul(one, two, transpose_a=flags[0], transpose_b=flags[1], alpha=2, beta=3,
                                      out=held.copy()), 2 * wanted + 3 * held, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("stack", [(), (3,)], ids=str)
@pytest.mark.parametrize("turned", [(False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize("flags", [(False, False), (True, True)], ids=str)
def test_transposed_views_are_read_as_they_lie(stack, turned, flags, monkeypatch):
    """No copy, by the kernel for such operands."""
    rng, ran = np.random.default_rng(6), []
    real = engine.run
    monkeypatch.setattr(engine, "run", lambda plan, *more: ran.append(plan) or real(plan, *more))
    sizes = [(12, 16), (16, 20)]
    given, wanted = [], []
    for size, view_, flag in zip(sizes, turned, flags, strict=True):
        lies = size[::-1] if view_ != flag else size
        memory = rng.random((*stack, *lies), np.float32) - np.float32(0.5)
        given.append(memory.swapaxes(-1, -2) if view_ else memory)
        wanted.append(given[-1].swapaxes(-1, -2) if flag else given[-1])
    found = matmul(*given, transpose_a=flags[0], transpose_b=flags[1])
    np.testing.assert_allclose(found, np.matmul(*wanted), rtol=1e-5, atol=1e-5)
    (plan,) = ran
    assert plan.layout == "".join("nt"[view_ != flag] for view_, flag in zip(turned, flags, strict=True))
    assert not any("copied" in launch.doing for launch in plan.launches)


def test_views_of_vectors_and_of_single_axes_are_what_they_are():
    row, column = np.arange(8, dtype=np.float32).reshape(1, 8), np.arange(8, dtype=np.float32).reshape(8, 1)
    for a, b in ((row, row.T), (column, column.T), (row, column), (column.T, column), (row[:, ::-1][:, ::-1], column)):
        np.testing.assert_allclose(matmul(a, b), a @ b)


def test_results_that_cannot_be_written_are_refused():
    a, b, memory = ones(4, 4), ones(4, 4), np.ones(40, np.float32)
    locked = ones(4, 4)
    locked.flags.writeable = False
    with pytest.raises(ShapeError, match="out must be writable"):
        matmul(a, b, out=locked)
    with pytest.raises(ShapeError, match="out must not overlap b"):
        matmul(a, memory[:16].reshape(4, 4), out=memory[8:24].reshape(4, 4))
    with pytest.raises(DeviceError, match="device must be a device of this library"):
        matmul(a, b, device="gpu")
    with pytest.raises(ShapeError, match="a on the host, b on a GPU"):
        matmul(a, OnGpu((4, 4)))


def test_limits_are_errors_that_name_them():
    for sizes_, message in ((((2**18, 2**13), (2**13, 4)), r"a must be at most 268435456 texels of four"),
                            (((4, 2**13), (2**13, 2**18)), r"b must be at most 268435456 texels of four"),
                            (((2**16, 4), (4, 2**17)), r"the result must be at most 4294967295 elements"),
                            (((2**23, 4), (4, 4)), r"rows of tiles M/128 must be at most 65535 blocks")):
        with pytest.raises(ShapeError, match=message):
            choose(product(*sizes_), preset(), "sproduct_128x128_nn")


class Tensor:
    """As much of a tensor of PyTorch on a GPU as calls look at."""

    is_cuda, requires_grad = True, False

    def __init__(self, shape, address, contiguous=True):
        self.shape, self.address, self.contiguous = shape, address, contiguous
        self.dtype = self._type

    class _type:
        def __str__(self):
            return "torch.float32"

    _type = _type()
    __cuda_array_interface__ = {"shape": (64, 64), "typestr": "<f4", "data": (512, False), "strides": (4, 512)}

    def is_contiguous(self):
        return self.contiguous

    def data_ptr(self):
        return self.address

    def get_device(self):
        return 0

    def numel(self):
        return int(np.prod(self.shape))


Tensor.__module__ = "torch"


def test_a_call_with_tensors_again_takes_the_same_plan_and_refuses_what_it_refused(monkeypatch):
    """The second call skips the checks of the first, but for what may have become wrong since."""
    from types import SimpleNamespace

    from maxdnn.product import _seen
    gpu = SimpleNamespace(name="a GPU", chip=preset(), texture_alignment=16, kept={})
    ran = []
    monkeypatch.setattr("maxdnn.runtime.devices.find.gpu", lambda ordinal: gpu)
    monkeypatch.setattr(engine, "run", lambda plan, given, scalars, device, stream: ran.append(
        (plan, {name: x.address for name, x in given.items()}, scalars, stream)))
    monkeypatch.setattr(engine.Engine, "run_at", lambda self, *given: ran.append(given))
    made = [Tensor((64, 64), 1 << 24), Tensor((64, 64), 1 << 25)]
    monkeypatch.setattr("maxdnn.runtime.devices.find.empty_like", lambda array, shape: made.pop(0))
    _seen.clear()
    a, b, out = (Tensor((64, 64), 1 << 20 | i << 16) for i in range(3))
    for _ in range(2):
        assert matmul(a, b, out=out, alpha=2, stream=7) is out
    assert ran[0] == ran[1] and len(_seen) == 1
    matmul(a, b, out=out, transpose_a=True)
    matmul(a, b, out=out, beta=1)
    matmul(a, Tensor((64, 64), 1 << 22 | 4), out=out)
    assert len(_seen) == 4 and len({x[0] for x in ran}) == 4
    for wrong, message in (((a, b, Tensor((64, 64), b.address + 4096)), "out must not overlap b"),
                           ((a, Tensor((64, 64), 512, contiguous=False), out), "b must be C-contiguous"),
                           ((a, b, Tensor((64, 32), out.address)), "out must have shape")):
        with pytest.raises(ShapeError, match=message):
            matmul(*wrong[:2], out=wrong[2])
    with pytest.raises(ShapeError, match="transpose_a must be True or False"):
        matmul(a, b, out=out, transpose_a=1)
    with pytest.raises(ShapeError, match="alpha must be a real number"):
        matmul(a, b, out=out, alpha="2")
    assert len(ran) == 5
    one, other = (matmul(a, b, stream=7) for _ in range(2))
    assert (one.address, other.address) == (1 << 24, 1 << 25) and len(_seen) == 5
    assert ran[5][1] == {"a": a.address, "b": b.address, "out": one.address}
    assert ran[6] == (ran[5][0], {**ran[5][1], "out": other.address}, *ran[5][2:])


def test_it_is_public():
    assert maxdnn.matmul is matmul and "matmul" in maxdnn.__all__


def test_simulated_efficiency_of_square_products():
    """On a GTX 980: at least 92 % of peak at 1024, where a vendor's product has 64 blocks to fill 16 SMs."""
    from maxdnn.simulator import timing

    plan = choose(product((1024, 1024), (1024, 1024)), preset())
    assert plan.spec.name == "sproduct_128x128_nn"
    timed = timing.call(plan)
    assert 94 < timed.ce < 98
    assert plan.clocks(preset()) == pytest.approx(timed.clocks, rel=0.05)


@pytest.mark.parametrize(("m", "n", "k", "kernel"), [
    (2048, 2048, 2048, "sproduct_128x128_nn"),
    (256, 256, 1024, "sproduct_64x64_nn"),  # few tiles: split, small ones
    (128, 128, 8192, "sproduct_64x64_nn"),
    (1100, 1100, 1100, "sproduct_64x64_nn"),  # the large tile would end far beyond the edges
])
def test_the_tile_is_chosen_by_how_it_fills_the_chip(m, n, k, kernel):
    plan = choose(product((m, k), (k, n)), preset())
    assert plan.spec.name == kernel
    assert (len(plan.launches) == 2) == (m < 1000)
