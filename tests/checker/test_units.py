"""What the checker says of kernels whose warps work with units beside them: products of tensor cores, mbarriers, bulk
copies, proxy fences, registers given back."""

import functools
import pathlib
import tempfile
from unittest.mock import patch

import numpy as np
import pytest

from maxdnn import cubin
from maxdnn.build.cubins import HOPPER
from maxdnn.build.cubins import cubin as built
from maxdnn.checker import check_hazards, control_findings
from maxdnn.cubin import CubinKernel
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import EmulationFault
from maxdnn.planning.cost import preset
from maxdnn.planning.select import choose
from maxdnn.problem.problem import product
from maxdnn.runtime import trust
from maxdnn.selftest.kernels import outcome
from tests.checker import asynchronous, pipeline
from tests.corpus import tensor
from tests.emulator import test_beside as compiled
from tests.maxas.tool import assemble


@functools.cache
def _kernel(source: str = pipeline.SOURCE) -> tuple[CubinKernel, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        kernel = pipeline.built(pathlib.Path(folder), source)
        return kernel, pathlib.Path(folder, "pipeline.cubin").read_bytes()


def _said(kernel: CubinKernel) -> dict[str, str]:
    """Kind of finding -> the later instruction of the first such."""
    report = check_hazards(kernel)
    return {f.kind: f.consumer.text for f in reversed((*report.findings, *report.warnings))}


def _changed(good: str, bad: str, folder: pathlib.Path) -> dict[str, str]:
    assert pipeline.SOURCE.count(good) == 1, good
    source = pipeline.SOURCE.replace(good, bad)
    return _said(cubin.read(assemble(folder, source, "-n", "-w")).kernel("pipeline"))


def test_a_pipeline_by_hand_is_clean_and_does_what_it_should() -> None:
    kernel, image = _kernel()
    report = check_hazards(kernel)
    assert report.clean, report.text()
    assert len(set(pipeline.outcome(image))) > 100


_MUTANTS, _COPYING_MUTANTS = 82, 88


def _right_or_reported(source: str, number: int, of: int) -> bool:
    """Of a mutant of a pipeline: whether its results are right on the virtual GPU or the checker reports it."""
    kernel, image = _kernel(source)
    every = list(asynchronous.mutants(kernel))
    assert len(every) == of
    mutant = every[number]
    try:
        right = pipeline.outcome(mutant.image(image, kernel)) == pipeline.outcome(image)
    except EmulationFault:
        right = False
    return right or asynchronous.reported(kernel, mutant)


@pytest.mark.sampled(1, 3)
@pytest.mark.parametrize("number", range(_MUTANTS))
def test_every_mutant_that_is_wrong_on_the_virtual_gpu_is_reported(number: int) -> None:
    """Of 82 mutants 68 are wrong there or fault, and all of them are reported."""
    assert _right_or_reported(pipeline.SOURCE, number, _MUTANTS)


@pytest.mark.sampled(1, 3)
@pytest.mark.parametrize("number", range(_COPYING_MUTANTS))
def test_every_wrong_mutant_of_a_pipeline_with_copies_is_reported(number: int) -> None:
    kernel, image = _kernel(pipeline.COPIED)
    assert not asynchronous.reported(kernel, asynchronous.Mutant("none", 0, kernel.code))
    assert pipeline.outcome(image) == pipeline.outcome(_kernel()[1])
    assert _right_or_reported(pipeline.COPIED, number, _COPYING_MUTANTS)


def test_a_copy_that_nobody_waits_for_is_named(tmp_path: pathlib.Path) -> None:
    source = pipeline.COPIED.replace("DEPBAR.LE SB0, 0x0", "DEPBAR.LE SB0, 0x1")
    said = _said(cubin.read(assemble(tmp_path, source, "-n", "-w")).kernel("pipeline"))
    assert said == {"fetching": "LDS R7, [R8+UR10+0x4400]"}


_SHARES = 16


@pytest.mark.exhaustive
@pytest.mark.parametrize("share", range(_SHARES))
@pytest.mark.parametrize("kind", ["product", "float_b"])
def test_every_wrong_mutant_of_products_on_tensor_cores_is_reported(kind: str, share: int) -> None:
    """On chunks of which some need the careful path. Compiling one for the virtual GPU takes half a minute. Of 102 the
    checker is silent on four: eight registers more or less than there are, which all warps still have."""
    source, name = f"sm90/tensor_{kind}", f"sm90_tensor_{kind}_128x128"
    image, real = built(source, HOPPER), trust.cubin
    kernel, rng = cubin.read(image).kernel(name), np.random.default_rng(1)
    given = {"a": rng.standard_normal((40, 640)), "b": rng.standard_normal((640, 24)), "out": np.zeros((40, 24))}
    given["a"][:, :256] *= 1e-17
    given["b"][:256] *= 1e-17
    arrays = {role: x.astype(np.float32) for role, x in given.items()}
    plan = choose(product((40, 640), (640, 24)), preset(), name)

    def results(used: bytes) -> bytes:
        with patch.object(trust, "cubin", lambda *asked: used if asked[0] == source else real(*asked)):
            return outcome(VirtualGpu(instruction_budget=1 << 20), plan, arrays)["out"].tobytes()

    good, unseen = results(image), []
    for mutant in list(asynchronous.mutants(kernel))[share::_SHARES]:
        try:
            right = results(mutant.image(image, kernel)) == good
        except EmulationFault:
            right = False
        if not right and not asynchronous.reported(kernel, mutant):
            unseen.append(f"{mutant.what}: {kernel.instructions[mutant.index].text()}")
    assert not unseen


# (what to replace, by what, the kind of finding, its later instruction)
PLANTED = [
    ("WARPGROUP.DEPBAR.LE gsb0, 0x0", "WARPGROUP.DEPBAR.LE gsb0, 0x1", "in-flight", "FADD R28, R28, R24"),
    ("WARPGROUP.DEPBAR.LE gsb0, 0x0", "NOP", "in-flight", "FADD R28, R28, R24"),
    ("R24, gsb0", "R24", "in-flight", "FADD R28, R28, R24"),
    ("--:-:-:-:6      MOV R53, R9;", "--:-:-:-:6      MOV R24, R9;", "in-flight", "MOV R24, R9"),
    ("6      WARPGROUP.ARRIVE", "6      NOP", "unordered", "HGMMA.64x8x16.F32 R24, gdesc[UR12], RZ, !UPT"),
    ("6      WARPGROUP.ARRIVE", "5      WARPGROUP.ARRIVE", "unordered",
     "HGMMA.64x8x16.F32 R24, gdesc[UR12], RZ, !UPT"),
    ("--:3:-:-:2      UBLKCP", "--:-:-:-:2      UBLKCP", "still-read", "UIMAD UR12, UR6, 0x2000, URZ"),
    ("--:-:1:-:2      FENCE.VIEW.ASYNC.S", "01:-:1:-:2      FENCE.VIEW.ASYNC.G", "unfenced",
     "HGMMA.64x8x16.F32 R24, gdesc[UR12], RZ, !UPT"),
    ("07:-:-:Y:d      ISETP.NE.AND P0, PT, R0, RZ", "07:-:-:Y:d      ISETP.LT.AND P0, PT, R0, RZ", "mbarrier-twice",
     "SYNCS.EXCH.64 URZ, [UR20], UR16"),
    ("03:-:-:Y:6      BAR.SYNC.DEFER_BLOCKING 0x0", "03:-:-:Y:6      NOP", "mbarrier-early",
     "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R3+UR9], R6"),
    ("MOV R12, 0x2000", "MOV R12, 0x1000", "hang", "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R3+UR9], R6"),
    ("USETMAXREG.DEALLOC.CTAPOOL 0x18", "USETMAXREG.DEALLOC.CTAPOOL 0x20", "hang",
     "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0x38"),
    ("USETMAXREG.DEALLOC.CTAPOOL 0x18", "USETMAXREG.DEALLOC.CTAPOOL 0x10", "registers", "IADD3 R16, R0, -0x80, RZ"),
    ("UP0, 0x38", "UP0, 0x30", "registers", "MOV R50, RZ"),
    ("--:-:-:Y:5 @!P0 BRA TAKE;\n", "", "unasked", "USETMAXREG.TRY_ALLOC.CTAPOOL UP0, 0x38"),
    ("01:-:-:Y:5 @!P0 BRA FULL;\n", "01:-:-:Y:5 NOP;\n", "unasked",
     "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R3+UR9], R6"),
    ("ULOP3.LUT UR31, UR7, 0x80000000", "ULOP3.LUT UR31, UR7, 0x0", "hang",
     "SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R3+UR9], R6"),
]


@pytest.mark.sampled(1, 5)
@pytest.mark.parametrize(("good", "bad", "kind", "where"), PLANTED, ids=[f"{p[2]} {p[1]}" for p in PLANTED])
def test_a_planted_fault_is_named(tmp_path: pathlib.Path, good: str, bad: str, kind: str, where: str) -> None:
    said = _changed(good, bad, tmp_path)
    assert said.get(kind) == where, said


HEAD = ("# Kernel: k\n# Arch: sm_90\n# ReqThreads: 128\n# SharedSize: 4096\n"
        "--:-:-:Y:f CS2R R16, SRZ;\n--:-:-:Y:f CS2R R18, SRZ;\n")
ARRIVE = "--:-:-:-:6 WARPGROUP.ARRIVE;\n"
ONE = "--:-:-:-:4 HGMMA.64x8x16.F32 R24, gdesc[UR4], R24{};\n"
OTHER = "--:-:-:-:4 HGMMA.64x8x16.F32 R28, gdesc[UR4], R28, gsb0;\n"
FROM_REGISTERS = "--:-:-:-:4 HGMMA.64x8x16.F32 R24, R16, gdesc[UR4], R24, gsb0;\n"
WAIT = "--:-:-:-:4 WARPGROUP.DEPBAR.LE gsb0, 0x{};\n"
READ = "--:-:-:Y:f FADD R0, R{0}, R{0};\n"
COMMITTED = ONE.format(", gsb0")


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("body", "found"), [
    (ARRIVE + ONE.format("") + COMMITTED + WAIT.format(0) + READ.format(24), set()),
    (ARRIVE + COMMITTED + OTHER + WAIT.format(1) + READ.format(24) + WAIT.format(0) + READ.format(28), set()),
    (ARRIVE + COMMITTED + OTHER + WAIT.format(1) + READ.format(28) + WAIT.format(0), {"in-flight"}),
    (ARRIVE + COMMITTED + "--:-:-:Y:5 @P0 BRA NEXT;\n" + WAIT.format(0) + "NEXT:\n" + READ.format(24) + WAIT.format(0),
     {"in-flight"}),
    (ARRIVE + COMMITTED + f"--:-:-:-:4 @P0 {WAIT.format(0)[11:]}" + READ.format(24) + WAIT.format(0), {"in-flight"}),
    (ARRIVE + FROM_REGISTERS + READ.format(16) + WAIT.format(0), set()),
    (ARRIVE + FROM_REGISTERS + "--:-:-:Y:f MOV R17, RZ;\n" + WAIT.format(0), {"in-flight"}),
    (ARRIVE + FROM_REGISTERS + WAIT.format(0) + "--:-:-:Y:f MOV R17, RZ;\n" + FROM_REGISTERS + WAIT.format(0),
     {"unordered"}),
    (ARRIVE + FROM_REGISTERS + WAIT.format(0) + "--:-:-:Y:f MOV R17, RZ;\n" + ARRIVE + FROM_REGISTERS + WAIT.format(0),
     set()),
    (ARRIVE + ONE.format("").replace("8x16", "16x16") + COMMITTED + WAIT.format(0), {"in-flight"}),
    (COMMITTED + WAIT.format(0), {"unordered"}),
    (ARRIVE + COMMITTED, {"in-flight"}),  # nobody waits: a warning
    (ARRIVE + "CHUNK:\n" + COMMITTED + "--:-:-:Y:5 @P0 BRA CHUNK;\n" + WAIT.format(0) + READ.format(24), set()),
    (ARRIVE + "CHUNK:\n" + COMMITTED + WAIT.format(1) + "--:-:-:Y:5 @P0 BRA CHUNK;\n" + READ.format(24)
     + WAIT.format(0), {"in-flight"}),
])
def test_registers_of_products_are_held_on_every_path(tmp_path: pathlib.Path, body: str, found: set[str]) -> None:
    source = HEAD + body + "--:-:-:Y:5 EXIT;\n"
    kernel = cubin.read(assemble(tmp_path, source, "-n", "-w")).kernel("k")
    assert {finding.kind for finding in control_findings(kernel)} == found


