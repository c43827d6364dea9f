"""maxDNN for PyTorch: `optimize(model)` for inference by whole networks; `conv2d` in place of
torch.nn.functional.conv2d, `Conv2d` in place of torch.nn.Conv2d and so on, and `replace(model)`, which swaps what a
model has.
Needs PyTorch 2.4 or later; `import maxdnn` alone does not load it."""

from .functional import conv2d
from .memory import OutOfMemoryError
from .modules import Conv1d, Conv2d, ConvTranspose1d, ConvTranspose2d, Replaced, Sequential, replace
from .optimizing import Optimized, optimize
from .products import Linear, linear
from .ran import ran
from .report import Fused, Optimization, Ran
from .transposed import conv1d, conv_transpose1d, conv_transpose2d

__all__ = ["Conv1d", "Conv2d", "ConvTranspose1d", "ConvTranspose2d", "Fused", "Linear", "Optimization", "Optimized",
           "OutOfMemoryError", "Ran", "Replaced", "Sequential", "conv1d", "conv2d", "conv_transpose1d",
           "conv_transpose2d", "linear", "optimize", "ran", "replace"]
