"""What was done to a network, as a value."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..planning.plan import Plan

_PRINTED = {"relu": "ReLU", "relu6": "ReLU6", "hardswish": "Hardswish", "silu": "SiLU", "gelu": "GELU",
            "gelu_tanh": "GELU by tanh"}


@dataclass(frozen=True)
class Fused:
    """A convolution of an optimized network, and what its kernel does besides.

    Attributes
    ----------
    layer : str
        Its name in the network.
    batch_norm : str or None
        The batch norm that is in its filters and bias.
    adds : str or None
        What gives the map that it adds.
    activation : str or None
        The activation that it applies, as `conv_fprop` calls it.
    overwrites : bool
        Whether the sum takes the place of the map added.
    """

    layer: str
    batch_norm: str | None = None
    adds: str | None = None
    activation: str | None = None
    overwrites: bool = False

    @property
    def relu(self) -> bool:
        """Whether it applies ReLU."""
        return self.activation == "relu"

    def __str__(self) -> str:
        parts = [f"batch norm {self.batch_norm}"] if self.batch_norm else []
        if self.adds:
            parts.append(f"sum with {self.adds}" + " (in its place)" * self.overwrites)
        parts += [_PRINTED[self.activation]] if self.activation else []
        return f"{self.layer}: " + ", ".join(parts or ["alone"])


@dataclass(frozen=True)
class Optimization:
    """What `optimize` did.

    Attributes
    ----------
    fused : tuple of Fused
        The convolutions that are this library's, and what their kernels do besides.
    linear : tuple of str
        Names of linear layers that are this library's from some size of the input on.
    products : tuple of str
        Names of products of matrices (`@`, matmul, bmm, addmm ..) that are this library's from some size on.
    removed : tuple of str
        Names of layers that give back their input: dropouts, identities.
    left : mapping of str to str
        Why which other layers were left as they are.
    untraced : mapping of str to str
        Why which modules could not be traced; what is inside was optimized part by part.
    """

    fused: tuple[Fused, ...]
    linear: tuple[str, ...]
    products: tuple[str, ...]
    removed: tuple[str, ...]
    left: Mapping[str, str]
    untraced: Mapping[str, str]

    def __str__(self) -> str:
        norms, sums, applied = (sum(bool(getattr(one, what)) for one in self.fused)
                                for what in ("batch_norm", "adds", "activation"))
        lines = [f"maxDNN computes {len(self.fused)} convolutions, with {norms} batch norms, {sums} sums and {applied} "
                 f"activations in their kernels, and {len(self.linear)} linear layers"
                 + f" and {len(self.products)} products of matrices" * bool(self.products)]
        lines += [f"  {one}" for one in self.fused]
        lines += [f"  linear: {name}" for name in self.linear]
        lines += [f"  product: {name}" for name in self.products]
        lines += [f"  removed: {name}" for name in self.removed]
        lines += [f"  left: {name}: {why}" for name, why in self.left.items()]
        return "\n".join(lines + [f"  not traced: {name or 'the model itself'}: {why}"
                                  for name, why in self.untraced.items()])


@dataclass(frozen=True)
class Ran:
    """What the layers of a network ran by in one call.

    Attributes
    ----------
    plans : mapping of str to tuple of Plan
        By the layer's name, a plan for each of its calls; none where PyTorch's operator computed it. Under "" what
        was called outside of layers.
    """

    plans: Mapping[str, tuple[Plan, ...]]

    @property
    def arithmetic(self) -> dict[str, str]:
        """By the layer's name what its products were computed by: "FFMA", tensor cores, "PyTorch"."""
        return {name: ", ".join(dict.fromkeys(plan.arithmetic for plan in plans)) or "PyTorch"
                for name, plans in self.plans.items()}

    def __str__(self) -> str:
        kernels = {name: ", ".join(dict.fromkeys(plan.name for plan in plans)) for name, plans in self.plans.items()}
        return "\n".join(f"{name or 'outside of layers'}: " + (f"{kernels[name]}, float32 by {arithmetic}"
                                                               if kernels[name] else "PyTorch's operator")
                         for name, arithmetic in self.arithmetic.items())


@dataclass
class Notes:
    """What was done so far, by name, as in `Optimization`."""

    fused: list[Fused] = field(default_factory=list)
    linear: list[str] = field(default_factory=list)
    products: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    left: dict[str, str] = field(default_factory=dict)
    untraced: dict[str, str] = field(default_factory=dict)

    def report(self) -> Optimization:
        """All of it."""
        return Optimization(tuple(self.fused), tuple(self.linear), tuple(self.products), tuple(self.removed), self.left,
                            self.untraced)
