"""Errors that docstrings of public functions promise and no other test asks for: each call must raise what is said."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import maxdnn
from maxdnn import cli
from maxdnn.build import assemble, cubins
from maxdnn.build.interface import KernelSpec
from maxdnn.checker import check_cubin
from maxdnn.cubin import interface, read
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import (
    AssemblyError,
    CubinError,
    DecodeError,
    DeviceError,
    LaunchError,
    MaxdnnError,
    ShapeError,
    SimulationError,
    TranslationError,
)
from maxdnn.planning import cost
from maxdnn.problem.shape import ProductShape
from maxdnn.ptx import targets
from maxdnn.ptx import translate as ptx
from maxdnn.reference import conv_reference
from maxdnn.runtime import files
from maxdnn.runtime.devices.protocol import Texture
from maxdnn.simulator import launchfile, timing
from maxdnn.simulator.workload import Builder

PAD = cubins.cubin("maxwell/pad", "sm_52")
CONV = cubins.cubin("maxwell/conv_fprop_64x64", "sm_52")
KERNEL = read(PAD).kernel()
DAMAGED = PAD.replace(KERNEL.code[8:16], bytes(8), 1)  # the first instruction is none any more
GPU = VirtualGpu(workers=1)
MODULE = GPU.load(CONV)
FUNCTION = GPU.load(PAD).function("spad")
SHAPE = maxdnn.ConvShape(64, 8, 3, 3, 64, 1, 1)
STEP: dict[str, Any] = {"grid": [1], "block": [128], "args": []}
NOWHERE = Path("/no/such/file")


def described(**changes: Any) -> Any:
    return timing.described(PAD, launchfile.parse(STEP | changes))


PROMISES: list[tuple[Callable[[], Any], type[Exception], str]] = [
    # sources and cubins
    (lambda: cubins.cubin("nope", "sm_52"), AssemblyError, "no kernel source 'nope' in .*; there are: .*pad"),
    (lambda: cubins.cubin("maxwell/pad", "sm_70"), AssemblyError, r"arch must be one of sm_50, .* \(got 'sm_70'\)"),
    (lambda: cubins.cubin("/no/such/source", "sm_52"), AssemblyError, r"source\.sass: cannot read"),
    (lambda: assemble.interface(NOWHERE), AssemblyError, r"cannot read(.|\n)*\ncommand: .*\nexit status: 1"),
    (lambda: assemble.files(NOWHERE), AssemblyError, "cannot read"),
    (lambda: assemble.source_lines(NOWHERE), AssemblyError, "cannot read"),
    (lambda: KernelSpec("nope", "maxwell/pad.sass", "").threads, AssemblyError, "has no kernel 'nope'; it has: spad"),
    (lambda: KernelSpec("spad", "nope.sass", "").params, AssemblyError, "no kernel source 'nope'"),
    (lambda: read(3), CubinError, r"given as bytes or as a path \(got int\)"),  # type: ignore[arg-type]
    (lambda: read(NOWHERE), OSError, "No such file"),
    (lambda: interface(b"text"), CubinError, "not a cubin"),
    (lambda: read(DAMAGED).kernel().instructions, DecodeError, "word 0x0+ at 0x0008 is no Maxwell instruction"),
    # the checker and the translator
    (lambda: maxdnn.check_hazards("spad"), CubinError, "kernel must be a CubinKernel"),  # type: ignore[arg-type]
    (lambda: check_cubin(b"text"), CubinError, "not a cubin"),
    (lambda: check_cubin(DAMAGED), DecodeError, "is no Maxwell instruction"),
    (lambda: check_cubin(NOWHERE), OSError, "No such file"),
    (lambda: ptx.translate(read(DAMAGED)), DecodeError, "is no Maxwell instruction"),
    (lambda: targets.check("sm_5"), TranslationError, r"target must be one of sm_50, .* \(got 'sm_5'\)"),
    (lambda: ptx.translate(read(PAD), "sm_5"), TranslationError, r"target must be one of sm_50, .* \(got 'sm_5'\)"),
    # the virtual GPU
    (lambda: VirtualGpu("gm300"), LaunchError, r"preset must be one of gm107, .* \(got 'gm300'\)"),
    (lambda: VirtualGpu(workers=0), LaunchError, r"workers must be an integer from 1 .* \(got 0\)"),
    (lambda: GPU.adopt(np.zeros((4, 4)).T), LaunchError, r"array must be C-contiguous \(got shape \(4, 4\)"),
    (lambda: GPU.upload(GPU.alloc(4), np.zeros(4)), LaunchError, "data has 32 bytes, the buffer 4"),
    (lambda: GPU.download(GPU.alloc(4), np.zeros(4)), LaunchError, "out has 32 bytes, the buffer 4"),
    (lambda: GPU.texture_object(Texture(5, 64, 4)), LaunchError, "at 0x5 is not inside an allocation"),
    (lambda: GPU.texture_object(Texture(5, 64, 3)), LaunchError, r"channels of a texture must be 1, 2 or 4 \(got 3\)"),
    (lambda: MODULE.set_constant("offset", b""), DeviceError, "no __constant__ 'offset'; there are: offsets"),
    (lambda: MODULE.set_constant("offsets", bytes(8), 65532), DeviceError, r"has 65536 bytes \(got 8 at offset 65532"),
    (lambda: MODULE.get_global("x"), DeviceError, "no global variable 'x'; there are: none"),
    (lambda: MODULE.function("x"), CubinError, "no kernel 'x' in this cubin; it has: sconv_fprop_K64_N64"),
    (lambda: FUNCTION.trace((1, 1, 1), (128, 1, 1), [], blocks=[(1, 0, 0)], on_warp=print), LaunchError,
     r"blocks must lie inside the grid \(1, 1, 1\) \(got \(1, 0, 0\)\)"),
    (lambda: FUNCTION.launch((1, 1, 1), (64, 1, 1), []), LaunchError, r"block must be \(128, 1, 1\)"),
    # the timing model
    (lambda: cost.preset("gm300"), SimulationError, "no preset 'gm300'; there are: gm107"),
    (lambda: timing.conv(SHAPE, machine="gm300"), SimulationError, "no preset 'gm300'"),
    (lambda: timing.conv(SHAPE, kernel="nope"), ShapeError, r"kernel must be one of .* \(got 'nope'\)"),
    (lambda: timing.call(SHAPE, layout="HWCN"), ShapeError, r"layout must be one of CHWN, NCHW \(got 'HWCN'\)"),
    (lambda: timing.launch(FUNCTION, (1, 1, 1), (128, 1, 1), [1]), LaunchError, r"args must hold \d+ values \(got 1\)"),
    (described, LaunchError, r"args must hold \d+ values \(got 0\)"),
    (lambda: described(kernel="x"), CubinError, "no kernel 'x'"),
    (lambda: described(constants={"x": [1]}), DeviceError, "no __constant__ 'x'"),
    (lambda: Builder(KERNEL.instructions, 2, 1, True).workload(), SimulationError, "block 0 is in no class"),
    # shapes and files
    (lambda: SHAPE.efficiency_from_clocks(0), ShapeError, r"sm_clocks must be positive \(got sm_clocks=0\)"),
    (lambda: ProductShape(4, 0, 4), ShapeError, r"N must be at least 1 \(got N=0\)"),
    (lambda: conv_reference(np.zeros((1, 2, 2, 1)), np.zeros((1, 3, 3, 1))), ShapeError, "larger than the padded map"),
    (lambda: launchfile.read(NOWHERE), OSError, "No such file"),
    (lambda: files.read_array(NOWHERE), OSError, "No such file"),
    (lambda: files.check_writable("--out", Path("/")), MaxdnnError, "--out: / is a folder; it must name a file"),
]


@pytest.mark.parametrize(("call", "kind", "words"), PROMISES, ids=[words for _, _, words in PROMISES])
def test_a_promised_error_is_raised(call: Callable[[], Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words) as error:
        call()
    assert isinstance(error.value, (MaxdnnError, OSError))


def test_every_error_of_the_library_is_offered_by_it() -> None:
    """The classes of errors.py are those of the package, and all of them have one base."""
    kinds = {name for name, value in vars(maxdnn.errors).items()
             if isinstance(value, type) and issubclass(value, Exception)}
    assert kinds == {name for name in maxdnn.__all__ if name.endswith(("Error", "Fault"))}
    assert all(issubclass(getattr(maxdnn, name), MaxdnnError) for name in kinds)


@pytest.mark.parametrize("shape", [(1, 8, 5, 5, 32, 3, 3), (8, 32, 13, 13, 64, 3, 3), (64, 8, 5, 5, 64, 3, 3)])
@pytest.mark.parametrize("layout", ["CHWN", "NCHW"])
def test_a_call_allocates_its_result_and_the_plans_workspace_alone(shape: tuple[int, ...], layout: str) -> None:
    """Peak extra memory of conv_fprop beside the result, as its docstring says."""
    gpu = VirtualGpu()
    asked: list[int] = []
    alloc = gpu.memory.alloc
    gpu.memory.alloc = lambda nbytes: (asked.append(nbytes), alloc(nbytes))[1]  # type: ignore[method-assign]
    plan = maxdnn.plan(maxdnn.ConvShape(*shape), layout=layout, copy_images=True, copy_filters=True, device=gpu)
    wanted = plan.array_shapes()
    images, filters = (np.ones(wanted[name], np.float32) for name in ("images", "filters"))
    out = maxdnn.conv_fprop(images, filters, plan=plan, device=gpu)
    assert out.shape == wanted["out"]
    assert sum(asked) == plan.workspace_bytes


def test_the_ptx_command_names_an_unknown_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pad.cubin").write_bytes(PAD)
    assert cli.main(["ptx", str(tmp_path / "pad.cubin"), "--target", "sm_5"]) == 1
    assert "target must be one of sm_50" in capsys.readouterr().err
