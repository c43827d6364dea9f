"""Convolution layers and matrix products as numbers: sizes, work, efficiency. Knows no array, kernel or device.

Source of the work and efficiency formulas: A. Lavin, "maxDNN: An Efficient Convolution Kernel for Deep Learning with
Maxwell GPUs" (2015), section on computational efficiency, with R x S filters in place of its square ones.
"""

import operator
from dataclasses import dataclass
from typing import Any

from ..errors import ShapeError, shown

LARGEST = 2**40  # of any number that says what a layer is: what is beyond is a mistake, and takes long to find out
CORES_PER_SM = 128  # FP32 lanes of a Maxwell SM, each one multiply-add per clock


class Useful:
    """What has useful work `flops` and an efficiency in doing it.

    Raises ShapeError for clocks, seconds or a peak that are not positive.
    """

    flops: int

    def efficiency_from_clocks(self, sm_clocks: float) -> float:
        """Computational efficiency in 0..1 from the clocks spent, summed over all SMs: C / (2 x 128 x clocks)."""
        return self.flops / (2 * CORES_PER_SM * _positive("sm_clocks", sm_clocks))

    def efficiency_from_time(self, seconds: float, peak_flops: float) -> float:
        """Computational efficiency in 0..1 from a run time and the card's peak in FLOP/s: C / (time x peak)."""
        return self.flops / (_positive("seconds", seconds) * _positive("peak_flops", peak_flops))


class Steps:
    """What stride, padding and dilation are along rows and columns."""

    stride: Any
    padding: Any
    dilation: Any

    @property
    def str_h(self) -> int:
        """Stride along rows."""
        return int(self.stride[0])

    @property
    def str_w(self) -> int:
        """Stride along columns."""
        return int(self.stride[1])

    @property
    def pad_h(self) -> int:
        """Zeros above and below."""
        return int(self.padding[0])

    @property
    def pad_w(self) -> int:
        """Zeros left and right."""
        return int(self.padding[1])

    @property
    def dil_h(self) -> int:
        """Map rows from one filter tap to the next."""
        return int(self.dilation[0])

    @property
    def dil_w(self) -> int:
        """Map columns from one filter tap to the next."""
        return int(self.dilation[1])


@dataclass(frozen=True)
class ConvShape(Steps, Useful):
    """One layer: N images of C x H x W, K filters of C/groups x R x S.

    Parameters
    ----------
    N, C, H, W : int
        Images, channels, rows and columns of a map.
    K, R, S : int
        Filters, rows and columns of a filter.
    stride : int or (int, int)
        Map pixels from one output to the next, for both axes or (rows, columns); kept as a pair, as the next two.
    padding : int or (int, int)
        Zeros on either side.
    dilation : int or (int, int)
        Map pixels from one filter tap to the next.
    groups : int
        Channels and filters fall into so many runs; filters of a run see its channels only.

    Raises
    ------
    ShapeError
        The sizes make no layer.
    """

    N: int
    C: int
    H: int
    W: int
    K: int
    R: int
    S: int
    stride: int | tuple[int, int] = 1
    padding: int | tuple[int, int] = 0
    dilation: int | tuple[int, int] = 1
    groups: int = 1

    def __post_init__(self) -> None:
        for name in (*"NCHWKRS", "groups"):
            object.__setattr__(self, name, _size(name, getattr(self, name), least=1))
        for name, least in (("stride", 1), ("padding", 0), ("dilation", 1)):
            object.__setattr__(self, name, pair(name, getattr(self, name), least))
        for filt, size, step, in_name, inner, pad in (("R", self.R, self.dil_h, "H", self.H, self.pad_h),
                                                      ("S", self.S, self.dil_w, "W", self.W, self.pad_w)):
            reach = (size - 1) * step + 1
            if reach > inner + 2 * pad:
                spread = f", which dilation {step} spreads over {reach}" if step > 1 else ""
                raise ShapeError(f"{filt} must be at most {in_name} + 2 x padding = {inner + 2 * pad}: "
                                 f"the filter is larger than the padded map (got {filt}={size}{spread})")
        for name, size in (("C", self.C), ("K", self.K)):
            if size % self.groups:
                raise ShapeError(f"groups must divide {name} (got groups={self.groups}, {name}={size})")

    @property
    def P(self) -> int:
        """Rows of the output."""
        return (self.H + 2 * self.pad_h - (self.R - 1) * self.dil_h - 1) // self.str_h + 1

    @property
    def Q(self) -> int:
        """Columns of the output."""
        return (self.W + 2 * self.pad_w - (self.S - 1) * self.dil_w - 1) // self.str_w + 1

    @property
    def patch(self) -> int:
        """Products summed for one output: C/groups R S."""
        return self.C // self.groups * self.R * self.S

    @property
    def flops(self) -> int:  # type: ignore[override]
        """The paper's C: a multiply and an add for each product, and the scaling by alpha counted as one more."""
        return 2 * self.N * self.P * self.Q * (self.patch + 1) * self.K

    def __str__(self) -> str:
        text = f"N{self.N} C{self.C} {self.H}x{self.W} -> K{self.K}, filter {self.R}x{self.S}"
        if self.stride != (1, 1):
            text += f", stride {self.str_h}x{self.str_w}"
        if self.padding != (0, 0):
            text += f", padding {self.pad_h}x{self.pad_w}"
        if self.dilation != (1, 1):
            text += f", dilation {self.dil_h}x{self.dil_w}"
        if self.groups != 1:
            text += f", {self.groups} groups"
        return text


@dataclass(frozen=True)
class ProductShape(Useful):
    """Matrix products: `batch` times M x K by K x N. Raises ShapeError for a size below 1."""

    M: int
    N: int
    K: int
    batch: int = 1

    def __post_init__(self) -> None:
        for name in ("M", "N", "K", "batch"):
            object.__setattr__(self, name, _size(name, getattr(self, name), least=1))

    @property
    def flops(self) -> int:  # type: ignore[override]
        """A multiply and an add for each product."""
        return 2 * self.batch * self.M * self.N * self.K

    def __str__(self) -> str:
        return f"{self.batch} times " * (self.batch > 1) + f"{self.M} x {self.K} by {self.K} x {self.N}"


@dataclass(frozen=True)
class SumShape(Useful):
    """`sums` sums of `terms` numbers each."""

    sums: int
    terms: int

    @property
    def flops(self) -> int:  # type: ignore[override]
        """An addition for each number."""
        return self.sums * self.terms

    def __str__(self) -> str:
        return f"{self.sums} sums of {self.terms}"


def _size(name: str, value: Any, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ShapeError(f"{name} must be an integer (got {name}={shown(value)})") from None
    if number < least:
        raise ShapeError(f"{name} must be at least {least} (got {name}={shown(number)})")
    if number > LARGEST:
        raise ShapeError(f"{name} must be at most {LARGEST} (got {name}={shown(number)})")
    return number


def pair(name: str, value: Any, least: int) -> tuple[int, int]:
    """Argument `name`, an integer for both axes or a pair (rows, columns). Raises ShapeError if it is neither."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ShapeError(f"{name} must be one integer or a pair (rows, columns) (got {name}={shown(value)})")
        return _size(name, value[0], least), _size(name, value[1], least)
    number = _size(name, value, least)
    return number, number


def _positive(name: str, value: float) -> float:
    if not value > 0:
        raise ShapeError(f"{name} must be positive (got {name}={value!r})")
    return value
