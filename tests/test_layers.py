"""The imports of maxdnn against the drawing of its rooms: arrows point one way, heavy packages stay in their rooms."""

import ast
import pathlib
import subprocess
import sys
from collections.abc import Iterator

import pytest

import maxdnn

ROOT = pathlib.Path(maxdnn.__file__).parent

# room -> rooms it may import; every room may import errors, the console commands may import every room
ARROWS = {
    "errors": set(),
    "isa": set(),
    "trace": set(),
    "cache": set(),
    "forks": set(),
    "shape": set(),
    "kernels": set(),
    "arrays": set(),
    "assemble": set(),
    "layers": {"shape"},
    "reference": {"shape"},
    "planner": {"kernels", "shape"},
    "cubin": {"isa"},
    "semantics": {"isa"},
    "launch": {"cubin"},
    "check": {"cubin", "isa"},
    "sim": {"cache", "forks", "isa", "trace"},
    "cubins": {"assemble", "check"},
    "emu": {"cache", "cubin", "device", "forks", "isa", "launch", "semantics", "trace"},  # of device only the protocol
    "gpu": {"cubin", "device", "emu", "launch"},
    "device": {"emu", "gpu"},
    "conv": {"arrays", "cubins", "device", "gpu", "kernels", "planner", "shape"},
    "timing": {"cubin", "cubins", "device", "emu", "isa", "kernels", "planner", "shape", "sim", "trace"},
    "cli": {"commands"},
    "__main__": {"cli"},
}
HOMES = {"pycuda": "gpu", "llvmlite": "emu", "numba": "sim"}


def _imports(path: pathlib.Path) -> Iterator[str]:
    """Absolute dotted names of everything a file imports, wherever in the file."""
    package = ["maxdnn", *path.relative_to(ROOT).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[:len(package) - node.level + 1] if node.level else []
            stem = base + ([node.module] if node.module else [])
            yield from [".".join(stem)] if node.module else [".".join([*stem, alias.name]) for alias in node.names]


def _files() -> list[pathlib.Path]:
    return sorted(ROOT.rglob("*.py"))


def _room(path: pathlib.Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def _below_the_top() -> list[pathlib.Path]:
    """All files but the console commands and the lazy public names, which may use every room."""
    return [path for path in _files() if _room(path) not in ("commands", "__init__")]


@pytest.mark.parametrize("path", _below_the_top(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_only_rooms_the_drawing_allows(path: pathlib.Path) -> None:
    room = _room(path)
    assert room in ARROWS, f"{room} is not in the drawing: say in ARROWS what it may import"
    used = {name.split(".")[1] for name in _imports(path) if name.startswith("maxdnn.")}
    assert used - {room, "errors"} <= ARROWS[room]


@pytest.mark.parametrize("path", _files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_heavy_packages_are_imported_only_at_home(path: pathlib.Path) -> None:
    for name in _imports(path):
        home = HOMES.get(name.split(".")[0])
        assert home in (None, _room(path)), f"{name} belongs in {home}"


def test_the_gpu_takes_only_ptx_text_from_the_emulator() -> None:
    assert {name for name in _imports(ROOT / "gpu.py") if name.startswith("maxdnn.emu")} <= {"maxdnn.emu.ptx"}


def test_arrows_never_lead_back_from_the_machines_facts() -> None:
    """From isa, semantics, sim and check no path leads to a device, the emulator or a convolution."""
    reach = {room: set(arrows) for room, arrows in ARROWS.items()}
    for _ in ARROWS:
        for found in reach.values():
            found |= {far for near in found for far in reach.get(near, ())}
    for room in ("isa", "cubin", "semantics", "sim", "check", "planner"):
        assert not reach[room] & {"emu", "gpu", "device", "conv", "cli"}


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sorted(name for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize("statement", [
    "import maxdnn",
    "import maxdnn.isa, maxdnn.cubin",
    "from maxdnn.cli import build_parser; build_parser()",
])
def test_importing_touches_no_gpu_and_no_compiler(statement: str) -> None:
    assert not _loaded_by(statement) & {"llvmlite", "numba", "pycuda", "matplotlib", "rich"}
