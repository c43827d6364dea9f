"""Transformations of functions (torch.func), against those of PyTorch's operators in float64."""

import itertools

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.nn import functional as F

import maxdnn.torch as mt
from maxdnn.torch import products

from .graphs import close, conv

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:CPU tensors run", "ignore:Using padding='same'")]

X, W, B = (2, 4, 5, 4), (6, 2, 3, 2), (6,)
HOW = {"stride": (2, 1), "padding": (1, 0), "groups": 2}


def tensors(*shapes, seed=0):
    torch.manual_seed(seed)
    return [torch.rand(s) - 0.5 for s in shapes]


def both(make, *given):
    """Results of what `make` makes of our conv2d and of PyTorch's."""
    found = make(mt.conv2d)(*given)
    wanted = make(F.conv2d)(*[t.double() for t in given])
    for one, other in zip(*[x if isinstance(x, (tuple, list)) else (x,) for x in (found, wanted)], strict=True):
        close(one, other, 1e-5)


def loss(convolve, how=HOW):
    return lambda x, w, b: (convolve(x, w, b, **how) ** 2).sum()


@pytest.mark.parametrize("which", [0, 1, 2, (0, 1, 2)])
def test_grad(which):
    both(lambda convolve: grad(loss(convolve), argnums=which), *tensors(X, W, B))


def test_gradients_of_gradients():
    def curved(convolve):
        return grad(lambda x, w, b: sum((g ** 2).sum() for g in grad(loss(convolve), (0, 1))(x, w, b)), (0, 1, 2))
    both(curved, *tensors(X, W, B))


BATCHED = [dims for dims in itertools.product((0, None), repeat=3) if any(dim is not None for dim in dims)]


@pytest.mark.parametrize("dims", BATCHED, ids=str)
def test_vmap_of_each_and_of_all(dims):
    """The result, its gradients, and their gradients."""
    given = tensors(*[(3, *size) if dim == 0 else size for size, dim in zip((X, W, B), dims, strict=True)])

    def gradients(convolve):
        return lambda x, w, b: grad(loss(convolve), (0, 1, 2))(x, w, b)

    def twice(convolve):
        return lambda x, w, b: grad(lambda *all_: sum((g ** 2).sum() for g in gradients(convolve)(*all_)), (0, 1))(
            x, w, b)
    for make in (lambda convolve: lambda x, w, b: convolve(x, w, b, **HOW), gradients, twice):
        both(lambda convolve, make=make: vmap(make(convolve), in_dims=dims), *given)


def test_vmap_along_other_axes_and_in_one_another():
    x, w = tensors((2, 4, 5, 4, 3), (6, 5, 2, 3, 2))
    both(lambda convolve: vmap(lambda x, w: convolve(x, w, **HOW), in_dims=(4, 1), out_dims=2),
         x, w[:, :3])
    both(lambda convolve: vmap(lambda x: vmap(lambda w: convolve(x, w, **HOW), in_dims=1)(w[:, :2].to(x.dtype)),
                               in_dims=4), x)
    single = tensors((3, 4, 5, 4), W)
    both(lambda convolve: vmap(lambda x, w: convolve(x, w, padding="same", groups=2), in_dims=(0, None)), *single)


@pytest.mark.parametrize("moved", [(0,), (1,), (2,), (0, 1, 2)], ids=str)
def test_jvp_and_dual_numbers(moved):
    given, directions = tensors(X, W, B), tensors(X, W, B, seed=1)

    def changed(convolve):
        def run(*all_):
            primals, tangents = all_[:3], all_[3:]

            def of(*some):
                every = list(primals)
                for place, value in zip(moved, some, strict=True):
                    every[place] = value
                return convolve(*every, **HOW)
            return jvp(of, tuple(primals[n] for n in moved), tuple(tangents[n] for n in moved))
        return run
    both(changed, *given, *directions)
    with forward_ad.dual_level():
        made = [forward_ad.make_dual(t, d) if n in moved else t
                for n, (t, d) in enumerate(zip(given, directions, strict=True))]
        found = forward_ad.unpack_dual(mt.conv2d(*made, **HOW))
    wanted = changed(F.conv2d)(*[t.double() for t in (*given, *directions)])
    close(found.primal, wanted[0], 1e-5)
    close(found.tangent, wanted[1], 1e-5)


