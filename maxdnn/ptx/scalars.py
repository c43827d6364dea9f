"""The abstract machine of the semantics for one thread of a real GPU, in LLVM IR for the NVPTX target. Arithmetic is
that of `Lanes` on scalars; what LLVM has no operation for (directed rounding, approximations, exchange between lanes)
is the PTX instruction itself. Source: NVIDIA PTX ISA."""

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from llvmlite import ir

from ..cubin import CubinKernel
from ..emulator.lanes import ELEMENTS, Lanes
from ..isa import RZ, Instruction
from .paths import refusal

I1, I32 = ELEMENTS["i1"], ELEMENTS["i32"]
V = Any

_CONSTRAINT = {"i16": "h", "i32": "r", "i64": "l", "f16": "h", "f32": "f", "f64": "d", "i1": "b"}
_MODE = {"": "rn", "RM": "rm", "RP": "rp", "RZ": "rz"}
_MUFU = {"COS": "cos.approx.ftz", "SIN": "sin.approx.ftz", "EX2": "ex2.approx.ftz", "LG2": "lg2.approx.ftz",
         "RCP": "rcp.approx", "RSQ": "rsqrt.approx.ftz", "SQRT": "sqrt.approx.ftz"}
_SREG = {"SR_LANEID": "laneid", "SR_TID.X": "tid.x", "SR_TID.Y": "tid.y", "SR_TID.Z": "tid.z",
         "SR_CTAID.X": "ctaid.x", "SR_CTAID.Y": "ctaid.y", "SR_CTAID.Z": "ctaid.z", "SR_EQMASK": "lanemask.eq",
         "SR_LTMASK": "lanemask.lt", "SR_LEMASK": "lanemask.le", "SR_GTMASK": "lanemask.gt",
         "SR_GEMASK": "lanemask.ge", "SR_CLOCK": "clock", "SR_CLOCKLO": "clock"}


class Scalars(Lanes):
    """Registers, predicates and flags of one thread, which are stack slots that LLVM turns into values, its arithmetic
    and what it exchanges with others; whoever traces says which instruction, `inst`, it is."""

    def __init__(self, builder: ir.IRBuilder, kernel: CubinKernel) -> None:
        super().__init__(builder, None)
        self.kernel = kernel
        self.inst: Instruction | None = None
        self._slots: dict[str, V] = {}
        self._written: dict[int, tuple[V, V]] = {}  # by register the block and the value of the last write
        self._lower: tuple[V, V, V, V] | None = None  # see lower_sum: the block, a, b, total

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
        return self.call(f"llvm.nvvm.read.ptx.sreg.{name}", I32)

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
            return self.all_shared_bytes()
        self.unsupported(f"special register {name} has no counterpart in PTX")
        return self.const("i32", 0)

    def all_shared_bytes(self) -> V:
        """Shared memory of the block: all of it is dynamic in a translation."""
        return self.ptx("mov.u32 $0, %dynamic_smem_size;", "i32")

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
        self.call("llvm.trap", ir.VoidType())

    def exit(self) -> None:
        """The thread ends here, whatever the end of others looks like."""
        self.ptx("exit;", None, convergent=True, fence=True)

    def unsupported(self, why: str) -> NoReturn:
        """Raises TranslationError that names kernel, address and instruction."""
        assert self.inst is not None
        raise refusal(self.kernel, self.inst, why)
