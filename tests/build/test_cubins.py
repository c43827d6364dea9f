"""maxdnn.build.cubins: one assembly and one check for every architecture; nothing out of date or damaged is used."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from maxdnn import ConvShape, checker, cubin
from maxdnn.algorithms.registry import kernels
from maxdnn.build import assemble, cubins
from maxdnn.errors import AssemblyError
from maxdnn.planning import select

BODY = "--:-:-:-:f EXIT;\n"


class Tree:
    """A folder of sources and one for what is made of them; counts assemblies and checks."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sass, self.binaries = folder / "sass", folder / "bin"
        self.sass.mkdir()
        self.assembled: list[str] = []
        self.checked = 0
        self.meanwhile: list[Callable[[], object]] = []  # what others do while each of the next assemblies is going on
        monkeypatch.setattr(cubins, "BINARIES", self.binaries)
        asset = cubins.asset
        monkeypatch.setattr(cubins, "asset", lambda name: self.sass if name == "sass" else asset(name))
        do_assemble, do_check = assemble.assemble, checker.findings

        def counted_assemble(source, output, **options):
            self.assembled.append(options["arch"])
            report = do_assemble(source, output, **options)
            if self.meanwhile:
                self.meanwhile.pop(0)()
            return report

        def counted_check(kernel):
            self.checked += 1
            return do_check(kernel)
        monkeypatch.setattr(assemble, "assemble", counted_assemble)
        monkeypatch.setattr(checker, "findings", counted_check)

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.sass / name.replace("_", ".")).write_text(text)

    def get(self, source: str, arch: str = "sm_52") -> bytes:
        """As a new process would get it."""
        forget()
        return cubins.cubin(source, arch)


def forget() -> None:
    for cached in (cubins.cubin, cubins._code, cubins._rules, cubins.checked_by, cubins._tools, cubins.ingredients):
        cached.cache_clear()


@pytest.fixture
def tree(tmp_path, monkeypatch):
    yield Tree(tmp_path, monkeypatch)
    forget()


def test_relabelling_gives_what_assembling_gives(tmp_path):
    """For every architecture; a label of an older one is refused."""
    source = cubins.asset("sass") / "maxwell/pad.sass"
    made = {}
    for arch in cubins.ARCHS:
        assemble.assemble(source, tmp_path / arch, arch=arch)
        made[arch] = (tmp_path / arch).read_bytes()
    for n, origin in enumerate(cubins.ARCHS):
        for arch in cubins.ARCHS[n:]:
            assert cubins.relabelled(made[origin], arch) == made[arch]
            assert cubin.read(cubins.relabelled(made[origin], arch)).arch == arch
    with pytest.raises(AssemblyError, match=r"needs sm_53 or later \(got sm_52\)"):
        cubins.relabelled(made["sm_53"], "sm_52")


def test_one_assembly_and_one_check_serve_every_architecture(tree):
    tree.write(a_sass="# Kernel: a\n" + BODY)
    for arch in cubins.ARCHS:
        assert cubin.read(tree.get("a", arch)).arch == arch
    assert (tree.assembled, tree.checked) == (["sm_50"], 1)


