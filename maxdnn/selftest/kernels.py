"""Every kernel of every family on small problems: both layouts, every kind, all options, sizes at the edges. On a GPU
the bits are those of the virtual GPU or they are wrong; on the virtual GPU the values are held to the kernels'
contracts."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..planning.cost import preset
from ..planning.plan import Plan
from ..planning.select import plans
from ..problem.operands import ArrayView, view
from ..problem.problem import LAYOUTS, Alignment, Operand, Problem, bias, data, filters, forward, product
from ..problem.shape import ConvShape
from ..runtime.devices.protocol import Device
from ..runtime.engine import Engine
from .contract import run_plan
from .items import DIFFERENT, SAME, Result, Stand, differences, digest, told

GUARD = 128  # floats before and behind each operand: 512 bytes, so that it begins where a texture may
POISON = np.float32(-7.25e33)
TOLERANCE = 2e-6  # of the sum of the absolute values of all terms; more where a plan documents more
SCALARS = {"alpha": np.float32(-0.75), "beta": np.float32(1.5)}

SHAPES = {
    "64 images": ConvShape(64, 16, 6, 5, 72, 3, 3, 1, 1),
    "one image": ConvShape(1, 20, 7, 6, 33, 3, 3, 1, 1),
    "3 images, stride, dilation": ConvShape(3, 9, 9, 8, 10, 3, 2, (2, 1), (1, 2), (1, 2)),
    "1x1": ConvShape(5, 40, 4, 4, 65, 1, 1),
    "1x1, stride 2": ConvShape(5, 24, 6, 6, 33, 1, 1, 2),
    "5x5": ConvShape(4, 24, 8, 8, 32, 5, 5, 1, 2),
    "5x5, no padding": ConvShape(4, 24, 9, 9, 32, 5, 5),
    "130 images, few filters": ConvShape(132, 8, 4, 4, 20, 3, 3, 1, 1),
    "groups": ConvShape(8, 16, 5, 5, 24, 3, 3, 1, 1, 1, 2),
    "depthwise 3x3": ConvShape(2, 12, 7, 7, 12, 3, 3, 1, 1, 1, 12),
    "depthwise 5x5": ConvShape(2, 12, 8, 8, 12, 5, 5, 1, 2, 1, 12),
    "depthwise 3x3, stride 2": ConvShape(2, 12, 8, 9, 12, 3, 3, 2, 1, 1, 12),
    "depthwise 5x5, stride 2": ConvShape(2, 12, 9, 8, 12, 5, 5, 2, 2, 1, 12),
    "depthwise 7x7": ConvShape(2, 12, 9, 9, 12, 7, 7, 1, 3, 1, 12),
    "depthwise 2x4": ConvShape(2, 12, 7, 9, 12, 2, 4, 2, 1, 1, 12),
    "one pixel": ConvShape(70, 30, 1, 1, 65, 1, 1),
    "a 1 x 7 filter": ConvShape(2, 16, 5, 9, 20, 1, 7, 1, (0, 3)),
    "a 20 x 3 filter": ConvShape(2, 8, 12, 4, 9, 20, 3, 1, (10, 1)),
}
PRODUCTS = (((70, 33), (33, 65)), ((130, 40), (40, 140)), ((2, 20, 257), (2, 257, 24)))


def problems() -> Iterator[tuple[str, Problem]]:
    """What is computed, with its name."""
    for name, shape in SHAPES.items():
        for layout in LAYOUTS:
            yield name, forward(shape, layout=layout)
            yield name, data(shape, layout=layout)
            yield name, filters(shape, layout=layout)
    for layout in LAYOUTS:
        shape = SHAPES["one image"]
        yield "all options", forward(shape, layout=layout, bias=True, activation="relu", reads_out=True)
        yield "activation", forward(shape, layout=layout, activation="relu6")
        yield "any address", forward(shape, layout=layout, unaligned=["images", "filters"], bias=True)
        yield "added", data(shape, layout=layout, reads_out=True)
        yield "added", filters(shape, layout=layout, reads_out=True)
        yield "bias", bias((5, 37, 6, 7), layout=layout)
    for a, b in PRODUCTS:
        for turned in ("nn", "nt", "tn", "tt"):
            (*stack, m, k), n = a, b[-1]
            yield f"of {m} x {k} x {n}", product(
                (*stack, k, m) if turned[0] == "t" else (*stack, m, k), (*stack, n, k) if turned[1] == "t" else b,
                transpose_a=turned[0] == "t", transpose_b=turned[1] == "t", reads_out=turned == "nn")


@dataclass(frozen=True)
class KernelItem:
    """A plan of a problem by one candidate."""

    title: str
    candidate: str
    plan: Plan
    part: str = "kernels"

    @property
    def name(self) -> str:
        problem = self.plan.problem
        return f"{problem.kind} {problem.layout} {self.title}: {self.candidate}"

    def run(self, stand: Stand) -> Result:
        given = _operands(self.plan.problem)
        after = outcome(stand.device, self.plan, given)
        out = after["out"]
        found: dict[str, Any] = {"kernels": sorted({x.spec.name for x in self.plan.launches}), "bits": digest(out)}
        if stand.card:
            wrong = differences(out, outcome(stand.virtual, self.plan, given)["out"])
        else:
            wrong = self._far(out, given)
        spoilt = [role for role in given if role != "out" and differences(after[role], given[role])]
        if spoilt:
            return Result(self.part, self.name, DIFFERENT, f"operands were written: {', '.join(spoilt)}", found)
        if wrong:
            return Result(self.part, self.name, DIFFERENT, told(wrong), found | wrong)
        return Result(self.part, self.name, SAME, "", found)

    def _far(self, out: np.ndarray, given: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """The differences from the families' references that rounding does not explain."""
        scalars = {name: SCALARS[name] for name in self.plan.problem.scalars}
        wanted = run_plan(self.plan, given, **scalars)["out"]
        # The same with absolute values is the sum of |terms|, which a rounding error is measured against.
        size = run_plan(self.plan, {role: abs(x) for role, x in given.items()},
                        **{name: abs(x) for name, x in scalars.items()})["out"]
        near = abs(out.astype(float) - wanted) <= max(TOLERANCE, self.plan.error) * size
        return differences(np.where(near, wanted, out).astype(np.float32), wanted.astype(np.float32))


