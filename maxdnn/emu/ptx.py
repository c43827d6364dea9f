"""Cubins of Maxwell and Pascal to PTX for any other GPU: the same semantics traced for one thread.

A translated kernel takes the original parameter block, then (8-byte aligned) 16 bytes per texture reference: address
and number of texels. Its shared memory is dynamic: a launch asks for the kernel's own bytes plus the dynamic ones.
Constant bank 3 is the array maxdnn_bank3. Global variables lie in the arrays maxdnn_global_init and maxdnn_global at
their offsets; maxdnn_bank4 is for the loader to fill with their addresses, as the cubin's relocations say. The handle
of a texture object is a row of the constant array maxdnn_textures: address (8 bytes), number of texels and floats in a
texel (4 bytes each)."""

import llvmlite.binding as llvm
from llvmlite import ir
from llvmlite.ir.values import ArgumentAttributes

from ..cubin import Cubin, CubinKernel, read
from .flow import write_body
from .native import cached
from .thread import CONST, GLOBAL, I8, MAX_TEXTURE_OBJECTS, SHARED, Thread, texture_base

TRIPLE = "nvptx64-nvidia-cuda"
TEXTURE_OBJECTS = "maxdnn_textures"
GLOBAL_ADDRESSES = "maxdnn_bank4"
GLOBAL_ARRAYS = {".nv.global.init": "maxdnn_global_init", ".nv.global": "maxdnn_global"}


def translated(data: bytes, target: str) -> bytes:
    """`translate` for the bytes of a cubin, kept on disk."""
    return cached(data + target.encode(), ".ptx", lambda: translate(read(data), target).encode())


def translate(cubin: Cubin, target: str = "sm_52") -> str:
    """PTX text for GPU `target` ("sm_90") with an entry of the same name for every kernel of the cubin. An instruction
    without a meaning here becomes a trap. Raises DecodeError at a word that is no instruction."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=target, features=_ptx_version(target), opt=3)
    module = ir.Module("maxdnn")
    module.triple = TRIPLE
    module.data_layout = str(machine.target_data)
    arrays = _arrays(module, cubin)
    for kernel in cubin.kernels.values():
        _kernel(module, kernel, arrays)
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    _optimise(parsed, machine)
    return machine.emit_assembly(parsed)


def _ptx_version(target: str) -> str:
    """The oldest PTX the target knows that has everything used here."""
    return "+ptx80" if int(target[3:].rstrip("a")) >= 89 else "+ptx70"


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


def _bytes(data: bytes) -> ir.Constant:
    return ir.Constant(ir.ArrayType(I8, len(data)), bytearray(data) if any(data) else None)


def _arrays(module: ir.Module, cubin: Cubin) -> dict[str, ir.GlobalVariable]:
    """Shared memory ("shared"), user constants ("bank3"), global variables by section, their addresses ("bank4"),
    zeros and the table of objects where there are textures."""
    out = {"shared": _array(module, "maxdnn_shared", ir.ArrayType(I8, 0), SHARED, None)}
    fetches = [i for kernel in cubin.kernels.values() for i in kernel.instructions if i.cls.name == "tex"]
    if fetches:
        initial = _bytes(bytes(16))
        out["zeros"] = _array(module, "maxdnn_zeros", initial.type, GLOBAL, initial)
    references = {offset for kernel in cubin.kernels.values() for _, offset in kernel.textures}
    if any(i.operand("slot") is None or 4 * i["slot"].value not in references for i in fetches):
        initial = _bytes(bytes(16 * MAX_TEXTURE_OBJECTS))
        out["objects"] = _array(module, TEXTURE_OBJECTS, initial.type, CONST, initial)
    wanted = [("bank3", "maxdnn_bank3", CONST, cubin.constant_bank),
              (".nv.global.init", GLOBAL_ARRAYS[".nv.global.init"], GLOBAL, cubin.global_init),
              (".nv.global", GLOBAL_ARRAYS[".nv.global"], GLOBAL, bytes(cubin.global_bytes))]
    for key, name, space, data in wanted:
        if data:
            initial = _bytes(data)
            out[key] = _array(module, name, initial.type, space, initial)
    if cubin.global_addresses:
        initial = _bytes(cubin.global_addresses)
        out["bank4"] = _array(module, GLOBAL_ADDRESSES, initial.type, CONST, initial)
    return out


class _ByValue(ArgumentAttributes):
    """`byval` of an array, which llvmlite spells only for typed pointers."""

    def __init__(self, nbytes: int) -> None:
        super().__init__()
        self._nbytes = nbytes

    def _to_list(self, typ: ir.Type) -> list[str]:
        return [f"byval([{self._nbytes} x i8])", "align 8"]


def _kernel(module: ir.Module, kernel: CubinKernel, arrays: dict[str, ir.GlobalVariable]) -> None:
    fn = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType()]), kernel.name)
    fn.calling_convention = "ptx_kernel"
    fn.args[0].attributes = _ByValue(max(texture_base(kernel) + 16 * len(kernel.textures), 8))
    builder = ir.IRBuilder(fn.append_basic_block("entry"))
    banks = {3: arrays["bank3"]} if "bank3" in arrays else {}
    if "bank4" in arrays:
        banks[4] = arrays["bank4"]
    if any(kernel.constants.get(2, b"")):
        initial = _bytes(kernel.constants[2])
        banks[2] = _array(module, f"maxdnn_bank2_{kernel.name}", initial.type, CONST, initial)
    thread = Thread(module, builder, kernel, fn.args[0], banks, arrays)
    write_body(thread, fn, kernel, kernel.instructions)
