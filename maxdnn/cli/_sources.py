"""Where the instructions of kernels come from: the lines of a source, told apart by kernel."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Source:
    """`lines`: (place, text) of each instruction; `files`: text of every file that a place names."""

    lines: list[tuple[str, str]]
    files: dict[str, str]


def of_cubin(path: Path, cubin: bytes, kernel: str) -> dict[str, Source]:
    """The source of the kernels of a cubin, or of `kernel` alone. Raises AssemblyError for one that cannot be read,
    SimulationError for one of another kernel."""
    from ..build.assemble import files, source_lines
    from ..cubin import read
    from ..errors import SimulationError

    lines = source_lines(path)
    bodies = {k.name: _body([i.opcode for i in k.instructions]) for k in read(cubin).kernels.values()}
    if len(lines) == bodies[kernel]:
        bodies = {kernel: bodies[kernel]}
    elif len(lines) != sum(bodies.values()):
        raise SimulationError(f"the source must be that of the kernel ({path} has {len(lines)} instructions, {kernel} "
                              f"{bodies[kernel]})")
    texts = {file.name: file.read_text("utf-8", "replace") for file in files(path)}
    found, at = {}, 0
    for name, count in bodies.items():
        mine = lines[at:at + count]
        named = {place.rpartition(":")[0] for place, _ in mine}
        found[name] = Source(mine, {file: text for file, text in texts.items() if file in named})
        at += count
    return found


def of_launches(launches: Iterable[Any]) -> dict[str, Source]:
    """The sources of the kernels of a plan's launches."""
    from ..build.cubins import asset, cubin

    found: dict[str, Source] = {}
    for launch in launches:
        spec = launch.spec
        if spec.name not in found:
            code = cubin(spec.source.removesuffix(".sass"), "sm_52")
            found |= of_cubin(asset("sass") / spec.source, code, spec.name)
    return found


def _body(opcodes: list[str]) -> int:
    """Instructions of a kernel without its end: a branch to itself, then padding."""
    count = len(opcodes)
    while count and opcodes[count - 1] == "NOP":
        count -= 1
    return count - 1 if count and opcodes[count - 1] == "BRA" else count
