"""The kernels of wgrad for sm_90: operands by address instead of textures. Larger tiles."""

import math

from ...planning.cost import Cost, Work
from .maxwell import DOC, FiltersKernel

# Timed on an H200 (benchmarks/rankings.py): clocks of an iteration of a CTA that has an SM for itself, by the results
# of its tile; slots that a scheduler of a filled SM issues in a clock; clocks of a wave that are no issue slot; the
# pace of an SM with hardly any CTA, to that.
_ALONE, _PACE, _WAVE_ENDS, _STAGGERED = {128 * 128: 1330, 128 * 64: 1240}, 0.95, 9000, 0.85


def native_kernel(name: str, tile: tuple[int, int], inner: str, slots: tuple[int, int], between: int,
                  doc: str) -> FiltersKernel:
    """In sm90/<name>.sass."""
    return FiltersKernel(f"sm90_{name}_{tile[0]}x{tile[1]}_{inner}", f"sm90/{name}.sass", doc, tile, slots, slots[0],
                         inner, between, 2 if tile == (128, 128) else 4)


NATIVE = tuple(native_kernel("filters", *row, DOC) for row in (
    ((128, 128), "k", (1104, 450), 35), ((128, 128), "e", (1104, 450), 35),
    ((64, 128), "k", (1116, 470), 37), ((128, 64), "e", (1116, 516), 57)))


def native_work(spec: FiltersKernel, share: int, blocks: int, between: float, nbytes: float) -> Work:
    """Of machine code, whose blocks come in waves; `between`: a warp's slots beside those of so many iterations."""
    loop, rest = spec.slots
    warps, slots = spec.threads // 32, loop * share + between + rest
    path = _ALONE[math.prod(spec.tile)] * share + between + rest
    code = Cost(warps * slots / _PACE, path, spec.ctas_per_sm, wave_ends=_WAVE_ENDS, staggered=_STAGGERED)
    return Work(blocks, nbytes, code, warps=warps)
