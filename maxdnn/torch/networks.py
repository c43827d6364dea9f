"""The networks of maxdnn.networks as PyTorch modules."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..networks import NETWORKS, Pair


class Network(nn.Module):
    """A network by name, float32, with random weights of He's variance. Takes images of (N, *self.image)."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.describe, self.image = NETWORKS[name]
        self.parts = nn.ModuleList()
        with torch.no_grad():
            self.describe(_Making(self.parts), torch.zeros(1, *self.image, device="meta"))
        for part in self.parts:
            if isinstance(part, (nn.Conv2d, nn.Linear)):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        return self.describe(_Running(self.parts), images)


class _Running:
    """The operations on tensors; those with weights are taken from the list in the order they are met."""

    def __init__(self, parts: nn.ModuleList) -> None:
        self.parts, self.at = parts, 0

    def next(self, x: Tensor) -> Tensor:
        part = self.parts[self.at]
        self.at += 1
        return part(x)

    def conv(self, x: Tensor, filters: int, size: Pair, stride: int = 1, padding: Pair = 0, dilation: int = 1,
             bias: bool = True) -> Tensor:
        return self.next(x)

    def norm(self, x: Tensor) -> Tensor:
        return self.next(x)

    def linear(self, x: Tensor, outputs: int) -> Tensor:
        return self.next(x.flatten(1))

    def relu(self, x: Tensor) -> Tensor:
        return F.relu(x)

    def max_pool(self, x: Tensor, size: int, stride: int, padding: int = 0) -> Tensor:
        return F.max_pool2d(x, size, stride, padding)

    def mean_pool(self, x: Tensor, size: int, stride: int, padding: int = 0) -> Tensor:
        return F.avg_pool2d(x, size, stride, padding)

    def twice(self, x: Tensor) -> Tensor:
        return F.interpolate(x, scale_factor=2)

    def join(self, *parts: Tensor) -> Tensor:
        return torch.cat(parts, 1)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class _Making(_Running):
    """Makes what a network needs as it runs through it, on tensors without memory."""

    def conv(self, x: Tensor, filters: int, size: Pair, stride: int = 1, padding: Pair = 0, dilation: int = 1,
             bias: bool = True) -> Tensor:
        return self._made(nn.Conv2d(x.shape[1], filters, size, stride, padding, dilation, bias=bias), x)

    def norm(self, x: Tensor) -> Tensor:
        self.parts.append(nn.BatchNorm2d(x.shape[1]))
        return x

    def linear(self, x: Tensor, outputs: int) -> Tensor:
        x = x.flatten(1)
        return self._made(nn.Linear(x.shape[1], outputs), x)

    def _made(self, part: Any, x: Tensor) -> Tensor:
        self.parts.append(part)
        with torch.device("meta"):
            shadow = type(part)(*_arguments(part))
        return shadow(x)


def _arguments(part: Any) -> Any:
    if isinstance(part, nn.Linear):
        return part.in_features, part.out_features
    return part.in_channels, part.out_channels, part.kernel_size, part.stride, part.padding, part.dilation
