"""The programs of tests/gpu/test_hopper.py: what an H200 gave, and what the checker says of them."""

import numpy as np
import pytest

from maxdnn import cubin
from maxdnn.check import check_hazards
from maxdnn.emu import VirtualGpu
from tests.gpu import edges


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


REFERENCES = {
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
