"""The console command: its frame, `disasm`, `asm`, and how errors leave it."""

import ast
import json
import os
import pathlib
import stat
import subprocess
import sys

import pytest

import maxdnn
from maxdnn import cli
from maxdnn.cubin import read
from tests import oracles

SOURCE = """
extern "C" __global__ void scale(float *out, const float *in, float s) { out[threadIdx.x] = in[threadIdx.x] * s; }
extern "C" __global__ void fill(float *out) { out[threadIdx.x] = 1.0f; }
"""


BARE = "--:-:-:-:6      MOV R0, RZ;\n--:-:-:-:5      EXIT;\n"  # as the sources of others: without a header


@pytest.fixture(scope="module")
def cubin_path(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    path = tmp_path_factory.mktemp("cubins") / "two.cubin"
    path.write_bytes(oracles.compile_cuda(SOURCE))
    return path


@pytest.mark.parametrize("name", cli.command_names())
def test_every_subcommand_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([name, "--help"])
    assert end.value.code == 0
    assert f"usage: maxdnn {name}" in capsys.readouterr().out


def test_help_lists_the_subcommands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    listed = capsys.readouterr().out
    assert {"asm", "disasm"} <= set(cli.command_names())
    assert all(name in listed for name in cli.command_names())


def test_no_subcommand_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([])
    assert end.value.code == 2


def test_disasm_prints_the_vendors_text_with_addresses(cubin_path: pathlib.Path,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["disasm", str(cubin_path), "--kernel", "scale"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    printed = [(int(line[2:6], 16), " ".join(line[8:].rstrip(";").split()[1:])) for line in lines]
    code = read(cubin_path).kernel("scale").code
    words = [int.from_bytes(code[i:i + 8], "little") for i in range(0, len(code), 8)]
    assert printed == oracles.instruction_lines(oracles.nvdisasm_raw(words))


def test_disasm_of_a_whole_cubin_names_each_kernel(cubin_path: pathlib.Path,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["disasm", str(cubin_path)]) == 0
    heads = [line for line in capsys.readouterr().out.splitlines() if " regs " in line]
    assert sorted(head.split()[1] for head in heads) == ["fill", "scale"]


def test_disasm_json_carries_words_and_text(cubin_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["disasm", str(cubin_path), "--json"]) == 0
    module = json.loads(capsys.readouterr().out)
    scale = next(k for k in module["kernels"] if k["name"] == "scale")
    assert module["arch"] == "sm_52"
    assert [p["size"] for p in scale["params"]] == [8, 8, 4]
    assert scale["instructions"][-1].items() >= {"word": "0x50b0000000070f00", "control": "--:-:-:Y:0", "reuse": 0,
                                                 "opcode": "NOP", "guard": "", "text": "NOP"}.items()


@pytest.mark.parametrize(("argv", "words"), [
    (["disasm", "no-such.cubin"], "no-such.cubin: No such file"),
    (["disasm", __file__], "not a cubin"),
    (["disasm", "."], "Is a directory"),
])
def test_an_error_is_one_line_on_stderr_and_status_1(argv: list[str], words: str,
                                                     capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("maxdnn: ") and words in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(("argv", "status", "words"), [
    (["run", "CUBIN", "--grid", "1", "--block", "1", "--budget", "-5"], 2, "--budget: must be at least 1 (got -5)"),
    (["run", "CUBIN", "--grid", "1", "--block", "1", "--budget", "0"], 2, "--budget: must be at least 1 (got 0)"),
    (["run", "CUBIN", "--grid", "a", "--block", "1"], 2, "--grid: must be an integer (got 'a')"),
    (["run", "CUBIN", "--grid", "1,1,1,1", "--block", "1"], 2, "one to three numbers such as 16,16"),
    (["run", "CUBIN", "--kernel", "fill", "--grid", "1", "--block", "1", "--arg", "TEXT.npy"], 1, "not a .npy file"),
    (["run", "CUBIN", "--kernel", "fill", "--grid", "1", "--block", "1", "--arg", "zeros:object:4"], 1,
     "a dtype of numbers"),
    (["run", "CUBIN", "--kernel", "scale", "--grid", "1", "--block", "1", "--arg", "0", "--arg", "0", "--arg",
      "1e300"], 1,
     "argument 2 is a float32, which cannot hold 1e+300"),
    (["run", "CUBIN", "--kernel", "fill", "--grid", "1", "--block", "1", "--arg", "zeros:f4:4", "--out", "0=no/x.npy"],
     1,
     "--out: there is no folder no"),
    (["simulate", "64,1,1,1,64,1,1", "--picture", "x.bmp"], 1, "--picture must end in .png or .svg (got x.bmp)"),
    (["simulate", "64,1,1,1,64,1,1", "--trace", "9", "3"], 1, "trace must be a first cycle and a later one"),
    (["simulate", "64,1,1,1,64,1,1", "--trace", "-5", "3"], 2, "--trace: must be at least 0 (got -5)"),
    (["simulate", "64,1,1,1,64,1,1", "--worst", "-1"], 2, "--worst: must be at least 0"),
    (["simulate", "64,1,1,1,64,1,1", "--set", "sms", "0"], 1, "sms must be a whole number from 1 to 256"),
    (["simulate", "64,1,1,1,64,1,1", "--set", "sms", "x"], 1, "--set sms must be given a number (got 'x')"),
    (["simulate", "64,1,1,1,64,1,1", "--set", "colour", "1"], 1, "there is no figure 'colour'"),
    (["simulate", "64,1,1,1,64,1,1", "--set", "operand_fetch_depth", "3"], 1,
     "the engine is built for the preset's value"),
    (["simulate", "64,1,1,1,64,1,1", "--launch", "TEXT.npy"], 1,
     "--launch describes the launches of a cubin's kernels"),
    (["simulate", "64,1,1"], 1, "LAYER must be one of alexnet-conv1"),
    (["simulate", "64,1,1,1,64,1,1", "--source", "no.sass"], 1, "no.sass: No such file"),
    (["simulate", "64,1,1,1,64,1,1", "--policy", "foo"], 1, "--policy must be one of greedy-then-oldest, "),
    (["simulate", "64,1,1,1,64,1,1", "--html", "/proc/x.html"], 1, "nothing may be written to the folder /proc"),
    (["simulate", "TEXT.npy"], 1, "TEXT.npy is a file; simulate takes a LAYER"),
    (["tune", "64,1,1,1,64,1,1", "--pass", "foo"], 1, "--pass must be one of forward, data, filters (got 'foo')"),
    (["simulate", "64,1,1,1,64,1,1", "--pass", "foo"], 1, "--pass must be one of forward, data, filters (got 'foo')"),
    (["bench", "1,2,3"], 1, "NETWORK must be one of alexnet, "),
    (["disasm", "CUBIN", "--kernel", ""], 1, "no kernel '' in this cubin; it has: fill, scale"),
    (["check", "CUBIN", "--kernel", ""], 1, "no kernel '' in this cubin"),
    (["asm", "TEXT.npy", "-o", "."], 1, "--output: . is a folder; it must name a file"),
    (["asm", "TEXT.npy", "-o", "no/x.cubin"], 1, "--output: there is no folder no to write x.cubin to"),
    (["asm", "no.sass", "-o", "x.cubin"], 1, "no.sass: cannot read: No such file"),
    (["check", "TEXT.npy"], 1, "TEXT.npy:1: "),
    *((["simulate", "CUBIN", "--launch", "TEXT.npy", option, value], 1, f"{option} says how a layer is computed, and ")
      for option, value in (("--kernel", "fill"), ("--kernel", "best"), ("--layout", "CHWN"), ("--pass", "forward"),
                            ("--algorithm", "auto"))),
    (["simulate", "CUBIN"], 1, "a cubin needs --launch FILE.json"),
    (["simulate", "CUBIN", "--launch", "TEXT.npy"], 1, "not JSON"),
    (["check", "no-such.cubin"], 1, "no-such.cubin: No such file"),
    (["ptx", "TEXT.npy"], 1, "not a cubin"),
    (["simulate", ""], 1, "LAYER must be one of alexnet-conv1"),
    (["simulate", "."], 1, ". is a folder; simulate takes a LAYER"),
    (["simulate", "x" * 5000], 1, "LAYER must be one of alexnet-conv1"),
    (["simulate", "64,1,1,1,64,1,1", "--algorithm", "taps"], 1,
     "--algorithm must be one of auto, direct, winograd, fft"),
    (["simulate", "64,1,1,1,64,1,1", "--algorithm", ""], 1, "--algorithm must be one of auto, direct, winograd, fft"),
    (["simulate", "64,1,1,1,64,1,1", "--max-error", "nan"], 1, "--max-error must be a positive number (got nan)"),
    (["simulate", "alexnet-conv5", "--kernel", "sm90_taps_K64_N128"], 1,
     "(got 'sm90_taps_K64_N128', machine code of sm_90, whose clocks the model does not know)"),
    (["simulate", "alexnet-conv5", "--kernel", "no"], 1, "--kernel must be one of sconv_fprop_K64_N64, "),
    (["simulate", "alexnet-conv5", "--algorithm", "winograd", "--kernel", "sconv_taps_K64_N64"], 1,
     "--kernel must be one of winograd_2x2_3x3_128, "),
    (["simulate", "64,1,1,1,64,1,1", "--source", "/dev/zero"], 1, "--source: /dev/zero must be a file"),
    (["simulate", "64,1,1,1,64,1,1", "--source", ""], 2, "--source: must name a file (got '')"),
    (["simulate", "CUBIN", "--launch", "SEVERAL.json"], 1,
     "launch 1: kernel must name one of the kernels of this cubin: fill, scale"),
    (["run", "CUBIN", "--launch", "SEVERAL.json"], 1,
     "launch 1: kernel must name one of the kernels of this cubin: fill, scale"),
    (["run", "CUBIN", "--grid", "1", "--block", "1"], 1, "--kernel must name one of the kernels of "),
    *(([command, "", *more], 2, "must name a file (got '')") for command, *more in (
        ["asm", "-o", "x.cubin"], ["check"], ["disasm"], ["ptx"], ["run", "--grid", "1", "--block", "1"])),
    *(([command, "/dev/zero", *more], 1, words) for words, command, *more in (
        ["/dev/zero: must be a source of at most 64 MiB", "asm", "-o", "x.cubin"],
        ["/dev/zero must be a file", "check"], ["/dev/zero: must be a file of at most 256 MiB", "disasm"],
        ["/dev/zero: must be a file of at most 256 MiB", "ptx"],
        ["/dev/zero: must be a file of at most 256 MiB", "run", "--grid", "1", "--block", "1"])),
    (["run", "CUBIN", "--launch", "/dev/zero"], 1, "/dev/zero: must be a file of at most 256 MiB"),
    (["asm", "BARE.sass", "-o", ""], 2, "--output: must name a file (got '')"),
    (["asm", "BARE.sass", "-o", "x.cubin"], 1,
     "BARE.sass:1: the kernel has no name: give one with --kernel NAME, or write a line '# Kernel: NAME'"),
    (["check", "BARE.sass"], 1, "BARE.sass:1: the kernel has no name: give one with --kernel NAME"),
    (["asm", "BARE.sass", "-o", "x.cubin", "--kernel", "a b"], 1, "--kernel must be a name such as gemm_64x64"),
    (["asm", "BARE.sass", "-o", "x.cubin", "--kernel", ""], 1, "--kernel must be a name such as gemm_64x64"),
    (["asm", "BARE.sass", "-o", "x.cubin", "-I", ""], 1, "include must name folders (got '', which is none)"),
    (["check", "CUBIN", "--arch", "sm_52"], 1, "--arch says how a source is assembled, and "),
    (["check", "CUBIN", "--no-code"], 1, "--no-code says how a source is assembled, and "),
])
def test_wrong_arguments_are_told_before_any_work(argv: list[str], status: int, words: str, cubin_path: pathlib.Path,
                                                  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch,
                                                  capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "TEXT.npy").write_text("no array")
    (tmp_path / "BARE.sass").write_text(BARE)
    (tmp_path / "SEVERAL.json").write_text('{"grid": [1], "block": [32], "args": ["zeros:f4:32"]}')
    given = [str(cubin_path) if a == "CUBIN" else a for a in argv]
    try:
        ended = cli.main(given)
    except SystemExit as end:
        ended = int(end.code or 0)
    err = capsys.readouterr().err
    assert ended == status and words in err
    assert "command:" not in err and all(line.startswith("    ") for line in err.splitlines()[1:] if status == 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["BARE.sass", "SEVERAL.json", "TEXT.npy"]


def test_a_damaged_cubin_is_named(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cut.cubin").write_bytes(b"\x7fELF cut short")
    for name in ("disasm", "check", "ptx"):
        assert cli.main([name, str(tmp_path / "cut.cubin")]) == 1
        assert "cut.cubin: cut short: 14 bytes" in capsys.readouterr().err


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"maxdnn {maxdnn.__version__}\n"


def test_an_interrupt_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch,
                                               capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt
    monkeypatch.setattr("maxdnn.cli.disasm.run", interrupted)
    assert cli.main(["disasm", "x"]) == 130
    assert capsys.readouterr().err == "maxdnn: interrupted\n"


def test_an_unknown_kernel_is_refused_with_those_there_are(cubin_path: pathlib.Path,
                                                           capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["disasm", str(cubin_path), "--kernel", "scales"]) == 1
    err = capsys.readouterr().err
    assert "scales" in err and "fill" in err and "scale" in err


STORE = """# Kernel: answer
# Arch: sm_50
# Params(1):
#\t0:0x140:8:0
--:-:-:-:1 MOV R2, c[0x0][0x140];
--:-:-:-:6 MOV R3, c[0x0][0x144];
--:-:-:-:6 MOV32I R0, [+ $value || 7 +];
--:-:-:-:2 STG.E [R2], R0;
--:-:-:-:f EXIT;
"""


def test_asm_writes_a_cubin_that_disasm_reads_back(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = tmp_path / "answer.sass", tmp_path / "answer.cubin"
    source.write_text(STORE)
    assert cli.main(["asm", str(source), "-o", str(output), "-D", "value", "42", "--arch", "sm_61"]) == 0
    assert "answer" in capsys.readouterr().out
    assert cli.main(["disasm", str(output)]) == 0
    listing = capsys.readouterr().out
    assert "sm_61" in listing and "param bytes 8" in listing
    assert "MOV32I R0, 0x2a;" in listing
    assert oracles.disassembly(output.read_bytes())["answer"][2] == (0x18, "MOV32I R0, 0x2a")


@pytest.mark.parametrize(("text", "options", "words"), [
    ("--:-:-:-:1 MOVE R2, R3;\n", [], "answer.sass:1: "),
    (STORE, ["--no-code"], "answer.sass:7: "),
    (STORE, ["--arch", "sm_70"], "sm_70"),
])
def test_asm_passes_the_assemblers_message_on_and_writes_nothing(
        tmp_path: pathlib.Path, text: str, options: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    source, output = tmp_path / "answer.sass", tmp_path / "answer.cubin"
    source.write_text(text)
    assert cli.main(["asm", str(source), "-o", str(output), *options]) == 1
    assert words in capsys.readouterr().err
    assert not output.exists()


def test_a_source_without_a_header_gets_its_name_from_the_command(tmp_path: pathlib.Path,
                                                                  capsys: pytest.CaptureFixture[str]) -> None:
    source, output = tmp_path / "bare.sass", tmp_path / "bare.cubin"
    source.write_text(BARE)
    assert cli.main(["asm", str(source), "-o", str(output), "--kernel", "bare"]) == 0
    assert list(read(output).kernels) == ["bare"]
    assert cli.main(["check", str(source), "--kernel", "mine", "--arch", "sm_61"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("mine: ")


def test_kernel_chooses_among_those_of_a_source_that_names_them(tmp_path: pathlib.Path,
                                                               capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "two.sass"
    source.write_text("".join(f"# Kernel: {name}\n{BARE}" for name in ("first", "second")))
    assert cli.main(["check", str(source), "--kernel", "second"]) == 0
    assert [line.split(":")[0] for line in capsys.readouterr().out.splitlines()] == ["second"]
    assert cli.main(["check", str(source), "--kernel", "third"]) == 1
    assert "no kernel 'third' in this cubin; it has: first, second" in capsys.readouterr().err
    assert cli.main(["asm", str(source), "-o", str(tmp_path / "x.cubin"), "--kernel", "third"]) == 1
    assert "--kernel names one kernel, and" in capsys.readouterr().err and not (tmp_path / "x.cubin").exists()


@pytest.mark.long
def test_a_device_is_written_to_and_stays_one(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As root, a file moved into the place of /dev/null would replace it. A FIFO stands for it here."""
    (tmp_path / "bare.sass").write_text(BARE)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for command in (["asm", str(tmp_path / "bare.sass"), "--kernel", "k", "-o", str(pipe)],
                    ["bench", "64,1,1,1,64,1,1", "--simulate", "--json", str(pipe)]):
        reader = subprocess.Popen(["cat", str(pipe)], stdout=subprocess.PIPE)
        assert cli.main(command) == 0, capsys.readouterr().err
        assert reader.communicate(timeout=60)[0][:1] in (b"\x7f", b"{")
        assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bare.sass", "pipe"]


def test_run_says_what_code_ran(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arch in ("sm_52", "sm_90"):
        (tmp_path / "two.cubin").write_bytes(oracles.compile_cuda(SOURCE, arch))
        assert cli.main(["run", str(tmp_path / "two.cubin"), "--kernel", "fill", "--grid", "1", "--block", "32",
                         "--arg", "zeros:f4:32"]) == 0
        assert capsys.readouterr().out.endswith(f" s on the virtual GPU, code of {arch}\n")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("algorithm", ["direct", "winograd"])
def test_algorithm_is_that_of_the_library(algorithm: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One image of 8 x 8 does not get the tile of 64 images."""
    shape = maxdnn.ConvShape(1, 16, 8, 8, 64, 3, 3, 1, 1)
    assert cli.main(["simulate", "1,16,8,8,64,3,3,1,1", "--algorithm", algorithm, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    plan = maxdnn.plan(shape, algorithm=algorithm, tuned=False)
    assert [x["kernel"] for x in told["launches"]] == [x.spec.name for x in plan.launches]
    assert told["algorithm"] == plan.algorithm == algorithm and told["family"] == plan.family
    assert (plan.family == "direct") is False


def test_files_are_read_as_utf_8_whatever_the_locale() -> None:
    """A call that leaves the encoding to the locale reads the package's own files wrongly elsewhere."""
    left = []
    for path in pathlib.Path(cli.__file__).parent.rglob("*.py"):
        for call in (n for n in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(n, ast.Call)):
            name = getattr(call.func, "attr", getattr(call.func, "id", ""))
            named = {k.arg for k in call.keywords}
            asked = name in ("read_text", "write_text") and not call.args[name == "write_text":]
            if (asked or "text" in named) and "encoding" not in named:
                left.append(f"{path.name}:{call.lineno}")
    assert not left


def test_a_page_is_written_where_the_locale_knows_ascii_alone() -> None:
    """The package's own page, scripts and tables have more than that."""
    code = "from maxdnn.simulator.page import html; html({}, what='', preset='', chip='', changed={}, files={})"
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code], env=env, check=True)
