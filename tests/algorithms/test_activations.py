"""Activations: their errors over all of float32, and layers that end in one, by every family, against float64."""

from dataclasses import replace

import numpy as np
import pytest

from maxdnn import ConvShape, conv_fprop, plan
from maxdnn.problem.activations import ACTIVATIONS, ERROR, activated
from maxdnn.selftest.truth import truth

NAMES = [name for name in ACTIVATIONS if name not in (None, "relu")]


def everything(step: int) -> np.ndarray:
    """Every so many-th float32, in order of its bits, and some that matter."""
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 3, -3, 6, -6, 1e-45, -1e-45, 1.17549435e-38, 3.4028235e38,
               -3.4028235e38, -87.4, -88.8, -104, 16, -16, 5.5, -5.5, 1e4, -1e4]
    with np.errstate(invalid="ignore"):
        return np.concatenate([np.arange(0, 2**32, step, np.uint64).astype(np.uint32).view(np.float32),
                               np.array(special, np.float32), np.linspace(-20, 20, 40001, dtype=np.float32)])


def ones(x: np.ndarray, name: str) -> np.ndarray:
    """The activation of each x, behind products with 1."""
    count = -(-len(x) // 512) * 256
    shape = ConvShape(1, 2, 256, count // 256, 2, 1, 1, groups=2)
    one = plan(shape, layout="NCHW", kernel="sdepthwise_any", activation=name)
    given = np.pad(x, (0, 2 * count - len(x))).reshape(1, 2, 256, -1)
    return conv_fprop(given, np.ones((2, 1, 1, 1), np.float32), plan=one).ravel()[:len(x)]


@pytest.mark.parametrize("name", NAMES)
def test_activations_of_all_of_float32_are_within_their_error(name: str) -> None:
    """Measured in units of 2^-24 |x|: ReLU6 0, Hardswish 1.5, SiLU 2.4, GELU 1.4, by tanh 2.2."""
    x = everything(1 << 15)
    with np.errstate(invalid="ignore"):  # NaN that signal
        out, exact = ones(x, name), x.astype(float)
    want = activated(name, exact)
    finite = np.isfinite(want)
    assert np.array_equal(out[~finite], want[~finite].astype(np.float32), equal_nan=True)
    assert np.isnan(out[np.isnan(x)]).all() and (out[np.isposinf(x)] == (6 if name == "relu6" else np.inf)).all()
    error = abs(out[finite] - want[finite])
    assert (error <= ERROR * abs(np.where(np.isinf(exact), 0, exact)[finite]) + 2.0**-149).all(), error.max()


def layers() -> dict[str, tuple[ConvShape, str, str | None]]:
    """A layer for each kernel that applies activations by itself, its layout, and the name of the candidate."""
    return {"depthwise": (ConvShape(2, 5, 9, 7, 5, 3, 3, 1, 1, 1, 5), "NCHW", "sdepthwise_3x3_s1_row2"),
            "depthwise, images innermost": (ConvShape(3, 3, 9, 7, 3, 5, 5, 2, 2, 1, 3), "CHWN", "sdepthwise_5x5_s2"),
            "depthwise of any size": (ConvShape(2, 4, 6, 7, 4, 2, 3, 1, 1, 1, 2), "NCHW", "sdepthwise_any"),
            "tensor cores": (ConvShape(2, 40, 6, 5, 70, 3, 3, 1, 1), "NCHW", "sm90_tensor_pixels_128x128"),
            "tensor cores, parts": (ConvShape(3, 40, 5, 5, 9, 3, 3, 1, 1), "CHWN", "sm90_tensor_pixels_128x128_split2"),
            "few channels": (ConvShape(1, 5, 6, 9, 33, 3, 3, 1, 1), "NCHW", "sm90_tensor_windows_128x128"),
            "pixels": (ConvShape(3, 9, 7, 6, 150, 3, 2, 1, 1), "NCHW", "sm90_pixels_K128_J128_elements"),
            "pixels, 96 filters": (ConvShape(3, 16, 9, 8, 95, 3, 3, 2, 1), "CHWN", "sm90_pixels_K96_J128"),
            "pixels, parts": (ConvShape(1, 32, 5, 7, 45, 3, 3, 1, 1), "NCHW", "sm90_pixels_K64_J128_split2"),
            "pixels of matrices": (ConvShape(2, 16, 9, 5, 70, 1, 1, 1, 0), "NCHW", "sm90_pixels_K64_J128_kc"),
            "products": (ConvShape(2, 40, 7, 8, 130, 1, 1), "NCHW", "sm90_product_128x128_nn"),
            "products of small tiles": (ConvShape(2, 40, 3, 12, 67, 1, 1), "NCHW", "sm90_product_64x64_nn"),
            "products in slices": (ConvShape(8, 20, 3, 7, 68, 1, 1), "CHWN", "sm90_product_64x64x2_tn"),
            "products in more slices": (ConvShape(1, 68, 6, 12, 34, 1, 1), "NCHW", "sm90_product_32x64x4_nn"),
            "products, parts": (ConvShape(2, 64, 6, 6, 21, 1, 1), "NCHW", "sm90_product_64x64x4_nn_split2"),
            "products of Maxwell, parts": (ConvShape(2, 64, 6, 6, 21, 1, 1), "NCHW", "sproduct_64x64_nn_split2"),
            "pixels of Maxwell, parts": (ConvShape(1, 16, 5, 5, 9, 3, 3, 2, 1), "NCHW", "sconv_pixels_K64_J64_split2"),
            "interior": (ConvShape(12, 8, 4, 5, 150, 3, 3, 1, 1), "CHWN", "sm90_taps_K128_N128"),
            "interior, 96 filters": (ConvShape(4, 3, 4, 5, 92, 3, 3, 1, 1), "CHWN", "sm90_elements_K96_N128"),
            "Winograd": (ConvShape(2, 9, 9, 7, 6, 3, 3, 1, 1), "NCHW", "winograd_4x4_3x3_64"),
            "Winograd of large filters": (ConvShape(3, 8, 9, 8, 5, 5, 5, 1, 2), "CHWN", "winograd_3x3_5x5_64"),
            "groups of several channels": (ConvShape(2, 8, 9, 7, 8, 3, 3, 1, 1, 1, 2), "NCHW", "sdepthwise_3x3_s1_row")}


@pytest.mark.sampled(11)
@pytest.mark.parametrize("layer", layers())
@pytest.mark.parametrize("name", NAMES)
def test_layers_end_in_activations(layer: str, name: str) -> None:
    """With a bias and beta, and with neither, in the layer's own kernel where that knows the activation."""
    shape, layout, kernel = layers()[layer]
    rng = np.random.default_rng(27)
    for bias, adds in ((True, True), (False, False)):
        one = plan(shape, layout=layout, kernel=kernel, bias=bias, adds_out=adds, activation=name)
        assert (one.launches[-1].spec.name == "sactivate") == (name == "gelu" and "sdepthwise" in one.spec.name)
        operands = {role: rng.uniform(-1, 1, size).astype(np.float32) for role, size in one.problem.shapes.items()}
        want = truth(one.problem, operands, {"beta": -0.75})
        out = conv_fprop(operands["images"], operands["filters"], bias=operands.get("bias"), plan=one,
                         **({"out": operands["out"].copy(), "beta": -0.75} if adds else {}))
        terms = truth(replace(one.problem, activation=None), {role: abs(x) for role, x in operands.items()},
                      {"beta": 0.75})
        assert (abs(out - want) <= (1.6 * one.error + ERROR) * terms).all()  # at most 1.5 times as steep as the sums