CLEAN: dict[str, tuple[str, dict[str, object]]] = {
    "stored": (compiled.STORED, {"BEFORE": "PROXY;", "AFTER": "", "MEANWHILE": ""}),
    "fenced behind the barrier": (compiled.STORED, {"BEFORE": "", "AFTER": "PROXY;", "MEANWHILE": ""}),
    "pipeline": (compiled.PIPELINE, compiled.PLAIN),
    "registers change hands": (compiled.PIPELINE, {**compiled.PLAIN, **compiled.TURNS})}


@pytest.mark.sampled(1, 1)
@pytest.mark.parametrize("name", [*CLEAN, "ptxas"])
def test_compiled_pipelines_are_clean(name: str) -> None:
    image = tensor.pipeline() if name == "ptxas" else compiled.built(CLEAN[name][0], **CLEAN[name][1])
    for kernel in cubin.read(image).kernels.values():
        report = check_hazards(kernel)
        assert report.clean, report.text()


@pytest.mark.sampled(1, 2)
@pytest.mark.parametrize(("parts", "kind"), [
    ({"ANNOUNCED": 24592}, "hang"), ({"ANNOUNCED": 24560}, "hang"), ({"CONSUMERS": 3}, "hang"),
    ({"CONSUMERS": 1}, "busy"), ({"FULL": ""}, "arriving"), ({"EARLY": compiled.RELEASE, "LATE": ""}, "busy")])
def test_misuse_in_compiled_pipelines_is_named(parts: dict[str, object], kind: str) -> None:
    """What tests/emulator/test_beside.py finds at run time."""
    image = compiled.built(compiled.PIPELINE, **{**compiled.PLAIN, **parts})
    assert kind in _said(cubin.read(image).kernel("pipeline"))


@pytest.mark.parametrize(("parts", "kind"), [({"BEFORE": ""}, "unfenced"), ({"MEANWHILE": "tile[t] = a[t];"}, "busy")])
def test_misuse_of_stored_operands_is_named(parts: dict[str, str], kind: str) -> None:
    image = compiled.built(compiled.STORED, **{"BEFORE": "PROXY;", "AFTER": "", "MEANWHILE": "", **parts})
    assert kind in _said(cubin.read(image).kernel("stored"))
