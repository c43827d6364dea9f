"""The vendor's tools as oracles: compiler, assembler and disassemblers, found in installed PyPI packages.

- NVRTC 12.9 (package nvidia-cuda-nvrtc-cu12): CUDA C to cubin.
- ptxas 12.9 (package nvidia-cuda-nvcc-cu12): PTX to cubin.
- nvdisasm and cuobjdump 12.8 (package triton): machine code to text.

A tool that is missing is an error that names the package to install, never a skipped test.  Nothing here knows maxdnn.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import pathlib
import re
import subprocess
import tempfile
from collections.abc import Sequence


class OracleError(Exception):
    """A vendor tool is missing or refused its input; the message carries the tool's own words."""


class OracleMissing(OracleError):
    """A vendor tool is not installed."""


def _package_file(package: str, inside: str, requirement: str) -> pathlib.Path:
    """Path of file `inside` a Python package, without importing the package."""
    spec = importlib.util.find_spec(package)
    for root in (spec.submodule_search_locations or []) if spec else []:
        path = pathlib.Path(root) / inside
        if path.exists():
            return path
    raise OracleMissing(f"{inside} not found: the tests need the package {requirement} (pip install {requirement})")


@functools.cache
def ptxas_path() -> pathlib.Path:
    return _package_file("nvidia", "cuda_nvcc/bin/ptxas", "nvidia-cuda-nvcc-cu12==12.9.86")


@functools.cache
def nvrtc_path() -> pathlib.Path:
    return _package_file("nvidia", "cuda_nvrtc/lib/libnvrtc.so.12", "nvidia-cuda-nvrtc-cu12==12.9.86")


@functools.cache
def nvdisasm_path() -> pathlib.Path:
    return _package_file("triton", "backends/nvidia/bin/nvdisasm", "triton==3.3.1")


@functools.cache
def cuobjdump_path() -> pathlib.Path:
    return _package_file("triton", "backends/nvidia/bin/cuobjdump", "triton==3.3.1")


