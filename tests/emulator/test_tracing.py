"""What a traced launch reports: path and addresses, in the order they happened."""

import numpy as np

from maxdnn.cubin import read
from maxdnn.emulator import VirtualGpu
from maxdnn.emulator.tracing import merged
from maxdnn.runtime.devices.protocol import Texture
from tests import oracles
from tests.emulator.test_gpu import SAXPY, SGEMM, on_device

NOTHING = np.uint64(2**64 - 1)

LOOP = r"""
extern "C" __global__ void loop(const int* limits, int* out) {
    __shared__ int box[64];
    int t = threadIdx.x, sum = 0;
    #pragma unroll 1
    for (int i = 0; i < limits[t]; i++) { box[t] = i; sum += box[t ^ 1]; }
    out[t] = sum;
}
"""


def traces(gpu, cubin, name, grid, block, args, blocks, **options):
    found = []
    gpu.load(cubin).function(name).trace(grid, block, args, blocks=blocks, on_warp=found.append, **options)
    return found


def test_saxpy_reports_every_warp_of_the_blocks_asked_for_and_their_addresses():
    gpu, n = VirtualGpu(), 1000
    x = np.ones(n, np.float32)
    bx, by = on_device(gpu, x, x)
    cubin = oracles.compile_cuda(SAXPY)
    found = traces(gpu, cubin, "saxpy", (8, 1, 1), (128, 1, 1), [n, np.float32(2), bx, by], [(7, 0, 0), (2, 0, 0)])
    assert [(t.block, t.warp) for t in found] == [((b, 0, 0), w) for b in (7, 2) for w in range(4)]
    second = found[5]
    first = (2 * 128 + 32) * 4 + 4 * np.arange(32, dtype=np.uint64)
    np.testing.assert_array_equal(second.addresses, [bx.address + first, by.address + first, by.address + first])
    past = found[3]  # threads 992..1023: the last 24 lanes have exited
    np.testing.assert_array_equal((past.addresses == NOTHING).sum(axis=1), [24, 24, 24])


def test_the_path_covers_exactly_the_executed_instructions():
    gpu, n = VirtualGpu(), 128
    x = np.ones(n, np.float32)
    bx, by = on_device(gpu, x, x)
    cubin = oracles.compile_cuda(SAXPY)
    (one, *_) = traces(gpu, cubin, "saxpy", (1, 1, 1), (128, 1, 1), [n, np.float32(2), bx, by], [(0, 0, 0)])
    texts = [i.text() for i in read(cubin).kernel().instructions]
    executed = [texts[k] for first, count in one.runs for k in range(first, first + count)]
    assert executed[0].startswith("MOV R1") and executed[-1] == "EXIT"
    assert sum(t.startswith(("LDG", "STG")) for t in executed) == len(one.addresses) == 3


def test_loops_and_divergence_are_followed_lane_by_lane():
    gpu = VirtualGpu()
    limits = np.arange(64, dtype=np.int32) % 7
    bl, bo = on_device(gpu, limits, np.zeros(64, np.int32))
    found = traces(gpu, oracles.compile_cuda(LOOP), "loop", (1, 1, 1), (64, 1, 1), [bl, bo], [(0, 0, 0)])
    for t in found:
        shared = t.addresses[(t.addresses < 256).any(axis=1)]
        stores_and_loads = (shared != NOTHING).sum()
        assert stores_and_loads == 2 * limits[32 * t.warp:32 * t.warp + 32].sum()


def test_long_traces_are_collected_in_pieces_without_loss():
    gpu, n = VirtualGpu(), 8192
    a = np.zeros((n, 64), np.float32)
    ba, bb, bc = on_device(gpu, a, a, np.zeros((64, 64), np.float32))
    source = SGEMM.replace("* n +", "* 64 +")
    found = traces(gpu, oracles.compile_cuda(source), "sgemm", (1, 1, 1), (256, 1, 1), [n, ba, bb, bc], [(0, 0, 0)])
    assert len(found) == 8
    for t in found:
        loads = np.isin(t.addresses[:, 0] >> np.uint64(32), [2]).sum()
        assert loads == n // 8 * 4 + 4  # two tiles of two rounds per step, four stores at the end
        assert t.runs[:, 1].sum() > 20000


def test_texture_rows_hold_texel_addresses_and_mark_those_out_of_range():
    gpu = VirtualGpu()
    texels = np.arange(64, dtype=np.float32)
    bt, bo = on_device(gpu, texels, np.zeros(128, np.float32))
    source = r"""
    extern "C" __global__ void fetch(cudaTextureObject_t t, float4* out) {
        out[threadIdx.x] = tex1Dfetch<float4>(t, (int)threadIdx.x);
    }"""
    handle = gpu.texture_object(Texture(bt.address, bt.nbytes))
    (one,) = traces(gpu, oracles.compile_cuda(source), "fetch", (1, 1, 1), (32, 1, 1), [np.uint64(handle), bo],
                    [(0, 0, 0)])
    want = np.where(np.arange(32) < 16, bt.address + 16 * np.arange(32), -1).astype(np.int64).view(np.uint64)
    np.testing.assert_array_equal(one.addresses[0], want)


def test_runs_that_continue_one_another_are_joined():
    runs = np.array([[0, 5], [5, 3], [2, 6], [2, 6], [8, 1]], np.uint32)
    np.testing.assert_array_equal(merged(runs), [[0, 8], [2, 6], [2, 7]])
