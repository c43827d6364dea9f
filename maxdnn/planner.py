"""From a layer to the launches that compute it: kernels, grids, parameters, offset tables, workspace. Pure arithmetic;
no array, no device. (The module is not called `plan` because the package offers a function of that name.)"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .errors import ShapeError
from .kernels import (
    CONV_64X64,
    CONV_128X32,
    CONV_PAPER,
    OUT_OF_RANGE,
    PAD,
    TABLE_ENTRIES,
    TEXEL_FLOATS,
    TILE_ELEMENTS,
    TRANSPOSE,
    KernelSpec,
)
from .shape import ConvShape

LAYOUTS = ("CHWN", "NCHW")
CONV_KERNELS = {spec.name: spec for spec in (CONV_64X64, CONV_128X32, CONV_PAPER)}  # of equal ones the first is taken
MAX_TEXELS = 2**28  # 1D texture over linear memory (CUDA C Programming Guide, technical specifications): 4 GiB
MAX_GRID_YZ = 65535  # same source
MAX_IMAGE_TILES = 32768  # the kernel's division by a multiplication is exact up to here
MAX_ELEMENTS = 2**32 - 1  # the kernels count elements of an array in 32 bits
REGION_ALIGNMENT = 512  # bytes; no GPU asks more of the base address of a texture
_FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Region:
    """A piece of the workspace, in bytes from its start."""

    offset: int
    nbytes: int


@dataclass(frozen=True, eq=False)
class Launch:
    """One kernel launch with memory still called by name: "images", "filters" and "out" are the user's arrays, others
    are regions of the workspace. `values`: per kernel parameter a number, a memory name, or "alpha". `textures`:
    texture reference -> memory name. `offsets`: the table for constant memory (bytes of int32), if the kernel has one.
    """

    spec: KernelSpec
    grid: tuple[int, int, int]
    values: Mapping[str, int | str]
    textures: Mapping[str, str] = field(default_factory=dict)
    offsets: bytes | None = None

    @functools.cached_property
    def block(self) -> tuple[int, int, int]:
        return self.spec.threads, 1, 1

    def arguments(self, given: Mapping[str, Any]) -> list[Any]:
        """The kernel's arguments in order, with `given` for the names: memory and "alpha"."""
        values, names = self._in_order
        values = values.copy()
        for at, name in names:
            values[at] = given[name]
        return values

    @functools.cached_property
    def _in_order(self) -> tuple[list[Any], list[tuple[int, str]]]:
        """The values in the kernel's order, and which of them are names."""
        values = [self.values[p.name] for p in self.spec.params]
        return values, [(at, value) for at, value in enumerate(values) if isinstance(value, str)]


@dataclass(frozen=True, eq=False)
class ConvPlan:
    """A layer made ready; good for any number of calls. `layout` is that of the user's arrays. `spec`: the convolution
    kernel. `copies_images`, `copies_filters`: it reads a padded copy in the workspace. `launches` run in order.
    `workspace`: regions by name."""

    shape: ConvShape
    layout: str
    spec: KernelSpec
    copies_images: bool
    copies_filters: bool
    launches: tuple[Launch, ...]
    workspace: Mapping[str, Region]

    @property
    def passes(self) -> tuple[Launch, ...]:
        """The launches of the convolution kernel, without padding and layout changes."""
        return tuple(x for x in self.launches if x.spec is self.spec)

    @functools.cached_property
    def workspace_bytes(self) -> int:
        """Peak extra device memory of a call, beside the output."""
        return max((r.offset + r.nbytes for r in self.workspace.values()), default=0)

    @property
    def flops(self) -> int:
        """Useful work, see ConvShape.flops."""
        return self.shape.flops

    @property
    def tile_use(self) -> tuple[float, float, float]:
        """Share of the computed products that are wanted, along images, filters and patch elements."""
        images, filters = self.spec.tile
        steps = sum(int(p.values["tiles"]) for p in self.passes)
        s = self.shape
        return (s.N / _round_up(s.N, images), s.K / _round_up(s.K, filters), s.patch / (steps * TILE_ELEMENTS))

    def array_shapes(self) -> Mapping[str, tuple[int, int, int, int]]:
        """What images, filters and out must look like in this plan's layout."""
        return self._array_shapes

    @functools.cached_property
    def _array_shapes(self) -> Mapping[str, tuple[int, int, int, int]]:
        s = self.shape
        if self.layout == "NCHW":
            return {"images": (s.N, s.C, s.H, s.W), "filters": (s.K, s.C, s.R, s.S), "out": (s.N, s.K, s.P, s.Q)}
        return {"images": (s.C, s.H, s.W, s.N), "filters": (s.C, s.R, s.S, s.K), "out": (s.K, s.P, s.Q, s.N)}

    def explain(self) -> str:
        """What a call does and what it costs, in words."""
        s, (use_n, use_k, use_e) = self.shape, self.tile_use
        tile_n, tile_k = self.spec.tile
        last = self.passes[-1]
        x, y, z = last.grid
        lines = [
            f"{s}: output {s.P} x {s.Q}, {s.flops / 1e9:.3f} GFLOP",
            f"kernel {self.spec.name}: {x} x {y} x {z} blocks of {self.spec.threads} threads, "
            f"one output pixel and {tile_n} images x {tile_k} filters each",
        ]
        if len(self.passes) > 1:
            lines.append(f"{len(self.passes)} launches that accumulate: {s.patch} patch elements exceed the "
                         f"{TABLE_ENTRIES} offsets that constant memory holds")
        lines += self._explain_copies()
        loss = 1 - use_n * use_k * use_e
        lines.append(f"tiles: {use_n:.1%} of the images, {use_k:.1%} of the filters and {use_e:.1%} of the patch "
                     f"elements computed are wanted; ragged tiles cost {loss:.1%} of the efficiency")
        lines.append(f"workspace {self.workspace_bytes / 2**20:.1f} MiB")
        return "\n".join(lines)

    def _explain_copies(self) -> list[str]:
        s, lines = self.shape, []
        if self.layout == "NCHW":
            lines.append("images, filters and output change layout on the device: the kernel reads C,H,W,N")
        if self.copies_images:
            lines.append(f"images are copied to a zero-padded map of {s.C} x {s.H + 2 * s.pad_h} x {s.W + 2 * s.pad_w} "
                         f"x {_texels(s.N) * TEXEL_FLOATS}" + _because(s.N, "N"))
        if self.copies_filters:
            lines.append(f"filters are copied to {s.C} x {s.R} x {s.S} x {_texels(s.K) * TEXEL_FLOATS}"
                         + _because(s.K, "K"))
        return lines