def test_a_source_of_sm_90_serves_ampere_by_one_more_cubin(tree, monkeypatch):
    """Which is made where it is asked for, and told apart from that of sm_90 by `$sm`."""
    (tree.sass / "sm90").mkdir()
    body = "--:-:-:-:5 EXIT;\n"
    (tree.sass / "sm90" / "a.sass").write_text("# Kernel: a\n# Arch: sm_90\n--:-:-:-:6 MOV R0, [+ $sm +];\n" + body)
    (tree.sass / "sm90" / "b.sass").write_text("# Kernel: b\n# Arch: sm_90\n" + body)
    monkeypatch.setattr(cubins, "FOR_AMPERE", frozenset({"sm90/a"}))
    for arch in (*cubins.AMPERE, "sm_90"):
        made = cubin.read(tree.get("sm90/a", arch))
        assert made.arch == arch and made.kernel().instructions[0]["b"].value == (90 if arch == "sm_90" else 80)
    assert tree.assembled == ["sm_80", "sm_90"]
    with pytest.raises(AssemblyError, match=r"arch must be one of sm_90 \(got 'sm_86'\)"):
        tree.get("sm90/b", "sm_86")
    monkeypatch.setattr(cubins, "ProcessPoolExecutor", ThreadPoolExecutor)
    assert [p.relative_to(tree.binaries).as_posix() for p in cubins.build_all()] == ["sm90/a.cubin", "sm90/b.cubin"]
    assert [p.relative_to(tree.binaries).as_posix() for p in cubins.build_all(cubins.AMPERE)] == ["sm80/a.cubin"]


def test_a_kernel_of_later_instructions_is_made_for_the_oldest_that_has_them(tree):
    tree.write(a_sass="# Kernel: a\n--:-:-:-:6 HADD2 R0, R1, R2;\n" + BODY)
    assert cubin.read(tree.get("a", "sm_61")).arch == "sm_61"
    assert (tree.assembled, tree.checked) == (["sm_50", "sm_52", "sm_53"], 1)
    with pytest.raises(AssemblyError, match="needs sm_53 or later"):
        tree.get("a", "sm_50")


def test_what_a_kernel_includes_decides_and_nothing_else(tree):
    tree.write(a_sass='# Kernel: a\n<INCLUDE file="b.inc"/>\n' + BODY, b_inc='<INCLUDE file="c.inc"/>\n',
               c_inc="--:-:-:-:6 MOV R0, 0x1;\n", d_inc="", e_sass="# Kernel: e\n" + BODY)
    first = tree.get("a")
    tree.write(d_inc="--:-:-:-:6 NOP;\n", e_sass="# Kernel: e\n--:-:-:-:6 NOP;\n" + BODY)
    assert tree.get("a") == first and len(tree.assembled) == 1
    tree.write(c_inc="--:-:-:-:6 MOV R0, 0x2;\n")
    assert tree.get("a") != first and len(tree.assembled) == 2


def test_a_damaged_cubin_or_note_is_made_anew(tree):
    tree.write(a_sass="# Kernel: a\n" + BODY)
    good = tree.get("a")
    made, note = tree.binaries / "a.cubin", tree.binaries / "a.json"
    flipped = bytearray(made.read_bytes())
    flipped[-200] ^= 4
    for path, bad in ((made, bytes(flipped)), (made, b""), (note, b"{"), (note, b"[]"), (note, b'{"files": 7}')):
        before = len(tree.assembled)
        path.write_bytes(bad)
        assert tree.get("a") == good and len(tree.assembled) == before + 1
    assert sorted(p.name for p in tree.binaries.iterdir()) == ["a.cubin", "a.json"]


def test_a_folder_that_cannot_be_written_only_costs_time(tree):
    tree.write(a_sass="# Kernel: a\n" + BODY)
    tree.binaries.write_text("a file, where a folder is wanted")
    assert cubin.read(tree.get("a")).kernels


def test_the_rules_of_the_checker_decide(tree, tmp_path, monkeypatch):
    """All that checking loads of this package is among the rules; a changed rule or figure makes kernels anew."""
    code = "import sys, maxdnn.checker; print(*(n for n in sys.modules if n.startswith('maxdnn.')))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {name.split(".")[1] for name in loaded} <= {rule.split("/")[0].removesuffix(".py") for rule in cubins.RULES}
    copy = tmp_path / "maxdnn"
    shutil.copytree(cubins.PACKAGE, copy, ignore=shutil.ignore_patterns("kernels_bin", "__pycache__"))
    monkeypatch.setattr(cubins, "PACKAGE", copy)
    tree.write(a_sass="# Kernel: a\n" + BODY)
    tree.get("a")
    for name in ("checker/hazards.py", "checker/latencies.json", "isa/maxwell.json", "semantics/move.py", "cubin.py",
                 "runtime/elf.py"):
        before = len(tree.assembled)
        with (copy / name).open("a") as file:
            file.write(" ")
        tree.get("a")
        assert len(tree.assembled) == before + 1, name
    with (copy / "planner.py").open("a") as file:
        file.write(" ")
    before = len(tree.assembled)
    tree.get("a")
    assert len(tree.assembled) == before


