"""What the kernels of implicit GEMM promise."""

from collections.abc import Iterator, Mapping

import numpy as np

from ...planning.plan import FLOAT_BYTES, Launch
from ..common.epilogue import finish
from ..common.fastdiv import digits, tap_inside
from ..common.limits import TEXEL_FLOATS
from ..common.sm90 import GROUP, TILE, NativeKernel
from ..spec import Memory, seen, signed
from .kernels import OUT_OF_RANGE, PIXELS_FIRST, TESTS, TILE_ELEMENTS, PixelKernel

RECORD = np.dtype([("map", "<u4"), ("filter", "<u4"), ("tap", "<u4"), ("nothing", "<u4")])
ELEMENTS = np.dtype([("places", "<u4", (GROUP, 2)), ("filter", "<u4"), ("nothing", "<u4")])
"""What tables of sm_90 say of an iteration: of a tap of eight channels, or of eight elements."""

HAD = 0x80000000
"""In place of a tap: the record before has this element."""


def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the Maxwell kernels promise."""
    spec = launch.spec
    assert isinstance(spec, PixelKernel)
    v, (tile_j, tile_k) = launch.numbers, spec.tile
    groups = launch.grid[1] // v["group_tiles"]
    assert v["group_tiles"] == -(-v["k"] // tile_k)
    assert launch.grid == (-(-v["j"] // tile_j), groups * v["group_tiles"], v["splits"])
    records = np.frombuffer(launch.tables["table"], spec.record).reshape(-1, spec.halves)
    offsets = records["offsets"].reshape(-1, TILE_ELEMENTS).copy()
    offsets[0, v["tail"] or TILE_ELEMENTS:] = OUT_OF_RANGE
    masks = (records["masks"] if spec.tests == "each" else np.repeat(records["taps"], TILE_ELEMENTS // spec.halves, 1))
    masks = masks.reshape(-1, TILE_ELEMENTS)
    j = np.arange(v["j"])
    i, starts = digits(v, j), signed(launch, "start_h", "start_w")
    start = v["map_start"] + sum(i[a] * v[f"map{a}"] for a in range(3))
    h = (i[2] if v["flags"] & PIXELS_FIRST else i[1]) * v["stride_h"] + starts["start_h"]
    w = (i[1] if v["flags"] & PIXELS_FIRST else i[0]) * v["stride_w"] + starts["start_w"]
    maps = seen(memory, launch.textures["tex_I"])
    bank = seen(memory, launch.textures["tex_F"])
    k = np.arange(v["k"])
    for group in range(groups):
        for z in range(v["splits"]):
            sums = np.zeros((v["k"], v["j"]))
            for number in range(z, len(records), v["splits"]):
                first = TEXEL_FLOATS * (int(records["row"][number, 0]) + group * v["filter_group"])
                for e, offset in enumerate(offsets[number].tolist()):
                    at = start + group * v["map_group"] + offset & 2**32 - 1
                    ok = at < len(maps)
                    if taps := int(masks[number, e]) * bool(v["flags"] & TESTS):
                        ok &= tap_inside(v, taps, h, w)
                    values = np.where(ok, maps[np.where(ok, at, 0)], 0).astype(float)
                    where = (first + e + TEXEL_FLOATS * v["filter_row"] * k if spec.kcrs else
                             first + TEXEL_FLOATS * e * v["filter_row"] + k)
                    weights = np.where(where < len(bank), bank[np.minimum(where, len(bank) - 1)], 0).astype(float)
                    if values.any():
                        sums += np.outer(weights, values)
            filters = group * v["k"] + k[:, None]
            finish(launch, memory, scalars, filters * v["out_k"] + sum(i[a] * v[f"out{a}"] for a in range(3))
                   + z * v["out_split"], sums, filters)


def _blocks(v: Mapping[str, int], items: int) -> Iterator[tuple[np.ndarray, int, int, int]]:
    """What blocks along y have: pixels, part (-1: whole sums), first record and the one behind the last."""
    for item in range(items):
        if item < v["whole"]:
            yield np.arange(TILE * item, min(TILE * (item + 1), v["j_whole"])), -1, 0, v["records"]
            continue
        part, tile = divmod(item - v["whole"], v["tail"])
        first = v["j_whole"] + TILE * tile
        yield (np.arange(first, min(first + TILE, v["j"])), part, part * v["share"],
               min((part + 1) * v["share"], v["records"]))


def reference_sm90(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of sm_90 promise."""
    v = launch.numbers
    assert isinstance(launch.spec, NativeKernel) and launch.grid[0] == -(-v["k"] // launch.spec.tile[1])
    elements = launch.spec.elements
    records = np.frombuffer(launch.tables["table"], ELEMENTS if elements else RECORD)
    maps, filters = (seen(memory, launch.values[name]) for name in ("maps", "filters"))
    starts = signed(launch, "map_start", "start_h", "start_w")
    k, step = np.arange(v["k"])[:, None], np.arange(GROUP)
    for j, part, begin, end in _blocks(v, launch.grid[1]):
        i = digits(v, j)
        base = starts["map_start"] + sum(i[a] * v[f"map{a}"] for a in range(3))
        where = sum(i[a] * v[f"out{a}"] for a in range(3)) + k * v["out_k"]
        h, w = i[1] * v["stride_h"] + starts["start_h"], i[0] * v["stride_w"] + starts["start_w"]
        sums = np.zeros((v["k"], len(j)))
        for record in records[begin:end]:
            if elements:
                offsets, taps = record["places"].T
            else:
                offsets, taps = record["map"] + step * v["map_channel"], np.full(GROUP, record["tap"])
            values = np.zeros((GROUP, len(j)))
            for e, offset in enumerate(offsets.tolist()):
                tap = int(taps[e])
                inside = np.full(len(j), tap != HAD)
                if tap and tap != HAD:
                    inside = tap_inside(v, tap, h, w)
                values[e] = np.where(inside, maps[np.where(inside, (base + offset) // FLOAT_BYTES, 0)], 0)
            if launch.spec.name.endswith("_kc"):
                at = (int(record["filter"]) + k * v["filter_row"]) // FLOAT_BYTES + step
            else:
                at = (int(record["filter"]) + step * v["filter_row"]) // FLOAT_BYTES + k
            sums += filters[at].astype(float) @ values
        if part < 0:
            finish(launch, memory, scalars, where, sums, k)
        else:
            seen(memory, launch.values["parts"])[where - v["part_first"] + part * v["part_out"]] = sums
