"""The kernels of wgrad for sm_90: operands by address instead of textures. Larger tiles."""

from ...planning.cost import Cost, Work
from .maxwell import DOC, FiltersKernel

# Timed on an H200: clocks of an iteration of a CTA that has an SM for itself, as of products; slots that a scheduler of
# a filled SM issues in a clock, as of convolutions.
_ALONE, _PACE = 1400, 0.95
LATENCY = 4000
"""Clocks of a CTA alone that are no issue slot: divisions, first fetches, last stores; assumed."""


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
    code = Cost(warps * slots / _PACE, _ALONE * share + between + rest, spec.ctas_per_sm, LATENCY)
    return Work(blocks, nbytes, code, warps=warps)
