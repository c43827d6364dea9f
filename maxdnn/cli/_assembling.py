"""How a source is assembled: the options that `asm` and `check` share."""

import argparse
from collections.abc import Callable
from typing import Any


def add_arguments(parser: argparse.ArgumentParser, kernel: str) -> None:
    """`kernel`: what --kernel is for."""
    parser.add_argument("--kernel", metavar="NAME", help=kernel)
    parser.add_argument("--arch", metavar="sm_NN",
                        help="sm_50 to sm_62, sm_80, 86, 89 or 90 (default: the source's `# Arch:` line, else sm_52)")
    parser.add_argument("-D", dest="defines", nargs=2, metavar=("NAME", "VALUE"), action="append", default=[],
                        help="set the Perl global $NAME before the source is preprocessed; may be repeated")
    parser.add_argument("-I", dest="include", metavar="DIR", action="append", default=[],
                        help="look for included files there too, after the folder of the including file; repeatable")
    parser.add_argument("--no-code", action="store_true",
                        help="refuse embedded Perl instead of running it, and included files from elsewhere")


def assembler(args: argparse.Namespace) -> Callable[..., str]:
    """`assemble` with the options that were given, but --kernel."""
    from functools import partial

    from ..build.assemble import assemble

    options: dict[str, Any] = {"arch": args.arch, "defines": dict(args.defines), "include": args.include}
    return partial(assemble, no_code=args.no_code, **options)
