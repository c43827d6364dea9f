"""The kernels that copy, clear, add and activate."""

from ...build.interface import KernelSpec

PAD_PIXELS = 4  # of a CTA: one a warp
TRANSPOSE_TILE = 32  # rows and columns of a CTA

PAD = KernelSpec(
    name="spad",
    source="maxwell/pad.sass",
    doc="""Zero padding of maps: dst[c, h + pad_h, w + pad_w, n] = src[c, h, w, n]; every other element of dst is set
to zero (borders, also below and right when Hp > H + pad_h, and n >= N). Filters C,R,S,K -> C,R,S,Ks are the case
C = H = Hp = 1, W = Wp = C*R*S, N = K, Ns = Ks. All counts >= 1. Grid: x = ceil(Wp / 4), y = Hp (at most 65535),
z = min(C, 65535); a block walks over c in steps of gridDim.z. Block: (128, 1, 1), one warp per pixel.""",
)

TRANSPOSE = KernelSpec(
    name="stranspose",
    source="maxwell/transpose.sass",
    doc="""Transpose of matrices: dst[z, j, i] = src[z, i, j]. N,C,H,W -> C,H,W,N is rows = N, cols = C*H*W; K,C,R,S ->
C,R,S,K is rows = K, cols = C*R*S; K,P,Q,N -> N,K,P,Q is rows = K*P*Q, cols = N; N,H,W,C -> N,C,H,W is N matrices of
rows = H*W, cols = C. Grid: x = ceil(rows / 32), y = min(ceil(cols / 32), 65535), z = matrices; a block walks over
column tiles in steps of gridDim.y. Block: (256, 1, 1).""",
)

TURN = KernelSpec("sturn", "maxwell/turn.sass", """Filters with channels and filters exchanged and any of their taps in
any order, zero where a row or column does not exist. Grid:
x = taps, y = tiles of 32 filters, z = tiles of 32 channels.""")
TURN_TILE = 32  # filters and channels of a block

FILL = KernelSpec("sfill", "maxwell/fill.sass", """Zeroes. Grid: x = ceil(count / 512).""")

ACTIVATE = KernelSpec("sactivate", "maxwell/activate.sass", """An activation of each element, in place. Grid:
x = ceil(count / 512).""")

REDUCE = KernelSpec("sreduce", "maxwell/reduce.sass", """Sum of the partial sums of split-K. Grid:
x = ceil(length / 128), y = filters, z = images (1 if O has them innermost).""")
