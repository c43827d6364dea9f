"""What a block of a convolution kernel asks of the memory system, from the addresses its warps really form."""

from collections import Counter

import numpy as np
import pytest

from maxdnn.algorithms.paper.maxwell import CONV_64X64, CONV_128X32, TILE_ELEMENTS

from .machine_code import accesses, built, main_loop, shared_passes
from .on_device import convolve


@pytest.fixture(scope="module", params=[CONV_64X64, CONV_128X32], ids=lambda spec: spec.name)
def spec(request):
    return request.param


def block(spec, elements, n=None, k=None):
    """Memory accesses of both warps of the first block of a layer with that many patch elements; a full tile unless n
    or k say otherwise."""
    kernel, warps = built(spec), []
    n, k = n or spec.tile[0], k or spec.tile[1]
    maps, filters = np.ones((elements, 1, 1, n), np.float32), np.ones((elements, 1, 1, k), np.float32)
    convolve(spec, maps, filters, on_warp=warps.append)
    assert len(warps) == 2
    return [access for trace in warps for access in accesses(kernel, trace)]


@pytest.fixture(scope="module")
def full_block(spec):
    return block(spec, 24)


def bytes_per_lane(inst):
    return 16 if inst.mods["size"].endswith("128") else 8 if inst.mods["size"].endswith("64") else 4


def test_no_shared_memory_access_meets_a_bank_twice(spec, full_block):
    """Least passes: 1 for 32-bit accesses, 4 for 128-bit ones, a quarter warp each."""
    texels = TILE_ELEMENTS * sum(spec.tile) // 4 // spec.threads
    seen = Counter()
    for inst, lanes in full_block:
        if inst.opcode in ("LDS", "STS") and any(a is not None for a in lanes):
            passes = shared_passes(lanes, bytes_per_lane(inst))
            assert passes == (4 if bytes_per_lane(inst) == 16 else 1), inst.text()
            seen[inst.opcode, bytes_per_lane(inst)] += 1
    assert seen == {("LDS", 16): 2 * (16 + 3 * 32), ("STS", 16): 2 * (1 + 3 * texels + 16), ("LDS", 4): 2 * 64}


def test_in_the_loop_half_a_warp_reads_at_most_128_bytes_so_two_quarters_can_be_served_as_one(spec, full_block):
    loop = {inst.address for inst in main_loop(built(spec))}
    for inst, lanes in full_block:
        if inst.opcode == "LDS" and inst.address in loop and lanes[0] is not None:
            for half in (lanes[:16], lanes[16:]):
                assert len({a // 4 % 32 // 4 for a in half}) == len(set(half)) <= 8


@pytest.mark.parametrize("elements", [1, 8, 9, 24])
def test_every_texel_is_fetched_once_and_no_other(spec, elements):
    """Also in the last iteration, where nothing is left to fetch, and in a group that is not full."""
    fetched = [a for inst, lanes in block(spec, elements) if inst.opcode == "TLD" for a in lanes if a is not None]
    assert len(fetched) == len(set(fetched)) == elements * sum(spec.tile) // 4


@pytest.mark.parametrize("spec", [CONV_64X64], indirect=True, ids=lambda spec: spec.name)
def test_ragged_tiles_fetch_only_what_exists(spec):
    fetched = [a for inst, lanes in block(spec, 8, n=10, k=21) if inst.opcode == "TLD" for a in lanes if a is not None]
    assert len(fetched) == len(set(fetched)) == 8 * (12 + 24) // 4


def test_table_entries_are_read_once_per_warp_that_needs_them(full_block):
    read = [(a & 0xFFFF) // 4 + i for inst, lanes in full_block if inst.opcode == "LDC"
            for a in {a for a in lanes if a is not None} for i in range(bytes_per_lane(inst) // 4)]
    assert sorted(read) == list(range(24))


def test_stores_are_whole_lines(spec, full_block):
    """Every store of a full tile writes 128 bytes in a row, and each value of the tile is stored once."""
    stores = [lanes for inst, lanes in full_block if inst.opcode == "STG"]
    assert len(stores) == spec.tile[0] * spec.tile[1] // 32 == 2 * 64
    assert all([a - lanes[0] for a in lanes] == list(range(0, 128, 4)) for lanes in stores)
    assert len({lanes[0] for lanes in stores}) == len(stores)
