"""maxdnn.build.assemble: Python's way to the assembler."""

import os
import stat
from pathlib import Path

import pytest

from maxdnn import cubin
from maxdnn.build.assemble import assemble
from maxdnn.errors import AssemblyError

SOURCE = "# Kernel: k\n--:-:-:-:1 MOV32I R0, [+ $value || 5 +];\n--:-:-:-:f EXIT;\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "k.sass"
    path.write_text(SOURCE)
    return path


def _first_text(path: Path) -> str:
    return cubin.read(path).kernels["k"].instructions[0].text()


def test_a_source_becomes_a_cubin_and_the_counts_are_returned(source: Path, tmp_path: Path) -> None:
    text = assemble(source, tmp_path / "k.cubin")
    assert text.startswith("k: 2 instructions, 1 registers")
    assert cubin.read(tmp_path / "k.cubin").arch == "sm_52"
    assert _first_text(tmp_path / "k.cubin") == "MOV32I R0, 0x5"


def test_architecture_defines_and_kernel_name_are_passed_on(source: Path, tmp_path: Path) -> None:
    source.write_text(SOURCE.replace("# Kernel: k\n", ""))
    assemble(source, tmp_path / "k.cubin", arch="sm_61", defines={"value": 16}, kernel="k")
    assert cubin.read(tmp_path / "k.cubin").arch == "sm_61"
    assert _first_text(tmp_path / "k.cubin") == "MOV32I R0, 0x10"


def test_an_error_carries_the_message_the_command_and_the_exit_status(source: Path, tmp_path: Path) -> None:
    source.write_text("# Kernel: k\n--:-:-:-:1 FMAA R0;\n")
    with pytest.raises(AssemblyError) as caught:
        assemble(source, tmp_path / "k.cubin")
    text = str(caught.value)
    assert f"{source}:2: unknown instruction 'FMAA'; did you mean FFMA?" in text
    assert "maxas.pl -c -o" in text and "exit status: 1" in text
    assert not (tmp_path / "k.cubin").exists()


def test_no_code_refuses_embedded_perl(source: Path, tmp_path: Path) -> None:
    with pytest.raises(AssemblyError, match="embedded Perl is refused"):
        assemble(source, tmp_path / "k.cubin", no_code=True)


def test_an_unknown_architecture_is_refused_before_work_starts(source: Path, tmp_path: Path) -> None:
    with pytest.raises(AssemblyError, match=r"arch must be one of sm_50, .* \(got 'sm_70'\)"):
        assemble(source, tmp_path / "k.cubin", arch="sm_70")


def test_a_missing_perl_says_what_to_install(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AssemblyError, match="apt-get install perl"):
        assemble(source, tmp_path / "k.cubin")


def _other_assembler(folder: Path, body: str) -> Path:
    """A stand-in for another assembler: a shell script that notes its arguments."""
    path = folder / "other"
    path.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {folder}/arguments\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_another_assembler_gets_a_template_with_the_kernel_in_it(source: Path, tmp_path: Path,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """The stand-in hands our own -i the same arguments, as upstream's would get them."""
    from maxdnn.build.assemble import MAXAS
    other = _other_assembler(tmp_path, f'exec perl {MAXAS} "$@"')
    monkeypatch.setenv("MAXDNN_MAXAS", str(other))
    assemble(source, tmp_path / "k.cubin", arch="sm_53", defines={"value": 9}, kernel="k")
    arguments = (tmp_path / "arguments").read_text().split("\n")
    assert arguments[:6] == ["-i", "-w", "-k", "k", "-Dvalue", "9"]
    assert [os.path.basename(a) for a in arguments[6:9]] == ["k.sass", "template.cubin", "result.cubin"]
    assert _first_text(tmp_path / "k.cubin") == "MOV32I R0, 0x9"
    assert cubin.read(tmp_path / "k.cubin").arch == "sm_53"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["arguments", "k.cubin", "k.sass", "other"]


def test_another_assembler_that_fails_or_writes_nothing_is_told(source: Path, tmp_path: Path,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAXDNN_MAXAS", str(_other_assembler(tmp_path, "echo no such luck >&2; exit 3")))
    with pytest.raises(AssemblyError, match=r"no such luck\ncommand: .*\nexit status: 3"):
        assemble(source, tmp_path / "k.cubin")
    monkeypatch.setenv("MAXDNN_MAXAS", str(_other_assembler(tmp_path, "exit 0")))
    with pytest.raises(AssemblyError, match="wrote no cubin"):
        assemble(source, tmp_path / "k.cubin")
    monkeypatch.setenv("MAXDNN_MAXAS", "no-such-assembler")
    with pytest.raises(AssemblyError, match="'no-such-assembler', which is no program"):
        assemble(source, tmp_path / "k.cubin")
    assert not (tmp_path / "k.cubin").exists()
