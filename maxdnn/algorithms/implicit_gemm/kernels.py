"""The Maxwell kernels of implicit GEMM: their tiles, the table that each reads its iterations from and what a launch of
them costs."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ...planning.cost import SCHEDULERS, Cost, Work
from ...planning.plan import FLOAT_BYTES
from ..common.correlation import Correlation
from ..common.layout import Layout
from ..common.limits import CONSTANT_BYTES, TEXEL_FLOATS
from ..spec import LATENCY, TileKernel

TILE_ELEMENTS = 8
"""Patch elements that one loop iteration consumes."""

BEYOND = 0x40000000
"""Added to every offset of the table and taken from every pixel's base: an offset alone lies beyond every texture."""

OUT_OF_RANGE = 0x80000000
"""Offset of an element that does not exist, beyond every texture from every pixel."""

NO_ROW = 0x20000000
"""Row of filters that do not exist."""

MOST_TAPS = 16
"""Rows and columns of a filter that the test of taps reaches."""

PIXELS_FIRST, TESTS = 4, 8
"""Flags of the kernel, beside those of the epilogue."""

# Read off simulations on gm204 of layers whose maps lie in L2; they do not follow from the kernels alone. With them the
# estimates for the paper's ten layers at N = 1, 4 and 16, in both layouts, are 0.86 to 1.03 of the simulated calls.
_ENDS = 600  # clocks in which a warp waits for its first texels and last stores and no other warp issues
_ALONE = {1: 800, 2: 800, 8: 1049}  # clocks of an iteration of a CTA that is alone on its SM, by warps of the CTA
_FILLED = {1: 0.93, 2: 1.0, 8: 1.0}  # share of the issue slots that a full SM uses, by warps of a CTA
_SCHEDULER_REGISTERS = 16384  # of compute capability 5.2 and 9.0 (CUDA C Programming Guide)
_SHARED_BYTES = 98304  # of an SM, allocated in units of 256; compute capability 5.2 (the same)
# Factor of a translation's issue slots where images are innermost and each element has a tap of its own: a warp's fetch
# then touches the cache lines of as many taps. Measured, not derived: AlexNet conv1, C,H,W,N, N = 128, H200.
_SCATTERED = 1.9


def _warps(registers: int) -> int:
    """How many warps an SM holds by their registers, which a scheduler allocates in units of 256 for each warp."""
    return _SCHEDULER_REGISTERS // (32 * -(-registers // 8) * 8) * SCHEDULERS


