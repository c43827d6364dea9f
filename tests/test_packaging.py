"""Source distribution, wheel and editable tree, each in a copy of the tree so that this one stays as it is."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from maxdnn.build.cubins import build_all

ROOT = Path(__file__).resolve().parent.parent
TINY = """# Kernel: tiny
# Arch: sm_52
# Params(1):
#\tord:addr:size:align
#\t0:0x140:8:0
#
# Instructions:

--:-:-:-:5      MOV R0, {value};
--:-:-:-:5      EXIT;
"""


def run(command, cwd, *, fails=False, **environment):
    """Run and return the output; the other exit status is a failure that shows it. Wheels are without the cubins of
    Ampere, which take as long as all others of sm_90 (tests/build/test_cubins.py asks for them)."""
    done = subprocess.run([str(c) for c in command], cwd=cwd, capture_output=True, text=True, timeout=600,
                          env={**os.environ, "PYTHONPATH": "", "MAXDNN_WHEEL_ARCHS": "sm_50 sm_90", **environment})
    assert (done.returncode != 0) == fails, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def copy_tree(target):
    skip = shutil.ignore_patterns("*.egg-info", "kernels_bin", "__pycache__", ".*_cache", ".hypothesis")

    def ignored(folder, names):
        at_top = {".git", ".venv", "build", "dist"} if folder == str(ROOT) else set()  # a package is named build, too
        return skip(folder, names) | at_top

    shutil.copytree(ROOT, target, ignore=ignored)
    return target


def script(environment, name):
    """A console script of a virtual environment."""
    return environment / ("Scripts" if os.name == "nt" else "bin") / name


BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, f'build_{sys.argv[1]}')(sys.argv[2])"


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    """The unpacked source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    run([sys.executable, "-c", BUILD, "sdist", folder], copy_tree(folder / "maxdnn"))
    packed = next(folder.glob("*.tar.gz"))
    shutil.unpack_archive(packed, folder)
    return folder / packed.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def buildable(sdist, tmp_path_factory):
    """A copy of it with the kernels that this tree keeps, so that only what is missing is assembled again."""
    tree = shutil.copytree(sdist, tmp_path_factory.mktemp("buildable") / sdist.name)
    build_all()
    shutil.copytree(ROOT / "maxdnn" / "kernels_bin", tree / "maxdnn" / "kernels_bin")
    (tree / "maxdnn" / "kernels_bin" / "gone.cubin").write_bytes(b"of a source that is no more")
    return tree


@pytest.fixture(scope="module")
def wheel(buildable, tmp_path_factory):
    """(file, what the build said): made from the source distribution, so that nothing can be missing there."""
    folder = tmp_path_factory.mktemp("wheel")
    said = run([sys.executable, "-c", BUILD, "wheel", folder], buildable)
    return next(folder.glob("*.whl")), said


def test_the_source_distribution_holds_what_building_and_testing_need(sdist):
    for path in ("setup.py", "pyproject.toml", "Makefile", "LICENSE", "README.md", ".ci/run", "tools/maxas/maxas.pl",
                 "sass/maxwell/conv_fprop_64x64.sass", "maxdnn/isa/maxwell.json", "maxdnn/isa/hopper.json",
                 "tests/test_conv.py", "tests/contract.py"):
        assert (sdist / path).is_file(), path
    assert not list(sdist.rglob("*.cubin"))


def test_the_wheel_holds_every_cubin_the_assembler_and_the_sources(wheel):
    names = zipfile.ZipFile(wheel[0]).namelist()
    kernels = sorted(p.relative_to(ROOT / "sass").with_suffix("").as_posix()
                     for p in (ROOT / "sass").rglob("*.sass"))
    built = sorted(n for n in names if n.startswith("maxdnn/kernels_bin/"))
    assert built == sorted(f"maxdnn/kernels_bin/{kernel}{suffix}" for kernel in kernels
                           for suffix in (".cubin", ".json"))
    for path in ("maxdnn/tools/maxas/maxas.pl", "maxdnn/sass/maxwell/conv_fprop_64x64.sass"):
        assert path in names
    ours = [p.relative_to(ROOT) for p in (ROOT / "maxdnn").rglob("*")
            if p.suffix in (".py", ".json", ".html", ".css", ".js") and "kernels_bin" not in p.parts]
    assert not {p.as_posix() for p in ours} - set(names)
    assert {n.split("/")[0] for n in names if ".dist-info" not in n} == {"maxdnn"}


