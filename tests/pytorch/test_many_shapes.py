"""Two thousand shapes, 64 streams, threads and captures in between, on a real GPU with PyTorch for CUDA.
With figures, in some three minutes: python -m pytest -m gpu -s tests/pytorch/test_many_shapes.py"""

import gc
import itertools
import statistics
import threading
import time

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import maxdnn
import maxdnn.torch as mt
from maxdnn.runtime import engine
from maxdnn.runtime.devices import find
from maxdnn.torch.networks import Network

pytestmark = pytest.mark.gpu
CUDA = torch.device("cuda", 0)
C = 24
OWN = {"algorithm": "direct", "arithmetic": "ffma"}  # plans with modules of their own, as their kernels read tables
NETWORKS = "alexnet", "resnet50", "inception", "unet"


@pytest.fixture(autouse=True)
def quiet():
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.cuda.synchronize()


def shapes(number, first=0):
    every = ((1 + n, h, w) for n, h, w in itertools.product(range(2), range(6, 70), range(6, 70)))
    return list(itertools.islice(every, first, first + number))


def inputs(sizes):
    """Maps of these sizes, in memory that all share."""
    room = torch.rand(max(n * C * h * w for n, h, w in sizes), device=CUDA)
    return [room[:n * C * h * w].view(n, C, h, w) for n, h, w in sizes]


def weights():
    return torch.rand(C, C, 3, 3, device=CUDA) - 0.5


def close(found, x, w):
    torch.testing.assert_close(found, F.conv2d(x.double(), w.double(), padding=1).float(), rtol=1e-4, atol=1e-4)


def timed(calls):
    """Host microseconds of each call; the GPU is let catch up in between, so that no queue is ever full."""
    times = []
    for n, call in enumerate(calls):
        begun = time.perf_counter()
        call()
        times.append(1e6 * (time.perf_counter() - begun))
        if n % 20 == 19:
            torch.cuda.synchronize()
    return times


def kept():
    return engine.of(find.gpu(0))


def counted(monkeypatch):
    """Modules loaded and unloaded from now on, by the driver's calls."""
    from maxdnn.runtime.devices import cuda
    calls = {"load": 0, "unload": 0}

    def counting(name, real):
        def call(*given):
            calls[name] += 1
            return real(*given)
        return call
    for name in calls:
        monkeypatch.setattr(cuda.driver(), name, counting(name, getattr(cuda.driver(), name)))
    return calls


def test_two_thousand_shapes_cost_what_ten_cost(monkeypatch):
    calls = counted(monkeypatch)
    w, xs = weights(), inputs(shapes(2000))
    with torch.inference_mode():
        free, begun = torch.cuda.mem_get_info()[0], time.perf_counter()
        first = timed([lambda x=x: mt.conv2d(x, w, padding=1) for x in xs])
        torch.cuda.synchronize()
        took, taken = time.perf_counter() - begun, free - torch.cuda.mem_get_info()[0]
        loads = calls["load"]
        second = timed([lambda x=x: mt.conv2d(x, w, padding=1) for x in xs])
        ten = timed([lambda x=x: mt.conv2d(x, w, padding=1) for x in xs[:10] * 200])
        ratio = statistics.mean(second) / statistics.mean(ten)
        print(f"\n2,000 shapes: first round {took:.1f} s, median {statistics.median(first):.0f} us a call, {loads} "
              f"loads; second round {statistics.mean(second):.1f} us a call, median {statistics.median(second):.1f}; "
              f"ten shapes {statistics.mean(ten):.1f}, median {statistics.median(ten):.1f}; ratio {ratio:.2f}\n"
              f"device memory taken {taken / 2**20:.0f} MiB, plans are counted as {kept()._plans.weight / 2**20:.0f} "
              f"MiB of at most {kept()._plans.most / 2**20:.0f}")
        assert calls == {"load": loads, "unload": 0} and ratio < 3
        for x in xs[::40]:
            close(mt.conv2d(x, w, padding=1), x, w)