def test_another_assembler_counts_by_its_content(tree, tmp_path, monkeypatch):
    other = tmp_path / "other"
    text = f'#!/bin/sh\nexec perl {assemble.MAXAS} "$@"\n'
    for copy, content in (("one", text), ("two", text), ("three", text + "# changed\n")):
        other = tmp_path / copy / "other"
        other.parent.mkdir()
        other.write_text(content)
        other.chmod(0o755)
    tree.write(a_sass="# Kernel: a\n" + BODY)
    counts = []
    for folder in ("one", "two", "three"):
        monkeypatch.setenv("MAXDNN_MAXAS", os.fspath(tmp_path / folder / "other"))
        tree.get("a")
        counts.append(len(tree.assembled))
    assert counts == [1, 1, 2]


def test_a_kernel_that_is_not_proven_safe_is_refused(tree):
    tree.write(a_sass="# Kernel: a\n--:-:-:-:1 MOV R0, RZ;\n--:-:-:-:6 IADD R1, R0, R0;\n" + BODY)
    with pytest.raises(AssemblyError, match=r"a\.cubin: hazards"):
        tree.get("a")
    assert not tree.binaries.exists()


def test_a_source_elsewhere_is_kept_under_a_name_of_its_own(tree, tmp_path):
    tree.write(a_sass="# Kernel: a\n" + BODY)
    far = tmp_path / "far" / "a.sass"
    far.parent.mkdir()
    far.write_text('# Kernel: far\n<INCLUDE file="part.inc"/>\n' + BODY)
    (far.parent / "part.inc").write_text("--:-:-:-:6 MOV R0, 0x1;\n")
    place = str(far.with_suffix(""))
    assert (list(cubin.read(tree.get("a")).kernels), list(cubin.read(tree.get(place)).kernels)) == (["a"], ["far"])
    tree.get(place)
    assert len(tree.assembled) == 2 and len(list(tree.binaries.glob("*.cubin"))) == 2
    (far.parent / "part.inc").write_text("--:-:-:-:6 MOV R0, 0x2;\n")
    tree.get(place)
    assert len(tree.assembled) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux")
def test_a_source_may_have_any_name_whatever_the_locale(tree, tmp_path):
    """Names are bytes: one that is no UTF-8 here, and one that is where the locale knows ASCII alone."""
    for name in (b"gr\xf6\xdfe", "größe".encode()):
        folder = tmp_path / os.fsdecode(name)
        folder.mkdir()
        (folder / "a.sass").write_text('# Kernel: a\n<INCLUDE file="b.inc"/>\n' + BODY)
        (folder / "b.inc").write_text(moving(1))
        assert cubin.read(tree.get(str(folder / "a"))).kernels
    code = ("import sys; from pathlib import Path; from maxdnn.build import cubins\n"
            "cubins.BINARIES = Path(sys.argv[2])\n"
            "cubins.cubin(sys.argv[1], 'sm_52')")
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code, folder / "a", tmp_path / "other"], env=env, check=True)


# -- while somebody writes --------------------------------------------------------------------------------------------


def moving(number: int) -> str:
    return f"--:-:-:-:6 MOV R0, {number};\n"


