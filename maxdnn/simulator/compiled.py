"""The entry points of the compiled engine and of the reduction of traces, kept on disk between processes. Importing
this module compiles.

Numba writes and reads its files in a folder of this process alone; all of them together are one entry of the cache,
which checks what it gives. The entry's key holds all of this room's sources: numba itself would look only at the file
of the function it keeps, not at those of the functions it calls."""

import contextlib
import hashlib
import pickle
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np

from ..runtime import cache, notices
from ..runtime.forks import compiling
from . import access, engine, residency, warm
from .jit import pointer
from .machine import PRESETS


def _begin(X: np.ndarray) -> None:
    residency.begin(pointer(X))


def _warm_up(X: np.ndarray, lines: int) -> None:
    warm.warm_up(pointer(X), lines)


def _run(X: np.ndarray, until: int) -> bool:
    return engine.run(pointer(X), until)


def _reduce_rows(addresses, indices, kinds, nbytes, atomic, shift, rules, records, lines, memory, rows, used, seen):
    return access.reduce_rows(addresses, indices, kinds, nbytes, atomic, shift, rules, records, lines, memory, rows,
                              used, seen)


_ENTRIES = ((_begin, "void(int64[::1])"), (_warm_up, "void(int64[::1], int64)"),
            (_run, "boolean(int64[::1], int64)"),
            (_reduce_rows, "int64(int64[:,::1], int64[::1], int64[::1], int64[::1], int64[::1], int64, int64[::1], "
                           "int64[:,::1], int64[:,::1], int64[:,::1], int64[:,:,::1], int64[::1], int64[:,::1])"))


def _compile(folder: Path | None) -> list[Callable[..., Any]]:
    """The entries, with numba's files in `folder`, or without any."""
    settings: Any = numba.config
    before = settings.CACHE_DIR
    try:
        settings.CACHE_DIR = "" if folder is None else str(folder)
        made: list[Any] = [numba.njit(nogil=True, cache=folder is not None)(function) for function, _ in _ENTRIES]
    finally:
        settings.CACHE_DIR = before
    for function, (_, signature) in zip(made, _ENTRIES, strict=True):
        function.compile(signature)
        function.disable_compile()
    return made


def _key() -> bytes:
    digest = hashlib.sha256(repr((numba.__version__, sys.version, __file__)).encode())
    for path in (*sorted(Path(__file__).parent.glob("*.py")), PRESETS / "gm204.json"):  # with the figures built in
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()


def _compile_kept() -> list[Callable[..., Any]]:
    """`_compile` with the files of an earlier process; what it changed in them is kept for later ones."""
    key = _key()
    kept = cache.load(key, ".numba")
    if kept is None:
        notices.say(f"compiling the timing model, which takes half a minute, once: {cache.usable()} keeps it")
    with tempfile.TemporaryDirectory(prefix="maxdnn-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for place, content in pickle.loads(kept) if kept is not None else ():
            path = folder / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        made = _compile(folder)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        found = pickle.dumps([(path.relative_to(folder).as_posix(), path.read_bytes()) for path in files])
    if found != kept and not cache.store(key, ".numba", found) and kept is None:
        notices.say(f"the compiled timing model could not be kept in {cache.usable()}: MAXDNN_CACHE_BYTES may be too "
                    f"small for its {len(found)} bytes, or the disk be full")
    return made


def _entries() -> list[Callable[..., Any]]:
    with compiling:
        if cache.usable() is not None:
            with contextlib.suppress(OSError):  # no room for numba's files
                return _compile_kept()
        notices.say("compiling the timing model, which takes half a minute, for this process alone: there is no cache "
                    "folder that can be used (MAXDNN_CACHE names one)")
        return _compile(None)


begin, warm_up, run, reduce_rows = _entries()
