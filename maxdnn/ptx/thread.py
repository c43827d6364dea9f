"""The abstract machine of the semantics for one thread of a real GPU, in LLVM IR for the NVPTX target: what `Scalars`
has, and constants, memory and textures. Source: NVIDIA PTX ISA."""

from collections.abc import Mapping, Sequence

from llvmlite import ir

from ..cubin import CubinKernel
from ..emulator.lanes import ELEMENTS
from ..emulator.layout import LOCAL_WINDOW, SHARED_WINDOW
from ..emulator.runtime.atomics import OPERATIONS
from ..emulator.stack import stack_bytes
from ..isa import RZ, Instruction
from ..semantics.operands import halves, pair
from .scalars import I32, Scalars, V

I8, I64 = ELEMENTS["i8"], ELEMENTS["i64"]
GLOBAL, SHARED, CONST = 1, 3, 4  # address spaces of the NVPTX target

_ATOMIC = {"ADD": "add", "MIN": "min", "MAX": "max", "INC": "uinc_wrap", "DEC": "udec_wrap", "AND": "and", "OR": "or",
           "XOR": "xor", "EXCH": "xchg"}
_WORDS = {"64": 2, "128": 4}


def pointer(space: int) -> ir.PointerType:
    return ir.PointerType(addrspace=space)


MAX_TEXTURE_OBJECTS = 64


def texture_base(kernel: CubinKernel) -> int:
    """Where the textures' addresses and sizes begin, in bytes from the first parameter."""
    return (kernel.param_bytes + 7) // 8 * 8


