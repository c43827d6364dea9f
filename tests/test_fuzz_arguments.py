"""Random arguments for every command and for the public functions: the answer is a result or an error of this library,
never a traceback, and a command that fails writes nothing. MAXDNN_FUZZ sets how many (CI takes a sample)."""

import json
import os
import random
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maxdnn
from maxdnn import cli
from maxdnn.build.cubins import cubin
from maxdnn.emulator import VirtualGpu
from maxdnn.simulator import launchfile, timing
from maxdnn.simulator.machine import preset
from tests import oracles

COUNT = int(os.environ.get("MAXDNN_FUZZ", "300"))
SOURCE = """
__constant__ float factor[4];
extern "C" __global__ void scale(float *out, const float *in, float s, int n)
{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) out[i] = in[i] * s * factor[i & 3]; }
extern "C" __global__ void fill(float *out) { out[threadIdx.x] = 1.0f; }
"""
SASS = ("# Kernel: tiny\n# Arch: sm_52\n# Params(1):\n#\t0:0x140:8:0\n--:-:-:-:6 MOV R0, [+ $value || 1 +];\n"
        "--:-:-:-:f EXIT;\n")
NUMBERS = ["0", "-1", "1", "2", "4", "64", "-5", "1e400", "nan", "inf", "-0.0", "1e300", "0x10", "1.5", "", " ", "x",
           "9" * 40,
           "4294967296", "²", "1_0", "9" * 5000]
DIMS = ["1", "32", "1,1,1", "0", "-1", "4,4", "1,2,3,4", "", "a", "1,,1", "1025", "99999999999", "1.5", "65536,65536"]
JSONS: list[Any] = [None, True, 0, 1, -1, 1.5, 10**400, float("nan"), "", "scale", [], {}, [1], [1, 1, 1], [True],
                    ["x"], [-1],
                    [0, 0, 0], [10**30], {"f32": 1}, {"f32": "x"}, {"f32": 1e300}, {"f64": None}, {"f64": 10**400},
                    {"buffer": 64}, {"buffer": -1}, {"buffer": 10**30}, {"buffer": 10**13}, {"buffer": "x"},
                    {"buffer": True},
                    {"buffer": 4, "i32": [1, 2]}, {"buffer": 4, "i32": [10**12]}, {"buffer": 4, "i32": "ab"},
                    {"buffer": 8, "i32": [1.5]}, {"buffer": 8, "i32": [[1], [2, 3]]}, {"x": 1},
                    {"bytes": 64, "f32": [1e300]}, {"bytes": 64, "f32": [10**400]}, {"f32": True},
                    {"bytes": 64, "i32": [1], "f32": [1]}, {"buffer": 0, "channels": 2},
                    {"buffer": 1, "channels": True}, "\0.npy",
                    "x", "f32.npy", "f64.npy", "empty.npy", "scalar.npy", "object.npy", "record.npy", "garbage.npy",
                    "missing.npy", "folder.cubin/x.npy", "\ud800.npy", "zeros:float32:64", "zeros:object:4",
                    "zeros:float32:-1", "zeros:float32:999999999999999", "zeros:f4:"]
GOOD_LAUNCH = {"kernel": "scale", "grid": [1], "block": [32], "shared_bytes": 0,
               "args": [{"buffer": 256}, {"buffer": 256, "i32": [1, 2]}, {"f32": 2.0}, 32],
               "constants": {"factor": [0, 0, 0, 0]}, "textures": {}}