@dataclass(frozen=True)
class PixelKernel(TileKernel):
    """`translated_registers`: of a thread, as ptxas 12.9 makes it of the translation for sm_90. `kcrs`: reads filters
    K,C,R,S, else C,R,S,K. `tests`: which taps are tested to lie inside the map: "none", "one" for all elements of an
    iteration, "each"."""

    translated_registers: int
    kcrs: bool = False
    tests: str = "one"

    @property
    def halves(self) -> int:
        return 2 if self.warps == 8 else 1

    @cached_property
    def record(self) -> np.dtype:
        """What the table says of an iteration; with 256 threads in two halves, of four elements each."""
        share = TILE_ELEMENTS // self.halves
        masks = [("masks", "<u4", share)] if self.tests == "each" else []
        return np.dtype([("offsets", "<u4", share), *masks, ("taps", "<u4"), ("row", "<i4")])

    @property
    def record_bytes(self) -> int:
        return self.halves * self.record.itemsize

    @property
    def records(self) -> int:
        """Records that constant memory holds."""
        return CONSTANT_BYTES // self.record_bytes

    @cached_property
    def ctas_per_sm(self) -> int:
        """Blocks of an SM at a time, by registers and shared memory."""
        return min(_warps(self.max_registers) // self.warps, _SHARED_BYTES // (-(-self.shared_bytes // 256) * 256))

    @property
    def translated_ctas_per_sm(self) -> int:
        """Likewise of the translation, for which shared memory is no limit."""
        return _warps(self.translated_registers) // self.warps

    def one_test(self, tested: bool) -> bool:
        """Whether an iteration is 8 channels of a tap, for maps whose taps are tested or not; else any elements in a
        row, the first iteration the fewer ones that are left."""
        return tested and self.tests == "one"


def _kernel(tile: tuple[int, int], slots: tuple[int, int], translated: tuple[int, int], *, kcrs: bool = False,
            tests: str = "one") -> PixelKernel:
    """`translated`: issue slots of the loop and registers of a thread."""
    j, k = tile
    name = f"sconv_pixels_K{k}_J{j}" + "_kcrs" * kcrs + "_taps" * (tests == "each")
    return PixelKernel(name, f"maxwell/pixels_{j}x{k}.sass", f"""Forward convolution, {j} pixels x {k} filters a
CTA, or a part of each sum; see pixels.inc. Grid: x = ceil(j / {j}), y = groups * ceil(k / {k}), z = splits.""",
                       tile, slots, *translated, kcrs, tests)


PIXELS_64X64 = _kernel((64, 64), (527, 641), (647, 141))

KERNELS = (
    PIXELS_64X64,
    _kernel((64, 64), (534, 652), (666, 160), tests="each"),
    _kernel((64, 64), (526, 598), (644, 142), kcrs=True, tests="none"),
    _kernel((64, 64), (534, 658), (676, 156), kcrs=True, tests="each"),
    _kernel((32, 64), (528, 648), (658, 154)),
    _kernel((32, 64), (527, 611), (665, 152), kcrs=True, tests="none"),
    _kernel((32, 64), (535, 671), (695, 162), kcrs=True, tests="each"),
    _kernel((64, 32), (534, 665), (683, 162), tests="none"),
    _kernel((128, 32), (534, 669), (675, 152), tests="none"),
    _kernel((128, 128), (523, 632), (612, 127)),
    _kernel((128, 128), (522, 586), (610, 124), kcrs=True, tests="none"),
    _kernel((128, 128), (526, 641), (629, 128), kcrs=True, tests="each"),
)


@dataclass(frozen=True)
class Maps:
    """How the maps lie where the kernel reads them. `start`: the element of tap (0, 0) of the first pixel. `tests`:
    whether taps may lie outside. `copied`: into a zero-padded map, with a `margin` of rows above and columns left."""

    layout: Layout
    start: int
    tests: bool
    copied: bool
    margin: tuple[int, int]


def iterations(s: Correlation, maps: Maps, spec: PixelKernel) -> int:
    if spec.one_test(maps.tests):
        return -(-s.C // s.groups // TILE_ELEMENTS) * s.R * s.S
    return -(-s.patch // TILE_ELEMENTS)


def tail(s: Correlation, maps: Maps, spec: PixelKernel) -> int:
    """Elements of the first iteration, if they are fewer than in the others; else 0."""
    return 0 if spec.one_test(maps.tests) else s.patch % TILE_ELEMENTS


def row_step(s: Correlation, maps: Maps, spec: PixelKernel) -> int:
    """Rows of filters C,R,S,K from one element of an iteration to the next."""
    return s.R * s.S if spec.one_test(maps.tests) else 1


@lru_cache(maxsize=16)  # all splits of a layer have the same
def table(s: Correlation, maps: Maps, spec: PixelKernel, row_texels: int) -> np.ndarray:
    """`spec.record` for every iteration and half. With one test for an iteration it takes 8 channels of one tap,
    all taps of 8 channels in turn, so that neighbouring fetches meet the same lines; else any 8 elements in a row, and
    the first one what is left of them at the end, where no filters follow. `row_texels`: of a row of filters C,R,S,K.
    """
    c = s.C // s.groups
    if spec.one_test(maps.tests):
        groups = -(-c // TILE_ELEMENTS)
        first, r, col = (x[:, None] for x in np.unravel_index(np.arange(groups * s.R * s.S), (groups, s.R, s.S)))
        channel = TILE_ELEMENTS * first + np.arange(TILE_ELEMENTS)
        exists = channel < c
    else:
        element = np.arange(s.patch + -s.patch % TILE_ELEMENTS).reshape(-1, TILE_ELEMENTS)
        element = np.roll(element, 1 if s.patch % TILE_ELEMENTS else 0, axis=0)
        exists = element < s.patch
        channel, r, col = element // (s.R * s.S), element // s.S % s.R, element % s.S
    offsets = BEYOND + (
        channel * maps.layout["C"] + r * s.dil_h * maps.layout["H"] + col * s.dil_w * maps.layout["W"])
    masks = np.broadcast_to((1 << r | 1 << MOST_TAPS + col) * maps.tests, offsets.shape)
    first_row = ((channel * s.R + r) * s.S + col)[:, :1]
    records = np.zeros((len(offsets), spec.halves), spec.record)
    records["offsets"] = np.where(exists, offsets, OUT_OF_RANGE).reshape(records["offsets"].shape)
    if spec.tests == "each":
        records["masks"] = masks.reshape(records["offsets"].shape)
    elif spec.tests == "one":
        records["taps"] = masks[:, :1]
    records["row"] = first_row // TEXEL_FLOATS if spec.kcrs else first_row * row_texels
    records.flags.writeable = False
    return records


def nothing(spec: PixelKernel, count: int) -> np.ndarray:
    """Iterations of elements that do not exist."""
    records = np.zeros((count, spec.halves), spec.record)
    records["offsets"], records["row"] = OUT_OF_RANGE, NO_ROW
    return records


def work(s: Correlation, spec: PixelKernel, maps: Maps, grid: tuple[int, int, int], loops: float, pixels: int) -> Work:
    """All slots of all warps; maps, filters and outputs once. `loops`: iterations of all splits together."""
    loop, rest = spec.slots
    loops /= grid[2]
    slots, translated = ((per * loops + rest + _ENDS) / _FILLED[spec.warps] for per in (loop, spec.translated))
    if spec.tests == "each" and maps.layout["N"] == 1:
        translated *= _SCATTERED
    once = s.C * s.H * s.W * s.N + s.patch * s.K + grid[2] * pixels * s.K
    alone = _ALONE[spec.warps] * loops + rest + _ENDS
    code = Cost(spec.warps * slots, alone, spec.ctas_per_sm, LATENCY)
    translation = code.translated(spec.warps * translated, ctas_per_sm=spec.translated_ctas_per_sm)
    return Work(grid[0] * grid[1] * grid[2], FLOAT_BYTES * once, code, translation, spec.warps)
