"""The kernels of wgrad for Maxwell, and what those of sm_90 share with them."""

from dataclasses import dataclass

from ..spec import TileKernel

GROUP = 8
"""Images of one pixel that an iteration consumes."""

DOC = """Gradient of filters by tiles of elements e = (c, r, s) and filters, or, split, parts of its sums: see
filters.inc. Grid: x, y = tiles of what lies innermost in the result and of the other, z = groups of the layer * splits,
splits fastest."""


@dataclass(frozen=True)
class FiltersKernel(TileKernel):
    """`tile`: elements and filters. `inner`: which of them lies innermost in the result, "e" or "k". `between`: issue
    slots of a warp between two pixels. `ctas_per_sm`: of machine code
    for one architecture."""

    inner: str
    between: int
    ctas_per_sm: int = 0

    @property
    def layout(self) -> str:
        """Of the problems whose filters lie like its results."""
        return "CHWN" if self.inner == "k" else "NCHW"

    def oriented(self, elements: int, filters: int) -> tuple[int, int]:
        """What belongs to its rows and to its columns; and the other way round."""
        return (elements, filters) if self.inner == "k" else (filters, elements)


def _kernel(inner: str) -> FiltersKernel:
    return FiltersKernel(f"sconv_filters_64x64_{inner}", "maxwell/conv_filters_64x64.sass", DOC, (64, 64), (521, 535),
                         600, inner, 28)


FILTERS_K, FILTERS_E = (_kernel(inner) for inner in "ke")
KERNELS = (FILTERS_K, FILTERS_E)
