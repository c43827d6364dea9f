"""What a block of sconv_fprop_K64_N64 asks of the memory system, from the addresses its warps really form."""

from collections import Counter

import numpy as np
import pytest

from maxdnn.kernels import CONV_64X64

from .machine_code import accesses, built, main_loop, shared_passes
from .on_device import convolve


def block(elements, n=64, k=64):
    """Memory accesses of both warps of the first block of a layer with that many patch elements."""
    kernel, warps = built(CONV_64X64), []
    maps, filters = np.ones((elements, 1, 1, n), np.float32), np.ones((elements, 1, 1, k), np.float32)
    convolve(CONV_64X64, maps, filters, on_warp=warps.append)
    assert len(warps) == 2
    return [access for trace in warps for access in accesses(kernel, trace)]


@pytest.fixture(scope="module")
def full_block():
    return block(24)


def bytes_per_lane(inst):
    return 16 if inst.mods["size"].endswith("128") else 8 if inst.mods["size"].endswith("64") else 4


def test_no_shared_memory_access_meets_a_bank_twice(full_block):
    """Least passes: 1 for 32-bit accesses, 4 for 128-bit ones, a quarter warp each."""
    seen = Counter()
    for inst, lanes in full_block:
        if inst.opcode in ("LDS", "STS") and any(a is not None for a in lanes):
            passes = shared_passes(lanes, bytes_per_lane(inst))
            assert passes == (4 if bytes_per_lane(inst) == 16 else 1), inst.text()
            seen[inst.opcode, bytes_per_lane(inst)] += 1
    assert seen == {("LDS", 16): 2 * (16 + 3 * 32), ("STS", 16): 2 * (1 + 3 * 4 + 16), ("LDS", 4): 2 * 64}


def test_in_the_loop_half_a_warp_reads_at_most_128_bytes_so_two_quarters_can_be_served_as_one(full_block):
    loop = {inst.address for inst in main_loop(built(CONV_64X64))}
    for inst, lanes in full_block:
        if inst.opcode == "LDS" and inst.address in loop and lanes[0] is not None:
            for half in (lanes[:16], lanes[16:]):
                assert len({a // 4 % 32 // 4 for a in half}) == len(set(half)) <= 8


@pytest.mark.parametrize("elements", [1, 8, 9, 24])
def test_every_texel_is_fetched_once_and_no_other(elements):
    """Also in the last iteration, where nothing is left to fetch, and in a group that is not full."""
    fetched = [a for inst, lanes in block(elements) if inst.opcode == "TLD" for a in lanes if a is not None]
    assert len(fetched) == len(set(fetched)) == elements * (64 + 64) // 4


def test_ragged_tiles_fetch_only_what_exists():
    fetched = [a for inst, lanes in block(8, n=10, k=21) if inst.opcode == "TLD" for a in lanes if a is not None]
    assert len(fetched) == len(set(fetched)) == 8 * (12 + 24) // 4


def test_table_entries_are_read_once_per_element_pair(full_block):
    loads = [[a & 0xFFFF for a in lanes if a is not None] for inst, lanes in full_block if inst.opcode == "LDC"]
    read = [a for lanes in loads for a in set(lanes)]
    assert sorted(read) == list(range(0, 4 * 24, 8))


def test_stores_are_whole_lines(full_block):
    """Every store of a full tile writes 128 bytes in a row; 64 x 64 values, each once."""
    stores = [lanes for inst, lanes in full_block if inst.opcode == "STG"]
    assert len(stores) == 2 * 64
    assert all([a - lanes[0] for a in lanes] == list(range(0, 128, 4)) for lanes in stores)
    assert len({lanes[0] for lanes in stores}) == len(stores)
