"""The model of an H200 beside what the card said to the probes that its figures come from."""

from pathlib import Path

import numpy as np
import pytest
from probed import ANSWERS, OF_H100, ROOT, slope, stand_of

from maxdnn.build.assemble import assemble
from maxdnn.emulator.gpu import VirtualGpu
from maxdnn.simulator import timing
from maxdnn.simulator.probes import __main__ as probes
from maxdnn.simulator.probes import run

# Probe -> (blocks of so many warps, clocks an instruction may differ): one of each kind of rule.
ASKED = {
    "rate FFMA": (1, 8, 0.01),
    "rate IADD3": (4, 8, 0.01),
    "rate IMAD.WIDE": (1, 8, 0.01),
    "rate MUFU": (1, 8, 0.05),
    "rate LDS.128": (1, 8, 0.4),
    "rate STS.128": (1, 8, 0.5),
    "rate S2R": (1, 8, 0.3),
    "rate BRA taken": (1, 4, 0.01),
    "mix 1xFFMA 1xIMAD": (1, 8, 0.01),
    "mix 1xFFMA 1xIMAD.WIDE": (1, 8, 0.01),
    "mix 15xFFMA 1xSTS.128": (1, 1, 0.01),
    "stall FFMA 1 yield": (1, 8, 0.01),
    "stall IADD3 3": (1, 8, 0.01),
    "banks FFMA efg": (1, 8, 0.01),
    "banks FFMA efg|zzz|zzz": (1, 8, 0.01),
    "banks FFMA erfg|fgh|erfg": (1, 8, 0.01),
    "banks outer product, flags all": (1, 8, 0.02),
    "banks outer product, flags none": (1, 8, 0.01),
    "latency LDS": (1, 4, 0.01),
    "latency LDS.128": (1, 4, 0.01),
    "latency MUFU": (1, 4, 0.01),
    "latency LDC": (1, 4, 0.01),
    "shared latency LDS 8 apart": (1, 1, 0.01),
    "shared LDS.64 4 different, lane % 4": (1, 4, 0.01),
    "shared STS.128 all the same": (1, 4, 0.01),
    "LDG a sector each": (1, 4, 0.3),
    "barrier of 8 warps": (8, 8, 0.01),
    "tensor 64x8x16": (4, 8, 1.8),
    "tensor 64x8x16, A in registers": (4, 8, 0.1),
    "tensor 64x16x16, A in registers": (4, 8, 0.1),
    "tensor 64x32x16, A in registers": (4, 8, 0.1),
    "tensor 64x64x16": (4, 8, 2.0),
    "tensor 64x64x16, A in registers": (4, 8, 0.01),
    "tensor 64x96x16": (4, 8, 0.1),
    "tensor 64x128x16": (4, 8, 0.01),
    "tensor 64x192x16": (4, 8, 0.01),
    "tensor 64x128x8 TF32": (4, 8, 0.01),
    "tensor 64x64x16, each waited for": (4, 8, 2.0),
    "tensor 64x128x16, each waited for": (4, 8, 2.0),
    "tensor turns of two warpgroups": (8, 8, 5),
    "tensor queue 1": (4, 8, 3),
    "tensor queue 4": (4, 8, 3),
    "tensor queue 6": (4, 8, 7),
    "tensor queue 8": (4, 8, 3),
    "tensor beside LDS of the warp": (4, 4, 0.1),
    "tensor beside LDS.128 of the warp": (4, 4, 0.1),
    "tensor beside STS.128 of the warp": (4, 4, 0.2),
    "mbarrier that has been passed": (1, 4, 0.43),
    "mbarrier, an arrival and its phase": (1, 1, 2.0),
    "fence FENCE.VIEW.ASYNC.S": (1, 4, 0.01),
    "tensor beside IADD3 of the warp": (4, 4, 0.01),
    "tensor beside IADD3 of another warp": (8, 8, 0.03),
    "tensor amid nothing of another warp": (8, 8, 0.02),
    "tensor amid FFMA of the warp": (4, 4, 0.03),
    "tensor amid FFMA 2 apart of another warp": (8, 8, 0.02),
    "tensor amid FFMA 3 apart of the warp": (4, 4, 0.03),
    "tensor amid FFMA 4 apart of another warp": (8, 8, 0.03),
    "tensor amid IADD3 of the warp": (4, 4, 0.02),
    "tensor amid UIADD3 of another warp": (8, 8, 0.022),
    "bulk 16 bytes, 1 at a time": (1, 1, 1.0),
    "bulk 4096 bytes, 4 at a time": (1, 1, 2.0),
    "bulk 16384 bytes, 1 at a time": (1, 1, 5.0),
    "bulk 16384 bytes, 2 at a time": (1, 1, 3.0),
    "bulk 32768 bytes, 1 at a time": (1, 1, 1.0),
    "LDGSTS.128, each waited for": (1, 8, 4.0),
    "mix 1xIADD3 1xIMAD.WIDE": (1, 8, 0.01),
    "mix 3xIADD3 1xSTS": (4, 8, 0.05),
    "outer product beside IMAD.MOV after 8": (1, 8, 0.02),
}

