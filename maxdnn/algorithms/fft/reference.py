"""What the transforms of a convolution by FFT promise."""

from collections.abc import Mapping

import numpy as np

from ...planning.plan import Launch
from ..common.epilogue import finish
from ..common.fastdiv import digits
from ..gemm.tensor_cores import CHUNK, PIECE_BYTES, TILE, piece
from ..spec import Memory, seen, signed
from .maxwell import UNITS, TransformKernel
from .sm90 import SPLIT


def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    spec = launch.spec
    if spec is SPLIT:
        _split(launch, memory)
        return
    assert isinstance(spec, TransformKernel)
    {"maps": _maps, "filters": _filters, "out": _out, "taps": _taps}[spec.step](launch, spec, memory, scalars)


def slots_of(tiles: np.ndarray) -> np.ndarray:
    """Real tiles [.., side, side] -> the pairs of their transforms that are kept, [.., slots, 2]: a column of slots for
    each half of the frequencies along rows. Column 0 has those of frequency 0 in front and of side / 2 behind; of
    either the first frequency along columns, and that of side / 2, is real, and the two share a slot."""
    side = tiles.shape[-1]
    half = side // 2
    spectrum = np.fft.rfft2(tiles)
    columns = np.moveaxis(spectrum[..., :half], -1, -2).copy()  # [.., column, row]
    last = spectrum[..., half]
    columns[..., 0, half + 1:] = last[..., half - 1:0:-1]
    for row in (0, half):
        columns[..., 0, row] = spectrum[..., row, 0].real + 1j * last[..., row].real
    found = np.stack([columns.real, columns.imag], -1)
    return found.reshape(*tiles.shape[:-2], -1, 2)


def tiles_of(slots: np.ndarray) -> np.ndarray:
    """The opposite, [.., slots, 2] -> [.., side, side]."""
    side = int((2 * slots.shape[-2])**0.5)
    half = side // 2
    columns = (slots[..., 0] + 1j * slots[..., 1]).reshape(*slots.shape[:-2], half, side)
    spectrum = np.zeros((*slots.shape[:-2], side, half + 1), complex)
    spectrum[..., 1:half] = np.moveaxis(columns[..., 1:, :], -1, -2)
    first, last = columns[..., 0, :half + 1].copy(), np.zeros_like(columns[..., 0, :half + 1])
    last[..., 1:half] = columns[..., 0, :half:-1]
    for row in (0, half):
        first[..., row], last[..., row] = columns[..., 0, row].real, columns[..., 0, row].imag
    for place, one in ((0, first), (half, last)):
        spectrum[..., :half + 1, place] = one
        spectrum[..., half + 1:, place] = one[..., half - 1:0:-1].conj()
    return np.fft.irfft2(spectrum, (side, side))


