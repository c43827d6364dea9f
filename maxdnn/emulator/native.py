"""IR to machine code in this process, through the cache on disk.

The key of a cached object is its content (source words and variant), the version of this package's emulator sources,
and the host's CPU name and features."""

import functools
import hashlib
from collections.abc import Callable
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm
from llvmlite import ir

from ..runtime import cache, forks

if hasattr(llvm.ffi.lib, "_lock"):  # llvmlite calls LLVM under a lock of its own, for instance to free code
    forks.watch(llvm.ffi.lib._lock._lock)


def target(level: int = 1) -> llvm.TargetMachine:
    """A target machine of the host; an engine takes ownership of its own. Level 1: kernels are straight vector code,
    and compile time is part of a launch. Level 0 compiles three times as fast, to code that takes 1.5 times as long."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=level, jit=True)


@functools.cache
def has_wide_vectors() -> bool:
    return bool(llvm.get_host_cpu_features().get("avx512f"))


def _sources() -> list[Path]:
    """The sources that decide what a compiled object or a translation looks like."""
    here = Path(__file__).parent
    room = here.parent
    return sorted([*here.rglob("*.py"), *(room / "ptx").glob("*.py"), *(room / "semantics").rglob("*.py"),
                   *(room / "isa").glob("*.py"), *(room / "isa").glob("*.json"), room / "cubin.py",
                   room / "runtime" / "elf.py", room / "runtime" / "launch.py"])


def _digest() -> bytes:
    digest = hashlib.sha256()
    for path in _sources():
        digest.update(path.read_bytes())
    return digest.digest()


_SOURCES = _digest()  # at import: the files may change while the process that loaded them goes on


@functools.cache
def _identity() -> bytes:
    """What besides its content decides a compiled object: our sources, LLVM, the host."""
    host = f"{llvmlite.__version__} {llvm.get_host_cpu_name()} {llvm.get_host_cpu_features().flatten()}"
    return _SOURCES + host.encode()


def cached_object(content: bytes, make: Callable[[], ir.Module | str], level: int = 1) -> bytes:
    """The object code for `content`, from disk or by compiling the module that `make` gives."""
    return cached(bytes([level]) + content, ".o", lambda: compile_module(make(), level))


def cached(content: bytes, suffix: str, make: Callable[[], bytes]) -> bytes:
    """What `make` gives for `content`, from disk if it was made before."""
    return cache.cached(_identity() + content, suffix, make)


def compile_module(module: ir.Module | str, level: int = 1) -> bytes:
    parsed = llvm.parse_assembly(str(module))
    parsed.triple = llvm.get_default_triple()
    return target(level).emit_object(parsed)


class Code:
    """Loaded object code; `address(name)` of its functions. Keeps the memory alive."""

    def __init__(self, data: bytes) -> None:
        empty = llvm.parse_assembly("")
        empty.triple = llvm.get_default_triple()
        self._engine = llvm.create_mcjit_compiler(empty, target())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(data))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        found = self._engine.get_function_address(name)
        if not found:
            raise KeyError(name)
        return int(found)


def export(name: str, address: int) -> None:
    """Make a function known to objects loaded later."""
    llvm.add_symbol(name, address)

