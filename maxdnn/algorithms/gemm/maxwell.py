"""The kernels of matrix products for Maxwell, and what those of sm_90 share with them."""

from dataclasses import dataclass

from ...build.interface import KernelSpec
from ..common.schedule import SPLITS

GROUP = 8
"""Values of k that one loop iteration consumes."""

WAVE_ENDS = {64: 6000, 128: 10000}
"""Clocks of a wave of CTAs in which none issue, by tile; timed on an H200."""

_WARPS = 16  # of an SM at a time: the kernels have 128 registers
TRANSLATED_CTAS = {64: 6, 128: 2}
"""CTAs per SM of translations: ptxas 12.9 takes 142 registers for sm_90, so a scheduler holds 3 warps."""

DOC = """Matrix products of a batch by tiles, or, split, parts of their sums: see product.inc. Grid:
x = ceil(n / columns of a tile), y = ceil(m / rows), z = matrices * splits, splits fastest; with a tail, y = rows of
whole tiles + parts * rows of the tail's."""


@dataclass(frozen=True)
class ProductKernel(KernelSpec):
    """`tile`: columns of C of a block, and rows, if `high` is 0. `layout`: "n" or "t" for A and for B, as they lie or
    transposed. `slots`: issue slots of a warp for one loop iteration and for the rest. `alone`: clocks of an iteration
    of a block that has an SM for itself and waits for its texels, simulated on gm204. `translated`: slots of the loop
    as ptxas 12.9 makes it of the translation for sm_90; a few more or less by what is transposed. `warps`: of an SM at
    a time. `slices`: of a block, each of which has the sums of a part of k; they are added through shared memory.
    `pace`: slots that a scheduler of a filled SM issues in a clock, timed on an H200; `wave_ends`: clocks of a wave of
    CTAs when none issue, likewise; `first_ends`: of the first one, on sm_90. `between`: slots of a warp for a second
    run of a sum, and for each one more; `waits`: clocks of a block alone for the same, likewise; on sm_90 runs are
    launches of their own."""

    tile: int
    layout: str
    slots: tuple[int, int]
    between: tuple[int, int]
    waits: tuple[int, int]
    alone: int
    translated: int
    warps: int = _WARPS
    slices: int = 1
    pace: float = 1
    high: int = 0
    wave_ends: int = 0
    first_ends: int = 0

    @property
    def rows(self) -> int:
        """Rows of C of a block."""
        return self.high or self.tile

    @property
    def label(self) -> str:
        """In names of the candidates of other families."""
        tile = f"{self.high}x{self.tile}" if self.high else f"{self.tile}"
        return tile + f"x{self.slices}" * (self.slices > 1) + "_sm90" * bool(self.arch)

    @property
    def ctas_per_sm(self) -> int:
        return self.warps * 32 // self.threads

    @property
    def staggered(self) -> float:
        """As of `Cost`: three blocks of an SM end one after another."""
        return float(self.ctas_per_sm == 3)

    def share(self, k: int, splits: int) -> int:
        """Groups of a slice for sums of `k` products."""
        groups = -(-k // GROUP)
        return -(-groups // (splits * self.slices))

    def splits(self, k: int) -> tuple[int, ...]:
        """In how many parts the sums of `k` products can be computed by blocks, none of which is without any."""
        return tuple(n for n in SPLITS if -(-k // (GROUP * self.slices * self.share(k, n))) == n)


def _kernel(tile: int, layout: str, slots: tuple[int, int], between: tuple[int, int],
            transposing: int) -> ProductKernel:
    """`transposing`: further slots for each operand that memory holds with k innermost; of them between runs, a store
    for each of 32 values of k."""
    (loop, rest), transposed = slots, (layout[0] == "n") + (layout[1] == "t")
    stores = (6 if tile == 64 else 3) * transposed
    return ProductKernel(f"sproduct_{tile}x{tile}_{layout}", f"maxwell/product_{tile}x{tile}.sass", DOC, tile, layout,
                         (loop, rest + transposing * transposed), (between[0] + stores, between[1] + stores),
                         *(((7000, 6150), 1049, 576) if tile == 128 else ((4250, 3500), 768, 597)),
                         wave_ends=WAVE_ENDS[tile])


LAYOUTS = ("nn", "nt", "tn", "tt")
KERNELS = (*(_kernel(128, layout, (519, 273), (301, 231), 11) for layout in LAYOUTS),
           *(_kernel(64, layout, (521, 287), (307, 237), 20) for layout in LAYOUTS))