def _at(v: Mapping[str, int], layout: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Image, and first row and column of the results, of each tile."""
    i0, i1, i2 = digits(v, np.arange(v["tiles"]))
    image, row, column = (i2, i1, i0) if layout == "NCHW" else (i0, i2, i1)
    return image, row * v["step_h"], column * v["step_w"]


def _maps(launch: Launch, spec: TransformKernel, memory: Memory, _: object) -> None:
    v, channels = launch.numbers, launch.grid[1]
    assert launch.grid[0] == -(-v["tiles"] // UNITS)
    image, row, column = _at(v, spec.layout)
    padding = signed(launch, "pad_h", "pad_w")
    y = (row - padding["pad_h"])[:, None] + np.arange(spec.side)
    x = (column - padding["pad_w"])[:, None] + np.arange(spec.side)
    rows, columns = (np.arange(spec.side) < v[limit] for limit in ("limit_h", "limit_w"))
    inside = ((y >= 0) & (y < v["h"]) & rows)[:, :, None] & ((x >= 0) & (x < v["w"]) & columns)[:, None, :]
    at = v["map_start"] + (image * v["map_image"])[:, None, None] + y[:, :, None] * v["map_row"] + x[:, None, :] * v[
        "map_col"]
    texels, out = seen(memory, launch.textures["tex_I"]), seen(memory, launch.values["planes"])
    for c in range(channels):
        tiles = np.where(inside, texels[np.where(inside, at + c * v["map_channel"], 0)], 0).astype(float)
        found = 2 * slots_of(tiles).reshape(v["tiles"], -1)
        for t in range(spec.side**2):
            out[t * v["plane"] + c * v["row"] + np.arange(v["tiles"])] = found[:, t]


def _filters(launch: Launch, spec: TransformKernel, memory: Memory, _: object) -> None:
    v, outer = launch.numbers, np.arange(launch.grid[1])[:, None]
    assert launch.grid[0] == -(-v["inner"] // UNITS)
    steps, inner = signed(launch, "step_r", "step_s"), np.arange(v["inner"])
    r, s = np.arange(v["r"])[:, None], np.arange(v["s"])
    at = v["start"] + (outer * v["step_outer"] + inner * v["step_inner"])[..., None, None] + (
        r * steps["step_r"] + s * steps["step_s"])
    taps = np.zeros((len(outer), len(inner), spec.side, spec.side))
    taps[..., :v["r"], :v["s"]] = seen(memory, launch.values["filters"])[at]
    slots = slots_of(taps) / (2 * spec.side**2)
    re, im = slots[..., 0], slots[..., 1]
    from_re = np.stack([re, im], -1)  # what makes real parts, of real and imaginary ones
    from_im = np.stack([-im, re], -1)
    for slot in (0, spec.side // 2) if v["from_im"] else ():
        from_re[..., slot, 1] = from_im[..., slot, 0] = 0
        from_im[..., slot, 1] = im[..., slot]
    out = seen(memory, launch.values["planes"])
    for slot in range(spec.side**2 // 2):
        where = slot * v["plane"] + outer * v["row"] + inner
        for part in (0, 1):
            out[where + part * v["to_im"]] = from_re[..., slot, part]
            if v["from_im"]:
                out[where + part * v["to_im"] + v["from_im"]] = from_im[..., slot, part]


def _split(launch: Launch, memory: Memory) -> None:
    v, (x, y, slots) = launch.numbers, launch.grid
    k, c = v["k"], v["c"]
    assert (x, y) == (-(-2 * c // CHUNK), -(-2 * k // TILE))
    source, out = seen(memory, launch.values["in"]), seen(memory, launch.values["out"]).view(np.uint8)
    pieces = out[:PIECE_BYTES * x * y * slots].reshape(slots, y, x, PIECE_BYTES)
    for slot in range(slots):
        at = 2 * slot * v["plane"] + np.arange(c) * v["step"] + np.arange(k)[:, None]
        re, im = source[at], source[at + v["plane"]]
        none = np.zeros_like(re)
        whole = np.zeros((TILE * y, CHUNK * x), np.float32)
        whole[:2 * k, :2 * c] = np.block([[re, none], [none, im]] if slot in (0, v["half"]) else [[re, im], [-im, re]])
        for row, chunk in np.ndindex(y, x):
            pieces[slot, row, chunk] = piece(whole[TILE * row:TILE * (row + 1), CHUNK * chunk:CHUNK * (chunk + 1)],
                                             pieces[slot, row, chunk])


def _out(launch: Launch, spec: TransformKernel, memory: Memory, scalars: Mapping[str, float]) -> None:
    v, filters = launch.numbers, launch.grid[1]
    assert launch.grid[0] == -(-v["tiles"] // UNITS)
    image, row, column = _at(v, spec.layout)
    planes = seen(memory, launch.values["planes"])
    t = np.arange(spec.side**2)
    for k in range(filters):
        slots = planes[t * v["plane"] + k * v["row"] + np.arange(v["tiles"])[:, None]].astype(float)
        tiles = tiles_of(slots.reshape(v["tiles"], -1, 2)) * spec.side**2
        p = row[:, None, None] + np.arange(v["step_h"])[:, None]
        q = column[:, None, None] + np.arange(v["step_w"])
        exists = (p < v["p"]) & (q < v["q"])
        where = k * v["out_k"] + image[:, None, None] * v["out_image"] + p * v["out_row"] + q * v["out_col"]
        found = tiles[:, :v["step_h"], :v["step_w"]]
        finish(launch, memory, scalars, where[exists], found[exists], np.full(int(exists.sum()), k))


def _taps(launch: Launch, spec: TransformKernel, memory: Memory, scalars: Mapping[str, float]) -> None:
    v, outer = launch.numbers, np.arange(launch.grid[1])[:, None]
    inner, slots = np.arange(v["tiles"]), np.arange(spec.side**2 // 2)
    assert launch.grid[0] == -(-v["tiles"] // UNITS) and v["d0"] == v["tiles"]
    sums = seen(memory, launch.values["planes"])
    at = (outer * v["row"] + inner)[..., None] + slots * v["plane"]
    (rr, ri), (ir, ii) = [[sums[at + x * v["to_map"] + g * v["to_gradient"]].astype(float) for g in (0, 1)]
                          for x in (0, 1)]
    re, im = rr + ii, ir - ri
    for slot in (0, spec.side // 2):
        re[..., slot], im[..., slot] = rr[..., slot], ii[..., slot]
    taps = tiles_of(np.stack([re, im], -1))[..., :v["p"], :v["q"]] / 4
    where = (outer * v["out_k"] + inner * v["out_image"])[..., None, None] + (
        np.arange(v["p"])[:, None] * v["out_row"] + np.arange(v["q"]) * v["out_col"])
    finish(launch, memory, scalars, where, taps, np.zeros(1, int))
