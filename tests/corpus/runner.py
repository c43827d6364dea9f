"""How a corpus program is described, run on any device, and judged.

A `Case` names a source file and builds a `Problem`: device buffers with their first contents, launches in order, and a
reference computed here in NumPy or exact integers, independent of any device.  `Case.run(gpu, cubin)` works with any
object that fulfils `maxdnn.runtime.devices.protocol.Device`: the virtual GPU, silicon through pycuda, or translated
code.

Comparison rules.  BITS wants every bit equal.  The references give 0x7fffffff for every NaN that single-precision
arithmetic produces (CUDA C Programming Guide, "Floating-Point Standard": the canonical single-precision NaN), which
holds on Maxwell and on later chips.  ANY_NAN is BITS except that a NaN matches any NaN: payloads of double-precision,
half-precision and library results are not documented.  The other rules bound the error against a wider reference and
name the document that gives the bound where they are used.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from maxdnn.runtime.devices import protocol as device

Array = np.ndarray[Any, Any]


class Device(device.Device, Protocol):
    """What a device must offer to run the whole corpus: maxdnn's protocol and texture objects."""

    def texture_object(self, texture: device.Texture) -> int:
        """A 64-bit handle for a texture object of float32 texels, read with 1D linear fetches."""


class Rule(Protocol):
    """Judges one output: the mask of elements that are wrong."""

    def __call__(self, got: Array, want: Array) -> Array: ...


def BITS(got: Array, want: Array) -> Array:
    """Every bit equal."""
    bits = np.dtype(f"u{got.dtype.itemsize}")
    same: Array = np.ascontiguousarray(want, got.dtype).view(bits) == np.ascontiguousarray(got).view(bits)
    return ~same


def ANY_NAN(got: Array, want: Array) -> Array:
    """Every bit equal, but any NaN matches any NaN."""
    wrong = BITS(got, want)
    if got.dtype.kind == "f":
        wrong &= ~(np.isnan(got) & np.isnan(want.astype(got.dtype)))
    return wrong


@dataclasses.dataclass(frozen=True)
class Bound:
    """|got - want| <= ulps * ulp(want) + absolute + relative * |want|, where `want` is wider than `got`.

    `ulps` and `absolute` may be arrays, one bound per element.

    Infinities and NaN must agree, but a value within the bound of the largest finite number may be either that or
    infinity.  With `flush`, zero is right wherever |want| is below the smallest normal number.  `source` says where the
    bound is documented.
    """

    source: str
    ulps: Any = 0.0
    absolute: Any = 0.0
    relative: float = 0.0
    flush: bool = False

    def __call__(self, got: Array, want: Array) -> Array:
        info = np.finfo(got.dtype)
        wide = np.promote_types(want.dtype, np.float64)
        want, value = want.astype(wide), got.astype(wide)
        with np.errstate(all="ignore"):
            magnitude = np.clip(np.abs(want), float(info.tiny), float(info.max))
            ulp = np.exp2(np.floor(np.log2(magnitude)) - info.nmant)
            allowed = self.ulps * ulp + self.absolute + self.relative * np.abs(want)
            near = np.abs(value - want) <= allowed
            overflow = np.isinf(value) & (np.abs(want) + allowed >= float(info.max)) & (np.sign(value) == np.sign(want))
        near |= (np.isnan(value) & np.isnan(want)) | (value == want) | overflow
        if self.flush:
            near |= (value == 0) & (np.abs(want) < float(info.tiny))
        return np.asarray(~near)


@dataclasses.dataclass(frozen=True)
class Object1D:
    """Kernel argument: a texture object over a buffer, for 1D linear fetches."""

    buffer: str
    channels: int = 4


Argument = str | np.generic | Object1D
Dim3 = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class Launch:
    """One kernel launch.  A `str` argument names a buffer and passes its address; NumPy scalars go by value."""

    kernel: str
    grid: Dim3
    block: Dim3
    args: Sequence[Any]  # of Argument
    shared_bytes: int = 0