def plan(shape: ConvShape, *, layout: str = "CHWN", kernel: str | None = None, copy_images: bool = False,
         copy_filters: bool = False) -> ConvPlan:
    """Plan a layer for arrays of `layout` "CHWN" (images C,H,W,N, filters C,R,S,K, out K,P,Q,N) or "NCHW" (N,C,H,W,
    K,C,R,S, N,K,P,Q). `kernel`: name of the convolution kernel; else the one whose tiles waste least, the paper's
    64 x 64 if that is no worse. `copy_images`, `copy_filters` force the copy into the workspace that otherwise is made
    only if needed. Raises ShapeError if the layer is beyond what textures, grids or 32-bit counts reach."""
    if layout not in LAYOUTS:
        raise ShapeError(f"layout must be one of {', '.join(LAYOUTS)} (got {layout!r})")
    if not isinstance(shape, ConvShape):
        raise ShapeError(f"shape must be a ConvShape (got {type(shape).__name__})")
    if kernel is None:
        kernel = min(CONV_KERNELS.values(), key=lambda spec: _computed(shape, spec)).name
    if kernel not in CONV_KERNELS:
        raise ShapeError(f"kernel must be one of {', '.join(CONV_KERNELS)} (got {kernel!r})")
    return _plan(shape, layout, CONV_KERNELS[kernel], bool(copy_images), bool(copy_filters))


def _computed(s: ConvShape, spec: KernelSpec) -> int:
    """Image-filter pairs computed per output pixel, wanted or not."""
    return _round_up(s.N, spec.tile[0]) * _round_up(s.K, spec.tile[1])


@functools.lru_cache(maxsize=64)
def _plan(shape: ConvShape, layout: str, spec: KernelSpec, copy_images: bool, copy_filters: bool) -> ConvPlan:
    s = shape
    copy_images = copy_images or s.padding != (0, 0) or s.N % TEXEL_FLOATS != 0
    copy_filters = copy_filters or s.K % TEXEL_FLOATS != 0
    _check_limits(s, spec, copy_images)
    memory = _Workspace()
    before, after = [], []
    images, filters, out = "images", "filters", "out"
    if layout == "NCHW":
        before += [_transpose(images, s.N, s.C * s.H * s.W, images := memory.add("images_chwn", s.C * s.H * s.W * s.N)),
                   _transpose(filters, s.K, s.patch, filters := memory.add("filters_crsk", s.patch * s.K))]
        out = memory.add("out_kpqn", s.K * s.P * s.Q * s.N)
        after = [_transpose(out, s.K * s.P * s.Q, s.N, "out")]
    if copy_images:
        hp, wp, ns = s.H + 2 * s.pad_h, s.W + 2 * s.pad_w, _texels(s.N) * TEXEL_FLOATS
        padded = memory.add("map", s.C * hp * wp * ns)
        before.append(_pad(padded, images, (s.C, s.H, s.W, s.N), (hp, wp, ns), s.padding))
        images = padded
    if copy_filters:
        ks = _texels(s.K) * TEXEL_FLOATS
        padded = memory.add("filter_bank", s.patch * ks)
        before.append(_pad(padded, filters, (1, 1, s.patch, s.K), (1, s.patch, ks), (0, 0)))
        filters = padded
    launches = (*before, *_passes(s, spec, images, filters, out), *after)
    return ConvPlan(s, layout, spec, copy_images, copy_filters, launches, memory.regions)