# Those that an H100 alone was asked: of lanes that lie apart, stores and atomics, where lanes meet again.
ASKED_H100 = {
    "LDG, 8 lines in turn, a bank each": (1, 8, 2.0),
    "LDG, 16 lines in turn, a bank each": (1, 8, 4.0),
    "LDG, 32 lines in turn, a bank each": (1, 8, 4.1),
    "LDG, 32 lines, 8 lanes to a bank": (1, 8, 4.0),
    "LDG, 32 lines, 16 lanes to a bank": (1, 8, 4.1),
    "LDG, 8 lines 4 apart, a bank each": (1, 8, 1.5),
    "LDG, words of 1 KiB": (1, 8, 1.2),
    "LDG, words of 4 KiB": (1, 8, 4.5),
    "LDG, words of 32 KiB, each waited for": (1, 1, 1.1),
    "LDG L2, 16 lines in turn, a bank each": (1, 8, 3.0),
    "LDG L2, 32 lines in turn, a bank each": (1, 8, 1.0),
    "LDG, 32 lines, 32 lanes to a bank, each waited for": (1, 1, 1.0),
    "LDG, 32 lines, 8 lanes to a bank, each waited for": (1, 1, 1.0),
    "LDG, words of 4 KiB, each waited for": (1, 1, 1.0),
    "LDG.128, 2 lanes a line, before 8 LDS.128": (4, 8, 1.0),
    "LDG L2.128, a line each, before 16 LDS.128": (4, 8, 1.0),
    "STG, 8 lines in turn, a bank each": (1, 8, 0.5),
    "STG, 32 lines in turn, a bank each": (8, 8, 1.0),
    "STG, 8 lines of its own": (1, 8, 0.1),
    "STG, 8 lines of its own, 2 apart, beside sectors": (8, 8, 4.0),
    "REDG, side by side": (1, 8, 4.5),
    "REDG, a sector each": (8, 8, 1.0),
    "STG, words of 4 rows 1024 apart in turn, each of 4 warps 4 LDS behind": (4, 4, 2),
    "STG, words of 4 rows 1452 apart in turn, each of 4 warps 4 LDS behind": (4, 4, 8),
    "LDG, words of 128 KiB": (1, 1, 0.1),
    "IMAD.WIDE, then FADD after 2": (4, 4, 0.01),
    "IMAD.HI, then IMAD.HI after 2": (4, 4, 0.01),
    "IMAD, after 4 read by IMAD.HI": (4, 4, 0.01),
    "FFMA, after 6 read by IMAD.WIDE": (4, 4, 0.01),
    "IMAD.HI, after 5 read by IMAD.WIDE": (4, 4, 0.01),
    "IMAD.WIDE, after 4 read by IMAD.HI as its second": (4, 4, 0.01),
    "IMAD, after 4 read by IMAD.WIDE as its third": (4, 4, 0.01),
    "IMAD, after 5 read by IADD3": (4, 4, 0.01),
    "products of divisions, stalls 4 6 5 5": (4, 4, 0.01),
    "REDG, 32 lines in turn, a bank each": (8, 8, 1.0),
    "ATOMG, 8 lines in turn, a bank each": (1, 8, 12.0),
    "ATOMG, 8 lines 32 apart, a bank each, each waited for": (1, 1, 25),
    "ATOMS, side by side, each waited for": (1, 1, 0.01),
    "ATOMS, 32 lines, 4 lanes to a bank, each waited for": (1, 1, 0.01),
    "ATOMS INC, the same": (1, 1, 0.01),
    "ATOMS INC, words of 1 KiB": (1, 8, 1.2),
    "ATOMS CAS, the same": (1, 8, 0.1),
    "ATOMS CAS, 32 lines, 32 lanes to a bank, each waited for": (1, 1, 0.01),
    "swaps, side by side": (1, 8, 6),
    "swaps, eights the same": (1, 8, 20),
    "swaps, 32 lines, 8 lanes to a bank": (1, 1, 0.01),
    "flow BSSY": (8, 16, 0.07),
    "flow BSSY and BSYNC": (1, 16, 0.3),
    "flow BRA of half the lanes": (1, 8, 0.01),
    "flow BRA of half the lanes, others": (1, 4, 0.01),
    "mix 7xFFMA 1xMUFU": (1, 16, 0.01),
    "flow BRA over one": (1, 4, 0.01),
    "flow BRA over one, more warps": (1, 32, 0.2),
    "flow BSSY and BSYNC, more warps": (20, 32, 1.2),
    "BSSY, 15 FFMA, BSYNC": (8, 16, 1.1),
    "a jump every 2 FFMA": (1, 32, 1.0),
    "loop that lanes leave one by one": (1, 4, 25),
    "loop of 12, 2 stalls of 15": (4, 8, 0.1),
    "loop of 24, 2 stalls of 15": (4, 32, 1),
    "loop of 48, 2 stalls of 15": (8, 16, 0.5),
    "rate STG": (4, 16, 12),
    "STL, lanes at 8 words": (16, 32, 60),
    "STL of 8 words, again and again": (8, 32, 0.4),
    "mix 1xFFMA 1xIMAD.HI": (1, 16, 0.01),
    "mix 1xFFMA 1xIMAD 1xIADD3": (1, 16, 0.01),
    "mix 3xFFMA 1xHFMA2": (1, 8, 0.01),
    "mix 7xFFMA 1xSHFL": (1, 8, 0.02),
    "mix 1xS2R 1xLDS": (1, 8, 0.2),
    "4 LDS.128 side by side waited for behind 0 FFMA to none": (4, 16, 0.2),
    "LDS.128 waited for behind 8 LDG.128, side by side": (1, 8, 11),
    "LDS.128 waited for behind 8 LDG.128, 2 lanes a line": (1, 4, 33),
    "2 STS.128 beside 1 products": (8, 8, 1),
    "1 MEMBAR and FENCE beside 1 products": (8, 8, 0.1),
    "outer product beside IMAD.MOV after 8": (1, 8, 0.02),
    "constants, 48 lines by FFMA": (1, 1, 1),
    "constants, 48 lines by ULDC": (1, 1, 1),
    "constants, 256 lines by LDC": (1, 1, 1),
    "constants 32 apart by LDC": (1, 1, 1),
    "1 LDS.128 waited for behind 24 FFMA to both banks": (1, 1, 0.1),
    "1 LDS.128 that the last of 32 FFMA waits for": (1, 8, 0.5),
    "4 LDS.128 waited for behind 24 FFMA to both banks": (1, 1, 0.1),
    "4 LDS.128 waited for behind 32 FFMA to none": (1, 1, 0.1),
    "4 LDS.128 that the last of 24 FFMA waits for": (1, 1, 0.1),
    "round of yyxxxx, 8 FFMA after each and 16 after the last": (1, 1, 0.1),
    "round of yyyyyy, 16 FFMA after each and 16 after the last to none": (1, 8, 0.1),
    "FFMA beside LDS.64 after each 28": (1, 8, 0.01),
    "FFMA beside LDS.64 after each 36": (1, 8, 0.01),
    "FFMA beside LDS.64 side by side after each 36": (1, 8, 0.01),
    "FFMA beside LDS.128 after each 24": (1, 8, 0.01),
    "FFMA beside LDS.128 after each 64": (4, 8, 0.01),
    "FFMA to none beside LDS after 32": (1, 8, 0.01),
    "mix 3xUIADD3 1xIMAD.WIDE": (1, 16, 0.02),
    "mix 2xUIADD3 1xIMAD UR 1xIMAD.WIDE": (1, 16, 0.02),
    "mix 1xMOV 1xIMAD.WIDE": (1, 16, 0.02),
    "call and return": (1, 8, 4.1),
    "call and return, 8 rests": (1, 16, 6),
    "LDL of a new word behind STL of every second lane, then the others": (1, 8, 6),
    "1 STS.128, then FENCE, 1 warps": (1, 1, 0.01),
    "4 STS.128, then FENCE, 1 warps": (1, 1, 0.01),
    "4 STS.128, then MEMBAR and FENCE, 1 warps": (1, 1, 0.3),
    "8 STS.128, then FENCE, 4 warps": (4, 4, 1.8),
    "8 LDG that hit, then MEMBAR and FENCE, 1 warps": (1, 1, 0.3),
    "4 LDG that hit, then FENCE, 4 warps": (4, 4, 0.6),
    "8 STG, then MEMBAR, 1 warps": (1, 1, 0.3),
    "54 LDG missing on 1 scoreboards, 1 warps": (1, 1, 3),
    "55 LDG missing on 1 scoreboards, 1 warps": (1, 1, 15),
    "64 LDG missing on 2 scoreboards, 1 warps": (1, 1, 3),
    "STG, words of lanes 4 apart in turn, 4 warps": (4, 4, 1),
    "STG, words of lanes 9 apart in turn, 4 warps": (4, 4, 2),
    "STG, words of 4 rows 1024 apart in turn, 4 warps": (4, 4, 1),
    "STG, words of 4 rows 1452 apart in turn, 4 warps": (4, 4, 1),
    "STG, words of 4 rows 1452 apart in turn, 8 warps": (8, 8, 4),
    "STG, words of 4 rows 1440 apart in turn, 8 warps": (8, 8, 4),
    "STG, words of lanes 2 apart in turn, 8 warps": (8, 8, 1.2),
    "STG, words of lanes 5 apart in turn, 4 warps": (4, 4, 1.1),
    "STG, words of lanes 14 apart in turn, 8 warps": (8, 8, 1),
    "STG, words of 4 rows 1024 apart in turn, each of 3 warps 1 LDS behind": (3, 3, 1.5),
    "STG, 2 words of 4 rows 1024 apart in turn 2 cycles apart, then 8 FFMA, 8 warps": (8, 8, 1),
    "STG, 4 words of 4 rows 1024 apart in turn 4 cycles apart, then 40 FFMA, 8 warps": (8, 8, 3.2),
    "REDG, 16 lines in turn, a bank each": (8, 8, 0.1),
}


