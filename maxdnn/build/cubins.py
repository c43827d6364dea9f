"""The kernels in machine code, kept inside the package: one cubin per source and generation, which serves every
architecture of that generation.

Code of Maxwell and Pascal does not depend on the architecture (nothing in a cubin does but its label), nor does that of
Ampere and Ada (sm_80, 86, 89), so a source is assembled and checked once, for the oldest architecture of a generation
that has its instructions, and relabelled for the others. What is kept is used as long as nothing it was made of has
changed: the files of the source, the assembler, the instruction table, the rules it was checked by. A wheel brings all
of it; in a source tree what is missing or out of date is made at first use."""

import contextlib
import functools
import hashlib
import json
import os
import shlex
import shutil
import struct
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from ..cubin import interface, read
from ..errors import AssemblyError
from ..runtime import cache, notices
from ..runtime.files import read_regular, write_whole
from ..runtime.forks import compiling
from . import assemble, passed

ARCHS = ("sm_50", "sm_52", "sm_53", "sm_60", "sm_61", "sm_62")
AMPERE = ("sm_80", "sm_86", "sm_89")
HOPPER = "sm_90"
HOPPER_FOLDER = "sm90"  # of the sources for it, inside sass/
FOR_AMPERE = frozenset(f"{HOPPER_FOLDER}/{name}" for name in (
    "classes", "filters", "filters_borders", "filters_nchw", "pixels", "product_128x128", "product_32x64",
    "product_64x64", "taps"))
"""Sources in that folder that serve Ampere and Ada, too: what differs there says sass/sm90/architecture.inc."""

PACKAGE = Path(__file__).parents[1]
BINARIES = PACKAGE / "kernels_bin"
RULES = ("checker", "isa", "semantics", "cubin.py", "errors.py", "runtime/elf.py", "runtime/files.py")
"""What decides whether a kernel passes: the checker and what it stands on."""

_TRIES = 3  # to assemble files that somebody is writing
_FLAGS = struct.Struct("<I")
_FLAGS_AT = 48  # of the ELF header: the architecture twice, and what does not depend on it


def asset(folder: str) -> Path:
    """A folder of the source tree ("sass", "tools/maxas"): from the package if installed, else beside it."""
    return next((root / folder for root in (PACKAGE, PACKAGE.parent) if (root / folder).is_dir()),
                PACKAGE.parent / folder)


def sources() -> list[str]:
    """The kernel sources by folder and name without suffix ("maxwell/pad")."""
    sass = asset("sass")
    return sorted(path.relative_to(sass).with_suffix("").as_posix() for path in sass.rglob("*.sass"))


def generations(source: str) -> tuple[tuple[str, ...], ...]:
    """The architectures a source is for, those together that the same code serves."""
    if not source.startswith(f"{HOPPER_FOLDER}/"):
        return (ARCHS,)
    return (AMPERE, (HOPPER,)) if source.removesuffix(".sass") in FOR_AMPERE else ((HOPPER,),)


def architectures(source: str) -> tuple[str, ...]:
    """Those a source is for."""
    return sum(generations(source), ())


@functools.cache
def cubin(source: str, arch: str) -> bytes:
    """The cubin of `sass/<source>.sass` for `arch`, assembled now if there is none; a source elsewhere is given as an
    absolute path without its suffix. Raises AssemblyError if it cannot be made: unknown source or architecture, no
    Perl, an error in the source, a hazard in the kernel."""
    if arch not in architectures(source):
        raise AssemblyError(f"arch must be one of {', '.join(architectures(source))} (got {arch!r})")
    return relabelled(_code(source, next(archs for archs in generations(source) if arch in archs)), arch)


@functools.cache
def declared(source: str) -> tuple[Mapping[str, Any], ...]:
    """What the header of a source declares of its kernels, in the form of `maxdnn.cubin.interface`: from the kept
    cubin where there is one, else from the header alone, so that nothing is assembled but what is launched. Raises
    AssemblyError as `cubin` does."""
    code = _kept_code(source, generations(source)[-1])
    found = interface(code) if code is not None else []
    if found or Path(source).is_absolute():  # for a source elsewhere only the assembler knows the included files
        return tuple(found or assemble.interface(_origin(source)))
    text = cache.cached(f"interface of {source}\0{ingredients()}".encode(), ".interface",
                        lambda: json.dumps(assemble.interface(_origin(source))).encode())
    return tuple(json.loads(text))


