"""The kernels of depthwise convolution and of its wgrad."""

from dataclasses import dataclass

from ...build.interface import KernelSpec
from ...problem.shape import ConvShape
from ..common.correlation import Correlation

THREADS = 128
ROWS = 4
"""Of gradients that a thread of wgrad takes at a time."""

IMAGES_FIRST = 4
"""Flag of the kernels, beside those of the epilogue."""


@dataclass(frozen=True)
class GroupKernel(KernelSpec):
    """`filter`: rows and columns of the filters it is for, None for any. `stride`: map elements from one output to the
    next, in steps of the filter's own taps; 0 for any. `tile`: rows, columns and images of O that a thread computes.
    `adjacent`: taps of a row, and columns of O, are neighbours in memory. `slots`: issue slots of a warp for a tap, a
    row and a channel of a filter, and for all the rest."""

    filter: tuple[int, int] | None
    stride: int
    tile: tuple[int, int, int]
    adjacent: bool
    slots: tuple[int, int, int, int]

    def serves(self, x: Correlation, chwn: bool) -> bool:
        if self.filter is None:
            return True
        if self.tile[2] > x.N:
            return False
        steps = x.dil_w * (x.N if chwn else 1), x.every[1] * (x.N if chwn else 1)
        return (self.filter == (x.R, x.S) and x.stride == (self.stride * x.dil_h, self.stride * x.dil_w)
                and (steps == (1, 1) or not self.adjacent))


_DOC = """Convolution in groups of few channels. Grid: x = ceil(count / 128)."""

KERNELS = (*(GroupKernel(f"sdepthwise_{name}", f"maxwell/depthwise_{name[:3]}.sass", _DOC, (int(name[0]),) * 2,
                          int(name[5]), tile, "row" in name, (0, 0, *slots)) for name, tile, slots in (
    ("3x3_s1", (7, 2, 1), (359, 239)),
    ("3x3_s1_row", (7, 1, 1), (205, 176)),
    ("3x3_s1_row2", (7, 1, 2), (340, 233)),
    ("3x3_s2", (7, 2, 1), (542, 242)),
    ("3x3_s2_row", (7, 1, 1), (281, 176)),
    ("3x3_s2_row2", (7, 1, 2), (442, 233)),
    ("5x5_s1", (7, 2, 1), (773, 245)),
    ("5x5_s1_row", (7, 1, 1), (437, 182)),
    ("5x5_s1_row2", (7, 1, 2), (718, 239)),
    ("5x5_s2", (4, 2, 1), (663, 206)),
    ("5x5_s2_row", (7, 1, 1), (527, 182)),
    ("5x5_s2_row2", (4, 1, 2), (565, 197)),
    ("7x7_s1", (4, 2, 1), (934, 209)),
    ("7x7_s1_row", (7, 1, 1), (765, 188)),
    ("7x7_s1_row2", (4, 1, 2), (869, 203)),
)), GroupKernel("sdepthwise_any", "maxwell/depthwise_any.sass", _DOC, None, 0, (4, 1, 1), False, (38, 12, 8, 152)))


@dataclass(frozen=True)
class GroupFiltersKernel(KernelSpec):
    """`tile`: rows and columns of the taps of a block. `stride`: rows of the map from one row of gradients to the next,
    in rows of the filter; 0 for any. `adjacent`: taps of a row are neighbours in memory. `slots`: issue slots of a warp
    for a round, in which each thread takes ROWS rows of one column, and for all the rest."""

    tile: tuple[int, int]
    stride: int
    adjacent: bool
    slots: tuple[int, int]

    def serves(self, s: ConvShape, chwn: bool) -> bool:
        if self.adjacent and s.dil_w * (s.N if chwn else 1) != 1:
            return False
        return not self.stride or (self.tile == (s.R, s.S) and s.str_h == self.stride * s.dil_h)


_WGRAD_DOC = """Gradient of filters in groups of few channels, or parts of its sums: see depthwise_filters.inc. Grid:
x = filters, y = splits, z = channels of a group * tiles of a filter."""

WGRAD_KERNELS = tuple(GroupFiltersKernel(f"sdepthwise_filters_{name}", f"maxwell/depthwise_filters_{name[:3]}.sass",
                                         _WGRAD_DOC, tile, stride, name.endswith("row"), slots)
                      for name, tile, stride, slots in (
    ("3x3_s1", (3, 3), 1, (215, 246)),
    ("3x3_s1_row", (3, 3), 1, (189, 246)),
    ("3x3_s2", (3, 3), 2, (261, 246)),
    ("3x3_s2_row", (3, 3), 2, (223, 246)),
    ("5x5_s1", (5, 5), 1, (394, 438)),
    ("5x5_s1_row", (5, 5), 1, (324, 438)),
    ("5x5_s2", (5, 5), 2, (467, 438)),
    ("5x5_s2_row", (5, 5), 2, (373, 438)),
    ("any", (1, 4), 0, (190, 186)),
))
