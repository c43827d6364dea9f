"""The kernels in machine code: one cubin per source and architecture, kept inside the package.

A cubin's file name carries a hash of all it was made from, so one that is out of date is simply not found. A wheel
brings them all; in a source tree the missing ones are assembled, and checked for hazards, at first use."""

import functools
import hashlib
import os
import tempfile
from pathlib import Path

from .errors import AssemblyError

ARCHS = ("sm_50", "sm_52", "sm_53", "sm_60", "sm_61", "sm_62")
PACKAGE = Path(__file__).parent
BINARIES = PACKAGE / "kernels_bin"


def asset(folder: str) -> Path:
    """A folder of the source tree ("sass", "tools/maxas"): from the package if installed, else beside it."""
    return next((root / folder for root in (PACKAGE, PACKAGE.parent) if (root / folder).is_dir()),
                PACKAGE.parent / folder)


def sources() -> list[str]:
    """The kernel sources by name without suffix."""
    return sorted(path.stem for path in asset("sass").glob("*.sass"))


@functools.cache
def cubin(source: str, arch: str) -> bytes:
    """The cubin of `sass/<source>.sass` for `arch`, assembled now if there is none; a source elsewhere is given as an
    absolute path without its suffix. Raises AssemblyError if it cannot be made: unknown source or architecture, no
    Perl, an error in the source, a hazard in the kernel."""
    path = path_of(source, arch)
    if not path.exists():
        _build(source, arch, path)
    return path.read_bytes()


def build_all() -> list[Path]:
    """Every source for every architecture; the files, made or found."""
    for source in sources():
        for arch in ARCHS:
            cubin(source, arch)
    return [path_of(source, arch) for source in sources() for arch in ARCHS]


def path_of(source: str, arch: str) -> Path:
    """Where the cubin is, or would be."""
    if arch not in ARCHS:
        raise AssemblyError(f"arch must be one of {', '.join(ARCHS)} (got {arch!r})")
    elsewhere = Path(f"{source}.sass")
    if elsewhere.is_absolute():
        folder = hashlib.sha256(os.fsencode(elsewhere.parent)).hexdigest()[:8]
        return BINARIES / arch / f"{elsewhere.stem}.{folder}-{ingredients(elsewhere.parent)}.cubin"
    if source not in sources():
        raise AssemblyError(f"no kernel source {source!r} in {asset('sass')}; there are: {', '.join(sources())}")
    return BINARIES / arch / f"{source}-{ingredients()}.cubin"


@functools.cache
def ingredients(folder: Path | None = None) -> str:
    """A hash of everything a cubin is made from: sources in sass/ or another folder, assembler, instruction table,
    MAXDNN_MAXAS."""
    digest = hashlib.sha256(os.environ.get("MAXDNN_MAXAS", "").encode())
    tools, sass = asset("tools/maxas"), folder or asset("sass")
    for root, paths in ((tools, [*tools.glob("*.pl"), *tools.glob("lib/**/*.pm")]),
                        (sass, [p for p in sass.rglob("*") if p.suffix in (".sass", ".inc")]),
                        (PACKAGE, [PACKAGE / "isa" / "maxwell.json"])):
        for path in sorted(paths):
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _build(source: str, arch: str, path: Path) -> None:
    """Assemble and check in a temporary folder, then move into place; older versions of the same cubin go."""
    from .assemble import assemble

    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".build-") as folder:
        made = Path(folder) / path.name
        assemble(asset("sass") / f"{source}.sass", made, arch=arch)
        _check(made)
        made.replace(path)
    name = path.stem.rsplit("-", 1)[0]
    for old in path.parent.glob(f"{name}-{'?' * 16}.cubin"):
        if old != path:
            old.unlink(missing_ok=True)


def _check(path: Path) -> None:
    """Refuse a kernel whose control codes are not found safe."""
    from .check import check_cubin

    for report in check_cubin(path):
        if not report.ok:
            raise AssemblyError(f"{path.name}: hazards\n{report.text()}")
