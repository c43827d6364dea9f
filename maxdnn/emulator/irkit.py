"""Structured control flow over llvmlite's builder, for the runtime functions that are written directly in LLVM IR."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
PTR = ir.PointerType()
_TYPES = {"i32": I32, "i64": I64, "ptr": PTR}
V = Any


def c32(value: int) -> ir.Constant:
    return ir.Constant(I32, value & 0xFFFFFFFF)


def c64(value: int) -> ir.Constant:
    return ir.Constant(I64, value & 0xFFFFFFFFFFFFFFFF)


def at(b: ir.IRBuilder, base: V, offset: V | int) -> V:
    """base + offset bytes."""
    return b.gep(base, [c64(offset) if isinstance(offset, int) else offset], source_etype=I8)


def memset(b: ir.IRBuilder, where: V, byte: int, size: V) -> None:
    call(b, "llvm.memset.p0.i64", ir.VoidType(), where, ir.Constant(I8, byte), size, ir.Constant(I1, 0))


def get(b: ir.IRBuilder, base: V, fields: Mapping[str, tuple[int, str]], name: str) -> V:
    offset, kind = fields[name]
    return b.load(at(b, base, offset), typ=_TYPES[kind])


def put(b: ir.IRBuilder, base: V, fields: Mapping[str, tuple[int, str]], name: str, value: V | int) -> None:
    offset, kind = fields[name]
    if isinstance(value, int):
        value = ir.Constant(_TYPES[kind], value)
    b.store(value, at(b, base, offset))


def field(b: ir.IRBuilder, base: V, fields: Mapping[str, tuple[int, str]], name: str) -> V:
    """The address of a field."""
    return at(b, base, fields[name][0])


def call(b: ir.IRBuilder, name: str, result: ir.Type, *args: V) -> V:
    """Call a function, which its name and what it is given declare."""
    callee = b.module.globals.get(name)
    if callee is None:
        callee = ir.Function(b.module, ir.FunctionType(result, [a.type for a in args]), name)
    return b.call(callee, args)


class Function:
    """A function being written: `self.b` is the builder, `self.args` its arguments; variables live in allocas."""

    def __init__(self, module: ir.Module, name: str, result: ir.Type, *arguments: ir.Type) -> None:
        self.fn = ir.Function(module, ir.FunctionType(result, arguments), name)
        self.args = self.fn.args
        self.b = ir.IRBuilder(self.fn.append_basic_block("entry"))
        self._entry = self.b.block

    def variable(self, type_: ir.Type, initial: V | None = None) -> V:
        with self.b.goto_entry_block():
            slot = self.b.alloca(type_)
        slot.type = PTR  # llvmlite gives typed pointers, LLVM has none
        if initial is not None:
            self.b.store(initial, slot)
        return slot

    def array(self, type_: ir.Type, count: int) -> V:
        with self.b.goto_entry_block():
            slot = self.b.alloca(ir.ArrayType(type_, count))
            slot.align = 64
        slot.type = PTR
        return slot

    @contextmanager
    def while_(self, condition: Any) -> Iterator[None]:
        """Loop while `condition()` (IR built at the loop head) holds."""
        head = self.fn.append_basic_block("head")
        body = self.fn.append_basic_block("body")
        done = self.fn.append_basic_block("done")
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(condition(), body, done)
        self.b.position_at_end(body)
        yield
        if not self.b.block.is_terminated:
            self.b.branch(head)
        self.b.position_at_end(done)

    @contextmanager
    def for_(self, first: V, end: V) -> Iterator[V]:
        """Count an i32 from `first` up to `end`; yields the counter's value."""
        slot = self.variable(I32, first)
        with self.while_(lambda: self.b.icmp_unsigned("<", self.b.load(slot, typ=I32), end)):
            now = self.b.load(slot, typ=I32)
            yield now
            if not self.b.block.is_terminated:
                self.b.store(self.b.add(now, c32(1)), slot)

    @contextmanager
    def lanes(self, mask: V) -> Iterator[V]:
        """Loop over the set bits of an i32 mask, lowest first."""
        left = self.variable(I32, mask)
        with self.while_(lambda: self.b.icmp_unsigned("!=", self.b.load(left, typ=I32), c32(0))):
            now = self.b.load(left, typ=I32)
            lane = self.b.cttz(now, ir.Constant(I1, 1))
            self.b.store(self.b.and_(now, self.b.sub(now, c32(1))), left)
            yield lane

    @contextmanager
    def if_(self, condition: V) -> Iterator[None]:
        with self.b.if_then(condition):
            yield

    def ret(self, value: V | int) -> None:
        self.b.ret(c32(value) if isinstance(value, int) else value)
