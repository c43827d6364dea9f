"""undefined=True reports reads of registers that no instruction wrote, and nothing that compilers rightly do."""

import numpy as np
import pytest

from maxdnn.build.assemble import assemble
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import EmulationFault
from tests.corpus import cases, compiler
from tests.emulator.test_gpu import fetch, on_device

HEADER = """# Kernel: probe
# Arch: sm_52
# Params(1):
#\t0:0x140:8:0
#
# Instructions:

"""
# Lane 5 alone skips the write of R6.
SKIPPED = HEADER + """
--:-:1:-:1      S2R R0, SR_TID.X;
01:-:-:Y:d      ISETP.EQ.AND P0, PT, R0, 5, PT;
--:-:-:Y:6  @!P0 MOV R6, R0;
--:-:-:Y:6      MOV R2, c[0x0][0x140];
--:-:-:Y:6      MOV R3, c[0x0][0x144];
--:-:-:Y:6      ISCADD R2, R0, R2, 2;
--:-:-:Y:6      IADD R7, R6, 1;
--:1:-:-:2      STG.E [R2], R7;
01:-:-:-:f      EXIT;
"""


def launch(tmp_path, source, **checks):
    (tmp_path / "probe.sass").write_text(source)
    assemble(tmp_path / "probe.sass", tmp_path / "probe.cubin")
    gpu = VirtualGpu(**checks)
    (out,) = on_device(gpu, np.zeros(32, np.int32))
    gpu.load((tmp_path / "probe.cubin").read_bytes()).function("probe").launch((1, 1, 1), (32, 1, 1), [out])
    return fetch(gpu, out, np.zeros(32, np.int32))


def test_the_lane_the_register_and_the_instruction_are_named(tmp_path):
    with pytest.raises(EmulationFault) as fault:
        launch(tmp_path, SKIPPED, undefined=True)
    text = str(fault.value)
    assert "probe: block (0, 0, 0), warp 0, lane 5: read of a register that was never written" in text
    assert "IADD R7, R6, 0x1" in text and "the register is R6" in text


def test_a_register_that_every_lane_wrote_is_no_finding(tmp_path):
    got = launch(tmp_path, SKIPPED.replace("@!P0 MOV", "     MOV"), undefined=True)
    np.testing.assert_array_equal(got, np.arange(32) + 1)


def test_without_the_check_the_kernel_runs(tmp_path):
    got = launch(tmp_path, SKIPPED)
    np.testing.assert_array_equal(np.delete(got, 5), np.delete(np.arange(32) + 1, 5))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["control_loops", "control_recursion", "control_exit", "control_switch"])
def test_compiled_programs_have_no_findings(name):
    case = cases.BY_NAME[name]
    problem = case.problem()
    case.check(case.run(VirtualGpu(undefined=True), compiler.compile_source(case.source), problem), problem)


SHUFFLE = r"""
extern "C" __global__ void sum(int n, int* out) {
    int v = threadIdx.x;
    if (threadIdx.x < n) {
        for (int k = 16; k; k >>= 1) v += __shfl_xor_sync(__activemask(), v, k);
        out[threadIdx.x] = v;
    }
}
"""


def test_a_shuffle_from_an_inactive_lane_is_named():
    from tests import oracles
    cubin = oracles.compile_cuda(SHUFFLE)
    for checks in ({}, {"undefined": True}):
        gpu = VirtualGpu(**checks)
        (out,) = on_device(gpu, np.zeros(32, np.int32))
        function = gpu.load(cubin).function("sum")
        function.launch((1, 1, 1), (32, 1, 1), [32, out])
        assert (fetch(gpu, out, np.zeros(32, np.int32)) == 496).all()
        if checks:
            with pytest.raises(EmulationFault, match=r"lane 4: shuffle from a lane that does not execute it at 0x.*"
                                                     r"SHFL.*; it reads lane 20"):
                function.launch((1, 1, 1), (32, 1, 1), [20, out])
        else:
            function.launch((1, 1, 1), (32, 1, 1), [20, out])
