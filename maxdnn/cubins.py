"""The kernels in machine code, kept inside the package: one cubin per source, which serves every architecture of its
instruction set.

Code of Maxwell and Pascal does not depend on the architecture (nothing in a cubin does but its label), so a source is
assembled and checked once, for the oldest architecture that has its instructions, and relabelled for the others. What
is kept is used as long as nothing it was made of has changed: the files of the source, the assembler, the instruction
table, the rules it was checked by. A wheel brings all of it; in a source tree what is missing or out of date is made
at first use."""

import contextlib
import functools
import hashlib
import json
import os
import shlex
import shutil
import struct
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .errors import AssemblyError

ARCHS = ("sm_50", "sm_52", "sm_53", "sm_60", "sm_61", "sm_62")
HOPPER = "sm_90"
HOPPER_FOLDER = "hopper"  # of the sources for it, inside sass/
PACKAGE = Path(__file__).parent
BINARIES = PACKAGE / "kernels_bin"
RULES = ("check", "isa", "semantics", "cubin.py", "errors.py")
"""What decides whether a kernel passes: the checker and what it stands on."""

_FLAGS = struct.Struct("<I")
_FLAGS_AT = 48  # of the ELF header: the architecture twice, and what does not depend on it


def asset(folder: str) -> Path:
    """A folder of the source tree ("sass", "tools/maxas"): from the package if installed, else beside it."""
    return next((root / folder for root in (PACKAGE, PACKAGE.parent) if (root / folder).is_dir()),
                PACKAGE.parent / folder)


def sources() -> list[str]:
    """The kernel sources by name without suffix, those in folders with the folder ("probes/delay")."""
    sass = asset("sass")
    return sorted(path.relative_to(sass).with_suffix("").as_posix()
                  for pattern in ("*.sass", "probes/*.sass", f"{HOPPER_FOLDER}/*.sass") for path in sass.glob(pattern))


def architectures(source: str) -> tuple[str, ...]:
    """Those a source is for."""
    return (HOPPER,) if source.startswith(f"{HOPPER_FOLDER}/") else ARCHS


@functools.cache
def cubin(source: str, arch: str) -> bytes:
    """The cubin of `sass/<source>.sass` for `arch`, assembled now if there is none; a source elsewhere is given as an
    absolute path without its suffix. Raises AssemblyError if it cannot be made: unknown source or architecture, no
    Perl, an error in the source, a hazard in the kernel."""
    if arch not in architectures(source):
        raise AssemblyError(f"arch must be one of {', '.join(architectures(source))} (got {arch!r})")
    return relabelled(_code(source), arch)


def build_all() -> list[Path]:
    """Every source; the files, made or found."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(_code, sources()))
    return [_kept(source) for source in sources()]


def relabelled(data: bytes, arch: str) -> bytes:
    """A cubin for a later architecture than the one it was assembled for: the same bytes but for the label. Raises
    AssemblyError for an earlier one, which may lack its instructions."""
    sm, (flags,) = int(arch.removeprefix("sm_")), _FLAGS.unpack_from(data, _FLAGS_AT)
    if flags & 0xFF > sm:
        raise AssemblyError(f"the kernel needs sm_{flags & 0xFF} or later (got {arch})")
    return data[:_FLAGS_AT] + _FLAGS.pack(flags & 0xFF00 | sm << 16 | sm) + data[_FLAGS_AT + _FLAGS.size:]


@functools.cache
def ingredients() -> str:
    """A hash of everything the cubins are made from."""
    sass = asset("sass")
    return _digest([_tools().encode(), *_named(sass, [p for p in sass.rglob("*") if p.suffix in (".sass", ".inc")])])


# -- what is kept -----------------------------------------------------------------------------------------------------


def _origin(source: str) -> Path:
    return asset("sass") / f"{source}.sass"  # an absolute path stays as it is


def _kept(source: str) -> Path:
    if not Path(source).is_absolute():
        return BINARIES / f"{source}.cubin"
    folder = hashlib.sha256(os.fsencode(Path(source).parent)).hexdigest()[:8]
    return BINARIES / f"{Path(source).name}.{folder}.cubin"


@functools.cache
def _code(source: str) -> bytes:
    """The checked cubin of a source, for the oldest architecture that can run it."""
    if not Path(source).is_absolute() and source not in sources():
        raise AssemblyError(f"no kernel source {source!r} in {asset('sass')}; there are: {', '.join(sources())}")
    path = _kept(source)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        note, data = json.loads(path.with_suffix(".json").read_text()), path.read_bytes()
        if note == _note(data, _origin(source).parent, [str(name) for name in note["files"]]):
            return data
    return _build(source, path)


def _note(data: bytes, folder: Path, files: list[str]) -> dict[str, object]:
    """What stands beside a cubin: the files of its source, as seen from its folder, a digest of all it was made of, and
    one of itself."""
    made_of = _digest([_tools().encode(), *_named(folder, [folder / name for name in files])])
    return {"files": files, "made_of": made_of, "sha256": hashlib.sha256(data).hexdigest()}


@functools.cache
def _tools() -> str:
    """A hash of what makes and checks every kernel: the assembler, also one that MAXDNN_MAXAS names, the table, the
    rules."""
    tools = asset("tools/maxas")
    rules = [PACKAGE / "cubins.py", PACKAGE / "assemble.py"]
    for name in RULES:
        rules += [p for p in (PACKAGE / name).rglob("*") if p.suffix in (".py", ".json")] or [PACKAGE / name]
    parts = [*_named(tools, [*tools.glob("*.pl"), *tools.glob("lib/**/*.pm")]), *_named(PACKAGE, rules)]
    for word in shlex.split(os.environ.get("MAXDNN_MAXAS", "")):
        program = Path(shutil.which(word) or word)
        parts += _named(program.parent, [program, *program.parent.glob("lib/MaxAs/*.pm")]) if program.is_file() else [
            word.encode()]
    return _digest(parts)


def _named(root: Path, paths: Iterable[Path]) -> list[bytes]:
    """The files with their names below `root`, in order of name."""
    return [path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() for path in sorted(set(paths))]


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


# -- making it --------------------------------------------------------------------------------------------------------


def _build(source: str, path: Path) -> bytes:
    """Assemble and check in a temporary folder, then keep, where that is possible."""
    from .assemble import files

    origin = _origin(source)
    with tempfile.TemporaryDirectory(prefix="maxdnn-build-") as folder:
        made = Path(folder) / path.name
        made.parent.mkdir(exist_ok=True)
        _assembled(origin, made, architectures(source))
        _check(made)
        data = made.read_bytes()
    names = [os.path.relpath(file, origin.parent) for file in files(origin)]
    with contextlib.suppress(OSError):
        _keep(path, data)
        _keep(path.with_suffix(".json"), json.dumps(_note(data, origin.parent, names)).encode())
    return data


def _assembled(origin: Path, made: Path, archs: tuple[str, ...]) -> None:
    """Assemble for the oldest architecture that has the kernel's instructions."""
    from .assemble import assemble

    for arch in archs:
        try:
            assemble(origin, made, arch=arch)
        except AssemblyError as e:
            if f"this kernel is for {arch}" not in str(e) or arch == archs[-1]:
                raise
        else:
            return


def _keep(path: Path, data: bytes) -> None:
    """A file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _check(path: Path) -> None:
    """Refuse a kernel with an error or with anything that was not decided."""
    from .check import check_cubin

    for report in check_cubin(path):
        if not report.clean:
            raise AssemblyError(f"{path.name}: hazards\n{report.text()}")
