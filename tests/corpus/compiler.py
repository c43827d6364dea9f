"""Corpus sources to cubins, with a cache keyed by everything that decides the result.

`.cu` sources go through NVRTC, `.ptx` sources through ptxas; both with the vendor's default flags.  The cache lives in
`MAXDNN_CORPUS_CACHE`, by default `build/corpus` in the repository (ignored by git).
"""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import re
import tempfile

from tests import oracles
from tests.corpus import randomprog

FOLDER = pathlib.Path(__file__).parent
DEFAULT_CACHE = FOLDER.parent.parent / "build" / "corpus"


def sources() -> list[str]:
    """File names of every corpus program."""
    return sorted(path.name for path in FOLDER.iterdir() if path.suffix in (".cu", ".ptx"))


def cache_folder() -> pathlib.Path:
    return pathlib.Path(os.environ.get("MAXDNN_CORPUS_CACHE", DEFAULT_CACHE))


@functools.cache
def _headers() -> str:
    return "".join(path.read_text() for path in sorted(FOLDER.glob("*.cuh")))


def compile_text(text: str, suffix: str, arch: str = "sm_52") -> bytes:
    """Compile CUDA C (".cu") or PTX (".ptx") text, or fetch the result from the cache."""
    tool = oracles.ptxas_path() if suffix == ".ptx" else oracles.nvrtc_path()
    identity = "\0".join([suffix, arch, text, _headers(), tool.name, str(tool.stat().st_size)])
    entry = cache_folder() / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.cubin"
    if entry.exists():
        return entry.read_bytes()
    if suffix == ".ptx":
        cubin = oracles.ptxas(text.replace("@TARGET@", arch), arch)
    else:
        cubin = oracles.compile_cuda(text, arch, [f"--include-path={FOLDER}"])
    entry.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=entry.parent, delete=False) as file:
        file.write(cubin)
    os.replace(file.name, entry)
    return cubin


def source_text(name: str) -> str:
    """The text of one corpus program, e.g. "int_arith.cu", or of an exact random one, e.g. "random_7.cu"."""
    generated = re.fullmatch(r"random_(\d+)\.cu", name)
    if generated:
        return randomprog.program(int(generated[1]), statements=30, approximate=False)
    return (FOLDER / name).read_text()


def source_digest(name: str) -> str:
    """Identifies the version of a program that a recorded result belongs to."""
    return hashlib.sha256((source_text(name) + _headers()).encode()).hexdigest()[:16]


def compile_source(name: str, arch: str = "sm_52") -> bytes:
    """The cubin of one corpus program."""
    return compile_text(source_text(name), pathlib.Path(name).suffix, arch)
