"""The catalogue of kernels: what each one computes, its resources and the exact meaning of its parameters. Pure data:
the sources in sass/ implement it, the planner fills it in, tests hold the built cubins to it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

TEXEL_FLOATS = 4
"""float32 values in one texel: maps and filters are read 16 bytes at a time."""

TILE_ELEMENTS = 8
"""Patch elements (c, r, s) that one loop iteration of a convolution kernel consumes."""

TABLE_ENTRIES = 16384
"""Entries (int32) of the offset table: 64 KiB, all of a constant bank."""

OUT_OF_RANGE = 0x40000000
"""Table entry of an element that does not exist. Added to any base coordinate (below 2^29 + 2^28) it stays a positive
int32 beyond the largest texture (2^28 texels), so the fetch gives zero."""

PARAM_BYTES = MappingProxyType({"ptr": 8, "f32": 4, "u32": 4})
"""Bytes of each parameter type. `ptr` is a device address."""


@dataclass(frozen=True, slots=True)
class KernelParam:
    """One kernel parameter: name, byte offset from the parameter base (0x140 of constant bank 0), type (a key of
    PARAM_BYTES), meaning."""

    name: str
    offset: int
    type: str
    meaning: str

    @property
    def nbytes(self) -> int:
        return PARAM_BYTES[self.type]


@dataclass(frozen=True, slots=True)
class ConstantSymbol:
    """A `__constant__` array the host fills before the launch."""

    name: str
    bank: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """One kernel.

    `name`: symbol in the cubin. `source`: file in sass/ (its cubin has the same stem). `threads`: threads per block,
    all in x. `shared_bytes`: static shared memory. `max_registers`: bound the built cubin must respect. `tile`: what a
    block computes: (images, filters) for convolutions, (rows, columns) for the transpose, (pixels,) for the padding.
    `params` in declaration order; `textures`: names of the 1D float32 x 4 texture references; `constants`: symbols.
    `doc`: what it computes, grid, limits. `extra_iteration`: when 8 divides a layer's patch elements, its loop runs
    once more than needed.
    """

    name: str
    source: str
    threads: int
    shared_bytes: int
    max_registers: int
    tile: tuple[int, ...]
    params: tuple[KernelParam, ...]
    doc: str
    textures: tuple[str, ...] = ()
    constants: tuple[ConstantSymbol, ...] = ()
    extra_iteration: bool = False

    @property
    def param_bytes(self) -> int:
        return max(p.offset + p.nbytes for p in self.params)


def _params(*rows: tuple[str, str, str]) -> tuple[KernelParam, ...]:
    """Rows (name, type, meaning) laid out at their natural alignment, as the cubin has them."""
    params = []
    offset = 0
    for name, type_, meaning in rows:
        size = PARAM_BYTES[type_]
        offset += -offset % size
        params.append(KernelParam(name, offset, type_, meaning))
        offset += size
    return tuple(params)


_CONV_PARAMS = _params(
    ("out", "ptr", "O: K,P,Q,N float32, true K and N; 4-byte aligned"),
    ("alpha", "f32", "factor of the sum"),
    ("accumulate", "u32", "0: O = alpha * sum; 1: O += alpha * sum"),
    ("tiles", "u32", "loop iterations, 1 .. 2048: ceil(elements of this launch / 8), or one more"),
    ("filter_offset", "u32", "texF texel of the launch's first element: first element * Ks/4"),
    ("map_row", "u32", "texI texels from one output row to the next: stride_h * Wp * Ns/4"),
    ("map_col", "u32", "texI texels from one output column to the next: stride_w * Ns/4"),
    ("map_texels", "u32", "Ns/4: texels of one pixel"),
    ("filter_texels", "u32", "Ks/4: texels of one patch element"),
    ("k", "u32", "K, filters"),
    ("n", "u32", "N, images"),
    ("out_plane", "u32", "P*Q*N: elements of O from one filter to the next"),
    ("out_row", "u32", "Q*N: elements of O from one output row to the next"),
    ("image_tiles", "u32", "ceil(N / images per tile), at most 32768"),
    ("tile_magic", "u32", "ceil(2^31 / image_tiles): the kernel divides blockIdx.z by image_tiles with it"),
)

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

CONV_64X64 = KernelSpec(
    name="sconv_fprop_K64_N64",
    source="conv_fprop_64x64.sass",
    threads=64,
    shared_bytes=8192,
    max_registers=128,
    tile=(64, 64),
    params=_CONV_PARAMS,
    doc=_CONV_DOC,
    textures=("texI", "texF"),
    constants=(ConstantSymbol("offsets", 3, 4 * TABLE_ENTRIES),),
)

CONV_PAPER = replace(CONV_64X64, name="sconv_fprop_paper", source="conv_fprop_paper.sass", extra_iteration=True)
"""The 64 x 64 kernel with the loop of the paper; what timings are compared with the paper's by. See its source."""

