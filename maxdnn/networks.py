"""Networks that people run, each described once: a function that says which operations follow each other. Given sizes
it yields the convolutions (here); given tensors it computes (maxdnn.torch.networks).

Sources: AlexNet, Krizhevsky 2014 ("one weird trick", one tower); VGG-16, Simonyan and Zisserman 2014, table 1, D;
ResNet-50, He et al. 2015, table 1, the stride in the 3x3 convolution; the Inception-like network has the modules of
Szegedy et al. 2015 (factorised 1x7 and 7x1 filters), fewer of each; the U-Net, Ronneberger et al. 2015, with padding
and, at the bottom, dilated filters (Yu and Koltun 2015)."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from .errors import ShapeError
from .problem.shape import ConvShape

Pair = int | tuple[int, int]


class Operations(Protocol):
    """What a network is made of. `x` is whatever the operations pass on."""

    def conv(self, x: Any, filters: int, size: Pair, stride: int = 1, padding: Pair = 0, dilation: int = 1,
             bias: bool = True) -> Any: ...
    def norm(self, x: Any) -> Any: ...
    def relu(self, x: Any) -> Any: ...
    def max_pool(self, x: Any, size: int, stride: int, padding: int = 0) -> Any: ...
    def mean_pool(self, x: Any, size: int, stride: int, padding: int = 0) -> Any: ...
    def twice(self, x: Any) -> Any: ...
    def join(self, *parts: Any) -> Any: ...
    def add(self, x: Any, y: Any) -> Any: ...
    def linear(self, x: Any, outputs: int) -> Any: ...


def alexnet(o: Operations, x: Any) -> Any:
    x = o.max_pool(o.relu(o.conv(x, 64, 11, 4, 2)), 3, 2)
    x = o.max_pool(o.relu(o.conv(x, 192, 5, 1, 2)), 3, 2)
    for filters in (384, 256, 256):
        x = o.relu(o.conv(x, filters, 3, 1, 1))
    x = o.max_pool(x, 3, 2)
    return o.linear(o.relu(o.linear(o.relu(o.linear(x, 4096)), 4096)), 1000)


def vgg16(o: Operations, x: Any) -> Any:
    for filters, times in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(times):
            x = o.relu(o.conv(x, filters, 3, 1, 1))
        x = o.max_pool(x, 2, 2)
    return o.linear(o.relu(o.linear(o.relu(o.linear(x, 4096)), 4096)), 1000)


def _normed(o: Operations, x: Any, filters: int, size: Pair, stride: int = 1, padding: Pair = 0) -> Any:
    return o.relu(o.norm(o.conv(x, filters, size, stride, padding, bias=False)))


def resnet50(o: Operations, x: Any) -> Any:
    x = o.max_pool(_normed(o, x, 64, 7, 2, 3), 3, 2, 1)
    for width, times, first in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(times):
            stride = first if number == 0 else 1
            inner = _normed(o, _normed(o, x, width, 1), width, 3, stride, 1)
            inner = o.norm(o.conv(inner, 4 * width, 1, bias=False))
            if number == 0:
                x = o.norm(o.conv(x, 4 * width, 1, stride, bias=False))
            x = o.relu(o.add(inner, x))
    return o.linear(o.mean_pool(x, 7, 1), 1000)


def inception(o: Operations, x: Any) -> Any:
    x = _normed(o, _normed(o, _normed(o, x, 32, 3, 2), 32, 3), 64, 3, 1, 1)
    x = _normed(o, _normed(o, o.max_pool(x, 3, 2), 80, 1), 192, 3)
    x = o.max_pool(x, 3, 2)
    for pooled in (32, 64):
        five = _normed(o, _normed(o, x, 48, 1), 64, 5, 1, 2)
        three = _normed(o, _normed(o, _normed(o, x, 64, 1), 96, 3, 1, 1), 96, 3, 1, 1)
        x = o.join(_normed(o, x, 64, 1), five, three, _normed(o, o.mean_pool(x, 3, 1, 1), pooled, 1))
    three = _normed(o, _normed(o, _normed(o, x, 64, 1), 96, 3, 1, 1), 96, 3, 2)
    x = o.join(_normed(o, x, 384, 3, 2), three, o.max_pool(x, 3, 2))
    for width in (128, 192):
        seven = _normed(o, _normed(o, _normed(o, x, width, 1), width, (1, 7), 1, (0, 3)), 192, (7, 1), 1, (3, 0))
        twice = _normed(o, _normed(o, x, width, 1), width, (7, 1), 1, (3, 0))
        twice = _normed(o, _normed(o, twice, width, (1, 7), 1, (0, 3)), width, (7, 1), 1, (3, 0))
        twice = _normed(o, twice, 192, (1, 7), 1, (0, 3))
        x = o.join(_normed(o, x, 192, 1), seven, twice, _normed(o, o.mean_pool(x, 3, 1, 1), 192, 1))
    return o.linear(o.mean_pool(x, 17, 1), 1000)


def unet(o: Operations, x: Any) -> Any:
    kept = []
    for filters in (32, 64, 128):
        for _ in range(2):
            x = o.relu(o.conv(x, filters, 3, 1, 1))
        kept.append(x)
        x = o.max_pool(x, 2, 2)
    for dilation in (1, 2, 4, 8):
        x = o.relu(o.conv(x, 256, 3, 1, dilation, dilation))
    for filters, across in zip((128, 64, 32), reversed(kept), strict=True):
        x = o.join(o.relu(o.conv(o.twice(x), filters, 3, 1, 1)), across)
        for _ in range(2):
            x = o.relu(o.conv(x, filters, 3, 1, 1))
    return o.conv(x, 2, 1)


Network = Callable[[Operations, Any], Any]
NETWORKS: Mapping[str, tuple[Network, tuple[int, int, int]]] = {  # and the channels, rows and columns of an image
    "alexnet": (alexnet, (3, 224, 224)),
    "vgg16": (vgg16, (3, 224, 224)),
    "resnet50": (resnet50, (3, 224, 224)),
    "inception": (inception, (3, 299, 299)),
    "unet": (unet, (3, 192, 192)),
}


def convolutions(name: str, n: int) -> list[tuple[ConvShape, bool]]:
    """Every convolution of a network at minibatch n, in the order of a forward pass, and whether it has a bias. Raises
    ShapeError for a name that is not in NETWORKS."""
    if name not in NETWORKS:
        raise ShapeError(f"network must be one of {', '.join(NETWORKS)} (got {name!r})")
    network, image = NETWORKS[name]
    sizes = _Sizes(n)
    network(sizes, image)
    return sizes.found


class _Sizes:
    """The operations on (channels, rows, columns)."""

    def __init__(self, n: int) -> None:
        self._n = n
        self.found: list[tuple[ConvShape, bool]] = []

    def conv(self, x: Any, filters: int, size: Pair, stride: int = 1, padding: Pair = 0, dilation: int = 1,
             bias: bool = True) -> Any:
        r, s = (size, size) if isinstance(size, int) else size
        c, h, w = x
        shape = ConvShape(self._n, c, h, w, filters, r, s, stride, padding, dilation)
        self.found.append((shape, bias))
        return filters, shape.P, shape.Q

    def max_pool(self, x: Any, size: int, stride: int, padding: int = 0) -> Any:
        return (x[0], *((n + 2 * padding - size) // stride + 1 for n in x[1:]))

    mean_pool = max_pool

    def norm(self, x: Any) -> Any:
        return x

    relu = norm

    def twice(self, x: Any) -> Any:
        return x[0], 2 * x[1], 2 * x[2]

    def join(self, *parts: Any) -> Any:
        assert len({part[1:] for part in parts}) == 1, f"parts of different sizes: {parts}"
        return (sum(part[0] for part in parts), *parts[0][1:])

    def add(self, x: Any, y: Any) -> Any:
        assert x == y, f"{x} and {y} do not add up"
        return x

    def linear(self, x: Any, outputs: int) -> Any:
        return outputs, 1, 1