def test_a_source_that_changes_while_it_is_assembled_is_assembled_again(tree):
    """Nothing is kept, or given, that nobody knows what it was made of: source, include, or the assembler."""
    include = '# Kernel: a\n<INCLUDE file="b.inc"/>\n' + BODY
    tree.write(a_sass=include, b_inc=moving(1))
    tree.meanwhile = [lambda: tree.write(b_inc=moving(2))]
    second = tree.get("a")
    assert len(tree.assembled) == 2 and tree.get("a") == second and len(tree.assembled) == 2
    tree.write(b_inc=moving(3))
    tree.meanwhile = [lambda: tree.write(a_sass=include.replace("EXIT", "NOP;\n--:-:-:-:f EXIT"))]
    longer = tree.get("a")
    assert len(tree.assembled) == 4
    tree.write(a_sass=include, b_inc=moving(2))
    assert tree.get("a") == second != longer


def test_a_file_that_is_put_back_was_another_meanwhile(tree):
    tree.write(a_sass="# Kernel: a\n" + moving(1) + BODY)
    one = tree.get("a")
    shutil.rmtree(tree.binaries)

    def put_back() -> None:
        tree.write(a_sass="# Kernel: a\n" + moving(1) + BODY)
    tree.write(a_sass="# Kernel: a\n" + moving(2) + BODY)
    do_seen = cubins._seen
    with pytest.MonkeyPatch.context() as patch:  # the edit falls between the first look and the assembler's
        def seen(origin):
            put_back()
            found = do_seen(origin)
            tree.write(a_sass="# Kernel: a\n" + moving(2) + BODY)
            return found
        patch.setattr(cubins, "_seen", seen)
        tree.meanwhile = [put_back] * 3
        with pytest.raises(AssemblyError, match=r"a\.sass: the source, .* changed .* 3 times in a row: try again"):
            tree.get("a")
    assert not tree.binaries.exists()
    put_back()
    assert tree.get("a") == one


def test_half_a_source_is_read_again_once_it_is_whole(tree):
    whole = "# Kernel: a\n" + moving(1) + BODY
    tree.write(a_sass=whole[:-12])
    tree.meanwhile = [lambda: tree.write(a_sass=whole)]
    with pytest.MonkeyPatch.context() as patch:
        do_assemble = assemble.assemble

        def late(source, output, **options):
            try:
                return do_assemble(source, output, **options)
            except AssemblyError:
                tree.meanwhile.pop(0)()
                raise
        patch.setattr(assemble, "assemble", late)
        assert cubin.read(tree.get("a")).kernels
    tree.write(a_sass=whole[:-12])
    with pytest.raises(AssemblyError, match=r"a\.sass:\d+"):  # nobody is writing: half it is
        tree.get("a")


def test_a_changed_assembler_or_rule_does_not_count_as_the_one_that_was_used(tree, tmp_path, monkeypatch):
    """The assembler is read anew at each run, the rules are those that this process loaded."""
    tools, package, asset = tmp_path / "maxas", tmp_path / "maxdnn", cubins.asset
    shutil.copytree(assemble.MAXAS.parent, tools)
    shutil.copytree(cubins.PACKAGE, package, ignore=shutil.ignore_patterns("kernels_bin", "__pycache__"))
    monkeypatch.setattr(cubins, "asset", lambda name: tools if name == "tools/maxas" else asset(name))
    monkeypatch.setattr(cubins, "PACKAGE", package)

    def add(path: Path) -> None:
        with path.open("a") as file:
            file.write("\n")
    tree.write(a_sass="# Kernel: a\n" + BODY)
    tree.meanwhile = [lambda: add(tools / "lib" / "MaxAs" / "Source.pm")]
    tree.get("a")
    assert len(tree.assembled) == 2
    forget()
    cubins._rules()
    add(package / "checker" / "hazards.py")
    (tree.binaries / "a.cubin").unlink()
    cubins.cubin("a", "sm_52")
    assert len(tree.assembled) == 3
    tree.get("a")
    assert len(tree.assembled) == 4  # a process with the new rules checks by them


