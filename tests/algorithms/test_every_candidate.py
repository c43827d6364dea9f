"""Every candidate of random problems of every kind, of Maxwell and of sm_90, against float64: odd sizes, operands that
begin anywhere, views, workspaces, padding wider than filters. Each within the error it documents, into poisoned results
between guards, from a poisoned workspace. MAXDNN_PROBLEMS sets how many problems are drawn; CI takes a sample of them,
and a few candidates of each."""

import os
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from maxdnn import ConvShape, ShapeError
from maxdnn.algorithms import registry
from maxdnn.algorithms.memory_ops import activation as finishing
from maxdnn.planning.cost import preset
from maxdnn.planning.plan import Plan
from maxdnn.planning.select import choose
from maxdnn.problem.activations import ACTIVATIONS, activated
from maxdnn.problem.operands import view
from maxdnn.problem.problem import Problem, bias, data, filters, forward
from maxdnn.problem.problem import product as multiply
from maxdnn.runtime import engine
from maxdnn.runtime.devices import find
from tests.gradients import gradient

PROBLEMS = int(os.environ.get("MAXDNN_PROBLEMS", "8"))
FIRST = int(os.environ.get("MAXDNN_FIRST", "0"))
MOST = 10**9 if "MAXDNN_PROBLEMS" in os.environ else 3  # candidates of a problem
WORK = 2e7  # FLOP of a problem
CHUNKS = 4
GUARD = np.float32(-7.25)