def wanted(archs: Iterable[str]) -> list[tuple[str, tuple[str, ...]]]:
    """Every source with each of its generations that has one of these architectures; what takes longest first, so that
    no process is left alone with it at last."""
    found = [(source, every) for source in sources() for every in generations(source) if {*every} & {*archs}]
    rank = {name: n for n, name in enumerate(passed.verdicts())}
    return sorted(found, key=lambda one: rank.get(passed.name(*one), -1))


def build_all(archs: Iterable[str] = (*ARCHS, HOPPER)) -> list[Path]:
    """Every source for the generations of some architectures; the files, made or found. Ampere's are left out if
    nobody asks for them: in a source tree they are made where such a GPU runs. Raises AssemblyError as `cubin` does,
    and where they cannot be kept. Processes and not threads share the work, because the checker is Python."""
    all_of_it = wanted(archs)
    with ProcessPoolExecutor() as pool:
        list(pool.map(_code, *zip(*all_of_it, strict=True)))
    made = [_kept(source, every) for source, every in all_of_it]
    missing = [path.name for path in made if not path.is_file()]
    if missing:
        raise AssemblyError(f"{BINARIES} must be a folder that can be written to and has room; it lacks "
                            f"{', '.join(missing)}")
    return made


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
    return _digest([_rules().encode(), _tools().encode(),
                    *_named(sass, [p for p in sass.rglob("*") if p.suffix in (".sass", ".inc")])])


# -- what is kept -----------------------------------------------------------------------------------------------------


def _origin(source: str) -> Path:
    return asset("sass") / f"{source}.sass"  # an absolute path stays as it is


def _kept(source: str, archs: tuple[str, ...]) -> Path:
    if not Path(source).is_absolute():
        folder, name = source.rsplit("/", 1) if "/" in source else ("", source)
        return BINARIES / ("sm80" if archs == AMPERE else folder) / f"{name}.cubin"
    folder = hashlib.sha256(os.fsencode(Path(source).parent)).hexdigest()[:8]
    return BINARIES / f"{Path(source).name}.{folder}.cubin"


@functools.cache
def _code(source: str, archs: tuple[str, ...] = ARCHS) -> bytes:
    """The checked cubin of a source, for the oldest of these architectures that can run it."""
    code = _kept_code(source, archs)
    return _build(source, archs, _kept(source, archs)) if code is None else code


def _kept_code(source: str, archs: tuple[str, ...]) -> bytes | None:
    """The same as it was kept, None if nothing was or something it was made of has changed since."""
    if not Path(source).is_absolute() and source not in sources():
        raise AssemblyError(f"no kernel source {source!r} in {asset('sass')}; there are: {', '.join(sources())}")
    path = _kept(source, archs)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        note, data = json.loads(read_regular(path.with_suffix(".json"))), read_regular(path)
        names = [str(name) for name in note["files"]]
        if note == _note(data, names, _made_of(_origin(source).parent, names, _tools())):
            return data
    return None


def _note(data: bytes, names: list[str], made_of: str) -> dict[str, object]:
    """What stands beside a cubin: the files of its source, as seen from its folder, a digest of all it was made of, and
    one of itself."""
    return {"files": names, "made_of": made_of, "sha256": hashlib.sha256(data).hexdigest()}


def _made_of(folder: Path, names: list[str], tools: str) -> str:
    """A hash of the files of a source and of what makes and checks it; and of whether a file stands where one of that
    name would be looked for, too, as it might be the one that is read."""
    paths = [folder / name for name in names]
    others = [place / path.name for place in sorted({path.parent for path in paths}) for path in paths]
    there = bytes(path.is_file() for path in others)
    return _digest([_rules().encode(), tools.encode(), *_named(folder, paths), there])


@functools.cache
def _rules() -> str:
    """A hash of the rules that this process checks by, and of what says how kernels are made."""
    makers = [PACKAGE / "build" / name for name in ("assemble.py", "cubins.py", "passed.py")]
    return _digest([checked_by().encode(), *_named(PACKAGE, makers)])


@functools.cache
def checked_by() -> str:
    """A hash of these rules alone."""
    paths: list[Path] = []
    for name in RULES:
        paths += [p for p in (PACKAGE / name).rglob("*") if p.suffix in (".py", ".json")] or [PACKAGE / name]
    return _digest(_named(PACKAGE, paths))


