"""`maxdnn disasm`: what a cubin holds, as the vendor's disassembler would print it, or as JSON."""

import argparse
import json
from typing import TYPE_CHECKING, Any

from ._types import file_name

if TYPE_CHECKING:
    from ..cubin import CubinKernel
    from ..isa import Instruction

HELP = "print the kernels of a cubin: address, control code, instruction"


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
    return 0


def _kernel_lines(kernel: "CubinKernel") -> list[str]:
    head = [f"# {kernel.name}  {kernel.arch}  regs {kernel.registers}  shared {kernel.shared_bytes} B  "
            f"local {kernel.local_bytes} B  barriers {kernel.barriers}  param bytes {kernel.param_bytes}",
            "# address  wait:read:write:yield:stall  instruction"]
    return head + [f"/*{i.address:04x}*/  {i.control}  {_indent(i)};" for i in kernel.instructions]


def _indent(inst: "Instruction") -> str:
    """The text with the guard in a column of its own."""
    guard = str(inst.guard)
    text = inst.text()
    return f"{guard:5} {text.removeprefix(guard).lstrip()}"


def _kernel_json(kernel: "CubinKernel") -> dict[str, Any]:
    return {
        "name": kernel.name, "registers": kernel.registers, "shared_bytes": kernel.shared_bytes,
        "local_bytes": kernel.local_bytes, "barriers": kernel.barriers,
        "params": [{"ordinal": p.ordinal, "offset": p.offset, "size": p.size} for p in kernel.params],
        "instructions": [{"address": i.address, "word": f"0x{i.word:016x}", "control": str(i.control),
                          "reuse": i.control.reuse, "opcode": i.opcode, "guard": str(i.guard), "text": i.text()}
                         for i in kernel.instructions],
    }
