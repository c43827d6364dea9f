"""Every fault the virtual GPU finds is planted once; the message must name place, instruction and address."""

import dataclasses
import os
import re
import signal
import threading

import numpy as np
import pytest

from maxdnn.build.assemble import assemble
from maxdnn.cubin import read
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import EmulationFault, LaunchError
from maxdnn.runtime.devices.protocol import Texture
from maxdnn.runtime.launch import check_geometry
from tests import oracles
from tests.emulator.test_gpu import on_device
from tests.emulator.test_undefined import HEADER

CUDA = r"""
extern "C" __global__ void far(int* p, int at) { p[threadIdx.x == 37 ? at : 0] = 1; }
extern "C" __global__ void odd(char* p, int at) { *(int*)(p + (threadIdx.x == 3 ? at : 0)) = 1; }
extern "C" __global__ void shared_far(int* p, int at) { __shared__ int s[16]; s[threadIdx.x + at] = 1;
    __syncthreads(); p[threadIdx.x] = s[threadIdx.x ^ 1]; }
extern "C" __global__ void local_far(int* p, int at) { int box[4];
    for (int k = 0; k < 4; k++) box[(k + at) & (at | 3)] = k;
    p[threadIdx.x] = box[p[0] & 3]; }
extern "C" __global__ void shared_odd(int* p, int at) { __shared__ int s[80]; s[threadIdx.x] = at; __syncthreads();
    p[threadIdx.x] = *(int*)((char*)s + 4 * threadIdx.x + (threadIdx.x == 5 ? at : 0)); }
extern "C" __global__ void local_odd(int* p, int at) { int box[8];
    for (int k = 0; k < 8; k++) box[(k + at) & 7] = p[k];
    p[threadIdx.x] = *(int*)((char*)box + (p[0] & 3) * 4 + (threadIdx.x == 6 ? at : 0)); }
__constant__ int table[8];
extern "C" __global__ void constant_odd(int* p, int at) {
    p[threadIdx.x] = *(const int*)((const char*)table + (threadIdx.x == 7 ? at : 0)); }
extern "C" __global__ void constant_far(int* p, int at) { p[threadIdx.x] = table[threadIdx.x == 9 ? at : 0]; }
extern "C" __global__ void spin(int* p, int at) { while (*(volatile int*)p == 0) at++; p[1] = at; }
extern "C" __global__ void fetch(cudaTextureObject_t t, float* p)
{ p[threadIdx.x] = tex1Dfetch<float>(t, threadIdx.x); }
"""


@pytest.fixture(scope="module")
def cubin():
    return oracles.compile_cuda(CUDA)


def fault(cubin, name, argument, *, grid=(1, 1, 1), block=(64, 1, 1), words=64, **options):
    gpu = VirtualGpu(**options)
    (out,) = on_device(gpu, np.zeros(words, np.int32))
    with pytest.raises(EmulationFault) as found:
        gpu.load(cubin).function(name).launch(grid, block, [out, np.int32(argument)])
    return str(found.value)


def sass(tmp_path, body, name="probe", block=(64, 1, 1), **options):
    (tmp_path / "probe.sass").write_text(HEADER + body)
    assemble(tmp_path / "probe.sass", tmp_path / "probe.cubin")
    gpu = VirtualGpu(**options)
    (out,) = on_device(gpu, np.zeros(64, np.int32))
    with pytest.raises(EmulationFault) as found:
        gpu.load((tmp_path / "probe.cubin").read_bytes()).function(name).launch((1, 1, 1), block, [out])
    return str(found.value)


@pytest.mark.parametrize("at, where", [(64, "0 bytes past the end"), (1000, "3744 bytes past the end"),
                                       (-1, "4 bytes before")])
def test_global_access_out_of_bounds(cubin, at, where):
    text = fault(cubin, "far", at)
    assert text.startswith("far: block (0, 0, 0), warp 1, lane 5: access out of bounds at 0x")
    assert "STG.E [R" in text and where in text and "the allocation of 256 bytes at 0x" in text


