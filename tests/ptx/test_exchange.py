"""Where a translation brings the lanes of a warp together: wherever they may exchange something through memory, and
not in the loops of this library's kernels, whose speed depends on it."""

import numpy as np
import pytest

from maxdnn import cubin
from maxdnn.algorithms.fft.maxwell import TransformKernel as FftKernel
from maxdnn.algorithms.registry import kernels
from maxdnn.algorithms.winograd.maxwell import TransformKernel
from maxdnn.build.cubins import cubin as built
from maxdnn.ptx.paths import Paths
from maxdnn.ptx.warp_sync import Exchange, whole_block
from tests import oracles
from tests.sass.machine_code import loops, main_loop

# What one lane stores, another one of its warp loads. KIND says through which memory, LOOP whether in a loop with BAR.
STEP = r"""
extern "C" __global__ void %(bounds)s step(volatile int *g, int n) {
    __shared__ volatile int s[1024];
    int t = threadIdx.x, sum = 0;
    s[t] = g[t];
    __syncthreads();
    #pragma unroll 1
    for (int i = 0, b = 0; i < n; i++, b ^= 64) {
        %(body)s
        __syncthreads();
    }
    g[t] = sum;
}
"""
WARP_REDUCTION = "s[t] += i; sum += s[t ^ 1];"
OWN_WORD = "s[t] += i; sum += s[t];"
TWO_BUFFERS = "s[b | t] = i; sum += s[b ^ 64 | t ^ 1];"
COUNTED_BUFFERS = "s[(i & 1) * 64 + t] = i; sum += s[(~i & 1) * 64 + (t ^ 1)];"
ONE_HALF = "s[512 + t] = i; sum += s[t ^ 1];"
OVERTAKING = "sum += s[t ^ 1]; s[t] = i;"
THROUGH_GLOBAL = "g[t] = i; sum += g[t ^ 1];"


def analysed(kernel):
    """(paths, exchange, every instruction before which the warp meets)."""
    paths = Paths(kernel, kernel.instructions)
    blocks = paths.every((8, ()))
    exchange = Exchange(kernel, paths, blocks, (8, ()))
    return paths, exchange, {paths.code[a].address for p in blocks for a in exchange.syncs(p)}


def syncs_in_loop(body, bounds="__launch_bounds__(64)"):
    kernel = cubin.read(oracles.compile_cuda(STEP % {"body": body, "bounds": bounds})).kernel()
    inside = {i.address for loop in loops(kernel) for i in loop}
    assert inside, "the compiler kept the loop"
    return len(analysed(kernel)[2] & inside)


@pytest.mark.parametrize("body", [WARP_REDUCTION, OVERTAKING, THROUGH_GLOBAL], ids=["sum", "overtaking", "global"])
def test_lanes_that_exchange_something_in_a_loop_with_a_barrier_meet_there(body):
    assert syncs_in_loop(body)


@pytest.mark.parametrize("body", [TWO_BUFFERS, ONE_HALF], ids=["buffers", "halves"])
def test_lanes_that_exchange_something_across_the_barrier_only_do_not_meet(body):
    assert syncs_in_loop(body) == 0


def test_what_is_not_proved_counts_as_an_exchange():
    """With blocks of any size the buffers of 64 words overlap; a lane's own word may be another one's; and the bits of
    a counter are not followed for ever."""
    assert syncs_in_loop(TWO_BUFFERS, bounds="")
    assert syncs_in_loop(OWN_WORD)
    assert syncs_in_loop(COUNTED_BUFFERS)


