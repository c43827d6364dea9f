"""A launch file: what to launch of a cubin and on which memory, as JSON. `maxdnn run` and `maxdnn simulate` read the
same language here. Everything is checked against itself before anything runs; what a kernel takes is checked at its
launch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .devices.protocol import Dim3, Texture
from .errors import LaunchError

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

    buffers: Mapping[str, np.ndarray]
    launches: tuple[Step, ...]
    outputs: Mapping[str, Path]


@dataclass(frozen=True)
class Placed:
    """A step with its kernel and memory on a device, ready to launch."""

    step: Step
    function: Any
    args: list[Any]
    textures: dict[str, Texture]

    def launch(self) -> None:
        s = self.step
        self.function.launch(s.grid, s.block, self.args, shared_bytes=s.shared_bytes, textures=self.textures or None)


def read(path: Path) -> Description:
    """The description in a file. Raises LaunchError naming the file and the place in it, OSError for a missing file."""
    try:
        data = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as e:
        raise LaunchError(f"{path}: not JSON: {e}") from None
    try:
        return parse(data, path.parent)
    except LaunchError as e:
        raise LaunchError(f"{path}: {e}") from None


def parse(data: Any, folder: Path = Path()) -> Description:
    """The description that plain data makes; files are named relative to `folder`. Raises LaunchError naming the entry,
    what it is and what it must be."""
    if not isinstance(data, dict):
        raise LaunchError(f"a launch file must be an object (got {_short(data)})")
    reader = _Reader(folder)
    if "launches" not in data:
        return Description(reader.buffers, (reader.step(data, "launch"),), {})
    _known(data, _FILE, "a file with launches")
    for name, value in _mapping(data, "buffers").items():
        reader.buffers[name] = reader.content(value, f"buffers.{name}")
    launches = data["launches"]
    if not isinstance(launches, list) or not launches:
        raise LaunchError(f"launches must be a list of at least one launch (got {_short(launches)})")
    steps = tuple(reader.step(x, f"launches[{n}]") for n, x in enumerate(launches))
    outputs = {}
    for name, where in _mapping(data, "outputs").items():
        if name not in reader.buffers:
            raise LaunchError(f"outputs: no buffer {name!r}; there are: {', '.join(reader.buffers) or 'none'}")
        if not isinstance(where, str) or not where.endswith(".npy"):
            raise LaunchError(f"outputs.{name} must be a .npy file (got {_short(where)})")
        outputs[name] = folder / where
    return Description(reader.buffers, steps, outputs)


def place(description: Description, cubin: Any, gpu: Any) -> tuple[dict[str, Any], Iterator[Placed]]:
    """Buffers of a device by name, filled, and the steps one by one, each with its constants set; a step is ready
    until the next is asked for. Raises LaunchError or DeviceError for names the cubin does not have."""
    module = gpu.load(cubin)
    functions = [module.function(module.cubin.kernel(step.kernel).name) for step in description.launches]
    buffers = {}
    for name, array in description.buffers.items():
        buffers[name] = gpu.alloc(array.nbytes)
        if array.any():
            gpu.upload(buffers[name], array)

    def steps() -> Iterator[Placed]:
        for step, function in zip(description.launches, functions, strict=True):
            for symbol, words in step.constants.items():
                module.set_constant(symbol, words)
            textures = {ref: Texture(buffers[name].address, buffers[name].nbytes, channels)
                        for ref, (name, channels) in step.textures.items()}
            yield Placed(step, function, [buffers[a] if isinstance(a, str) else a for a in step.args], textures)
    return buffers, steps()


class _Reader:
    """Reads entries; keeps the buffers there are, those without a name under one of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.buffers: dict[str, np.ndarray] = {}

    def step(self, data: Any, where: str) -> Step:
        if not isinstance(data, dict):
            raise LaunchError(f"{where} must be an object (got {_short(data)})")
        _known(data, _LAUNCH, where)
        kernel = data.get("kernel")
        if kernel is not None and not isinstance(kernel, str):
            raise LaunchError(f"{where}: kernel must be a name (got {_short(kernel)})")
        given = data.get("args", [])
        if not isinstance(given, list):
            raise LaunchError(f"{where}: args must be a list (got {_short(given)})")
        args = tuple(self._argument(a, f"{where}: args[{n}]") for n, a in enumerate(given))
        textures = {ref: self._texture(t, args, f"{where}: textures.{ref}")
                    for ref, t in _mapping(data, "textures", where).items()}
        constants = {symbol: self._values(v, f"{where}: constants.{symbol}")
                     for symbol, v in _mapping(data, "constants", where).items()}
        shared = data.get("shared_bytes", 0)
        if not _count(shared, 0):
            raise LaunchError(f"{where}: shared_bytes must be an integer from 0 on (got {_short(shared)})")
        return Step(kernel, _dim3(data, "grid", where), _dim3(data, "block", where), shared, args, textures, constants)

    def _argument(self, value: Any, where: str) -> Any:
        match value:
            case bool():
                pass
            case int():
                return value
            case {"f32": int() | float() as number, **rest} if not rest:
                return np.float32(number)
            case {"f64": int() | float() as number, **rest} if not rest:
                return np.float64(number)
            case str() if value in self.buffers:
                return value
            case {"buffer": nbytes, **rest}:  # as "bytes"
                value = {"bytes": nbytes, **rest}
        name = f"{where}"
        self.buffers[name] = self.content(value, where)
        return name

    def content(self, value: Any, where: str) -> np.ndarray:
        """The first content of a new buffer."""
        match value:
            case str() if value.endswith(".npy"):
                return self._npy(value, where)
            case str() if value.startswith("zeros:"):
                return _zeros(value, where)
            case {"bytes": nbytes, **rest} if _count(nbytes, 1) and len(rest) <= 1 and set(rest) <= {"i32", "f32"}:
                data = np.zeros(nbytes, np.uint8)
                for kind, values in rest.items():
                    first = _numbers(values, np.int32 if kind == "i32" else np.float32, where).view(np.uint8)
                    if len(first) > nbytes:
                        raise LaunchError(f"{where}: {len(first)} bytes of first values do not fit {nbytes} bytes")
                    data[:len(first)] = first
                return data
        known = f"; the buffers are: {', '.join(self.buffers)}" if isinstance(value, str) and self.buffers else ""
        raise LaunchError(f'{where} must be an integer, {{"f32": x}}, {{"f64": x}}, the name of a buffer, a .npy file, '
                          f'zeros:DTYPE:SHAPE or {{"bytes": n, "i32": [..]}} (got {_short(value)}){known}')

    def _npy(self, name: str, where: str) -> np.ndarray:
        try:
            return np.ascontiguousarray(np.load(self._folder / name, allow_pickle=False))
        except (ValueError, EOFError) as e:
            raise LaunchError(f"{where}: {name} is no array of numbers: {e}") from None

    def _values(self, value: Any, where: str) -> np.ndarray:
        if isinstance(value, str) and value.endswith(".npy"):
            return self._npy(value, where)
        return _numbers(value, np.int32, where)

    def _texture(self, value: Any, args: tuple[Any, ...], where: str) -> tuple[str, int]:
        channels = 4
        if isinstance(value, dict):
            _known(value, {"buffer", "channels"}, where)
            value, channels = value.get("buffer"), value.get("channels", 4)
        if channels not in (1, 2, 4):
            raise LaunchError(f"{where}: channels must be 1, 2 or 4 (got {_short(channels)})")
        if _count(value, 0) and value < len(args):
            value = args[value]
        if not isinstance(value, str) or value not in self.buffers:
            raise LaunchError(f"{where} must be the name of a buffer or the index of an argument that is one "
                              f"(got {_short(value)})")
        return value, channels


