"""Cubins of Maxwell and Pascal to PTX for any other GPU: the same semantics traced for one thread.

A translated kernel takes the original parameter block, then (8-byte aligned) 16 bytes per texture reference: address
and number of texels. Its shared memory is dynamic: a launch asks for the kernel's own bytes plus the dynamic ones.
Constant bank 3 is the array maxdnn_bank3. Global variables lie in the arrays maxdnn_global_init and maxdnn_global at
their offsets; maxdnn_bank4 is for the loader to fill with their addresses, as the cubin's relocations say. The handle
of a texture object is a row of the constant array maxdnn_textures: address (8 bytes), number of texels and floats in a
texel (4 bytes each)."""

import math
import re
from dataclasses import replace

import llvmlite.binding as llvm
from llvmlite import ir
from llvmlite.ir.values import ArgumentAttributes

from ..cubin import STATIC_SHARED, Cubin, CubinKernel, read, require_linked
from ..emulator.native import cached
from ..emulator.stack import stack_bytes
from ..errors import TranslationError
from ..isa import TABLE, table_of
from ..runtime.launch import MAX_LOCAL_BYTES
from . import targets
from .control_flow import write_body
from .targets import for_capability as for_capability
from .thread import CONST, GLOBAL, I8, MAX_TEXTURE_OBJECTS, SHARED, Thread, texture_base

TRIPLE = "nvptx64-nvidia-cuda"
TEXTURE_OBJECTS = "maxdnn_textures"
GLOBAL_ADDRESSES = "maxdnn_bank4"
MAX_PARAM_BYTES = 4096  # before PTX 8.1 (PTX ISA, kernel function parameters); no cubin of these chips has more
_LARGE_BLOCK, _SM_REGISTERS = 256, 65536
GLOBAL_ARRAYS = {".nv.global.init": "maxdnn_global_init", ".nv.global": "maxdnn_global"}


def translated(data: bytes, target: str, only: str | None = None) -> bytes:
    """`translate` for the bytes of a cubin, or for one of its kernels, kept on disk."""
    def make() -> bytes:
        cubin = read(data)
        return translate(cubin if only is None else replace(cubin, kernels={only: cubin.kernel(only)}), target).encode()
    return cached(b"".join((data, target.encode(), (only or "").encode())), ".ptx", make)


def translate(cubin: Cubin, target: str = "sm_52") -> str:
    """PTX text for GPU `target` (one of `targets.PTX_VERSIONS`) with an entry of the same name for every kernel of the
    cubin. Raises TranslationError for what cannot be translated as it is meant, naming the instruction,
    CubinError for functions and addresses that nothing fills in, and DecodeError at a word that is no instruction."""
    targets.check(target)
    _check_resources(cubin)
    require_linked(cubin, who="a translation")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu=target, features="+ptx" + targets.PTX_VERSIONS[target].replace(".", ""), opt=3)
    module = ir.Module("maxdnn")
    module.triple = TRIPLE
    module.data_layout = str(machine.target_data)
    arrays = _arrays(module, cubin)
    for kernel in cubin.kernels.values():
        _kernel(module, kernel, arrays)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    _optimise(parsed, machine)
    return wrapping(machine.emit_assembly(parsed))


def wrapping(text: str) -> str:
    """PTX in which -(-32768) and |-32768| are -32768 in 16 bits. LLVM narrows what was written in 32 bits to neg.s16
    and abs.s16, and ptxas for sm_90 leaves 32768 in the register where a conversion widens the result (seen on an
    H200)."""
    return re.sub(r"(neg|abs)\.s16[ \t]+(%rs\d+), (%rs\d+);",
                  r"{ .reg .b32 %wide; cvt.s32.s16 %wide, \3; \1.s32 %wide, %wide; cvt.u16.u32 \2, %wide; }", text)


def _check_resources(cubin: Cubin) -> None:
    """Raises TranslationError for what PTX has no room or no name for, and for words of another instruction set."""
    if table_of(cubin.arch) is not TABLE:
        raise TranslationError(f"cannot translate: machine code of {cubin.arch}; translations are made of code "
                               "for sm_50 to sm_62")
    limits = [("constant bank 3", len(cubin.constant_bank), 1 << 16), ("constant bank 4", len(cubin.global_addresses),
                                                                       1 << 16)]
    for kernel in cubin.kernels.values():
        if not re.fullmatch(r"[A-Za-z][\w$]*|[_$%][\w$]+", kernel.name, re.ASCII) or kernel.name.startswith("maxdnn_"):
            raise TranslationError(f"cannot translate: {kernel.name!r} is no name for a kernel in PTX")
        limits += [(f"{kernel.name}: bank {n}", len(data), 1 << 16) for n, data in kernel.constants.items()]
        limits += [(f"{kernel.name}: parameters", texture_base(kernel) + 16 * len(kernel.textures), MAX_PARAM_BYTES),
                   (f"{kernel.name}: local memory", stack_bytes(kernel), MAX_LOCAL_BYTES),
                   (f"{kernel.name}: shared memory", kernel.shared_bytes, STATIC_SHARED)]
    for what, nbytes, limit in limits:
        if not 0 <= nbytes <= limit:
            raise TranslationError(f"cannot translate: {what} must have at most {limit} bytes (got {nbytes})")


