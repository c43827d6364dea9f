"""Control flow that compiled programs seldom or never use, lanes going separate ways: PCNT and CONT, absolute jumps and
calls, jumps through registers. What has no published meaning ends in a fault that names the instruction."""

import numpy as np
import pytest

from maxdnn.emulator import VirtualGpu
from maxdnn.errors import EmulationFault
from maxdnn.isa import Guard
from tests.semantics.bench import lane_addresses, load, make

LANES = 256
P0, P1, NOT_P0 = Guard(0), Guard(1), Guard(0, True)
RELATIVE = ("BRA", "PBK", "PCNT", "SSY", "CAL", "PRET", "PLONGJMP", "PEXIT")


def place(k):
    """Address of instruction k: every 32 bytes begin with a control word."""
    return k // 3 * 32 + 8 + k % 3 * 8


class Code:
    """Instructions with labels: `label("X")` names the next one, `to("X")` in an instruction's target refers to it."""

    def __init__(self):
        self.items, self.labels = [], {}

    def label(self, name):
        self.labels[name] = len(self.items)

    def op(self, mnemonic, form="R", **given):
        self.items.append((mnemonic, form, given))

    def words(self):
        out = []
        for k, (mnemonic, form, given) in enumerate(self.items):
            given = {n: place(self.labels[v]) if isinstance(v, str) and v in self.labels else v
                     for n, v in given.items()}
            if mnemonic in RELATIVE:
                given["target"] -= place(k)  # `make` encodes for address 0
            out.append(make(mnemonic, form, **given))
        return out


def program(body):
    """The body, then R12 to the output."""
    code = Code()
    body(code)
    code.label("store")
    code.op("STG", addr=(18, 0), d=12, e="E", size="")
    code.op("EXIT", "-")
    return code


def run(body, values):
    """The output of every lane: R12 after the body, which begins with the lane's input in R4 and R12 = 0."""
    head = [*lane_addresses((16, 0, 2), (18, 1, 2)), make("LDG", d=4, addr=(16, 0), e="E", size=""),
            make("MOV", d=12, m=15)]
    head += [make("NOP", "-")] * (-len(head) % 3)
    code = program(body)
    code.items = [("NOP", "-", {})] * len(head) + code.items
    code.labels = {n: k + len(head) for n, k in code.labels.items()}
    words = head + code.words()[len(head):]
    gpu = VirtualGpu(workers=1, instruction_budget=1 << 20)
    source, out = gpu.alloc(4 * LANES), gpu.alloc(4 * LANES)
    gpu.upload(source, np.asarray(values, np.uint32))
    load(gpu, words).launch((1, 1, 1), (LANES, 1, 1), [source, out, np.zeros(32, np.uint32)])
    result = np.empty(LANES, np.uint32)
    gpu.download(out, result)
    return result


VALUES = np.random.default_rng(1).integers(0, 40, LANES)


def test_continue_skips_the_rest_of_a_turn_and_break_leaves_the_loop():
    """for i in 0..: if i >= n break; if i odd continue; sum += i"""
    def body(c):
        c.op("MOV", d=5, m=15)
        c.op("PBK", "I", target="end")
        c.label("head")
        c.op("PCNT", "I", target="next")
        c.op("ISETP", pd=0, a=5, b=4, cmp="GE", u="")
        c.op("BRK", "-", guard=P0)
        c.op("LOP", "I", pd=1, a=5, b=1, pop="NZ")
        c.op("CONT", "-", guard=P1)
        c.op("IADD", d=12, a=12, b=5)
        c.op("CONT", "-")
        c.label("next")
        c.op("IADD", "I", d=5, a=5, b=1)
        c.op("BRA", "I", target="head")
        c.label("end")
    np.testing.assert_array_equal(run(body, VALUES), [sum(range(0, n, 2)) for n in VALUES])


def test_an_absolute_call_returns_behind_itself_for_the_lanes_that_came():
    """Even lanes call: x = 3 x + 1, everyone adds 100."""
    def body(c):
        c.op("MOV", d=12, b=4, m=15)
        c.op("LOP", "I", pd=0, a=4, b=1, pop="NZ")
        c.op("SSY", "I", target="join")
        c.op("BRA", "I", target="odd", guard=P0)
        c.op("JCAL", "I", target="function")
        c.label("odd")
        c.op("SYNC", "-")
        c.label("join")
        c.op("IADD", "I", d=12, a=12, b=100)
        c.op("JMP", "I", target="store")
        c.label("function")
        c.op("ISCADD", d=12, a=12, b=12, s=1)
        c.op("IADD", "I", d=12, a=12, b=1)
        c.op("RET", "-")
    want = np.where(VALUES % 2, VALUES, 3 * VALUES + 1) + 100
    np.testing.assert_array_equal(run(body, VALUES), want)


