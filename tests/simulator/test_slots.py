"""Blocks that load and store differently: which access stands for which, and what all SMs ask of L2 and DRAM."""

from dataclasses import replace

import numpy as np
import pytest

from maxdnn.emulator.gpu import VirtualGpu
from maxdnn.simulator import columns as c
from maxdnn.simulator import timing
from maxdnn.simulator.probes.frame import assembled
from maxdnn.simulator.slots import slots, uneven
from maxdnn.simulator.state import Work, touches

LOAD, STORE = 0, 1


def code():
    rows = np.zeros((2, c.I_SIZE), np.int64)
    rows[:, c.I_KIND] = c.K_GLOBAL
    rows[STORE, c.I_STORE] = 1
    return rows


def work(*blocks, lines=1):
    """A block of one warp for each list of instructions."""
    paths = [np.array([[i, 1] for i in block]) for block in blocks]
    sizes = [len(path) for path in paths]
    records = np.zeros((sum(sizes), 4), np.int64)
    records[:, 2] = lines
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return Work(np.concatenate(paths), ends, np.arange(len(blocks)), np.arange(len(blocks)), ends, records,
                np.zeros((1, 2), np.int64), np.zeros((len(blocks), 1, 2), np.int64))


def touched(*blocks, lines=1):
    """What each record of such blocks touches, and the blocks."""
    blocks = work(*blocks, lines=lines)
    return touches(code(), blocks), blocks


def test_the_nth_load_stands_for_the_nth_load():
    of_record, by_slot, loads = slots(*touched([LOAD, STORE, LOAD], [STORE, STORE, LOAD]))
    assert loads == 2
    assert of_record.tolist() == [0, 2, 1, 2, 3, 0]
    assert by_slot.tolist() == [[0, 2, 1, -1], [5, -1, 3, 4]]


def test_blocks_that_load_and_store_as_often_need_no_slots():
    assert slots(*touched([LOAD, STORE], [LOAD, STORE])) is None


@pytest.mark.parametrize(("lines", "said"), [([1, 2, 1, 2], False), ([1, 2, 2, 1], True), ([1, 1, 0, 1], True)])
def test_an_access_may_have_more_lines_in_some_blocks(lines, said):
    assert uneven(*touched([LOAD, STORE], [LOAD, STORE], lines=lines)) is said


@pytest.mark.parametrize(("lines", "said"), [([2, 2], False), ([1, 2], True)])
def test_an_access_may_have_more_lines_where_addresses_lie_apart(lines, said):
    """Two blocks of a class, whose load has a record for each remainder of their addresses."""
    blocks = work([LOAD])
    blocks = replace(blocks, class_of=np.array([0, 0]), shift=np.array([[[0, 0]], [[5, 1]]]),
                     records=np.array([[0, 1, 0, -1], [0, 0, lines[0], 0], [0, 0, lines[1], 0]]))
    assert uneven(touches(code(), blocks), blocks) is said


SOURCE = """
# Kernel: odd
# Arch: sm_90
# Param: ptr data
--:-:1:-:1      S2R R7, SR_TID.X;
--:-:2:-:1      S2R R9, SR_CTAID.X;
--:-:3:-:2      LDC.64 R4, param_data[0];
--:-:-:-:1      ULDC.64 UR4, c[0x0][0x208];
03:-:-:-:6      LOP3.LUT R2, R9, {bit}, RZ, 0xc0, !PT;
--:-:-:Y:d      ISETP.NE.AND P0, PT, R2, RZ, PT;
--:-:-:-:6      LEA R9, R9, R7, 0x8;
04:-:-:-:6      IMAD.WIDE.U32 R4, R9, 0x10, R4;
{skip}
--:-:2:-:2  {guard} LDG.E.128 R8, desc[UR4][R4.64];
02:-:-:-:2      NOP;
END:
--:-:-:Y:5      EXIT;
"""


@pytest.mark.parametrize("bit", [1, 64])
@pytest.mark.parametrize(
    ("skip", "guard"), [("--:-:-:Y:5  @P0 BRA END;", ""), ("--:-:-:-:2      NOP;", "@!P0")], ids=("branch", "guard")
)
def test_dram_gives_what_all_blocks_read(bit, skip, guard):
    """Some blocks of 4 KiB read and the others do not, of whichever the SM has more that is simulated."""
    device, blocks = VirtualGpu(), 132 * 16
    function = device.load(assembled(SOURCE.format(bit=hex(bit), skip=skip, guard=guard))).function("odd")
    result = timing.launch(function, (blocks, 1, 1), (256, 1, 1), [device.alloc(blocks << 12)], machine="h100")
    reading = sum(n & bit == 0 for n in range(blocks))
    assert int(result.counters[c.C_DRAM_READ]) * 32 == pytest.approx(reading << 12, rel=0.05)


def test_l2_serves_the_sms_whose_blocks_ask():
    """Of each load from L2 half of the SMs have no lanes: all take half as long as where every SM has some."""
    load = "--:-:2:-:2  {guard} LDG.E.128 R8, desc[UR4][R4.64];"
    loads = "\n".join([load.replace("LDG.E.128", "LDG.E.128.STRONG.GPU")] * 64)
    cycles = []
    for guard in ("@!P0", ""):
        source = SOURCE.replace(load, loads).format(bit="0x1", skip="--:-:-:-:2      NOP;", guard=guard)
        device = VirtualGpu()
        function = device.load(assembled(source)).function("odd")
        cycles.append(timing.launch(function, (132, 1, 1), (256, 1, 1), [device.alloc(132 << 12)], machine="h100",
                                    options=timing.Options(warm=True)).cycles)
    assert cycles[0] == pytest.approx(cycles[1] / 2, rel=0.1)
