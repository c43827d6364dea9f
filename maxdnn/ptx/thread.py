"""The abstract machine of the semantics for one thread of a real GPU, in LLVM IR for the NVPTX target. Arithmetic is
that of `Lanes` on scalars; what LLVM has no operation for (directed rounding, approximations, exchange between lanes)
is the PTX instruction itself. Source: NVIDIA PTX ISA."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from llvmlite import ir

from ..cubin import CubinKernel
from ..emulator.lanes import ELEMENTS, Lanes
from ..emulator.layout import LOCAL_WINDOW, SHARED_WINDOW
from ..emulator.runtime.atomics import OPERATIONS
from ..emulator.stack import stack_bytes
from ..isa import RZ, Instruction
from ..semantics.operands import halves, pair
from .paths import refusal

I1, I8, I32, I64 = (ELEMENTS[n] for n in ("i1", "i8", "i32", "i64"))
GLOBAL, SHARED, CONST = 1, 3, 4  # address spaces of the NVPTX target
V = Any

_CONSTRAINT = {"i16": "h", "i32": "r", "i64": "l", "f16": "h", "f32": "f", "f64": "d", "i1": "b"}
_MODE = {"": "rn", "RM": "rm", "RP": "rp", "RZ": "rz"}
_MUFU = {"COS": "cos.approx.ftz", "SIN": "sin.approx.ftz", "EX2": "ex2.approx.ftz", "LG2": "lg2.approx.ftz",
         "RCP": "rcp.approx", "RSQ": "rsqrt.approx.ftz", "SQRT": "sqrt.approx.ftz"}
_SREG = {"SR_LANEID": "laneid", "SR_TID.X": "tid.x", "SR_TID.Y": "tid.y", "SR_TID.Z": "tid.z",
         "SR_CTAID.X": "ctaid.x", "SR_CTAID.Y": "ctaid.y", "SR_CTAID.Z": "ctaid.z", "SR_EQMASK": "lanemask.eq",
         "SR_LTMASK": "lanemask.lt", "SR_LEMASK": "lanemask.le", "SR_GTMASK": "lanemask.gt",
         "SR_GEMASK": "lanemask.ge", "SR_CLOCK": "clock", "SR_CLOCKLO": "clock"}
_ATOMIC = {"ADD": "add", "MIN": "min", "MAX": "max", "INC": "uinc_wrap", "DEC": "udec_wrap", "AND": "and", "OR": "or",
           "XOR": "xor", "EXCH": "xchg"}
_WORDS = {"64": 2, "128": 4}


def pointer(space: int) -> ir.PointerType:
    return ir.PointerType(addrspace=space)


MAX_TEXTURE_OBJECTS = 64


def texture_base(kernel: CubinKernel) -> int:
    """Where the textures' addresses and sizes begin, in bytes from the first parameter."""
    return (kernel.param_bytes + 7) // 8 * 8