def test_a_file_that_would_be_read_instead_is_noticed(tree):
    (tree.sass / "parts").mkdir()
    tree.write(a_sass='# Kernel: a\n<INCLUDE file="parts/b.inc"/>\n' + BODY, c_inc=moving(1))
    (tree.sass / "parts" / "b.inc").write_text('<INCLUDE file="c.inc"/>\n')
    first = tree.get("a")
    (tree.sass / "parts" / "c.inc").write_text(moving(2))
    second = tree.get("a")
    assert second != first and tree.get("a") == second and len(tree.assembled) == 2


def test_what_cannot_be_kept_is_said_to_whoever_wants_files(tree):
    tree.write(a_sass="# Kernel: a\n" + BODY)
    tree.binaries.write_text("a file, where a folder is wanted")
    with pytest.raises(AssemblyError, match=r"bin must be a folder .* lacks a\.cubin"):
        cubins.build_all()


GET = """
import sys, time
from pathlib import Path
from maxdnn.build import cubins
cubins.BINARIES = Path(sys.argv[2])
place = sys.argv[1]
asset = cubins.asset
cubins.asset = lambda name: Path(place) if name == "sass" else asset(name)
sys.stdout.buffer.write(cubins.cubin("a", "sm_52"))
"""


def test_processes_that_build_at_once_while_the_source_changes(tree):
    """And one that is killed while it does. What is left is what the last source gives."""
    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", GET, tree.sass, tree.binaries], stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)

    tree.write(a_sass='# Kernel: a\n<INCLUDE file="b.inc"/>\n' + BODY, b_inc=moving(0))
    running = [start() for _ in range(3)]
    number = 0
    while any(p.poll() is None for p in running[:2]):
        number += 1
        tree.write(b_inc=moving(number))
        time.sleep(0.3)
        if number == 3:
            running[2].send_signal(signal.SIGKILL)
    for process in running[:2]:
        out, err = process.communicate()
        assert (process.returncode == 0 and cubin.read(out).kernels) or b"changed while it was assembled" in err
    running[2].communicate()
    kept = tree.get("a")
    shutil.rmtree(tree.binaries)
    assert tree.get("a") == kept


@pytest.mark.long
def test_planning_assembles_nothing_and_a_call_what_it_launches(tmp_path, monkeypatch, capsys):
    """In a tree where nothing is kept yet."""
    made = []

    def build(source, archs, path):
        made.append(source)
        return real(source, archs, path)
    real = cubins._build
    monkeypatch.setattr(cubins, "BINARIES", tmp_path)
    monkeypatch.setattr(cubins, "_build", build)
    caches = (cubins._code, cubins.cubin, cubins.declared, select._choose)
    kept = [spec.__dict__.pop("_declared", None) for spec in kernels().values()]
    for cache in caches:
        cache.cache_clear()
    try:
        shape = ConvShape(1, 8, 6, 6, 16, 3, 3, 1, 1)
        plan = select.plan(shape, tuned=False)
        assert plan.spec.threads and made == []
        assert capsys.readouterr().err == ""
        for launch in plan.launches:
            cubins.cubin(launch.spec.source.removesuffix(".sass"), "sm_52")
        needed = dict.fromkeys(launch.spec.source for launch in plan.launches)
        assert made == [source.removesuffix(".sass") for source in needed]
        assert capsys.readouterr().err.splitlines() == [
            f"maxdnn: assembling {Path(source).name}, once for this source tree" for source in needed]
        before = dict(plan.spec._declared)
        plan.spec.__dict__.pop("_declared")
        cubins.declared.cache_clear()
        assert plan.spec._declared == before  # of the header alone and of the cubin
    finally:
        for cache in caches:
            cache.cache_clear()
        for spec, said in zip(kernels().values(), kept, strict=True):
            spec.__dict__.pop("_declared", None)
            if said is not None:
                spec.__dict__["_declared"] = said