def test_the_build_takes_no_folder_of_data_for_a_package(wheel):
    assert "absent from the `packages` configuration" not in wheel[1]


def test_the_build_takes_kernels_that_the_tree_keeps(wheel):
    assert "maxdnn: assembling" not in wheel[1]


CONVOLVE = """
import numpy as np
import maxdnn
from maxdnn.reference import conv_reference, relative_error
rng = np.random.default_rng(0)
images, filters = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((3, 5, 5, 64), (3, 3, 3, 64)))
out = maxdnn.conv_fprop(images, filters, padding=1)
assert relative_error(out, *conv_reference(images, filters, padding=1)) < 1e-6
np.save("images.npy", images)
print(maxdnn.__file__, maxdnn.__version__)
"""


@pytest.mark.long
def test_what_is_installed_convolves_and_serves_every_command_without_perl(buildable, tmp_path):
    """pip builds it with what pyproject.toml names for the build, and installs what it depends on."""
    installed = tmp_path / "environment"
    run([sys.executable, "-m", "venv", "--without-pip", installed], tmp_path)
    run([sys.executable, "-m", "pip", "--python", script(installed, "python"), "install", "--quiet", buildable],
        tmp_path)
    clean = {"PATH": os.fspath(tmp_path), "HOME": os.fspath(tmp_path), "MAXDNN_CACHE": os.fspath(tmp_path / "cache"),
             "NUMBA_CACHE_DIR": os.fspath(tmp_path / "numba")}
    file, version = run([script(installed, "python"), "-c", CONVOLVE], tmp_path, **clean).split()
    assert Path(file).is_relative_to(installed)
    assert version == buildable.name.split("-")[1]
    maxdnn = script(installed, "maxdnn")
    (tmp_path / "tiny.sass").write_text(TINY.format(value="RZ"))
    run([maxdnn, "asm", "tiny.sass", "-o", "tiny.cubin"], tmp_path)  # the one command that needs Perl
    assert "needs Perl 5" in run([maxdnn, "asm", "tiny.sass", "-o", "no.cubin"], tmp_path, fails=True, **clean)
    for command, said in {
        "disasm tiny.cubin": "EXIT;",
        "check tiny.cubin": "0 errors",
        "ptx tiny.cubin --target sm_90": ".target sm_90",
        "run tiny.cubin --grid 1 --block 32 --arg images.npy --out 0=same.npy": "same.npy: float32",
        "check tiny.cubin --strict": "0 errors",
        "simulate 64,4,4,4,64,1,1": "computational efficiency",
        "simulate 64,4,4,4,64,1,1 --html page.html": "Without Perl 5 the page lists instructions",
        "bench 64,4,4,4,64,1,1 --simulate": "SIMULATED",
        "tune --list": "0 layers remembered",
        "tune 1,4,4,4,8,1,1 --device virtual --seconds 1": "nothing here is measured",
        "selftest --device virtual --quick": "0 failed",
    }.items():
        assert said in run([maxdnn, *command.split()], tmp_path, **clean), command
    page = (tmp_path / "page.html").read_text("utf-8")
    assert '"missing":"Without Perl 5' in page and '"text":"EXIT"' in page
    for command in ("check tiny.sass", "simulate 64,4,4,4,64,1,1 --source tiny.sass --html no.html"):
        assert "needs Perl 5" in run([maxdnn, *command.split()], tmp_path, fails=True, **clean), command
    assert not (tmp_path / "no.html").exists()