def test_a_freed_allocation_is_recognised(cubin):
    gpu = VirtualGpu()
    keep, gone = on_device(gpu, np.zeros(8, np.int32), np.zeros(64, np.int32))
    address = gone.address
    gone.free()
    with pytest.raises(EmulationFault, match="inside a freed allocation of 256 bytes"):
        gpu.load(cubin).function("far").launch((1, 1, 1), (64, 1, 1), [np.uint64(address), np.int32(0)])
    assert keep.nbytes == 32


def test_misaligned_global_access(cubin):
    text = fault(cubin, "odd", 6)
    assert re.search(r"odd: block \(0, 0, 0\), warp 0, lane 3: misaligned access at 0x\w+: STG\.E .*; global address",
                     text)


@pytest.mark.parametrize("kernel, lane, load, space", [
    ("shared_odd", 5, "LDS", "shared address"), ("local_odd", 6, "LDL", "local address"),
    ("constant_odd", 7, "LDC", "constant offset")])
def test_misaligned_access_to_near_memory(cubin, kernel, lane, load, space):
    text = fault(cubin, kernel, 2)
    assert text.startswith(f"{kernel}: block (0, 0, 0), warp 0, lane {lane}: misaligned access at 0x")
    assert load in text and space in text


def test_shared_access_out_of_bounds(cubin):
    text = fault(cubin, "shared_far", 0)
    assert "warp 0, lane 16: access out of bounds" in text
    assert "STS" in text and "shared address 0x40, 4 bytes: the block has 64 bytes" in text


def test_local_access_out_of_bounds(cubin):
    text = fault(cubin, "local_far", 1 << 20)
    assert "access out of bounds" in text and "STL" in text and "local address 0x" in text
    assert "a thread has 16 bytes" in text


def test_constant_access_out_of_bounds(cubin):
    text = fault(cubin, "constant_far", 8)
    assert "warp 0, lane 9: access out of bounds" in text and "LDC" in text
    assert "constant offset 0x20" in text and "3: 32" in text


def test_an_endless_loop_is_stopped_by_the_budget(cubin):
    text = fault(cubin, "spin", 0, instruction_budget=3_000_000)
    assert "spin: block (0, 0, 0), warp 0: more than 3000000 instructions, taken for an endless loop near 0x" in text


def test_an_unbound_texture(cubin):
    gpu = VirtualGpu()
    (out,) = on_device(gpu, np.zeros(64, np.float32))
    handle = gpu.texture_object(Texture(out.address, out.nbytes, 1))
    function = gpu.load(cubin).function("fetch")
    function.launch((1, 1, 1), (64, 1, 1), [np.uint64(handle), out])
    with pytest.raises(EmulationFault, match=r"TLD.*texture handle 0x5 is bound to nothing"):
        function.launch((1, 1, 1), (64, 1, 1), [np.uint64(5), out])


def test_warps_at_different_barriers_are_a_deadlock(tmp_path):
    text = sass(tmp_path, """
--:-:1:-:1      S2R R0, SR_TID.X;
01:-:-:Y:d      ISETP.LT.AND P0, PT, R0, 32, PT;
--:-:-:Y:f  @P0 BAR.SYNC 0x1;
--:-:-:Y:f  @!P0 BAR.SYNC 0x2;
--:-:-:-:f      EXIT;
""")
    assert "probe: block (0, 0, 0): deadlock: warp 0 waits at barrier 1 before 0x" in text
    assert "warp 1 waits at barrier 2 before 0x" in text


def test_a_barrier_that_expects_a_warp_which_has_left_is_a_deadlock(tmp_path):
    text = sass(tmp_path, """
--:-:1:-:1      S2R R0, SR_TID.X;
01:-:-:Y:d      ISETP.LT.AND P0, PT, R0, 32, PT;
--:-:-:-:f  @P0 EXIT;
--:-:-:Y:f      BAR.SYNC 0x0, 0x40;
--:-:-:-:f      EXIT;
""")
    assert "deadlock: warp 0 has exited; warp 1 waits at barrier 0 for 64 threads" in text


