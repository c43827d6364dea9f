"""A launch file: what to launch of a cubin and on which memory, as JSON. `maxdnn run` and `maxdnn simulate` read the
same language here. A description is checked against itself when it is read, and against the kernels when it is placed
on a device: all of it before anything runs."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import LaunchError, MaxdnnError, shown
from ..runtime.devices.protocol import Dim3, Texture
from ..runtime.files import NUMBERS, read_array, read_json

HELP = """a launch file is one launch, or {"buffers": .., "launches": [launch, ..], "outputs": ..}; memory is kept from
launch to launch. A launch: {"kernel": name (may be left out if the cubin has one), "grid": [x, y, z],
"block": [x, y, z], "args": [argument, ..], "shared_bytes": n, "textures": {reference: buffer},
"constants": {symbol: values}}. An argument: an integer, {"f32": x}, {"f64": x}, the name of a buffer, or a new buffer:
"in.npy", "zeros:float32:64x64", {"bytes": n}, {"bytes": n, "i32" or "f32": [first values]}. "buffers": {name: new
buffer}. A texture's buffer: a name, the index of an argument that is one, or {"buffer": either, "channels": 1, 2 or 4}.
values: [int32, ..] or "in.npy". "outputs" (maxdnn run): {name of a buffer: "out.npy"}. Files are looked for beside the
launch file."""

_LAUNCH = {"kernel", "grid", "block", "args", "shared_bytes", "textures", "constants"}
_FILE = {"buffers", "launches", "outputs"}
_FIRST: dict[Any, Any] = {"i32": np.int32, "f32": np.float32}
_OTHER_ARGUMENTS = 'an integer, {"f32": x}, {"f64": x}, the name of a buffer, '


@dataclass(frozen=True)
class Content:
    """What a new buffer is as an array; it begins with the bytes of `first`, the rest is zero."""

    shape: tuple[int, ...]
    dtype: np.dtype
    first: np.ndarray

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Step:
    """One launch. `args`: numbers and names of buffers; `textures`: reference -> (buffer, channels)."""

    kernel: str | None
    grid: Dim3
    block: Dim3
    shared_bytes: int
    args: tuple[Any, ...]
    textures: Mapping[str, tuple[str, int]]
    constants: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Description:
    """Buffers by name with their first contents, launches in order, and which buffers go to which files."""

    buffers: Mapping[str, Content]
    launches: tuple[Step, ...]
    outputs: tuple[tuple[str, Path], ...] = ()


@dataclass(frozen=True)
class Placed:
    """A step with its kernel and memory on a device, ready to launch."""

    step: Step
    function: Any
    args: list[Any]
    textures: dict[str, Texture]

    def check(self) -> None:
        """Raises LaunchError or DeviceError for what the kernel cannot take."""
        s, module = self.step, self.function.module
        for symbol, words in s.constants.items():
            module.constant_place(symbol, words.nbytes)
        self.function.plan(s.grid, s.block, self.args, s.shared_bytes, self.textures)

    def launch(self) -> None:
        s = self.step
        self.function.launch(s.grid, s.block, self.args, shared_bytes=s.shared_bytes, textures=self.textures)


def read(path: Path) -> Description:
    """The description in a file. Raises LaunchError naming the file and the place in it, OSError for a missing file."""
    data = read_json(path)
    try:
        return parse(data, path.parent)
    except LaunchError as e:
        raise LaunchError(f"{path}: {e}") from None


def parse(data: Any, folder: Path = Path()) -> Description:
    """The description that plain data makes; files are named relative to `folder`. Raises LaunchError naming the entry,
    what it is and what it must be."""
    if not isinstance(data, dict):
        raise LaunchError(f"a launch file must be an object (got {shown(data)})")
    reader = _Reader(folder)
    if "launches" not in data:
        return Description(reader.buffers, (reader.step(data, "launch"),))
    _known(data, _FILE, "a file with launches")
    for name, value in _mapping(data, "buffers").items():
        reader.buffers[name] = content(value, f"buffers.{name}", folder)
    launches = data["launches"]
    if not isinstance(launches, list) or not launches:
        raise LaunchError(f"launches must be a list of at least one launch (got {shown(launches)})")
    steps = tuple(reader.step(x, f"launches[{n}]") for n, x in enumerate(launches))
    outputs = []
    for name, where in _mapping(data, "outputs").items():
        if name not in reader.buffers:
            raise LaunchError(f"outputs: no buffer {name!r}; there are: {', '.join(reader.buffers) or 'none'}")
        if not _is_npy(where):
            raise LaunchError(f"outputs.{name} must be a .npy file (got {shown(where)})")
        outputs.append((name, folder / where))
    return Description(reader.buffers, steps, tuple(outputs))


def place(description: Description, cubin: Any, gpu: Any) -> tuple[dict[str, Any], Iterator[Placed]]:
    """Buffers of a virtual GPU by name, filled, and the steps one by one, each with its constants set; a step is ready
    until the next is asked for. Raises LaunchError, DeviceError or CubinError for what does not fit the cubin, a
    later launch's too, before there is a first step."""
    if not isinstance(description, Description):
        raise LaunchError(f"a description must come from launchfile.read or parse (got {shown(description)})")
    module = gpu.load(cubin)
    buffers: dict[str, Any] = {}
    for name, new in description.buffers.items():
        try:
            buffers[name] = gpu.alloc(new.nbytes)
        except MaxdnnError as e:
            raise type(e)(f"{name}: {e}") from None
        if new.first.size:
            gpu.upload(buffers[name], new.first)
    steps = []
    for number, step in enumerate(description.launches):
        if step.kernel is None and len(module.cubin.kernels) != 1:
            raise LaunchError(f"launch {number + 1}: kernel must name one of the kernels of this cubin: "
                              f"{', '.join(module.cubin.kernels) or 'there is none'}")
        textures = {ref: Texture(buffers[name].address, buffers[name].nbytes, channels)
                    for ref, (name, channels) in step.textures.items()}
        steps.append(Placed(step, module.function(module.cubin.kernel(step.kernel).name),
                            [buffers[a] if isinstance(a, str) else a for a in step.args], textures))
        steps[-1].check()

    def ready() -> Iterator[Placed]:
        for placed in steps:
            for symbol, words in placed.step.constants.items():
                module.set_constant(symbol, words)
            yield placed
    return buffers, ready()


