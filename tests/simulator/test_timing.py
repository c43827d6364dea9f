"""Kernels timed end to end: what warps execute and touch comes from the virtual GPU, cycles from the model."""

import gc
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from maxdnn import cli
from maxdnn.algorithms.paper.maxwell import CONV_64X64, CONV_PAPER
from maxdnn.build.interface import KernelSpec
from maxdnn.cubin import CubinKernel
from maxdnn.emulator.gpu import VirtualGpu
from maxdnn.errors import SimulationError
from maxdnn.layers import LAYERS, Layer
from maxdnn.planning.select import plan
from maxdnn.problem.shape import ConvShape
from maxdnn.simulator import columns as c
from maxdnn.simulator import pipeline, report, timing
from maxdnn.simulator.machine import preset
from maxdnn.simulator.state import Image, Work
from tests import oracles

SMALL = ConvShape(64, 16, 6, 6, 64, 3, 3)  # 16 blocks, 18 loop trips


@pytest.fixture(scope="module")
def small() -> timing.ConvTiming:
    return timing.conv(SMALL, options=timing.Options(trace=(2000, 2400)))


# -- what is executed -------------------------------------------------------------------------------------------------


def regions(kernel: CubinKernel) -> dict[str, slice]:
    """The kernel's parts, found by its branches: prologue, loop, the loop's two last branches, the last test alone,
    scaling of the first half, storing a half, what leads to the second half."""
    index = {i.address: n for n, i in enumerate(kernel.instructions)}
    index |= {a - 8: n for a, n in index.items() if a % 32 == 8}  # a group may be named by its control word
    flow = [(n, i) for n, i in enumerate(kernel.instructions) if i.opcode in ("BRA", "EXIT")]
    end, back = next((n, i) for n, i in flow if i.opcode == "BRA" and i["target"].value <= i.address)
    start = index[back["target"].value]
    leave = next(n for n, i in flow if n > end and i.opcode == "EXIT")
    to_store, jump = next((n, i) for n, i in flow if n > leave)
    store = index[jump["target"].value]
    done = next(n for n, i in flow if n > store and i.opcode == "EXIT")
    return {"prologue": slice(0, start), "loop": slice(start, end + 1), "last": slice(end + 1, leave),
            "test": slice(end + 1, end + 2), "first": slice(leave, to_store + 1), "store": slice(store, done + 1),
            "second": slice(to_store + 1, store), "again": slice(done + 1, done + 2)}


