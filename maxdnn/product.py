"""Matrix products, as users call them: operands -> problem -> select -> run (runtime/frontend.py).

(The module is not called `matmul`, nor planning/tuning.py `tune`, because the package offers functions of those names.)
"""

import itertools
import math
from typing import Any, NamedTuple

from .errors import ShapeError
from .planning import records
from .planning.cost import Chip
from .planning.plan import Plan
from .planning.select import ARITHMETICS, MAX_ERROR, check_wanted, chip_of, choose
from .problem.arrays import Array, ArrayT
from .problem.operands import FLOAT_BYTES, ArrayView, view
from .problem.problem import product
from .runtime import shortage
from .runtime.arguments import factors, flag, number, unaligned
from .runtime.devices.protocol import Device
from .runtime.frontend import Call
from .runtime.remember import HOST_BYTES, Table, remembered

_PLACES = 512  # bytes: of them every alignment that a device may ask for is a part


def matmul(a: ArrayT, b: Array, *, transpose_a: bool = False, transpose_b: bool = False, alpha: float = 1.0,
           beta: float = 0.0, out: ArrayT | None = None, device: Device | None = None,
           stream: Any = None, arithmetic: str = "auto") -> ArrayT:
    """Matrix products in float32: out = alpha * op(a) op(b) + beta * out.

    Parameters
    ----------
    a : array of float32
        (.., M, K), or (.., K, M) with transpose_a. C-contiguous, or so with the last two axes swapped, as a.T is.
    b : array of float32
        (.., K, N), or (.., N, K) with transpose_b; likewise. Axes in front of the last two broadcast as NumPy's.
    transpose_a, transpose_b : bool
        Whether the operand is given transposed.
    alpha, beta : float
        Factors of the product and of what `out` held, as for `conv_fprop`.
    out : array of float32, optional
        To be filled: (.., M, N). C-contiguous, no overlap with an input. Needed for a beta other than 0.
    device, stream, arithmetic
        As for `conv_fprop`.

    Returns
    -------
    array of float32
        `out`, or a new array of the library of `a`: (.., M, N).

    Raises
    ------
    ShapeError, DeviceError, OutOfMemoryError
        As for `conv_fprop`.

    Notes
    -----
    One launch or two for each matrix where axes that both operands have lie outside of axes that one has, else for
    all together. A sum adds its products from the end of K in groups of eight, each with one rounding; partial sums
    of split-K are added in a fixed order. Workspace: partial sums, and copies of rows that begin at no 16 bytes.
    """
    if arithmetic not in ARITHMETICS:
        check_wanted("auto", MAX_ERROR, None, arithmetic)  # says what is wrong
    like = _like(a, b, out, transpose_a, transpose_b, alpha, beta, arithmetic) if device is None else None
    ready = None if like is None else _seen.get(like)
    done: ArrayT | None = None if ready is None else _again(ready, a, b, out, alpha, beta, stream)
    if done is not None:
        return done
    flag("transpose_a", transpose_a)
    flag("transpose_b", transpose_b)
    (view_a, turned_a), (view_b, turned_b) = _as_it_lies("a", a, transpose_a), _as_it_lies("b", b, transpose_b)
    scalars, reads_out = factors(alpha, beta, out)
    wanted = _result(_swapped(view_a.shape) if turned_a != transpose_a else view_a.shape,
                     _swapped(view_b.shape) if turned_b != transpose_b else view_b.shape, transpose_a, transpose_b)
    call = Call({"a": view_a, "b": view_b}, wanted, out, scalars, device, stream)
    result: ArrayT = call.result()
    alike, places = _together(view_a.shape, view_b.shape, wanted)
    for first in places:
        part = {name: _piece(array, at, shape)
                for (name, array), at, shape in zip(call.given.items(), first, alike, strict=True)}
        plan = _chosen(*alike[:2], turned_a, turned_b, tuple(unaligned(part, call.device)), reads_out,
                       chip_of(call.device), arithmetic, records.enabled())
        call.run(plan, part)
    if like is not None and len(places) == 1 and (turned_a, turned_b) == (transpose_a, transpose_b):
        sizes = [array.nbytes for array in call.given.values()]
        _seen.remember(like, _Ready(plan, call.device, wanted, *sizes), plan.host_bytes)
    return result


_Shape = tuple[int, ...]


class _Ready(NamedTuple):
    """A call that nothing was wrong with: its plan, the result's shape, bytes of the operands."""

    plan: Plan
    device: Device
    shape: _Shape
    a: int
    b: int
    out: int


_seen: Table[tuple[Any, ...], _Ready] = Table(HOST_BYTES)
_NUMBERS = float, int
_ONE = {"alpha": number("alpha", 1.0), "beta": number("beta", 0.0)}


def _like(a: Any, b: Any, out: Any, transpose_a: Any, transpose_b: Any, alpha: Any, beta: Any,
          arithmetic: Any) -> tuple[Any, ...] | None:
    """All that a call's checks and its choice depend on, but for the numbers and whether the tensors overlap.

    None but for tensors of PyTorch on a GPU and usual numbers. To look at it takes a fifth of the time that the checks
    take, and small products take no longer than those.
    """
    if (type(a).__module__ != "torch" or type(b).__module__ != "torch" or type(alpha) not in _NUMBERS
            or type(beta) not in _NUMBERS or not a.is_cuda or (out is not None and type(out).__module__ != "torch")):
        return None
    filled = (None if out is None else
              (type(out), out.shape, out.dtype, out.get_device(), out.is_contiguous(), out.requires_grad,
               out.data_ptr() % _PLACES))
    return (filled, type(a), a.shape, a.dtype, a.get_device(), a.is_contiguous(), a.requires_grad,
            a.data_ptr() % _PLACES, type(b), b.shape, b.dtype, b.get_device(), b.is_contiguous(), b.requires_grad,
            b.data_ptr() % _PLACES, transpose_a is True, transpose_b is True, type(transpose_a), type(transpose_b),
            beta != 0, arithmetic, records.enabled())


