"""`maxdnn run` from the command line: numbers, arrays, constants, textures, and what a user sees when it goes wrong."""

import numpy as np
import pytest

from maxdnn import cli
from tests import oracles
from tests.corpus import compiler
from tests.emulator.test_gpu import SAXPY

SCALED = r"""
__constant__ float factors[4];
extern "C" __global__ void scaled(const float* x, float* y)
{ y[threadIdx.x] = factors[threadIdx.x % 4] * x[threadIdx.x]; }
"""


@pytest.fixture
def saxpy(tmp_path):
    path = tmp_path / "saxpy.cubin"
    path.write_bytes(oracles.compile_cuda(SAXPY))
    np.save(tmp_path / "x.npy", np.arange(100, dtype=np.float32))
    return path


def test_arrays_travel_through_npy_files(saxpy, tmp_path, capsys):
    x, out = str(tmp_path / "x.npy"), str(tmp_path / "y.npy")
    status = cli.main(["run", str(saxpy), "--kernel", "saxpy", "--grid", "1", "--block", "128,1,1", "--arg", "100",
                       "--arg", "0.5", "--arg", x, "--arg", "zeros:float32:10x10", "--out", f"3={out}"])
    assert status == 0
    np.testing.assert_array_equal(np.load(out), np.arange(100, dtype=np.float32).reshape(10, 10) / 2)
    assert "saxpy:" in capsys.readouterr().out


def test_constants_are_filled_by_name(tmp_path):
    (tmp_path / "k.cubin").write_bytes(oracles.compile_cuda(SCALED))
    np.save(tmp_path / "f.npy", np.array([1, 2, 3, 4], np.float32))
    np.save(tmp_path / "x.npy", np.ones(32, np.float32))
    assert cli.main(["run", str(tmp_path / "k.cubin"), "--grid", "1", "--block", "32", "--arg", str(tmp_path / "x.npy"),
                     "--arg", "zeros:float32:32", "--constant", f"factors={tmp_path / 'f.npy'}",
                     "--out", f"1={tmp_path / 'y.npy'}"]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), np.tile([1, 2, 3, 4], 8))


def test_texture_references_are_bound_to_array_parameters(tmp_path, capsys):
    (tmp_path / "t.cubin").write_bytes(compiler.compile_source("texref.ptx"))
    assert cli.main(["run", str(tmp_path / "t.cubin"), "--grid", "1", "--block", "32", "--texture", "nothing=7"]) == 1
    assert "parameter 7 is no array" in capsys.readouterr().err


@pytest.mark.parametrize("bad, words", [
    (["--arg", "abc"], "--arg must be a number"),
    (["--arg", "zeros:float99:4"], "zeros:float32:64x64"),
    (["--arg", "100"], "args must hold 4 values (got 1)"),
    (["--arg", "100", "--out", "0=o.npy"], "parameter 0 is no array"),
])
def test_wrong_arguments_are_named_before_anything_runs(saxpy, capsys, bad, words):
    assert cli.main(["run", str(saxpy), "--grid", "1", "--block", "32", *bad]) == 1
    assert words in capsys.readouterr().err


def test_a_fault_is_one_line_with_the_place(saxpy, tmp_path, capsys):
    status = cli.main(["run", str(saxpy), "--grid", "1", "--block", "128", "--arg", "128", "--arg", "1.0",
                       "--arg", str(tmp_path / "x.npy"), "--arg", "zeros:float32:128"])
    err = capsys.readouterr().err
    assert status == 1
    assert "saxpy: block (0, 0, 0), warp 3, lane 4: access out of bounds at 0x" in err
    assert "LDG.E" in err
    assert "0 bytes past the end of the allocation of 400 bytes" in err