@pytest.mark.sampled(8, 10)
@pytest.mark.parametrize("spec", [x for x in kernels().values() if x.arch is None], ids=lambda spec: spec.name)
def test_the_main_loops_of_the_convolutions_need_no_warp_synchronization(spec):
    kernel = cubin.read(built(spec.source.removesuffix(".sass"), "sm_52")).kernels[spec.name]
    _, exchange, syncs = analysed(kernel)
    opcodes = {i.opcode for i in kernel.instructions}
    if {"FFMA", "STS", "BAR"} <= opcodes and not isinstance(spec, (TransformKernel, FftKernel)):  # without a main loop
        loop = {i.address for i in main_loop(kernel)}
        if spec.name.startswith(("swinograd_fused", "sproduct")):  # not proved, which costs the virtual GPU time alone
            assert syncs & loop
        else:
            assert not syncs & loop
        assert syncs, "the epilogue hands results on within the warp"
    assert exchange.proved or "STS" not in opcodes


# -- the proof against what really happens ------------------------------------------------------------------------

SHARED = r"""
extern "C" __global__ void probe(int *out, const int *in, int n) {
    __shared__ int s[2048];
    int t = threadIdx.x, sum = 0;
    for (int i = t; i < 2048; i += blockDim.x) s[i] = in[i];
    __syncthreads();
    for (int i = 0; i < n; i++) {
        %s
    }
    out[t] = sum;
}
"""
QUIET = (4,)  # seeds whose program exchanges nothing within a warp
STATEMENTS = ("s[(i & 1) * 128 + t] = sum + i;", "s[t ^ {a}] = sum;", "sum += s[t * {b} & 1023];", "sum += s[t ^ {a}];",
              "if (t & {b}) s[1024 + (t >> 1)] = sum;", "sum += s[(t + {a} * i) & 2047];", "__syncthreads();",
              "__syncthreads();", "if (i & 1) sum += s[{a} + t]; else s[{b}] = t;", "sum += s[1024 + (t & 31) * {b}];")


def observed(kernel, gpu, launch):
    """Pairs of instructions by which two lanes of a warp touch the same byte between two barriers, one of them not
    only reading. Each warp's accesses come from a run on the virtual GPU."""
    code, found = kernel.instructions, set()

    def look(trace):
        rows, touched = iter(trace.addresses.tolist()), {}
        for first, count in trace.runs.tolist():
            for inst in code[first:first + count]:
                if whole_block(inst):
                    touched = {}
                if inst.opcode not in ("LDS", "STS", "LDG", "STG", "LDC", "TLD", "LDL", "STL"):
                    continue
                row = next(rows)
                if inst.opcode in ("LDS", "STS"):
                    words = {"": 1, "64": 2, "128": 4}[inst.mods["size"].removeprefix("U.").replace("32", "")]
                    for lane, address in enumerate(row):
                        for word in range(words if address != 2**64 - 1 else 0):
                            others = touched.setdefault(address // 4 + word, set())
                            found.update(frozenset((inst.address, a)) for a, other, op in others
                                         if other != lane and "STS" in (op, inst.opcode))
                            others.add((inst.address, lane, inst.opcode))

    launch(look)
    return found


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(8))
def test_no_exchange_that_happens_is_missed(seed):
    from maxdnn.emulator import VirtualGpu

    rng = np.random.default_rng(seed)
    lines = [str(rng.choice(STATEMENTS)).format(a=rng.integers(0, 64), b=rng.integers(1, 9)) for _ in range(6)]
    source = SHARED % "\n".join(lines)
    if seed % 2:
        source = source.replace("void probe", "void __launch_bounds__(64) probe")
    data = oracles.compile_cuda(source)
    gpu = VirtualGpu()
    buffers = gpu.alloc(8192), gpu.alloc(8192)
    function = gpu.load(data).function("probe")
    kernel = cubin.read(data).kernel()
    seen = observed(kernel, gpu, lambda look: function.trace((1, 1, 1), (64, 1, 1), [*buffers, 5], blocks=[(0, 0, 0)],
                                                             on_warp=look))
    paths, exchange, _ = analysed(kernel)
    assert seen or seed in QUIET
    missed = [pair for pair in seen if not exchange.clash(*[paths.code[a] for a in (min(pair), max(pair))])]
    assert not missed, f"{source}\n{[[hex(a) for a in pair] for pair in missed]}"
