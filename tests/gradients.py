"""Gradients of a layer in float64, each with the sums of its |terms|."""

import numpy as np


def gradient(shape, kind, images, filters, gradients):
    """(gradient, magnitudes) of the images ("data") or the filters ("filters") of a layer; arrays C,H,W,N,
    C/groups,R,S,K and K,P,Q,N, of which the one that is asked for may be None."""
    signed = _gradient(shape, kind, images, filters, gradients)
    return signed, _gradient(shape, kind, *(None if a is None else abs(a) for a in (images, filters, gradients)))


def _gradient(s, kind, images, filters, gradients):
    c, k = s.C // s.groups, s.K // s.groups
    padded = np.zeros((s.C, s.H + 2 * s.pad_h, s.W + 2 * s.pad_w, s.N))
    inner = padded[:, s.pad_h:s.pad_h + s.H, s.pad_w:s.pad_w + s.W]
    bank = np.zeros((c, s.R, s.S, s.K))
    if kind == "data":
        bank[:] = filters
    else:
        inner[:] = images
    g = gradients.astype(float).reshape(s.K, -1)
    for r, t in np.ndindex(s.R, s.S):
        rows = slice(r * s.dil_h, r * s.dil_h + (s.P - 1) * s.str_h + 1, s.str_h)
        columns = slice(t * s.dil_w, t * s.dil_w + (s.Q - 1) * s.str_w + 1, s.str_w)
        for group in range(s.groups):
            maps, run = padded[group * c:(group + 1) * c, rows, columns], slice(group * k, (group + 1) * k)
            if kind == "data":
                maps += (bank[:, r, t, run] @ g[run]).reshape(maps.shape)
            else:
                bank[:, r, t, run] = maps.reshape(c, -1) @ g[run].T
    return inner if kind == "data" else bank