def _again(ready: _Ready, a: Any, b: Any, out: Any, alpha: float, beta: float, stream: Any) -> Any:
    """The result of a call like one that was made; None if something is wrong with this one."""
    scalars = _ONE if alpha == 1 and beta == 0 else {"alpha": number("alpha", alpha), "beta": number("beta", beta)}
    first, second = a.data_ptr(), b.data_ptr()
    if out is None:
        out = shortage.empty_like(a, ready.shape, ready.device, stream)
        where = out.data_ptr()
    else:
        where = out.data_ptr()
        end = where + ready.out
        if (where < first + ready.a and first < end) or (where < second + ready.b and second < end):
            return None
    shortage.run_at(ready.plan, {"a": first, "b": second, "out": where}, scalars, ready.device, stream)
    return out


def _swapped(shape: _Shape) -> _Shape:
    return (*shape[:-2], *shape[:-3:-1])


def _as_it_lies(name: str, array: Any, transpose: bool) -> tuple[ArrayView, bool]:
    """An operand as a C-contiguous array, and whether that is transposed.

    One whose last two axes are swapped in memory
    is read with them swapped back.
    """
    found = view(name, array, rank=None, strided=True)
    if found.strides is None:
        return found, transpose
    if len(found.shape) >= 2:
        shape, strides = _swapped(found.shape), _swapped(found.strides)
        each = itertools.accumulate(shape[:0:-1], lambda so_far, size: so_far * size, initial=1)
        if all(size == 1 or step == whole for size, step, whole in zip(shape[::-1], strides[::-1], each, strict=True)):
            memory = array.swapaxes(-1, -2) if found.on_host else array
            return found._replace(array=memory, shape=shape, strides=None), not transpose
    return view(name, array, rank=None), transpose  # which says what is wrong


@remembered()
def _result(a: _Shape, b: _Shape, transpose_a: bool, transpose_b: bool) -> _Shape:
    """The shape of a product. Small ones take no longer than the host does for a call, so these three are kept."""
    one, other = _aligned(a, b)
    if any(x != y and 1 not in (x, y) for x, y in zip(one, other, strict=True)):
        raise ShapeError("the axes of a and b in front of the last two must be equal, or 1 or not there in one of them "
                         f"(got a {a}, b {b})")
    stack = tuple(max(pair) for pair in zip(one, other, strict=True))
    try:
        return product((*stack, *a[-2:]), b[-2:], transpose_a=transpose_a, transpose_b=transpose_b).shapes["out"]
    except ShapeError:
        product(a, b, transpose_a=transpose_a, transpose_b=transpose_b)  # says it of the shapes that were given
        raise


def _aligned(a: _Shape, b: _Shape) -> list[_Shape]:
    """The axes in front of the last two of both, as many of each."""
    length = max(len(a), len(b)) - 2
    return [(1,) * (length - len(shape[:-2])) + shape[:-2] for shape in (a, b)]


@remembered(weigh=lambda found: len(found[1]))
def _together(a: _Shape, b: _Shape, out: _Shape) -> tuple[tuple[_Shape, _Shape, _Shape], list[tuple[int, int, int]]]:
    """The shapes of the largest products that a kernel computes at once, and where each begins, in elements.

    Axes in
    front that both have, or one of them, or only the other.
    """
    if a[:-2] == b[:-2] or len(a) == 2 or len(b) == 2:
        return (a, b, out), [(0, 0, 0)]
    axes = [(x > 1, y > 1, max(x, y)) for x, y in zip(*_aligned(a, b), strict=True) if max(x, y) > 1]
    inner = 0
    while inner < len(axes) and axes[-1 - inner][:2] == axes[-1][:2]:
        inner += 1
    outer, count = axes[:len(axes) - inner], math.prod(size for *_, size in axes[len(axes) - inner:])
    with_a, with_b = axes[-1][:2] if axes else (False, False)
    stack = (count,) if inner else ()
    alike = (*stack * with_a, *a[-2:]), (*stack * with_b, *b[-2:]), (*stack, *out[-2:])
    places = [(0, 0, 0)]
    for in_a, in_b, size in outer:
        places = [(x * (size if in_a else 1) + in_a * i, y * (size if in_b else 1) + in_b * i, z * size + i)
                  for x, y, z in places for i in range(size)]
    sizes = [math.prod(shape) for shape in alike]
    return alike, [(x * sizes[0], y * sizes[1], z * sizes[2]) for x, y, z in places]


def _piece(whole: ArrayView, first: int, shape: _Shape) -> ArrayView:
    """The part of an array from an element on, as one of a shape."""
    if shape == whole.shape:
        return whole
    count = math.prod(shape)
    array = whole.array.reshape(-1)[first:first + count].reshape(shape) if whole.on_host else whole.array
    return whole._replace(array=array, shape=shape, address=whole.address + FLOAT_BYTES * first,
                          nbytes=FLOAT_BYTES * count)


@remembered(HOST_BYTES, lambda plan: plan.host_bytes)
def _chosen(a: _Shape, b: _Shape, transpose_a: bool, transpose_b: bool, odd: tuple[str, ...], reads_out: bool,
            chip: Chip, arithmetic: str, measured: bool) -> Plan:
    return choose(product(a, b, transpose_a=transpose_a, transpose_b=transpose_b, unaligned=odd, reads_out=reads_out),
                  chip, arithmetic=arithmetic, tuned=measured)


records.changed += [_chosen.table.clear, _seen.clear]
