"""The programs of tests/gpu/test_hopper.py: what an H200 gave, and what the checker says of them."""

import functools
import pathlib

import numpy as np
import pytest

from maxdnn import cubin
from maxdnn.checker import check_hazards
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import EmulationFault
from tests.gpu import edges
from tests.maxas import tool


@pytest.fixture(scope="module")
def module():
    gpu = VirtualGpu()
    return gpu, gpu.load(edges.image())


def _signed(bits: int) -> np.ndarray:
    x = edges.pairs()[:, 0].astype(np.int64) & (1 << bits) - 1
    return np.where(x >> bits - 1, x - (1 << bits), x)


def _clamped(low: int, high: int) -> np.ndarray:
    return np.clip(_signed(32), low, high)


def _float_clamped(low: int, high: int, nan: int) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # NaN that signal
        x = edges.pairs()[:, 0].copy().view(np.float32).astype(np.float64)
    return np.where(np.isnan(x), nan, np.trunc(np.clip(x, low, high)))


def _bytes(which: int, signed: bool) -> np.ndarray:
    """The four bytes of x or y."""
    x = np.ascontiguousarray(edges.pairs()[:, which]).view(np.int8 if signed else np.uint8)
    return x.reshape(-1, 4).astype(np.int64)


def _dot(a: bool, b: bool) -> np.ndarray:
    return edges.pairs()[:, 0].astype(np.int64) + (_bytes(0, a) * _bytes(1, b)).sum(1)


def _gaps() -> np.ndarray:
    return abs(_bytes(0, True) - _bytes(1, True))


def _taken(shift: int, mask: np.ndarray) -> np.ndarray:
    return edges.pairs()[:, 0].astype(np.int64) >> shift & mask & 0x7F


REFERENCES = {
    "VABSDIFF4 R10, R4, R5, R4": lambda: (_gaps() << np.arange(0, 32, 8)).sum(1),
    "VABSDIFF4.ACC R10, R4, R5, R4": lambda: edges.pairs()[:, 0] + _gaps().sum(1),
    "R2P PR, R4, R5": lambda: _taken(0, edges.pairs()[:, 1].astype(np.int64)),
    "R2P PR, R4.B1, R5": lambda: _taken(8, edges.pairs()[:, 1].astype(np.int64)),
    "R2P PR, R4.B3, 0x2a": lambda: _taken(24, np.int64(0x2A)),
    **{f"IDP.4A.{'US'[a]}8.{'US'[b]}8 R10, R4, R5, R4": functools.partial(_dot, bool(a), bool(b))
       for a in (0, 1) for b in (0, 1)},
    "PRMT R10, R4, 0x9910, RZ": lambda: _signed(16), "PRMT R10, R4, 0x8880, RZ": lambda: _signed(8),
    "PRMT R10, R4, 0x7710, RZ": lambda: _signed(32) & 0xFFFF, "IABS R10, R4": lambda: abs(_signed(32)),
    "I2I.S16.S32.SAT R10, R4": lambda: _clamped(-0x8000, 0x7FFF), "I2I.S8.S32.SAT R10, R4": lambda: _clamped(-128, 127),
    "I2I.U16.S32.SAT R10, R4": lambda: _clamped(0, 0xFFFF), "I2I.U8.S32.SAT R10, R4": lambda: _clamped(0, 255),
    "I2F.S16 R10, R4": lambda: _signed(16).astype(np.float32).view(np.uint32),
    "I2F.S8 R10, R4": lambda: _signed(8).astype(np.float32).view(np.uint32),
    "F2I.TRUNC.NTZ R10, R4": lambda: _float_clamped(-1 << 31, (1 << 31) - 1, 0),
    "F2I.S16.TRUNC.NTZ R10, R4": lambda: _float_clamped(-1 << 15, (1 << 15) - 1, 0),
    "F2I.S8.FLOOR R10, R4": None, "F2I R10, R4": None,
}


@pytest.mark.parametrize("text", REFERENCES)
def test_signs_and_limits_of_narrow_types(module, text: str) -> None:
    gpu, loaded = module
    found = edges.results(gpu, list(edges.programs()).index(text), loaded)[:, 0]
    reference = REFERENCES[text]
    if reference is not None:
        assert (found == reference().astype(np.int64).astype(np.uint32)).all()
    else:  # NaN without .NTZ: the lowest number, of 8 bits without its sign
        nan = np.isnan(edges.pairs()[:, 0].copy().view(np.float32))
        assert nan.any() and (found[nan] == (0x80 if ".S8" in text else 0x80000000)).all()


def test_a_nan_keeps_its_digits_when_it_gets_wider(module) -> None:
    gpu, loaded = module
    found = edges.results(gpu, list(edges.programs()).index("F2F.F64.F32 R10, R4"), loaded)
    where = dict(zip(edges.pairs()[:, 0].tolist(), found.tolist(), strict=True))
    assert where[0x7FFFFFFF] == [0xE0000000, 0x7FFFFFFF] and where[0xFFFF8001] == [0x20000000, 0xFFFFF000]
    assert where[0x3F800000] == [0, 0x3FF00000]


def test_the_checker_reports_what_the_reuse_cache_may_serve() -> None:
    kernels = cubin.read(edges.image()).kernels
    for number, text in enumerate(edges.programs()):
        kinds = {finding.kind for finding in check_hazards(kernels[f"edges_{number}"]).findings}
        assert kinds == ({"reuse"} if edges.KEPT.get(text, (False,))[0] else set()), text


@pytest.mark.parametrize("line", [
    "FMNMX.NAN R10, R4, R5, PT", "FMNMX.XORSIGN R10, R4, R5, PT", "F2F.BF16.F32 R10, R4", "I2F.BF16 R10, R4",
    "FRND.FTZ.F64 R10, R4", "F2IP.U8.F32 R10, R4, R5, RZ", "B2R R10, 0x1",
    "HFMA2 R10, R4, R5.H0_NH1, R4", "LDC.IL R10, c[0x0][R4]"])
def test_what_has_no_meaning_here_is_said(tmp_path: pathlib.Path, line: str) -> None:
    """Not computed as something like it, and no error of Python's."""
    source = f"# Kernel: k\n# Arch: sm_90\n# ReqThreads: 32\n--:-:1:-:8      {line};\n01:-:-:Y:5      EXIT;\n"
    gpu = VirtualGpu()
    with pytest.raises(EmulationFault, match="not emulated"):
        gpu.load(tool.assemble(tmp_path, source, "-n", "-w")).function("k").launch((1, 1, 1), (32, 1, 1), [])
        gpu.synchronize()
