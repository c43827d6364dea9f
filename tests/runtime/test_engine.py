"""What an engine keeps, and how it lets go of it, seen through a driver that forbids what CUDA forbids during a capture
and says when launches are over."""

import functools
import gc
import itertools
import sys
import threading

import numpy as np
import pytest

import maxdnn
from maxdnn.errors import DeviceError, LaunchError, OutOfMemoryError
from maxdnn.runtime import engine, shortage
from tests import fake_cuda

WITH_COPY = "sconv_fprop_K64_N64"  # needs a padded copy, a workspace
PADDED = maxdnn.ConvShape(64, 8, 3, 3, 64, 3, 3, 1, 1)
ONE = {"alpha": np.float32(1)}
NEVER = ("synchronize",)


@pytest.fixture(params=[(9, 0), (5, 2)], ids=["translated", "native"])
def fake(request, monkeypatch):
    driver = fake_cuda.Driver(request.param)
    gpu, library = fake_cuda.install(monkeypatch, driver)
    yield driver, gpu, library
    driver.completed = None  # what is given back later, by the collector, is not in use any more


def count(driver, *verbs):
    return sum(entry[0] in verbs for entry in driver.log)


def plans_of(number):
    """So many plans, each with a module of its own."""
    sizes = itertools.islice(itertools.product(range(3, 3 + number), range(3, 13)), number)
    return [maxdnn.plan(maxdnn.ConvShape(64, 8, h, w, 64, 3, 3), kernel=WITH_COPY) for h, w in sizes]


def run(device, plan, stream=0, on=None):
    """A call with operands anywhere."""
    places = {role: 512 * (n + 1) for n, role in enumerate(plan.problem.roles)}
    (on or engine.of(device)).loaded(plan).run(places, 1 << 20, ONE, stream)


@functools.cache
def arrays_of(plan):
    return [fake_cuda.Array(shape) for shape in plan.array_shapes().values()]


def call(plan, stream):
    """A call with a workspace of the stream's."""
    given = arrays_of(plan)
    maxdnn.conv_fprop(*given[:2], out=given[2], plan=plan, stream=stream)


def capture(driver, stream, number):
    driver.capturing = {**driver.capturing, stream: number}


@pytest.mark.sampled(1)
def test_two_thousand_plans_on_64_streams_are_loaded_once_and_nothing_is_waited_for(fake):
    driver, gpu, _ = fake
    driver.memory = 16 << 30
    plans, device = plans_of(2000), gpu.device(0)
    for around in range(2):
        for n, plan in enumerate(plans):
            run(device, plan, 100 + (n + around) % 64)
    assert (count(driver, "load"), count(driver, "unload", "free", "wait", *NEVER)) == (2000, 0)
    assert count(driver, "launch") == 4000


@pytest.fixture
def narrow(fake):
    """Room for about twelve plans."""
    driver, gpu, _ = fake
    device = gpu.device(0)
    (plan,) = plans_of(1)
    run(device, plan)
    one = engine.of(device)._plans.weight
    device.kept.clear()
    gc.collect()
    driver.log.clear()
    driver.launches = 0
    engine.of(device)._plans.most = 12.5 * one
    return device


def test_a_few_plans_more_than_there_is_room_for_cost_a_few_loads(fake, narrow):
    driver, _, _ = fake
    plans, calls = plans_of(14), 140
    for n in range(calls):
        run(narrow, plans[n % 14])
    loads = count(driver, "load")
    assert 14 < loads < calls / 2, "the least recently used one would be the next one wanted, each time"
    assert count(driver, "unload") == loads - 13 and not count(driver, *NEVER)


@pytest.mark.sampled(2)
def test_a_plan_leaves_when_what_it_was_used_by_is_over_and_not_before(fake, narrow):
    driver, _, _ = fake
    driver.completed = 0  # nothing that is launched ends
    plans = plans_of(30)
    for n, plan in enumerate(plans):
        run(narrow, plan, stream=n % 3)
    assert not count(driver, "unload", "wait", *NEVER), "the fake asserts that no module goes too early"
    driver.completed = 20
    run(narrow, plans_of(31)[30])
    assert 5 < count(driver, "unload") <= 18
    driver.completed = None
    run(narrow, plans_of(32)[31])
    assert count(driver, "load") - count(driver, "unload") == 13  # with one that waits for the next look
    engine.of(narrow).release()
    gc.collect()
    assert count(driver, "load") == count(driver, "unload") and not count(driver, *NEVER)