@pytest.fixture
def tree(tmp_path):
    """A source tree with one small kernel."""
    tree = tmp_path / "tree"
    for folder in ("maxdnn", "tools"):
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("kernels_bin", "__pycache__"))
    (tree / "sass").mkdir()
    (tree / "sass" / "tiny.sass").write_text(TINY.format(value="RZ"))
    return tree


GET = "import hashlib, maxdnn.build.cubins as c; print(hashlib.md5(c.cubin('tiny', 'sm_52')).hexdigest())"


def built(tree):
    return sorted((tree / "maxdnn" / "kernels_bin").rglob("*.cubin"))


def test_a_source_tree_assembles_at_first_use_and_again_when_a_source_changes(tree):
    said = run([sys.executable, "-c", GET], tree)
    assert "maxdnn: assembling tiny.sass, once for this source tree" in said
    first = said.splitlines(keepends=True)[0]
    files = built(tree)
    assert len(files) == 1
    stamp = files[0].stat().st_mtime_ns
    assert run([sys.executable, "-c", GET], tree) == first
    assert built(tree)[0].stat().st_mtime_ns == stamp  # not made again
    (tree / "sass" / "tiny.sass").write_text(TINY.format(value="0x1"))
    assert run([sys.executable, "-c", GET], tree).splitlines(keepends=True)[0] != first
    assert built(tree) == files


def test_a_changed_assembler_makes_the_cubins_anew(tree):
    run([sys.executable, "-c", GET], tree)
    stamp = built(tree)[0].stat().st_mtime_ns
    with (tree / "tools" / "maxas" / "maxas.pl").open("a") as script:
        script.write("\n# changed\n")
    run([sys.executable, "-c", GET], tree)
    assert built(tree)[0].stat().st_mtime_ns != stamp


def test_without_perl_the_error_says_what_to_install(tree):
    said = run([sys.executable, "-c", GET], tree, fails=True, PATH="/nonexistent")
    assert "AssemblyError" in said
    assert "Perl 5" in said
    assert "install" in said
    assert not built(tree)


def test_a_source_with_an_error_leaves_no_cubin_behind(tree):
    (tree / "sass" / "tiny.sass").write_text(TINY.format(value="Q9"))
    said = run([sys.executable, "-c", GET], tree, fails=True)
    assert "tiny.sass:9" in said
    assert not list((tree / "maxdnn" / "kernels_bin").rglob("*.*"))


def test_a_kernel_with_a_hazard_is_refused(tree):
    unsafe = TINY.format(value="RZ").replace("--:-:-:-:5      MOV", "--:-:-:-:1      MOV").replace(
        "--:-:-:-:5      EXIT", "--:-:-:-:5      IADD R1, R0, R0;\n--:-:-:-:5      EXIT")
    (tree / "sass" / "tiny.sass").write_text(unsafe)
    said = run([sys.executable, "-c", GET], tree, fails=True)
    assert "hazards" in said
    assert "R0" in said
    assert not built(tree)


def test_an_unknown_kernel_or_architecture_is_refused_by_name(tree):
    for asked, words in (("'tiny', 'sm_70'", "arch must be one of sm_50"), ("'huge', 'sm_52'", "there are: tiny")):
        said = run([sys.executable, "-c", f"import maxdnn.build.cubins as c; c.cubin({asked})"], tree, fails=True)
        assert words in said


def test_importing_the_package_loads_no_compiler_and_no_driver():
    heavy = "{'llvmlite', 'numba', 'pycuda', 'maxdnn.emulator', 'maxdnn.simulator', 'maxdnn.runtime.devices.cuda'}"
    code = f"import sys, maxdnn; maxdnn.plan, maxdnn.conv_fprop, maxdnn.ConvShape; print({heavy} & set(sys.modules))"
    assert run([sys.executable, "-c", code], ROOT).strip() == "set()"