def sizes(rng: random.Random) -> ConvShape:
    """A layer of a size that tiles, vectors and groups do not divide, more often than not."""
    while True:
        groups = rng.choice([1, 1, 1, 1, 1, 2, 3, 5])
        c, k = (rng.choice([1, 2, 3, 4, 5, 7, 8, 12, 13, 16, 24, 31, 32, 33, 40, 64, 65, 100, rng.randint(1, 150)])
                for _ in "CK")
        if rng.random() < 0.1:
            groups, c, k = c, 1, rng.choice([1, 1, 2, 3])
        c, k = c * groups, k * groups
        r, s = rng.choice([(1, 1), (3, 3), (3, 3), (3, 3), (5, 5), (5, 5), (7, 7),
                           (rng.randint(1, 7), rng.randint(1, 7)), (1, rng.randint(1, 11)), (rng.randint(1, 11), 1)])
        usual = rng.random() < 0.5
        dilation = (1, 1) if usual else (rng.choice([1, 1, 2, 3, 4]), rng.choice([1, 1, 2, 3]))
        stride = (1, 1) if usual else (rng.choice([1, 2, 3, 4]), rng.choice([1, 2, 3, 50]))
        reach = [(taps - 1) * d + 1 for taps, d in zip((r, s), dilation, strict=True)]
        padding = tuple(rng.choice([0, 0, x // 2, x // 2, x - 1, x, x + 2, rng.randint(0, 3)]) for x in reach)
        h, w = (max(1, x - 2 * pad) + rng.choice([0, 0, 1, 2, 3, 5, 7, 8, 12, 20])
                for x, pad in zip(reach, padding, strict=True))
        n = rng.choice([1, 1, 2, 3, 4, 5, 8, 16, 31, 32, 33, 63, 64, 65, 128, 129])
        shape = ConvShape(n, c, h, w, k, r, s, stride, padding, dilation, groups)
        if shape.flops < WORK and groups <= 70:
            return shape


def draw(rng: random.Random) -> Problem:
    """A problem of any kind."""
    kind = rng.choice(["forward"] * 6 + ["data"] * 3 + ["filters"] * 3 + ["product"] * 2 + ["bias"])
    layout, reads = rng.choice(["CHWN", "NCHW"]), rng.random() < 0.3
    most = rng.choice([None] * 6 + [0, 4096, 1 << 16, 1 << 18, 1 << 20])

    def odd(*roles: str) -> list[str]:
        return [] if rng.random() < 0.5 else [role for role in roles if rng.random() < 0.5]
    if kind == "product":
        m, n, k = (rng.choice([1, 2, 3, 4, 7, 8, 31, 33, 63, 64, 65, 127, 128, 129, 130, rng.randint(1, 300)])
                   for _ in "MNK")
        ta, tb = rng.random() < 0.5, rng.random() < 0.5
        stack = tuple(rng.randint(1, 3) for _ in range(rng.choice([0, 0, 1, 2])))
        a, b = ((k, m) if ta else (m, k)), ((n, k) if tb else (k, n))
        shared = rng.randrange(4)
        return multiply(a if shared == 1 else stack + a, b if shared == 2 else stack + b, transpose_a=ta,
                        transpose_b=tb, unaligned=odd("a", "b", "out"), reads_out=reads)
    shape = sizes(rng)
    if kind == "bias":
        s = shape
        return bias((s.N, s.K, s.P, s.Q) if layout == "NCHW" else (s.K, s.P, s.Q, s.N), layout=layout, reads_out=reads)
    if kind == "forward":
        made = forward(shape, layout=layout, unaligned=odd("images", "filters", "out"), bias=rng.random() < 0.4,
                       reads_out=reads, activation=rng.choice([None, None, ACTIVATIONS[1 + (shape.C + shape.K) % 6]]))
        if rng.random() < 0.2:
            made = made.with_strides("images", walk(rng, made.operand("images").shape))
    else:
        one, two = ("gradients", "filters") if kind == "data" else ("images", "gradients")
        made = (data if kind == "data" else filters)(shape, layout=layout, unaligned=odd(one, two, "out"),
                                                     reads_out=reads)
    return replace(made, most_workspace=most)


def walk(rng: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a view: axes in any order, gaps between elements, an axis that repeats itself."""
    strides, step = [0] * 4, rng.choice([1, 1, 1, 2, 3])
    for axis in rng.sample(range(4), 4) if rng.random() < 0.5 else (3, 2, 1, 0):
        strides[axis] = step if shape[axis] > 1 else 0
        step *= shape[axis] + rng.choice([0, 0, 0, 1, 4])
    if rng.random() < 0.3:
        strides[rng.randrange(4)] = 0
    return tuple(strides)


def names(problem: Problem) -> list[str]:
    """Of all candidates."""
    return [name for family in registry.FAMILIES
            if problem.kind in family.kinds and family.unsupported_reason(problem) is None
            for name in finishing.candidates(family, problem, preset())]


def some(rng: random.Random, every: list[str], most: int) -> list[str]:
    """At most so many of the candidates, of different kernels first."""
    kernels: dict[str, list[str]] = {}
    for name in rng.sample(every, len(every)):
        kernels.setdefault(name.split("_split")[0].split("_tail")[0], []).append(name)
    turns = [name for turn in range(len(every)) for own in kernels.values() for name in own[turn:turn + 1]]
    return sorted(turns[:most], key=every.index)


class Operands:
    """Random operands of a problem, each as badly aligned as the problem says and in memory of its own; what lies
    between the elements of a view, and around the result, is guarded."""

    def __init__(self, problem: Problem, rng: np.random.Generator) -> None:
        self.problem, self.arrays, self.memory = problem, {}, {}
        for operand in problem.operands:
            shift = {0: int(rng.integers(1, 128)), 1: 4 * int(rng.integers(1, 32)), 2: 0}[int(operand.alignment)]
            memory = np.full(operand.extent + 512, np.nan if operand.role != "out" else GUARD, np.float32)
            first = -(memory.ctypes.data // 4) % 128 + 128 + shift
            strides = operand.strides
            array = memory[first:first + operand.extent]
            array = (array.reshape(operand.shape) if strides is None else
                     np.lib.stride_tricks.as_strided(array, operand.shape, [4 * x for x in strides]))
            array[...] = rng.uniform(-1, 1, operand.shape)
            self.arrays[operand.role], self.memory[operand.role] = array, (memory, first, operand.extent)
        self.before = {role: array.copy() for role, array in self.arrays.items()}

    def reset(self) -> None:
        self.arrays["out"][...] = self.before["out"] if self.problem.reads_out else np.nan

    def intact(self) -> bool:
        memory, first, extent = self.memory["out"]
        return bool((memory[:first] == GUARD).all() and (memory[first + extent:] == GUARD).all() and all(
            np.array_equal(array, self.before[role]) for role, array in self.arrays.items() if role != "out"))


def told(problem: Problem, arrays: dict[str, np.ndarray], alpha: float, beta: float) -> tuple[np.ndarray, np.ndarray]:
    """The result in float64, and the sums of the |terms|."""
    s, given = problem.shape, {role: array.astype(float) for role, array in arrays.items()}
    turn = (0, 1, 2, 3) if problem.layout != "NCHW" else (1, 2, 3, 0)
    back = (0, 1, 2, 3) if problem.layout != "NCHW" else (3, 0, 1, 2)
    if problem.kind == "product":
        a, b = (np.swapaxes(given[role], -1, -2) if letter == "t" else given[role]
                for role, letter in zip("ab", problem.layout, strict=True))
        want, size = a @ b, abs(a) @ abs(b)
    elif problem.kind == "bias":
        axes = (0, 2, 3) if problem.layout == "NCHW" else (1, 2, 3)
        want, size = given["gradients"].sum(axes), abs(given["gradients"]).sum(axes)
    elif problem.kind == "forward":
        images, bank = (given[role].transpose(turn) for role in ("images", "filters"))
        want, size = (convolve(s, x, y).transpose(back) for x, y in ((images, bank), (abs(images), abs(bank))))
    else:
        parts = [given[role].transpose(turn) if role in given else None for role in ("images", "filters", "gradients")]
        want, size = (x.transpose(back) for x in gradient(s, problem.kind, *parts))
    want, size = alpha * want, abs(alpha) * size
    if "bias" in given:
        own = given["bias"].reshape((1, -1, 1, 1) if problem.layout == "NCHW" else (-1, 1, 1, 1))
        want, size = want + own, size + abs(own)
    if problem.reads_out:
        want, size = want + beta * given["out"], size + abs(beta * given["out"])
    # What follows the sums is at most 1.5 times as steep as they are.
    steep = 1 if problem.activation in (None, "relu", "relu6") else 1.6
    return activated(problem.activation, want), steep * size


def convolve(s: ConvShape, images: np.ndarray, bank: np.ndarray) -> np.ndarray:
    """(K, P, Q, N) of (C, H, W, N) and (C/groups, R, S, K), tap by tap."""
    c, k = s.C // s.groups, s.K // s.groups
    padded = np.zeros((s.C, s.H + 2 * s.pad_h, s.W + 2 * s.pad_w, s.N))
    padded[:, s.pad_h:s.pad_h + s.H, s.pad_w:s.pad_w + s.W] = images
    out = np.zeros((s.K, s.P, s.Q, s.N))
    for r, t in np.ndindex(s.R, s.S):
        rows = slice(r * s.dil_h, r * s.dil_h + (s.P - 1) * s.str_h + 1, s.str_h)
        columns = slice(t * s.dil_w, t * s.dil_w + (s.Q - 1) * s.str_w + 1, s.str_w)
        maps = padded[:, rows, columns].reshape(s.groups, c, -1)
        taps = bank[:, r, t].reshape(c, s.groups, k).transpose(1, 2, 0)
        out += (taps @ maps).reshape(out.shape)
    return out


def run(plan: Plan, operands: Operands, scalars: dict[str, np.float32], workspace: float = np.nan) -> np.ndarray:
    """By a plan, from a workspace that is filled with a number."""
    device: Any = find.host()
    operands.reset()
    address = engine.of(device).workspace_of(0).place(plan, 0)
    if plan.workspace_bytes:
        device.memory.host(address, plan.workspace_bytes).view(np.float32)[:] = workspace
    views = {role: view(role, array, rank=None, strided=role == "images") for role, array in operands.arrays.items()}
    engine.run(plan, views, scalars, device)
    return operands.arrays["out"]


def one(number: int, most: int = MOST) -> list[str]:
    """A problem by its candidates; the names of those that were run. Raises AssertionError with all that is wrong."""
    rng = random.Random(20170000 + number)
    problem = draw(rng)
    scalars = {name: np.float32(rng.choice({"alpha": [1, 1, -0.75, 0], "beta": [1, -1.5]}[name]))
               for name in problem.scalars}
    every = names(problem)
    if not every:
        with pytest.raises(ShapeError, match="not served: "):
            choose(problem, preset())
        return []
    operands = Operands(problem, np.random.default_rng(number))
    want, size = told(problem, operands.before, float(scalars["alpha"]), float(scalars.get("beta", 0)))
    wrong, ran = [], []
    for name in some(rng, every, most):
        try:
            plan = choose(problem, preset(), name)
        except ShapeError as refusal:
            assert "must be" in str(refusal), refusal
            continue
        ran.append(name)
        try:
            out = run(plan, operands, scalars)
            assert operands.intact(), "writes elsewhere"
            error = abs(out - want)
            assert not np.isnan(error).any(), f"{np.isnan(error).sum()} of {error.size} are NaN or not written"
            # Where that much is documented, results have a few terms, each of which may be as small as chance makes it.
            most = plan.error * (size if plan.error < 1e-5 else size.max())
            assert (error <= most).all(), (f"error {(error / np.maximum(size, 1e-30)).max():.2e} of {plan.error:.2e}, "
                                           f"{(error > most).sum()} of {error.size} elements")
        except Exception as e:
            wrong.append(f"{name}: {type(e).__name__} {e}")
            operands = Operands(problem, np.random.default_rng(number))
    assert not wrong, f"number {number}: {problem} {scalars}\n" + "\n".join(wrong)
    return ran


@pytest.mark.long
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_every_candidate_of_random_problems_is_within_its_error(chunk: int) -> None:
    for number in range(FIRST + chunk, FIRST + PROBLEMS, CHUNKS):
        one(number)
