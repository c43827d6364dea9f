"""`maxdnn check`: whether the control codes of a kernel are safe on the paths it can take."""

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..checker import Report

HELP = ("check a kernel's control codes for hazards; exit status 1 if there is an error (--strict: or a warning), or a "
        "kernel with a word that is no instruction")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE.sass|FILE.cubin", help="a source of the MaxAs dialect, or a cubin")
    parser.add_argument("--kernel", metavar="K", help="only this kernel")
    parser.add_argument("--strict", action="store_true",
                        help="count warnings as errors: what was undecided or not followed")
    parser.add_argument("--advice", action="store_true", help="print advice too: what could be tighter")
    parser.add_argument("--json", action="store_true", help="one JSON list of reports instead of text")
    parser.add_argument("-D", dest="defines", nargs=2, metavar=("NAME", "VALUE"), action="append", default=[],
                        help="set the Perl global $NAME before a source is preprocessed; may be repeated")


def run(args: argparse.Namespace) -> int:
    from ..checker import check_hazards
    from ..cubin import read
    from ..errors import DecodeError

    cubin = read(_cubin(Path(args.file), dict(args.defines)))
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


def _cubin(path: Path, defines: dict[str, str]) -> Path | bytes:
    """The cubin, or what the source is assembled to."""
    with path.open("rb") as file:
        if file.read(4) == b"\x7fELF":
            return path
    from ..build.assemble import assemble

    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "kernel.cubin"
        assemble(path, output, defines=defines)
        return output.read_bytes()