def test_two_thousand_shapes_of_arrays_and_64_streams_with_workspaces_of_theirs(monkeypatch):
    w, xs = weights(), inputs(shapes(2000))
    streams = [torch.cuda.Stream() for _ in range(8)] + [torch.cuda.ExternalStream(each) for each in raw_streams(56)]
    out = torch.empty(max(x.numel() for x in xs), device=CUDA)

    def call(x, stream):
        n, _, h, wide = x.shape
        maxdnn.conv_fprop(x, w, padding=1, layout="NCHW", out=out[:n * C * h * wide].view(n, C, h, wide),
                          stream=stream.cuda_stream, algorithm="winograd")
    torch.cuda.synchronize()
    first = timed([lambda x=x, n=n: call(x, streams[n % 64]) for n, x in enumerate(xs)])
    calls = counted(monkeypatch)
    second = timed([lambda x=x, n=n: call(x, streams[n % 64]) for n, x in enumerate(xs)])
    ten = timed([lambda n=n: call(xs[n % 10], streams[n % 10]) for n in range(2000)])
    ratio = statistics.mean(second) / statistics.mean(ten)
    print(f"\nconv_fprop, 2,000 shapes on 64 streams: first round {statistics.mean(first):.0f} us a call, second "
          f"{statistics.mean(second):.1f}; ten on ten {statistics.mean(ten):.1f}; ratio {ratio:.2f}")
    assert calls == {"load": 0, "unload": 0} and ratio < 3
    torch.cuda.synchronize()
    call(xs[700], streams[63])
    torch.cuda.synchronize()
    close(out[:xs[700].numel()].view(xs[700].shape), xs[700], w)


def raw_streams(number):
    from maxdnn.runtime.devices import cuda
    with find.gpu(0).active():
        return [cuda.driver().own_stream() for _ in range(number)]


def captured(work, stream, **options):
    """A graph of what `work` does, and what it gave."""
    graph = torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.graph(graph, stream=stream, **options):
        out = work()
    return graph, out


@pytest.fixture
def narrow(monkeypatch):
    """Room for about 100 plans, so that others leave all the time."""
    kept().release()
    w = weights()
    with torch.inference_mode():
        for x in inputs(shapes(20, 3000)):
            mt.conv2d(x, w, padding=1, **OWN)
    monkeypatch.setattr(kept()._plans, "most", 5 * kept()._plans.weight)
    assert kept()._plans.most > 0, "these plans have no modules of their own: choose others"
    return w


@pytest.mark.parametrize("warm", [True, False], ids=["warmed up", "first calls"])
def test_captures_of_several_networks_of_more_than_300_plans_each(narrow, monkeypatch, warm):
    calls = counted(monkeypatch)
    side, w, graphs = torch.cuda.Stream(), narrow, []
    with torch.inference_mode():
        for number in range(3):
            xs = inputs(shapes(310, 310 * number + 1000 * warm))
            wanted = [F.conv2d(x.double(), w.double(), padding=1).float() for x in xs]

            def network(xs=xs):
                return [mt.conv2d(x, w, padding=1, **OWN) for x in xs]
            if warm:
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    network()
            torch.cuda.synchronize()
            before = calls["unload"]
            graph, outs = captured(network, side)
            assert calls["unload"] == before, "nothing leaves during a capture"
            graphs.append((graph, outs, wanted, xs))  # which read the inputs
            for x in inputs(shapes(150, 5000)):  # others, for which some must leave
                mt.conv2d(x, w, padding=1, **OWN)
        for graph, outs, wanted, _ in graphs:
            for out in outs:
                out.zero_()
            graph.replay()
            for out, right in zip(outs, wanted, strict=True):
                torch.testing.assert_close(out, right, rtol=1e-4, atol=1e-4)
        held = sum(one.captured for one in kept()._plans.values())
        del graph, graphs, outs
        gc.collect()
        torch.cuda.synchronize()
        until = time.monotonic() + 10
        while any(one.captured for one in kept()._plans.values()) and time.monotonic() < until:
            time.sleep(0.1)
        left = sum(one.captured for one in kept()._plans.values())
        print(f"\n3 captures of 310 plans: {calls}; {held} plans in graphs, {left} when the graphs are gone")
        assert held >= 930 and left == 0


