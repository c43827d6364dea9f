"""One-dimensional texture fetches by index: which register takes which component, and zero outside the texture."""

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from maxdnn.isa import TABLE
from maxdnn.runtime.devices.protocol import Texture
from tests.semantics.bench import BLOCK, CONSTANTS, lane_addresses, load, make

GRID, TEXELS = 40, 1000
LANES = GRID * BLOCK
SLOT = CONSTANTS // 4  # the word of constant bank 0 that holds the handle


def fetched(fetch, channels, seed):
    """R12..R15 of every lane after a fetch at the lane's index in R4 (handle in R5); the coordinates; the texels with
    missing components zero, as are those outside."""
    print("seed", seed)
    draw, gpu = np.random.default_rng(seed), VirtualGpu(workers=1)
    data = draw.standard_normal((TEXELS, channels)).astype(np.float32)
    coords = draw.integers(-50, TEXELS + 50, LANES).astype(np.int32)
    coords[:4] = -1, 0, TEXELS - 1, TEXELS
    texels, indices, out = (gpu.alloc(n) for n in (data.nbytes, coords.nbytes, 16 * LANES))
    gpu.upload(texels, data)
    gpu.upload(indices, coords)
    gpu.texture_object(Texture(indices.address, 64, 1))  # another one, so that the handle is not 0
    constants = np.zeros(32, np.uint32)
    constants[0] = gpu.texture_object(Texture(texels.address, data.nbytes, channels))
    words = [*lane_addresses((16, 0, 2), (18, 1, 4)), make("LDG", d=4, addr=(16, 0), e="E", size=""),
             make("MOV", "C", d=5, b=(0, CONSTANTS), m=15), *[make("MOV", d=12 + k, m=15) for k in range(4)],
             fetch, make("STG", addr=(18, 0), d=12, e="E", size="128")]
    load(gpu, words).launch((GRID, 1, 1), (BLOCK, 1, 1), [indices, out, constants])
    got = np.empty((LANES, 4), np.float32)
    gpu.download(out, got)
    inside = (coords >= 0) & (coords < TEXELS)
    full = np.zeros((LANES, 4), np.float32)
    full[inside, :channels] = data[coords[inside]]
    return got, full


def compare(fetch, components, channels, seed):
    """Register k takes component components[k] (None: untouched). What a texture without that component gives is not
    compared."""
    got, full = fetched(fetch, channels, seed)
    for k, component in enumerate(components):
        if component is None or component < channels:
            np.testing.assert_array_equal(got[:, k], 0 if component is None else full[:, component])


@pytest.mark.parametrize("mask", range(1, 16))
@pytest.mark.parametrize("bindless", [False, True])
def test_tld_packs_the_components_of_its_mask(mask, bindless):
    where = {"b": 5} if bindless else {"slot": SLOT}
    chosen = [k for k in range(4) if mask >> k & 1]
    compare(make("TLD.B" if bindless else "TLD", d=12, a=4, mask=mask, **where),
            chosen + [None] * (4 - len(chosen)), (4, 2, 1, 4)[mask % 4], mask)


SHORT = [(row.mnemonic, raw, label.strip(".")) for name in ("TLDS", "TLDS.one") for row in TABLE.named(name)
         for raw, label in (row.operand("comp").values or {}).items()]


@pytest.mark.parametrize("mnemonic, raw, label", SHORT)
def test_tlds_splits_its_components_over_two_registers_pairs(mnemonic, raw, label):
    """The first two go to d, d+1, the others to d2, d2+1."""
    second = {} if mnemonic == "TLDS.one" else {"d2": 14}
    chosen = ["RGBA".index(c) for c in label]
    compare(make(mnemonic, d=12, a=4, slot=SLOT, comp=raw, f16="", **second),
            chosen + [None] * (4 - len(chosen)), 4, raw)
