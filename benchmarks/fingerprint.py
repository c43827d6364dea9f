"""What a simulated figure depends on, in three short digests: kernels, model, machine. The results carry them, and a
test compares them with the tree, so that a table older than what it is of does not go unnoticed."""

import ast
import hashlib
import io
import json
import tokenize
from pathlib import Path

from maxdnn.algorithms.paper.maxwell import KERNELS
from maxdnn.build.cubins import cubin
from maxdnn.cubin import read
from maxdnn.simulator import timing
from maxdnn.simulator.machine import Machine

ARCH = "sm_52"  # of the cubins that are simulated
MODEL = ("*.py",)


def fingerprint(machine: Machine) -> dict[str, str]:
    """kernels: the code of the convolution kernels. model: the sources of the timing model, without comments,
    docstrings and blank lines, and the classes of the instruction table. machine: the figures of the preset."""
    root = Path(timing.__file__).parent
    code = {spec.name: read(cubin(spec.source.removesuffix(".sass"), ARCH)).kernel(spec.name).code.hex()
            for spec in KERNELS}
    sources = {path.name: statements(path.read_text()) for pattern in MODEL for path in sorted(root.glob(pattern))}
    classes = json.loads((root.parent / "isa" / "maxwell.json").read_text())["classes"]
    figures = {name: figure.value for name, figure in machine.figures.items()}
    return {"kernels": digest(code), "model": digest([sources, classes]), "machine": digest([machine.name, figures])}


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def statements(source: str) -> list[str]:
    """The lines of a Python source without comments, docstrings and blank lines."""
    lines: list[str | None] = list(source.splitlines())
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = str(lines[row - 1])[:column]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
            text = node.body[0]
            for row in range(text.lineno, (text.end_lineno or text.lineno) + 1):
                lines[row - 1] = None
    return [line.rstrip() for line in lines if line is not None and line.strip()]
