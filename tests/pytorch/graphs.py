"""For tests of whole networks."""

import torch
from torch import nn


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