def _check_limits(s: ConvShape, spec: KernelSpec, copy_images: bool) -> None:
    tile_n, tile_k = spec.tile
    hp, wp = s.H + 2 * s.pad_h, s.W + 2 * s.pad_w
    for what, count, limit, reason in (
        ("padded map C x (H + 2 padding) x (W + 2 padding) x N/4", s.C * hp * wp * _texels(s.N), MAX_TEXELS,
         "texels, the 4 GiB reach of a texture"),
        ("filters C x R x S x K/4", s.patch * _texels(s.K), MAX_TEXELS, "texels, the 4 GiB reach of a texture"),
        ("output K x P x Q x N", s.K * s.P * s.Q * s.N, MAX_ELEMENTS, "elements"),
        ("output rows P", s.P, MAX_GRID_YZ, "blocks along y of the grid"),
        ("padded map rows H + 2 padding", hp if copy_images else 0, MAX_GRID_YZ, "blocks along y of the grid"),
        (f"image tiles N/{tile_n}", -(-s.N // tile_n), MAX_IMAGE_TILES, "tiles"),
        (f"tiles N/{tile_n} x K/{tile_k}", -(-s.N // tile_n) * -(-s.K // tile_k), MAX_GRID_YZ,
         "blocks along z of the grid"),
    ):
        if count > limit:
            raise ShapeError(f"{what} must be at most {limit} {reason} (got {count} for {s})")


def _passes(s: ConvShape, spec: KernelSpec, images: str, filters: str, out: str) -> list[Launch]:
    """The convolution, cut into runs of patch elements that constant memory has room for."""
    tile_n, tile_k = spec.tile
    image_tiles, filter_tiles = -(-s.N // tile_n), -(-s.K // tile_k)
    column = s.str_w * _texels(s.N)
    fixed: dict[str, int | str] = {
        "out": out, "alpha": "alpha", "map_row": s.str_h * (s.W + 2 * s.pad_w) * _texels(s.N), "map_col": column,
        "map_texels": _texels(s.N), "filter_texels": _texels(s.K), "k": s.K, "n": s.N,
        "out_plane": s.P * s.Q * s.N, "out_row": s.Q * s.N, "image_tiles": image_tiles,
        "tile_magic": -(-2**31 // image_tiles)}
    launches = []
    longest = TABLE_ENTRIES - TILE_ELEMENTS * spec.extra_iteration
    for first in range(0, s.patch, longest):
        last = min(first + longest, s.patch)
        table = offset_table(s, first, last, extra=spec.extra_iteration and last == s.patch)
        values = {**fixed, "accumulate": int(first > 0), "tiles": len(table) // TILE_ELEMENTS,
                  "filter_offset": first * _texels(s.K)}
        launches.append(Launch(spec, (s.Q, s.P, filter_tiles * image_tiles), values,
                               {"texI": images, "texF": filters}, table.tobytes()))
    return launches


def offset_table(s: ConvShape, first: int, last: int, extra: bool = False) -> np.ndarray:
    """int32: for each patch element e = (c R + r) S + s of first..last-1 its distance in texels from the patch's first
    element in the padded map; filled to whole kernel steps, or by at least one entry if `extra`, with an offset that
    reads as zero."""
    c, r, col = np.unravel_index(np.arange(first, last), (s.C, s.R, s.S))
    hp, wp = s.H + 2 * s.pad_h, s.W + 2 * s.pad_w
    table = np.full(_round_up(last - first + extra, TILE_ELEMENTS), OUT_OF_RANGE, np.int32)
    table[:last - first] = ((c * hp + r) * wp + col) * _texels(s.N)
    return table


def _pad(dst: str, src: str, size: tuple[int, int, int, int], padded: tuple[int, int, int], padding: Any) -> Launch:
    (c, h, w, n), (hp, wp, ns) = size, padded
    values: dict[str, int | str] = {"dst": dst, "src": src, "c": c, "h": h, "w": w, "n": n, "hp": hp, "wp": wp,
                                    "ns": ns, "pad_h": padding[0], "pad_w": padding[1]}
    return Launch(PAD, (-(-wp // PAD.tile[0]), hp, min(c, MAX_GRID_YZ)), values)


def _transpose(src: str, rows: int, cols: int, dst: str) -> Launch:
    tile_rows, tile_cols = TRANSPOSE.tile
    grid = (-(-rows // tile_rows), min(-(-cols // tile_cols), MAX_GRID_YZ), 1)
    return Launch(TRANSPOSE, grid, {"dst": dst, "src": src, "rows": rows, "cols": cols})


class _Workspace:
    """Regions laid out one after the other."""

    def __init__(self) -> None:
        self.regions: dict[str, Region] = {}
        self._end = 0

    def add(self, name: str, elements: int) -> str:
        nbytes = elements * _FLOAT_BYTES
        self.regions[name] = Region(self._end, nbytes)
        self._end = _round_up(self._end + nbytes, REGION_ALIGNMENT)
        return name


def _texels(n: int) -> int:
    return -(-n // TEXEL_FLOATS)


def _round_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple


def _because(size: int, name: str) -> str:
    return f" ({name}={size} is no multiple of {TEXEL_FLOATS})" if size % TEXEL_FLOATS else ""
