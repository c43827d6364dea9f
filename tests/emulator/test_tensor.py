"""Tensor cores on the virtual GPU: the bits that an H200 gave, and its reading of descriptors."""

import json
from pathlib import Path

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from tests import oracles
from tests.emulator.test_gpu import fetch, on_device
from tests.gpu.wgmma_models import FORMATS
from tests.gpu.wgmma_sets import nasty_tiles, random_tiles, tiles_of

HERE = Path(__file__).parent
TYPES = {"f16": 0, "bf16": 1, "tf32": 2}
BITS = {kind: np.dtype(np.uint32 if kind == "tf32" else np.uint16) for kind in FORMATS}
RECORDED = HERE.parent / "semantics" / "wgmma_h200.npz"
LAYOUTS = HERE.parent / "semantics" / "wgmma_layouts_h200.npz"
SIGNATURES = {"products": "const uint8_t*, const uint8_t*, const float*, float*",
              "find_a": "const uint4*, uint64_t, int, int, float*", "find_b": "const uint4*, uint64_t, int, float*"}
KERNELS = [("products", kind, registers) for kind in range(3) for registers in range(2)]
KERNELS += [(name, kind, turned) for name in ("find_a", "find_b") for kind, turned in ((0, 0), (0, 1), (2, 0))]


@pytest.fixture(scope="module")
def module():
    source = (HERE.parent / "gpu" / "wgmma_kernels.cuh").read_text()
    source += "".join(f"template __global__ void {name}<{kind}, {flag}>({SIGNATURES[name]});\n"
                      for name, kind, flag in KERNELS)
    return VirtualGpu().load(oracles.compile_cuda(source, "sm_90a"))


def named(module, name, kind, flag):
    return module.function(next(k for k in module.cubin.kernels if f"{name}ILi{kind}EL" in k and f"{flag}EEv" in k))


def on_virtual(module, kind, a, b, c, registers):
    buffers = on_device(module.gpu, *(np.ascontiguousarray(x.astype(BITS[kind])) for x in (a, b)),
                        c.astype(np.uint32), np.zeros(c.shape, np.uint32))
    named(module, "products", TYPES[kind], registers).launch((len(a), 1, 1), (128, 1, 1), buffers)
    return fetch(module.gpu, buffers[-1], np.zeros(c.shape, np.uint32))


@pytest.mark.parametrize("registers", [0, 1])
@pytest.mark.parametrize("kind", FORMATS)
def test_products_have_the_bits_of_an_h200(module, kind, registers):
    with np.load(RECORDED) as recorded:
        a, b, c, d = (recorded[f"{kind}_{x}"] for x in "abcd")
    assert d.size > 10_000
    assert np.array_equal(on_virtual(module, kind, a, b, c, registers), d)


@pytest.mark.parametrize("kind", FORMATS)
def test_the_model_has_the_bits_of_an_h200(kind):
    with np.load(RECORDED) as recorded:
        a, b, c, d = (recorded[f"{kind}_{x}"].astype(np.int64) for x in "abcd")
    assert np.array_equal(tiles_of(a, b, c, kind), d)


@pytest.mark.parametrize("kind", FORMATS)
def test_products_of_other_operands_are_the_models(module, kind):
    families = {**nasty_tiles(kind, 1, 77), "random": random_tiles(kind, 6, 78)}
    a, b, c = (np.concatenate([tiles[i] for tiles in families.values()]) for i in range(3))
    assert np.array_equal(on_virtual(module, kind, a, b, c, 0), tiles_of(a, b, c, kind))


def found(module, kind, operand_b, turned, swizzle, leading, stride, base, start):
    """As tests/gpu/wgmma.py asks the card: which element of 64 KiB each element of an operand came from."""
    size, depth = BITS[kind].itemsize, 32 // BITS[kind].itemsize
    index = np.arange(65536 // size)
    rest = (leading >> 4) << 16 | (stride >> 4) << 32 | base << 49 | swizzle << 62
    kernel = named(module, "find_b" if operand_b else "find_a", TYPES[kind], turned)
    parts = []
    for half in (index & 255, index >> 8):
        columns = []
        for first in (0,) if operand_b or depth == 8 else (0, 8):
            out = np.zeros((16, 64) if operand_b else (64, 8), np.float32)
            image, result = on_device(module.gpu, (half + 1).astype(np.float32 if size == 4 else np.float16), out)
            more = [] if operand_b else [np.int32(first)]
            kernel.launch((1, 1, 1), (128, 1, 1), [image, np.uint64(rest), np.int32(start), *more, result],
                          shared_bytes=65536 + 1024 + 256)
            out = fetch(module.gpu, result, out)
            columns.append(out[:depth] if operand_b else out)
        parts.append(np.concatenate(columns, axis=1).astype(np.int32) - 1)
    return np.where((parts[0] < 0) | (parts[1] < 0), -1, parts[0] + (parts[1] << 8))


@pytest.mark.long
def test_descriptors_are_read_as_an_h200_reads_them(module):
    """Swizzles, leading and stride offsets, base offsets, starts within a row; K- and MN-major; A and B."""
    with np.load(LAYOUTS) as recorded:
        settings = json.loads(str(recorded["settings"]))
        assert len(settings) == 268
        wrong = [s for n, s in enumerate(settings) if not np.array_equal(found(module, *s), recorded[str(n)])]
    assert wrong == []
