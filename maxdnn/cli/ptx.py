"""`maxdnn ptx`: the kernels of a cubin as PTX for another GPU."""

import argparse

from ._types import file_name

HELP = "translate the kernels of a cubin to PTX"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cubin", type=file_name, metavar="FILE.cubin", help="a cubin for sm_50 to sm_62")
    parser.add_argument("--target", default="sm_80", metavar="sm_NN", help="the GPU to translate for (default: sm_80)")


def run(args: argparse.Namespace) -> int:
    from ..cubin import read
    from ..ptx import targets
    from ..ptx.translate import translate

    targets.check(args.target)
    print(translate(read(args.cubin), args.target), end="")
    return 0
