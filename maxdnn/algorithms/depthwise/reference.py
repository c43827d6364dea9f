"""What the kernels of depthwise convolution promise."""

from collections.abc import Mapping

import numpy as np

from ...planning.plan import Launch
from ..common.epilogue import finish
from ..common.fastdiv import digits, quotient
from ..spec import Memory, seen, signed
from .maxwell import IMAGES_FIRST, ROWS, THREADS, GroupFiltersKernel, GroupKernel


def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of fprop and dgrad promise."""
    assert isinstance(launch.spec, GroupKernel)
    v, (rows, columns, images) = launch.numbers, launch.spec.tile
    assert launch.grid == (-(-v["count"] // THREADS), 1, 1)
    j = np.arange(v["count"])
    first = quotient(v, "d0", j)
    second = quotient(v, "d1", first)
    third = quotient(v, "d2", second)
    i = j % v["d0"], first % v["d1"], second % v["d2"], third
    n, q, p, k = i if v["flags"] & IMAGES_FIRST else (i[3], i[0], i[1], i[2])
    n, k, p, q = (x.ravel() for x in np.broadcast_arrays(
        n[:, None, None, None] + v["second"] * np.arange(images)[:, None, None], k[:, None, None, None],
        rows * p[:, None, None, None] + np.arange(rows)[:, None],
        columns * q[:, None, None, None] + np.arange(columns)))
    n, k, p, q = (x[(n < v["n"]) & (p < v["p"]) & (q < v["q"])] for x in (n, k, p, q))
    group = quotient(v, "group", k)
    starts = signed(launch, "map_start", "start_h", "start_w", "filter_group", "filter_row", "filter_tap")
    maps, bank = seen(memory, launch.values["images"]), seen(memory, launch.values["filters"])
    base = (starts["map_start"] + n * v["map_image"] + group * v["map_group"] + p * v["map_row"]
            + q * v["map_column"])
    sums = np.zeros(len(p))
    r_size, s_size = launch.spec.filter or (v["r"], v["s"])
    for c, r, s in np.ndindex(v["channels"], r_size, s_size):
        h = p * v["stride_h"] + starts["start_h"] + r * v["dilation_h"]
        w = q * v["stride_w"] + starts["start_w"] + s * v["dilation_w"]
        inside = (h >= 0) & (h < v["h"]) & (w >= 0) & (w < v["w"])
        at = base + c * v["map_channel"] + r * v["tap_row"] + s * v["tap_column"]
        taps = bank[v["filter_start"] + k * v["filter_k"] + group * starts["filter_group"] + c * v["filter_channel"]
                    + r * starts["filter_row"] + s * starts["filter_tap"]].astype(float)
        sums[inside] += maps[at[inside]].astype(float) * taps[inside]
    where = n * v["out_image"] + k * v["out_k"] + p * v["out_row"] + q * v["out_column"]
    finish(launch, memory, scalars, where, sums, k)


def reference_wgrad(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels of wgrad promise."""
    assert isinstance(launch.spec, GroupFiltersKernel)
    v, (tile_r, tile_s), (filters, splits, planes) = launch.numbers, launch.spec.tile, launch.grid
    assert v["wide"] == -(-v["s"] // tile_s) and v["tiles"] == -(-v["r"] // tile_r) * v["wide"]
    assert v["share"] == THREADS * v["rounds"] and v["share"] * splits >= v["items"]
    j = np.arange(v["items"])
    i = digits(v, j)
    n, q, p = i if v["flags"] & IMAGES_FIRST else (i[2], i[0], i[1])
    n, q, j = (np.repeat(x, ROWS) for x in (n, q, j))
    p = (ROWS * p[:, None] + np.arange(ROWS)).ravel()
    n, q, p, j = (x[p < v["p"]] for x in (n, q, p, j))
    starts = signed(launch, "map_start", "start_h", "start_w")
    maps, gradients = seen(memory, launch.values["images"]), seen(memory, launch.values["gradients"])
    base = starts["map_start"] + n * v["map_image"] + p * v["map_row"] + q * v["map_column"]
    taken = n * v["gradient_image"] + p * v["gradient_row"] + q * v["gradient_column"]
    for k, c, r, s in np.ndindex(filters, planes // v["tiles"], v["r"], v["s"]):
        h = p * v["stride_h"] + starts["start_h"] + r * v["dilation_h"]
        w = q * v["stride_w"] + starts["start_w"] + s * v["dilation_w"]
        inside = (h >= 0) & (h < v["h"]) & (w >= 0) & (w < v["w"])
        group = (k + 1) * v["group_magic"] >> 32 + v["group_shift"]
        at = (base + group * v["map_group"] + c * v["map_channel"] + r * v["tap_row"] + s * v["tap_column"])[inside]
        terms = maps[at].astype(float) * gradients[(taken + k * v["gradient_k"])[inside]]
        sums = np.bincount(j[inside] // v["share"], terms, splits)
        where = (k * v["filter_k"] + c * v["filter_channel"] + r * v["filter_row"] + s * v["filter_tap"]
                 + np.arange(splits) * v["out_split"])
        finish(launch, memory, scalars, where, sums, np.full(splits, k))
