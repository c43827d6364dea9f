"""Fixed-latency and scoreboard hazards, on code of the vendor's compiler and on weakened copies of it."""

import functools

import pytest

from maxdnn import cubin
from maxdnn.checker import check_hazards
from tests import oracles
from tests.checker.programs import with_control

SOURCE = r"""
extern "C" __global__ void k(const float* x, float* y, int n) {
    __shared__ float s[256];
    int t = threadIdx.x;
    float a = x[t], b = 0;
    for (int i = 0; i < n; i++) {
        s[t] = a;
        __syncthreads();
        if (a > 3.0f) b += sinf(s[(t * 7 + i) & 255]); else b -= a / s[t ^ 1];
        __syncthreads();
        a = a * b + x[i];
    }
    y[t] = b;
}
"""


@functools.cache
def kernel() -> cubin.CubinKernel:
    return cubin.read(oracles.compile_cuda(SOURCE)).kernel()


def first(opcode: str, start: int = 0) -> int:
    return next(i for i, inst in enumerate(kernel().instructions) if i >= start and inst.opcode == opcode)


def kinds(changed: cubin.CubinKernel) -> set[str]:
    return {finding.kind for finding in check_hazards(changed).findings}


def test_compiled_code_has_no_hazard() -> None:
    assert check_hazards(kernel()).findings == ()


def test_a_forgotten_wait_for_a_load_is_found() -> None:
    code = kernel().instructions
    user = next(i for i in range(first("S2R") + 1, len(code)) if code[i].control.wait_mask)
    found = check_hazards(with_control(kernel(), user, wait_mask=0)).findings
    assert {f.kind for f in found} == {"raw-barrier"}
    assert found[0].producer is not None and "S2R" in found[0].producer.text
    assert "wait for barrier" in found[0].fix


def test_a_load_without_its_write_barrier_is_found() -> None:
    assert "raw-barrier" in kinds(with_control(kernel(), first("S2R"), write_barrier=None))


@pytest.mark.parametrize("opcode", ["ISETP", "FSETP"])
def test_a_predicate_used_too_early_is_found(opcode: str) -> None:
    code = kernel().instructions
    setter = next(i for i, inst in enumerate(code) if inst.opcode == opcode and inst.control.stall == 13)
    found = check_hazards(with_control(kernel(), setter, stall=12)).findings
    assert [(f.kind, f.required, f.guaranteed) for f in found][:1] == [("raw-predicate", 13, 12)]


def test_a_long_stall_without_yield_does_not_count_in_full() -> None:
    code = kernel().instructions
    setter = next(i for i, inst in enumerate(code) if inst.opcode == "ISETP" and inst.control.stall == 13)
    found = check_hazards(with_control(kernel(), setter, yield_hint=False)).findings
    assert {finding.kind for finding in found} == {"yield"}
    assert "yield hint" in found[0].fix