@dataclasses.dataclass
class Problem:
    """Inputs, launches and expected results of one case.

    `expected()` gives the reference for each compared buffer, in the buffer's shape; a rule list judges row by row of
    the first axis.  Buffers it does not name must keep their first contents, save those in `scratch`, whose contents
    may depend on the order of threads.
    """

    buffers: dict[str, Array]
    launches: Sequence[Launch]
    expected: Callable[[], dict[str, Array]]
    rules: dict[str, Rule | Sequence[Rule]] = dataclasses.field(default_factory=dict)
    constants: dict[str, Array] = dataclasses.field(default_factory=dict)
    textures: dict[str, str] = dataclasses.field(default_factory=dict)
    scratch: frozenset[str] = frozenset()


class Mismatch(AssertionError):
    """A device's output breaks a case's rule; the message shows the first wrong elements."""


@dataclasses.dataclass(frozen=True)
class Case:
    """A corpus program: `source` under tests/corpus, and a builder of its Problem from a seeded generator."""

    name: str
    source: str
    build: Callable[[np.random.Generator], Problem]

    @property
    def seed(self) -> int:
        return zlib.crc32(self.name.encode())

    def problem(self) -> Problem:
        """The same problem at every call: the generator is seeded from the name."""
        return self.build(np.random.default_rng(self.seed))

    def run(self, gpu: Device, cubin: bytes, problem: Problem | None = None) -> dict[str, Array]:
        """Launch the program; returns the final contents of every buffer."""
        problem = problem or self.problem()
        module = gpu.load(cubin)
        buffers = {name: gpu.alloc(array.nbytes) for name, array in problem.buffers.items()}
        for name, array in problem.buffers.items():
            gpu.upload(buffers[name], np.ascontiguousarray(array))
        for name, array in problem.constants.items():
            module.set_constant(name, array.tobytes())
        textures = {name: _texture(buffers[buffer]) for name, buffer in problem.textures.items()}
        for launch in problem.launches:
            args = [_argument(gpu, argument, buffers) for argument in launch.args]
            module.function(launch.kernel).launch(
                launch.grid, launch.block, args, shared_bytes=launch.shared_bytes, textures=textures or None
            )
        gpu.synchronize()
        outputs = {name: np.empty(array.shape, array.dtype) for name, array in problem.buffers.items()}
        for name, array in outputs.items():
            gpu.download(buffers[name], array)
            buffers[name].free()
        return outputs

    def check(self, outputs: Mapping[str, Array], problem: Problem | None = None) -> None:
        """Raise Mismatch if an output breaks its rule; inputs that no launch may write are checked to be unchanged."""
        problem = problem or self.problem()
        expected = problem.expected()
        for name, first in problem.buffers.items():
            if name in problem.scratch:
                continue
            want = expected.get(name, first)
            rule = problem.rules.get(name, BITS) if name in expected else BITS
            _judge(f"{self.name}: {name}", outputs[name], want, rule)


def _texture(buffer: device.Buffer, channels: int = 4) -> device.Texture:
    return device.Texture(buffer.address, buffer.nbytes, channels)


def _argument(gpu: Device, argument: Argument, buffers: Mapping[str, device.Buffer]) -> Any:
    if isinstance(argument, str):
        return buffers[argument]
    if isinstance(argument, Object1D):
        return np.uint64(gpu.texture_object(_texture(buffers[argument.buffer], argument.channels)))
    return argument


def _judge(title: str, got: Array, want: Array, rule: Rule | Sequence[Rule]) -> None:
    if got.shape != want.shape:
        raise Mismatch(f"{title}: shape {got.shape}, reference {want.shape}")
    if callable(rule):
        wrong = rule(got, want)
    else:
        wrong = np.stack([row_rule(got[k], want[k]) for k, row_rule in enumerate(rule)])
    if wrong.any():
        where = np.argwhere(wrong)
        lines = [
            f"  {tuple(map(int, at))}: got {_show(got[tuple(at)])}, want {_show(want[tuple(at)])}" for at in where[:8]
        ]
        rows = sorted({int(at[0]) for at in where}) if got.ndim > 1 else []
        raise Mismatch(
            f"{title}: {len(where)} of {got.size} wrong{f', rows {rows}' if rows else ''}\n" + "\n".join(lines)
        )


def _show(value: np.generic) -> str:
    digits = value.tobytes()[::-1].hex() if value.dtype.itemsize <= 8 else ""
    return f"{value} (0x{digits})" if digits else str(value)
