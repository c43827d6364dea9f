"""`maxdnn run`: launch a kernel of a cubin on the virtual GPU, arrays from and to .npy files."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

HELP = "run a kernel of a cubin on the virtual GPU, with .npy files for arrays"
ARGUMENT_HELP = ("one kernel parameter, in order: a number; IN.npy, uploaded; or zeros:DTYPE:SHAPE such as "
                 "zeros:float32:64x64, an array of zeros")


def configure(parser: argparse.ArgumentParser) -> None:
    from ..launchfile import HELP as LAUNCH_FILE

    parser.epilog = LAUNCH_FILE
    parser.add_argument("cubin", metavar="FILE.cubin")
    parser.add_argument("--kernel", metavar="K", help="the kernel; may be left out if there is only one")
    parser.add_argument("--launch", type=Path, metavar="FILE.json",
                        help="launches from a file instead of the options below up to --out, see the end")
    parser.add_argument("--grid", type=_dim3, metavar="X,Y,Z", help="blocks; missing numbers are 1")
    parser.add_argument("--block", type=_dim3, metavar="X,Y,Z", help="threads of a block")
    parser.add_argument("--arg", dest="arguments", action="append", default=[], metavar="VALUE", help=ARGUMENT_HELP)
    parser.add_argument("--shared", type=int, default=0, metavar="BYTES", help="dynamic shared memory")
    parser.add_argument("--texture", type=_pair, action="append", default=[], metavar="NAME=INDEX",
                        help="bind a texture reference to the array of parameter INDEX (counted from 0)")
    parser.add_argument("--constant", type=_pair, action="append", default=[], metavar="NAME=IN.npy",
                        help="fill a __constant__ symbol")
    parser.add_argument("--out", type=_pair, action="append", default=[], metavar="INDEX=OUT.npy",
                        help="write the array of parameter INDEX after the run")
    parser.add_argument("--budget", type=int, metavar="N", help="instructions per warp before a run counts as endless")
    parser.add_argument("--race", action="store_true", help="report shared-memory races between warps")
    parser.add_argument("--undefined", action="store_true", help="report reads of registers never written")


def _dim3(text: str) -> tuple[int, int, int]:
    numbers = [int(part) for part in text.split(",")]
    if not 1 <= len(numbers) <= 3:
        raise argparse.ArgumentTypeError(f"want one to three numbers such as 16,16 (got {text})")
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name or not value:
        raise argparse.ArgumentTypeError(f"want NAME=VALUE (got {text})")
    return name, value


def _argument(text: str) -> "np.ndarray | int | float":
    """A number, or an array read or made."""
    import numpy as np

    from ..errors import LaunchError

    if text.endswith(".npy"):
        return np.ascontiguousarray(np.load(text))
    if text.startswith("zeros:"):
        try:
            _, dtype, shape = text.split(":")
            return np.zeros([int(n) for n in shape.split("x")], np.dtype(dtype))
        except (ValueError, TypeError) as e:
            raise LaunchError(f"--arg must look like zeros:float32:64x64 (got {text})") from e
    for kind in (lambda t: int(t, 0), float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise LaunchError(f"--arg must be a number, a .npy file or zeros:DTYPE:SHAPE (got {text})")


def _array(arrays: "dict[int, tuple[Any, np.ndarray]]", index: str) -> "tuple[Any, np.ndarray]":
    from ..errors import LaunchError

    if not index.isdecimal() or int(index) not in arrays:
        raise LaunchError(f"parameter {index} is no array; the arrays are {sorted(arrays) or 'none'}")
    return arrays[int(index)]


def run(args: argparse.Namespace) -> int:
    if args.launch is not None:
        return _from_file(args)
    return _from_options(args)


def _from_file(args: argparse.Namespace) -> int:
    """The launches of a launch file."""
    import numpy as np

    from .. import launchfile
    from ..cubin import read
    from ..emu import VirtualGpu
    from ..errors import LaunchError
    from ._progress import Progress

    given = [n for n in ("kernel", "grid", "block", "arguments", "shared", "texture", "constant", "out")
             if getattr(args, n)]
    if given:
        raise LaunchError(f"--launch says what is launched: leave out --{given[0].removesuffix('uments')}")
    description = launchfile.read(args.launch)
    options = {"instruction_budget": args.budget} if args.budget else {}
    buffers, steps = launchfile.place(description, read(args.cubin),
                                      VirtualGpu(race=args.race, undefined=args.undefined, **options))
    with Progress("running"):
        for step in steps:
            start = time.perf_counter()
            step.launch()
            print(f"{step.function.name}: {time.perf_counter() - start:.3f} s")
    for name, path in description.outputs.items():
        array = np.empty_like(description.buffers[name])
        array.reshape(-1).view(np.uint8)[:] = buffers[name].data[:array.nbytes]
        _save(path, array)
        print(f"{path}: {array.dtype} {array.shape}")
    return 0


def _from_options(args: argparse.Namespace) -> int:
    import numpy as np

    from ..cubin import read
    from ..devices.protocol import Texture
    from ..emu import VirtualGpu
    from ..errors import LaunchError
    from ._progress import Progress

    if args.grid is None or args.block is None:
        raise LaunchError("--grid and --block say what is launched, or --launch FILE.json")
    cubin = read(args.cubin)
    options = {"instruction_budget": args.budget} if args.budget else {}
    gpu = VirtualGpu(race=args.race, undefined=args.undefined, **options)
    module = gpu.load(cubin)
    for name, path in args.constant:
        module.set_constant(name, np.load(path))
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
    with Progress("running"):
        module.function(cubin.kernel(args.kernel).name).launch(
            args.grid, args.block, values, shared_bytes=args.shared,
            textures={name: Texture(b.address, b.nbytes) for name, b in textures.items()} or None)
    print(f"{cubin.kernel(args.kernel).name}: {time.perf_counter() - start:.3f} s on {gpu.name}")
    for (buffer, array), path in wanted:
        gpu.download(buffer, array)
        _save(path, array)
        print(f"{path}: {array.dtype} {array.shape}")
    return 0


def _save(path: Path, array: "np.ndarray") -> None:
    """Written beside the target, then renamed, so that no half-written file remains."""
    import os
    import tempfile

    import numpy as np

    with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".npy", delete=False) as file:
        np.save(file, array)
    os.replace(file.name, path)
