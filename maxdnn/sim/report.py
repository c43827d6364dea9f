"""A simulated launch in words and numbers: what an engineer asks first, then where every issue slot went."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from . import columns as c
from .machine import SECTOR
from .simulate import Result

SLOT_NAMES = ("issued", *c.REASONS)


def executed_by_class(result: Result) -> dict[str, int]:
    """Warp-instructions the whole grid executes, by scheduling class of the instruction table."""
    counts: dict[str, int] = {}
    for inst, n in zip(result.workload.instructions, result.workload.executed().tolist(), strict=True):
        if n:
            counts[inst.cls.name] = counts.get(inst.cls.name, 0) + n
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def slots(result: Result) -> dict[str, float]:
    """Issue slots of the simulated SMs (4 per SM and cycle) in percent: issued, then lost by reason; they sum to 100.
    Instructions issued as second of a pair need no slot of their own."""
    total = 4 * result.cycles * result.simulated_sms
    first = int(result.issued.sum() - result.dual.sum())
    lost = result.stalls.sum(0)
    return {"issued": 100 * first / total} | {name: 100 * int(n) / total
                                              for name, n in zip(c.REASONS, lost, strict=True)}


def as_dict(result: Result, lines: bool = True) -> dict[str, Any]:
    """Everything as plain values for JSON. `lines`: with a row for each instruction."""
    n, fit = result.counters, result.occupancy
    scale = _mirrored(result)
    data: dict[str, Any] = {
        "machine": result.machine.name, "kind": "simulated", "policy": result.options.policy,
        "simulated_sms": result.simulated_sms, "clocks": result.cycles, "seconds": result.seconds,
        "occupancy": {"blocks_per_sm": fit.blocks, "warps_per_sm": fit.warps, "limited_by": fit.limiter,
                      "percent": 100 * fit.warps / result.machine["warps_per_sm"]},
        "blocks": result.workload.blocks, "executed": executed_by_class(result), "slots_percent": slots(result),
        "dual_issued": int(n[c.C_DUAL]), "failed_pairs": int(n[c.C_FAILED_DUAL]),
        "hit_percent": {"texture/L1": result.ratio(c.C_L1_HITS, c.C_L1_SECTORS),
                        "L2": result.ratio(c.C_L2_HITS, c.C_L2_SECTORS),
                        "constant": result.ratio(c.C_C_HITS, c.C_C_LOOKUPS),
                        "constant L1.5": result.ratio(c.C_C15_HITS, c.C_C15_LOOKUPS),
                        "instruction": result.ratio(c.C_I_HITS, c.C_I_LOOKUPS)},
        "dram_read_bytes": int(n[c.C_DRAM_READ]) * SECTOR, "dram_written_bytes": int(n[c.C_DRAM_WRITE]) * SECTOR,
        "dram_percent_of_peak": 100 * float(n[c.C_DRAM_READ] + n[c.C_DRAM_WRITE]) * SECTOR
        / (result.cycles * result.machine.dram_bytes_per_cycle),
        "shared_pipe_percent": 100 * int(n[c.C_SHARED_BUSY]) / (result.cycles * result.simulated_sms),
        "texture_units_percent": 100 * int(n[c.C_TEX_BUSY])
        / (result.cycles * result.simulated_sms * result.machine["texture_units"]),
        "mirrored_sms": scale,
    }
    if lines:
        data["instructions"] = instruction_rows(result)
    return data


def _mirrored(result: Result) -> int:
    return 0 if result.options.all_sms else int(result.machine["sms"]) - 1


def instruction_rows(result: Result) -> list[dict[str, Any]]:
    """For each executed instruction: address, control code, text, how often issued and as second of a pair, slots lost
    in front of it by reason."""
    rows = []
    for i, inst in enumerate(result.workload.instructions):
        if not result.issued[i]:
            continue
        lost = {name: int(v) for name, v in zip(c.REASONS, result.stalls[i], strict=True) if v}
        rows.append({"address": inst.address, "control": str(inst.control), "text": inst.text(),
                     "issued": int(result.issued[i]), "second": int(result.dual[i]), "lost": lost})
    return rows


def limiter(result: Result) -> str:
    """The one thing that costs most, in a line."""
    found = slots(result)
    name = max(c.REASONS, key=lambda reason: found[reason])
    if found["issued"] >= 90:
        return f"limited by issue slots: {found['issued']:.1f}% of them issue; most of the rest is lost to {name} " \
               f"({found[name]:.2f}%)"
    return f"limited by {name}: {found[name]:.1f}% of the issue slots are lost to it"


def text(result: Result, title: str, source: Sequence[str] | None = None, worst: int = 12) -> str:
    """The report. `source`: a line of the author's text for each instruction; `worst`: how many instructions, those in
    front of which most slots were lost, are listed."""
    d = as_dict(result, lines=False)
    fit = d["occupancy"]
    out = [f"{title}  simulated {d['machine']}  {d['policy']}  {d['clocks']:,} clocks  {1e6 * d['seconds']:,.1f} us",
           f"blocks {d['blocks']:,}  blocks/SM {fit['blocks_per_sm']}  warps/SM {fit['warps_per_sm']} "
           f"({fit['percent']:.0f}%, limited by {fit['limited_by']})", "", "issue slots            %"]
    out += [f"  {name:18}{value:7.2f}" for name, value in d["slots_percent"].items() if value >= 0.005]
    out += ["", "warp-instructions executed by class",
            "  " + "  ".join(f"{k} {v:,}" for k, v in d["executed"].items()), ""]
    hits = [f"{k} {v:.1f}%" for k, v in d["hit_percent"].items() if v is not None]
    out += ["cache hits  " + "  ".join(hits),
            f"DRAM read {d['dram_read_bytes'] / 1e6:,.1f} MB  written {d['dram_written_bytes'] / 1e6:,.1f} MB  "
            f"({d['dram_percent_of_peak']:.1f}% of peak)",
            f"busy  shared memory {d['shared_pipe_percent']:.1f}%  texture units {d['texture_units_percent']:.1f}%"]
    if worst:
        out += ["", *_worst_lines(result, source, worst)]
    return "\n".join([*out, "", limiter(result)])


def _worst_lines(result: Result, source: Sequence[str] | None, worst: int) -> list[str]:
    total = 4 * result.cycles * result.simulated_sms
    lost = result.stalls[:-1].sum(1)
    out = ["slots lost in front of  %     mostly             instruction"]
    for i in np.argsort(-lost, kind="stable")[:worst].tolist():
        if not lost[i]:
            break
        inst = result.workload.instructions[i]
        why = c.REASONS[int(result.stalls[i].argmax())]
        line = source[i].strip() if source is not None and i < len(source) else f"{inst.control}  {inst.text()}"
        out.append(f"  0x{inst.address:04x}           {100 * lost[i] / total:7.3f}  {why:18} {line}")
    return out
