"""A model for `maxdnn bench --model unet:unet`, run in this folder or with it on PYTHONPATH: the U-Net of Ronneberger
et al. 2015 with padding and batch norms, transposed convolutions on its way up, for images whose sides are multiples of
16."""

import itertools

import torch
from torch import Tensor, nn

WIDTHS = 64, 128, 256, 512, 1024


class UNet(nn.Module):
    """(N, 3, H, W) to two classes a pixel, (N, 2, H, W). `widths`: channels of each level, largest maps first."""

    def __init__(self, widths: tuple[int, ...] = WIDTHS) -> None:
        super().__init__()
        self.down = nn.ModuleList(_twice(c, k) for c, k in zip((3, *widths), widths, strict=False))
        self.up = nn.ModuleList(nn.ConvTranspose2d(c, k, 2, 2) for k, c in itertools.pairwise(widths))
        self.joined = nn.ModuleList(_twice(2 * k, k) for k in widths[:-1])
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Of images."""
        maps = []
        for number, level in enumerate(self.down):
            x = level(x if number == 0 else nn.functional.max_pool2d(x, 2))
            maps.append(x)
        for number in reversed(range(len(self.up))):
            x = self.joined[number](torch.cat((maps[number], self.up[number](x)), 1))
        out: Tensor = self.last(x)
        return out


def _twice(c: int, k: int) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(c, k, 3, padding=1, bias=False), nn.BatchNorm2d(k), nn.ReLU(),
                         nn.Conv2d(k, k, 3, padding=1, bias=False), nn.BatchNorm2d(k), nn.ReLU())


def unet() -> UNet:
    """The published widths."""
    return UNet()
