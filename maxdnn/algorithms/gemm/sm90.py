"""The matrix product kernels of sm_90. Operands are read by address, not as textures."""

from .maxwell import DOC, LAYOUTS, WAVE_ENDS, ProductKernel

_FLOWING = 1500  # clocks of a wave without issue, in which CTAs of two warps begin and end one by one; timed on an H200


def _native(high: int, tile: int, slices: int, layout: str) -> ProductKernel:
    """Machine code of sm_90, `alone` and `pace` as timed on an H200. An operand with k innermost takes six stores
    more, twelve of a warp with a tile of 64 columns of its own."""
    a, b = layout[0] == "n", layout[1] == "t"
    source = f"{high}x{tile}"
    warps, pace, wave_ends = 8, 0.89, WAVE_ENDS[tile]
    if tile == 128:
        slots, alone, pace = (1092 + 6 * (a + b), 440 + 22 * (a + b)), 1400, 0.95
    elif slices == 1:
        slots, alone, warps, pace, wave_ends = (564 + 6 * (a + b), 330 + 22 * (a + b)), 700, 16, 0.84, _FLOWING
    elif high == 64:
        slots, alone = (1100 + 12 * (a + b), 460 + 35 * (a + b) + {2: 110, 4: 170}[slices]), 1370
    else:
        slots, alone, warps, pace = (568 + 6 * a + 12 * b, 560 + 22 * a + 35 * b), 810, 12, 0.8
    return ProductKernel(f"sm90_product_{source}" + f"x{slices}" * (slices > 1) + f"_{layout}",
                         f"sm90/product_{source}.sass", DOC, tile, layout, slots, (0, 0), (0, 0), alone, slots[0],
                         warps, slices, pace, 0 if high == tile else high, wave_ends)


NATIVE = tuple(_native(*tile, slices, layout)
               for tile, slices in (((128, 128), 1), ((64, 64), 1), ((64, 64), 2), ((64, 64), 4), ((32, 64), 4))
               for layout in LAYOUTS)