class Thread(Lanes):
    """Semantics traced into the current block of `builder`; whoever traces says which instruction, `inst`, it is.
    Registers, predicates and flags are stack slots, which LLVM turns into values. `banks`: constant banks as globals in
    the constant space. `arrays`: "shared" memory; "zeros", 16 bytes of them, where there are textures, and "objects",
    their table, where there are texture objects."""

    def __init__(self, module: ir.Module, builder: ir.IRBuilder, kernel: CubinKernel, params: V,
                 banks: Mapping[int, ir.GlobalVariable], arrays: Mapping[str, ir.GlobalVariable]) -> None:
        super().__init__(module, builder, None)
        self.kernel = kernel
        self._params = params
        self._banks = banks
        self._shared = arrays["shared"]
        self._zeros, self._objects = arrays.get("zeros"), arrays.get("objects")
        self._local_bytes = stack_bytes(kernel)
        self._local = self.slot(ir.ArrayType(I8, self._local_bytes), "local") if self._local_bytes else None
        self._slots: dict[str, V] = {}
        self._written: dict[int, tuple[V, V]] = {}  # by register the block and the value of the last write
        self._lower: tuple[V, V, V, V] | None = None  # see lower_sum: the block, a, b, total
        self.inst: Instruction | None = None
        self._textures = {offset: number for number, (_, offset) in enumerate(kernel.textures)}
        self.executes: V | None = None  # whether the lane executes the fetch at hand; None: it does

    # -- slots -------------------------------------------------------------------------------------------------

    def slot(self, type_: ir.Type, name: str) -> V:
        with self.b.goto_entry_block():
            slot = self.b.alloca(type_, name=name)
        slot.type = ir.PointerType()  # llvmlite gives typed pointers, LLVM has none
        return slot

    def variable(self, name: str, type_: ir.Type) -> V:
        """A slot that is zero when the kernel starts."""
        if name not in self._slots:
            slot = self._slots[name] = self.slot(type_, name)
            entry = self.b.function.entry_basic_block
            with self.b.goto_block(entry):
                self.b.position_after(slot)
                self.b.store(ir.Constant(type_, 0), slot)
        return self._slots[name]

    def _get(self, name: str, type_: ir.Type) -> V:
        return self.b.load(self.variable(name, type_), typ=type_)

    def reg(self, index: int) -> V:
        self._check_register(index)
        return self._get(f"R{index}", I32)

    def set_reg(self, index: int, value: V) -> None:
        self._check_register(index)
        self.b.store(value, self.variable(f"R{index}", I32))
        self._written[index] = self.b.block, value

    def _check_register(self, index: int) -> None:
        if index >= RZ:
            self.unsupported("an operand reaches beyond R254")

    def pred(self, index: int) -> V:
        return self._get(f"P{index}", I1)

    def set_pred(self, index: int, value: V) -> None:
        self.b.store(value, self.variable(f"P{index}", I1))

    def flag(self, name: str) -> V:
        return self._get(f"CC{name}", I1)

    def set_flag(self, name: str, value: Callable[[], V]) -> None:
        self.b.store(value(), self.variable(f"CC{name}", I1))
        self._lower = None

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

    # -- PTX instructions --------------------------------------------------------------------------------------

    def ptx(self, text: str, result: str | None, *args: V, convergent: bool = False, fence: bool = False) -> V:
        """One line of PTX: $0 the result (an element type) if any, then the arguments. `convergent`: takes part in what
        other lanes do; `fence`: no memory access moves across."""
        out = [ELEMENTS[result]] if result else []
        names = ([result] if result else []) + [self._element_name(a) for a in args]
        marks = [("=" if result and n == 0 else "") + _CONSTRAINT[name] for n, name in enumerate(names)]
        if result == "f16":
            out = [ELEMENTS["i16"]]
        call_type = ir.FunctionType(out[0] if out else ir.VoidType(), [a.type for a in args])
        marks += ["~{memory}"] if fence else []
        asm = ir.InlineAsm(call_type, text, ",".join(marks), side_effect=convergent or not result)
        value = self.b.call(asm, args, attrs=("convergent", "nounwind") if convergent else ("nounwind",))
        return self.b.bitcast(value, ELEMENTS["f16"]) if result == "f16" else value

    def _element_name(self, value: V) -> str:
        return next(n for n, t in ELEMENTS.items() if t == value.type)

    def directed(self, operation: str, rnd: str, *args: V, result: str | None = None) -> V:
        kind = self._element_name(args[0])
        if operation in ("fadd", "fmul", "fma"):
            slots = ", ".join(f"${n + 1}" for n in range(len(args)))
            name = {"fadd": "add", "fmul": "mul", "fma": "fma"}[operation]
            return self.ptx(f"{name}.{_MODE[rnd]}.{kind} $0, {slots};", kind, *args)
        source, value = kind, args[0]
        if operation != "fptrunc":
            signed = operation == "sitofp"
            if kind in ("i8", "i16"):
                value = (self.sext if signed else self.zext)(value, "i32")
                kind = "i32"
            source = ("s" if signed else "u") + kind[1:]
        return self.ptx(f"cvt.{_MODE[rnd]}.{result}.{source} $0, $1;", result, value)

    def canonical(self, x: V, nan: int) -> V:
        """The GPU's own NaN results are canonical already."""
        return self.bitcast(x, "i32" if x.type == ELEMENTS["f32"] else "i64")

    def mufu(self, function: str, a: V) -> V:
        return self.ptx(f"{_MUFU[function]}.f32 $0, $1;", "f32", a)

    def seed64(self, function: str, a: V) -> V:
        wide = self.bitcast(self.shl(self.zext(a, "i64"), self.const("i64", 32)), "f64")
        name = "rcp" if function == "RCP64H" else "rsqrt"
        value = self.ptx(f"{name}.approx.ftz.f64 $0, $1;", "f64", wide)
        return self.trunc(self.lshr(self.bitcast(value, "i64"), self.const("i64", 32)), "i32")

    def _sreg(self, name: str) -> V:
        return self.b.call(self.declare(f"llvm.nvvm.read.ptx.sreg.{name}", I32, []), [])

    def special(self, name: str) -> V:
        if name in _SREG:
            return self._sreg(_SREG[name])
        if name in ("SR_CLOCKHI", "SR_GLOBALTIMERLO", "SR_GLOBALTIMERHI"):
            source = "%clock64" if "CLOCK" in name else "%globaltimer"
            value = self.ptx(f"mov.u64 $0, {source};", "i64", convergent=True)
            return self.trunc(self.lshr(value, self.const("i64", 32 if name.endswith("HI") else 0)), "i32")
        shifted = {"SR_TID": (("tid.x", 0), ("tid.y", 16), ("tid.z", 26)),
                   "SR_NTID": (("ntid.x", 0), ("ntid.y", 16), ("ntid.z", 26)),
                   "SR_VIRTID": (("warpid", 8), ("smid", 20)), "SR_VIRTCFG": (("nsmid", 20),)}
        if name in shifted:
            value = self.const("i32", 0)
            for part, at in shifted[name]:
                value = self.or_(value, self.shl(self._sreg(part), self.const("i32", at)))
            return value
        if name == "SR_SMEMSZ":
            return self._shared_bytes()
        self.unsupported(f"special register {name} has no counterpart in PTX")
        return self.const("i32", 0)

    def _shared_bytes(self) -> V:
        """Shared memory of the block: all of it is dynamic in a translation."""
        return self.ptx("mov.u32 $0, %dynamic_smem_size;", "i32")

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
            return self.sub(self._shared_bytes(), self.const("i32", self.kernel.shared_bytes))
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
        names = ", ".join(f"${n}" for n in range(words))
        text = f"ld.volatile{space}.{width} {{{names}}}, [${words}];" if words > 1 else \
            f"ld.volatile{space}.{width} $0, [$1];"
        out = ir.LiteralStructType([I32] * words) if words > 1 else I32
        address = self.b.ptrtoint(place, I64)
        asm = ir.InlineAsm(ir.FunctionType(out, [I64]), text, ",".join(["=r"] * words + ["l", "~{memory}"]),
                           side_effect=True)
        value = self.b.call(asm, [address], attrs=("nounwind",))
        return [self.b.extract_value(value, n) for n in range(words)] if words > 1 else [value]

    def _source(self, index: int) -> V:
        return self.const("i32", 0) if index == RZ else self.reg(index)

    def store(self, space: str, address: V, kind: str, source: int) -> None:
        place = self._pointer(space, address)
        if kind in _WORDS:
            words = _WORDS[kind]
            value = ir.Constant(ir.VectorType(I32, words), None)
            for n in range(words):
                word = self._source(source if source == RZ else source + n)
                value = self.b.insert_element(value, word, self.const("i32", n))
            self.b.store(value, place, align=4 * words)
            return
        value = self._source(source)
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
        if op == "CAS":
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
        results = [f"${n}" for n in range(channels)]
        target = results[0] if channels == 1 else f"{{{', '.join(results)}}}"
        marks = ["=r"] * channels + ["l", "b"] + [str(n) for n in range(channels)]
        out = I32 if channels == 1 else ir.LiteralStructType([I32] * channels)
        kind = "" if channels == 1 else f".v{channels}"
        text = f"@${channels + 1} ld.global.nc{kind}.b32 {target}, [${channels}];"
        arguments = [self.add(base, at), inside, *before]
        # Marked as if it had an effect: the place of a fetch in the kernel is part of the kernel.
        asm = ir.InlineAsm(ir.FunctionType(out, [a.type for a in arguments]), text, ",".join(marks), side_effect=True)
        value = self.b.call(asm, arguments, attrs=("nounwind",))
        found = [value] if channels == 1 else [self.b.extract_value(value, n) for n in range(channels)]
        return found + missing

    def _object_texel(self, handle: V, coord: V) -> list[V]:
        """A texture object's handle is a row of a table: address, number of texels, floats in a texel. Colours it has
        not read 0, missing alpha 1.0; a texel beyond the end is all zeros. One bound to nothing ends the launch."""
        unknown = self.icmp("uge", handle, self.const("i32", MAX_TEXTURE_OBJECTS))
        with self.b.if_then(unknown, likely=False):
            self.trap()
        row = self.shl(self.and_(handle, self.const("i32", MAX_TEXTURE_OBJECTS - 1)), self.const("i32", 4))
        base, texels, channels = (
            self.b.load(self._objects_address(self.add(row, self.const("i32", at))), typ=type_, align=4)
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

    def _objects_address(self, offset: V) -> V:
        return self.b.gep(self._objects, [offset], source_etype=I8)

    # -- between lanes -----------------------------------------------------------------------------------------

    def executing(self) -> V:
        return self.ptx("activemask.b32 $0;", "i32", convergent=True)

    def shuffle(self, value: V, lane: V) -> V:
        return self.ptx("shfl.sync.idx.b32 $0, $1, $2, 31, $3;", "i32", value, lane, self.executing(), convergent=True)

    def ballot(self, p: V) -> V:
        bit = self.zext(p, "i32")
        text = "{ .reg .pred p; setp.ne.u32 p, $1, 0; vote.sync.ballot.b32 $0, p, $2; }"
        return self.ptx(text, "i32", bit, self.executing(), convergent=True)

    def meet(self, lanes: V | None = None) -> None:
        """Wait for the lanes of a mask, this one among them, or bring those that run together in step again; no memory
        access moves across. Lanes that have exited are not waited for (CUDA C++ Programming Guide, __syncwarp)."""
        mask = self.executing() if lanes is None else lanes
        self.ptx("bar.warp.sync $0;", None, mask, convergent=True, fence=True)

    def barrier(self, kind: str, number: V, threads: V | None, p: V | None) -> None:
        """BAR.SYNC, BAR.ARV or BAR.RED.op over all threads of the block, or the first `threads` to come."""
        if threads is None and kind == "ARV":
            self.unsupported("arriving without waiting needs a number of threads")
        if isinstance(threads, ir.Constant) and (threads.constant % 32 or threads.constant > 1024):
            self.unsupported(f"a barrier takes a multiple of 32 threads up to 1024 (got {threads.constant})")
        where, values = self._barrier_slots([number] if threads is None else [number, threads], kind)
        if kind in ("SYNC", "ARV"):
            name = "bar.sync" if kind == "SYNC" else "bar.arrive"
            self.ptx(f"{name} {where};", None, *values, convergent=True, fence=True)
            return
        test = f".reg .pred p, q; setp.ne.u32 p, ${len(values) + 1}, 0;"
        if kind == "POPC":
            text = f"{{ {test} bar.red.popc.u32 $0, {where}, p; }}"
        else:
            text = f"{{ {test} bar.red.{kind.lower()}.pred q, {where}, p; selp.u32 $0, 1, 0, q; }}"
        value = self.ptx(text, "i32", *values, self.zext(p, "i32"), convergent=True, fence=True)
        self.b.store(value, self.variable("bar_result", I32))

    @staticmethod
    def _barrier_slots(operands: Sequence[V], kind: str) -> tuple[str, list[V]]:
        """The operands as PTX text, constants spelled out (a barrier in a register costs all sixteen)."""
        names: list[str] = []
        values: list[V] = []
        for operand in operands:
            if isinstance(operand, ir.Constant):
                names.append(str(operand.constant))
            else:
                names.append(f"${len(values) + (kind not in ('SYNC', 'ARV'))}")
                values.append(operand)
        return ", ".join(names), values

    def barrier_result(self) -> V:
        return self._get("bar_result", I32)

    def fence(self, name: str) -> None:
        """A memory fence by its PTX name."""
        self.ptx(f"{name};", None, convergent=True, fence=True)

    def trap(self) -> None:
        """The launch ends in an error."""
        self.b.call(self.declare("llvm.trap", ir.VoidType(), []), [])

    def exit(self) -> None:
        """The thread ends here, whatever the end of others looks like."""
        self.ptx("exit;", None, convergent=True, fence=True)

    def unsupported(self, why: str) -> NoReturn:
        """Raises TranslationError that names kernel, address and instruction."""
        assert self.inst is not None
        raise refusal(self.kernel, self.inst, why)
