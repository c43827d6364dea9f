"""Every kernel's file begins with a map of its registers, its scoreboards and its budget, and these are true."""

import re
from pathlib import Path

import pytest

from maxdnn.build.cubins import HOPPER, architectures, asset, cubin, sources
from maxdnn.cubin import CubinKernel, read
from maxdnn.simulator.machine import preset
from maxdnn.simulator.occupancy import occupancy

from .machine_code import loops, main_loop

SOURCES = [source for source in sources() if not source.startswith("probes/")]  # kernels that plans launch
COLUMNS = "registers  shared  CTAs per SM  main loop  FFMA of it"
H100 = {"warps": 64, "ctas": 32, "registers": 65536, "shared": 228 * 1024}  # of an SM: CUDA C++ Programming Guide, 9.0


def _comments(path: Path) -> list[str]:
    """Comment lines in front of everything but includes."""
    head = []
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            head.append(line)
        elif line.strip() and not line.startswith("<INCLUDE"):
            break
    return head


def _head(source: str) -> str:
    """Comments of a source, and the heads of the fragments it includes, of which one is the body of its kernels."""
    path = asset("sass") / f"{source}.sass"
    text = path.read_text()
    found = dict.fromkeys(re.findall(r'<INCLUDE file="([^"]+)"/>', text))
    own = "\n".join(line for line in text.splitlines() if line.startswith("#"))
    return "\n#\n".join([own, *("\n".join(_comments(path.parent / name)) for name in found)])


def _sections(head: str, title: str) -> str:
    """The text under a title: up to the next one, or to an empty comment line."""
    found = re.findall(rf"^# {title}\s(.*(?:\n#  .*)*)", head, re.M)
    assert found, f"{title} must be a section of the head"
    return "\n".join(found)


def _numbers(text: str) -> set[int]:
    """Those that a section names, by ranges or one by one."""
    plain = re.sub(r"0x\w+|\(\w+\)|\w*[A-Za-z]\w*", " ", text)
    found = re.findall(r"(\d+)(?:-(\d+))?", plain)
    return {number for first, last in found for number in range(int(first), int(last or first) + 1)}


def _used(kernel: CubinKernel) -> set[int]:
    """Registers that instructions name."""
    return {number for inst in kernel.instructions for number in (*inst.reads(), *inst.writes()) if number < 255}


def _ctas(kernel: CubinKernel, arch: str) -> int:
    assert kernel.reqntid
    threads = kernel.reqntid[0]
    if arch != HOPPER:
        return occupancy(preset("gm204"), kernel.registers, kernel.shared_bytes, threads).blocks
    return min(H100["warps"] // -(-threads // 32), H100["ctas"], registers_allow(kernel),
               H100["shared"] // kernel.shared_bytes)


def registers_allow(kernel: CubinKernel) -> int:
    """CTAs an SM for whose warps it has registers, since sm_80."""
    assert kernel.reqntid
    each = -(-kernel.registers // 8) * 8 * 32
    return H100["registers"] // each // 4 * 4 // -(-kernel.reqntid[0] // 32)


def _budget(kernel: CubinKernel, arch: str) -> list[str]:
    shared = kernel.shared_bytes - kernel.system_shared_bytes
    loop = main_loop(kernel) if loops(kernel) else []
    ffma = sum(inst.opcode == "FFMA" for inst in loop)
    return [str(figure) for figure in (kernel.registers, shared, _ctas(kernel, arch), len(loop) or "-", ffma or "-")]


@pytest.mark.sampled(4, 14)
@pytest.mark.parametrize("source", SOURCES)
def test_the_budget_at_the_head_is_that_of_the_cubin(source):
    arch = architectures(source)[-1]
    kernels = read(cubin(source, arch)).kernels
    wanted = {name: _budget(kernel, arch) for name, kernel in kernels.items()}
    text = "\n".join(_comments(asset("sass") / f"{source}.sass"))
    rows = re.search(rf"^# Budget +{COLUMNS}\n((?:#   .*\n)+)", text + "\n", re.M)
    found = {name: figures for name, *figures in map(str.split, rows[1].replace("#", "").splitlines())} if rows else {}
    assert found == wanted, _table(wanted)


def _table(budgets: dict[str, list[str]]) -> str:
    """What the head should say."""
    width, at = max(map(len, budgets)), (10, 8, 13, 11, 12)
    return "\n".join([f"# Budget {' ' * (width - 5)}{COLUMNS}",
                      *(f"#   {name:{width}}" + "".join(map(str.rjust, row, at)) for name, row in budgets.items())])


@pytest.mark.sampled(4, 14)
@pytest.mark.parametrize("source", SOURCES)
def test_the_head_names_every_scoreboard_and_register(source):
    head = _head(source)
    scoreboards = _numbers(_sections(head, "Scoreboards"))
    registers = _sections(head, "Registers")
    for kernel in read(cubin(source, architectures(source)[-1])).kernels.values():
        controls = [inst.control for inst in kernel.instructions]
        used = {board + 1 for c in controls for board in (c.read_barrier, c.write_barrier) if board is not None}
        assert used <= scoreboards, f"{kernel.name}: {sorted(used - scoreboards)}"
        if "one after the other" not in registers and "$" not in registers:
            assert _used(kernel) <= _numbers(registers), f"{kernel.name}: {sorted(_used(kernel) - _numbers(registers))}"
