"""`maxdnn run`: launch a kernel of a cubin on the virtual GPU, arrays from and to .npy files."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._types import at_least

if TYPE_CHECKING:
    import numpy as np

HELP = "run a kernel of a cubin on the virtual GPU, with .npy files for arrays"
ARGUMENT_HELP = ("one kernel parameter, in order: a number; IN.npy, uploaded; or zeros:DTYPE:SHAPE such as "
                 "zeros:float32:64x64, an array of zeros")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cubin", metavar="FILE.cubin")
    parser.add_argument("--kernel", metavar="K", help="the kernel; may be left out if there is only one")
    parser.add_argument("--grid", type=_dim3, required=True, metavar="X,Y,Z", help="blocks; missing numbers are 1")
    parser.add_argument("--block", type=_dim3, required=True, metavar="X,Y,Z", help="threads of a block")
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


def _argument(text: str) -> "np.ndarray | int | float":
    """A number, or an array read or made."""
    import numpy as np

    from ..errors import LaunchError
    from ..files import read_array

    if text.endswith(".npy"):
        return read_array(text)
    if text.startswith("zeros:"):
        try:
            _, name, shape = text.split(":")
            dtype = np.dtype(name)
            if dtype.kind in "biufc":
                return np.zeros([int(n) for n in shape.split("x")], dtype)
        except (ValueError, TypeError, SyntaxError):
            pass
        raise LaunchError(f"--arg must look like zeros:float32:64x64, with a dtype of numbers (got {text[:80]})")
    for kind in (lambda t: int(t, 0), float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise LaunchError(f"--arg must be a number, a .npy file or zeros:DTYPE:SHAPE (got {text[:80]!r})")


def _array(arrays: "dict[int, tuple[Any, np.ndarray]]", index: str) -> "tuple[Any, np.ndarray]":
    from ..errors import LaunchError

    if not (index.isascii() and index.isdecimal()) or int(index[:20]) not in arrays:
        raise LaunchError(f"parameter {index[:80]} is no array; the arrays are {sorted(arrays) or 'none'}")
    return arrays[int(index)]


def run(args: argparse.Namespace) -> int:
    import numpy as np

    from ..cubin import read
    from ..devices.protocol import Texture
    from ..emu import VirtualGpu
    from ..files import check_writable, read_array, write_whole

    for _, path in args.out:
        check_writable("--out", Path(path))

    cubin = read(args.cubin)
    options = {"instruction_budget": args.budget} if args.budget else {}
    gpu = VirtualGpu(race=args.race, undefined=args.undefined, **options)
    module = gpu.load(cubin)
    for name, path in args.constant:
        module.set_constant(name, read_array(path))
    values: list[Any] = [_argument(text) for text in args.arguments]
    arrays = {}
    for index, value in enumerate(values):
        if isinstance(value, np.ndarray):
            values[index] = gpu.alloc(value.nbytes)
            gpu.upload(values[index], value)
            arrays[index] = values[index], value
    textures = {name: _array(arrays, index)[0] for name, index in args.texture}
    wanted = [(_array(arrays, index), Path(path)) for index, path in args.out]
    start = time.perf_counter()
    module.function(cubin.kernel(args.kernel).name).launch(
        args.grid, args.block, values, shared_bytes=args.shared,
        textures={name: Texture(b.address, b.nbytes) for name, b in textures.items()} or None)
    print(f"{cubin.kernel(args.kernel).name}: {time.perf_counter() - start:.3f} s on {gpu.name}")
    for (buffer, array), path in wanted:
        gpu.download(buffer, array)
        write_whole(path, lambda file, array=array: np.save(file, array))  # type: ignore[misc]
        print(f"{path}: {array.dtype} {array.shape}")
    return 0
