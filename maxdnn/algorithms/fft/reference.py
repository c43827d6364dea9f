"""What the transforms of a convolution by FFT promise."""

from collections.abc import Mapping

import numpy as np

from ...planning.plan import Launch
from ..common.epilogue import finish
from ..common.fastdiv import digits
from ..gemm.tensor_cores import CHUNK, TILE, write_pieces
from ..spec import Memory, seen, signed
from .maxwell import SUMS, UNITS, WARPS, GroupsKernel, TransformKernel
from .sm90 import SPLIT


def reference(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    spec = launch.spec
    if spec is SPLIT:
        _split(launch, memory)
        return
    assert isinstance(spec, TransformKernel)
    steps = {"maps": _maps, "twice": _maps, "filters": _filters, "large": _filters, "out": _out, "taps": _taps}
    steps[spec.step](launch, spec, memory, scalars)


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
    texels, out = seen(memory, launch.textures["tex_I"]), seen(memory, launch.values["planes"])
    for c in range(channels):
        tiles = _tiles(launch, spec, texels, v["map_start"] + c * v["map_channel"], (0, 0))
        found = 2 * slots_of(tiles).reshape(v["tiles"], -1, 2)
        re, im = found[..., 0], found[..., 1]
        planes = [re, im]
        if spec.step == "twice":
            of_im, of_re, two = im.copy(), -re, [0, spec.side // 2]
            of_im[:, two], of_re[:, two] = 0, im[:, two]
            planes = [re, of_im, of_im, of_re]
        where = np.arange(spec.side**2 // 2) * 2 * v["plane"] + c * v["row"] + np.arange(v["tiles"])[:, None]
        for number, values in enumerate(planes):
            plane, second = divmod(number, len(planes) // 2)
            out[where + plane * v["plane"] + (second and v["second"])] = values


def _tiles(launch: Launch, spec: TransformKernel | GroupsKernel, texels: np.ndarray, start: int,
           shift: tuple[int, int]) -> np.ndarray:
    """[tile, row, column] of the channel whose first pixel is texel `start`, moved by so many rows and columns."""
    v = launch.numbers
    image, row, column = _at(v, spec.layout)
    padding = signed(launch, "pad_h", "pad_w")
    y = (row - padding["pad_h"] + shift[0])[:, None] + np.arange(spec.side)
    x = (column - padding["pad_w"] + shift[1])[:, None] + np.arange(spec.side)
    rows, columns = (np.arange(spec.side) < v[limit] for limit in ("limit_h", "limit_w"))
    inside = ((y >= 0) & (y < v["h"]) & rows)[:, :, None] & ((x >= 0) & (x < v["w"]) & columns)[:, None, :]
    at = start + (image * v["map_image"])[:, None, None] + y[:, :, None] * v["map_row"] + x[:, None, :] * v["map_col"]
    return np.where(inside, texels[np.where(inside, at, 0)], 0).astype(float)


def reference_groups(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernels that transform, multiply and transform back promise."""
    spec = launch.spec
    assert isinstance(spec, GroupsKernel)
    v, side, filters = launch.numbers, spec.side, launch.grid[1]
    assert launch.grid[0] == -(-v["tiles"] // UNITS)
    spectra = seen(memory, launch.values["spectra"]).astype(float)
    channels, texels = v["terms"] // (v["parts_h"] * v["parts_w"]), seen(memory, launch.textures["tex_I"])
    for k in range(filters):
        group = (k + 1) * v["group_magic"] >> 32 + v["group_shift"]
        sums = np.zeros((v["tiles"], side**2 // 2, 2))
        for term, (c, row, column) in enumerate(np.ndindex(channels, v["parts_h"], v["parts_w"])):
            shift = row * v["part_h"], column * v["part_w"]
            start = v["map_start"] + group * v["map_group"] + c * v["map_channel"]
            x = np.moveaxis(2 * slots_of(_tiles(launch, spec, texels, start, shift)), -1, 0)
            w = spectra[(k * v["terms"] + term) * side**2:][:side**2].reshape(-1, 2).T
            found = np.stack([x[0] * w[0] + x[1] * w[1], x[1] * w[0] - x[0] * w[1]], -1)
            for slot in (0, side // 2):
                found[:, slot] = np.stack([x[0, :, slot] * w[0, slot], x[1, :, slot] * w[1, slot]], -1)
            sums += found
        _results(launch, spec, memory, scalars, k, tiles_of(sums) * side**2)


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
        where = slot * v["plane"] + outer * v["row"] + inner * v["column"]
        for part in (0, 1):
            out[where + part * v["to_im"]] = from_re[..., slot, part]
            if v["from_im"]:
                out[where + part * v["to_im"] + v["from_im"]] = from_im[..., slot, part]


def _split(launch: Launch, memory: Memory) -> None:
    v, (x, y, slots) = launch.numbers, launch.grid
    k, c = v["k"], v["c"]
    assert (x, y) == (-(-2 * c // CHUNK), -(-2 * k // TILE))
    source, out = seen(memory, launch.values["in"]), seen(memory, launch.values["out"]).view(np.uint8)
    for slot in range(slots):
        at = 2 * slot * v["plane"] + np.arange(c) * v["step"] + np.arange(k)[:, None]
        re, im = source[at], source[at + v["plane"]]
        none = np.zeros_like(re)
        write_pieces(out, (x, y), slot,
                     np.block([[re, none], [none, im]] if slot in (0, v["half"]) else [[re, im], [-im, re]]))


def _out(launch: Launch, spec: TransformKernel, memory: Memory, scalars: Mapping[str, float]) -> None:
    v, filters = launch.numbers, launch.grid[1]
    assert launch.grid[0] == -(-v["tiles"] // UNITS)
    planes = seen(memory, launch.values["planes"])
    t = np.arange(spec.side**2)
    for k in range(filters):
        at = t // 2 * 2 * v["plane"] + t % 2 * v["to_im"] + k * v["row"] + np.arange(v["tiles"])[:, None]
        slots = planes[at].astype(float)
        _results(launch, spec, memory, scalars, k, tiles_of(slots.reshape(v["tiles"], -1, 2)) * spec.side**2)


def _results(launch: Launch, spec: TransformKernel | GroupsKernel, memory: Memory, scalars: Mapping[str, float],
             k: int, tiles: np.ndarray) -> None:
    """The first rows and columns of each tile to filter k's results."""
    v = launch.numbers
    image, row, column = _at(v, spec.layout)
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


def reference_sums(launch: Launch, memory: Memory, scalars: Mapping[str, float]) -> None:
    """What the kernel of gradients of filters in groups promises."""
    assert launch.spec is SUMS
    v, (x, slots, channels) = launch.numbers, launch.grid
    assert x == -(-v["filters"] // WARPS)
    k, j = np.arange(v["filters"])[:, None], np.arange(v["tiles"])
    maps, gradients = (seen(memory, launch.values[name]).astype(float) for name in ("maps", "gradients"))
    out, groups = seen(memory, launch.values["out"]), (k + 1) * v["group_magic"] >> 32 + v["group_shift"]
    for slot, c in np.ndindex(slots, channels):
        x_at = 2 * slot * v["map_plane"] + (groups * v["map_group"] + c) * v["row"] + j
        g_at = 2 * slot * v["gradient_plane"] + k * v["row"] + j
        for product in range(4):
            found = maps[x_at + product % 2 * v["map_plane"]] * gradients[g_at + product // 2 * v["gradient_plane"]]
            out[slot * v["out_slot"] + (4 * c + product) * v["filters"] + k.ravel()] = found.sum(1)