def counted(layer: Layer, kernel: CubinKernel) -> dict[str, int]:
    """Warp-instructions by class, from the plan's numbers and the cubin's parts alone (64 divides N, 32 divides K). The
    paper's loop ends without further branches, and runs once more when 8 divides the patch."""
    s, papers = layer.shape, kernel.name == CONV_PAPER.name
    tiles, pixels = (s.patch // 8 + 1 if papers else -(-s.patch // 8)), s.P * s.Q * (s.N // 64)
    warps, halves = 2 * -(-s.K // 64) * pixels, s.K // 16 * pixels  # a half: 16 filters of one warp
    last = 0 if papers else warps
    times = {"prologue": warps, "loop": tiles * warps, "last": last, "test": last, "first": warps, "store": halves,
             "second": halves - warps, "again": halves - warps}
    total: Counter[str] = Counter()
    for name, part in regions(kernel).items():
        for inst in kernel.instructions[part]:
            total[inst.cls.name] += times[name]
    return dict(total)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("layer", LAYERS, ids=lambda x: f"{x.network}-{x.name}")
@pytest.mark.parametrize("spec", [CONV_64X64, CONV_PAPER], ids=lambda spec: spec.name)
def test_executed_instructions_equal_the_closed_formula(layer: Layer, spec: KernelSpec) -> None:
    (workload, kernel), = timing.conv_workloads(plan(layer.shape, kernel=spec.name), preset("gm204"))
    assert workload.outline.traced < 40
    executed: Counter[str] = Counter()
    for inst, n in zip(workload.outline.instructions, workload.outline.executed.tolist(), strict=True):
        executed[inst.cls.name] += n
    assert {k: v for k, v in executed.items() if v} == counted(layer, kernel)


def test_simulated_blocks_issue_what_their_paths_say(small: timing.ConvTiming) -> None:
    whole = timing.conv(SMALL, options=timing.Options(all_sms=True)).results[0]
    assert np.array_equal(whole.issued, whole.workload.executed)
    one = small.results[0]
    assert np.array_equal(16 * one.issued, one.workload.executed)  # one of 16 like blocks


@pytest.mark.parametrize("shape", [ConvShape(70, 3, 5, 5, 70, 3, 3, 1, 1), ConvShape(4, 5, 4, 4, 12, 1, 1),
                                   ConvShape(1, 1, 3, 3, 1, 3, 3)])
def test_ragged_shapes_are_timed(shape: ConvShape) -> None:
    timed = timing.conv(shape)
    assert 0 < timed.ce < 100 and timed.ce == pytest.approx(timed.ce_from_time)


def test_a_layer_of_several_launches_adds_up() -> None:
    timed = timing.conv(ConvShape(4, 2048, 3, 3, 4, 3, 3))
    assert len(timed.results) == 2 and timed.clocks == sum(r.cycles for r in timed.results)


# -- when -------------------------------------------------------------------------------------------------------------


@pytest.mark.long
def test_what_was_timed_lets_its_streams_go() -> None:
    """Where every block is run they take gigabytes a launch, and a layer has many launches."""
    found = timing.conv(ConvShape(64, 2048, 6, 6, 64, 4, 4))
    assert len(found.launches) == 2
    assert not [x for x in gc.get_objects() if type(x) in (Work, Image)]


def test_the_loop_runs_at_its_bound() -> None:
    """Long loops, full occupancy: nearly all slots issue, and the efficiency stays below the loop's own 512 of 520."""
    timed = timing.conv(ConvShape(64, 128, 18, 18, 128, 3, 3))
    bound = 100 * 512 / 520
    assert bound - 2.5 < timed.ce < bound
    assert report.slots(timed.results[0])["issued"] > 98


def test_wide_stores_four_slots_apart_leave_the_banks_to_the_multiplications() -> None:
    """Those of the paper's loop stand two slots apart, and their five registers each delay FFMA."""
    lost = {kernel: report.slots(timing.conv(ConvShape(64, 128, 18, 18, 128, 3, 3), kernel=kernel).results[0])
            for kernel in (CONV_64X64.name, CONV_PAPER.name)}
    assert lost[CONV_64X64.name]["bank conflict"] < 0.1 < 0.5 < lost[CONV_PAPER.name]["bank conflict"]


def test_every_policy_gives_a_plausible_time() -> None:
    found = {p: timing.conv(SMALL, options=timing.Options(p)).clocks for p in c.POLICIES}
    assert max(found.values()) < 1.1 * min(found.values())
    with pytest.raises(SimulationError, match="policy must be one of greedy-then-oldest"):
        timing.conv(SMALL, options=timing.Options("random"))


@pytest.mark.long
def test_one_sm_stands_for_all() -> None:
    """Sixteen SMs on a shared queue against one with its mirror images: within 0.3 points."""
    shape = ConvShape(128, 32, 22, 22, 128, 3, 3)
    one, whole = (timing.conv(shape, options=timing.Options(all_sms=full)).ce for full in (False, True))
    assert one == pytest.approx(whole, abs=0.3)


def test_tracing_changes_no_cycle(small: timing.ConvTiming) -> None:
    """Traced cycles are issued one instruction at a time, others in bursts."""
    plain = timing.conv(SMALL)
    everything = timing.conv(SMALL, options=timing.Options(trace=(0, 100_000)))
    assert plain.clocks == small.clocks == everything.clocks
    assert np.array_equal(plain.results[0].stalls, everything.results[0].stalls)


# -- reports ----------------------------------------------------------------------------------------------------------


def test_slots_sum_to_one_hundred(small: timing.ConvTiming) -> None:
    assert sum(report.slots(small.results[0]).values()) == pytest.approx(100)


def test_the_report_says_where_slots_go(small: timing.ConvTiming) -> None:
    text = report.text(small.results[0], "small")
    for words in ("simulated gm204", "blocks/SM 8", "limited by registers", "issued", "cache hits", "DRAM read",
                  "slots lost in front of"):
        assert words in text
    data = json.loads(json.dumps(report.as_dict(small.results[0])))
    assert sum(row["issued"] for row in data["instructions"]) == int(small.results[0].issued.sum())
    assert data["occupancy"]["warps_per_sm"] == 16
    limits, moved = data["limits_percent"], data["traffic_bytes"]
    assert all(0 < share <= 100 for share in limits.values())
    assert limits["FMA"] < limits["issue"] and limits["DRAM"] == data["dram_percent_of_peak"]
    assert moved["DRAM read"] < moved["L2"] <= moved["texture/L1"]


def test_the_pipeline_trace_is_what_viewers_read(small: timing.ConvTiming) -> None:
    """Trace Event format: named tracks first, complete events in order, at most a pair per warp and cycle."""
    trace = json.loads(pipeline.dumps(small.results[0]))
    events = trace["traceEvents"]
    kinds = [e["ph"] for e in events]
    assert set(kinds) == {"M", "X"} and kinds == sorted(kinds)
    slices = [e for e in events if e["ph"] == "X"]
    assert [e["ts"] for e in slices] == sorted(e["ts"] for e in slices)
    assert all(2000 <= e["ts"] < 2400 and e["dur"] == 1 for e in slices)
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in slices} <= named
    assert max(Counter((e["ts"], e["tid"]) for e in slices).values()) == 2
    with pytest.raises(SimulationError, match="no pipeline trace was kept"):
        pipeline.dumps(timing.conv(SMALL).results[0])


# -- other kernels ----------------------------------------------------------------------------------------------------

COPY = """extern "C" __global__ void copy(float4 *out, const float4 *in) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x; out[i] = in[i]; }"""


def test_a_compiled_copy_kernel_saturates_dram() -> None:
    gpu = VirtualGpu()
    blocks = 1536
    function = gpu.load(oracles.compile_cuda(COPY)).function("copy")
    source, target = gpu.alloc(blocks * 4096), gpu.alloc(blocks * 4096)
    result = timing.launch(function, (blocks, 1, 1), (256, 1, 1), [target, source])
    n = result.counters
    moved = 32 * int(n[c.C_DRAM_READ] + n[c.C_DRAM_WRITE])
    assert int(n[c.C_DRAM_READ]) * 32 == blocks * 4096
    assert moved / (result.cycles * result.machine.dram_bytes_per_cycle) > 0.9  # launch and last stores included


# -- the command ------------------------------------------------------------------------------------------------------


def test_simulate_prints_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", "64,16,6,6,64,3,3", "--kernel", CONV_64X64.name,
                     "--source", "sass/maxwell/conv_fprop_64x64.sass"]) == 0
    out = capsys.readouterr().out
    assert "computational efficiency" in out and "loadM00" in out


