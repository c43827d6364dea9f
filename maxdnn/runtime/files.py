"""Files of the user's: read with errors that name the file, written whole or not at all."""

import contextlib
import json
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import LaunchError, MaxdnnError

if TYPE_CHECKING:
    import numpy as np

NUMBERS = "biufc"  # dtype kinds


def read_json(path: str | os.PathLike[str]) -> Any:
    """The value of a JSON file. Raises LaunchError for one that is no JSON, OSError for one that cannot be read."""
    try:
        return json.loads(Path(path).read_bytes())
    except RecursionError:
        raise LaunchError(f"{os.fspath(path)}: nested too deeply") from None
    except ValueError as e:  # no JSON, or no UTF-8
        raise LaunchError(f"{os.fspath(path)}: not JSON: {e}") from None


def read_array(path: str | os.PathLike[str]) -> "np.ndarray":
    """The array of a .npy file, C-contiguous. Raises LaunchError for anything but an array of numbers, OSError for a
    file that cannot be read."""
    import numpy as np

    with open(path, "rb") as file:
        try:
            array = np.lib.format.read_array(file, allow_pickle=False)
        except Exception as e:  # NumPy raises nearly anything for a damaged header
            raise LaunchError(f"{os.fspath(path)}: not a .npy file of one array of numbers: "
                              f"{' '.join(str(e).split()) or type(e).__name__}") from None
    if array.dtype.kind not in NUMBERS:
        raise LaunchError(f"{os.fspath(path)}: the array must hold numbers (got dtype {array.dtype})")
    return np.ascontiguousarray(array)


def check_writable(option: str, path: Path) -> None:
    """Raises MaxdnnError if `path`, given as `option`, cannot be a new file: said before any work is done for it."""
    if path.is_dir():
        raise MaxdnnError(f"{option}: {path} is a folder; it must name a file")
    if not path.parent.is_dir():
        raise MaxdnnError(f"{option}: there is no folder {path.parent} to write {path.name} to")
    part = _beside(path)
    try:
        part.open("xb").close()
        part.unlink()
    except OSError as e:
        raise MaxdnnError(f"{option}: nothing may be written to the folder {path.parent}: {e.strerror}") from None


def _beside(path: Path) -> Path:
    """A new name in the folder of a file."""
    return path.with_name(f".{path.name[:64]}.{secrets.token_hex(4)}.part")


def write_whole(path: Path, write: Callable[[BinaryIO], Any]) -> None:
    """Let `write` fill a file beside `path`, then move it there: it appears whole or not at all."""
    part = _beside(path)
    try:
        with part.open("xb") as file:
            write(file)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
        raise
