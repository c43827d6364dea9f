"""The memory hierarchy: latency of each level, bandwidth of DRAM, caches by real addresses."""

import numpy as np
import pytest
from handmade import ins, lanes, loop, time

from maxdnn.simulator import columns as c
from maxdnn.simulator.machine import preset

CHAIN = [ins("LDG", "01:-:1:-:2", mods={"cache": "CI"}, d=2, addr=2)]


def chase(lines, hops, warm, cache="CI", machine="gm204"):
    """Cycles per hop of a pointer chase over `lines` addresses, after `warm` hops."""
    chain = [ins("LDG", "01:-:1:-:2", mods={"cache": cache} if cache else None, d=2, addr=2)]

    def cycles(count):
        code, runs = loop(chain, count)
        rows = [lanes([128 * lines[n % len(lines)]]) for n in range(count)]
        return time(code, runs, addresses=lambda b, w: rows, machine=machine).cycles
    return (cycles(warm + hops) - cycles(warm)) / hops


@pytest.mark.parametrize("machine", ["gm204", "gp104"])
def test_a_pointer_chase_gives_the_latency_of_each_level(machine):
    figures = preset(machine)
    few, many = list(range(16)), list(range(4096))  # 2 KiB; 512 KiB
    far = [64 * n for n in range(2000)]
    assert chase(few, 200, 32, machine=machine) == figures["l1_latency"]
    assert chase(few, 200, 32, cache="", machine=machine) == figures["l2_latency"]
    assert chase(many, 200, 4097, machine=machine) == figures["l2_latency"]
    assert chase(far, 200, 20, machine=machine) == figures["dram_latency"]


def test_a_texture_fetch_occupies_its_unit():
    """Four channels: 32 cycles for each fetch of a warp, in each of the two units of an SM."""
    fetch = [ins("TLD", "--:-:1:-:2", d=4, a=2, mask=15)]

    def cycles(count):
        code, runs = loop(fetch, count)
        row = lanes([16 * n for n in range(32)])
        return time(code, runs, addresses=lambda b, w: [row] * count, warps=4, blocks=16).cycles
    assert (cycles(60) - cycles(20)) / 40 == 64  # four warps on two units


def test_constant_loads_take_the_latency_of_their_level():
    figures = preset("gm204")
    load = [ins("LDC", "01:-:1:-:2", d=2, addr=2)]

    def per_hop(span):
        def cycles(count):
            code, runs = loop(load, count)
            rows = [lanes([3 << 16 | 64 * n % span] * 32) for n in range(count)]
            return time(code, runs, addresses=lambda b, w: rows).cycles
        return (cycles(1200) - cycles(1000)) / 200
    assert per_hop(1024) == figures["constant_latency"]
    assert per_hop(16384) == figures["constant15_latency"]


def test_a_copy_kernel_saturates_dram():
    """Every block copies 256 KiB of its own; reads and writes together come within 5% of the bandwidth."""
    figures = preset("gm204")
    body = []
    for _ in range(4):
        body += [ins("LDG", "--:-:1:-:2", mods={"size": "128"}, d=4, addr=2)] * 4
        body += [ins("STG", "01:2:-:-:2", mods={"size": "128"}, d=4, addr=2)] * 4
    trips = 4
    code, runs = loop(body, trips)
    blocks, warps = 768, 8

    def addresses(block, warp):
        rows = []
        for trip in range(trips * 4):
            base = (warp * trips * 4 + trip) * 4 * 512
            rows += [lanes([base + 512 * k + 16 * n for n in range(32)]) for k in range(4)]
            rows += [lanes([(1 << 33) + base + 512 * k + 16 * n for n in range(32)]) for k in range(4)]
        return rows
    result = time(code, runs, addresses=addresses, blocks=blocks, warps=warps, step=warps * trips * 16 * 512)
    moved = 2 * blocks * warps * trips * 16 * 512
    assert moved / (result.cycles * figures.dram_bytes_per_cycle) == pytest.approx(1, abs=0.05)
    assert result.counters[c.C_DRAM_READ] * 32 == moved / 2
    assert result.counters[c.C_DRAM_WRITE] * 32 >= moved / 2 - figures["l2_kib"] * 1024


def test_mirrored_sms_touch_l2_with_the_addresses_of_their_own_blocks():
    """16 blocks of 16 SMs read one line each, all different or all the same: 16 DRAM lines or one."""
    code, runs = loop([ins("LDG", "--:-:1:-:2", d=4, addr=2)], 1)
    for step, lines in ((128, 16), (0, 1)):
        row = np.arange(32) * 4
        result = time(code, runs, addresses=lambda b, w, s=step, r=row: [lanes(r + s * b)], blocks=16)
        assert result.counters[c.C_DRAM_READ] == 4 * lines
        whole = time(code, runs, addresses=lambda b, w, s=step, r=row: [lanes(r + s * b)], blocks=16, all_sms=True)
        assert whole.counters[c.C_DRAM_READ] == 4 * lines
        assert whole.cycles == pytest.approx(result.cycles, abs=20)


def test_texture_cache_keeps_what_fits_and_loses_what_does_not():
    """One scheduler's half of 12 KiB: a second pass over 8 KiB hits, over 32 KiB misses."""
    for kib, hits in ((8, 50), (32, 0)):
        count = kib * 2
        code, runs = loop([ins("TLD", "--:-:1:-:2", d=4, a=2, mask=15)], 2 * count)
        rows = [lanes([512 * (n % count) + 16 * lane for lane in range(32)]) for n in range(2 * count)]
        result = time(code, runs, addresses=lambda b, w, rows=rows: rows)
        assert result.ratio(c.C_L1_HITS, c.C_L1_SECTORS) == hits


@pytest.mark.parametrize(("all_sms", "off"), [(False, 0.12), (True, 0.001)])
def test_atomics_on_one_address_come_one_after_another(all_sms, off):
    """16 blocks of 32 lanes on 16 SMs: all on one word, 512 operations, one per cycle; each block on a line of its own,
    31 cycles more than a load (4 requests, so 3 cycles); each lane on a word of its own, a load of four sectors, 3
    cycles more. One SM for all is served now first, now last of the 16, and then waits for its own turn as well."""
    add = [ins("ATOM", "01:-:1:-:2", d=2, addr=2, b=5)]

    def per_trip(row):
        def cycles(count):
            code, runs = loop(add, count)
            return time(code, runs, addresses=lambda b, w: [row(b)] * count, blocks=16, all_sms=all_sms).cycles
        return (cycles(30) - cycles(10)) / 20
    latency = preset("gm204")["l2_latency"]
    assert per_trip(lambda b: lanes([4096] * 32)) == pytest.approx(16 * 32, rel=off)
    assert per_trip(lambda b: lanes([4096 + 128 * b] * 32)) == pytest.approx(latency + 3 + 31, abs=0.1)
    assert per_trip(lambda b: lanes(4096 * (b + 1) + 4 * np.arange(32))) == pytest.approx(latency + 3 + 3, abs=2)


def test_shared_atomics_take_a_pass_for_each_lane_of_a_bank():
    add = [ins("ATOMS", "--:-:1:-:2", d=2, addr=9, b=5)] * 30
    code, runs = loop(add, 2)
    for words, passes in ((1, 32), (2, 16), (32, 1)):
        row = lanes(4 * (np.arange(32) % words))
        result = time(code, runs, addresses=lambda b, w, r=row: [r] * 60)
        assert result.counters[c.C_SHARED_BUSY] == 60 * passes
