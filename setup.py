"""Adds two steps to the standard build: the assembler, the kernel sources and one cubin per kernel and architecture go
into the package. An editable install leaves that out: there, maxdnn.build.cubins assembles a kernel at first use."""

import os
import shutil
import sys
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent.resolve()
ASSETS = {"tools/maxas": ("*.pl", "*.pm"), "sass": ("*.sass", "*.inc", "*.md")}  # folder: what a wheel carries of it


class BuildWithKernels(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        package = Path(self.build_lib, "maxdnn").resolve()
        for folder, patterns in ASSETS.items():
            shutil.rmtree(package / folder, ignore_errors=True)
            for path in sorted(p for pattern in patterns for p in (ROOT / folder).rglob(pattern)):
                if "t" in path.relative_to(ROOT / folder).parts[:1]:
                    continue  # the assembler's own tests
                target = package / path.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target)
        sys.path.insert(0, str(package.parent))
        from maxdnn.build.cubins import AMPERE, ARCHS, HOPPER, build_all

        # What the tree keeps is taken if nothing it was made of has changed since; build_all looks at that.
        kept, binaries = ROOT / "maxdnn" / "kernels_bin", package / "kernels_bin"
        shutil.rmtree(binaries, ignore_errors=True)
        if kept.is_dir():
            shutil.copytree(kept, binaries)
        named = os.environ.get("MAXDNN_WHEEL_ARCHS", "").split()  # all, if it names none
        made = set(build_all(named or (*ARCHS, *AMPERE, HOPPER)))
        for path in [p for p in binaries.rglob("*") if p.is_file() and p.with_suffix(".cubin") not in made]:
            path.unlink()  # of a source that is no more


setup(cmdclass={"build_py": BuildWithKernels})
