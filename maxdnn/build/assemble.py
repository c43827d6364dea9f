"""Sources in the MaxAs dialect to cubins: runs the Perl assembler in tools/maxas and passes its errors on.

The environment variable MAXDNN_MAXAS names another assembler of the dialect. It is called as `-i ... source template
cubin`, on a template cubin that ours writes (same kernel name, parameters, shared memory, constants and textures) and
on a copy of the source with its includes in place and its parameters' names spelled out.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import AssemblyError
from ..runtime.files import write_whole

_PACKAGE = Path(__file__).resolve().parents[1]
# In an installed package tools/ is inside, in a source tree beside it.
MAXAS = next((root for root in (_PACKAGE, _PACKAGE.parent) if (root / "tools" / "maxas").is_dir()),
             _PACKAGE.parent) / "tools" / "maxas" / "maxas.pl"
ARCHITECTURES = ("sm_50", "sm_52", "sm_53", "sm_60", "sm_61", "sm_62", "sm_80", "sm_86", "sm_89", "sm_90")
ENVIRONMENT = "MAXDNN_MAXAS"


def assemble(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    arch: str | None = None,
    defines: Mapping[str, object] | None = None,
    kernel: str | None = None,
    no_code: bool = False,
    no_reuse: bool = False,
    include: Sequence[str | os.PathLike[str]] = (),
) -> str:
    """Assemble `source` into the cubin `output`; returns what the assembler reported (counts, then warnings).

    arch: one of ARCHITECTURES; None takes the source's own `# Arch:` line. defines: Perl globals for the source's
    embedded code. kernel: the name of a source's only kernel, in place of its `# Kernel:` line. no_code: refuse
    embedded Perl, which can do whatever the caller may do. no_reuse: keep the source's .reuse flags instead of
    setting them. include: folders to look for included files in, after the including file's own and the source's.

    Raises AssemblyError: for a source that the assembler refuses with its message, the command and its exit status; for
    an argument that is none of these, and where there is no Perl. `output` appears whole or not at all.
    """
    if arch is not None and arch not in ARCHITECTURES:
        raise AssemblyError(f"arch must be one of {', '.join(ARCHITECTURES)} (got {arch!r})")
    options = ["--no-code"] if no_code else []
    options += ["-n"] if no_reuse else []
    options += ["-k", kernel] if kernel is not None else []
    for name, value in (defines or {}).items():
        options += ["-D", name, str(value)]
    ours = options + (["--arch", arch] if arch else [])
    ours += _folders(include)
    other = os.environ.get(ENVIRONMENT)
    if other:
        return _assemble_elsewhere(shlex.split(other), ours, options, Path(source), Path(output))
    return _run([*_perl(), str(MAXAS), "-c", *ours, "-o", os.fspath(output), os.fspath(source)])


def interface(source: str | os.PathLike[str], *,
              include: Sequence[str | os.PathLike[str]] = ()) -> list[dict[str, Any]]:
    """What the header of a source declares, per kernel, in the form of `maxdnn.cubin.interface`; the name is None where
    there is no `# Kernel:` line. Reads the header alone: no embedded code is run, nothing is assembled. Raises
    AssemblyError as `assemble` does."""
    text = _run([*_perl(), str(MAXAS), "--interface", "-w", *_folders(include), os.fspath(source)])
    return list(json.loads(text)["kernels"])


def files(source: str | os.PathLike[str], *, include: Sequence[str | os.PathLike[str]] = ()) -> list[Path]:
    """The files a source is made of: itself, then what it includes, in the order they are read. What embedded code
    opens is not among them. Raises AssemblyError as `assemble` does."""
    names = _output([*_perl(), str(MAXAS), "-p", "--files", *_folders(include), os.fspath(source)])
    return [Path(os.fsdecode(name)) for name in names.splitlines()]


def _folders(include: Sequence[str | os.PathLike[str]]) -> list[str]:
    options = []
    for folder in include:
        if not os.fspath(folder) or not Path(folder).is_dir():
            raise AssemblyError(f"include must name folders (got {os.fspath(folder)!r}, which is none)")
        options += ["-I", os.fspath(folder)]
    return options


def source_lines(source: str | os.PathLike[str]) -> list[tuple[str, str]]:
    """(place, text) of each instruction of the source's kernels in the order of the cubin, without the branch to itself
    and the padding at its end: "file:line", and the instruction with registers still by name. The place of one that
    embedded code wrote is where that code begins. Raises AssemblyError as `assemble` does."""
    found = []
    for line in _run([*_perl(), str(MAXAS), "-p", "--lines", os.fspath(source)]).splitlines():
        place, text = line.split("\t", 1)
        found.append((Path(place).name, " ".join(text.split())))
    return found


def has_perl() -> bool:
    """Whether there is a Perl, without which no source can be read."""
    return shutil.which("perl") is not None


def _perl() -> list[str]:
    perl = shutil.which("perl")
    if perl is None:
        raise AssemblyError("assembling needs Perl 5 (core modules only), and no 'perl' is on the path: install it, "
                            "for instance with `apt-get install perl`")
    return [perl]


def _assemble_elsewhere(command: list[str], ours: Sequence[str], options: Sequence[str], source: Path,
                        output: Path) -> str:
    """The other assembler fills the kernel of our template; it writes to a temporary file first."""
    if shutil.which(command[0]) is None:
        raise AssemblyError(f"{ENVIRONMENT} names {command[0]!r}, which is no program that can be run")
    if "--no-code" in options:
        raise AssemblyError(f"no_code cannot be promised for the assembler that {ENVIRONMENT} names; unset it")
    with tempfile.TemporaryDirectory(prefix="maxdnn-", dir=output.resolve().parent) as folder:
        template, result, plain = (Path(folder, name) for name in ("template.cubin", "result.cubin", source.name))
        _run([*_perl(), str(MAXAS), "-c", *ours, "-o", str(template), str(source)])
        _run([*_perl(), str(MAXAS), "-p", "--flat", *ours, str(source), str(plain)])
        text = _run([*command, "-i", "-w", *_joined_defines(options), str(plain), str(template), str(result)])
        if not result.exists():
            raise AssemblyError(f"{shlex.join(command)} wrote no cubin for {source}")
        write_whole(output, lambda file: file.write(result.read_bytes()))
    return text


def _joined_defines(options: Sequence[str]) -> list[str]:
    """Options in the upstream order: -k, -n, then -Dname value."""
    named, flags, defines = [], [], []
    rest = iter(options)
    for option in rest:
        if option == "-D":
            defines += [f"-D{next(rest)}", next(rest)]
        elif option == "-k":
            named += [option, next(rest)]
        else:
            flags.append(option)
    return named + flags + defines


def _run(command: list[str]) -> str:
    return _output(command).decode(errors="replace")


def _output(command: list[str]) -> bytes:
    """What a program printed, in whatever encoding: sources and names of files need not be those of the locale."""
    try:
        done = subprocess.run(command, capture_output=True, check=False)
    except OSError as error:
        raise AssemblyError(f"cannot run {shlex.join(command)}: {error}") from error
    lacks = re.search(rb"Can't locate (\S+)\.pm in @INC", done.stderr) if done.returncode else None
    if lacks and not lacks[1].startswith(b"MaxAs"):
        raise AssemblyError(f"assembling needs Perl 5 with its core modules, and this one lacks "
                            f"{lacks[1].decode(errors='replace').replace('/', '::')}: install the whole of it, for "
                            "instance with `apt-get install perl`")
    if done.returncode:
        raise AssemblyError((done.stderr.strip() or done.stdout.strip()).decode(errors="replace"),
                            f"command: {shlex.join(command)}\nexit status: {done.returncode}")
    return done.stdout + done.stderr