def test_a_plan_that_was_used_on_two_streams_waits_for_both(fake, narrow):
    driver, _, _ = fake
    first, *others = plans_of(20)
    driver.completed = 0
    run(narrow, first, 100)
    run(narrow, first, 200)
    driver.completed = 1
    on = engine.of(narrow)
    on._plans.drop(lambda loaded: loaded.leave(on._leaving))
    for other in others:
        run(narrow, other, 100)
    assert not count(driver, "unload")
    driver.completed = 2
    on._leaving.sweep()
    assert count(driver, "unload") == 1


def test_what_leaves_twice_without_a_launch_between_waits_for_the_last_one(fake, narrow):
    driver, _, _ = fake
    plans = plans_of(2)
    driver.completed = 0
    for plan in plans:
        run(narrow, plan, 100)
    on = engine.of(narrow)
    for _ in plans:  # one, and then the other, whose launch came before the event that the first one left
        left = []
        on._plans.drop(lambda loaded, left=left: not left and loaded.leave(on._leaving) and not left.append(1))
    on._leaving.sweep()
    assert len(on._plans) == 0 and not count(driver, "unload")
    driver.completed = 2
    on._leaving.sweep()
    assert count(driver, "unload") == 2


def test_a_first_call_may_be_one_that_is_captured(fake):
    driver, gpu, _ = fake
    capture(driver, 4242, 1)
    for plan in plans_of(300):
        run(gpu.device(0), plan, 4242)
    call(maxdnn.plan(PADDED, kernel=WITH_COPY), 4242)
    assert not driver.lost and count(driver, "launch") == 302 and not count(driver, "unload", "free", *NEVER)


def test_nothing_leaves_in_a_call_that_is_captured_and_nothing_that_a_graph_runs_as_long_as_there_is_one(fake, narrow):
    driver, _, library = fake
    plans = plans_of(40)
    for plan in plans[:12]:
        run(narrow, plan, 1)
    capture(driver, 4242, 7)
    for plan in plans[6:24]:
        run(narrow, plan, 4242)
    assert not count(driver, "unload", *NEVER) and not driver.lost
    for plan in plans[24:]:  # of another stream meanwhile
        run(narrow, plan, 1)
    on = engine.of(narrow)
    assert all(on.captured(plan) for plan in plans[6:24]) and not any(on.captured(plan) for plan in plans[24:])
    loads = count(driver, "load")
    capture(driver, 4242, 0)
    for plan in plans[6:24]:
        run(narrow, plan, 4242)
    assert count(driver, "load") == loads and not driver.lost
    library.graphs[7].alive = False
    on.release()
    assert len(on._plans) == 0 and count(driver, "unload") == loads and not driver.lost


def test_a_plan_that_is_leaving_is_waited_for(fake, narrow, monkeypatch):
    """Whoever wants it meanwhile gets a new one, and does not ask for the old one until the stack is full."""
    plan, done = plans_of(1)[0], []
    run(narrow, plan)
    found = engine.of(narrow).loaded(plan)
    leave = found.leave

    def work():
        run(narrow, plan)
        done.append("ran")
    other = threading.Thread(target=work)

    def leaves_slowly(leaving):
        left = leave(leaving)
        other.start()
        other.join(0.2)
        done.append("waits" if other.is_alive() else "ended")
        return left
    monkeypatch.setattr(found, "leave", leaves_slowly)
    engine.of(narrow).release()
    other.join()
    assert done == ["waits", "ran"]


def test_threads_run_plans_that_leave_while_others_capture(fake, narrow):
    """The fake asserts that no kernel is launched whose module is gone, and that no capture is lost."""
    driver, _, _ = fake
    plans, wrong, start = plans_of(40), [], threading.Barrier(6)
    numbers = itertools.count(1)
    interval = sys.getswitchinterval()
    threads_stack = threading.local()

    class Stack:  # a context is current in one thread
        def __getattr__(self, name):
            if not hasattr(threads_stack, "list"):
                threads_stack.list = []
            return getattr(threads_stack.list, name)

        def __getitem__(self, at):
            return threads_stack.list[at]

        def __bool__(self):
            return bool(getattr(threads_stack, "list", None))
    driver.stack = Stack()

    def work(me):
        try:
            start.wait()
            for n in range(120):
                if me < 2 and n % 10 == 0:
                    capture(driver, 5000 + me, next(numbers) if n % 20 else 0)
                run(narrow, plans[(7 * n + 11 * me) % 40], 5000 + me if n % 3 else 5002)
        except BaseException as e:
            wrong.append(e)
    threads = [threading.Thread(target=work, args=(me,)) for me in range(6)]
    try:
        sys.setswitchinterval(1e-5)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong and not driver.lost and not count(driver, *NEVER)
    assert count(driver, "launch") == 6 * 120


