"""The commands on cubins of all architectures with words of 128 bits, and who refuses them."""

import json
from pathlib import Path

import pytest

from maxdnn import cli
from maxdnn.errors import DeviceError
from tests import fake_cuda
from tests.corpus import compiler
from tests.maxas.test_hopper import SOURCE

PLACES = {"sm_80": "0x118", "sm_86": "0x118", "sm_89": "0x118", "sm_90": "0x208"}


@pytest.fixture(params=PLACES)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """An architecture, and a cubin of it by `maxdnn asm`."""
    source, output = tmp_path / "scale.sass", tmp_path / "scale.cubin"
    source.write_text(SOURCE.format(request.param, PLACES[request.param]))
    assert cli.main(["asm", str(source), "-o", str(output)]) == 0
    return request.param, output


def test_disasm_check_and_run_take_it(made: tuple[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    arch, path = made
    assert cli.main(["disasm", str(path)]) == 0
    listing = capsys.readouterr().out
    assert f"# scale  {arch}  regs 6" in listing and "I2F.U32 R1, R0;" in listing
    assert cli.main(["disasm", "--json", str(path)]) == 0
    assert json.loads(capsys.readouterr().out.removeprefix(listing))["arch"] == arch
    assert cli.main(["check", str(path)]) == 0
    arguments = ["--arg", "zeros:float32:32", "--arg", "2.5"]
    assert cli.main(["run", str(path), "--grid", "1", "--block", "32", *arguments]) == 0


def test_ptx_and_simulate_say_what_they_know(made: tuple[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Both used to end in a KeyError, or in clocks of another chip."""
    arch, path = made
    launches = path.with_suffix(".json")
    launches.write_text(json.dumps({"grid": [1], "block": [32], "args": ["zeros:float32:32", {"f32": 2}]}))
    for command in (["ptx"], ["simulate", "--launch", str(launches)]):
        assert cli.main([command[0], str(path), *command[1:]]) == 1
        assert f"machine code of {arch}" in capsys.readouterr().err


@pytest.mark.parametrize("capability, runs", [
    ((8, 0), {"sm_80"}), ((8, 6), {"sm_80", "sm_86"}), ((8, 9), {"sm_80", "sm_86", "sm_89"}), ((9, 0), {"sm_90"}),
    ((7, 5), set()), ((5, 2), set()), ((12, 0), set())])
def test_a_gpu_loads_machine_code_of_its_own_generation_alone(
        capability: tuple[int, int], runs: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """As it is, never a translation of it."""
    driver = fake_cuda.Driver(capability)
    gpu, _ = fake_cuda.install(monkeypatch, driver)
    for arch in PLACES:
        image = compiler.compile_source("special.cu", arch)
        if arch in runs:
            module = gpu.device(0).load(image)
            assert module.native and ("load", image) in [entry[:2] for entry in driver.log]
        else:
            with pytest.raises(DeviceError, match=f"machine code of {arch}, which fake GPU does not run"):
                gpu.device(0).load(image)
