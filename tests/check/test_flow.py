"""The control-flow graph against the targets the vendor's compiler notes for SYNC, BRK, CONT, RET and BRX."""

import collections

import pytest

from maxdnn import cubin
from maxdnn.check.flow import Graph, index_of, indirect_targets
from maxdnn.cubin import CubinKernel
from tests import oracles
from tests.check.programs import assembled

SOURCES = {
    "switch": r"""
extern "C" __global__ void k(int* p, int n) {
    int x = p[threadIdx.x], f = n;
    for (int i = 0; i < n; i++) {
        switch (x) { case 0: f += 1; break; case 1: f *= 3; break; case 2: f -= x; break; case 3: f ^= 7; break;
                     case 4: f = f / x; break; case 5: f <<= 1; break; case 6: f |= n; break; default: f = -f; }
        if (f > 1000) break;
        if (x & i) continue;
        x = p[x] + i;
    }
    p[threadIdx.x] = f;
}
""",
    "calls": r"""
__device__ __noinline__ float one(float a, int b) { for (int i = 0; i < b; i++) a = a * a + i; return a; }
__device__ __noinline__ float two(float a, int b) { return b > 3 ? one(a, b) + one(a + 1, b - 1) : a; }
extern "C" __global__ void k(float* x, int* y) {
    int i = threadIdx.x, b = y[i];
    x[i] = b & 1 ? one(x[i], b) : two(x[i], b) + two(x[i] / b, b + 2);
}
""",
    "loops": r"""
extern "C" __global__ void k(int* x, int n, int m) {
    int s = 0;
    for (int i = 0; i < n; i++) {
        int a = x[i];
        if (a < 0) continue;
        for (int j = 0; j < m; j++) {
            if (x[j] == a) break;
            if (x[j] > a) { s += j; continue; }
            for (int k = j; k < a; k++) { if (k * k > s) goto out; s += x[k]; }
        }
        if (s > 1000) return;
    }
out:
    x[threadIdx.x] = s;
}
""",
}
INDIRECT = ("SYNC", "BRK", "CONT", "RET", "BRX")


def found_targets(kernel: CubinKernel, graph: Graph) -> dict[int, set[int]]:
    found: dict[int, set[int]] = collections.defaultdict(set)
    for node in graph.nodes:
        if kernel.instructions[node.last].opcode in INDIRECT:
            found[node.last] |= {successor.first for successor in node.successors}
    return found


@pytest.mark.parametrize("name", ["switch", "calls"])
def test_targets_are_those_the_compiler_notes(name: str) -> None:
    kernel = cubin.read(oracles.compile_cuda(SOURCES[name])).kernel()
    graph = Graph(kernel)
    found, noted = found_targets(kernel, graph), indirect_targets(kernel)
    assert noted and graph.unbalanced == []
    for i in graph.reachable() & set(noted):
        assert found[i] - ({i + 1} - set(noted[i])) == set(noted[i]), kernel.instructions[i].text()


def test_code_behind_the_last_exit_is_not_reachable() -> None:
    kernel = cubin.read(oracles.compile_cuda(SOURCES["loops"])).kernel()
    last = max(i for i, inst in enumerate(kernel.instructions) if inst.opcode == "EXIT")
    assert max(Graph(kernel).reachable()) == last


def test_the_address_of_a_control_word_means_the_instruction_behind_it() -> None:
    assert [index_of(a) for a in (0x00, 0x08, 0x18, 0x20, 0x28)] == [0, 0, 2, 3, 3]


def test_a_sync_without_ssy_ends_the_path_and_is_noted() -> None:
    graph = Graph(assembled("--:-:-:-:5 SYNC;\n--:-:-:-:5 EXIT;\n"))
    assert graph.unbalanced == [0]
    assert graph.reachable() == {0}
