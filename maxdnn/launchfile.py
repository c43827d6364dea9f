"""The description of a launch as plain data (`maxdnn simulate --help` gives its form), checked as a whole before
anything runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .devices.protocol import Dim3
from .errors import LaunchError

_KEYS = ("kernel", "grid", "block", "shared_bytes", "args", "textures", "constants")
_FLOATS = {"f32": np.float32, "f64": np.float64}


@dataclass(frozen=True)
class BufferArgument:
    """A buffer of `nbytes` zeros that begins with the int32 `words`."""

    nbytes: int
    words: np.ndarray


@dataclass(frozen=True)
class LaunchDescription:
    """`kernel`: None for the only one. `textures`: reference -> index of a BufferArgument among `args`."""

    kernel: str | None
    grid: Dim3
    block: Dim3
    shared_bytes: int
    args: tuple[Any, ...]
    textures: Mapping[str, int]
    constants: Mapping[str, np.ndarray]


def parse(description: Any) -> LaunchDescription:
    """Raises LaunchError, naming the entry, its value and what it should be."""
    if not isinstance(description, Mapping):
        raise LaunchError(f"a launch description must be an object with {', '.join(_KEYS)} (got {_shown(description)})")
    for key in description:
        if key not in _KEYS:
            raise LaunchError(f"a launch description has no {_shown(key)}; it has: {', '.join(_KEYS)}")
    kernel = description.get("kernel")
    if kernel is not None and not isinstance(kernel, str):
        raise LaunchError(f"kernel must be a name (got {_shown(kernel)})")
    values = description.get("args", [])
    if not isinstance(values, list):
        raise LaunchError(f"args must be a list (got {_shown(values)})")
    args = tuple(_argument(number, value) for number, value in enumerate(values))
    return LaunchDescription(kernel, _dim3(description, "grid"), _dim3(description, "block"),
                             _whole("shared_bytes", description.get("shared_bytes", 0)), args,
                             {name: _texture(name, index, args) for name, index in _named(description, "textures")},
                             {name: _words(f"constants: {name}", v) for name, v in _named(description, "constants")})


def _dim3(description: Mapping[str, Any], name: str) -> Dim3:
    value = description.get(name)
    if not isinstance(value, list) or not 1 <= len(value) <= 3 or not all(_is_whole(v) for v in value):
        raise LaunchError(f"{name} must be a list of one to three integers (got {_shown(value)})")
    x, y, z = [*value, 1, 1][:3]
    return x, y, z


def _named(description: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    value = description.get(name, {})
    if not isinstance(value, Mapping):
        raise LaunchError(f"{name} must be an object of names (got {_shown(value)})")
    return list(value.items())


def _argument(number: int, value: Any) -> Any:
    """An integer, a NumPy float, or a BufferArgument."""
    if _is_whole(value):
        return value
    if isinstance(value, Mapping):
        for key, kind in _FLOATS.items():
            if set(value) == {key} and _is_number(value[key]):
                return _float(f"args[{number}]", kind, value[key])
        if "buffer" in value and set(value) <= {"buffer", "i32"}:
            nbytes = _whole(f"args[{number}]: buffer", value["buffer"])
            words = _words(f"args[{number}]: i32", value.get("i32", []))
            if words.nbytes > nbytes:
                raise LaunchError(f"args[{number}]: {words.nbytes} bytes of i32 do not fit a buffer of {nbytes}")
            return BufferArgument(nbytes, words)
    raise LaunchError(f'args[{number}] must be an integer, {{"f32": x}}, {{"f64": x}} or {{"buffer": bytes}} '
                      f"(got {_shown(value)})")


def _float(where: str, kind: Any, value: int | float) -> Any:
    try:
        number = float(value)
    except OverflowError:
        raise LaunchError(f"{where}: {_shown(value)} is too large for a float") from None
    with np.errstate(over="ignore"):
        return kind(number)


def _texture(name: str, index: Any, args: tuple[Any, ...]) -> int:
    buffers = [n for n, a in enumerate(args) if isinstance(a, BufferArgument)]
    if not _is_whole(index) or index not in buffers:
        raise LaunchError(f"textures: {name} must be the index of a buffer among args, of {buffers} "
                          f"(got {_shown(index)})")
    return int(index)


def _words(where: str, value: Any) -> np.ndarray:
    if not isinstance(value, list) or not all(_is_whole(v) and -2**31 <= v < 2**31 for v in value):
        raise LaunchError(f"{where}: must be a list of 32-bit integers (got {_shown(value)})")
    return np.array(value, np.int32)


def _whole(name: str, value: Any) -> int:
    if not _is_whole(value) or value < 0:
        raise LaunchError(f"{name} must be a count of bytes (got {_shown(value)})")
    return int(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_whole(value)


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python prints
        text = "a very large number"
    return text if len(text) <= 80 else text[:77] + "..."
