"""The kernels of the paper: one output pixel for a tile of images and filters a CTA."""

from dataclasses import dataclass

from ..spec import TileKernel

TILE_ELEMENTS = 8
"""Patch elements (c, r, s) that one loop iteration of a convolution kernel consumes."""

TABLE_ENTRIES = 16384
"""Entries (int32) of the offset table: 64 KiB, all of a constant bank."""

OUT_OF_RANGE = 0x40000000
"""Table entry of an element that does not exist. Added to any base coordinate (below 2^29 + 2^28) it stays a positive
int32 beyond the largest texture (2^28 texels), so the fetch gives zero."""


@dataclass(frozen=True)
class ConvKernel(TileKernel):
    """`extra_iteration`: when 8 divides a layer's patch elements, its loop runs once more than needed."""

    extra_iteration: bool = False


_CONV_DOC = """Forward convolution of one output pixel for one tile of images and filters per block.

O[k,p,q,n] = alpha * sum of I[base(p,q,n) + offsets[e]] * F[first + e, k] over the launch's elements e  (+ O if
accumulate)

Maps I: C,Hp,Wp,Ns float32, zero padded in memory, Ns = N rounded up to a multiple of 4, bound to texI from its first
byte, exact length; texel ((c*Hp + h)*Wp + w)*(Ns/4) + n/4, at most 2^28 texels. Filters F: C,R,S,Ks float32, Ks = K
rounded up to a multiple of 4, bound to texF from its first byte, exact length (reads past the end must give zero).
The padding lanes n >= N and k >= K may hold anything. Output K,P,Q,N with the true K and N, fewer than 2^32 elements;
every element of the tile inside K and N is written once, nothing else.

Offset table: int32 offsets[8 * tiles] in the constant symbol `offsets`, at its start. Entry e is the texel offset
((c*Hp + r)*Wp + s)*(Ns/4) of the launch's element e; elements are numbered (c*R + r)*S + s over the whole layer and a
launch takes a run of them. Entries past the last element are OUT_OF_RANGE. Entries beyond
8 * tiles are never read. A layer of more than TABLE_ENTRIES elements is cut into runs; every run but the last must be a
multiple of 8 elements (the fill of a run would otherwise meet real filters). The first launch has accumulate 0, the
others 1; run boundaries need not be channel boundaries.

Grid: x = Q, y = P (at most 65535), z = filter tiles * image tiles, image tile fastest:
blockIdx.z = filter_tile * image_tiles + image_tile (at most 65535). Block: (64, 1, 1)."""


CONV_64X64 = ConvKernel("sconv_fprop_K64_N64", "maxwell/conv_fprop_64x64.sass", _CONV_DOC, (64, 64), (520, 347), 596)
CONV_128X32 = ConvKernel("sconv_fprop_K32_N128", "maxwell/conv_fprop_128x32.sass", _CONV_DOC, (128, 32), (521, 356),
                         618)
CONV_PAPER = ConvKernel("sconv_fprop_paper", "maxwell/conv_fprop_paper.sass", _CONV_DOC, (64, 64), (521, 343), 596,
                        extra_iteration=True)
"""The 64 x 64 kernel with the loop of the paper; what timings are compared with the paper's by. See its source."""

KERNELS = (CONV_64X64, CONV_128X32, CONV_PAPER)