def test_64_streams_keep_their_workspaces_where_they_fit(fake):
    driver, _, _ = fake
    plan = maxdnn.plan(PADDED, kernel=WITH_COPY)
    for stream in [*range(100, 164)] * 2:
        call(plan, stream)
    assert count(driver, "alloc") == 64 and not count(driver, "free", "wait", *NEVER)


def test_workspaces_are_bounded_by_their_bytes_and_leave_behind_events(fake):
    driver, gpu, _ = fake
    plan = maxdnn.plan(PADDED, kernel=WITH_COPY)
    engine.of(gpu.device(0))._streams.most = 8.5 * plan.workspace_bytes
    driver.completed = 0
    for stream in [*range(100, 120)]:
        call(plan, stream)
    assert not count(driver, "free", "wait", *NEVER)
    driver.completed = 30  # of forty
    call(plan, 120)
    early = count(driver, "free")
    driver.completed = None
    call(plan, 121)
    assert 0 < early < 13 <= count(driver, "free") <= 14 and not count(driver, *NEVER)


def test_a_workspace_that_grows_leaves_behind_its_last_use(fake):
    driver, _, _ = fake
    small = maxdnn.plan(PADDED, kernel=WITH_COPY)
    large = maxdnn.plan(maxdnn.ConvShape(64, 8, 9, 9, 64, 3, 3, 1, 1), kernel=WITH_COPY)
    driver.completed = 0
    call(small, 100)
    call(large, 100)
    call(small, 100)
    assert count(driver, "alloc") == 2 and not count(driver, "free", "wait", *NEVER)
    driver.completed = None
    call(small, 200)
    assert count(driver, "free") == 1


def test_streams_that_are_not_used_any_more_are_forgotten(fake, monkeypatch):
    driver, gpu, _ = fake
    monkeypatch.setattr(engine, "STREAMS", 16)
    plan = maxdnn.plan(PADDED, kernel=WITH_COPY)
    for stream in range(100, 200):
        call(plan, stream)
        run(gpu.device(0), plan, stream)
    assert len(engine.of(gpu.device(0))._streams) == 16 and count(driver, "alloc") - count(driver, "free") <= 17


def test_a_graph_gets_a_workspace_that_nobody_else_uses_and_that_goes_with_it(fake):
    driver, _, library = fake
    plan = maxdnn.plan(PADDED, kernel=WITH_COPY)
    for number in (0, 5, 5, 6, 0):
        capture(driver, 4242, number)
        call(plan, 4242)
    capture(driver, 4243, 5)  # a branch of the same capture: both may run at once
    call(plan, 4243)
    padded = [entry[4][:8] for entry in driver.log if entry[0] == "launch" and entry[1] == "spad"]
    first, graph, again, other, last, branch = padded
    assert first == last and graph == again and len({first, graph, other, branch}) == 4
    assert not count(driver, "free") and not driver.lost
    library.graphs[5].alive = False
    capture(driver, 4243, 0)
    for stream in (4242, 4243):
        call(plan, stream)
    freed = {entry[1].to_bytes(8, "little") for entry in driver.log if entry[0] == "free"}
    assert freed == {graph, branch}


def test_many_captures_one_after_the_other_leave_nothing_behind(fake):
    driver, _, library = fake
    plan = maxdnn.plan(PADDED, kernel=WITH_COPY)
    for number in range(1, 51):
        capture(driver, 4242, number)
        call(plan, 4242)
        capture(driver, 4242, 0)
        library.graphs[number].alive = False
        call(plan, 4242)
    assert count(driver, "alloc") == 51 and count(driver, "free") == 50 and not driver.lost


