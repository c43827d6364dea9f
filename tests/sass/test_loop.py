"""The loop generator of sass/maxwell/loop.inc: no bank conflicts by two counts, and its rows compute outer products."""

import os

import numpy as np
import pytest

from maxdnn.checker import check_cubin
from maxdnn.cubin import read
from maxdnn.emulator import VirtualGpu
from tests.maxas.tool import ROOT, assemble, maxas

from .machine_code import bank_conflicts

ROWS = 2
TILES = [(8, 8), (8, 16), (8, 4), (4, 4)]


def source(nx, ny, sums=None, insert=""):
    """A kernel of one warp: out[thread][y][x] = sum over rows of x[thread][row][x] * y[thread][row][y]."""
    sizes = {"X": nx, "Y": ny}
    at = {"X": 0, "Y": 32 * ROWS * 4 * nx}
    sets = [(first, first + nx) for first in (nx * ny, nx * ny + nx + ny)]
    loads = ", ".join(f"[{axis}, {i}, [map {{ {at[o]} + {4 * n} * $_ + {4 * i} }} 0 .. {ROWS - 1}]]"
                      for axis, (o, n) in enumerate(sizes.items()) for i in range(0, n, 4))
    lines = ["--:-:1:-:2 S2R tid, SR_TID.X;"]
    wait = "01"
    for o, n in sizes.items():
        lines += [f"{wait}:-:-:Y:d XMAD read{o}, tid, {ROWS * 4 * n}, RZ;",
                  f"--:-:-:Y:d IADD from0.CC, read{o}, param_{o.lower()}[0];",
                  f"--:-:-:Y:d IADD.X from1, RZ, param_{o.lower()}[1];"]
        wait = "--"
        for i in range(0, ROWS * n, 4):
            lines += [f"--:-:2:-:2 LDG.E.128 value0, [from0 + {4 * i}];",
                      f"02:3:-:-:2 STS.128 [read{o} + {at[o] + 4 * i}], value0;", "04:-:-:-:5 NOP;"]
    lines += [f"--:-:-:-:1 MOV cx{x}y{y}, RZ;" for x in range(nx) for y in range(ny)]
    lines += ["--:-:-:-:5 BAR.SYNC 0x0;", "--:-:-:Y:d ISETP.NE.AND P0, PT, RZ, RZ, PT;"]
    for o, n in sizes.items():
        lines += [f"--:-:1:-:2 LDS.U.128 j0{o}{o.lower()}{i}, [read{o} + {at[o] + 4 * i}];" for i in range(0, n, 4)]
    rows = f"""<CODE> return $unroll->(path => $fitted->{{path}}, names => ['X', 'Y'], loads => [{loads}],
        last => ['@P0', 3], insert => {{{insert}}}); </CODE>"""
    end = [f"01:-:-:Y:d XMAD low, tid, {4 * nx * ny}, RZ;", "--:-:-:Y:d IADD from0.CC, low, param_out[0];",
           "--:-:-:Y:d IADD.X from1, RZ, param_out[1];"]
    end += [f"--:-:-:-:2 STG.E [from0 + {4 * (y * nx + x)}], cx{x}y{y};" for y in range(ny) for x in range(nx)]
    return "\n".join([
        "# Kernel: souter", "# Arch: sm_52", f"# SharedSize: {32 * ROWS * 4 * (nx + ny)}", "# ReqThreads: 32",
        "# Param: ptr out  sums", "# Param: ptr x  operands", "# Param: ptr y  operands",
        '<INCLUDE file="loop.inc"/>',
        f"<CODE> our $fitted = $fit->(x => {nx}, y => {ny}, names => ['X', 'Y'],",
        f"    sums => [{sums or f'0 .. {nx * ny - 1}'}],",
        f"    sets => [{', '.join(f'[{x}, {y}]' for x, y in sets)}]); return $fitted->{{mapping}}; </CODE>",
        "<REGISTER_MAPPING>\n248-251 : value<0-3>\n246-247 : from<0-1>\n242-245 : tid, readX, readY, low\n"
        "</REGISTER_MAPPING>", *lines, rows, *end, "--:-:-:-:5 EXIT;"]) + "\n"


