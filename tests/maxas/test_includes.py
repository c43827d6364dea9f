"""Where includes are looked for, and what a source of strangers may read."""

import os
from pathlib import Path

import pytest

from maxdnn.build.assemble import MAXAS, assemble, files
from maxdnn.errors import AssemblyError
from tests.maxas import tool

END = "--:-:-:-:f EXIT;\n"
SECRET = "root:x:0:0: hunter2"


def _first(folder: Path, *options: object, cwd: Path | None = None) -> str:
    """The first instruction of main.sass, assembled from another folder."""
    here = Path.cwd()
    os.chdir(cwd or folder)
    try:
        ran = tool.maxas("-c", *options, "-o", folder / "o.cubin", folder / "main.sass")
    finally:
        os.chdir(here)
    return tool.texts((folder / "o.cubin").read_bytes())["k"][0] if ran.status == 0 else ran.err


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _move(value: int) -> str:
    return f"--:-:-:-:1 MOV R0, 0x{value:x};\n"


def test_the_current_folder_is_not_searched_unasked(tmp_path: Path) -> None:
    """A file of the same name there is not even opened; named by -I it counts, after the source's own folder."""
    main, other = tmp_path / "main", tmp_path / "other"
    _write(main / "main.sass", f'# Kernel: k\n<INCLUDE file="part.inc"/>\n{END}')
    _write(other / "part.inc", _move(2))
    assert "INCLUDE: no file 'part.inc' in" in _first(main, cwd=other)
    assert _first(main, "-I", ".", cwd=other) == "MOV R0, 0x2"
    _write(main / "part.inc", _move(1))
    assert _first(main, cwd=other) == _first(main, f"-I{other}", cwd=other) == "MOV R0, 0x1"


def test_an_include_is_looked_for_beside_the_including_file_first(tmp_path: Path) -> None:
    """Then beside the main file, then in the folders of -I in their order."""
    _write(tmp_path / "main.sass", f'# Kernel: k\n<INCLUDE file="sub/outer.inc"/>\n{END}')
    _write(tmp_path / "sub" / "outer.inc", '<INCLUDE file="inner.inc"/>\n')
    for folder, value in (("c", 4), ("b", 3), (".", 2), ("sub", 1)):
        _write(tmp_path / folder / "inner.inc", _move(value))
        options = [part for name in ("b", "c") for part in ("-I", tmp_path / name)]
        assert _first(tmp_path, *options) == f"MOV R0, 0x{value:x}"
    assert files(tmp_path / "main.sass") == [
        tmp_path / name for name in ("main.sass", "sub/outer.inc", "sub/inner.inc")]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("way", ["absolute", "relative", "link", "deep"])
def test_without_code_nothing_elsewhere_is_read_or_shown(way: str, tmp_path: Path) -> None:
    secret = _write(tmp_path / "elsewhere" / "secret", SECRET)
    main = tmp_path / "main"
    name = {"absolute": str(secret), "relative": "../elsewhere/secret", "link": "link.inc",
            "deep": "sub/../../elsewhere/secret"}[way]
    (main / "sub").mkdir(parents=True)
    _write(main / "main.sass", f'# Kernel: k\n<INCLUDE file="{name}"/>\n{END}')
    (main / "link.inc").symlink_to(secret)
    said = _first(main, "--no-code")
    assert "hunter2" not in said and "(--no-code reads nothing from elsewhere)" in said
    for mode in ("-p", "--interface"):
        ran = tool.maxas(mode, "--no-code", main / "main.sass")
        assert ran.status == 1 and "hunter2" not in ran.out + ran.err
    assert "hunter2" in _first(main), "where code may run, so may includes"
    assert "hunter2" in _first(main, "--no-code", "-I", secret.parent)


def test_without_code_what_lies_below_the_source_is_read(tmp_path: Path) -> None:
    _write(tmp_path / "main.sass", f'# Kernel: k\n<INCLUDE file="sub/part.inc"/>\n{END}')
    _write(tmp_path / "sub" / "part.inc", _move(1))
    assert _first(tmp_path, "--no-code") == "MOV R0, 0x1"
    assert _first(tmp_path, "--no-code", cwd=tmp_path / "sub") == "MOV R0, 0x1"


def test_python_passes_the_folders_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = _write(tmp_path / "main.sass", f'# Kernel: k\n<INCLUDE file="part.inc"/>\n{END}')
    part = _write(tmp_path / "lib" / "part.inc", _move(1))
    with pytest.raises(AssemblyError, match=r"no file 'part\.inc'"):
        assemble(source, tmp_path / "o.cubin")
    assert "1 registers" in assemble(source, tmp_path / "o.cubin", include=[tmp_path / "lib"])
    assert files(source, include=[tmp_path / "lib"]) == [source, part]
    with pytest.raises(AssemblyError, match=r"include must name folders \(got '.*nothing', which is none\)"):
        assemble(source, tmp_path / "o.cubin", include=[tmp_path / "nothing"])
    other = _write(tmp_path / "other", f'#!/bin/sh\nexec perl {MAXAS} "$@"\n')
    other.chmod(0o755)
    monkeypatch.setenv("MAXDNN_MAXAS", str(other))
    assert "1 registers" in assemble(source, tmp_path / "p.cubin", include=[tmp_path / "lib"])
