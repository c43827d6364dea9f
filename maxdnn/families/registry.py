"""Every family, one line each. Of candidates that promise the same time the first is taken."""

from collections.abc import Mapping

from ..kernels import KernelSpec
from . import (
    blocks,
    classes,
    classes_sm90,
    depthwise,
    depthwise_filters,
    direct,
    filters,
    filters_nchw,
    layout,
    pixels,
    pixels_sm90,
    pointwise,
    product,
    sums,
    taps,
    taps_sm90,
    winograd,
    winograd_fused,
    winograd_gradients,
)
from .family import Family

FAMILIES: tuple[Family, ...] = (
    direct.FAMILY,
    taps.FAMILY,
    taps_sm90.FAMILY,
    pixels_sm90.FAMILY,
    pixels.FAMILY,
    classes.FAMILY,
    classes_sm90.FAMILY,
    pointwise.FAMILY,
    depthwise.FAMILY,
    depthwise_filters.FAMILY,
    blocks.FAMILY,
    filters.FAMILY,
    filters_nchw.FAMILY,
    sums.FAMILY,
    winograd.FAMILY,
    winograd_fused.FAMILY,
    winograd_gradients.FAMILY,
    product.FAMILY,
    layout.FAMILY,
)


def kernels() -> Mapping[str, KernelSpec]:
    """Every kernel by its symbol."""
    return {spec.name: spec for family in FAMILIES for spec in family.kernels}
