"""Many threads on one virtual GPU, and forks while others compute."""

import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from maxdnn.emulator.memory import GUARD, GlobalMemory
from maxdnn.runtime.devices.protocol import Texture
from maxdnn.runtime.forks import FreshLock
from tests import oracles
from tests.emulator.test_gpu import fetch, on_device

SOURCE = r"""
__constant__ int shift;
__device__ int seen;
extern "C" __global__ void add(int n, const int* x, int* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + shift;
    atomicAdd(&seen, 1);
}
extern "C" __global__ void copy(cudaTextureObject_t t, float* y) { y[threadIdx.x] = tex1Dfetch<float>(t, threadIdx.x); }
"""


@pytest.fixture()
def impatient():
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def together(count, work):
    """Run work(k) on `count` threads; raises what the first of them raised."""
    errors = []

    def run(k):
        try:
            work(k)
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=run, args=(k,)) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "a thread hangs"
    if errors:
        raise errors[0]


def test_no_address_is_given_out_twice(impatient):
    memory, found = GlobalMemory(), [[] for _ in range(8)]

    def work(k):
        for i in range(400):
            buffer = memory.alloc(64 + i)
            found[k].append(buffer.address)
            assert memory.host(buffer.address, 64 + i) is buffer.data or memory.host(buffer.address, 64 + i) is not None
            if i % 3 == 0:
                buffer.free()
                assert memory.host(found[k][-1], 1) is None
            if i % 7 == 0:
                table, _ = memory.table()
                assert (np.diff(table[:, 0].astype(np.int64)) >= GUARD).all()
    together(8, work)
    every = [address for part in found for address in part]
    assert len(set(every)) == len(every) == 3200
    assert not len(memory.table()[0]), "buffers that died with their thread are still there"


def test_buffers_that_die_inside_an_operation_wait_for_its_end():
    memory = GlobalMemory()
    buffer = memory.alloc(64)
    with memory._table():
        buffer.free()
        assert buffer.address in memory._live
    assert buffer.address not in memory._live
    assert "freed allocation" in memory.describe(buffer.address)


def test_threads_share_a_device_a_module_and_its_constants(impatient):
    gpu = VirtualGpu(workers=2)
    module = gpu.load(oracles.compile_cuda(SOURCE))
    module.set_constant("shift", np.int32(7))

    def work(k):
        x = np.arange(100, dtype=np.int32) + k
        for _ in range(6):
            bx, by = on_device(gpu, x, np.zeros(100, np.int32))
            module.function("add").launch((4, 1, 1), (32, 1, 1), [100, bx, by])
            np.testing.assert_array_equal(fetch(gpu, by, x), x + 7)
            bx.free()
    together(6, work)
    address, _ = module.get_global("seen")
    assert gpu.memory.host(address, 4).view(np.int32)[0] == 6 * 6 * 128


def test_texture_objects_made_by_several_threads_are_their_own(impatient):
    gpu = VirtualGpu(workers=1)
    function = gpu.load(oracles.compile_cuda(SOURCE)).function("copy")

    def work(k):
        for i in range(5):
            values = np.full(32, 100 * k + i, np.float32)
            source, out = on_device(gpu, values, np.zeros(32, np.float32))
            handle = gpu.texture_object(Texture(source.address, source.nbytes, 1))
            function.launch((1, 1, 1), (32, 1, 1), [np.uint64(handle), out])
            np.testing.assert_array_equal(fetch(gpu, out, values), values)
    together(6, work)


def test_an_objects_memory_may_be_freed_while_another_thread_launches(monkeypatch):
    gpu = VirtualGpu(workers=1)
    source, out, values = *on_device(gpu, np.ones(32, np.float32), np.zeros(32, np.float32)), np.ones(32, np.float32)
    theirs = gpu.alloc(128)
    handle = gpu.texture_object(Texture(source.address, source.nbytes, 1))
    gpu.texture_object(Texture(theirs.address, theirs.nbytes, 1))
    host = gpu.memory.host

    def free_after_a_look(address, nbytes):
        found = host(address, nbytes)
        if address == theirs.address:
            theirs.free()
        return found
    monkeypatch.setattr(gpu.memory, "host", free_after_a_look)
    gpu.load(oracles.compile_cuda(SOURCE)).function("copy").launch((1, 1, 1), (32, 1, 1), [np.uint64(handle), out])
    np.testing.assert_array_equal(fetch(gpu, out, values), values)


