"""Launch files: one language for `maxdnn run` and `maxdnn simulate`, read whole before anything runs."""

import json

import numpy as np
import pytest

from maxdnn import cli
from maxdnn.emulator.gpu import VirtualGpu
from maxdnn.errors import LaunchError
from maxdnn.simulator import launchfile, timing
from tests import oracles
from tests.corpus import compiler

SOURCE = r"""
__constant__ int factors[2];
extern "C" __global__ void fill(float *out, float value) { out[blockIdx.x * 64 + threadIdx.x] = value * factors[0]; }
extern "C" __global__ void gather(const float *in, const int *where, float *out) {
    int i = blockIdx.x * 64 + threadIdx.x;
    for (int k = 0; k < (int)in[0]; k++) out[i] = in[where[i]] + factors[1];
}
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "k.cubin").write_bytes(oracles.compile_cuda(SOURCE))
    np.save(tmp_path / "where.npy", np.arange(1280, dtype=np.int32)[::-1])
    np.save(tmp_path / "factors.npy", np.array([3, 100], np.int32))
    return tmp_path


def written(folder, data):
    (folder / "launch.json").write_text(json.dumps(data))
    return ["--launch", str(folder / "launch.json")]


TWO = {
    "buffers": {"x": "zeros:float32:1280", "y": "zeros:float32:1280"},
    "launches": [
        {"kernel": "fill", "grid": [20], "block": [64], "args": ["x", {"f32": 1}], "constants": {"factors": [2, 0]}},
        {"kernel": "gather", "grid": [20], "block": [64], "args": ["x", "where.npy", "y"],
         "constants": {"factors": "factors.npy"}}],
    "outputs": {"y": "y.npy"}}


def test_run_keeps_memory_between_launches_and_writes_what_is_asked_for(folder, capsys):
    assert cli.main(["run", str(folder / "k.cubin"), *written(folder, TWO)]) == 0
    assert np.load(folder / "y.npy").tolist() == [102] * 1280
    assert "fill: " in (out := capsys.readouterr().out) and "gather: " in out


def test_simulate_reads_the_same_file_and_sees_what_earlier_launches_wrote(folder, capsys):
    """The second kernel loops as often as the first one wrote."""
    def clocks(value):
        two = {**TWO, "launches": [{**TWO["launches"][0], "args": ["x", {"f32": value}]}, TWO["launches"][1]]}
        assert cli.main(["simulate", str(folder / "k.cubin"), *written(folder, two), "--json"]) == 0
        data = json.loads(capsys.readouterr().out)
        assert [x["kernel"] for x in data["launches"]] == ["fill", "gather"]
        assert data["clocks"] == sum(x["clocks"] for x in data["launches"])
        return [x["clocks"] for x in data["launches"]]
    short, long = clocks(1), clocks(20)
    assert short[0] == long[0] and long[1] > 5 * short[1]


def test_texture_references_are_bound_by_name_or_index(tmp_path, capsys):
    (tmp_path / "t.cubin").write_bytes(compiler.compile_source("texref.ptx"))
    texels = np.random.default_rng(1).uniform(-1, 1, (320, 4)).astype(np.float32)
    np.save(tmp_path / "maps.npy", texels)
    np.save(tmp_path / "index.npy", np.arange(320, dtype=np.int32)[::-1])
    launch = {"buffers": {"maps": "maps.npy", "filters": "maps.npy", "out": "zeros:float32:640x4"},
              "launches": [{"grid": [10], "block": [32], "args": ["index.npy", "out", 320],
                            "textures": {"maps": "maps", "filters": {"buffer": "filters", "channels": 4}}}],
              "outputs": {"out": "out.npy"}}
    assert cli.main(["run", str(tmp_path / "t.cubin"), *written(tmp_path, launch)]) == 0
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy")[:320], texels[::-1] + texels)
    assert cli.main(["simulate", str(tmp_path / "t.cubin"), *written(tmp_path, launch), "--json"]) == 0
    found, = json.loads("{" + capsys.readouterr().out.partition("{")[2])["launches"]
    assert found["executed"]["tex"] == 40


def launch(**changed):
    return {"kernel": "fill", "grid": [1], "block": [64], "args": [{"bytes": 256}, {"f32": 1}], **changed}


@pytest.mark.sampled(25)
@pytest.mark.parametrize(("wrong", "words"), [
    (3, "a launch file must be an object (got 3)"),
    (launch(grid=3), "launch: grid must be a list of one to three integers from 1 on (got 3)"),
    (launch(grid=[0]), "grid must be a list"), (launch(grid=[True]), "grid must be a list"),
    (launch(block=None), "launch: block must be a list"),
    (launch(args=["x"]), "launch: args[0] must be an integer"), (launch(args=[1.5]), "launch: args[0] must be"),
    (launch(args=[True]), "launch: args[0] must be"), (launch(args=[{"bytes": 0}]), "launch: args[0] must be"),
    (launch(args=[{"bytes": 4, "i32": [1, 2]}]), "8 bytes of first values do not fit 4 bytes"),
    (launch(args=[{"bytes": 8, "i32": ["a"]}]), "args[0] must be a list of int32 numbers"),
    (launch(args=["zeros:object:3"]), "args[0] must look like zeros:float32:64x64"),
    (launch(args=["zeros:float32:x"]), "args[0] must look like zeros:float32:64x64"),
    (launch(args={}), "launch: args must be a list"), (launch(shared_bytes=-1), "shared_bytes must be an integer"),
    (launch(shared=1), "launch: no entry 'shared'; there are: args, block"),
    (launch(kernel=3), "kernel must be a name"), (launch(args=[{"bytes": 8, "i32": [1.5]}]), "list of int32 numbers"),
    (launch(textures={"t": 1}), "launch: textures.t must be the name of a buffer or the index"),
    (launch(textures={"t": {"buffer": 0, "channels": 3}}), "channels must be 1, 2 or 4 (got 3)"),
    (launch(textures=[]), "launch: textures must be an object"),
    (launch(constants={"factors": 3}), "launch: constants.factors must be a list of int32 numbers (got 3)"),
    ({"launches": []}, "launches must be a list of at least one launch"),
    ({"launches": [launch(), launch(grid=[])]}, "launches[1]: grid must be"),
    ({"launches": [launch()], "buffer": {}}, "a file with launches: no entry 'buffer'"),
    ({"launches": [launch()], "buffers": {"x": 5}}, "buffers.x must be"),
    ({"launches": [launch(args=["y"])], "buffers": {"x": {"bytes": 4}}}, "the buffers are: x"),
    ({"launches": [launch()], "outputs": {"x": "x.npy"}}, "outputs: no buffer 'x'; there are: launches[0]: args[0]"),
    ({"launches": [launch()], "buffers": {"x": {"bytes": 4}}, "outputs": {"x": 3}}, "outputs.x must be a .npy file"),
    ([], "a launch file must be an object (got [])"),
    (launch(args=[{"f32": "x"}]), "launch: args[0] must be an integer"),
    (launch(args=[{"f32": True}]), "launch: args[0] must be an integer"),
    (launch(args=[{"f64": 10**400}]), "launch: args[0] must fit a float64 (got 1000"),
    (launch(args=[{"f32": 1e300}]), "launch: args[0] must fit a float32 (got 1e+300)"),
    (launch(args=[{"bytes": 8, "f32": [1e300]}]), "args[0] must be a list of float32 numbers"),
    (launch(args=[{"bytes": 4, "i32": [2**31]}]), "args[0] must be a list of int32 numbers"),
    (launch(args=[{"bytes": 10**30}, {"f32": 1}]), "launch: args[0]: nbytes must be an integer from 0 to 2^47 - 1"),
    (launch(args=["zeros:float32:-1"]), "args[0] must look like zeros:float32:64x64"),
    (launch(args=["\0.npy"]), "launch: args[0] must be an integer"),
    (launch(textures={"t": {"buffer": 0, "channels": True}}), "channels must be 1, 2 or 4 (got True)"),
    (launch(constants=[]), "launch: constants must be an object"),
    (launch(constants={"factors": [1, 2, 3]}), "__constant__ factors has 8 bytes (got 12 at offset 0)"),
    (launch(block=[1025]), "block must be three numbers from 1 to (1024, 1024, 64)"),
    (launch(kernel="full"), "full"), (launch(args=[1]), "args must hold 2 values (got 1)"),
    (launch(constants={"factor": [1]}), "no __constant__ 'factor'"), (launch(textures={"t": 0}), "textures must bind"),
])
def test_what_is_wrong_is_named(folder, wrong, words, capsys):
    for command in ("run", "simulate"):
        assert cli.main([command, str(folder / "k.cubin"), *written(folder, wrong)]) == 1
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(("wrong", "words"), [
    ({"block": [1025]}, "block must be three numbers"), ({"args": [1]}, "args must hold 3 values (got 1)"),
    ({"kernel": "gathers"}, "gathers"), ({"constants": {"factors": [1, 2, 3]}}, "has 8 bytes (got 12"),
    ({"textures": {"t": "x"}}, "textures must bind"), ({"shared_bytes": 1 << 20}, "shared_bytes must be 0 to"),
])
def test_a_later_launch_is_refused_before_the_first_runs(folder, wrong, words, capsys):
    two = {**TWO, "launches": [TWO["launches"][0], {**TWO["launches"][1], **wrong}]}
    for command in ("run", "simulate"):
        assert cli.main([command, str(folder / "k.cubin"), *written(folder, two)]) == 1
        out, err = capsys.readouterr()
        assert words in err and out == ""
    assert not (folder / "y.npy").exists()


def test_constants_of_a_later_launch_come_with_it(folder):
    gpu = VirtualGpu()
    _, steps = launchfile.place(launchfile.parse(TWO, folder), (folder / "k.cubin").read_bytes(), gpu)
    first = next(steps)
    first.launch()
    x = np.empty(1280, np.float32)
    gpu.download(first.args[0], x)
    assert (x == 2).all()


def test_a_place_for_results_is_looked_for_before_the_work(folder, capsys):
    assert cli.main(["run", str(folder / "k.cubin"), *written(folder, {**TWO, "outputs": {"y": "no/y.npy"}})]) == 1
    out, err = capsys.readouterr()
    assert out == "" and "launch.json: outputs: there is no folder" in err


@pytest.mark.parametrize(("content", "words"), [
    (b"{", "not JSON"), (b"\xff", "not JSON"), (b"[" * 100_000, "nested too deeply")])
def test_a_file_that_is_no_json_is_named(folder, content, words, capsys):
    (folder / "launch.json").write_bytes(content)
    assert cli.main(["simulate", str(folder / "k.cubin"), "--launch", str(folder / "launch.json")]) == 1
    assert words in (err := capsys.readouterr().err) and "launch.json" in err


@pytest.mark.parametrize(("content", "words"), [(b"no array", "nothing.npy"), (None, "nothing.npy: No such file")])
def test_an_array_that_cannot_be_read_is_named(folder, content, words, capsys):
    if content is not None:
        (folder / "nothing.npy").write_bytes(content)
    assert cli.main(["run", str(folder / "k.cubin"), *written(folder, launch(args=["nothing.npy", 1]))]) == 1
    assert words in capsys.readouterr().err


def test_run_takes_options_or_a_file(folder, capsys):
    assert cli.main(["run", str(folder / "k.cubin"), *written(folder, launch()), "--grid", "1"]) == 1
    assert "--launch says what is launched: leave out --grid" in capsys.readouterr().err
    assert cli.main(["run", str(folder / "k.cubin"), "--block", "64"]) == 1
    assert "--grid and --block say what is launched, or --launch FILE.json" in capsys.readouterr().err


def test_timing_leaves_memory_as_it_was(folder):
    gpu = VirtualGpu()
    description = launchfile.parse(TWO, folder)
    buffers, steps = launchfile.place(description, (folder / "k.cubin").read_bytes(), gpu)
    step = next(steps)
    gpu.upload(buffers["x"], np.full(1280, 7, np.float32))
    timing.launch(step.function, step.step.grid, step.step.block, step.args)
    x = np.empty(1280, np.float32)
    gpu.download(buffers["x"], x)
    assert (x == 7).all()
    with pytest.raises(LaunchError, match="args must hold 2 values"):
        timing.launch(step.function, step.step.grid, step.step.block, [])