CONV_128X32 = KernelSpec(
    name="sconv_fprop_K32_N128",
    source="conv_fprop_128x32.sass",
    threads=64,
    shared_bytes=10240,
    max_registers=128,
    tile=(128, 32),
    params=_CONV_PARAMS,
    doc=_CONV_DOC,
    textures=("texI", "texF"),
    constants=(ConstantSymbol("offsets", 3, 4 * TABLE_ENTRIES),),
)

PAD = KernelSpec(
    name="spad",
    source="pad.sass",
    threads=128,
    shared_bytes=0,
    max_registers=32,
    tile=(4,),
    params=_params(
        ("dst", "ptr", "C,Hp,Wp,Ns float32, fewer than 2^32 elements"),
        ("src", "ptr", "C,H,W,N float32, N innermost, fewer than 2^32 elements; does not overlap dst"),
        ("c", "u32", "C"),
        ("h", "u32", "H"),
        ("w", "u32", "W"),
        ("n", "u32", "N"),
        ("hp", "u32", "Hp"),
        ("wp", "u32", "Wp"),
        ("ns", "u32", "Ns"),
        ("pad_h", "u32", "rows of zeros above the map"),
        ("pad_w", "u32", "columns of zeros left of the map"),
    ),
    doc="""Zero padding of maps: dst[c, h + pad_h, w + pad_w, n] = src[c, h, w, n]; every other element of dst is set
to zero (borders, also below and right when Hp > H + pad_h, and n >= N). Filters C,R,S,K -> C,R,S,Ks are the case
C = H = Hp = 1, W = Wp = C*R*S, N = K, Ns = Ks. All counts >= 1. Grid: x = ceil(Wp / 4), y = Hp (at most 65535),
z = min(C, 65535); a block walks over c in steps of gridDim.z. Block: (128, 1, 1), one warp per pixel.""",
)

TRANSPOSE = KernelSpec(
    name="stranspose",
    source="transpose.sass",
    threads=256,
    shared_bytes=32 * 33 * 4,
    max_registers=32,
    tile=(32, 32),
    params=_params(
        ("dst", "ptr", "columns x rows float32"),
        ("src", "ptr", "rows x columns float32; does not overlap dst"),
        ("rows", "u32", "rows of src, >= 1"),
        ("cols", "u32", "columns of src, >= 1; rows * cols < 2^32, each below 2^31"),
    ),
    doc="""Transpose of a matrix: dst[j, i] = src[i, j]. N,C,H,W -> C,H,W,N is rows = N, cols = C*H*W; K,C,R,S ->
C,R,S,K is rows = K, cols = C*R*S; K,P,Q,N -> N,K,P,Q is rows = K*P*Q, cols = N. Grid: x = ceil(rows / 32),
y = min(ceil(cols / 32), 65535); a block walks over column tiles in steps of gridDim.y. Block: (256, 1, 1).""",
)

KERNELS: Mapping[str, KernelSpec] = MappingProxyType({
    s.name: s for s in (CONV_64X64, CONV_PAPER, CONV_128X32, PAD, TRANSPOSE)})
"""Every kernel by its symbol."""