def test_jacobians_in_both_directions_and_a_hessian():
    x, w, b = tensors((1, 2, 3, 3), (2, 2, 2, 2), (2,))
    how = {"padding": 1, "stride": 2}
    for transform in (jacrev, jacfwd):
        both(lambda convolve, t=transform: t(lambda x, w, b: convolve(x, w, b, **how), argnums=(0, 1, 2)), x, w, b)
    both(lambda convolve: hessian(lambda x: (convolve(x, w.to(x.dtype), **how) ** 3).sum()), x)


def test_transposed_ones_and_lines():
    for ours, theirs, sizes in ((mt.conv_transpose2d, F.conv_transpose2d, ((2, 4, 3, 3), (4, 3, 2, 3), (3,))),
                                (mt.conv_transpose1d, F.conv_transpose1d, ((2, 4, 5), (4, 3, 2), (3,))),
                                (mt.conv1d, F.conv1d, ((2, 4, 7), (3, 4, 2), (3,)))):
        given = tensors(*[(2, *size) for size in sizes])

        def wanted(function):
            return vmap(grad(lambda *all_: (function(*all_, stride=2) ** 2).sum(), (0, 1, 2)))
        for one, other in zip(wanted(ours)(*given), wanted(theirs)(*[t.double() for t in given]), strict=True):
            close(one, other, 1e-5)
        out, back = vjp(lambda x: ours(x, given[1][0], stride=2), given[0][0])  # noqa: B023 (called at once)
        close(back(torch.ones_like(out))[0], vjp(lambda x: theirs(x, given[1][0].double(), stride=2),  # noqa: B023
                                                 given[0][0].double())[1](torch.ones_like(out).double())[0], 1e-5)


@pytest.mark.parametrize("made", [mt.replace, lambda m: mt.replace(m, frozen=True), mt.optimize],
                         ids=["replaced", "frozen", "optimized"])
def test_gradients_of_each_sample_of_a_network(monkeypatch, made):
    monkeypatch.setattr(products, "LEAST_PRODUCTS", 1)
    torch.manual_seed(5)
    stock = nn.Sequential(conv(), nn.ReLU(), nn.Flatten(), nn.Linear(100, 3)).eval()
    (x,) = tensors((3, 4, 5, 5))
    wanted_of = {name: value.detach().double() for name, value in stock.named_parameters()}

    def each(model, parameters, x):
        def one(parameters, x):
            return (functional_call(model, parameters, (x[None],)) ** 2).sum()
        return vmap(grad(one), in_dims=(None, 0))(parameters, x)
    wanted = each(stock, wanted_of, x.double())
    own = made(stock)
    with torch.no_grad():
        for _ in range(3):
            own(x)
    parameters = {name: value.detach() for name, value in own.named_parameters()}
    found = each(own, parameters, x)
    assert len(found) == len(wanted)
    for one, other in zip(found.values(), wanted.values(), strict=True):
        close(one, other, 1e-5)


@pytest.mark.parametrize("dims", [(0, None, 0), (None, None, 0), (0, 0, None)], ids=str)
def test_vmap_of_the_operators_in_graphs(dims):
    given = tensors(*[(3, *size) if dim == 0 else size for size, dim in zip((X, W, B), dims, strict=True)])
    compiled = torch.compile(lambda *all_: vmap(lambda x, w, b: mt.conv2d(x, w, b, **HOW), in_dims=dims)(*all_),
                             backend="eager", fullgraph=True)
    with torch.no_grad():
        close(compiled(*given), vmap(lambda x, w, b: F.conv2d(x, w, b, **HOW), in_dims=dims)(
            *[t.double() for t in given]), 1e-5)


@pytest.mark.parametrize("name", ["conv2d_input", "conv2d_weight"])
@pytest.mark.parametrize("dims", [(0, None), (None, 0), (0, 0)], ids=str)
def test_vmap_of_the_gradients_as_operators(name, dims):
    size, other = ((5, 4), W) if name == "conv2d_input" else ((3, 2), X)
    given = tensors(*[(3, *s) if dim == 0 else s for s, dim in zip(((2, 6, 3, 3), other), dims, strict=True)])
    operator = getattr(torch.ops.maxdnn, name)

    def one(a, b):
        return operator(a, b, size, HOW["stride"], HOW["padding"], (1, 1), 2)
    found = vmap(one, in_dims=dims)(*given)
    for n in range(3):
        close(found[n], one(*[t if dim is None else t[n] for t, dim in zip(given, dims, strict=True)]).double(), 1e-5)
