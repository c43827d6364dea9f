"""For tests of whole networks."""

import copy

import torch
from torch import nn

import maxdnn.torch as mt


def randomized(model):
    """The model with batch norms as after training, in eval mode."""
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d) and module.track_running_stats and not hasattr(module, "keep"):
                module.running_mean.uniform_(-0.5, 0.5)
                module.running_var.uniform_(0.5, 2)
                if module.affine:
                    module.weight.uniform_(0.5, 1.5)
                    module.bias.uniform_(-0.5, 0.5)
    return model.eval()


class Call(nn.Module):
    """A network of layers a, b, .. with a function for its forward."""

    def __init__(self, forward, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.does = forward

    def forward(self, x):
        return self.does(self, x)


def conv(c=4, k=4, size=3, **options):
    return nn.Conv2d(c, k, size, **{"padding": size // 2} | options)


def exactly(model, *given):
    """In float64; a model that changes its input gets one of its own."""
    with torch.no_grad():
        return copy.deepcopy(model).double()(*[x.double() for x in given])


def same(model, *given, calls=3, tolerance=2e-6):
    """The optimized model, which gives what the model gives in float64: in the first calls, and by kept filters."""
    optimized = mt.optimize(model)
    wanted = exactly(model, *given)
    for _ in range(calls):
        with torch.no_grad():
            found = optimized(*[x.clone(memory_format=torch.preserve_format) for x in given])
        close(found, wanted, tolerance)
    return optimized


def close(found, wanted, tolerance=2e-6):
    if isinstance(wanted, (tuple, list)):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            close(one, other, tolerance)
        return
    assert found.shape == wanted.shape and found.dtype == torch.float32
    if wanted.numel():
        assert (found.double() - wanted).abs().max() <= tolerance * max(wanted.abs().max().item(), 1.0)
