"""Sizes that keep the code readable: of files and functions, of the top level, of what two kernel sources share."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("maxdnn", "sass", "tests", "tools", "benchmarks")
ENDINGS = (".py", ".sass", ".inc", ".pm", ".pl")
MOST_LINES, MOST_OF_A_FUNCTION, MOST_AT_THE_TOP, SHARED = 450, 60, 10, 8
LONGER: set[str] = set()  # functions that wait to be cut


def files(*endings: str) -> list[Path]:
    return [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))
            if path.suffix in endings and "__pycache__" not in path.parts]


def test_files_are_short():
    lengths = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in files(*ENDINGS)}
    assert lengths and not {name: n for name, n in lengths.items() if n > MOST_LINES}


def test_functions_are_short_beside_their_docstrings():
    long = set()
    for path in files(".py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                text = node.body[0] if ast.get_docstring(node) is not None else None
                length = node.end_lineno - node.lineno + 1 - (text.end_lineno - text.lineno + 1 if text else 0)
                if length > MOST_OF_A_FUNCTION:
                    long.add(f"{path.relative_to(ROOT)}: {node.name}")
    assert long <= LONGER


def test_the_top_level_has_few_files():
    assert len(list((ROOT / "maxdnn").glob("*.py"))) <= MOST_AT_THE_TOP


def shape(line: str) -> str | None:
    """A line of a kernel source with names of operands alike; None for comments and what only frames lines."""
    text = re.sub(r"\s+", " ", line.strip())
    if not text or text.startswith("//") or (text[0] == "#" and not re.match(r"# ?(Param|Texture|Constant)", text)):
        return None
    if re.fullmatch(r"</?(CODE|SCHEDULE_BLOCK)>|\};?|TEXT|return '';", text):
        return None
    found = re.fullmatch(r"((?:\S+:){4}\S) (?:@!?\S+ )?([A-Z][A-Z0-9_.]*)(.*)", text)
    return text if found is None else found[1] + found[2] + re.sub(r"(?<![\w.])(?!0x)[A-Za-z_]\w*", "NAME", found[3])


def test_no_two_places_of_the_kernel_sources_share_eight_lines():
    places = defaultdict(list)
    for path in files(".sass", ".inc"):
        if path.relative_to(ROOT).parts[0] != "sass":
            continue
        lines = [(number, text) for number, line in enumerate(path.read_text().splitlines(), 1)
                 if (text := shape(line)) is not None]
        for at in range(len(lines) - SHARED + 1):
            key = tuple(text for _, text in lines[at:at + SHARED])
            last = places[key][-1] if places[key] else None
            if last is None or last[0] != path or at - last[2] >= SHARED:  # a run may repeat in itself
                places[key].append((path, lines[at][0], at))
    assert places
    assert not [[f"{path.name}:{number}" for path, number, _ in found] for found in places.values() if len(found) > 1]
