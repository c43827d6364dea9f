"""Short kernels for the checker's tests, written as lines of machine code built with the encoder, and mutants of
compiled kernels: the same words under other control codes."""

import dataclasses
import pathlib
import tempfile

from maxdnn import cubin
from maxdnn.build.assemble import assemble
from maxdnn.cubin import CubinKernel
from maxdnn.isa.control import Control, join_control_word


def with_controls(kernel: CubinKernel, controls: dict[int, Control]) -> CubinKernel:
    """The kernel with the control codes of some instructions (by index) replaced."""
    fields = [control.pack() for _, _, control in kernel.words()]
    for index, control in controls.items():
        fields[index] = control.pack()
    code = bytearray(kernel.code)
    for group in range(len(code) // 32):
        word = join_control_word(tuple(fields[3 * group:3 * group + 3]))  # type: ignore[arg-type]
        code[32 * group:32 * group + 8] = word.to_bytes(8, "little")
    return dataclasses.replace(kernel, code=bytes(code))


def with_control(kernel: CubinKernel, index: int, **changes: object) -> CubinKernel:
    """The kernel with fields of one instruction's control code changed."""
    control = kernel.words()[index][2]
    return with_controls(kernel, {index: dataclasses.replace(control, **changes)})  # type: ignore[arg-type]


def assembled(lines: str, shared: int = 4096, threads: int = 64) -> CubinKernel:
    """A kernel from lines of the MaxAs dialect (control code, instruction), reuse flags as written."""
    head = f"# Kernel: k\n# Arch: sm_52\n# SharedSize: {shared}\n# Params(1):\n#\t0:0x140:8:0\n#\n# Instructions:\n\n"
    with tempfile.TemporaryDirectory() as folder:
        source, output = pathlib.Path(folder, "k.sass"), pathlib.Path(folder, "k.cubin")
        source.write_text(head + lines)
        assemble(source, output, no_reuse=True)
        return dataclasses.replace(cubin.read(output).kernel(), reqntid=(threads, 1, 1))