class Thread(Scalars):
    """Semantics traced into the current block of `builder`. `banks`: constant banks as globals in the constant space.
    `arrays`: "shared" memory; "zeros", 16 bytes of them, where there are textures, and "objects", their table, where
    there are texture objects."""

    def __init__(self, builder: ir.IRBuilder, kernel: CubinKernel, params: V,
                 banks: Mapping[int, ir.GlobalVariable], arrays: Mapping[str, ir.GlobalVariable]) -> None:
        super().__init__(builder, kernel)
        self._params = params
        self._banks = banks
        self._shared = arrays["shared"]
        self._zeros, self._objects = arrays.get("zeros"), arrays.get("objects")
        self._local_bytes = stack_bytes(kernel)
        self._local = self.slot(ir.ArrayType(I8, self._local_bytes), "local") if self._local_bytes else None
        self._textures = {offset: number for number, (_, offset) in enumerate(kernel.textures)}
        self.executes: V | None = None  # whether the lane executes the fetch at hand; None: it does

    # -- constants ---------------------------------------------------------------------------------------------

    def constant(self, bank: int, offset: int) -> V:
        if bank == 0:
            return self._bank0(offset)
        self._check_bank(bank, offset, 4)
        if bank not in (3, 4):  # the compiler's own, the same in every launch
            return self.const("i32", int.from_bytes(self.kernel.constants[bank][offset:offset + 4], "little"))
        return self.b.load(self._bank_address(bank, self.const("i32", offset)), typ=I32, align=4)

    def _check_bank(self, bank: int, offset: int, size: int) -> None:
        """Of a constant address what is known now: the bank, and an offset no register is added to."""
        held = self._banks[bank].value_type.count if bank in self._banks else 0
        if offset < 0 or offset + size > held:
            self.unsupported(f"constant bank {bank} has {held} bytes" if held else f"there is no constant bank {bank}")

    def _bank0(self, offset: int) -> V:
        for name, count in (("block", "ntid"), ("grid", "nctaid")):
            axis = offset - self.kernel.table.bank0[name]
            if axis in (0, 4, 8):
                return self._sreg(f"{count}.{'xyz'[axis // 4]}")
        if offset in self._textures:
            return self.const("i32", self._textures[offset])
        base, where = self.kernel.param_base, self.kernel.table.bank0
        if base <= offset < base + self.kernel.param_bytes:
            return self.b.load(self._param(self.const("i64", offset - base)), typ=I32, align=4)
        if offset == where["shared_bytes"]:
            return self.sub(self.all_shared_bytes(), self.const("i32", self.kernel.shared_bytes))
        words = {where["shared_window"]: SHARED_WINDOW << 24, where["local_window"]: LOCAL_WINDOW << 24,
                 where["local_bytes"]: self._local_bytes, where["global_first"]: 0, where["global_first"] + 4: 0}
        if offset not in words:
            self.unsupported(f"what stands at 0x{offset:x} of constant bank 0 is not known")
        return self.const("i32", words[offset])

    def _param(self, offset: V) -> V:
        return self.b.gep(self._params, [offset], source_etype=I8)

    def _bank_address(self, bank: int, offset: V) -> V:
        base = self._banks[bank]
        return self.b.gep(base, [self.const("i32", 0), offset], inbounds=True, source_etype=base.value_type)

    # -- addresses ---------------------------------------------------------------------------------------------

    def lower_sum(self, a: V, b: V, total: V) -> None:
        self._lower = self.b.block, a, b, total

    def upper_sum(self, a: V, b: V) -> V | None:
        """One sum of 64 bits, of which registers that hold the lower sum get their word, too: an address made of both
        words is that sum then, where compare, select and two additions would make the upper one."""
        if self._lower is None or self._lower[0] is not self.b.block:
            return None
        block, low_a, low_b, low = self._lower
        total = self.add(pair(self, low_a, a), pair(self, low_b, b))
        lower, upper = halves(self, total)
        for index, (where, value) in list(self._written.items()):
            if where is block and value is low:
                self.set_reg(index, lower)
        return upper

    # -- memory ------------------------------------------------------------------------------------------------

    def _place(self, space: str, address: V) -> V:
        """A pointer for an address of one space."""
        if space == "global":
            return self.b.inttoptr(address, pointer(GLOBAL))
        if space == "shared":
            return self.b.gep(self._shared, [address], source_etype=I8)
        if space == "local":
            if self._local is None:
                self.unsupported("the cubin gives this kernel no local memory")
            return self.b.gep(self._local, [address], source_etype=I8)
        bank = int(space.removeprefix("const"))
        self._check_constant(bank, address)
        if bank == 0:
            return self._param(self.sext(self.sub(address, self.const("i32", self.kernel.param_base)), "i64"))
        return self._bank_address(bank, address)

    def _check_constant(self, bank: int, address: V) -> None:
        """An address that no register is added to must lie in its bank; of bank 0 only parameters are read so."""
        start = self.inst["addr"].value if self.inst else 0
        fixed = isinstance(address, ir.Constant)
        if bank == 0:
            base = self.kernel.param_base
            if not base <= start < base + self.kernel.param_bytes:
                self.unsupported("LDC reads only parameters from constant bank 0")
        else:
            self._check_bank(bank, start if fixed else 0, 1)

    def _generic(self, address: V) -> V:
        """A generic pointer for a generic address of this library: windows by the top byte of a 32-bit address."""
        low = self.trunc(address, "i32")
        tag = self.lshr(address, self.const("i64", 24))
        inside = self.and_(low, self.const("i32", 0xFFFFFF))
        value = self.b.inttoptr(address, ir.PointerType())
        for window, space in ((SHARED_WINDOW, "shared"), (LOCAL_WINDOW, "local")):
            if space == "local" and self._local is None:
                continue
            near = self.b.addrspacecast(self._place(space, inside), ir.PointerType())
            value = self.select(self.icmp("eq", tag, self.const("i64", window)), near, value)
        return value

    def _pointer(self, space: str, address: V) -> V:
        return self._generic(address) if space == "generic" else self._place(space, address)

    def load(self, space: str, address: V, kind: str, dest: int) -> None:
        place = self._pointer(space, address)
        if self.inst is not None and self.inst.mods.get("cache") == "CV":
            parts = self._volatile(place, kind)
        elif kind in _WORDS:
            words = _WORDS[kind]
            value = self.b.load(place, typ=ir.VectorType(I32, words), align=4 * words)
            parts = [self.b.extract_element(value, self.const("i32", n)) for n in range(words)]
        else:
            width = "i32" if kind == "32" else f"i{kind[1:]}"
            value = self.b.load(place, typ=ELEMENTS[width], align=ELEMENTS[width].width // 8)
            parts = [value if width == "i32" else (self.sext if kind[0] == "S" else self.zext)(value, "i32")]
        for n, part in enumerate(parts):
            if dest != RZ:
                self.set_reg(dest + n, part)

    def _volatile(self, place: V, kind: str) -> list[V]:
        """A load that happens each time: what it reads may have changed. The space of the pointer is the load's."""
        space = {GLOBAL: ".global", SHARED: ".shared"}.get(place.type.addrspace, "")
        width = {"32": "u32", "64": "v2.u32", "128": "v4.u32"}.get(kind, kind.lower())
        words = _WORDS.get(kind, 1)
        return self._load_words(f"ld.volatile{space}.{width} {{}}, [${words}];", words, ["l", "~{memory}"],
                                [self.b.ptrtoint(place, I64)])

    def _load_words(self, text: str, words: int, marks: Sequence[str], arguments: Sequence[V]) -> list[V]:
        """A load in PTX, in whose text `{}` stands for the words it gives."""
        names = ", ".join(f"${n}" for n in range(words))
        out = I32 if words == 1 else ir.LiteralStructType([I32] * words)
        asm = ir.InlineAsm(ir.FunctionType(out, [a.type for a in arguments]),
                           text.format(names if words == 1 else f"{{{names}}}"), ",".join(["=r"] * words + [*marks]),
                           side_effect=True)
        value = self.b.call(asm, arguments, attrs=("nounwind",))
        return [value] if words == 1 else [self.b.extract_value(value, n) for n in range(words)]

    def store(self, space: str, address: V, kind: str, source: int) -> None:
        place = self._pointer(space, address)
        if kind in _WORDS:
            words = _WORDS[kind]
            value = ir.Constant(ir.VectorType(I32, words), None)
            for n in range(words):
                word = self.const("i32", 0) if source == RZ else self.reg(source + n)
                value = self.b.insert_element(value, word, self.const("i32", n))
            self.b.store(value, place, align=4 * words)
            return
        value = self.const("i32", 0) if source == RZ else self.reg(source)
        if kind != "32":
            value = self.trunc(value, f"i{kind[1:]}")
        self.b.store(value, place, align=value.type.width // 8)

    def atomic(self, space: str, address: V, op: str, kind: str, operands: Sequence[V], dest: int | None) -> None:
        place = self._pointer(space, address)
        old = self._atomic(place, op, kind, operands)
        if dest is None:
            return
        self.set_reg(dest, self.trunc(old, "i32") if kind.endswith("64") else old)
        if kind.endswith("64"):
            self.set_reg(dest + 1, self.trunc(self.lshr(old, self.const("i64", 32)), "i32"))

    def _atomic(self, place: V, op: str, kind: str, operands: Sequence[V]) -> V:
        if op not in OPERATIONS.get(kind, ()):
            self.unsupported(f"there is no atomic {op} of {kind}")
        if op in ("CAS", "SPIN"):
            pair = self.b.cmpxchg(place, operands[0], operands[1], "monotonic")
            return self.b.extract_value(pair, 0)
        if kind.startswith("F") and op == "ADD":
            value = self.bitcast(operands[0], "f" + kind[1:])
            return self.bitcast(self.b.atomic_rmw("fadd", place, value, "monotonic"), "i" + kind[1:])
        name = _ATOMIC[op]
        if kind[0] == "U" and name in ("min", "max"):
            name = "u" + name
        return self.b.atomic_rmw(name, place, operands[0], "monotonic")

    def is_fetch(self, inst: Instruction) -> bool:
        """Whether an instruction reads a texture reference and does nothing else."""
        slot = inst.operand("slot") if inst.cls.name == "tex" else None
        return slot is not None and 4 * slot.value in self._textures and not inst.pred_writes()

    def texture(self, handle: V, coord: V, dests: Sequence[int | None]) -> None:
        slot = self.inst.operand("slot") if self.inst is not None else None
        number = None if slot is None else self._textures.get(4 * slot.value)
        if number is None:
            texel = self._object_texel(handle, coord)
        else:
            texel = self._reference_texel(handle, coord, self.kernel.texture_channels(number), dests)
        for value, dest in zip(texel, dests, strict=True):
            if dest is not None and dest != RZ:
                self.set_reg(dest, value)

    def _reference_texel(self, handle: V, coord: V, channels: int, dests: Sequence[int | None]) -> list[V]:
        """Address and number of texels of a texture reference stand behind the parameters, 16 bytes for each. The fetch
        itself has a predicate, so that no lane has to branch: one that does not execute it keeps what it has, one
        beyond the end has zeros. Colours the texture has not read 0, missing alpha 1.0."""
        offset = self.add(self.mul(self.zext(handle, "i64"), self.const("i64", 16)),
                          self.const("i64", texture_base(self.kernel)))
        base = self.b.load(self._param(offset), typ=I64, align=8)
        texels = self.b.load(self._param(self.add(offset, self.const("i64", 8))), typ=I32, align=8)
        at = self.shl(self.zext(coord, "i64"), self.const("i64", (4 * channels).bit_length() - 1))
        inside, zero = self.icmp("ult", coord, texels), self.const("i32", 0)
        missing = [zero] * (4 - channels)
        if missing:
            missing[-1] = self.select(inside, self.const("i32", 0x3F800000), zero)
        before = [zero] * channels
        if self.executes is not None:
            kept = [zero if dest is None or dest == RZ else self.reg(dest) for dest in dests]
            before = [self.select(self.executes, zero, value) for value in kept[:channels]]
            missing = [self.select(self.executes, value, was)
                       for value, was in zip(missing, kept[channels:], strict=True)]
            inside = self.and_(inside, self.executes)
        kind = "" if channels == 1 else f".v{channels}"
        text = f"@${channels + 1} ld.global.nc{kind}.b32 {{}}, [${channels}];"
        # Marked as if it had an effect: the place of a fetch in the kernel is part of the kernel.
        found = self._load_words(text, channels, ["l", "b", *map(str, range(channels))],
                                 [self.add(base, at), inside, *before])
        return found + missing

    def _object_texel(self, handle: V, coord: V) -> list[V]:
        """A texture object's handle is a row of a table: address, number of texels, floats in a texel. Colours it has
        not read 0, missing alpha 1.0; a texel beyond the end is all zeros. One bound to nothing ends the launch."""
        unknown = self.icmp("uge", handle, self.const("i32", MAX_TEXTURE_OBJECTS))
        with self.b.if_then(unknown, likely=False):
            self.trap()
        row = self.shl(self.and_(handle, self.const("i32", MAX_TEXTURE_OBJECTS - 1)), self.const("i32", 4))
        base, texels, channels = (
            self.b.load(self.b.gep(self._objects, [self.add(row, self.const("i32", at))], source_etype=I8), typ=type_,
                        align=4)
            for at, type_ in ((0, I64), (8, I32), (12, I32)))
        with self.b.if_then(self.icmp("eq", channels, self.const("i32", 0)), likely=False):
            self.trap()
        inside = self.icmp("ult", coord, texels)
        first = self.mul(self.zext(coord, "i64"), self.zext(channels, "i64"))
        values = []
        for component in range(4):
            there = self.icmp("ult", self.const("i32", component), channels)
            word = self.shl(self.add(first, self.const("i64", component)), self.const("i64", 2))
            place = self.b.inttoptr(self.add(base, word), pointer(GLOBAL))
            place = self.select(self.and_(inside, there), place, self._zeros)
            zero = self.const("i32", 0)
            missing = self.select(inside, self.const("i32", 0x3F800000), zero) if component == 3 else zero
            values.append(self.select(there, self.b.load(place, typ=I32, align=4), missing))
        return values
