"""Instructions and traces made by hand for the tests of the timing model."""

import numpy as np

from maxdnn.emulator.trace import WarpTrace
from maxdnn.isa import PT, RZ, TABLE, Control, Guard, Instruction, Operand, decode, encode
from maxdnn.simulator.access import NO_LANE
from maxdnn.simulator.blocks import Alike, Block, Box, Digit, Motion
from maxdnn.simulator.machine import preset
from maxdnn.simulator.simulate import Options, simulate
from maxdnn.simulator.workload import Builder

_DEFAULT = {"gpr": RZ, "pred": PT, "cc_test": 15}


def control(text):
    """A control code in the dialect's spelling, `--:-:-:-:1`."""
    wait, read, write, hint, stall = text.split(":")
    return Control(int(stall, 16), hint == "Y", None if write == "-" else int(write) - 1,
                   None if read == "-" else int(read) - 1, 0 if wait == "--" else int(wait, 16))


def ins(mnemonic, code="--:-:-:-:1", reuse=0, form=None, mods=None, **operands):
    """One instruction: operands by their name in the table (an address as its base register, or (base, offset))."""
    row = next(r for r in TABLE.named(mnemonic) if form in (None, r.form))
    ctl = control(code)
    ctl = Control(ctl.stall, ctl.yield_hint, ctl.write_barrier, ctl.read_barrier, ctl.wait_mask, reuse)
    word = row.value
    for name, value in (mods or {}).items():
        fields = row.modifiers[name]
        word |= fields.put(next(k for k, v in fields.values.items() if v.strip(".") == value))
    made = []
    for f in row.operands:
        value = operands.get(f.name, _DEFAULT.get(f.type, 0))
        if f.type in ("addr", "cbank_indexed"):
            base, offset = value if isinstance(value, tuple) else (value or RZ, 0)
            made.append(Operand(f, offset, base=base, bank=3 if f.type == "cbank_indexed" else 0))
        elif f.type == "cbank":
            made.append(Operand(f, value[1], bank=value[0]))
        elif f.type == "rel_target":
            made.append(Operand(f, 8))
        else:
            made.append(Operand(f, value))
    text = {k: (mods or {}).get(k, f.values.get(f.get(word), "").strip(".")) for k, f in row.modifiers.items()}
    inst = Instruction(0, word, ctl, row, Guard(), tuple(made), text)
    return decode(encode(inst), ctl, 0)


def placed(instructions):
    """The same instructions at the addresses a kernel would have them: three to a group of 32 bytes."""
    return tuple(decode(i.word, i.control, n // 3 * 32 + 8 + n % 3 * 8) for n, i in enumerate(instructions))


def built(instructions, traces, blocks, block_warps):
    """A workload of traces of every warp of the grid: trace b * block_warps + w is warp w of block b."""
    builder = Builder(instructions, blocks, block_warps, True)
    for b in range(blocks):
        builder.single(b, Block.of(traces[b * block_warps:(b + 1) * block_warps]))
    return builder.workload(blocks)


def lanes(values):
    """An address row: lanes not given take no part."""
    row = np.full(32, NO_LANE, np.int64)
    row[:len(values)] = np.asarray(values)
    return row.view(np.uint64)


def time(instructions, runs, *, addresses=lambda block, warp: [], blocks=1, warps=1, registers=32, shared=0,
         machine="gm204", all_sms=False, policy="greedy-then-oldest", trace=None, changes=None, step=None,
         warm=False):
    """Simulate every warp along the same runs, or each along those that `runs` has for its number; addresses(block,
    warp) gives its address rows. With `step`, only block
    0 is asked and block b's addresses are b * step further."""
    instructions = placed(instructions)
    paths = [np.array(runs[w] if isinstance(runs, dict) else runs, np.uint32) for w in range(warps)]
    traces = [WarpTrace((b, 0, 0), w, paths[w], np.array(addresses(b, w), np.uint64).reshape(-1, 32))
              for b in range(blocks if step is None else 1) for w in range(warps)]
    if step is None:
        work = built(instructions, traces, blocks, warps)
    else:
        first = Block.of(traces)
        motion = Motion(np.zeros(len(first.rows), np.int64), np.array([[step]]), np.zeros(0, np.int64),
                        np.zeros((0, 32, 1), np.int64))
        builder = Builder(instructions, blocks, warps, True)
        builder.alike(Alike(Box((0, 0, 0), (Digit(0, 1, blocks),)), first, motion), (blocks, 1, 1))
        work = builder.workload()
    return simulate(work, preset(machine).replace(**(changes or {})), registers=registers, shared_bytes=shared,
                    threads=warps * 32, options=Options(policy, all_sms, trace, warm=warm))


def loop(body, times, tail=None):
    """A loop of straight code and an EXIT: the instructions and the runs of a warp that goes round `times` times."""
    end = tail or [ins("EXIT", "--:-:-:-:f")]
    return [*body, *end], [(0, len(body))] * (times - 1) + [(0, len(body) + len(end))]
