"""No instruction gets a meaning without a model beside it."""

from maxdnn.isa import TABLE
from maxdnn.semantics import SEMANTICS
from tests.semantics import (
    test_convert,
    test_double,
    test_half,
    test_integer,
    test_logic,
    test_memory,
    test_predicates,
    test_single,
    test_video,
    test_warp,
)

FAMILIES = (test_convert, test_double, test_half, test_integer, test_logic, test_predicates, test_single, test_video,
            test_warp)
ELSEWHERE = {
    "RRO FCHK": "test_sequences",
    "ATOM.CAS ATOMS.CAS ATOM.F64 RED.F64 LDC": "test_memory",
    "TLD TLD.B TLDS TLDS.one": "test_texture",
    "S2R CS2R": "test_special",
    "LEPC": "test_flow",
    "ATOMS.CAST": "test_flow: it has none and faults",
    "NOP DEPBAR DEPBAR.LE MEMBAR CCTL CCTLL": "nothing to compute",
    "B2R.RESULT": "the corpus, with the barrier it belongs to",
}


def test_every_instruction_with_a_meaning_has_a_model():
    known = {name for module in FAMILIES for names in module.CASES for name in names.split()}
    known |= {name for names in ELSEWHERE for name in names.split()}
    known |= {names.split()[0] for table in (test_memory.SPACES, test_memory.STORES) for names in table}
    known |= {op for op, *_ in test_memory.ATOMICS}
    meant = {row.mnemonic for row in TABLE.rows if row.mnemonic in SEMANTICS or row.opcode in SEMANTICS}
    assert meant - known == set()
    assert known - meant == set(), "a model of nothing"
