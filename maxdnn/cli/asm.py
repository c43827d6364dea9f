"""`maxdnn asm`: a source of the MaxAs dialect to a cubin."""

import argparse
from pathlib import Path

HELP = "assemble a MaxAs-dialect source into a cubin (embedded Perl in the source is run, see --no-code)"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", metavar="SOURCE.sass")
    parser.add_argument("-o", "--output", metavar="FILE.cubin", required=True)
    parser.add_argument("--arch", metavar="sm_NN",
                        help="sm_50 to sm_62, sm_80, 86, 89 or 90 (default: the source's `# Arch:` line)")
    parser.add_argument("-D", dest="defines", nargs=2, metavar=("NAME", "VALUE"), action="append", default=[],
                        help="set the Perl global $NAME before the source is preprocessed; may be repeated")
    parser.add_argument("-I", dest="include", metavar="DIR", action="append", default=[],
                        help="look for included files there too, after the folder of the including file; repeatable")
    parser.add_argument("--no-code", action="store_true",
                        help="refuse embedded Perl instead of running it, and included files from elsewhere")


def run(args: argparse.Namespace) -> int:
    from ..build.assemble import assemble
    from ..runtime.files import check_writable

    check_writable("--output", Path(args.output))
    report = assemble(args.source, args.output, arch=args.arch, defines=dict(args.defines), no_code=args.no_code,
                      include=args.include)
    print(report.rstrip("\n"))
    return 0