def _optimise(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """-O2 without vectorisers and unrolling: the source is a scheduled kernel already."""
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = options.slp_vectorization = False
    options.loop_unrolling = options.loop_interleaving = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def _array(module: ir.Module, name: str, type_: ir.Type, space: int, initial: ir.Constant | None) -> ir.GlobalVariable:
    variable = ir.GlobalVariable(module, type_, name, addrspace=space)
    variable.type = ir.PointerType(addrspace=space)  # llvmlite gives typed pointers, LLVM has none
    variable.align = 16
    if initial is None:
        variable.linkage = "external"
    else:
        variable.initializer = initial
    return variable


def _zeros(nbytes: int) -> ir.Constant:
    return ir.Constant(ir.ArrayType(I8, nbytes), None)


def _bytes(data: bytes) -> ir.Constant:
    return ir.Constant(ir.ArrayType(I8, len(data)), bytearray(data) if any(data) else None)


def _arrays(module: ir.Module, cubin: Cubin) -> dict[str, ir.GlobalVariable]:
    """Shared memory ("shared"), user constants ("bank3"), global variables by section, their addresses ("bank4"),
    zeros and the table of objects where there are textures."""
    out = {"shared": _array(module, "maxdnn_shared", ir.ArrayType(I8, 0), SHARED, None)}
    fetches = [i for kernel in cubin.kernels.values() for i in kernel.instructions if i.cls.name == "tex"]
    if fetches:
        initial = _zeros(16)
        out["zeros"] = _array(module, "maxdnn_zeros", initial.type, GLOBAL, initial)
    references = {offset for kernel in cubin.kernels.values() for _, offset in kernel.textures}
    if any(i.operand("slot") is None or 4 * i["slot"].value not in references for i in fetches):
        initial = _zeros(16 * MAX_TEXTURE_OBJECTS)
        out["objects"] = _array(module, TEXTURE_OBJECTS, initial.type, CONST, initial)
    wanted = [("bank3", "maxdnn_bank3", CONST, _bytes(cubin.constant_bank)),
              ("bank4", GLOBAL_ADDRESSES, CONST, _bytes(cubin.global_addresses)),
              (".nv.global.init", GLOBAL_ARRAYS[".nv.global.init"], GLOBAL, _bytes(cubin.global_init)),
              (".nv.global", GLOBAL_ARRAYS[".nv.global"], GLOBAL, _zeros(cubin.global_bytes))]
    for key, name, space, initial in wanted:
        if initial.type.count:
            out[key] = _array(module, name, initial.type, space, initial)
    return out


class _ByValue(ArgumentAttributes):
    """`byval` of an array, which llvmlite spells only for typed pointers."""

    def __init__(self, nbytes: int) -> None:
        super().__init__()
        self._nbytes = nbytes

    def _to_list(self, typ: ir.Type) -> list[str]:
        return [f"byval([{self._nbytes} x i8])", "align 8"]


def _bound_registers(fn: ir.Function, kernel: CubinKernel) -> None:
    """Of large blocks as many must fit an SM as natively: with 1 of 256 threads in place of 2, nothing is left to do at
    barriers. Smaller blocks lose a part of their number at most, which costs less than registers in memory."""
    threads = math.prod(kernel.reqntid) if kernel.reqntid else 0
    if threads >= _LARGE_BLOCK:
        blocks = _SM_REGISTERS // (threads * -(-kernel.registers // 8) * 8)
        most = ir.IntType(32)(_SM_REGISTERS // (max(1, blocks) * threads) // 8 * 8)
        fn.module.add_named_metadata("nvvm.annotations", [fn, "maxnreg", most])


def _kernel(module: ir.Module, kernel: CubinKernel, arrays: dict[str, ir.GlobalVariable]) -> None:
    fn = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType()]), kernel.name)
    fn.calling_convention = "ptx_kernel"
    _bound_registers(fn, kernel)
    fn.args[0].attributes = _ByValue(max(texture_base(kernel) + 16 * len(kernel.textures), 8))
    builder = ir.IRBuilder(fn.append_basic_block("entry"))
    banks = {number: arrays[f"bank{number}"] for number in (3, 4) if f"bank{number}" in arrays}
    for number, data in kernel.constants.items():
        if number not in (0, 3, 4) and data:
            initial = _bytes(data)
            banks[number] = _array(module, f"maxdnn_bank{number}_{kernel.name}", initial.type, CONST, initial)
            banks[number].linkage = "internal"  # one that nothing reads is left out
    thread = Thread(builder, kernel, fn.args[0], banks, arrays)
    write_body(thread, fn, kernel, kernel.instructions)