def test_source_lines_add_up_to_the_slots(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", "64,16,6,6,64,3,3", "--kernel", CONV_64X64.name,
                     "--source", "sass/maxwell/conv_fprop_64x64.sass", "--json"]) == 0
    launch, = json.loads(capsys.readouterr().out)["launches"]
    total = 4 * launch["clocks"] * launch["simulated_sms"] / 100
    lines, slots = launch["source_lines"], launch["slots_percent"]
    assert sum(x["issued"] - x["second"] for x in lines) == pytest.approx(total * slots["issued"])
    lost = sum(sum(x["lost"].values()) for x in lines)
    assert lost == pytest.approx(total * (100 - slots["issued"] - slots["no warp"]), rel=0.01)
    assert sum(x["instructions"] for x in lines) == len(launch["instructions"])
    store = "24:5:-:-:2 STS.128 [writeS + 0x000], loadM00;"
    place, = [x["place"] for x in launch["instructions"] if x["source"] == store]
    file, number = place.split(":")
    line = (Path("sass/maxwell") / file).read_text().splitlines()[int(number) - 1]
    assert " ".join(line.split()) == store


def test_the_source_of_another_kernel_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", "64,16,6,6,64,3,3", "--source", "sass/maxwell/pad.sass"]) == 1
    assert "the source must be that of the kernel" in capsys.readouterr().err


