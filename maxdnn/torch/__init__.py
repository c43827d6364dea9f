"""maxDNN for PyTorch: `optimize(model)` for inference by whole networks; `conv2d` in place of
torch.nn.functional.conv2d, `Conv2d` in place of torch.nn.Conv2d, and `replace(model)`, which swaps what a model has.
Needs PyTorch 2.4 or later; `import maxdnn` alone does not load it."""

from .functional import conv2d
from .memory import OutOfMemoryError
from .modules import Conv2d, Replaced, replace
from .optimizing import Optimized, optimize
from .ran import ran
from .report import Fused, Optimization, Ran

__all__ = ["Conv2d", "Fused", "Optimization", "Optimized", "OutOfMemoryError", "Ran", "Replaced", "conv2d", "optimize",
           "ran", "replace"]
