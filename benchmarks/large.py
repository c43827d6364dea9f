"""The layers of suite.py --suite large: large and flat filters, and few channels, as networks for super-resolution,
signals and large kernels have them."""

from collections.abc import Iterator
from typing import NamedTuple

from maxdnn import ConvShape


class Layer(NamedTuple):
    """`taps`: rows and columns; padding keeps the size of the maps. `depthwise`: a filter for each channel."""

    channels: int
    size: int
    filters: int
    taps: tuple[int, int]
    depthwise: bool = False

    @property
    def name(self) -> str:
        r, s = self.taps
        return f"large-{self.channels}-{self.size}-{self.filters}-{r}x{s}" + "-depthwise" * self.depthwise

    def shape(self, n: int) -> ConvShape:
        """At minibatch n."""
        r, s = self.taps
        return ConvShape(n, self.channels, self.size, self.size, self.filters, r, s, 1, (r // 2, s // 2), 1,
                         self.channels if self.depthwise else 1)


LAYERS = tuple(Layer(c, size, k, taps) for taps, layers in (
    ((5, 5), ((8, 64, 8), (16, 64, 16), (24, 48, 24), (32, 32, 32), (48, 28, 48), (64, 28, 64), (96, 27, 128),
              (128, 14, 128), (192, 14, 64), (256, 14, 256))),
    ((7, 7), ((16, 56, 16), (32, 56, 32), (64, 28, 64), (128, 14, 128))),
    ((9, 9), ((32, 32, 32), (64, 28, 64))),
    ((11, 11), ((32, 56, 32), (64, 28, 64))),
    ((13, 13), ((32, 32, 32), (64, 28, 64))),
    ((21, 21), ((32, 48, 32),)),
    ((31, 31), ((32, 64, 32),)),
    ((1, 3), ((64, 56, 64), (192, 17, 192))),
    ((3, 1), ((64, 56, 64),)),
    ((1, 5), ((64, 32, 64),)),
    ((5, 1), ((64, 32, 64),)),
    ((1, 7), ((64, 56, 64), (192, 17, 192))),
    ((7, 1), ((64, 56, 64), (192, 17, 192))),
    ((5, 5), ((1, 64, 16), (3, 64, 32), (64, 64, 3), (16, 32, 1))),
    ((7, 7), ((3, 64, 64), (8, 56, 32))),
    ((9, 9), ((1, 64, 64), (64, 64, 3))),
    ((3, 3), ((1, 64, 32), (3, 64, 64), (8, 64, 64), (16, 64, 16), (64, 64, 3))),
) for c, size, k in layers) + tuple(Layer(c, size, c, taps, True) for taps, c, size in (
    ((31, 31), 128, 32), ((31, 31), 64, 56), ((7, 7), 96, 56), ((7, 7), 384, 14), ((13, 13), 128, 28)))


def shapes(n: int) -> Iterator[tuple[str, ConvShape]]:
    """(name, layer) at minibatch n."""
    for layer in LAYERS:
        yield layer.name, layer.shape(n)
