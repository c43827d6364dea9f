"""Value delays: stale operands are found exactly where a control code is too weak."""

import random

import pytest
from handmade import ins, lanes, placed, time

from maxdnn.build.cubins import cubin
from maxdnn.checker import check_hazards
from maxdnn.cubin import read
from maxdnn.errors import SimulationError
from maxdnn.isa import Control
from maxdnn.problem.shape import ConvShape
from maxdnn.simulator import timing
from maxdnn.simulator.delays import stale_values
from maxdnn.simulator.simulate import Options

EXIT = ins("EXIT", "--:-:-:-:f")


def found(*code, addresses=()):
    result = time([*code, EXIT], [(0, len(code) + 1)], addresses=lambda b, w: list(addresses), trace=(0, 5000))
    return [(s.kind, s.what, s.missing) for s in stale_values(result)]


@pytest.mark.parametrize(("stall", "missing"), [(6, 0), (5, 1), (1, 5)])
def test_an_arithmetic_result_takes_six_cycles(stall, missing):
    code = [ins("FADD", f"--:-:-:-:{stall}", d=2, a=4, b=5), ins("FADD", d=3, a=2, b=5)]
    assert found(*code) == ([("read", "R2", missing)] if missing else [])


@pytest.mark.parametrize(("stall", "stale"), [("d", False), ("c", True)])
def test_a_predicate_takes_thirteen(stall, stale):
    code = [ins("ISETP", f"--:-:-:Y:{stall}", form="R", pd=0, a=4, b=5), ins("SEL", form="R", d=3, a=4, b=5, ps=0)]
    assert found(*code) == ([("read", "P0", 1)] if stale else [])


def test_a_load_must_be_waited_for():
    row = lanes([0] * 32)
    load, good, bad = ins("LDS", "--:-:1:-:2", d=2, addr=9), "01:-:-:-:1", "--:-:-:-:1"
    assert found(load, ins("FADD", good, d=3, a=2, b=5), addresses=[row]) == []
    assert [f[:2] for f in found(load, ins("FADD", bad, d=3, a=2, b=5), addresses=[row])] == [("read", "R2")]


def test_a_stored_register_must_not_be_overwritten_too_early():
    row = lanes([0] * 32)
    store = ins("STS", "--:1:-:-:2", addr=9, d=2)
    assert found(store, ins("FADD", "01:-:-:-:1", d=2, a=4, b=5), addresses=[row]) == []
    assert [f[:2] for f in found(store, ins("FADD", d=2, a=4, b=5), addresses=[row])] == [("overwritten", "R2")]


def test_results_must_land_in_order():
    row = lanes([0] * 32)
    code = [ins("LDS", "--:-:1:-:2", d=2, addr=9), ins("FADD", d=2, a=4, b=5)]
    assert ("order", "R2") in [f[:2] for f in found(*code, addresses=[row])]


def test_delays_need_a_trace():
    with pytest.raises(SimulationError, match="value delays need a trace"):
        stale_values(time(placed([EXIT]), [(0, 1)]))


# -- against the hazard checker ---------------------------------------------------------------------------------------

SHAPE = ConvShape(4, 8, 1, 1, 4, 1, 1)


def conv_block():
    """One block of the convolution kernel, alone on its SM, so that control codes are all that keeps distances."""
    workload, kernel = timing.conv_workloads(timing.make_plan(SHAPE, kernel="sconv_fprop_K64_N64"),
                                             timing.preset("gm204"))[0]
    return workload, kernel


def stale_of(workload, kernel, instructions):
    import dataclasses
    changed = dataclasses.replace(workload, instructions=tuple(instructions))
    result = timing.simulate(changed, timing.preset("gm204"), registers=kernel.registers,
                             shared_bytes=kernel.shared_bytes, threads=64, options=Options(trace=(0, 20000)))
    return stale_values(result)


def weakened(control, kind):
    """The control code with one thing less, or None if it has no such thing."""
    stall, wait, write, read_ = control.stall, control.wait_mask, control.write_barrier, control.read_barrier
    if kind == "stall" and 1 < stall < 12:
        stall -= 1
    elif kind == "wait" and wait:
        wait &= wait - 1
    elif kind == "write" and write is not None:
        write = None
    elif kind == "read" and read_ is not None:
        read_ = None
    else:
        return None
    return Control(stall, control.yield_hint, write, read_, wait, control.reuse)


def test_the_convolution_kernel_uses_no_stale_value():
    workload, kernel = conv_block()
    assert stale_of(workload, kernel, kernel.instructions) == []


def test_mutants_go_wrong_only_where_the_checker_reports():
    """Weaken one control code of the convolution kernel at a time: whenever the simulated block uses a stale value, the
    hazard checker reports the kernel. 60 mutants, seed 7."""
    import dataclasses
    workload, kernel = conv_block()
    chooser = random.Random(7)
    places = [(n, kind) for n, inst in enumerate(kernel.instructions) for kind in ("stall", "wait", "write", "read")
              if weakened(inst.control, kind)]
    wrong = 0
    for n, kind in chooser.sample(places, 60):
        inst = kernel.instructions[n]
        mutant = dataclasses.replace(inst, control=weakened(inst.control, kind))
        instructions = [*kernel.instructions[:n], mutant, *kernel.instructions[n + 1:]]
        stale = stale_of(workload, kernel, instructions)
        if stale:
            wrong += 1
            code = dataclasses.replace(kernel)
            code.__dict__["instructions"] = tuple(instructions)
            assert not check_hazards(code).ok, (n, kind, str(inst), stale[0])
    assert wrong >= 5


def test_the_kernel_read_from_its_cubin_is_the_one_traced():
    assert read(cubin("maxwell/conv_fprop_64x64", "sm_52")).kernel().code == conv_block()[1].code