def test_a_jump_outside_the_kernel(tmp_path):
    text = sass(tmp_path, """
--:-:-:Y:6      MOV R0, 0x4000;
--:-:-:-:f      JMX R0;
--:-:-:-:f      EXIT;
""")
    assert "jump to an address outside the kernel at 0x4000" in text


def test_an_undecodable_word_faults_only_when_it_is_reached(tmp_path):
    (tmp_path / "p.sass").write_text(HEADER + """
--:-:1:-:1      S2R R0, SR_TID.X;
01:-:-:Y:d      ISETP.EQ.AND P0, PT, R0, 99, PT;
--:-:-:-:f  @!P0 EXIT;
--:-:-:Y:6      MOV R0, RZ;
--:-:-:-:f      EXIT;
""")
    assemble(tmp_path / "p.sass", tmp_path / "p.cubin")
    data = (tmp_path / "p.cubin").read_bytes()
    words = read(data).kernel().words()
    broken = data.replace(words[3][1].to_bytes(8, "little"), (0).to_bytes(8, "little"))
    gpu = VirtualGpu()
    (out,) = on_device(gpu, np.zeros(64, np.int32))
    function = gpu.load(broken).function("probe")
    function.launch((1, 1, 1), (64, 1, 1), [out])
    with pytest.raises(EmulationFault, match=r"lane 3: word that is no instruction at 0x0028: word 0x0"):
        function.launch((1, 1, 1), (128, 1, 1), [out])


def test_sync_without_ssy(tmp_path):
    assert "without a matching SSY" in sass(tmp_path, "--:-:-:-:f      SYNC;\n--:-:-:-:f      EXIT;\n")


def test_launches_that_cannot_be_are_refused_before_they_run(cubin):
    gpu = VirtualGpu()
    (out,) = on_device(gpu, np.zeros(64, np.int32))
    function = gpu.load(cubin).function("far")
    for grid, block, args, options, words in [
        ((0, 1, 1), (64, 1, 1), [out, 1], {}, "grid must be three numbers"),
        ((1, 1, 1), (1025, 1, 1), [out, 1], {}, "block must be three numbers"),
        ((1, 1, 1), (64, 1, 1), [out], {}, "args must hold 2 values"),
        ((1, 1, 1), (64, 1, 1), [out, 1], {"shared_bytes": 50000}, "shared_bytes must be 0 to 49152"),
        ((1, 1, 1), (64, 1, 1), [out, 1], {"textures": {"t": Texture(out.address, 256)}}, "unknown ['t']"),
    ]:
        with pytest.raises(LaunchError, match=re.escape(words)):
            function.launch(grid, block, args, **options)


def test_more_local_memory_than_a_thread_can_have_is_refused(cubin):
    kernel = dataclasses.replace(read(cubin).kernel("far"), local_bytes=1 << 24)
    with pytest.raises(LaunchError, match=r"at most 524288 bytes of local memory .*says 16777216"):
        check_geometry(kernel, (1, 1, 1), (32, 1, 1), 0)


@pytest.fixture()
def interrupts():
    """SIGINT raises KeyboardInterrupt even if whoever started the tests has it ignored, as shells do for jobs."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_ends_a_launch_that_would_run_for_long(cubin, interrupts):
    gpu = VirtualGpu(instruction_budget=1 << 60)
    (out,) = on_device(gpu, np.zeros(64, np.int32))
    function = gpu.load(cubin).function("spin")
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        function.launch((1, 1, 1), (64, 1, 1), [out, np.int32(0)])
    timer.cancel()


def test_the_first_fault_stops_all_blocks(cubin):
    gpu = VirtualGpu(instruction_budget=4_000_000, workers=2)
    (out,) = on_device(gpu, np.zeros(64, np.int32))
    with pytest.raises(EmulationFault, match="taken for an endless loop"):
        gpu.load(cubin).function("spin").launch((1 << 20, 1, 1), (64, 1, 1), [out, np.int32(0)])