FIGURES = [*preset("gm204").figures, "no_such"]
FIGURE_VALUES = ["0", "-1", "1", "2", "3", "7", "64", "1e9", "1e300", "1000000000000000000000", "nan", "NaN",
                 "Infinity", "true",
                 "null", '"x"', "[]", "{}", '{"12": 0}', "[1", "", "1.5", "0.001", "4096", '{"13": 99}', '{"-1": 5}']


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of right and wrong inputs."""
    folder = tmp_path_factory.mktemp("fuzz")
    code = oracles.compile_cuda(SOURCE)
    (folder / "good.cubin").write_bytes(code)
    (folder / "half.cubin").write_bytes(code[:len(code) // 2])
    (folder / "pad.cubin").write_bytes(cubin("maxwell/pad", "sm_61"))
    (folder / "text.cubin").write_text("no cubin")
    (folder / "empty.cubin").write_bytes(b"")
    (folder / "good.sass").write_text(SASS)
    (folder / "bad.sass").write_text(SASS.replace("MOV", "MOOV"))
    (folder / "binary.sass").write_bytes(bytes(range(256)))
    (folder / "folder.cubin").mkdir()
    rng = np.random.default_rng(0)
    for name, array in {"f32": rng.random(64, np.float32), "f64": rng.random(3), "empty": np.zeros(0, np.float32),
                        "scalar": np.float32(1), "record": np.zeros(3, "i4,f8"), "object": np.array([{}, 1], object),
                        "text": np.array(["a", "bc"]), "fortran": np.asfortranarray(rng.random((4, 4)))}.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=True)
    whole = (folder / "f32.npy").read_bytes()
    np.savez(folder / "several.npz", a=rng.random(3))
    os.replace(folder / "several.npz", folder / "several.npy")
    for name, data in {"short": whole[:-9], "head": whole[:40], "garbage": b"\x93NUMPY" + os.urandom(60),
                       "nothing": b"",
                       "huge": whole.replace(b"(64,)", b"(1" + b"0" * 15 + b",)"),
                       "negative": whole.replace(b"(64,)", b"(-4,)")}.items():
        (folder / f"{name}.npy").write_bytes(data)
    (folder / "good.json").write_text(json.dumps(GOOD_LAUNCH))
    for name, text in {"bad": "{", "list": "[]", "deep": "[" * 100_000, "latin": "\xff"}.items():
        (folder / f"{name}.json").write_bytes(text.encode("latin-1"))
    return folder


def launch_file(rng: random.Random, folder: Path) -> Path:
    """A description of a launch, or of two, with one or two things wrong in it, sometimes none."""
    description: Any = one_launch(rng)
    if rng.random() < 0.4:
        description = {"buffers": {"x": "zeros:float32:64"}, "launches": [description, one_launch(rng)],
                       "outputs": {"x": rng.choice(["out.npy", "out.npy", "no/out.npy", "out", "\0.npy", 3])}}
        if rng.random() < 0.5:
            description[rng.choice([*description, "more"])] = rng.choice([*JSONS, {"x": rng.choice(JSONS)}])
    path = folder / "launch.json"
    path.write_text(json.dumps(description))
    return path


def one_launch(rng: random.Random) -> Any:
    description: Any = json.loads(json.dumps(GOOD_LAUNCH))
    for _ in range(rng.randrange(3)):
        key = rng.choice([*GOOD_LAUNCH, "more"])
        match rng.randrange(4):
            case 0:
                description.pop(key, None)
            case 1 if isinstance(description.get(key), list) and description[key]:
                description[key][rng.randrange(len(description[key]))] = rng.choice(JSONS)
            case 2 if key in ("constants", "textures"):
                description[key] = {rng.choice(["factor", "t", ""]): rng.choice(JSONS)}
            case _:
                description[key] = rng.choice(JSONS)
    return description


class Arguments:
    """Arguments of a command, drawn from good and bad ones."""

    def __init__(self, rng: random.Random, folder: Path) -> None:
        self.rng, self.folder, self.pick = rng, folder, rng.choice
        self.out = str(folder / self.pick(["out.npy", "no/such/out.npy", "out", "folder.cubin"]))

    def some(self, suffix: str) -> str:
        return str(self.pick([*sorted(self.folder.glob(f"*{suffix}")), self.folder / f"missing{suffix}", self.folder]))

    def maybe(self, chance: float, *options: Any) -> list[str]:
        return [str(o) for o in options] if self.rng.random() < chance else []

    def file(self, good: str) -> str:
        return str(self.folder / good) if self.rng.random() < 0.7 else self.some(Path(good).suffix)

    def launch(self) -> str:
        return str(launch_file(self.rng, self.folder)) if self.rng.random() < 0.8 else self.some(".json")


def command_line(rng: random.Random, folder: Path) -> list[str]:
    """One command with arguments drawn from good and bad ones."""
    draw = Arguments(rng, folder)
    pick, maybe, file = draw.pick, draw.maybe, draw.file
    command = pick(["asm", "check", "disasm", "ptx", "run", "run", "run", "simulate", "simulate", "simulate"])
    kernel = maybe(0.4, "--kernel", pick(["scale", "fill", "", "nothing"]))
    if command == "asm":
        return [command, file("good.sass"), "-o", draw.out, *maybe(0.3, "--arch", pick(["sm_52", "sm_70", "", "52"])),
                *maybe(0.3, "-D", pick(["value", "1x", "", "a b", "-D"]), pick(NUMBERS[:-1])), *maybe(0.2, "--no-code")]
    if command in ("check", "disasm"):
        return [command, file("good.cubin"), *kernel, *maybe(0.3, "--json")]
    if command == "ptx":
        return [command, file("good.cubin"), *maybe(0.4, "--target", pick(["sm_70", "sm_80", "sm_90"]))]
    return run_line(draw, kernel) if command == "run" else simulate_line(draw)


def run_line(draw: Arguments, kernel: list[str]) -> list[str]:
    rng, pick, maybe, some, file, out = draw.rng, draw.pick, draw.maybe, draw.some, draw.file, draw.out
    if rng.random() < 0.4:
        return ["run", file("good.cubin"), "--launch", draw.launch(), *maybe(0.1, "--grid", "1"),
                *maybe(0.2, "--budget", pick(NUMBERS)), *maybe(0.2, "--race")]
    argument = ["zeros:float32:64", file("f32.npy"), "2.0", "32"]
    for _ in range(rng.randrange(3)):
        argument[rng.randrange(4)] = pick([*NUMBERS, some(".npy"), "zeros:float32:64", "zeros:float32:-1",
                                           "zeros:object:4", "zeros:f:1:2", "zeros:float32:999999999999999",
                                           "zeros:x:4", "zeros::", "zeros:f4:", "zeros:U3:4", "zeros:i4,f8:3",
                                           "zeros:float32:0"])
    if rng.random() < 0.1:
        argument = argument[:rng.randrange(4)]
    return ["run", file("good.cubin"), *(kernel or ["--kernel", "scale"]), "--grid", pick(DIMS), "--block", pick(DIMS),
            *(x for a in argument for x in ("--arg", a)), *maybe(0.3, "--budget", pick(NUMBERS)),
            *maybe(0.3, "--shared", pick(NUMBERS)), *maybe(0.3, "--texture", pick(["t=0", "t", "=", "t=9", "t=x"])),
            *maybe(0.3, "--constant", pick([f"factor={some('.npy')}", "x=y", "factor", f"no={file('f32.npy')}"])),
            *maybe(0.4, "--out", pick([f"0={out}", f"2={out}", f"-1={out}", f"9={out}", f"²={out}", "0="])),
            *maybe(0.2, "--race"), *maybe(0.2, "--undefined")]


def simulate_line(draw: Arguments) -> list[str]:
    rng, folder, pick, maybe, file = draw.rng, draw.folder, draw.pick, draw.maybe, draw.file
    shape = ["4", "2", "3", "3", "4", "1", "1", "1", "0"]
    for _ in range(rng.randrange(3)):
        shape[rng.randrange(9)] = pick(["0", "-1", "1", "2", "5", "x", "", "99999999999999", "1.5", "²"])
    what = pick([",".join(shape), ",".join(shape[:rng.randrange(10)]), "alexnet-conv9", file("good.cubin"),
                 file("good.cubin")])
    figures = [x for _ in range(rng.randrange(3)) for x in ("--set", pick(FIGURES), pick(FIGURE_VALUES))]
    launch = draw.launch()
    return ["simulate", what, *figures, *maybe(0.7, "--launch", launch),
            *maybe(0.2, "--machine", pick(["gm107", "gm20b", "", "x", "../gm204"])),
            *maybe(0.2, "--kernel", pick(["best", "sconv_fprop_paper", "", "x"])),
            *maybe(0.2, "--layout", pick(["NCHW", "", "x"])), *maybe(0.1, "--pass", pick(["data", "", "x"])),
            *maybe(0.1, "--algorithm", pick(["direct", "", "x"])),
            *maybe(0.2, "--policy", pick(["greedy-then-round-robin", "", "x"])),
            *maybe(0.2, "--picture", folder / pick(["out.png", "out.bmp", "out", "no/out.png", "out.svg"])),
            *maybe(0.2, "--trace", pick(["0", "-5", "10", "9" * 30]), pick(["20", "0", "-1", "9" * 18])),
            *maybe(0.5, "--trace-file", folder / pick(["out.json", "no/out.json"])),
            *maybe(0.2, "--worst", pick(NUMBERS)), *maybe(0.1, "--source", file("good.sass")),
            *maybe(0.2, "--json"), *maybe(0.1, "--all-sms")]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file() and p.name != "launch.json"}


def run_command(argv: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            status = cli.main(argv)
    except SystemExit as end:
        status = int(end.code or 0)
    return status, *capsys.readouterr()


def complaint(argv: list[str], status: int, out: str, err: str) -> str | None:
    """What is wrong with how a command ended."""
    if status not in (0, 1, 2):
        return f"exit status {status}"
    if "Traceback" in err:
        return "a traceback"
    lines = [x for x in err.rstrip("\n").splitlines() if not x.startswith(("running: ", "simulating: "))]  # progress
    if status == 2 and not lines[-1].startswith("maxdnn"):
        return "a usage error that does not say so"
    if status == 1 and not (argv[0] == "check" and "error" in out and not err):
        if not lines or not lines[0].startswith("maxdnn: "):
            return "an error without its line"
        if not all(line.startswith("    ") for line in lines[1:]):  # the line of a source, and what it expands to
            return "more than one line"
    return None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("part", range(4))
def test_a_command_ends_with_a_result_or_one_error_line(part: int, files: Path, capsys: pytest.CaptureFixture[str],
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    rng = random.Random(f"commands {part}")
    before, found = contents(files), []
    for _ in range(COUNT // 4):
        argv = command_line(rng, files)
        try:
            status, out, err = run_command(argv, capsys)
            wrong = complaint(argv, status, out, err)
        except BaseException as e:
            status, err = 1, ""
            place = traceback.extract_tb(e.__traceback__)[-1]
            wrong = f"{type(e).__name__}: {str(e)[:200]} ({Path(place.filename).name}:{place.lineno})"
        new = {path for path, data in contents(files).items() if before.get(path) != data}
        if (new and status) or any(not Path(path).stat().st_size for path in new):
            wrong = f"{wrong}; wrote {new}"
        for path in new:
            os.unlink(path)
        if wrong:
            launch = (files / "launch.json").read_text() if str(files / "launch.json") in argv else ""
            found.append(f"{wrong}\n  maxdnn {' '.join(a[:99] for a in argv)}\n  {launch}\n  {err}")
    assert not found, f"{len(found)} of {COUNT // 4}:\n" + "\n".join(found[:30])


class Cuda:
    """An object with a `__cuda_array_interface__` of its own."""

    def __init__(self, interface: Any) -> None:
        self.__cuda_array_interface__ = interface


HUGE = 10**400
ODD: list[Any] = [None, True, 0, -1, 1, 2, 3, 10**9, 2**31, 2**63, HUGE, 1.5, -0.0, float("nan"), float("inf"), 1e300,
                  1 + 2j,
                  "", "x", "cuda", "CHWN", b"x", [], (), (1,), (1, 2), (0, -1), (1, 2, 3), [2, 2], ("a", 1), (10**9,
                                                                                                              1), {},
                  {1: 2}, object(),
                  np.int8(3), np.uint64(2**64 - 1), np.float32(2), np.float16(1), np.bool_(True), np.array(2),
                  np.array([2, 2]),
                  np.zeros((0, 4)), np.array("a"), range(2), len, int]
INTERFACE = {"shape": (3, 5, 5, 4), "typestr": "<f4", "data": (512, False), "version": 3}


def arrays() -> list[Any]:
    """What might be taken for an image: right ones, and ones wrong in one way each."""
    rng = np.random.default_rng(1)
    good = rng.random((3, 5, 5, 4), np.float32)
    interfaces: list[Any] = [INTERFACE | {key: value} for key in [*INTERFACE, "strides", "mask"]
                             for value in (None, 1, "x", (), (1, 2), (-1, 2, 3, 4), ("a", "b"), (HUGE, 1, 1, 1))]
    interfaces += [{k: v for k, v in INTERFACE.items() if k != key} for key in INTERFACE] + [None, 1, "x", []]
    return [good, good, good, good[:, ::-1], good[..., :2], good.astype(np.float64), good.astype(">f4"),
            np.asfortranarray(good),
            np.ma.masked_array(good, good > 0.5), np.ma.masked_array(good), good[None], good[0], good.astype(object),
            np.zeros((3, 0, 5, 4), np.float32), np.float32(1), np.zeros((3, 5, 5, 4), "f4,f4"), good.astype("U3"),
            np.broadcast_to(np.float32(1), (3, 5, 5, 4)), good.tolist(), good.tobytes(), *map(Cuda, interfaces)]


def public_calls(rng: random.Random, files: Path) -> list[Callable[[], Any]]:
    """Calls of public functions with arguments drawn from right and odd ones."""
    images = arrays()
    filters = np.ones((3, 3, 3, 4), np.float32)
    shape = maxdnn.ConvShape(4, 3, 5, 5, 4, 3, 3)
    gpu = VirtualGpu()
    module = gpu.load((files / "good.cubin").read_bytes())
    buffers = [gpu.alloc(256), gpu.alloc(256)]
    description = lambda: json.loads(launch_file(rng, files).read_text())  # noqa: E731

    def some(**options: Any) -> dict[str, Any]:
        """Some of the options, each its right value or an odd one."""
        return {k: v if rng.random() < 0.5 else rng.choice(ODD) for k, v in options.items() if rng.random() < 0.5}

    def odd(value: Any, chance: float = 0.3) -> Any:
        return rng.choice(ODD) if rng.random() < chance else value

    return [
        lambda: maxdnn.conv_fprop(rng.choice([images[0], rng.choice(images)]), rng.choice([filters, filters, *images]),
                                  **some(stride=2, padding=1, alpha=0.5, device=gpu, layout="CHWN",
                                         plan=maxdnn.plan(shape), beta=1.0, activation="relu", groups=1, dilation=1,
                                         bias=np.ones(4, np.float32), out=np.empty((4, 3, 3, 4), np.float32))),
        lambda: rng.choice([maxdnn.conv_bprop_data, maxdnn.conv_bprop_filters])(
            rng.choice([filters, *images]), rng.choice([filters, *images]), odd((3, 3), 0.1),
            **some(stride=2, padding=1, alpha=0.5, device=gpu, layout="CHWN", plan=maxdnn.plan(shape, kind="data"),
                   beta=1.0, groups=1, dilation=1, deterministic=True, algorithm="winograd", arithmetic="ffma",
                   max_error=1.0, max_workspace_bytes=1 << 20, out=np.empty((3, 3, 3, 4), np.float32))),
        lambda: maxdnn.conv_bprop_bias(rng.choice(images), **some(alpha=0.5, beta=1.0, device=gpu, layout="NCHW",
                                                                  out=np.empty(3, np.float32))),
        lambda: maxdnn.ConvShape(*(odd(n) for n in (4, 3, 5, 5, 4, 3, 3)), **some(stride=2, padding=1)),
        lambda: maxdnn.plan(odd(shape), **some(layout="NCHW", kernel="sconv_fprop_paper", copy_images=True,
                                               copy_filters=False, bias=True, activation="relu", adds_out=True,
                                               kind="filters", copy_gradients=True)),
        lambda: maxdnn.plan(shape).explain(),
        lambda: maxdnn.check_hazards(odd(module.cubin.kernel("fill"))),
        lambda: timing.conv(odd(shape), **some(kernel="best", machine="gm107", options=timing.Options())),
        lambda: timing.call(odd(shape), **some(kernel="best", layout="NCHW", machine="gm107")),
        lambda: timing.conv(shape, options=timing.Options(**some(policy="loose-round-robin", all_sms=True, trace=(0,
                                                                                                                  9)))),
        lambda: timing.described((files / "good.cubin").read_bytes(), odd(launchfile.parse(odd(description()), files))),
        lambda: preset(odd("gm204")).replace(**{str(rng.choice(FIGURES)): rng.choice(ODD)}),
        lambda: module.function("scale").launch(odd((1, 1, 1)), odd((32, 1, 1)), odd([*buffers, odd(2.0), odd(64)]),
                                                **some(shared_bytes=64, textures=None)),
        lambda: gpu.load(odd((files / "good.cubin").read_bytes())),
        lambda: gpu.alloc(odd(64)).free(),
        lambda: VirtualGpu(**some(preset="gm107", instruction_budget=10, workers=1, race=True, undefined=False,
                                  output=print, heap_bytes=1 << 16)),
    ]


@pytest.mark.parametrize("part", range(2))
def test_a_public_function_answers_or_raises_an_error_of_this_library(part: int, files: Path) -> None:
    rng = random.Random(f"functions {part}")
    calls = public_calls(rng, files)
    found: dict[str, str] = {}
    for _ in range(COUNT):
        number = rng.randrange(len(calls))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                calls[number]()
        except (maxdnn.MaxdnnError, OSError):  # of the file system: a path that is none
            pass
        except Exception as e:
            place = list(traceback.extract_tb(e.__traceback__))
            where = " < ".join(f"{Path(p.filename).name}:{p.lineno}" for p in place[:0:-1][:4])
            found[where] = f"call {number}: {type(e).__name__}: {str(e)[:150]} ({where})"
    assert not found, "\n".join(sorted(found.values()))


@pytest.mark.parametrize(("options", "words"), [
    ({"images": np.ma.masked_array(np.zeros((3, 5, 5, 4), np.float32))}, "images must be a plain array"),
    ({"images": Cuda(INTERFACE | {"mask": 1})}, "images must be a plain array"),
    ({"images": Cuda({"shape": 3})}, "images must have a __cuda_array_interface__ with shape"),
    ({"alpha": HUGE}, "alpha must be a real number"), ({"device": "cuda"}, "device must be a device of this library"),
    ({"stride": 0}, "stride must be at least 1"), ({"stride": np.array([1, 2])}, "stride must be an integer"),
    ({"layout": np.array(["CHWN"])}, "layout must be one of CHWN, NCHW"),
])
def test_wrong_arguments_of_a_convolution_are_named(options: dict[str, Any], words: str) -> None:
    given = {"images": np.ones((3, 5, 5, 4), np.float32), "filters": np.ones((3, 3, 3, 4), np.float32)} | options
    with pytest.raises(maxdnn.MaxdnnError, match=words):
        maxdnn.conv_fprop(**given)


@pytest.mark.long
@pytest.mark.parametrize("part", range(1, 2 if COUNT < 3000 else 17))
def test_large_numbers_are_judged_before_work_that_grows_with_them(part: int) -> None:
    """In every argument that takes any, one sixteenth of all calls a part: see tests/large.py."""
    done = subprocess.run([sys.executable, "-m", "tests.large", f"{part}/16"], capture_output=True, text=True,
                          check=False, cwd=Path(__file__).parent.parent)
    assert done.returncode == 0 and " 0 places" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize("options", [{"padding": 10**8}, {"padding": (0, 10**8)}, {"padding": 10**8, "stride": 10**8},
                                     {"dilation": 10**8, "padding": 10**8}, {"padding": 2**40}, {"groups": 10**8},
                                     {"stride": 10**5000}],
                         ids=["padding", "columns", "and stride", "and dilation", "largest", "groups", "digits"])
def test_a_convolution_of_a_size_that_nothing_serves_is_refused_at_once(options: dict[str, Any]) -> None:
    images, filters = np.ones((3, 5, 5, 4), np.float32), np.ones((3, 3, 3, 4), np.float32)
    lines = 0

    def line(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += event == "line" and "/algorithms/" in frame.f_code.co_filename
        assert lines < 100_000
        return line
    sys.settrace(line)
    try:
        maxdnn.conv_fprop(images, filters, **options)
    except maxdnn.MaxdnnError as e:
        assert len(str(e)) < 1000
    finally:
        sys.settrace(None)


def test_a_stride_beyond_the_map_takes_its_first_pixel_alone() -> None:
    images, filters = np.ones((3, 5, 5, 4), np.float32), np.ones((3, 3, 3, 4), np.float32)
    assert np.array_equal(maxdnn.conv_fprop(images, filters, stride=10**9), np.full((4, 1, 1, 4), 27))
    gradients = np.full((4, 1, 1, 4), 2, np.float32)
    want = np.zeros((3, 5, 5, 4), np.float32)
    want[:, :3, :3] = 8
    assert np.array_equal(maxdnn.conv_bprop_data(gradients, filters, (5, 5), stride=10**9), want)
    assert np.array_equal(maxdnn.conv_bprop_filters(images, gradients, (3, 3), stride=10**9), 8 * filters)
    grouped, one = np.ones((3, 3, 3, 3), np.float32)[:1], np.ones((3, 1, 1, 4), np.float32)
    assert (maxdnn.conv_bprop_data(one, grouped, (5, 5), stride=10**9, groups=3)[:, :3, :3] == 1).all()
    assert (maxdnn.conv_bprop_filters(images, one, (3, 3), stride=10**9, groups=3) == 4).all()