def test_what_is_idle_goes_before_memory_is_said_to_be_short(fake):
    driver, gpu, _ = fake
    plan = maxdnn.plan(PADDED, kernel=WITH_COPY)
    driver.room, driver.completed = int(2.5 * plan.workspace_bytes), 0
    for stream in (100, 200, 300):
        call(plan, stream)
    assert count(driver, "free") == 2 and count(driver, "wait") and not count(driver, *NEVER)
    large = maxdnn.plan(maxdnn.ConvShape(64, 8, 30, 30, 64, 3, 3, 1, 1), kernel=WITH_COPY)
    with pytest.raises(OutOfMemoryError, match=rf"on fake GPU: {large.workspace_bytes} bytes wanted, \d+ of \d+ free"):
        call(large, 300)
    call(plan, 300)
    capture(driver, 400, 1)
    driver.room = 0
    before, freed = count(driver, "launch"), count(driver, "free")
    with pytest.raises(OutOfMemoryError):
        call(plan, 400)
    assert (count(driver, "launch"), count(driver, "free")) == (before, freed) and not driver.lost
    assert engine.of(gpu.device(0)).graph_of(400).alive, "nothing was recorded, and the capture goes on"


@pytest.mark.sampled(1)
def test_a_chosen_plan_gives_way_in_a_capture_which_lets_nothing_go(fake):
    driver, gpu, _ = fake
    device = gpu.device(0)
    x, w, out = (fake_cuda.Array(shape) for shape in ((4, 64, 16, 16), (64, 64, 3, 3), (4, 64, 16, 16)))

    def chosen(stream):
        maxdnn.conv_fprop(x, w, padding=1, layout="NCHW", out=out, stream=stream)
        return [entry[1] for entry in driver.log if entry[0] == "alloc"]
    (best,) = chosen(100)
    driver.room = best - 1  # beside what stream 100 keeps, which is idle
    capture(driver, 4242, 1)
    before = count(driver, "launch")
    assert all(size < best for size in chosen(4242)[1:]) and count(driver, "launch") > before
    assert not driver.lost and not count(driver, "free", "unload", "wait", *NEVER)
    assert not shortage.of(device)._instead, "what fits in a capture is not what fits when things are let go"
    capture(driver, 4242, 0)
    assert chosen(4242)[-1] == best and count(driver, "free") == 1
    assert not driver.lost and not count(driver, *NEVER)


def test_a_plan_that_cannot_be_loaded_leaves_the_capture_as_it_was(fake):
    driver, gpu, _ = fake
    capture(driver, 4242, 1)
    driver.failing = "no room"
    (plan,) = plans_of(1)
    with pytest.raises(DeviceError, match="no room"):
        run(gpu.device(0), plan, 4242)
    assert not driver.lost and not count(driver, "launch")
    driver.failing = None
    run(gpu.device(0), plan, 4242)
    assert not driver.lost and count(driver, "launch") == 1


def test_what_a_capture_cannot_have_is_said_before_anything_is_recorded(fake):
    driver, gpu, _ = fake
    device = gpu.device(0)
    plan = maxdnn.plan(PADDED, kernel=WITH_COPY)
    capture(driver, 4242, 1)
    host = [np.zeros(shape, np.float32) for shape in plan.array_shapes().values()]
    with pytest.raises(LaunchError, match="host arrays cannot be used while the stream is captured"):
        maxdnn.conv_fprop(*host[:2], out=host[2], plan=plan, stream=4242, device=device)
    arrays = [fake_cuda.Array(shape) for shape in plan.array_shapes().values()]
    for stream in (1, 77):
        arrays[0].__cuda_array_interface__["stream"] = stream
        with pytest.raises(DeviceError, match="names a stream that has nothing to do with the graph"):
            maxdnn.conv_fprop(*arrays[:2], out=arrays[2], plan=plan, stream=4242)
    buffer = device.alloc(4)
    for copy in (device.upload, device.download):
        with pytest.raises(DeviceError, match="while its stream is captured"):
            copy(buffer, np.zeros(1, np.float32), 4242)
    module = engine.load(device, plan.spec)
    name, = [symbol.name for symbol in plan.spec.constants]
    module.set_constant(name, b"1234", stream=4242)
    module.function(plan.spec.name)
    with pytest.raises(DeviceError, match="constant offsets cannot be written again while its stream is captured"):
        module.set_constant(name, b"1234", stream=4242)
    del buffer, module
    gc.collect()
    assert not driver.lost and not count(driver, "launch", "order", *NEVER)
    capture(driver, 77, 1)  # the same graph
    maxdnn.conv_fprop(*arrays[:2], out=arrays[2], plan=plan, stream=4242)
    assert count(driver, "launch") == 2 and not driver.lost
