"""Where there is no memory for a plan's workspace: what is idle is let go, the best plan that fits runs for as long as
memory is short, and there is an error only where nothing fits. On virtual GPUs with little memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import maxdnn
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import OutOfMemoryError
from maxdnn.planning import select
from maxdnn.planning.select import chip_of
from maxdnn.runtime import engine, shortage
from tests import fake_cuda

CALLS = ("forward", "data", "filters", "product")
N, C, H, K = 4, 64, 16, 64
M, L = 96, 1536  # a product of few tiles and long sums, which are split


def arrays(call: str) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = {"forward": {"images": (N, C, H, H), "filters": (K, C, 3, 3)},
              "data": {"gradients": (N, K, H, H), "filters": (K, C, 3, 3)},
              "filters": {"images": (N, C, H, H), "gradients": (N, K, H, H)},
              "product": {"a": (M, L), "b": (L, M)}}[call]
    return {name: rng.random(shape, np.float32) - np.float32(0.5) for name, shape in shapes.items()}


def run(call: str, given: dict[str, np.ndarray], device: VirtualGpu, **options: Any) -> np.ndarray:
    one, two = given.values()
    if call == "product":
        return maxdnn.matmul(one, two, device=device, **options)
    if call == "forward":
        return maxdnn.conv_fprop(one, two, padding=1, layout="NCHW", device=device, **options)
    function, size = ((maxdnn.conv_bprop_data, (H, H)) if call == "data" else (maxdnn.conv_bprop_filters, (3, 3)))
    return function(one, two, size, padding=1, layout="NCHW", device=device, **options)


_ran: list[tuple[Any, maxdnn.Plan]] = []


@pytest.fixture(autouse=True, scope="module")
def _watched() -> Iterator[None]:
    real = engine.run

    def seen(plan: maxdnn.Plan, given: Any, scalars: Any, device: Any, *more: Any) -> None:
        real(plan, given, scalars, device, *more)
        _ran.append((device, plan))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "run", seen)
        yield


def chosen(device: VirtualGpu) -> list[maxdnn.Plan]:
    """The plans that have run on a device, in their order."""
    return [plan for where, plan in _ran if where is device]


def best(call: str) -> maxdnn.Plan:
    device = VirtualGpu()
    run(call, arrays(call), device)
    (plan,) = chosen(device)
    return plan


@pytest.fixture(scope="module", params=CALLS)
def call(request: pytest.FixtureRequest) -> tuple[str, maxdnn.Plan, dict[str, np.ndarray], int]:
    """A function, what it takes with all the memory there is, its arrays, and the bytes of these and of the result."""
    name = str(request.param)
    plan, given = best(name), arrays(name)
    assert plan.workspace_bytes > 1 << 17, "or there is nothing to see here"
    return name, plan, given, 4 * sum(operand.extent for operand in plan.problem.operands)


def room(plan: maxdnn.Plan, held: int, share: float) -> VirtualGpu:
    """A GPU with room for the arrays, the least workspace of all and a share of what more the best plan wants."""
    least = select.least_workspace(plan, chip_of(None))
    return VirtualGpu(memory_bytes=held + least + int(share * (plan.workspace_bytes - least)))


def test_the_best_plan_that_fits_runs_where_the_workspace_of_the_best_does_not(call: Any) -> None:
    name, plan, given, held = call
    right = run(name, given, VirtualGpu())
    device = room(plan, held, 0.6)
    found = run(name, given, device)
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-4)
    ran = chosen(device)[-1]
    assert ran.workspace_bytes <= device.memory._most - held  # type: ignore[operator]
    assert ran.clocks(chip_of(device)) == select.smaller(
        plan, chip_of(device), ran.workspace_bytes).clocks(chip_of(device)), "not the best of what fits"
    assert plan not in chosen(device)


@pytest.mark.sampled(1)
def test_what_gave_way_is_remembered_without_another_try(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    name, plan, given, held = call
    device = room(plan, held, 0.6)
    first = run(name, given, device)
    asked: list[int] = []
    real = device.alloc
    monkeypatch.setattr(device, "alloc", lambda nbytes: asked.append(nbytes) or real(nbytes))
    monkeypatch.setattr(select, "plans", lambda *a, **k: pytest.fail("chosen again"))
    for _ in range(3 * shortage.LOOK):
        assert np.array_equal(run(name, given, device), first)
    assert plan.workspace_bytes not in asked


def test_the_better_plan_comes_back_with_the_memory(call: Any) -> None:
    name, plan, given, held = call
    device = VirtualGpu(memory_bytes=held + plan.workspace_bytes)
    right = run(name, given, device)
    engine.of(device).release()
    ballast = device.alloc((plan.workspace_bytes - select.least_workspace(plan, chip_of(device))) // 2)
    run(name, given, device)
    assert chosen(device)[-1] is not plan
    ballast.free()
    for _ in range(shortage.LOOK):
        run(name, given, device)
    assert chosen(device)[-1] is plan
    assert not shortage.of(device)._instead
    assert np.array_equal(run(name, given, device), right)


def test_there_is_an_error_only_where_nothing_fits(call: Any) -> None:
    name, plan, given, held = call
    least = select.least_workspace(plan, chip_of(None))
    assert run(name, given, VirtualGpu(memory_bytes=held + least)).size
    if least:
        device = VirtualGpu(memory_bytes=held + least - 1)
        words = rf"{plan.workspace_bytes} bytes of workspace wanted, at least {least} by any plan, \d+ free"
        with pytest.raises(OutOfMemoryError, match=words):
            run(name, given, device)
    small = VirtualGpu(memory_bytes=held // 2)
    with pytest.raises(OutOfMemoryError, match=r"\d+ bytes wanted, \d+ of \d+ free"):
        run(name, given, small)
    assert small.free_bytes() == held // 2, "something was kept"


def test_kept_workspaces_go_before_a_plan_gives_way(call: Any) -> None:
    name, plan, given, held = call
    device = VirtualGpu(memory_bytes=held + plan.workspace_bytes * 3 // 2)
    other = engine.of(device).workspace_of(77)
    other.place(plan, 77)  # of another stream, which is idle
    right = run(name, given, device)
    assert not shortage.of(device)._instead and other.nbytes == 0
    assert np.array_equal(right, run(name, given, VirtualGpu()))


@pytest.mark.parametrize("call", CALLS[:3], indirect=True)
def test_a_plan_that_was_given_is_not_replaced(call: Any) -> None:
    name, plan, given, held = call
    shape = plan.problem.shape
    asked = maxdnn.plan(shape, layout="NCHW", kind=name)
    one, two = given.values()
    function: Any = {"forward": maxdnn.conv_fprop, "data": maxdnn.conv_bprop_data,
                     "filters": maxdnn.conv_bprop_filters}[name]
    size = () if name == "forward" else ((H, H),) if name == "data" else ((3, 3),)
    with pytest.raises(OutOfMemoryError, match="wanted"):
        function(one, two, *size, plan=asked, device=room(plan, held, 0.6))


@pytest.mark.parametrize("call", CALLS[:3], indirect=True)
def test_the_limits_of_the_call_hold_for_what_takes_the_place(call: Any) -> None:
    name, plan, given, held = call
    direct = maxdnn.plan(plan.problem.shape, layout="NCHW", kind=name, algorithm="direct")
    device = room(direct, held, 0.1)
    found = run(name, given, device, algorithm="direct", max_error=1e-6)
    assert chosen(device)[-1].algorithm == "direct"
    np.testing.assert_allclose(found, run(name, given, VirtualGpu()), rtol=1e-4, atol=1e-4)


def test_a_smaller_and_a_larger_shortage_follow_each_other(call: Any) -> None:
    name, plan, given, held = call
    device = VirtualGpu(memory_bytes=held + plan.workspace_bytes)
    right = run(name, given, device)
    engine.of(device).release()
    spread = plan.workspace_bytes - select.least_workspace(plan, chip_of(device))
    some = device.alloc(spread // 3)
    run(name, given, device)
    engine.of(device).release()
    more = device.alloc(spread // 2)
    np.testing.assert_allclose(run(name, given, device), right, rtol=1e-4, atol=1e-4)
    assert plan not in chosen(device)[1:]
    some.free()
    more.free()
    for _ in range(shortage.LOOK):
        run(name, given, device)
    assert chosen(device)[-1] is plan


def test_memory_of_a_virtual_gpu_ends() -> None:
    gpu = VirtualGpu(memory_bytes=1000)
    one = gpu.alloc(600)
    assert gpu.free_bytes() == 400 and VirtualGpu().free_bytes() is None
    with pytest.raises(OutOfMemoryError, match="401 bytes wanted, 400 of 1000 free") as e:
        gpu.alloc(401)
    assert (e.value.wanted, e.value.free) == (401, 400)
    with pytest.raises(OutOfMemoryError):
        gpu.adopt(np.zeros(101, np.float32))
    one.free()
    held = gpu.adopt(np.zeros(250, np.float32))
    with pytest.raises(OutOfMemoryError):
        gpu.alloc(1)
    held.free()
    assert gpu.free_bytes() == 1000
    with pytest.raises(maxdnn.LaunchError, match="memory_bytes must be an integer from 0"):
        VirtualGpu(memory_bytes=-1)


def test_few_plans_are_remembered_to_have_given_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortage, "REMEMBERED", 2)
    device = VirtualGpu(memory_bytes=4 * (2 * M * L + M * M) + (64 << 10))
    gave_way = set()
    for rows in range(M - 4, M):
        maxdnn.matmul(np.ones((rows, L), np.float32), np.ones((L, M), np.float32), device=device)
        gave_way |= set(shortage.of(device)._instead)
        assert len(shortage.of(device)._instead) <= 2
    assert len(gave_way) == 4


def test_a_capture_is_made_of_what_took_the_place_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = fake_cuda.Driver((5, 2))
    gpu, _ = fake_cuda.install(monkeypatch, driver)
    device = gpu.device(0)
    shape = maxdnn.ConvShape(N, C, H, H, K, 3, 3, 1, 1)
    plan = maxdnn.plan(shape, layout="NCHW", device=device)
    images, filters, out = (fake_cuda.Array(size) for size in plan.array_shapes().values())

    def call(stream: int) -> list[int]:
        """Bytes that a call allocates."""
        before = len(driver.log)
        maxdnn.conv_fprop(images, filters, padding=1, layout="NCHW", out=out, stream=stream)
        return [entry[1] for entry in driver.log[before:] if entry[0] == "alloc"]
    driver.room = plan.workspace_bytes // 2
    call(100)
    (instead,) = shortage.of(device)._instead.values()
    driver.room = 1 << 40
    driver.capturing = {400: 1}
    for _ in range(2 * shortage.LOOK):
        assert plan.workspace_bytes not in call(400), "what a graph is made of changed during its capture"
    driver.capturing = {}
    for _ in range(shortage.LOOK):
        call(100)
    assert not shortage.of(device)._instead and instead.plan is not plan
    engine.of(device).release()
    driver.room, driver.capturing = 0, {500: 2}
    launched = sum(entry[0] == "launch" for entry in driver.log)

    def nothing(*given: Any) -> maxdnn.Plan:
        raise maxdnn.ShapeError("nothing fits")
    monkeypatch.setattr(shortage, "smaller", nothing)
    with pytest.raises(OutOfMemoryError, match=r"wanted, .* 0 free.* call this once before it"):
        call(500)
    assert sum(entry[0] == "launch" for entry in driver.log) == launched and not driver.lost
