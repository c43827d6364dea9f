"""The imports of maxdnn against the drawing of its rooms in DESIGN.md: every arrow that is used is drawn, every arrow
that is drawn is used, none leads in a circle, heavy packages stay in their rooms. `pytest -s` shows what was found."""

import ast
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping

import pytest

import maxdnn

ROOT = pathlib.Path(maxdnn.__file__).parent
FREE = {"__init__", "cli"}  # the lazy public names and the console commands may use every room
COMPUTED = {"__init__.py"}  # public names by need; each command's module by its name
HOMES = {"pycuda": ("runtime.devices.cuda",), "llvmlite": ("emulator", "ptx"), "numba": ("simulator",),
         "torch": ("torch",)}
Arrows = dict[str, set[str]]


def drawing(text: str) -> Arrows:
    """The lines `room -> room, room` of the block of DESIGN.md that is marked as rooms."""
    block = re.search(r"^```rooms\n(.*?)^```", text, re.M | re.S)
    assert block, "DESIGN.md has no block of rooms"
    found: Arrows = {}
    for line in block[1].splitlines():
        room, arrow, targets = line.partition("->")
        assert arrow and room.strip() not in found, f"not a line of the drawing: {line!r}"
        found[room.strip()] = {t.strip() for t in targets.split(",") if t.strip()}
    return found


DRAWN = drawing((ROOT.parent / "DESIGN.md").read_text())