def _run(command: Sequence[str | os.PathLike[str]]) -> str:
    """Standard output of a tool; its path is put first in PATH because cuobjdump calls nvdisasm by name."""
    words = [os.fspath(word) for word in command]
    env = dict(os.environ, PATH=os.path.dirname(words[0]) + os.pathsep + os.environ.get("PATH", ""))
    done = subprocess.run(words, capture_output=True, text=True, env=env, check=False)
    if done.returncode:
        raise OracleError(f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


# ---------------------------------------------------------------------------------------------------------- NVRTC


@functools.cache
def _nvrtc() -> ctypes.CDLL:
    path = nvrtc_path()
    builtins = sorted(path.parent.glob("libnvrtc-builtins.so.*"))
    if not builtins:
        raise OracleMissing(f"libnvrtc-builtins.so not found beside {path}")
    ctypes.CDLL(str(builtins[0]), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(path))
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def _nvrtc_call(name: str, *arguments: object, log: bytes = b"") -> None:
    status = getattr(_nvrtc(), name)(*arguments)
    if status:
        words = _nvrtc().nvrtcGetErrorString(status).decode()
        raise OracleError(f"{name}: {words}\n{log.decode(errors='replace')}")


def _nvrtc_result(program: ctypes.c_void_p, kind: str) -> bytes:
    size = ctypes.c_size_t()
    _nvrtc_call(f"nvrtcGet{kind}Size", program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    _nvrtc_call(f"nvrtcGet{kind}", program, buffer)
    return buffer.raw[: size.value]


def _nvrtc_compile(source: str, name: str, options: Sequence[str]) -> bytes:
    program = ctypes.c_void_p()
    _nvrtc_call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), name.encode(), 0, None, None)
    try:
        words = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
        if _nvrtc().nvrtcCompileProgram(program, len(options), words):
            log = _nvrtc_result(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
            raise OracleError(f"NVRTC refused {name} ({' '.join(options)}):\n{log}")
        return _nvrtc_result(program, "CUBIN")
    finally:
        _nvrtc().nvrtcDestroyProgram(ctypes.byref(program))


def compile_cuda(source: str, arch: str = "sm_52", options: Sequence[str] = (), name: str = "kernel.cu") -> bytes:
    """CUDA C text to a cubin for a real architecture such as "sm_52" or "sm_90" (NVRTC's default -O3).

    Raises OracleError with the compiler's log when the source is refused.
    """
    return _nvrtc_compile(source, name, [f"--gpu-architecture={arch}", "--disable-warnings", *options])


# ------------------------------------------------------------------------------------------------ command-line tools


def ptxas(ptx: str, arch: str = "sm_52", options: Sequence[str] = ()) -> bytes:
    """PTX text to a cubin."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = pathlib.Path(folder, "kernel.ptx"), pathlib.Path(folder, "kernel.cubin")
        source.write_text(ptx)
        _run([ptxas_path(), f"-arch={arch}", *options, source, "-o", cubin])
        return cubin.read_bytes()


def _on_file(tool: pathlib.Path, flags: Sequence[str], data: bytes, suffix: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "input" + suffix)
        path.write_bytes(data)
        return _run([tool, *flags, path])


def nvdisasm(cubin: bytes, *flags: str) -> str:
    """nvdisasm's text for a cubin, e.g. nvdisasm(cubin, "-c", "-hex", "-novliw")."""
    return _on_file(nvdisasm_path(), flags, cubin, ".cubin")


def cuobjdump(cubin: bytes, *flags: str) -> str:
    """cuobjdump's text for a cubin, e.g. cuobjdump(cubin, "-elf") or cuobjdump(cubin, "-sass")."""
    return _on_file(cuobjdump_path(), flags, cubin, ".cubin")


def nvdisasm_raw(words: Sequence[int], arch: str = "sm_52", *flags: str) -> str:
    """nvdisasm's text for bare 64-bit words, control words included (one before every three instructions).

    The text has one line per instruction with its offset and, with the flag -hex, its encoding.  nvdisasm refuses a
    stream whose control words it finds inconsistent ("Unaligned instruction found"), e.g. a dual issue that cannot be;
    0x001f8000fc0007e0 (no dual issue, no barriers) is accepted with any instructions.
    """
    data = b"".join(word.to_bytes(8, "little") for word in words)
    return _on_file(nvdisasm_path(), ["-b", arch.replace("_", "").upper(), *flags], data, ".bin")


_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*)$")


def instruction_lines(text: str) -> list[tuple[int, str]]:
    """(offset, instruction text) of every instruction line in nvdisasm output, in order.

    Dual-issue braces, the closing ';', encodings and `(*"BRANCH_TARGETS ..."*)` notes are removed.  The offset restarts
    with every function.  Lines that hold only a control word or a directive are left out.
    """
    found = []
    for line in text.splitlines():
        match = _INSTRUCTION.match(line)
        if match:
            body = re.sub(r"/\* 0x[0-9a-f]{16} \*/|\(\*.*?\*\)", "", match.group(2))
            body = re.sub(r"^\{\s|\s\}$", "", body.strip())  # dual issue; the braces of DEPBAR have no blank outside
            found.append((int(match.group(1), 16), body.split(";")[0].strip()))
    return found


def disassembly(cubin: bytes) -> dict[str, list[tuple[int, str]]]:
    """Function name -> [(offset, instruction text)] of every function section of a cubin."""
    functions: dict[str, list[tuple[int, str]]] = {}
    for part in re.split(r"^\s*\.section\s+", nvdisasm(cubin, "-c", "-novliw"), flags=re.MULTILINE)[1:]:
        name = re.match(r"\.text\.([^\s,\"]+)", part)
        if name:
            functions[name.group(1)] = instruction_lines(part)
    return functions