def test_simulate_writes_json_pictures_and_traces(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    picture, trace = tmp_path / "slots.svg", tmp_path / "pipeline.json"
    assert cli.main(["simulate", "64,16,6,6,64,3,3", "--json", "--picture", str(picture), "--trace", "300", "500",
                     "--trace-file", str(trace), "--set", "l2_latency", "300", "--machine", "gm107"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["launches"][0]["machine"] == "gm107" and 0 < data["ce"] < 100
    assert b"<svg" in picture.read_bytes() and json.loads(trace.read_text())["traceEvents"]


def test_simulate_times_any_cubin(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:  # type: ignore[no-untyped-def]
    cubin, launch = tmp_path / "copy.cubin", tmp_path / "launch.json"
    cubin.write_bytes(oracles.compile_cuda(COPY))
    description = {"kernel": "copy", "grid": [64], "block": [256], "args": [{"buffer": 262144}, {"buffer": 262144}]}
    launch.write_text(json.dumps(description))
    assert cli.main(["simulate", str(cubin), "--launch", str(launch), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["launches"][0]["blocks"] == 64
    assert cli.main(["simulate", str(cubin)]) == 1
    assert "--launch" in capsys.readouterr().err


@pytest.mark.parametrize("layout", ["CHWN", "NCHW"])
def test_simulate_times_the_whole_plan(layout: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Padding asks for a copy, N,C,H,W for three changes of layout; the convolution's share is reported beside it."""
    assert cli.main(["simulate", "64,4,6,6,64,3,3,1,1", "--layout", layout, "--json", "--pass", "forward",
                     "--algorithm", "direct", "--kernel", CONV_64X64.name]) == 0
    data = json.loads(capsys.readouterr().out)
    kernels = [x["kernel"] for x in data["launches"]]
    middle = ["spad", CONV_64X64.name]
    assert kernels == (middle if layout == "CHWN" else ["stranspose"] * 2 + middle + ["stranspose"])
    assert data["clocks"] == sum(x["clocks"] for x in data["launches"])
    inner, = [x for x in data["launches"] if x["useful_flops"]]
    assert inner["clocks"] == data["convolution"]["clocks"] < data["clocks"]
    assert inner["ce"] == pytest.approx(data["convolution"]["ce"])
    assert data["ce"] * data["clocks"] == pytest.approx(inner["ce"] * inner["clocks"])
    assert inner["clocks"] == timing.conv(ConvShape(64, 4, 6, 6, 64, 3, 3, 1, 1)).clocks


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("direction", "kernels", "kernel"), [
    ("data", ["sturn", "sconv_taps_K64_N64"], "sconv_taps_K64_N64"),
    ("filters", ["sconv_filters_64x64_k", "sreduce"], "sconv_filters_64x64_k_split4")])
def test_simulate_times_gradients(direction: str, kernels: list[str], kernel: str,
                                  capsys: pytest.CaptureFixture[str]) -> None:
    shape = "64,16,6,6,64,3,3,1,1"
    assert cli.main(["simulate", shape, "--pass", direction, "--json", "--kernel", kernel]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["pass"] == direction and [x["kernel"] for x in data["launches"]] == kernels
    assert sum(x["useful_flops"] for x in data["launches"]) == ConvShape(64, 16, 6, 6, 64, 3, 3, 1, 1).flops


def test_the_passes_of_a_long_reduction_share_its_operations() -> None:
    timed = timing.conv(ConvShape(4, 2048, 3, 3, 4, 3, 3))
    assert sum(x.useful for x in timed.launches) == timed.shape.flops


@pytest.mark.parametrize(("arguments", "words"), [
    (["alexnet-conv1", "--pass", "sideways"], "--pass must be one of forward, data, filters"),
    (["alexnet-conv1", "--pass", "data", "--algorithm", "filters"], "--algorithm must be one of auto, direct, win"),
    (["alexnet-conv1", "--algorithm", "magic"], "--algorithm must be one of auto, direct, winograd, fft (got 'magic')"),
    (["alexnet-conv1", "--pass", "data", "--kernel", CONV_64X64.name], "--kernel must be one of sconv_taps_K64_N64, "),
    (["alexnet-conv1", "--layout", "NHWC"], "layout must be one of CHWN, NCHW"),
    (["nothing"], "LAYER must be one of alexnet-conv1"), (["1,2,3"], "N,C,H,W,K,R,S"),
    (["alexnet-conv1", "--machine", "gm999"], "no preset 'gm999'"),
    (["alexnet-conv1", "--set", "speed", "3"], "no figure 'speed'")])
def test_simulate_refuses_what_it_does_not_know(arguments: list[str], words: str,
                                                capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["simulate", *arguments]) == 1
    assert words in capsys.readouterr().err
