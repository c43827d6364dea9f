"""The convolutions that a model computes."""

from typing import Any

import torch
from torch import Tensor, nn

from ..problem.shape import ConvShape
from .functional import _named_padding, why_not


def layers(model: nn.Module, example: Any) -> list[tuple[ConvShape, bool]]:
    """The layers of a model that this library can serve, as they come in one run on `example` (without gradients), and
    whether they have a bias."""
    found: list[tuple[ConvShape, bool]] = []

    def seen(module: nn.Module, given: tuple[Any, ...]) -> None:
        assert isinstance(module, nn.Conv2d)
        images: Tensor = given[0]
        if why_not(images, module.weight, module.bias) is not None:
            return
        padding: Any = module.padding
        if module.padding_mode != "zeros":
            images, padding = nn.functional.pad(images, module._reversed_padding_repeated_twice), (0, 0)
        elif isinstance(padding, str):
            images, padding = _named_padding(padding, images, module.weight, module.stride, module.dilation)
        n, (c, h, w) = images.shape[0] if images.dim() == 4 else 1, images.shape[-3:]
        k, _, r, s = module.weight.shape
        if n:
            found.append((ConvShape(n, c, h, w, k, r, s, module.stride, padding, module.dilation, module.groups),
                          module.bias is not None))
    hooks = [m.register_forward_pre_hook(seen) for m in model.modules() if isinstance(m, nn.Conv2d)]
    try:
        with torch.no_grad():
            model(example)
    finally:
        for hook in hooks:
            hook.remove()
    return found
