"""The matrix product kernels of sm_90. Operands are read by address, not as textures."""

from .maxwell import DOC, LAYOUTS, ProductKernel


def _native(high: int, tile: int, slices: int, layout: str) -> ProductKernel:
    """Machine code of sm_90, `alone`, `pace`, `first_ends` and `wave_ends` as timed on an H200
    (benchmarks/rankings.py). An operand with k innermost takes six stores more, twelve of a warp with a tile of 64
    columns of its own."""
    a, b = layout[0] == "n", layout[1] == "t"
    source = f"{high}x{tile}"
    warps, pace = 8, 0.89
    if tile == 128:
        slots, alone, pace, ends = (1092 + 6 * (a + b), 440 + 22 * (a + b)), 1400, 0.95, (6000, 6000)
    elif slices == 1:  # CTAs of two warps
        slots, alone, warps, pace, ends = (564 + 6 * (a + b), 330 + 22 * (a + b)), 700, 16, 0.84, (6000, 1500)
    elif high == 64:
        slots, alone = (1100 + 12 * (a + b), 460 + 35 * (a + b) + {2: 110, 4: 170}[slices]), 1370
        ends = {2: 7000, 4: 8000}[slices], 5000
    else:
        slots, alone, warps, pace, ends = (568 + 6 * a + 12 * b, 560 + 22 * a + 35 * b), 810, 12, 0.8, (6000, 2000)
    return ProductKernel(f"sm90_product_{source}" + f"x{slices}" * (slices > 1) + f"_{layout}",
                         f"sm90/product_{source}.sass", DOC, tile, layout, slots, (0, 0), (0, 0), alone, slots[0],
                         warps, slices, pace, 0 if high == tile else high, ends[1], ends[0])


NATIVE = tuple(_native(*tile, slices, layout)
               for tile, slices in (((128, 128), 1), ((64, 64), 1), ((64, 64), 2), ((64, 64), 4), ((32, 64), 4))
               for layout in LAYOUTS)