def _mapping(data: Mapping[str, Any], name: str, where: str = "") -> Mapping[str, Any]:
    value = data.get(name, {})
    if not isinstance(value, dict):
        raise LaunchError(f"{where + ': ' if where else ''}{name} must be an object (got {_short(value)})")
    return value


def _known(data: Mapping[str, Any], names: set[str], where: str) -> None:
    unknown = sorted(set(data) - names)
    if unknown:
        raise LaunchError(f"{where}: no entry {unknown[0]!r}; there are: {', '.join(sorted(names))}")


def _count(value: Any, least: int) -> bool:
    return type(value) is int and value >= least


def _dim3(data: Mapping[str, Any], name: str, where: str) -> Dim3:
    value = data.get(name)
    if not isinstance(value, list) or not 1 <= len(value) <= 3 or not all(_count(v, 1) for v in value):
        raise LaunchError(f"{where}: {name} must be a list of one to three integers from 1 on (got {_short(value)})")
    x, y, z = [*value, 1, 1][:3]
    return x, y, z


def _numbers(values: Any, dtype: type, where: str) -> np.ndarray:
    kinds = (int,) if np.dtype(dtype).kind == "i" else (int, float)
    try:
        if isinstance(values, list) and all(type(v) in kinds for v in values):
            return np.array(values, dtype)
    except (ValueError, TypeError, OverflowError):
        pass
    raise LaunchError(f"{where} must be a list of {np.dtype(dtype)} numbers (got {_short(values)})")


def _zeros(text: str, where: str) -> np.ndarray:
    try:
        _, dtype, shape = text.split(":")
        kind = np.dtype(dtype)
        if kind.kind in "biufc":
            return np.zeros([int(n) for n in shape.split("x")], kind)
    except (ValueError, TypeError, SyntaxError):
        pass
    raise LaunchError(f"{where} must look like zeros:float32:64x64, with a dtype of numbers (got {_short(text)})")


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
