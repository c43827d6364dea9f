"""Does a real driver load what the cubin writer writes?

The assembler's targets are Maxwell and Pascal, but its container is the same ELF that later GPUs use. `prepare` takes
machine code and metadata out of a cubin that NVRTC compiles for a GPU at hand (sm_90 by default) and has the writer
pack them anew; `run` loads the result with pycuda, sets its `__constant__` symbol from the host, launches it and
compares with NumPy. Only the container is under test.

    python tools/container_test.py prepare build/container      # needs NVRTC, pyelftools and Perl
    python tools/container_test.py run build/container          # needs pycuda and the GPU
"""

import argparse
import io
import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SOURCE = r"""
__constant__ float scale[4];
__constant__ int shift;
extern "C" __global__ void scaled(float *out, const float *in, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[(i + shift) % n] * scale[i & 3] + 1.0f;
}
"""
KERNEL = "scaled"
# What the writer makes itself, by its own order and symbol numbers: parameters, bank, registers, exits.
_WRITTEN = {0x0A, 0x19, 0x17, 0x1B, 0x1C, 0x1D}


def _attributes(data: bytes) -> list[tuple[int, int, bytes | int]]:
    """(code, format, value) of every entry of a .nv.info section; format 4 has bytes, the others a 16-bit number."""
    found: list[tuple[int, int, bytes | int]] = []
    at = 0
    while at + 4 <= len(data):
        fmt, code, value = struct.unpack_from("<BBH", data, at)
        at += 4
        found.append((code, fmt, data[at:at + value] if fmt == 4 else value))
        at += value if fmt == 4 else 0
    return found


def _kernel(elf: Any, name: str) -> dict[str, Any]:
    """The writer's description of one kernel."""
    text, bank0 = elf.get_section_by_name(f".text.{name}"), elf.get_section_by_name(f".nv.constant0.{name}")
    entries = _attributes(elf.get_section_by_name(f".nv.info.{name}").data())
    one = {code: value for code, _, value in entries}
    base, size = struct.unpack_from("<HH", one[0x0A], 4)
    symbols = elf.get_section_by_name(".symtab").iter_symbols()
    number = next(i for i, s in enumerate(symbols) if s.name == name)
    counts = dict(struct.unpack("<II", v) for c, _, v in _attributes(elf.get_section_by_name(".nv.info").data())
                  if c == 0x2F)
    params = []
    for code, _, value in entries:
        if code == 0x17:
            _, ordinal, offset, packed = struct.unpack("<IHHI", value)
            params.append({"ordinal": ordinal, "offset": offset, "size": packed >> 18, "align": packed & 0xFF})
    return {
        "name": name, "code": text.data().hex(), "registers": counts[number], "info_registers": text["sh_info"] >> 24,
        "barriers": text["sh_flags"] >> 20 & 31, "text_flags": text["sh_flags"], "text_align": text["sh_addralign"],
        "shared": 0, "param_base": base, "param_bytes": size, "constant0_size": bank0["sh_size"],
        "params": sorted(params, key=lambda p: p["ordinal"]),
        "max_registers": one[0x1B], "exits": list(struct.unpack(f"<{len(one[0x1C]) // 4}I", one[0x1C])),
        "attributes": [[c, f, v.hex() if isinstance(v, bytes) else v] for c, f, v in entries if c not in _WRITTEN],
    }


def describe(cubin: bytes, sm: int) -> dict[str, Any]:
    """Machine code and metadata of a vendor cubin as the writer's JSON module."""
    from elftools.elf.elffile import ELFFile
    elf = ELFFile(io.BytesIO(cubin))
    constants: dict[str, Any] = {}
    bank3 = next(i for i, s in enumerate(elf.iter_sections()) if s.name == ".nv.constant3")
    symbols = [{"name": s.name, "offset": s["st_value"], "size": s["st_size"]}
               for s in elf.get_section_by_name(".symtab").iter_symbols()
               if s["st_shndx"] == bank3 and s["st_info"]["type"] == "STT_OBJECT"]
    constants["3"] = {"data": elf.get_section(bank3).data().hex(), "symbols": symbols}
    return {"sm": sm, "e_flags": elf["e_flags"], "e_version": elf["e_version"], "kernels": [_kernel(elf, KERNEL)],
            "constants": constants}


def prepare(folder: Path, arch: str) -> Path:
    """Write vendor.cubin, module.json and ours.cubin into `folder`; returns the last."""
    sys.path.insert(0, str(ROOT))
    from tests import oracles
    folder.mkdir(parents=True, exist_ok=True)
    vendor = oracles.compile_cuda(SOURCE, arch)
    (folder / "vendor.cubin").write_bytes(vendor)
    (folder / "module.json").write_text(json.dumps(describe(vendor, int(arch.removeprefix("sm_"))), indent=1))
    ours = folder / "ours.cubin"
    maxas = ROOT / "tools" / "maxas" / "maxas.pl"
    subprocess.run(["perl", maxas, "--container", folder / "module.json", "-o", ours], check=True)
    print(oracles.cuobjdump(ours.read_bytes(), "-res-usage").strip())
    return ours


def run(folder: Path) -> bool:
    """Load both cubins, run them on the GPU and compare with NumPy; True if all is right."""
    import numpy as np
    import pycuda.autoinit  # noqa: F401  creates the context
    import pycuda.driver as cuda
    rng = np.random.default_rng(20150103)
    n, shift = 10_007, 3
    source = rng.standard_normal(n).astype(np.float32)
    scale = np.array([0.5, -2.0, 3.0, 0.25], np.float32)
    want = source[(np.arange(n) + shift) % n] * scale[np.arange(n) & 3] + np.float32(1)
    good = True
    for name in ("vendor.cubin", "ours.cubin"):
        module = cuda.module_from_file(str(folder / name))
        for symbol, value in (("scale", scale), ("shift", np.int32(shift))):
            pointer, size = module.get_global(symbol)
            assert size == value.nbytes, f"{symbol} has {size} bytes, not {value.nbytes}"
            cuda.memcpy_htod(pointer, value)
        out, given = cuda.mem_alloc(source.nbytes), cuda.to_device(source)
        cuda.memcpy_htod(out, np.full(n, np.nan, np.float32))
        function = module.get_function(KERNEL)
        function(out, given, np.int32(n), block=(128, 1, 1), grid=((n + 127) // 128, 1))
        got = cuda.from_device(out, n, np.float32)
        same = bool(np.allclose(got, want, rtol=1e-6, atol=1e-6))
        print(f"{name}: {cuda.Context.get_device().name()}, {function.num_regs} registers, "
              f"{'right' if same else 'WRONG'} ({n} results)")
        good &= same
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["prepare", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--arch", default="sm_90", help="GPU architecture to compile for (default sm_90)")
    options = parser.parse_args()
    if options.step == "run":
        return 0 if run(options.folder) else 1
    prepare(options.folder, options.arch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
