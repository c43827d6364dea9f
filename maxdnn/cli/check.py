"""`maxdnn check`: whether the control codes of a kernel are safe on the paths it can take."""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from ._assembling import add_arguments, assembler
from ._types import file_name

if TYPE_CHECKING:
    from ..checker import Report

HELP = ("check a kernel's control codes for hazards; exit status 1 if there is an error (--strict: or a warning), or a "
        "kernel with a word that is no instruction")


_OF_SOURCES = {"arch": "--arch", "defines": "-D", "include": "-I", "no_code": "--no-code"}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", type=file_name, metavar="FILE.sass|FILE.cubin",
                        help="a source of the MaxAs dialect, or a cubin")
    parser.add_argument("--strict", action="store_true",
                        help="count warnings as errors: what was undecided or not followed")
    parser.add_argument("--advice", action="store_true", help="print advice too: what could be tighter")
    parser.add_argument("--json", action="store_true", help="one JSON list of reports instead of text")
    add_arguments(parser, "only this kernel; of a source without a `# Kernel:` line the name of its only one")


def run(args: argparse.Namespace) -> int:
    from ..checker import check_hazards
    from ..cubin import read
    from ..errors import DecodeError

    cubin = read(_cubin(args.file, args))
    kernels = [cubin.kernel(args.kernel)] if args.kernel is not None else list(cubin.kernels.values())
    reports, unread = [], 0
    for kernel in kernels:
        try:
            reports.append(check_hazards(kernel))
        except DecodeError as e:
            unread += 1
            print(f"maxdnn: not checked: {e}", file=sys.stderr)
    _show(reports, args)
    return int(unread > 0 or not all(report.clean if args.strict else report.ok for report in reports))


def _show(reports: "list[Report]", args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps([report.as_dict() for report in reports], indent=1))
    else:
        print("\n".join(report.text(args.advice) for report in reports))


def _cubin(path: Path, args: argparse.Namespace) -> Path | bytes:
    """The cubin, or what the source is assembled to."""
    from ..errors import MaxdnnError
    from ..runtime.files import is_special

    if is_special(path):
        raise MaxdnnError(f"{path} must be a file, which is read more than once")
    with path.open("rb") as file:
        if file.read(4) == b"\x7fELF":
            given = [name for name in ("arch", "defines", "include", "no_code") if getattr(args, name)]
            if given:
                raise MaxdnnError(f"{_OF_SOURCES[given[0]]} says how a source is assembled, and {path} is a cubin")
            return path
    from ..build.assemble import interface

    named = args.kernel is not None and [k["name"] for k in interface(path, include=args.include)] == [None]
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "kernel.cubin"
        assembler(args)(path, output, kernel=args.kernel if named else None)
        return output.read_bytes()
