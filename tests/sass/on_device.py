"""Runs one kernel of the catalogue on the virtual GPU, by the words of the catalogue alone (no planner): every output
lies between guard zones and is filled with a pattern beforehand, so a value that is missing or out of place shows."""

from functools import cache
from math import ceil

import numpy as np

from maxdnn.algorithms.paper.maxwell import OUT_OF_RANGE, TILE_ELEMENTS
from maxdnn.build.cubins import cubin
from maxdnn.build.interface import KernelSpec
from maxdnn.emulator.gpu import VirtualGpu
from maxdnn.runtime.devices.protocol import Texture

GUARD = 64  # floats on either side
POISON = np.float32(-7.25e33)


@cache
def _loaded(spec: KernelSpec):
    gpu = VirtualGpu(race=True, undefined=True)
    return gpu, gpu.load(cubin(spec.source.removesuffix(".sass"), "sm_52"))


class Output:
    """A device array between guard zones; `initial` is what it holds before the launch (poison if None)."""

    def __init__(self, gpu, shape, initial=None):
        self.gpu, self.shape, size = gpu, shape, int(np.prod(shape))
        self.whole = np.full(size + 2 * GUARD, POISON, np.float32)
        if initial is not None:
            self.whole[GUARD:GUARD + size] = initial.ravel()
        self.buffer = gpu.alloc(self.whole.nbytes)
        gpu.upload(self.buffer, self.whole)
        self.address = self.buffer.address + 4 * GUARD

    def get(self):
        """The array; fails if a guard zone was written."""
        self.gpu.download(self.buffer, self.whole)
        assert (self.whole[:GUARD] == POISON).all() and (self.whole[-GUARD:] == POISON).all()
        return self.whole[GUARD:-GUARD].reshape(self.shape)


def _input(gpu, array):
    buffer = gpu.alloc(array.nbytes)
    gpu.upload(buffer, np.ascontiguousarray(array))
    return buffer


def convolve(spec, maps, filters, *, stride=(1, 1), alpha=1.0, out=None, run_elements=None, on_warp=None):
    """Launch a convolution kernel. maps C,H,W,N already padded, filters C,R,S,K; `out` is added to if given;
    run_elements cuts the elements into launches of that many. Returns K,P,Q,N. With on_warp, only the first block of
    each launch runs and every warp's trace is handed to on_warp."""
    c, h, w, n = maps.shape
    r, s, k = filters.shape[1:]
    ns, ks = 4 * ceil(n / 4), 4 * ceil(k / 4)
    p, q = (h - r) // stride[0] + 1, (w - s) // stride[1] + 1
    gpu, module = _loaded(spec)
    # What lies in the padding lanes must not matter.
    texi = _input(gpu, np.pad(maps, [(0, 0)] * 3 + [(0, ns - n)], constant_values=np.nan))
    texf = _input(gpu, np.pad(filters, [(0, 0)] * 3 + [(0, ks - k)], constant_values=np.nan))
    textures = {"texI": Texture(texi.address, texi.nbytes), "texF": Texture(texf.address, texf.nbytes)}
    result = Output(gpu, (k, p, q, n), out)

    element = np.arange(c)[:, None, None] * h + np.arange(r)[:, None]
    offsets = ((element * w + np.arange(s)) * (ns // 4)).astype(np.int32).ravel()
    image_tiles, filter_tiles = ceil(n / spec.tile[0]), ceil(k / spec.tile[1])
    run_elements = run_elements or len(offsets)
    for first in range(0, len(offsets), run_elements):
        run = offsets[first:first + run_elements]
        tiles = ceil(len(run) / TILE_ELEMENTS)
        table = np.full(TILE_ELEMENTS * tiles, OUT_OF_RANGE, np.int32)
        table[:len(run)] = run
        module.set_constant("offsets", table)
        values = {
            "out": result.address, "alpha": float(alpha), "accumulate": int(first > 0 or out is not None),
            "tiles": tiles,
            "filter_offset": first * ks // 4, "map_row": stride[0] * w * ns // 4, "map_col": stride[1] * ns // 4,
            "map_texels": ns // 4, "filter_texels": ks // 4, "k": k, "n": n, "out_plane": p * q * n, "out_row": q * n,
            "image_tiles": image_tiles, "tile_magic": ceil(2**31 / image_tiles),
        }
        function = module.function(spec.name)
        launch = ((q, p, filter_tiles * image_tiles), (spec.threads, 1, 1), [values[x.name] for x in spec.params])
        if on_warp:
            function.trace(*launch, blocks=[(0, 0, 0)], on_warp=on_warp, textures=textures)
        else:
            function.launch(*launch, textures=textures)
    gpu.synchronize()
    return result.get()


def pad(spec, src, padded, offset, channel_blocks=None):
    """Launch the padding kernel: src C,H,W,N into an array of shape `padded` = (C, Hp, Wp, Ns)."""
    c, h, w, n = src.shape
    _, hp, wp, ns = padded
    gpu, module = _loaded(spec)
    source, result = _input(gpu, src), Output(gpu, padded)
    module.function(spec.name).launch((ceil(wp / 4), hp, channel_blocks or c), (spec.threads, 1, 1),
                                      [result.address, source.address, c, h, w, n, hp, wp, ns, *offset])
    return result.get()


def transpose(spec, src, column_blocks=None):
    """Launch the transpose of a matrix, or of several."""
    *several, rows, cols = src.shape
    gpu, module = _loaded(spec)
    source, result = _input(gpu, src), Output(gpu, (*several, cols, rows))
    grid = ceil(rows / 32), column_blocks or ceil(cols / 32), *(several or [1])
    module.function(spec.name).launch(grid, (spec.threads, 1, 1),
                                      [result.address, source.address, rows, cols])
    return result.get()