def _tools_now() -> str:
    """A hash of what makes every kernel: the assembler, also one that MAXDNN_MAXAS names, and the tables it reads."""
    tools = asset("tools/maxas")
    parts = [*_named(tools, [*tools.glob("*.pl"), *tools.glob("lib/**/*.pm")]),
             *_named(PACKAGE, (PACKAGE / "isa").glob("*.json"))]
    for word in shlex.split(os.environ.get("MAXDNN_MAXAS", "")):
        program = Path(shutil.which(word) or word)
        parts += _named(program.parent, [program, *program.parent.glob("lib/MaxAs/*.pm")]) if program.is_file() else [
            os.fsencode(word)]
    return _digest(parts)


_tools = functools.cache(_tools_now)  # what kept cubins are compared with: once in a process is enough


def _named(root: Path, paths: Iterable[Path]) -> list[bytes]:
    """The files with their names below `root`, in order of name."""
    return [os.fsencode(path.relative_to(root).as_posix()) + b"\0" + path.read_bytes() for path in sorted(set(paths))]


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


_rules()  # at import: the files may change while the process that loaded them goes on


# -- making it --------------------------------------------------------------------------------------------------------


def _build(source: str, archs: tuple[str, ...], path: Path) -> bytes:
    """Assemble and check in a temporary folder, then keep, where that is possible. What it is made of is looked at
    before and afterwards: if it changed in between, nobody knows what was read, and it is made again."""
    origin = _origin(source)
    name = f"{origin.name} for {archs[0]}" if archs == AMPERE else origin.name
    notices.say(f"assembling {name}, once for this source tree" if _writable() else
                f"assembling {name}, in each process: {BINARIES} cannot be written to")
    for _ in range(_TRIES):
        seen = _seen(origin)
        try:
            data = _made(source, archs, path.name)
        except AssemblyError:
            if _seen(origin) == seen:
                raise
            continue
        names, made_of, written = seen
        if _looked_at(origin, names) == (made_of, written):
            with contextlib.suppress(OSError):
                _keep(path, data)
                _keep(path.with_suffix(".json"), json.dumps(_note(data, names, made_of)).encode())
            return data
    raise AssemblyError(f"{origin}: the source, a file it includes or the assembler changed while it was assembled, "
                        f"{_TRIES} times in a row: try again when nothing writes to them")


def _seen(origin: Path) -> tuple[list[str], str, list[tuple[int, int]]]:
    """The files of a source as seen from its folder, a hash of what the cubin is made of, and each file's time of
    change, which reveals a file that was changed and changed back."""
    names = [os.path.relpath(path, origin.parent) for path in assemble.files(origin)]
    return names, *_looked_at(origin, names)


def _looked_at(origin: Path, names: list[str]) -> tuple[str, list[tuple[int, int]]]:
    """The same of known files. Where nothing of it has changed they include the same files, too."""
    try:
        written = [(status.st_ino, status.st_mtime_ns) for status in (os.stat(origin.parent / name) for name in names)]
        return _made_of(origin.parent, names, _tools_now()), written
    except OSError as e:
        raise AssemblyError(f"{origin}: cannot read what it is made of: {e}") from e


def _made(source: str, archs: tuple[str, ...], name: str) -> bytes:
    """The cubin as it is assembled now, once it has passed."""
    with tempfile.TemporaryDirectory(prefix="maxdnn-build-") as folder:
        made = Path(folder) / name
        _assembled(_origin(source), made, archs)
        data = made.read_bytes()
        if not passed.has(data, checked_by()):
            check(made)
        return data


def _assembled(origin: Path, made: Path, archs: tuple[str, ...]) -> None:
    """Assemble for the oldest architecture that has the kernel's instructions."""
    for arch in archs:
        try:
            assemble.assemble(origin, made, arch=arch)
        except AssemblyError as e:
            if f"this kernel is for {arch}" not in str(e) or arch == archs[-1]:
                raise
        else:
            return


def _writable() -> bool:
    return os.access(BINARIES if BINARIES.exists() else PACKAGE, os.W_OK)


def _keep(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, lambda file: file.write(data))


def check(path: Path) -> None:
    """Refuse a kernel with an error or with anything that was not decided."""
    with compiling:
        from ..checker import check_hazards, findings

    for kernel in read(path).kernels.values():
        if findings(kernel):
            raise AssemblyError(f"{path.name}: hazards\n{check_hazards(kernel).text()}")