def test_memory_that_another_thread_frees_lives_until_the_launch_is_over():
    gpu = VirtualGpu(workers=1)
    x, y = on_device(gpu, np.zeros(32, np.int32), np.zeros(32, np.int32))
    function = gpu.load(oracles.compile_cuda(SOURCE)).function("add")
    plan = function.plan((1, 1, 1), (32, 1, 1), [32, x, y])
    x.free()
    assert any(array is x.data for array in plan.memory)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_fresh_lock_is_free_in_a_child():
    lock, ready, done = FreshLock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            ready.set()
            done.wait()
    thread = threading.Thread(target=hold)
    thread.start()
    ready.wait()
    child = os.fork()
    if not child:
        with lock:
            os._exit(0)
    done.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0


FORKS = textwrap.dedent("""
    import multiprocessing, os, signal, sys, threading, time
    import numpy as np
    import maxdnn
    from maxdnn.emulator import VirtualGpu
    data, over = open(sys.argv[1], "rb").read(), False
    images, filters = np.ones((3, 6, 6, 8), np.float32), np.ones((3, 2, 2, 5), np.float32)

    def compile_and_run():  # a module of its own: nothing of it is compiled yet, and nothing is kept on disk
        gpu = VirtualGpu(workers=2)
        y = gpu.alloc(400)
        gpu.load(data).function("add").launch((4, 1, 1), (32, 1, 1), [100, y, y])

    def convolve():
        assert (maxdnn.conv_fprop(images, filters) == 12).all()

    def forever(work):
        while not over:
            work()

    def child():
        compile_and_run()
        convolve()

    threads = [threading.Thread(target=forever, args=(work,), daemon=True) for work in (compile_and_run, convolve)]
    [t.start() for t in threads]
    for number in range(int(sys.argv[2])):
        time.sleep(0.37 * number % 1)  # the first while modules are imported
        pid = os.fork()
        if not pid:
            signal.alarm(100)  # ends a child that hangs
            child()
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        assert status == 0, f"child {number}: {status}"
    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(100)
    assert process.exitcode == 0, process.exitcode
    over = True
    [t.join() for t in threads]
""")


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_computes_that_was_forked_while_others_computed(tmp_path):
    (tmp_path / "add.cubin").write_bytes(oracles.compile_cuda(SOURCE))
    env = {**os.environ, "MAXDNN_CACHE_BYTES": "0"}
    subprocess.run([sys.executable, "-c", FORKS, str(tmp_path / "add.cubin"), "4"], check=True, env=env, timeout=500)


IMPORTS = textwrap.dedent("""
    import sys
    import numpy as np
    import maxdnn
    from maxdnn.runtime.forks import compiling

    class Watch:
        def find_spec(self, name, path=None, target=None):
            assert compiling.acquire.__self__._is_owned(), name

    images, filters = np.ones((3, 6, 6, 8), np.float32), np.ones((3, 2, 2, 5), np.float32)
    sys.meta_path.insert(0, Watch())
    outputs = maxdnn.conv_fprop(images, filters)
    maxdnn.conv_bprop_data(outputs, filters, (6, 6))
    maxdnn.conv_bprop_filters(images, outputs, (2, 2))
    maxdnn.conv_fprop(images, maxdnn.prepare_filters(filters, maxdnn.plan(maxdnn.ConvShape(8, 3, 6, 6, 5, 2, 2))))
    maxdnn.matmul(images[0, 0], images[0, 1].T.copy())
""")


def test_what_a_first_call_imports_a_fork_waits_for():
    """A child that is forked in the middle of another thread's import waits for the rest of it for ever."""
    subprocess.run([sys.executable, "-c", IMPORTS], check=True, timeout=300)
