"""What the kernels of strided dgrad promise."""

from collections.abc import Mapping

import numpy as np

from ...build.interface import KernelSpec
from ...planning.plan import FLOAT_BYTES, Launch
from ..common.correlation import CLASS_WORDS, EIGHT
from ..common.epilogue import ADDS, finish
from ..common.fastdiv import digits, tap_inside
from ..common.limits import TEXEL_BYTES, TEXEL_FLOATS
from ..common.sm90 import TILE, NativeKernel
from ..spec import Memory, TileKernel, seen, signed

WORDS, RECORD_WORDS = 16, 4
"""Of a phase and of an iteration in the table of sm_90."""

OUTSIDE = 0x80000000
"""In place of a tap: it lies outside of the maps from every pixel."""

FILTERS = KernelSpec("sblock_filters", "maxwell/blocks.sass", """Filters for blocks of pixels. Grid: x = filters * taps,
y = tiles of 128 columns.""")
BLOCKS = KernelSpec("sblocks", "maxwell/blocks.sass", """Puts the pixels of blocks where they belong. Grid: x = tiles of
128 elements of a row, y = fours of rows, z = maps.""")


def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the Maxwell kernels promise."""
    spec, v = launch.spec, launch.numbers
    assert isinstance(spec, TileKernel)
    tile_j, tile_k = spec.tile
    tiles, rows, splits = launch.grid
    groups = rows // v["group_tiles"]
    assert v["group_tiles"] == -(-v["k"] // tile_k) and rows == groups * v["group_tiles"]
    words = np.frombuffer(launch.tables["table"], np.uint32).astype(np.int64)
    maps, bank = (seen(memory, launch.values[name]) for name in ("maps", "filters"))
    k, eight, at, first = np.arange(v["k"]), np.arange(EIGHT), 0, 0
    steps = np.array([0, *(v[f"channel{i}"] // FLOAT_BYTES for i in range(1, EIGHT))])
    assert v["filter_more"] == TEXEL_BYTES * v["filter_row"] * EIGHT // 2
    while first < tiles:
        (_, count, d0, d0_magic, d0_shift, d1, d1_magic, d1_shift, map_start, out_start, filter_start, taps,
         entry) = words[at:at + CLASS_WORDS - 1].tolist()
        assert words[at] == first
        j = np.arange(count)
        divisors = {"d0": d0, "d0_magic": d0_magic, "d0_shift": d0_shift,
                    "d1": d1, "d1_magic": d1_magic, "d1_shift": d1_shift}
        i = digits(divisors, j)
        place = out_start + sum(i[a] * v[f"out{a}"] for a in range(3))
        for group, z in np.ndindex(groups, splits):
            base = (map_start + group * v["map_group"] + z * v["map_split"]
                    + sum(i[a] * v[f"map{a}"] for a in range(3))) % 2**32
            row = filter_start + group * v["filter_group"] + z * v["filter_split"]
            sums = np.zeros((v["k"], count))
            record = entry
            for _ in range(taps * (v["rounds"] - (z > v["last_split"]))):
                values = maps[base + steps[:, None]].astype(float)
                weights = bank[TEXEL_FLOATS * (row + eight[:, None] * v["filter_row"]) + k].astype(float)
                sums += weights.T @ values
                steps_by = words[record // FLOAT_BYTES:][:4].astype(np.uint32).view(np.int64)
                base, row = base + steps_by[0] // FLOAT_BYTES, row + steps_by[1] // TEXEL_BYTES
                record = int(words[record // FLOAT_BYTES + 4])
            filters = group * v["k"] + k[:, None]
            finish(launch, memory, scalars, filters * v["out_k"] + place + z * v["out_split"], sums, filters)
        at, first = at + CLASS_WORDS, first + -(-count // tile_j)
    assert words[at] == first == tiles


def reference_sm90(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of sm_90 promise."""
    v, spec = launch.numbers, launch.spec
    assert isinstance(spec, NativeKernel) and launch.grid[0] == -(-v["k"] // spec.tile[1])
    words = np.frombuffer(launch.tables["table"], np.uint32).astype(np.int64)
    maps, filters = (seen(memory, launch.values[name]) for name in ("maps", "filters"))
    k, step, at, first = np.arange(v["k"])[:, None], np.arange(EIGHT), 0, 0
    parts = 1 if v["whole"] else launch.grid[1] // v["tail"]
    assert launch.grid[1] == parts * v["tail"]
    while first < v["tail"]:
        (_, count, d0, d0_magic, d0_shift, d1, d1_magic, d1_shift, map_start, out_start, start_h, start_w, length,
         share, begin) = words[at:at + WORDS - 1].tolist()
        assert words[at] == first
        map_start, start_h, start_w = (x - (x >> 31 << 32) for x in (map_start, start_h, start_w))
        j = np.arange(count)
        divisors = {"d0": d0, "d0_magic": d0_magic, "d0_shift": d0_shift,
                    "d1": d1, "d1_magic": d1_magic, "d1_shift": d1_shift}
        i = digits(divisors, j)
        base = map_start + sum(i[a] * v[f"map{a}"] for a in range(3))
        where = out_start + sum(i[a] * v[f"out{a}"] for a in range(3)) + k * v["out_k"]
        h, w = i[1] * v["stride_h"] + start_h, i[0] * v["stride_w"] + start_w
        records = words[begin // FLOAT_BYTES:][:RECORD_WORDS * length].reshape(-1, RECORD_WORDS)
        for part in range(parts):
            sums = np.zeros((v["k"], count))
            for offset, filter_at, tap, _ in records[part * share:(part + 1) * share].tolist():
                inside = np.full(count, tap != OUTSIDE)
                if tap and tap != OUTSIDE:
                    inside = tap_inside(v, tap, h, w)
                places = np.where(inside, base + offset + step[:, None] * v["map_channel"], 0) // FLOAT_BYTES
                rows = (filter_at + step * v["filter_row"]) // FLOAT_BYTES
                sums += filters[rows + k].astype(float) @ np.where(inside, maps[places], 0)
            if v["whole"]:
                finish(launch, memory, scalars, where, sums, k)
            elif part * share < length:
                seen(memory, launch.values["parts"])[where + part * v["part_out"]] = sums
        at, first = at + WORDS, first + -(-count // TILE)
    assert words[at] == first == v["tail"]


def reference_blocks(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of blocks of pixels promise."""
    v = launch.numbers
    if launch.spec is FILTERS:
        lines, columns = np.arange(launch.grid[0])[:, None], np.arange(v["columns"])
        k, tap, c, place = lines // v["taps"], lines % v["taps"], columns // v["block"], columns % v["block"]
        starts = signed(launch, "start_h", "start_w")
        row = place // v["block_w"] + starts["start_h"] - tap // v["taps_w"] * v["stride_h"]
        column = place % v["block_w"] + starts["start_w"] - tap % v["taps_w"] * v["stride_w"]
        exists = (row >= 0) & (row < v["r"]) & (column >= 0) & (column < v["s"])
        at = k * v["src_k"] + c * v["src_c"] + row * v["src_r"] + column * v["src_s"]
        to = k * v["dst_k"] + tap * v["dst_tap"] + columns * v["dst_column"]
        seen(memory, launch.values["dst"])[to] = np.where(exists, seen(memory, launch.values["src"])[
            np.where(exists, at, 0)], 0)
        return
    maps, h = launch.grid[2], v["h"]
    blocks = seen(memory, launch.values["blocks"])[:maps * v["block_h"] * v["block_w"] * v["rows"] * v["columns"]
                                                   * v["images"]].astype(float)
    shape = maps, v["block_h"], v["block_w"], v["rows"], v["columns"], v["images"]
    placed = blocks.reshape(shape).transpose(0, 3, 1, 4, 2, 5)
    whole = placed.reshape(maps, v["rows"] * v["block_h"], -1, v["images"])
    top, left = v["origin_h"], v["origin_w"]
    wanted = whole[:, top:top + h, left:left + v["inner"] // v["images"]].ravel()
    out = seen(memory, launch.values["out"])
    result = scalars["alpha"] * wanted
    if v["flags"] & ADDS:
        result = result + scalars["beta"] * out[:len(wanted)]
    out[:len(wanted)] = result
