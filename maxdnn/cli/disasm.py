"""`maxdnn disasm`: what a cubin holds, as the vendor's disassembler would print it, or as JSON. A word that is no
instruction of the table is printed as data, and the rest goes on."""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from ._types import file_name

if TYPE_CHECKING:
    from ..cubin import CubinKernel
    from ..isa import Instruction, Undecodable

HELP = "print the kernels of a cubin: address, control code, instruction; exit status 3 if a word is none"
UNKNOWN_WORDS = 3  # exit status


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cubin", type=file_name, metavar="FILE.cubin",
                        help="a cubin for sm_50 to sm_62, sm_80, 86, 89 or 90")
    parser.add_argument("--kernel", metavar="K", help="only this kernel")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of text")


def run(args: argparse.Namespace) -> int:
    from ..cubin import read

    cubin = read(args.cubin)
    kernels = [cubin.kernel(args.kernel)] if args.kernel is not None else list(cubin.kernels.values())
    if args.json:
        print(json.dumps({"arch": cubin.arch, "kernels": [_kernel_json(k) for k in kernels]}, indent=1))
    else:
        print("\n\n".join("\n".join(_kernel_lines(k)) for k in kernels))
    return UNKNOWN_WORDS if sum(_warn_of_unknown(kernel) for kernel in kernels) else 0


def _warn_of_unknown(kernel: "CubinKernel") -> int:
    """How many words of a kernel are no instructions, which a line on stderr says, too."""
    from ..isa import Undecodable

    unknown = [item for item in kernel.listing if isinstance(item, Undecodable)]
    if unknown:
        what = "1 word is" if len(unknown) == 1 else f"{len(unknown)} words are"
        print(f"maxdnn: warning: kernel {kernel.name}: {what} no instruction that the table of {kernel.arch} has, "
              f"the first at 0x{unknown[0].address:04x}; see .word", file=sys.stderr)
    return len(unknown)


def _kernel_lines(kernel: "CubinKernel") -> list[str]:
    head = [f"# {kernel.name}  {kernel.arch}  regs {kernel.registers}  shared {kernel.shared_bytes} B  "
            f"local {kernel.local_bytes} B  barriers {kernel.barriers}  param bytes {kernel.param_bytes}",
            "# address  wait:read:write:yield:stall  instruction"]
    return head + [f"/*{i.address:04x}*/  {i.control}  {_indent(i, kernel)};" for i in kernel.listing]


def _indent(item: "Instruction | Undecodable", kernel: "CubinKernel") -> str:
    """The text with the guard in a column of its own."""
    opcode, guard, text = _parts(item, kernel)
    return f"{guard:5} {text.removeprefix(guard).lstrip()}" if opcode else f"{'':5} {text}"


def _parts(item: "Instruction | Undecodable", kernel: "CubinKernel") -> tuple[str, str, str]:
    """(opcode, guard, text); of a word that is no instruction only the text, which is data."""
    from ..isa import Undecodable

    if isinstance(item, Undecodable):
        return "", "", f".word 0x{item.word:0{kernel.table.word_bits // 4}x}"
    return item.opcode, str(item.guard), item.text()


def _kernel_json(kernel: "CubinKernel") -> dict[str, Any]:
    return {
        "name": kernel.name, "registers": kernel.registers, "shared_bytes": kernel.shared_bytes,
        "local_bytes": kernel.local_bytes, "barriers": kernel.barriers,
        "params": [{"ordinal": p.ordinal, "offset": p.offset, "size": p.size} for p in kernel.params],
        "instructions": [_item_json(item, kernel) for item in kernel.listing],
    }


def _item_json(item: "Instruction | Undecodable", kernel: "CubinKernel") -> dict[str, Any]:
    opcode, guard, text = _parts(item, kernel)
    return {"address": item.address, "word": f"0x{item.word:016x}", "control": str(item.control),
            "reuse": item.control.reuse, "opcode": opcode, "guard": guard, "text": text}
