"""Tensor cores, barriers in shared memory and bulk copies of sm_90a: what compiled code has of them prints as the
vendor prints it and encodes to the same bits, and it is known what they read and write."""

import dataclasses

import pytest

from maxdnn import cubin
from maxdnn.checker import check_hazards
from maxdnn.isa import Instruction, Undecodable, decode, encode, read_word, table_of
from maxdnn.isa.control import CONTROL_LSB, Control
from tests.corpus import tensor
from tests.isa.test_hopper import OLDER, _vendor

TABLE = table_of("sm_90")
SIZES = range(8, 257, 8)


def _code(image: bytes) -> tuple[Instruction, ...]:
    (kernel,) = cubin.read(image).kernels.values()
    return kernel.instructions


@pytest.mark.long
def test_compiled_code_prints_as_the_vendor_prints_it_and_encodes_to_the_same_bits() -> None:
    seen: set[str] = set()
    every = [pair for image in tensor.every().values() for kernel in cubin.read(image).kernels.values()
             for _, *pair in kernel.words()]
    texts = _vendor([word | control.pack() << CONTROL_LSB for word, control in every])
    for i, ((word, control), text) in enumerate(zip(every, texts, strict=True)):
        inst = decode(word, control, TABLE.addressing.address_of(i), TABLE)
        assert inst.text() == text
        assert encode(dataclasses.replace(inst, word=0)) == word, text
        if inst.cls.name in ("wgmma", "async"):
            seen.add(inst.row.spec["name"])
    never = {"syncs_ld_", "syncs_uniform_ld_", "syncs_cctl_all_", "warpgroup_wait_", "ublkred_desc_",  # no PTX has them
             "ublkpf__UUU_desc", "usetmaxreg__URb_alloc", "usetmaxreg__URb_dealloc"}
    assert seen == {row.spec["name"] for row in TABLE.rows if row.cls.name in ("wgmma", "async")} - never


@pytest.mark.sampled(1)
@pytest.mark.parametrize("wide", [True, False])
def test_an_accumulator_has_a_register_for_each_two_or_four_columns(wide: bool) -> None:
    for n in SIZES if wide else (8, 24, 256):
        first = next(i for i in _code(tensor.products(n, wide=wide)) if i.opcode == "HGMMA")
        assert first["d"].regs == first["c"].regs == (n // 2 if wide else n // 4)


def _only(image: bytes, opcode: str) -> Instruction:
    return next(inst for inst in _code(image) if inst.opcode == opcode)


def test_what_a_product_reads_and_writes() -> None:
    code = [i for i in _code(tensor.products(96, "f16", True)) if i.opcode == "HGMMA"]
    first, last = code[0], code[-1]
    assert first["c"].value == 255 and str(first).endswith("RZ, !UPT")  # in place of what was there
    d = frozenset(range(first["d"].value, first["d"].value + 48))
    a = frozenset(range(first["a"].value, first["a"].value + 4))
    assert first.writes() == last.writes() == d
    assert first.reads() == a and last.reads() == a | d
    assert last["gsb"].label == "gsb0" and not first["gsb"].label
    assert last["scale"].value < 7 and not last["scale"].inv
    assert [list(i["b"].uniforms()) for i in (first, last)] == [
        [i["b"].value, i["b"].value + 1] for i in (first, last)]
    shared = _only(tensor.products(96), "HGMMA")
    assert list(shared["a"].uniforms()) == [shared["a"].value + i for i in range(4)]


def test_what_copies_read() -> None:
    """A destination in shared memory comes with the address of its barrier, one in global memory has 64 bits."""
    for name, counts in (("copies_in", (2, 2)), ("copies_out", (2, 1)), ("copies_across", (2, 1))):
        copy = _only(tensor.small(name), "UBLKCP")
        assert tuple(len(copy[x].uniforms()) for x in "da") == counts, name
        assert len(copy["size"].uniforms()) == 1 and not copy.writes()
    assert len(_only(tensor.small("copies_in_kept"), "UBLKCP")["desc"].uniforms()) == 2


def test_what_barriers_read_and_write() -> None:
    init = _only(tensor.small("init"), "SYNCS")
    assert init.mnemonic == "SYNCS" and len(init["b"].uniforms()) == 2 and not init.uniform_writes()
    arrive = _only(tensor.small("arrive_n"), "SYNCS")
    assert len(arrive.writes()) == 2 and arrive["b"].value in arrive.reads()
    waits = _only(tensor.small("try_parity"), "SYNCS")
    assert waits.pred_writes() and waits["b"].value in waits.reads()
    elect = _only(tensor.small("elects"), "ELECT")
    assert elect.pred_writes() and elect.uniform_writes()
    grows = next(i for i in _code(tensor.pipeline()) if "TRY_ALLOC" in i.text())
    assert grows.uniform_pred_writes() and grows["n"].value == 232


@pytest.mark.parametrize("arch", OLDER)
def test_no_older_architecture_has_them(arch: str) -> None:
    table = table_of(arch)
    there = {row.spec["name"] for row in table.rows}
    assert {row.spec["name"] for row in TABLE.rows if row.cls.name in ("wgmma", "async")} & there == {"arrives_"}
    product = _only(tensor.products(8), "HGMMA")
    assert isinstance(read_word(product.word, Control(), 0, table), Undecodable)


@pytest.mark.long
def test_the_checker_finds_nothing_in_compiled_code_but_mbarriers_that_nobody_initialised() -> None:
    without = "copies_arrive", "copies_in", "copies_in_kept"  # a line each: nothing before it initialises its mbarrier
    for name, image in tensor.every().items():
        for kernel in cubin.read(image).kernels.values():
            wrong = [f for f in check_hazards(kernel).findings if f.level == "error"]
            assert {f.kind for f in wrong} == ({"mbarrier"} if name in without else set()), f"{name}: {wrong[:3]}"


def test_a_result_that_a_product_reads_too_early_is_found() -> None:
    """Its descriptor comes out of uniform arithmetic: nine cycles."""
    (kernel,) = cubin.read(tensor.pipeline()).kernels.values()
    code = kernel.instructions
    at = next(i for i, inst in enumerate(code) if inst.opcode == "HGMMA"
              and code[i - 1].uniform_writes() & set(inst["a"].uniforms()))
    where = 16 * (at - 1)
    word = int.from_bytes(kernel.code[where:where + 16], "little")
    control = dataclasses.replace(code[at - 1].control, stall=2)
    weak = word & ~((1 << 21) - 1 << CONTROL_LSB) | control.pack() << CONTROL_LSB
    bad = dataclasses.replace(kernel, code=b"".join(
        (kernel.code[:where], weak.to_bytes(16, "little"), kernel.code[where + 16:])))
    assert any(f.level == "error" and f.kind == "fixed-latency" for f in check_hazards(bad).findings)
