"""`maxdnn asm`: a source of the MaxAs dialect to a cubin."""

import argparse

from ._assembling import add_arguments, assembler
from ._types import file_name

HELP = "assemble a MaxAs-dialect source into a cubin (embedded Perl in the source is run, see --no-code)"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=file_name, metavar="SOURCE.sass")
    parser.add_argument("-o", "--output", type=file_name, metavar="FILE.cubin", required=True)
    add_arguments(parser, "name of the source's only kernel, in place of its `# Kernel:` line or where it has none")


def run(args: argparse.Namespace) -> int:
    from ..runtime.files import check_writable

    check_writable("--output", args.output)
    report = assembler(args)(args.source, args.output, kernel=args.kernel)
    print(report.rstrip("\n"))
    return 0
