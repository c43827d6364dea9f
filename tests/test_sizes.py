"""Sizes that keep the code readable: of files and functions, of the top level, of what two places share."""

import ast
import io
import keyword
import re
import tokenize
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("maxdnn", "sass", "tests", "tools", "benchmarks")
ENDINGS = (".py", ".sass", ".inc", ".pm", ".pl")
MOST_LINES, MOST_OF_A_FUNCTION, MOST_AT_THE_TOP, SHARED, DISTINCT = 450, 60, 10, 8, 4
ALIKE = {tokenize.NAME: "NAME", tokenize.NUMBER: "NUMBER", tokenize.STRING: "STRING"}


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
    assert not long


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


def python_shapes(path: Path) -> list[tuple[int, str]]:
    """(number, text) of the lines of a module with names, numbers and short strings alike; without comments, imports,
    docstrings of a line and lines of brackets."""
    lines: dict[int, list[str]] = defaultdict(list)
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        first = token.start[0]
        if token.type == tokenize.STRING and token.end[0] > first:
            for number, line in enumerate(token.string.splitlines(), first):
                lines[number].append(line.strip())
        elif token.type in ALIKE:
            lines[first].append(token.string if keyword.iskeyword(token.string) else ALIKE[token.type])
        elif token.string.strip() and token.type != tokenize.COMMENT:
            lines[first].append(token.string)
    texts = [(number, " ".join(lines[number])) for number in sorted(lines)]
    return [(number, text) for number, text in texts if not re.fullmatch(r"[\W_]*|STRING|(from|import) .*", text)]


def repeated(sources: dict[Path, list[tuple[int, str]]], distinct: int = 1) -> list[list[str]]:
    """Where runs of SHARED lines stand more than once that have so many distinct lines."""
    places = defaultdict(list)
    for path, lines in sources.items():
        for at in range(len(lines) - SHARED + 1):
            key = tuple(text for _, text in lines[at:at + SHARED])
            last = places[key][-1] if places[key] else None
            if last is None or last[0] != path or at - last[2] >= SHARED:  # a run may repeat in itself
                places[key].append((path, lines[at][0], at))
    assert places
    return [[f"{path.name}:{number}" for path, number, _ in found] for key, found in places.items()
            if len(found) > 1 and len(set(key)) >= distinct]


def test_no_two_places_of_the_modules_share_eight_lines():
    """Fields of records do not count: of those, one after the other, most are alike."""
    sources = {path: python_shapes(path) for path in files(".py") if path.is_relative_to(ROOT / "maxdnn")}
    assert not repeated(sources, DISTINCT)


def test_no_two_places_of_the_kernel_sources_share_eight_lines():
    sources = {path: [(number, text) for number, line in enumerate(path.read_text().splitlines(), 1)
                      if (text := shape(line)) is not None]
               for path in files(".sass", ".inc") if path.is_relative_to(ROOT / "sass")}
    assert not repeated(sources)
