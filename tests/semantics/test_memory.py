"""Loads, stores and atomics of every width, type and space. Each lane has an address of its own; sub-word loads extend,
stores leave all other bytes alone, atomics return the old value (PTX ISA, ld, st, atom)."""

import random

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from maxdnn.isa import TABLE
from tests.corpus import exact
from tests.corpus.runner import ANY_NAN
from tests.semantics.bench import BLOCK, CONSTANTS, lane_addresses, load, make
from tests.semantics.operands import doubles, integers, singles

GRID = 40
LANES = GRID * BLOCK
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "": 4, "32": 4, "64": 8, "128": 16, "U.128": 16}
CELL = 32  # bytes of a lane, or of a thread's part of shared memory
SAVE = [make("STG", addr=(18, 0), d=12, e="E", size="128")]  # R12..R15 to the lane's 16 bytes of the output


def launch(words, arrays, constants=None, preset="gm204", **options):
    """Run words on whole warps; the arrays are device memory, in the order of the parameters, and come back changed."""
    gpu = VirtualGpu(preset, workers=1)
    buffers = [gpu.alloc(a.nbytes) for a in arrays]
    for buffer, array in zip(buffers, arrays, strict=True):
        gpu.upload(buffer, np.ascontiguousarray(array))
    function = load(gpu, words, pointers=len(arrays), constants=32 if constants is not None else 0, **options)
    function.launch((GRID, 1, 1), (BLOCK, 1, 1), [*buffers, *([] if constants is None else [constants])])
    for buffer, array in zip(buffers, arrays, strict=True):
        gpu.download(buffer, array)


def fill(store, base):
    """Copy the lane's CELL bytes at [R16] to memory by a 128-bit store."""
    return [w for k in (0, 16) for w in (make("LDG", d=8, addr=(16, k), e="E", size="128"),
                                         make(store, addr=(base, k), d=8, size="128"))]


def own_cell(shift):
    """R30 = byte offset of the thread's cell in shared memory; R31 = the lane's 32-bit offset from [R20]."""
    return [make("S2R", sr=0x21, d=30), make("SHL", "I", d=30, a=30, b=shift),
            make("LDG", d=31, addr=(20, 0), e="E", size="")]


def plus(register, base):
    """A pair of registers = base pair + the lane's signed offset."""
    return [make("SHR", "I", d=32, a=31, b=31, u=""), make("IADD", d=register, d_cc=True, a=base, b=31),
            make("IADD", d=register + 1, a=base + 1, b=32, x="X")]


def window(near, word):
    """Generic address of what the words before point to: the offset on top of the window's base, a word of bank 0."""
    return [*near, make("IADD", "C", d=26, a=26, b=(0, word)), make("MOV", d=27, m=15)]


SHARED = [*fill("STS", 30), make("BAR.SYNC", "II"), make("IADD", d=26, a=30, b=31)]
LOCAL = [*fill("STL", 255), make("MOV", d=26, b=31, m=15)]
SPACES = {  # opcode, and for generic ones the window: words before the access, register with the address, modifiers
    "LDG": ([*plus(26, 16)], 26, {"e": "E"}),
    "LD": ([*plus(26, 16)], 26, {"e": "E"}),
    "LD shared": (window(SHARED, 0), 26, {"e": "E"}),
    "LD local": (window(LOCAL, 4), 26, {"e": "E"}),
    "LDS": (SHARED, 26, {}),
    "LDS.U": (SHARED, 26, {}),
    "LDL": (LOCAL, 26, {}),
}
STORES = {"STG": "LDG", "ST": "LD", "ST shared": "LD shared", "ST local": "LD local", "STS": "LDS", "STL": "LDL"}
READ_BACK = {"STS": ("LDS", 30), "ST shared": ("LDS", 30), "STL": ("LDL", 255), "ST local": ("LDL", 255)}


def sizes(opcode):
    return [v.strip(".") for v in TABLE.named(opcode.split()[0])[0].modifiers["size"].values.values()]


ACCESSES = [(op, size) for op in SPACES for size in sizes(op)]
WRITES = [(op, size) for op in STORES for size in sizes(op)]


def drawn(*key):
    seed = repr(key)
    print("seed", seed)
    draw = np.random.default_rng(random.Random(seed).getrandbits(64))
    memory = draw.integers(0, 256, (LANES, CELL), np.uint8)
    return draw, memory