@pytest.fixture(scope="module", params=TILES, ids=str)
def built(request, tmp_path_factory):
    """A tile, the folder of its source, its cubin. Something stands between the FFMA of one of them."""
    tile, folder = request.param, tmp_path_factory.mktemp("loop")
    insert = "'1 9' => '--:-:-:-:1      IADD value0, tid, 0x1', '1 12' => '--:-:-:-:1  @P0 STS [readX], tid'"
    text = source(*tile, insert=insert if tile == (8, 4) else "")
    return tile, folder, assemble(folder, text, "-I", ROOT / "sass/maxwell", "-w")


def rows_of(cubin):
    """From the first FFMA to the last."""
    (kernel,) = read(cubin).kernels.values()
    places = [i for i, inst in enumerate(kernel.instructions) if inst.opcode == "FFMA"]
    return kernel.instructions[places[0]:places[-1] + 1]


@pytest.mark.sampled(2)
def test_no_multiplication_meets_a_bank_twice(built):
    """By the assembler's count and by an independent one; and each sum has a register of its own."""
    tile, folder, cubin = built
    rows = rows_of(cubin)
    assert bank_conflicts(rows) == []
    sums = [inst["d"].value for inst in rows if inst.opcode == "FFMA"]
    assert len(sums) == ROWS * tile[0] * tile[1] and sorted(set(sums)) == list(range(tile[0] * tile[1]))
    ran = maxas("-c", "-I", ROOT / "sass" / "maxwell", "-o", folder / "k.cubin", folder / "kernel.sass")
    assert ran.status == 0 and "FFMA" not in ran.err


def test_sums_of_neighbours_lie_in_different_banks(built):
    """So that memory instructions, which read registers when they can, find a bank free."""
    tile, _, cubin = built
    sums = [inst["d"].value % 4 for inst in rows_of(cubin) if inst.opcode == "FFMA"][:tile[0] * tile[1]]
    assert sum(a == b for a, b in zip(sums, sums[1:] + sums[:1], strict=True)) == 0


@pytest.mark.sampled(1)
def test_the_rows_compute_outer_products(built):
    tile, _, cubin = built
    assert all(report.ok for report in check_cubin(cubin))
    gpu = VirtualGpu(race=True, undefined=True)
    rng = np.random.default_rng(8)
    x, y = (rng.integers(-9, 10, (32, ROWS, n)).astype(np.float32) for n in tile)
    out = gpu.alloc(4 * 32 * tile[0] * tile[1])
    given = [gpu.alloc(v.nbytes) for v in (x, y)]
    for buffer, v in zip(given, (x, y), strict=True):
        gpu.upload(buffer, v)
    gpu.load(cubin).function("souter").launch((1, 1, 1), (32, 1, 1), [out.address, *(b.address for b in given)])
    found = np.empty((32, tile[1], tile[0]), np.float32)
    gpu.download(out, found)
    assert np.array_equal(found, np.einsum("trx,try->tyx", x, y))


def test_the_same_map_is_found_every_time(tmp_path):
    """Whatever order Perl keeps its hashes in."""
    path = tmp_path / "kernel.sass"
    path.write_text(source(8, 8))
    found = set()
    for number in "012":
        os.environ["PERL_HASH_SEED"] = number
        try:
            ran = maxas("-p", "-I", ROOT / "sass" / "maxwell", path)
        finally:
            del os.environ["PERL_HASH_SEED"]
        assert ran.status == 0, ran.err
        found.add(ran.out)
    assert len(found) == 1


@pytest.mark.parametrize(("how", "message"), [
    (dict(tile=(8, 4), sums="map { 4 * $_ } 0 .. 31"), "no registers without bank conflicts for a micro tile of 8 x 4"),
    (dict(tile=(8, 4), sums="0 .. 30"), "a micro tile of 8 x 4 has as many sums as registers for them"),
    (dict(tile=(8, 4), insert="'0 32' => '--:-:-:-:1      NOP'"), "no such FFMA: 0 32"),
    (dict(tile=(8, 4), insert="'0 1' => '--:-:-:-:1      NOP'"), "two instructions behind FFMA 1 of row 0"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_what_cannot_be_is_refused_in_words(how, message, tmp_path):
    path = tmp_path / "kernel.sass"
    path.write_text(source(*how.pop("tile"), **how))
    ran = maxas("-c", "-I", ROOT / "sass" / "maxwell", "-o", tmp_path / "k.cubin", path)
    assert ran.status == 1 and message in ran.err