@pytest.mark.sampled(2, 8)
@pytest.mark.parametrize("name", ASKED)
def test_the_model_answers_a_probe_as_the_card_did(name: str) -> None:
    few, many, apart = ASKED[name]
    number, stand = stand_of(name)
    for warps in {few, many}:
        assert slope(name, warps, stand, number) == pytest.approx(ANSWERS[name][str(warps)], abs=apart)


@pytest.mark.sampled(2, 8)
@pytest.mark.parametrize("name", ASKED_H100)
def test_the_model_answers_a_probe_as_an_h100_did(name: str) -> None:
    few, many, apart = ASKED_H100[name]
    number, stand = stand_of(name)
    for warps in {few, many}:
        assert slope(name, warps, stand, number, machine="h100") == pytest.approx(OF_H100[name][str(warps)], abs=apart)


def test_probes_of_some_modules_alone_are_assembled() -> None:
    """Their kernels have the numbers that they have among all."""
    chosen = run.of_modules(["branches", "local"])[:2] + run.of_modules(["local"])[-2:]
    names = {run.probes()[number].name for number, _, _ in run.tasks(run.cubin(chosen))}
    assert names == {probe.name for probe in chosen}


def test_the_command_assembles_the_modules_that_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert probes.main(["--cubin", str(tmp_path / "p.cubin"), "--modules", "fences", "wide"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p-fences.cubin", "p-wide.cubin"]
    with pytest.raises(SystemExit):
        probes.main(["--cubin", str(tmp_path / "p.cubin"), "--modules", "fence"])
    assert "invalid choice: 'fence'" in capsys.readouterr().err


@pytest.mark.long
def test_the_probes_of_each_module_are_little_enough_for_one_assembly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "assembled", lambda text: text.encode())
    sizes = {module: len(run.cubin(run.of_modules([module]))) for module in run.modules()}
    assert len(sizes) > 20 and max(sizes.values()) < 64 << 20


@pytest.mark.parametrize("name", [
    "STG.64, rows 2080 apart from 16 on, 32 bytes further each, 1 SMs",
    "STG.64, rows 2056 apart from 0 on, 32 bytes further each, 1 SMs",
])
def test_stores_of_parts_of_sectors_leave_an_sm_as_on_an_h100(name: str) -> None:
    number, stand = stand_of(name)
    assert slope(name, 8, stand, number, machine="h100") == pytest.approx(OF_H100[name]["8"], rel=0.01)


@pytest.mark.long
def test_a_block_follows_another_as_on_the_card() -> None:
    """On SM 0 of the card a block of "blocks four at a time, 1 warps" begins 318 to 437 clocks, 329 in the median,
    behind the last clock of one that has ended."""
    number, stand = stand_of("blocks four at a time, 1 warps")
    probe, function = run.probes()[number], stand.module.function(f"probe_{number}_64")
    out = stand.device.alloc(1 << 23)
    result = timing.launch(function, (probe.blocks, 1, 1), (32, 1, 1), [out, stand.words, 1, 0], machine="h200",
                           options=timing.Options(trace=(0, 100000)))
    events, stamps = result.events, [i for i, x in enumerate(function.kernel.instructions) if x.opcode == "CS2R"]
    begins = np.sort(events[events[:, 3] == stamps[0]][:, 0])
    ends = np.sort(events[events[:, 3] == stamps[-1]][:, 0])
    gaps = begins[4:] - ends[:-4]
    assert gaps.min() == pytest.approx(318, abs=6)
    assert np.median(gaps) == pytest.approx(329, abs=3)


def test_ffma_in_registers_alone_take_as_long_as_on_the_card(tmp_path: Path) -> None:
    """98.1 percent of the peak, docs/hopper.md."""
    assemble(ROOT / "tests" / "gpu" / "bare_sm90.sass", tmp_path / "bare.cubin", include=[ROOT / "sass" / "sm90"],
             no_reuse=True)
    gpu = VirtualGpu()
    function = gpu.load((tmp_path / "bare.cubin").read_bytes()).function("sm90_bare")
    out, few, many = gpu.alloc(1 << 17), 10, 30
    clocks = [timing.launch(function, (132, 1, 1), (128, 1, 1), [out, n], machine="h200").cycles for n in (few, many)]
    assert 100 * 1024 * (many - few) / (clocks[1] - clocks[0]) == pytest.approx(98.1, abs=0.98)


def test_a_trace_tells_when_stores_that_wait_have_been_read() -> None:
    """Those that find the queue full are read and come to L2 long after their issue, in the order of a warp's."""
    number, stand = stand_of("STG, words of 4 rows 1452 apart in turn, 8 warps")
    probe = run.probes()[number]
    function = stand.module.function(f"probe_{number}_{probe.lengths[0]}")
    out, data = stand.device.alloc(1 << 20), stand.device.alloc(probe.big)
    events = timing.launch(function, (1, 1, 1), (256, 1, 1), [out, data, 1, 0], machine="h100",
                           options=timing.Options(trace=(0, 100000))).events
    stores = events[[function.kernel.instructions[at].opcode == "STG" for at in events[:, 3]]]
    issued, there, read = stores[:, 0], stores[:, 6], stores[:, 7]
    assert (read > issued).all() and (there > issued).all()
    assert (read - issued).max() > 100
    for warp in range(8):
        assert (np.diff(read[stores[:, 2] == warp]) > 0).all()
