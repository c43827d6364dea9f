"""Files of the user's: read with errors that name the file and never without end, written whole or not at all."""

import contextlib
import json
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import LaunchError, MaxdnnError

if TYPE_CHECKING:
    import numpy as np

NUMBERS = "biufc"  # dtype kinds
MOST = 256 << 20  # bytes of a file that is read as a whole
_PIECE = 1 << 20


def read_bytes(path: str | os.PathLike[str], most: int = MOST) -> bytes:
    """The content of a file, a pipe or a device of at most `most` bytes. Raises MaxdnnError for a longer one, after no
    more than that was read; OSError for one that cannot be read."""
    with open(path, "rb") as file:
        pieces, size = [], 0
        while size <= most and (piece := file.read(min(_PIECE, most + 1 - size))):
            pieces.append(piece)
            size += len(piece)
    if size > most:
        raise MaxdnnError(f"{os.fspath(path)}: must be a file of at most {most >> 20} MiB (it is longer or has no end)")
    return b"".join(pieces)


def read_regular(path: str | os.PathLike[str], most: int = MOST) -> bytes:
    """The content of a regular file of this library's own. Never waits, as opening a FIFO would. Raises OSError for
    anything else, a symbolic link and a file of more than `most` bytes among it."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)
                     | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_size > most:
        os.close(handle)
        raise OSError(f"{os.fspath(path)}: no regular file of at most {most} bytes")
    with os.fdopen(handle, "rb") as file:
        return file.read()


def is_special(path: Path) -> bool:
    """Whether there is a pipe, device or socket: what is written through, not replaced."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def read_json(path: str | os.PathLike[str]) -> Any:
    """The value of a JSON file. Raises LaunchError for one that is no JSON, MaxdnnError for one of more than MOST
    bytes, OSError for one that cannot be read."""
    try:
        return json.loads(read_bytes(path))
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
    if not path.name:
        raise MaxdnnError(f"{option} must name a file (got {os.fspath(path)!r})")
    if not path.parent.is_dir():
        raise MaxdnnError(f"{option}: there is no folder {path.parent} to write {path.name} to")
    if is_special(path):
        if not os.access(path, os.W_OK):
            raise MaxdnnError(f"{option}: nothing may be written to {path}")
        return
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
    """Let `write` fill a file beside `path`, then move it there: it appears whole or not at all. A pipe or a device
    (/dev/null, /dev/stdout) is written to and stays what it is."""
    if is_special(path):
        with path.open("wb") as file:
            write(file)
        return
    part = _beside(path)
    try:
        with part.open("xb") as file:
            write(file)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()
        raise
