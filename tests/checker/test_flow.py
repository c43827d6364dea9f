"""The control-flow graph against the targets the vendor's compiler notes for SYNC, BRK, CONT, RET and BRX."""

import collections
import dataclasses

import pytest

from maxdnn import cubin
from maxdnn.cubin import CubinKernel
from maxdnn.errors import TranslationError
from maxdnn.isa import TABLE
from maxdnn.isa.program import Graph, indirect_targets, noted_targets
from maxdnn.ptx.translate import translate
from tests import oracles
from tests.checker.programs import assembled
from tests.corpus import compiler

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
    found, noted = found_targets(kernel, graph), noted_targets(kernel)
    assert noted and graph.unfollowed == []
    for i in graph.reachable() & set(noted):
        assert found[i] - ({i + 1} - set(noted[i])) == set(noted[i]), kernel.instructions[i].text()


# The compiler notes no targets for a call through a pointer.
GIVEN = r"""
typedef int (*F)(int);
extern "C" __global__ void k(int* p, int n, F call) {
    int x = p[threadIdx.x];
    switch (n) { case 0: x += 1; break; case 1: x *= 3; break; case 2: x -= n * x; break; case 3: x ^= 7; break;
                 case 4: x = x / n; break; case 5: x <<= 1; break; case 6: x |= n; break; default: x = -x; }
    p[threadIdx.x] = call(x);
}
"""


def test_a_call_through_a_pointer_goes_to_the_functions_in_the_table_and_perhaps_elsewhere() -> None:
    kernel = cubin.read(compiler.compile_source("control.cu")).kernel("control_pointers")
    graph, noted = Graph(kernel), noted_targets(kernel)
    assert not any(noted.values()) and [i for i, why in graph.unfollowed if "targets" in why] == list(noted)
    for functions in indirect_targets(kernel, noted).values():
        assert len(functions) == 3 and set(functions) <= graph.reachable()


def test_a_call_through_a_pointer_does_not_go_to_the_cases_of_a_switch() -> None:
    whole = cubin.read(oracles.compile_cuda(GIVEN))
    kernel = whole.kernel()
    noted = noted_targets(kernel)
    call, = [i for i, targets in noted.items() if not targets]
    assert any(noted.values()) and indirect_targets(kernel, noted) == noted
    assert [i for i, why in Graph(kernel).unfollowed if "targets" in why] == [call]
    with pytest.raises(TranslationError, match=r"BRX .*: the cubin does not say where this may go"):
        translate(whole, "sm_90")


def test_code_behind_the_last_exit_is_not_reachable() -> None:
    kernel = cubin.read(oracles.compile_cuda(SOURCES["loops"])).kernel()
    last = max(i for i, inst in enumerate(kernel.instructions) if inst.opcode == "EXIT")
    assert max(Graph(kernel).reachable()) == last


def test_the_address_of_a_control_word_means_the_instruction_behind_it() -> None:
    assert [TABLE.addressing.index_of(a) for a in (0x00, 0x08, 0x18, 0x20, 0x28)] == [0, 0, 2, 3, 3]


@pytest.mark.parametrize(("line", "why"), [
    ("SYNC", "no SSY"), ("BRK", "no PBK"), ("BRX R2 -0x10", "targets"), ("NOP", "ends here"),
])
def test_what_cannot_be_followed_is_listed(line: str, why: str) -> None:
    if line.startswith("BRX"):
        changed = assembled(f"--:-:-:-:5 {line};\n--:-:-:-:5 EXIT;\n")
    else:
        kernel = assembled("--:-:-:-:5 EXIT;\n")
        word = {"SYNC": 0xF0F800000007000F, "BRK": 0xE34000000007000F, "NOP": 0x50B0000000070F00}[line]
        code = b"".join(kernel.code[at:at + 8] + word.to_bytes(8, "little") * 3 for at in range(0, 64, 32))
        changed = dataclasses.replace(kernel, code=code)
    assert any(why in text for _, text in Graph(changed).unfollowed)


def test_a_sync_without_ssy_ends_the_path_and_is_noted() -> None:
    graph = Graph(assembled("--:-:-:-:5 SYNC;\n--:-:-:-:5 EXIT;\n"))
    assert [i for i, _ in graph.unfollowed] == [0]
    assert graph.reachable() == {0}
