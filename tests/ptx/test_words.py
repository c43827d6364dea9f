"""Sums of 64 bits that code makes of two words: a translation adds them at once. Random programs of additions, by the
tracer that writes translations, compiled for the host, against whole numbers."""

import ctypes
import random
import re

from llvmlite import ir

from maxdnn import cubin
from maxdnn.build.assemble import assemble
from maxdnn.emulator.native import Code, compile_module
from maxdnn.ptx.thread import I32, Thread
from maxdnn.semantics import meaning
from tests.emulator.test_undefined import HEADER
from tests.ptx.test_ptx import of_sass

REGISTERS, PROGRAMS, LENGTH = 6, 3, 150
WORD = 0xFFFFFFFF
END = "\n--:-:-:-:5      EXIT;\n"


def draw(rng):
    """Lines of code, and the same as (kind, d, a, b, sets the carry, adds it)."""
    steps = [(rng.choice(["IADD", "IADD", "LEA"]), *(rng.randrange(REGISTERS) for _ in "dab"), rng.random() < 0.5,
              rng.random() < 0.5) for _ in range(LENGTH)]
    lines = []
    for kind, d, a, b, sets, adds in steps:
        to, place = f"R{d}" + ".CC" * sets, "--:-:-:-:6      "
        if kind == "IADD":
            lines.append(f"{place}IADD{'.X' * adds} {to}, R{a}, {'-' * (a == b)}R{b};")
        else:
            lines.append(f"{place}LEA{'.HI.X' * adds} {to}, R{a}, R{b}, {'RZ, ' * adds}0x2;")
    return steps, "\n".join(lines)


def by_numbers(steps, registers):
    found, carry = list(registers), 0
    for kind, d, a, b, sets, adds in steps:
        x, y, more = found[a], found[b], carry if adds else 0
        if kind == "LEA":
            x = x >> 30 if adds else x << 2 & WORD
        elif a == b:
            y, more = ~y & WORD, carry if adds else 1
        total = x + y + more
        found[d], carry = total & WORD, total >> 32 if sets else carry
    return found


def on_the_host(kernel):
    """The kernel's instructions but the last as a function of registers, in place."""
    module = ir.Module("words")
    fn = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType()]), "run")
    builder = ir.IRBuilder(fn.append_basic_block("entry"))
    thread = Thread(builder, kernel, None, {}, {"shared": None})
    place = [builder.gep(fn.args[0], [ir.Constant(I32, n)], source_etype=I32) for n in range(REGISTERS)]
    for n in range(REGISTERS):
        thread.set_reg(n, builder.load(place[n], typ=I32))
    for inst in kernel.instructions:
        if inst.opcode in ("IADD", "LEA"):
            thread.inst = inst
            meaning(inst)(thread, inst)
    for n in range(REGISTERS):
        builder.store(thread.reg(n), place[n])
    builder.ret_void()
    code = Code(compile_module(module))
    return code, ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address("run")), len(re.findall(r"add i64", str(module)))


def test_random_sums_of_words_are_those_of_whole_numbers(tmp_path):
    joined = 0
    for number in range(PROGRAMS):
        rng = random.Random(number)
        steps, lines = draw(rng)
        (tmp_path / "sums.sass").write_text(HEADER + lines + END)
        assemble(tmp_path / "sums.sass", tmp_path / "sums.cubin")
        code, run, pairs = on_the_host(cubin.read(tmp_path / "sums.cubin").kernel())
        joined += pairs
        for _ in range(20):
            given = [rng.choice([0, 1, WORD, 1 << 31, rng.getrandbits(32)]) for _ in range(REGISTERS)]
            registers = (ctypes.c_uint32 * REGISTERS)(*given)
            run(registers)
            assert list(registers) == by_numbers(steps, given), lines
        del code
    assert joined > 10 * PROGRAMS // 2


def test_an_address_of_two_words_is_one_sum(tmp_path):
    text = of_sass(tmp_path, "--:-:-:-:6      IADD R0.CC, R2, R4;\n--:-:-:-:6      IADD.X R1, R3, R5;\n"
                             f"--:-:-:-:2      STG.E [R0], R6;{END}")
    assert "setp" not in text and "selp" not in text, text
