"""Damaged sources and cubins end in a result or in one of the assembler's own messages; see tools/maxas/t/fuzz.pl."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.corpus import compiler
from tests.maxas import tool

CASES = int(os.environ.get("MAXDNN_FUZZ_CASES", "6000"))
SEED = 20150105


@pytest.mark.long
def test_damaged_sources_and_cubins_give_no_perl_warning_no_other_death_and_no_hang(tmp_path: Path) -> None:
    files = sorted(Path(__file__).with_name("dialect").glob("*.sass"))
    for name in ("texref.ptx", "special.cu"):
        cubin = tmp_path / f"{name}.cubin"
        cubin.write_bytes(compiler.compile_source(name))
        tool.maxas("-e", cubin, tmp_path / f"{name}.sass")
        files += [cubin, tmp_path / f"{name}.sass"]
    files.append(tmp_path / "ours.cubin")
    files[-1].write_bytes(tool.assemble(tmp_path, files[0].read_text()))
    fuzz = tool.MAXAS.parent / "t" / "fuzz.pl"
    done = subprocess.run(["perl", fuzz, str(CASES), str(SEED), *files], capture_output=True, text=True, cwd=tmp_path,
                          errors="replace", timeout=1200, check=False)
    print(done.stdout[-2000:])
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
