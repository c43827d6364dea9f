"""Running the assembler under test, and reading back what it wrote."""

import io
import re
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile

from maxdnn.isa.control import split_control_word

ROOT = Path(__file__).resolve().parents[2]
MAXAS = ROOT / "tools" / "maxas" / "maxas.pl"
_PERL_WARNING = re.compile(r" at .*\.p[lm] line \d+|internal error")


@dataclass(frozen=True)
class Ran:
    """A finished run: exit status, standard output, standard error."""

    status: int
    out: str
    err: str


def maxas(*arguments: object, timeout: float = 120, assembler: Path = MAXAS) -> Ran:
    """Run maxas.pl. A Perl warning or an internal error of the tool fails the test that made it."""
    done = subprocess.run(["perl", assembler, *map(str, arguments)], capture_output=True, text=True, errors="replace",
                          timeout=timeout, check=False)
    assert not _PERL_WARNING.search(done.stderr), done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


def assemble(folder: Path, source: str, *options: object, name: str = "kernel", assembler: Path = MAXAS) -> bytes:
    """The cubin of a source text; the source must be right."""
    path, cubin = folder / f"{name}.sass", folder / f"{name}.cubin"
    path.write_text(source)
    ran = maxas("-c", *options, "-o", cubin, path, assembler=assembler)
    assert ran.status == 0, ran.err
    return cubin.read_bytes()


def again(cubin: bytes, folder: Path, counted: bool = True) -> bytes:
    """The cubin after extraction as source and assembly; `counted`: the assembler counts registers itself."""
    vendor, source = folder / "vendor.cubin", folder / "source.sass"
    vendor.write_bytes(cubin)
    ran = maxas("-e", vendor, source)
    assert ran.status == 0, ran.err
    text = source.read_text()
    return assemble(folder, re.sub(r"^# MinRegs:.*\n", "", text, flags=re.MULTILINE) if counted else text, "-n", "-w")


def sections(cubin: bytes, prefix: str) -> dict[str, bytes]:
    """Section name without `prefix` -> contents."""
    elf = ELFFile(io.BytesIO(cubin))
    return {s.name[len(prefix):]: s.data() for s in elf.iter_sections() if s.name.startswith(prefix)}


def code_of(cubin: bytes) -> dict[str, bytes]:
    """Kernel name -> machine code."""
    return sections(cubin, ".text.")


def words_of(code: bytes) -> list[tuple[int, int]]:
    """(instruction word, 21 control bits) of every instruction."""
    found = []
    for control, *words in struct.iter_unpack("<4Q", code):
        found += zip(words, split_control_word(control), strict=True)
    return found


def words(folder: Path, body: str, *options: object,
          header: str = "# Kernel: k\n# SharedSize: 0\n") -> list[tuple[int, int]]:
    """(word, control bits) of a kernel body, the automatic tail left out."""
    count = len(re.findall(r";\s*(?:(?:#|//).*)?$", body, re.MULTILINE))
    return words_of(code_of(assemble(folder, header + body, *options))["k"])[:count]


def texts(cubin: bytes) -> dict[str, list[str]]:
    """Kernel name -> vendor disassembler's text of its instructions, blanks squeezed."""
    from tests import oracles
    return {k: [" ".join(t.split()) for _, t in lines] for k, lines in oracles.disassembly(cubin).items()}
