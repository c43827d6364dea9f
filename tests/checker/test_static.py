"""Rules about an instruction and its neighbour: each is broken on purpose in compiled code."""

import functools

from maxdnn import cubin
from maxdnn.checker import check_hazards
from maxdnn.checker.effects import all_effects
from maxdnn.checker.maxwell import next_slot_read
from maxdnn.cubin import CubinKernel
from tests import oracles
from tests.checker.programs import with_control

SOURCE = r"""
extern "C" __global__ void k(const float* a, const float* b, float* c, int n) {
    float s[4] = {};
    int t = threadIdx.x;
    for (int i = 0; i < n; i++) {
        float x = a[i * 32 + t], y = b[i * 32 + t], z = b[i * 64 + t];
        s[0] += x * y; s[1] += x * z; s[2] += y * z; s[3] += x * x;
        if (s[0] > 100) s[0] = 0;
    }
    c[t] = s[0] + s[1] * s[2] - s[3];
}
"""


@functools.cache
def kernel() -> CubinKernel:
    return cubin.read(oracles.compile_cuda(SOURCE)).kernel()


def kinds(changed: CubinKernel) -> set[str]:
    report = check_hazards(changed)
    return {finding.kind for finding in report.findings + report.warnings}


def index(opcode: str) -> int:
    return next(i for i, inst in enumerate(kernel().instructions) if inst.opcode == opcode)


def test_compiled_code_breaks_no_rule() -> None:
    assert check_hazards(kernel()).ok


def test_two_alu_instructions_do_not_issue_together() -> None:
    code = kernel().instructions
    pair = next(i for i in range(len(code)) if code[i].opcode == code[i + 1].opcode == "FFMA")
    assert "dual-issue" in kinds(with_control(kernel(), pair, stall=0))


def test_a_pair_where_the_second_needs_the_first_is_refused() -> None:
    code, effects = kernel().instructions, all_effects(kernel().instructions)
    pair = next(i for i in range(len(code)) if code[i].cls.pipe == "alu" and code[i + 1].opcode == "LDG"
                and effects[i].writes & effects[i + 1].reads)
    assert {"dual-issue", "raw-fixed"} <= kinds(with_control(kernel(), pair, stall=0))


def test_control_flow_needs_a_stall() -> None:
    assert "flow-stall" in kinds(with_control(kernel(), index("BRA"), stall=3))


def test_waiting_for_a_barrier_nobody_sets_is_found() -> None:
    unused = next(b for b in range(6) if all(b not in (i.control.write_barrier, i.control.read_barrier)
                                             for i in kernel().instructions))
    found = check_hazards(with_control(kernel(), index("FFMA"), wait_mask=1 << unused)).warnings
    assert [f.kind for f in found if f.resource == f"barrier {unused + 1}"] == ["wait-unset"]


def test_a_store_cannot_release_a_write_barrier() -> None:
    assert "barrier-on-store" in kinds(with_control(kernel(), index("STG"), write_barrier=0))


def test_a_reuse_flag_over_a_write_is_stale() -> None:
    code, effects = kernel().instructions, all_effects(kernel().instructions)
    for i, inst in enumerate(code):
        for op in inst.operands:
            if op.field.slot is None or op.type != "gpr" or not op.registers():
                continue
            writer, reader = next_slot_read(code, effects, i, op.field.slot, op.value)
            if writer is not None and reader is not None:
                changed = with_control(kernel(), i, reuse=inst.control.reuse | 1 << op.field.slot)
                assert "reuse-stale" in kinds(changed)
                return
    raise AssertionError("the program has no operand to flag wrongly")
