"""Matrix products for the user: check the arrays, name the problem, choose a plan, run it."""

from typing import Any

from .errors import ShapeError
from .planning import records
from .planning.cost import Chip
from .planning.plan import Plan
from .planning.select import chip_of, choose
from .problem.operands import FLOAT_BYTES, ArrayView, view
from .problem.problem import product
from .remember import HOST_BYTES, Table, remembered
from .runtime import engine
from .runtime.arguments import check_out, device_of, number, unaligned
from .runtime.devices import find
from .runtime.devices.protocol import Device

VECTOR_BYTES = 16
_PLACES = 512  # bytes: of them every alignment that a device may ask for is a part


def matmul(a: Any, b: Any, *, transpose_a: bool = False, transpose_b: bool = False, alpha: float = 1.0,
           beta: float = 0.0, out: Any = None, device: Device | None = None, stream: Any = None) -> Any:
    """Matrix product in float32: out = alpha x op(a) op(b) + beta x out.

    a: (.., M, K), or (.., K, M) with transpose_a; b: (.., K, N), or (.., N, K) with transpose_b; returns out:
    (.., M, N). Axes in front count matrices: both have the same, or one of a and b has none and serves every matrix of
    the other. All float32 and C-contiguous. Each sum adds its products one after the other, from the end of K in groups
    of eight, each with one rounding, or, when the grid would be small, in parts that are added in a fixed order.
    `alpha`, `beta`: any float, rounded to float32; `out` is read only if beta is not 0, and must then be given.

    Arrays, `device`, `stream`, `out` and errors as for `conv_fprop`. Peak extra memory beside the result: copies of
    operands whose rows do not begin at multiples of 16 bytes, and the parts of split sums."""
    tensors = None
    if device is None and {type(a).__module__, type(b).__module__, type(out).__module__} == {"torch"}:
        scalars = {"alpha": number("alpha", alpha), "beta": number("beta", beta)}
        tensors = _like(a, b, out, transpose_a, transpose_b, bool(scalars["beta"] != 0))
        if _again(tensors, a, b, out, scalars, stream):
            return out
    given = {"a": view("a", a, rank=None), "b": view("b", b, rank=None)}
    for name, value in (("transpose_a", transpose_a), ("transpose_b", transpose_b)):
        if not isinstance(value, bool):
            raise ShapeError(f"{name} must be True or False (got {value!r})")
    scalars = {"alpha": number("alpha", alpha), "beta": number("beta", beta)}
    reads_out = bool(scalars["beta"] != 0)
    if reads_out and out is None:
        raise ShapeError(f"out must be given for a beta other than 0 (got beta={beta})")
    shapes = given["a"].shape, given["b"].shape
    wanted = _result(*shapes, transpose_a, transpose_b)
    if out is not None:
        given["out"] = check_out(view("out", out, rank=len(wanted)), wanted, given)
    target = device_of(given, device)
    if out is None:
        out = find.empty_like(a, wanted)
        given["out"] = view("out", out, rank=len(wanted))
    odd = unaligned(given, target) + ["out"] * bool(given["out"].address % VECTOR_BYTES)
    plan = _chosen(*shapes, transpose_a, transpose_b, tuple(odd), reads_out, chip_of(target), records.enabled())
    engine.run(plan, given, scalars, target, stream)
    if tensors is not None:
        _seen.remember(tensors, plan, plan.host_bytes)
    return out


_seen: Table[tuple[Any, ...], Plan] = Table(HOST_BYTES)  # of calls with tensors of PyTorch that nothing was wrong with


def _like(a: Any, b: Any, out: Any, transpose_a: Any, transpose_b: Any, reads_out: bool) -> tuple[Any, ...]:
    """All that a call's checks and its choice depend on, but for the numbers and whether the tensors overlap. Looking
    at it takes a third of the time that the checks take, and small products take no longer than those."""
    return (*[(type(x), x.shape, x.dtype, x.get_device(), x.is_contiguous(), x.requires_grad, x.data_ptr() % _PLACES)
              for x in (a, b, out)],
            transpose_a is True, transpose_b is True, type(transpose_a), type(transpose_b), reads_out, records.enabled())


def _again(tensors: tuple[Any, ...], a: Any, b: Any, out: Any, scalars: dict[str, Any], stream: Any) -> bool:
    """Run what a call like this ran before. False if there was none, or if something is wrong with this one."""
    plan = _seen.get(tensors)
    if plan is None:
        return False
    given = {name: ArrayView(name, x, x.shape, x.data_ptr(), x.numel() * FLOAT_BYTES, False, True)
             for name, x in (("a", a), ("b", b), ("out", out))}
    if given["out"].overlaps(given["a"]) or given["out"].overlaps(given["b"]):
        return False
    engine.run(plan, given, scalars, find.gpu(a.get_device()), stream)
    return True


_Shape = tuple[int, ...]


@remembered()
def _result(a: _Shape, b: _Shape, transpose_a: bool, transpose_b: bool) -> _Shape:
    """The shape of a product. Small ones take no longer than the host does for a call, so both of these are kept."""
    return product(a, b, transpose_a=transpose_a, transpose_b=transpose_b).shapes["out"]


@remembered(HOST_BYTES, lambda plan: plan.host_bytes)
def _chosen(a: _Shape, b: _Shape, transpose_a: bool, transpose_b: bool, odd: tuple[str, ...], reads_out: bool,
            chip: Chip, measured: bool) -> Plan:
    return choose(product(a, b, transpose_a=transpose_a, transpose_b=transpose_b, unaligned=odd, reads_out=reads_out),
                  chip, tuned=measured)


records.changed += [_chosen.table.clear, _seen.clear]
