"""What is slow to make, kept on disk between processes: native code, translations, compiled timing model.

One file per entry. It begins with a digest of its key and content, so that a damaged file is noticed, deleted and made
anew; whatever is no regular file (a pipe, a link, a folder, a device) counts as damaged and is never waited for. The
folder must belong to this user and nobody else may write there: what it holds is executed. Files appear whole or not at
all, and when all together take more than a bound (MAXDNN_CACHE_BYTES, else 512 MiB) those unused for longest go.
Nothing here ever fails a caller: without a usable folder, or on a full disk, everything is made each time.

Where: MAXDNN_CACHE, else the platform's folder for a user's caches (`~/.cache/maxdnn` on Linux)."""

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import platformdirs

from ..errors import MaxdnnError
from .files import read_regular

BOUND = 512 << 20  # bytes
_MAGIC = b"maxdnn cache 1\n\0"
_HEAD = len(_MAGIC) + hashlib.sha256().digest_size
_NEW = ".maxdnn-new-"  # files still being written
_ENTRY = re.compile(r"[0-9a-f]{40}\.[a-z]+")  # whatever else a folder named by MAXDNN_CACHE holds is left alone
_FRESH = 60.0  # seconds in which a use is not noted again
_ABANDONED = 3600.0  # seconds after which a file being written belongs to a process that died


def folder() -> Path | None:
    """The cache's folder, made if need be; None if there is none that only this user can write to."""
    named = os.environ.get("MAXDNN_CACHE")
    try:
        path = Path(named) if named else platformdirs.user_cache_path("maxdnn", appauthor=False)
        if not named and not path.is_absolute():
            return None  # no home
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
    except (OSError, RuntimeError, KeyError):
        return None
    if not stat.S_ISDIR(found.st_mode) or not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        return None
    if hasattr(os, "geteuid") and (found.st_uid != os.geteuid() or found.st_mode & 0o022):
        return None
    return path


def bound() -> int:
    """Bytes that all entries may take together. Raises MaxdnnError for a MAXDNN_CACHE_BYTES that is no number."""
    text = os.environ.get("MAXDNN_CACHE_BYTES", "")
    if not text:
        return BOUND
    if not text.isascii() or not text.isdigit():
        raise MaxdnnError(f"MAXDNN_CACHE_BYTES must be a whole number of bytes, 0 for no cache (got {text!r})")
    return int(text)


def usable() -> Path | None:
    """The folder that `store` keeps entries in, None where nothing is kept."""
    return folder() if bound() else None


def cached(key: bytes, suffix: str, make: Callable[[], bytes]) -> bytes:
    """What `make` gives, from disk if it was made for this key before. `key`: everything that decides the result.
    `suffix` (".o") is for people who look into the folder."""
    data = load(key, suffix)
    if data is None:
        data = make()
        store(key, suffix, data)
    return data


def load(key: bytes, suffix: str) -> bytes | None:
    """What was stored under the key, None if nothing was or if it has been damaged since."""
    most = bound()
    place = folder() if most else None
    if place is None:
        return None
    path = place / _name(key, suffix)
    try:
        data = read_regular(path, most)
    except FileNotFoundError:
        return None
    except OSError:
        data = b""
    if data[:_HEAD] != _head(key, data[_HEAD:]):
        _remove(path)
        return None
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > _FRESH:
            os.utime(path)
    return data[_HEAD:]


def store(key: bytes, suffix: str, data: bytes) -> bool:
    """Keep `data` under the key; whether that was possible. The file appears whole or not at all."""
    most = bound()
    place = folder() if len(data) + _HEAD <= most else None
    if place is None:
        return False
    path = place / _name(key, suffix)
    new = None
    try:
        handle, new = tempfile.mkstemp(prefix=_NEW, dir=place)
        with os.fdopen(handle, "wb") as file:
            file.write(_head(key, data))
            file.write(data)
        if path.is_dir() and not path.is_symlink():
            _remove(path)
        os.replace(new, path)
    except OSError:
        if new is not None:
            with contextlib.suppress(OSError):
                os.unlink(new)
        return False
    _shrink(place, most)
    return True


def contents(suffix: str) -> Iterator[bytes]:
    """What entries of a suffix hold, unchecked: only with its key can an entry be told from a damaged one."""
    most = bound()
    place = folder() if most else None
    for _, _, path in _entries(place) if place is not None else ():
        if path.suffix == suffix:
            with contextlib.suppress(OSError):
                yield read_regular(path, most)[_HEAD:]


def drop(key: bytes, suffix: str) -> None:
    """Forget what was stored under the key, if anything was."""
    place = folder()
    if place is not None:
        _remove(place / _name(key, suffix))


def _name(key: bytes, suffix: str) -> str:
    return hashlib.sha256(key).hexdigest()[:40] + suffix


def _head(key: bytes, data: bytes) -> bytes:
    digest = hashlib.sha256(len(key).to_bytes(8, "little") + key)
    digest.update(data)
    return _MAGIC + digest.digest()


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def _shrink(place: Path, most: int) -> None:
    """Delete what was not used for longest until the rest fits; other processes may be doing the same."""
    entries = sorted(_entries(place))
    total = sum(size for _, size, _ in entries)
    for _, size, path in entries:
        if total <= most:
            return
        _remove(path)
        total -= size


def _entries(place: Path) -> Iterator[tuple[float, int, Path]]:
    """(time of last use, bytes, path) of every entry; files that a dead process left half written go."""
    with contextlib.suppress(OSError), os.scandir(place) as found:
        for item in found:
            with contextlib.suppress(OSError):
                status = item.stat(follow_symlinks=False)
                if _ENTRY.fullmatch(item.name):
                    yield status.st_mtime, status.st_size, Path(item.path)
                elif item.name.startswith(_NEW) and time.time() - status.st_mtime > _ABANDONED:
                    _remove(Path(item.path))