def offsets(draw, width):
    """An aligned place in the cell, as base offset and a signed immediate."""
    place = draw.integers(0, CELL // width, LANES).astype(np.int64) * width
    immediate = int(draw.integers(-4, 5)) * 16
    return place, (place - immediate).astype(np.int32).view(np.uint32), immediate


def loaded(memory, place, size):
    """The registers a load fills, as uint32 [lane, 1, 2 or 4]."""
    width = WIDTHS[size]
    raw = np.take_along_axis(memory, place[:, None] + np.arange(width), 1)
    if width >= 4:
        return raw.view(np.uint32)
    return raw.view(f"{'i' if size[0] == 'S' else 'u'}{width}").astype(np.int32).view(np.uint32)


@pytest.mark.sampled(15)
@pytest.mark.parametrize("opcode, size", ACCESSES)
def test_a_load_extends_and_fills_its_registers_only(opcode, size):
    draw, memory = drawn(opcode, size)
    place, base, immediate = offsets(draw, WIDTHS[size])
    out = draw.integers(0, 1 << 32, (LANES, 4), np.uint64).astype(np.uint32)
    want = out.copy()
    before, register, mods = SPACES[opcode]
    words = [*lane_addresses((16, 0, 5), (18, 1, 4), (20, 2, 2)), *own_cell(5), *before,
             make("LDG", d=12, addr=(18, 0), e="E", size="128"),
             make(opcode.split()[0], d=12, addr=(register, immediate), size=size, **mods), *SAVE]
    launch(words, [memory, out, base], shared=CELL * BLOCK, local=CELL)
    value = loaded(memory, place, size)
    want[:, :value.shape[1]] = value
    np.testing.assert_array_equal(out, want)


@pytest.mark.parametrize("opcode, size", WRITES)
def test_a_store_changes_its_bytes_only(opcode, size):
    """What the cell holds afterwards is read back by 128-bit loads of the same space."""
    draw, memory = drawn(opcode, size)
    width = WIDTHS[size]
    place, base, immediate = offsets(draw, width)
    data = draw.integers(0, 1 << 32, (LANES, 4), np.uint64).astype(np.uint32)
    want = memory.copy()
    np.put_along_axis(want, place[:, None] + np.arange(width), data.view(np.uint8)[:, :width], 1)
    before, register, mods = SPACES[STORES[opcode]]
    words = [*lane_addresses((16, 0, 5), (18, 1, 4), (20, 2, 2)), *own_cell(5), *before,
             make("LDG", d=12, addr=(18, 0), e="E", size="128"),
             make(opcode.split()[0], d=12, addr=(register, immediate), size=size, **mods)]
    if opcode in READ_BACK:
        read, back = READ_BACK[opcode]
        words += [w for k in (0, 16) for w in (make(read, d=8, addr=(back, k), size="128"),
                                               make("STG", addr=(16, k), d=8, e="E", size="128"))]
    launch(words, [memory, data, base], shared=CELL * BLOCK, local=CELL)
    np.testing.assert_array_equal(memory, want)


@pytest.mark.parametrize("size", ["U8", "S8", "U16", "S16", "", "64"])
def test_a_constant_load_takes_an_address_for_each_lane(size):
    draw, _ = drawn("LDC", size)
    width = WIDTHS[size]
    constants = draw.integers(0, 1 << 32, 32, np.uint64).astype(np.uint32)
    place = draw.integers(0, 128 // width, LANES) * width
    out, base = np.zeros((LANES, 4), np.uint32), (place + 64).astype(np.uint32)
    words = [*lane_addresses((18, 0, 4), (20, 1, 2)), make("LDG", d=4, addr=(20, 0), e="E", size=""),
             *[make("MOV", d=12 + k, m=15) for k in range(4)],
             make("LDC", d=12, addr=(4, CONSTANTS - 64), size=size), *SAVE]
    launch(words, [out, base], constants)
    value = loaded(np.tile(constants.view(np.uint8), (LANES, 1)), place, size)
    np.testing.assert_array_equal(out[:, :value.shape[1]], value)


# -- atomics ------------------------------------------------------------------------------------------------------

OPERATIONS = {  # exact integers of the type in, exact integers out
    "ADD": lambda old, b: old + b, "MIN": np.minimum, "MAX": np.maximum, "EXCH": lambda old, b: b,
    "INC": lambda old, b: np.where(old >= b, 0, old + 1),
    "DEC": lambda old, b: np.where((old == 0) | (old > b), b, old - 1),
    "AND": lambda old, b: old & b, "OR": lambda old, b: old | b, "XOR": lambda old, b: old ^ b,
}
KINDS = {"": np.uint32, "S32": np.int32, "U64": np.uint64, "S64": np.int64, "F32.FTZ.RN": np.float32}
ATOMICS = [(op, name, type_) for op in ("ATOM", "RED", "ATOMS") for name in OPERATIONS for type_ in KINDS
           if not (name == "EXCH" and (op == "RED" or type_.startswith("S")))
           and not (type_.startswith("S") and name not in ("MIN", "MAX"))
           and not ("64" in type_ and name in ("INC", "DEC"))
           and not (type_[:1] == "F" and (name != "ADD" or op == "ATOMS"))]


def operands(draw, dtype):
    """Old values and operands [2, lane] with edges, often equal or near each other."""
    words = (singles if dtype == np.float32 else integers)(draw, LANES)[:4]
    pair = words.reshape(2, 2, LANES).transpose(0, 2, 1).copy()
    pair[1] = np.where(draw.random(LANES)[:, None] < 0.2, pair[0] + draw.integers(0, 2, (LANES, 2), np.uint32), pair[1])
    if dtype().itemsize == 8:
        return pair.view(dtype)[..., 0]
    return np.ascontiguousarray(pair[..., 0]).view(dtype)


def expected(name, old, b, dtype):
    with np.errstate(all="ignore"):
        if dtype == np.float32:
            return exact.canonical(exact.add32(old, b, ftz=True))
        return OPERATIONS[name](old, b).astype(dtype)


def cell_words(opcode, width, access):
    """Operands to R4.., the access on the lane's own cell, the old value and the new cell to memory."""
    wide = "64" if width == 8 else ""
    words = [*lane_addresses((16, 0, 3), (18, 1, 4), (20, 2, 4)), *own_cell(3),
             make("LDG", d=4, addr=(20, 0), e="E", size="128"), *[make("MOV", d=12 + k, m=15) for k in range(4)]]
    shared = opcode.startswith("ATOMS")
    if shared:
        words += [make("LDG", d=8, addr=(16, 0), e="E", size="64"), make("STS", addr=(30, 0), d=8, size="64")]
    words += [access, *SAVE]
    if shared:
        words += [make("LDS", d=8, addr=(30, 0), size=wide), make("STG", addr=(16, 0), d=8, e="E", size=wide)]
    return words


def run_atomic(opcode, dtype, old, operand_rows, access, **options):
    """The cells after, and the old values returned."""
    width = dtype().itemsize
    cells = np.zeros((LANES, 8 // width), dtype)
    cells[:, 0] = old
    data = np.zeros((LANES, 16 // width), dtype)
    data[:, :len(operand_rows)] = np.stack(operand_rows, 1)
    out = np.zeros((LANES, 16 // width), dtype)
    launch(cell_words(opcode, width, access), [cells, out, data], shared=8 * BLOCK, **options)
    return cells[:, 0], out[:, 0]


@pytest.mark.sampled(15)
@pytest.mark.parametrize("opcode, name, type_", ATOMICS)
def test_an_atomic_operation_returns_the_old_value(opcode, name, type_):
    draw, _ = drawn(opcode, name, type_)
    dtype = KINDS[type_]
    old, b = operands(draw, dtype)
    mods = {"op": name, "type": type_} | ({} if opcode == "ATOMS" else {"e": "E"})
    where = {"addr": (30 if opcode == "ATOMS" else 16, 0)}
    access = make(opcode, d=4, **where, **mods) if opcode == "RED" else make(opcode, d=12, b=4, **where, **mods)
    cells, returned = run_atomic(opcode, dtype, old, [b], access)
    bits = f"u{dtype().itemsize}"
    np.testing.assert_array_equal(cells.view(bits), expected(name, old, b, dtype).view(bits))
    if opcode != "RED":
        np.testing.assert_array_equal(returned.view(bits), old.view(bits))


@pytest.mark.parametrize("opcode", ["ATOM.CAS", "ATOMS.CAS"])
@pytest.mark.parametrize("type_", ["", "64"])
def test_compare_and_swap_takes_the_next_register_as_the_new_value(opcode, type_):
    draw, _ = drawn(opcode, type_)
    dtype = np.uint64 if type_ else np.uint32
    old, other = operands(draw, dtype)
    compared, new = np.where(draw.random(LANES) < 0.5, old, other), operands(draw, dtype)[0]
    mods = {"type": type_} | ({} if opcode == "ATOMS.CAS" else {"e": "E"})
    access = make(opcode, d=12, b=4, addr=(30 if opcode == "ATOMS.CAS" else 16, 0), **mods)
    cells, returned = run_atomic(opcode, dtype, old, [compared, new], access)
    np.testing.assert_array_equal(cells, np.where(old == compared, new, old))
    np.testing.assert_array_equal(returned, old)


@pytest.mark.parametrize("opcode", ["ATOM.F64", "RED.F64"])
def test_the_double_precision_addition_of_later_chips(opcode):
    draw, _ = drawn(opcode)
    old, b = (doubles(draw, LANES)[k:k + 2].T.copy().view(np.float64)[:, 0] for k in (0, 2))
    access = make(opcode, **({"d": 4} if opcode == "RED.F64" else {"d": 12, "b": 4}), addr=(16, 0), e="E", op="ADD")
    cells, returned = run_atomic(opcode, np.float64, old, [b], access, preset="gp104")
    with np.errstate(all="ignore"):
        assert not ANY_NAN(cells, old + b).any()
    if opcode == "ATOM.F64":
        np.testing.assert_array_equal(returned.view(np.uint64), old.view(np.uint64))


def test_lanes_that_meet_in_one_cell_are_all_counted():
    """Every lane adds 1 to one word: the old values are a permutation of what came before."""
    cell, out = np.zeros(2, np.uint32), np.zeros((LANES, 4), np.uint32)
    words = [*lane_addresses((18, 1, 4)), make("MOV", "C", d=16, b=(0, 0x140), m=15),
             make("MOV", "C", d=17, b=(0, 0x144), m=15), make("MOV32I", "I", d=4, b=1, m=15),
             make("ATOM", d=12, addr=(16, 0), b=4, e="E", op="ADD"), *SAVE]
    launch(words, [cell, out])
    assert cell[0] == LANES
    np.testing.assert_array_equal(np.sort(out[:, 0]), np.arange(LANES))
