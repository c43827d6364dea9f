"""`maxdnn asm`: a source of the MaxAs dialect to a cubin."""

import argparse

HELP = "assemble a MaxAs-dialect source into a cubin (embedded Perl in the source is run, see --no-code)"
ARCHS = ("sm_50", "sm_52", "sm_53", "sm_60", "sm_61", "sm_62")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE.sass")
    parser.add_argument("-o", "--output", metavar="FILE.cubin", required=True)
    parser.add_argument("--arch", choices=ARCHS, default="sm_52", help="architecture of the cubin (default sm_52)")
    parser.add_argument("-D", dest="defines", nargs=2, metavar=("NAME", "VALUE"), action="append", default=[],
                        help="set the Perl global $NAME before the source is preprocessed; may be repeated")
    parser.add_argument("--no-code", action="store_true", help="refuse embedded Perl instead of running it")


def run(args: argparse.Namespace) -> int:
    from ..assemble import assemble

    assemble(args.source, args.output, arch=args.arch, defines=dict(args.defines), no_code=args.no_code)
    return 0
