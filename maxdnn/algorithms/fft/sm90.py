"""Filters as operands of products on tensor cores (sass/sm90/fft_split.sass)."""

from ...build.interface import KernelSpec
from ...planning.plan import FLOAT_BYTES, Launch, Value
from ..common.workspace import Draft
from ..gemm.tensor_cores import CHUNK, PIECE_BYTES, TILE, Pieces, split_work

EIGHT = 8
"""Divides the channels."""

SPLIT = KernelSpec("sm90_fft_split", "sm90/fft_split.sass", """Splits matrices of filters in FP16 parts: see
fft_split.sass. Grid: x = ceil(2 c / 64), y = ceil(2 k / 128), z = slots.""")


def split(draft: Draft, k: int, c: int, row: int, slots: int, half: int) -> Pieces:
    """Adds the launch that makes `filter_pieces` of region `filter_planes`, planes of c x row. `half`: the second slot
    of two real numbers."""
    x, y = -(-2 * c // CHUNK), -(-2 * k // TILE)
    nbytes = PIECE_BYTES * x * y * slots
    region = draft.region("filter_pieces", nbytes // FLOAT_BYTES)
    values: dict[str, Value] = {"in": "filter_planes", "out": region, "k": k, "c": c, "step": row, "plane": c * row,
                                "half": half}
    work = split_work(x * y * slots, nbytes + 2 * FLOAT_BYTES * k * c * slots)
    draft.launches.append(Launch(SPLIT, (x, y, slots), values, work, "matrices of filters are split in FP16 parts",
                                 (region,)))
    return Pieces(region, x * y, nbytes)
