"""What a forward convolution may apply to each result, as mathematics; sass/maxwell/activation.inc says by which
operations, and how far that is off."""

import math

import numpy as np

ACTIVATIONS = (None, "relu", "relu6", "hardswish", "silu", "gelu", "gelu_tanh")
"""By name; "gelu_tanh" is its approximation by a tanh (`approximate="tanh"` of torch.nn.GELU)."""

ERROR = 2.0 ** -22
"""Documented of an activation: at most so many times the magnitude of what it is applied to."""

_erfc = np.vectorize(math.erfc, otypes=[float])


def activated(name: str | None, x: np.ndarray) -> np.ndarray:
    """Of float64. What is NaN stays so. Minus infinity becomes what the products in the formula give: NaN, but for
    ReLUs and "gelu", whose results tend to 0."""
    if name is None:
        return x
    if name in ("relu", "relu6"):
        x = np.where(x < 0, 0, x)
        return x if name == "relu" else np.where(x > 6, 6, x)
    with np.errstate(over="ignore", invalid="ignore"):
        if name == "hardswish":
            return x * np.clip(x / 6 + 0.5, 0, 1)
        if name == "gelu":
            return np.where(np.isneginf(x), 0, x * 0.5 * _erfc(-x / math.sqrt(2)))
        # gelu_tanh: (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u))
        u = x if name == "silu" else 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        return x / (1 + np.exp(-u))