def test_a_jump_under_a_guard_takes_only_its_lanes():
    def body(c):
        c.op("ISETP", "I", pd=0, a=4, b=20, cmp="LT")
        c.op("SSY", "I", target="join")
        c.op("JMP", "I", target="small", guard=P0)
        c.op("IADD", "I", d=12, a=4, b=1000)
        c.op("SYNC", "-")
        c.label("small")
        c.op("IADD", "I", d=12, a=4, b=2000)
        c.op("SYNC", "-")
        c.label("join")
    np.testing.assert_array_equal(run(body, VALUES), np.where(VALUES < 20, 2000, 1000) + VALUES)


def test_a_jump_through_a_register_goes_where_each_lane_says():
    """LEPC gives the address of what follows it; one of two stubs by an absolute address in a register."""
    def body(c):
        c.op("LOP", "I", d=6, a=4, b=1)
        c.op("SSY", "I", target="join")
        c.op("NOP", "-")  # the stubs stand in groups of their own: 32 bytes apart
        c.label("here")
        c.op("LEPC", d=7)
        c.op("SHL", "I", d=6, a=6, b=5)
        c.op("IADD", d=6, a=6, b=7)
        c.op("JMX", target=(6, 56))  # `here` is 8 bytes before what LEPC gives
        c.op("NOP", "-")
        c.op("NOP", "-")
        c.op("IADD", "I", d=12, a=4, b=1000)
        c.op("SYNC", "-")
        c.op("NOP", "-")
        c.op("IADD", "I", d=12, a=4, b=2000)
        c.op("SYNC", "-")
        c.op("NOP", "-")
        c.label("join")
    np.testing.assert_array_equal(run(body, VALUES), np.where(VALUES % 2, 2000, 1000) + VALUES)


def test_exit_under_a_condition_of_the_flags():
    """EXIT CC.EQ: lanes whose subtraction gave zero leave without storing."""
    def body(c):
        c.op("IADD", "I", d=255, d_cc=True, a=4, b=-7)
        c.op("EXIT", "-", cc=2)
        c.op("MOV32I", "I", d=12, b=1, m=15)
    np.testing.assert_array_equal(run(body, VALUES), (VALUES != 7).astype(np.uint32))


WITHOUT_MEANING = [
    ("LONGJMP", "-", {}), ("PLONGJMP", "I", {"target": "store"}), ("PEXIT", "I", {"target": "store"}),
    ("SHL", "R", {"d": 12, "a": 4, "b": 5, "x": "X"}), ("SHR", "R", {"d": 12, "a": 4, "b": 5, "x": "X"}),
    ("SHF.L", "R", {"d": 12, "a": 4, "b": 5, "c": 6, "hi": "X"}),
    ("LDC", "R", {"d": 12, "addr": (4, 0), "mode": "IL", "size": ""}), ("CSETP", "-", {"pd": 0, "cc": "CSM_TA"}),
    ("TEX", "R", {"d": 12, "a": 4, "mask": 1}), ("TLD4", "R", {"d": 12, "a": 4, "mask": 1}),
    ("RED", "R", {"addr": (16, 0), "d": 4, "e": "E", "type": "F16x2.FTZ.RN"}), ("SAM", "-", {}), ("RAM", "-", {}),
    ("ATOMS.CAST", "R", {"d": 12, "addr": (4, 0), "b": 4}),
    ("FSWZADD", "R", {"d": 12, "a": 4, "b": 5}), ("GETLMEMBASE", "R", {"d": 12}),
]


@pytest.mark.parametrize("mnemonic, form, given", WITHOUT_MEANING, ids=[w[0] for w in WITHOUT_MEANING])
def test_what_has_no_published_meaning_faults_by_name_when_it_is_reached(mnemonic, form, given):
    def body(c):
        c.op("ISETP", "I", pd=0, a=4, b=99, cmp="EQ")
        c.op("BRA", "I", target="store", guard=NOT_P0)
        c.op(mnemonic, form, **given)
    assert run(body, VALUES).max() == 0
    with pytest.raises(EmulationFault, match=rf"warp 0, lane 5: .*{mnemonic}"):
        run(body, np.where(np.arange(LANES) == 5, 99, VALUES))