def test_captures_on_one_thread_while_plans_come_and_go_on_others(narrow, monkeypatch):
    """In CUDA's strictest mode, which is PyTorch's default: what any thread does can end the capture."""
    calls, w, wrong, stop = counted(monkeypatch), narrow, [], threading.Event()
    xs = inputs(shapes(400, 6000))
    outs = [[torch.empty_like(x) for x in xs] for _ in range(3)]
    streams = [torch.cuda.Stream() for _ in range(3)]
    done = [0] * 3
    torch.cuda.synchronize()

    def others(me):  # which allocate nothing of PyTorch's, which that mode would not bear
        try:
            while not stop.is_set():
                n = (7 * done[me] + 131 * me) % 400
                maxdnn.conv_fprop(xs[n], w, padding=1, layout="NCHW", out=outs[me][n],
                                  stream=streams[me].cuda_stream, **OWN)
                done[me] += 1
        except BaseException as e:
            wrong.append(e)
            stop.set()
    threads = [threading.Thread(target=others, args=(me,)) for me in range(3)]
    side, results = torch.cuda.Stream(), []
    mine = inputs(shapes(60, 7000))
    with torch.inference_mode():
        mt.conv2d(mine[0], w, padding=1, **OWN)
        torch.cuda.synchronize()
        for thread in threads:
            thread.start()
        try:
            for n in range(20):
                some, before = mine[3 * n:3 * n + 3], [*done]
                graph, found = captured(lambda some=some: [mt.conv2d(x, w, padding=1, **OWN) for x in some], side)
                graph.replay()
                results += zip(found, some, [graph] * 3, strict=True)
                while not wrong and min(now - then for now, then in zip(done, before, strict=True)) < 1:
                    time.sleep(0.01)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        torch.cuda.synchronize()
    print(f"\n20 captures beside {sum(done)} calls of three threads: {calls}")
    assert not wrong
    for found, x, _ in results:
        close(found, x, w)
    for me in range(3):
        for n in range(0, min(done[me], 400), 20):
            at = (7 * n + 131 * me) % 400
            close(outs[me][at], xs[at], w)


def test_what_a_capture_cannot_have_leaves_it_as_it_was():
    w, (x,) = weights(), inputs(shapes(1, 8000))
    host = [np.ones((1, 2, 5, 5), np.float32), np.ones((3, 2, 3, 3), np.float32)]
    side = torch.cuda.Stream()
    with torch.inference_mode():
        def work():
            with pytest.raises(maxdnn.LaunchError, match="host arrays cannot be used while"):
                maxdnn.conv_fprop(*host, layout="NCHW", device=find.gpu(0), stream=side.cuda_stream)
            return mt.conv2d(x, w, padding=1)
        graph, out = captured(work, side)
        graph.replay()
        close(out, x, w)


@pytest.mark.parametrize("frozen", [False, True])
def test_networks_at_several_batch_sizes_in_one_process(frozen):
    side, held, seen = torch.cuda.Stream(), [], 0
    with torch.inference_mode():
        for name in NETWORKS:
            model = mt.replace(Network(name).to(CUDA).eval(), lambda replaced: None, frozen=frozen)
            for batch in (1, 2):
                x = torch.rand(batch, *model.image, device=CUDA)
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    for _ in range(3):
                        wanted = model(x)
                torch.cuda.synchronize()
                graph, out = captured(lambda model=model, x=x: model(x), side)
                held.append((graph, out, wanted, x, model))
                seen += 1
        for graph, out, wanted, *_ in held:
            out.zero_()
            graph.replay()
            assert torch.equal(out, wanted)
    print(f"\n{seen} captures of {', '.join(NETWORKS)}, frozen={frozen}: {len(kept()._plans)} plans")