def outcome(device: Device, plan: Plan, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The operands after a call, by role. What is only written is poisoned before. Raises GuardError if anything beside
    them was written."""
    placed = {role: Guarded(device, plan.problem.operand(role), x, POISON if role == "out" and
                            not plan.problem.reads_out else None) for role, x in given.items()}
    views: dict[str, ArrayView] = {role: view(role, x, rank=None) for role, x in placed.items()}
    scalars = {name: SCALARS[name] for name in plan.problem.scalars}
    engine = Engine(device)
    engine.run(plan, views, scalars, None)
    device.synchronize()  # the engine's modules must live until then
    return {role: x.get(role) for role, x in placed.items()}


def _operands(problem: Problem) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {role: rng.uniform(-1, 1, shape).astype(np.float32) for role, shape in problem.shapes.items()}


class GuardError(Exception):
    """A kernel wrote beside its operand."""


class Guarded:
    """An operand in device memory with known values on both sides, or all `fill`; a float off a texture's beginning,
    where it may begin anywhere."""

    def __init__(self, device: Device, operand: Operand, values: np.ndarray, fill: np.float32 | None) -> None:
        skew = int(operand.alignment == Alignment.FLOAT and operand.role != "out")
        self._device, self.shape, self._first = device, values.shape, GUARD + skew
        whole = np.full(values.size + 2 * GUARD + skew, POISON)
        whole[self._first:][:values.size] = values.ravel() if fill is None else fill
        self._buffer = device.alloc(whole.nbytes)
        self._whole, self._initial = whole, whole.copy()
        self.reset()

    def reset(self) -> None:
        """As it was in the beginning."""
        self._device.upload(self._buffer, self._initial)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": self.shape, "typestr": "<f4", "data": (self._buffer.address + 4 * self._first, False),
                "version": 3}

    def get(self, role: str) -> np.ndarray:
        self._device.download(self._buffer, self._whole)
        size = int(np.prod(self.shape))
        before, behind = self._whole[:self._first], self._whole[self._first + size:]
        if (before != POISON).any() or (behind != POISON).any():
            raise GuardError(f"memory beside {role} was written")
        return self._whole[self._first:][:size].reshape(self.shape).copy()


def items(quick: bool = False) -> list[KernelItem]:
    """Every problem by every candidate of kernels for Maxwell, but of split reductions only two splits; `quick`: as few
    as use every kernel in every kind."""
    every: list[KernelItem] = []
    for title, problem in problems():
        splits: dict[str, int] = {}
        for candidate, plan in plans(problem, preset(), max_error=math.inf).items():
            base = candidate.split("_split")[0]
            splits[base] = splits.get(base, 0) + 1
            if splits[base] <= 3:  # unsplit and two splits
                every.append(KernelItem(title, candidate, replace(plan, chosen="by its name")))
    return _cover(every) if quick else every


def _cover(every: list[KernelItem]) -> list[KernelItem]:
    """The first items that use a kernel for the first time in a kind of problem and a layout."""
    seen: set[tuple[str, str]] = set()
    found = []
    for item in every:
        uses = {(item.plan.problem.kind, launch.spec.name) for launch in item.plan.launches}
        if uses - seen:
            seen |= uses
            found.append(item)
    return found
