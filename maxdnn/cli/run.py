"""`maxdnn run`: launch kernels of a cubin on the virtual GPU, arrays from and to .npy files."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ._types import at_least, file_name

if TYPE_CHECKING:
    from ..simulator.launchfile import Description

HELP = "run a kernel of a cubin on the virtual GPU, with .npy files for arrays"
ARGUMENT_HELP = ("one kernel parameter, in order: a number; IN.npy, uploaded; or zeros:DTYPE:SHAPE such as "
                 "zeros:float32:64x64, an array of zeros")


def configure(parser: argparse.ArgumentParser) -> None:
    from ..simulator.launchfile import HELP as LAUNCH_FILE

    parser.epilog = LAUNCH_FILE
    parser.add_argument("cubin", type=file_name, metavar="FILE.cubin")
    parser.add_argument("--kernel", metavar="K", help="the kernel; may be left out if there is only one")
    parser.add_argument("--launch", type=file_name, metavar="FILE.json",
                        help="launches from a file instead of the options below up to --out, see the end")
    parser.add_argument("--grid", type=_dim3, metavar="X,Y,Z", help="blocks; missing numbers are 1")
    parser.add_argument("--block", type=_dim3, metavar="X,Y,Z", help="threads of a block")
    parser.add_argument("--arg", dest="arguments", action="append", default=[], metavar="VALUE", help=ARGUMENT_HELP)
    parser.add_argument("--shared", type=at_least(0), default=0, metavar="BYTES", help="dynamic shared memory")
    parser.add_argument("--texture", type=_pair, action="append", default=[], metavar="NAME=INDEX",
                        help="bind a texture reference to the array of parameter INDEX (counted from 0)")
    parser.add_argument("--constant", type=_pair, action="append", default=[], metavar="NAME=IN.npy",
                        help="fill a __constant__ symbol")
    parser.add_argument("--out", type=_pair, action="append", default=[], metavar="INDEX=OUT.npy",
                        help="write the array of parameter INDEX after the run")
    parser.add_argument("--budget", type=at_least(1), metavar="N",
                        help="instructions per warp before a run counts as endless")
    parser.add_argument("--race", action="store_true", help="report shared-memory races between warps")
    parser.add_argument("--undefined", action="store_true", help="report reads of registers never written")


def _dim3(text: str) -> tuple[int, int, int]:
    number = at_least(1)
    numbers = [number(part) for part in text.split(",")]
    if len(numbers) > 3:
        raise argparse.ArgumentTypeError(f"must be one to three numbers such as 16,16 (got {text[:80]})")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise argparse.ArgumentTypeError(f"must be NAME=VALUE (got {text[:80]!r})")
    return name, value


def _number(text: str) -> int | float:
    from ..errors import LaunchError

    for kind in (lambda t: int(t, 0), float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise LaunchError(f"--arg must be a number, a .npy file or zeros:DTYPE:SHAPE (got {text[:80]!r})")


def _described(args: argparse.Namespace) -> "Description":
    """The launch that the options say."""
    from ..errors import LaunchError
    from ..runtime.files import read_array
    from ..simulator.launchfile import Content, Description, Step, content, is_content

    if args.grid is None or args.block is None:
        raise LaunchError("--grid and --block say what is launched, or --launch FILE.json")
    buffers: dict[str, Content] = {}
    values: list[int | float | str] = []
    for number, text in enumerate(args.arguments):
        if is_content(text):
            values.append(f"parameter {number}")
            buffers[f"parameter {number}"] = content(text, "--arg")
        else:
            values.append(_number(text))

    def array(index: str) -> str:
        names = {str(n): value for n, value in enumerate(values) if isinstance(value, str)}
        if index not in names:
            raise LaunchError(f"parameter {index[:80]} is no array; the arrays are {', '.join(names) or 'none'}")
        return names[index]
    step = Step(args.kernel, args.grid, args.block, args.shared, tuple(values),
                {name: (array(index), 4) for name, index in args.texture},
                {name: read_array(path) for name, path in args.constant})
    return Description(buffers, (step,), tuple((array(index), Path(path)) for index, path in args.out))


def run(args: argparse.Namespace) -> int:
    import numpy as np

    from ..cubin import read
    from ..emulator import VirtualGpu
    from ..errors import LaunchError
    from ..runtime.files import check_writable, write_whole
    from ..simulator import launchfile
    from ._progress import Progress

    given = [n for n in ("kernel", "grid", "block", "arguments", "shared", "texture", "constant", "out")
             if getattr(args, n)]
    if args.launch is not None and given:
        raise LaunchError(f"--launch says what is launched: leave out --{given[0].removesuffix('uments')}")
    description = launchfile.read(args.launch) if args.launch is not None else _described(args)
    for _, path in description.outputs:
        check_writable("--out" if args.launch is None else f"{args.launch}: outputs", path)
    options = {"instruction_budget": args.budget} if args.budget else {}
    gpu = VirtualGpu(race=args.race, undefined=args.undefined, **options)
    cubin = read(args.cubin)
    if args.launch is None and args.kernel is None and len(cubin.kernels) > 1:
        raise LaunchError(f"--kernel must name one of the kernels of {args.cubin}: {', '.join(cubin.kernels)}")
    buffers, steps = launchfile.place(description, cubin, gpu)
    with Progress("running") as tell:
        for number, step in enumerate(steps, 1):
            start = time.perf_counter()
            step.launch()
            tell(number, len(description.launches))
            print(f"{step.function.name}: {time.perf_counter() - start:.3f} s on the virtual GPU, code of {cubin.arch}")
    for name, path in description.outputs:
        new = description.buffers[name]
        array = np.empty(new.shape, new.dtype)
        gpu.download(buffers[name], array)
        write_whole(path, lambda file, array=array: np.save(file, array))  # type: ignore[misc]
        print(f"{path}: {array.dtype} {array.shape}")
    return 0