def is_content(text: str) -> bool:
    """Whether a text names a new buffer."""
    return text.endswith(".npy") or text.startswith("zeros:")


def content(value: Any, where: str, folder: Path = Path(), others: str = "", known: str = "") -> Content:
    """A new buffer. Raises LaunchError that begins with `where` and says what else there may be (`others`, `known`)."""
    match value:
        case str() if _is_npy(value):
            array = _npy(value, where, folder)
            return Content(array.shape, array.dtype, array)
        case str() if value.startswith("zeros:"):
            return _zeros(value, where)
        case {"bytes": nbytes, **rest} if _count(nbytes, 1) and len(rest) <= 1 and set(rest) <= set(_FIRST):
            first = np.zeros(0, np.int32)
            for kind, values in rest.items():
                first = _numbers(values, _FIRST[kind], where)
                if first.nbytes > nbytes:
                    raise LaunchError(f"{where}: {first.nbytes} bytes of first values do not fit {nbytes} bytes")
            return Content((nbytes,), np.dtype(np.uint8), first)
    raise LaunchError(f'{where} must be {others}a .npy file, zeros:DTYPE:SHAPE or {{"bytes": n, "i32": [..]}} '
                      f"(got {shown(value)}){known}")


class _Reader:
    """Reads launches; keeps the buffers there are, those without a name under one of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.buffers: dict[str, Content] = {}

    def step(self, data: Any, where: str) -> Step:
        if not isinstance(data, dict):
            raise LaunchError(f"{where} must be an object (got {shown(data)})")
        _known(data, _LAUNCH, where)
        kernel = data.get("kernel")
        if kernel is not None and not isinstance(kernel, str):
            raise LaunchError(f"{where}: kernel must be a name (got {shown(kernel)})")
        given = data.get("args", [])
        if not isinstance(given, list):
            raise LaunchError(f"{where}: args must be a list (got {shown(given)})")
        args = tuple(self._argument(a, f"{where}: args[{n}]") for n, a in enumerate(given))
        textures = {ref: self._texture(t, args, f"{where}: textures.{ref}")
                    for ref, t in _mapping(data, "textures", where).items()}
        constants = {symbol: self._values(v, f"{where}: constants.{symbol}")
                     for symbol, v in _mapping(data, "constants", where).items()}
        shared = data.get("shared_bytes", 0)
        if not _count(shared, 0):
            raise LaunchError(f"{where}: shared_bytes must be an integer from 0 on (got {shown(shared)})")
        return Step(kernel, _dim3(data, "grid", where), _dim3(data, "block", where), shared, args, textures, constants)

    def _argument(self, value: Any, where: str) -> Any:
        """A number, or the name of a buffer."""
        match value:
            case int() if type(value) is int:
                return value
            case {"f32": number, **rest} if not rest and type(number) in (int, float):
                return _float(number, np.float32, where)
            case {"f64": number, **rest} if not rest and type(number) in (int, float):
                return _float(number, np.float64, where)
            case str() if value in self.buffers:
                return value
            case {"buffer": nbytes, **rest} if "bytes" not in rest:  # an older word for "bytes"
                value = {"bytes": nbytes, **rest}
        known = f"; the buffers are: {', '.join(self.buffers)}" if isinstance(value, str) and self.buffers else ""
        self.buffers[where] = content(value, where, self._folder, _OTHER_ARGUMENTS, known)
        return where

    def _values(self, value: Any, where: str) -> np.ndarray:
        return _npy(value, where, self._folder) if _is_npy(value) else _numbers(value, np.int32, where)

    def _texture(self, value: Any, args: tuple[Any, ...], where: str) -> tuple[str, int]:
        channels = 4
        if isinstance(value, dict):
            _known(value, {"buffer", "channels"}, where)
            value, channels = value.get("buffer"), value.get("channels", 4)
        if type(channels) is not int or channels not in (1, 2, 4):
            raise LaunchError(f"{where}: channels must be 1, 2 or 4 (got {shown(channels)})")
        if _count(value, 0) and value < len(args):
            value = args[value]
        if not isinstance(value, str) or value not in self.buffers:
            raise LaunchError(f"{where} must be the name of a buffer or the index of an argument that is one "
                              f"(got {shown(value)})")
        return value, channels


def _mapping(data: Mapping[str, Any], name: str, where: str = "") -> Mapping[str, Any]:
    value = data.get(name, {})
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise LaunchError(f"{where + ': ' if where else ''}{name} must be an object (got {shown(value)})")
    return value


def _known(data: Mapping[str, Any], names: set[str], where: str) -> None:
    unknown = [key for key in data if key not in names]
    if unknown:
        raise LaunchError(f"{where}: no entry {shown(unknown[0])}; there are: {', '.join(sorted(names))}")


def _count(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _dim3(data: Mapping[str, Any], name: str, where: str) -> Dim3:
    value = data.get(name)
    if not isinstance(value, list) or not 1 <= len(value) <= 3 or not all(_count(v, 1) for v in value):
        raise LaunchError(f"{where}: {name} must be a list of one to three integers from 1 on (got {shown(value)})")
    x, y, z = [*value, 1, 1][:3]
    return x, y, z


def _is_npy(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.endswith(".npy") and b"\0" not in os.fsencode(value)
    except UnicodeEncodeError:
        return False


def _npy(name: str, where: str, folder: Path) -> np.ndarray:
    try:
        return read_array(folder / name)
    except LaunchError as e:
        raise LaunchError(f"{where}: {e}") from None


def _held(values: list[Any], dtype: Any) -> np.ndarray | None:
    """Numbers as an array; None if there is something else or one that the dtype cannot hold."""
    whole = np.dtype(dtype).kind == "i"
    if not all(type(v) is int or (type(v) is float and not whole) for v in values):
        return None
    if whole and not all(-2**31 <= v < 2**31 for v in values):
        return None
    try:
        with np.errstate(over="raise"):
            return np.array(values, dtype)
    except (OverflowError, FloatingPointError):
        return None


def _numbers(values: Any, dtype: Any, where: str) -> np.ndarray:
    found = _held(values, dtype) if isinstance(values, list) else None
    if found is None:
        raise LaunchError(f"{where} must be a list of {np.dtype(dtype)} numbers (got {shown(values)})")
    return found


def _float(value: int | float, dtype: Any, where: str) -> Any:
    found = _held([value], dtype)
    if found is None:
        raise LaunchError(f"{where} must fit a {np.dtype(dtype)} (got {shown(value)})")
    return found[0]


def _zeros(text: str, where: str) -> Content:
    try:
        _, name, sizes = text.split(":")
        dtype, shape = np.dtype(name), tuple(int(n) for n in sizes.split("x"))
        if dtype.kind in NUMBERS and min(shape) >= 0:
            return Content(shape, dtype, np.zeros(0, dtype))
    except (ValueError, TypeError, SyntaxError):
        pass
    raise LaunchError(f"{where} must look like zeros:float32:64x64, with a dtype of numbers (got {shown(text)})")