def module_of(path: pathlib.Path, root: pathlib.Path = ROOT) -> str:
    parts = path.relative_to(root.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: pathlib.Path, root: pathlib.Path = ROOT) -> Iterator[str]:
    """Absolute dotted names of everything a file imports, wherever in the file and whatever way: a module where the
    name is one of ours, else what was written; but not what only the type checker follows. Fails for an import whose
    name is computed."""
    package = list(path.relative_to(root.parent).parts[:-1])
    for node in _run(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[:len(package) - node.level + 1] if node.level else []
            stem = [*base, *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                whole = root.parent.joinpath(*stem, alias.name)
                is_module = whole.with_suffix(".py").exists() or (whole / "__init__.py").exists()
                yield ".".join([*stem, alias.name] if is_module else stem)
        elif isinstance(node, ast.Call) and _callee(node) in ("import_module", "__import__"):
            name = node.args[0] if node.args else None
            if not isinstance(name, ast.Constant) or not isinstance(name.value, str):
                assert path.name in COMPUTED, f"{path}:{node.lineno} imports by a computed name, which nobody can draw"
                continue
            dots = len(name.value) - len(name.value.lstrip("."))
            base = package[:len(package) - dots + 1] if dots else []
            yield ".".join([*base, name.value.lstrip(".")])


def _run(node: ast.AST) -> Iterator[ast.AST]:
    """A syntax tree without the bodies of `if TYPE_CHECKING:`."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING"):
            yield from _run(child)


def _callee(node: ast.Call) -> str | None:
    return getattr(node.func, "attr", getattr(node.func, "id", None))


def room_of(module: str, rooms: Mapping[str, object] = DRAWN) -> str:
    """The room of a module of ours: the longest name in the drawing that it lies in, else its first part."""
    parts = module.split(".")[1:] or ["__init__"]
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in rooms:
            return ".".join(parts[:length])
    return parts[0]


FILES = sorted(ROOT.rglob("*.py"))
BOUND = [path for path in FILES if room_of(module_of(path)) not in FREE]


def used_arrows() -> Arrows:
    found: Arrows = {room_of(module_of(path)): set() for path in BOUND}
    for path in BOUND:
        room = room_of(module_of(path))
        ours = {room_of(name) for name in imports(path) if name.split(".")[0] == "maxdnn"}
        found[room] |= ours - {room, "errors"}
    return found


def test_the_drawing_shows_exactly_the_arrows_that_are_used() -> None:
    """Every room may import errors, which is not drawn."""
    used = used_arrows()
    print("\nrooms and arrows found:")
    for room in sorted(used):
        print(f"{room} -> {', '.join(sorted(used[room]))}".rstrip())
    undrawn = {room: targets - DRAWN.get(room, set()) for room, targets in used.items()}
    unused = {room: targets - used.get(room, set()) for room, targets in DRAWN.items()}
    assert not {room: t for room, t in undrawn.items() if t}, "used, but not drawn in DESIGN.md"
    assert not {room: t for room, t in unused.items() if t}, "drawn in DESIGN.md, but not used"
    assert set(used) == set(DRAWN)


def circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Some path that comes back to where it began; empty if there is none."""
    done: set[str] = set()

    def walk(at: str, path: list[str]) -> list[str]:
        if at in path:
            return [*path[path.index(at):], at]
        if at not in done:
            for after in sorted(graph.get(at, ())):
                if found := walk(after, [*path, at]):
                    return found
            done.add(at)
        return []
    return next((found for start in sorted(graph) if (found := walk(start, []))), [])


def test_no_arrow_leads_in_a_circle() -> None:
    assert not circle(DRAWN)


def test_no_file_imports_itself_by_any_way_not_inside_a_function_either() -> None:
    ours = {module_of(path): path for path in FILES}
    graph = {name: {i for i in imports(path) if i in ours} - {name} for name, path in ours.items()}
    del graph["maxdnn"]  # the public names, imported when asked for
    assert not circle(graph)


def test_circles_and_hidden_imports_would_be_seen(tmp_path: pathlib.Path) -> None:
    package = tmp_path / "maxdnn"
    (package / "sub").mkdir(parents=True)
    lines = {"__init__.py": "", "sub/__init__.py": "", "a.py": "def f():\n    from .sub import b",
             "sub/b.py": "import importlib\nx = importlib.import_module('..c', __package__)",
             "c.py": "__import__('maxdnn.a')", "d.py": "from importlib import import_module\nimport_module(name)"}
    for name, text in lines.items():
        (package / name).write_text(text)
    graph = {module_of(package / name, package): {i for i in imports(package / name, package) if i[:6] == "maxdnn"}
             for name in ("a.py", "sub/b.py", "c.py")}
    assert graph == {"maxdnn.a": {"maxdnn.sub.b"}, "maxdnn.sub.b": {"maxdnn.c"}, "maxdnn.c": {"maxdnn.a"}}
    assert circle(graph) == ["maxdnn.a", "maxdnn.sub.b", "maxdnn.c", "maxdnn.a"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
    with pytest.raises(AssertionError, match="computed name"):
        list(imports(package / "d.py", package))


def test_a_drawing_is_read_line_by_line() -> None:
    assert drawing("x\n```rooms\na -> b, c\nb ->\n```\n") == {"a": {"b", "c"}, "b": set()}
    with pytest.raises(AssertionError, match="not a line of the drawing"):
        drawing("```rooms\na - b\n```\n")


@pytest.mark.parametrize("path", BOUND, ids=lambda path: str(path.relative_to(ROOT)))
def test_heavy_packages_are_imported_only_at_home(path: pathlib.Path) -> None:
    for name in imports(path):
        home = HOMES.get(name.split(".")[0])
        assert home is None or room_of(module_of(path)) in home, f"{name} belongs in {home}"


def test_real_gpus_take_only_ptx_text_from_the_emulator() -> None:
    taken = {name for path in (ROOT / "runtime" / "devices" / "cuda").glob("*.py") for name in imports(path)
             if name.startswith(("maxdnn.emulator", "maxdnn.ptx"))}
    assert taken == {"maxdnn.ptx.translate"}


def test_arrows_never_lead_back_from_the_machines_facts() -> None:
    """From these rooms no path leads to a device, the emulator or the user's functions."""
    reach = {room: set(arrows) for room, arrows in DRAWN.items()}
    for _ in DRAWN:
        for found in reach.values():
            found |= {far for near in found for far in reach.get(near, ())}
    for room in ("isa", "cubin", "semantics", "simulator", "checker", "problem", "algorithms",
                 "planning.plan", "planning.select"):
        assert not reach[room] & {"emulator", "runtime.devices.cuda", "runtime.devices.virtual", "runtime.engine",
                                  "conv"}, room


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sorted(name for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize("statement", [
    "import maxdnn",
    "import maxdnn; maxdnn.plan(maxdnn.ConvShape(4, 3, 5, 5, 4, 3, 3)), maxdnn.conv_fprop",
    "import maxdnn.isa, maxdnn.cubin",
    "from maxdnn.cli import build_parser; build_parser()",
])
def test_importing_touches_no_gpu_and_no_compiler(statement: str) -> None:
    assert not _loaded_by(statement) & {"llvmlite", "numba", "pycuda", "matplotlib", "rich"}
