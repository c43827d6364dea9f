"""A simulated launch in words and numbers: what an engineer asks first, then where every issue slot went."""

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import SimulationError
from . import columns as c
from .machine import SECTOR, SHARED_BANKS, Machine
from .simulate import Result

Line = tuple[str, str]  # where an instruction comes from ("file:line"), and the author's text


def executed_by_class(result: Result) -> dict[str, int]:
    """Warp-instructions the whole grid executes, by scheduling class of the instruction table."""
    counts: dict[str, int] = {}
    for inst, n in zip(result.workload.instructions, result.workload.executed.tolist(), strict=True):
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


def as_dict(result: Result, lines: bool = True, source: Sequence[Line] | None = None) -> dict[str, Any]:
    """Everything as plain values for JSON. `lines`: with a row for each instruction, and for each line of the source if
    that is given. Raises SimulationError if the source is of another kernel."""
    n, fit = result.counters, result.occupancy
    scale = _mirrored(result)
    data: dict[str, Any] = {
        "machine": result.machine.name, "kind": "simulated", "policy": result.options.policy,
        "warm": result.options.warm,
        "simulated_sms": result.simulated_sms, "clocks": result.cycles, "seconds": result.seconds,
        "occupancy": {"blocks_per_sm": fit.blocks, "warps_per_sm": fit.warps, "limited_by": fit.limiter,
                      "percent": 100 * fit.warps / result.machine["warps_per_sm"], "blocks_by_limit": dict(fit.limits),
                      "threads": fit.threads, "registers": fit.registers, "shared_bytes": fit.shared_bytes},
        "blocks": result.workload.blocks, "executed": executed_by_class(result), "slots_percent": slots(result),
        "slots": 4 * result.cycles * result.simulated_sms,
        "dual_issued": int(n[c.C_DUAL]), "failed_pairs": int(n[c.C_FAILED_DUAL]),
        "hit_percent": {"texture/L1": result.ratio(c.C_L1_HITS, c.C_L1_SECTORS),
                        "L2": result.l2_hits,
                        "constant": result.ratio(c.C_C_HITS, c.C_C_LOOKUPS),
                        "constant L1.5": result.ratio(c.C_C15_HITS, c.C_C15_LOOKUPS),
                        "instruction": result.ratio(c.C_I_HITS, c.C_I_LOOKUPS)},
        "dram_read_bytes": int(n[c.C_DRAM_READ]) * SECTOR, "dram_written_bytes": int(n[c.C_DRAM_WRITE]) * SECTOR,
        "dram_percent_of_peak": 100 * float(n[c.C_DRAM_READ] + n[c.C_DRAM_WRITE]) * SECTOR
        / (result.cycles * result.machine.dram_bytes_per_cycle),
        "shared_pipe_percent": 100 * int(n[c.C_SHARED_BUSY]) / (result.cycles * result.simulated_sms),
        "texture_units_percent": 100 * int(n[c.C_TEX_BUSY])
        / (result.cycles * result.simulated_sms * (result.machine.of_any["texture_units"] or 1)),
        "mirrored_sms": scale,
    }
    data["traffic_bytes"] = traffic(result)
    data["limits_percent"] = {
        "issue": data["slots_percent"]["issued"], "FMA": _fma_percent(result),
        "shared memory": data["shared_pipe_percent"], "texture": data["texture_units_percent"],
        "L2": 100 * data["traffic_bytes"]["L2"] / (result.cycles * result.machine["l2_bytes"]),
        "DRAM": data["dram_percent_of_peak"]}
    if n[c.C_TENSOR_BUSY]:
        data["limits_percent"]["tensor cores"] = 100 * int(n[c.C_TENSOR_BUSY]) / (4 * result.cycles
                                                                                 * result.simulated_sms)
    data["roofline"] = roofline(result, data["limits_percent"])
    if lines:
        data["instructions"] = instruction_rows(result, source)
        if source is not None:
            data["source_lines"] = line_rows(data["instructions"])
    return data


def traffic(result: Result) -> dict[str, int]:
    """Bytes the whole chip asks of each level, in sectors: texture/L1 (the simulated SMs' for all), reads and atomics
    of L2, reads and writes of DRAM."""
    n = result.counters
    moved = {"texture/L1": n[c.C_L1_SECTORS] * (_mirrored(result) + 1), "L2": n[c.C_L2_SECTORS],
             "DRAM read": n[c.C_DRAM_READ], "DRAM written": n[c.C_DRAM_WRITE]}
    return {name: int(sectors) * SECTOR for name, sectors in moved.items()}


def _l1_rate(machine: Machine) -> float:
    """Bytes a clock of an SM through texture/L1."""
    if machine.sm90:
        return float(machine["line_bytes"])
    return 128 / float(machine["texture_cycles_per_channel"]) * float(machine["texture_units"])


def roofline(result: Result, limits: Mapping[str, float]) -> dict[str, Any]:
    """Operations a clock of the whole chip against what each resource allows: `flat` limits in operations a clock, and
    for each level of memory the bytes it moved and could have moved a clock. Operations are those of float32 where a
    launch has a share of them worth naming, else instructions of threads. Bytes of shared memory and textures are those
    that could have been moved while they were busy."""
    m, clocks = result.machine, result.cycles
    executed = result.workload.executed.tolist()
    floats = 32 * sum(n * _FLOATS.get(inst.opcode, 0)
                      for inst, n in zip(result.workload.instructions, executed, strict=True))
    counted = floats >= 0.01 * m.peak_flops_per_cycle * clocks
    operations = floats if counted else 32 * sum(executed)
    rates = {"shared memory": 4.0 * SHARED_BANKS * m["sms"],
             "texture": _l1_rate(m) * m["sms"],
             "L2": float(m["l2_bytes"]), "DRAM": m.dram_bytes_per_cycle}
    return {"unit": "float32 operations" if counted else "thread instructions", "operations": operations,
            "per_clock": operations / clocks,
            "flat": {"issue": 100 * operations / clocks / limits["issue"]}
            | ({"FMA": float(m.peak_flops_per_cycle)} if counted else {}),
            "memory": {name: {"bytes": limits[name] / 100 * rate * clocks, "bytes_per_clock": rate}
                       for name, rate in rates.items()}}


_FLOATS = {"FFMA": 2, "FFMA32I": 2, "FADD": 1, "FADD32I": 1, "FMUL": 1, "FMUL32I": 1}  # operations of a lane


def _fma_percent(result: Result) -> float:
    """Share of the lanes' cycles that a float32 addition, multiplication or both was issued in."""
    issued = sum(int(n) for inst, n in zip(result.workload.instructions, result.issued, strict=True)
                 if inst.opcode in _FLOATS)
    return 100 * issued / (4 * result.cycles * result.simulated_sms)


def _mirrored(result: Result) -> int:
    return 0 if result.options.all_sms else int(result.machine["sms"]) - 1


def instruction_rows(result: Result, source: Sequence[Line] | None = None) -> list[dict[str, Any]]:
    """For each executed instruction: address, control code, text, how often issued and as second of a pair, slots lost
    in front of it by reason; with a source also its place and the author's text."""
    rows = []
    _check_source(result, source)
    for i, inst in enumerate(result.workload.instructions):
        if not result.issued[i]:
            continue
        lost = {name: int(v) for name, v in zip(c.REASONS, result.stalls[i], strict=True) if v}
        row: dict[str, Any] = {"address": inst.address, "control": str(inst.control), "text": inst.text(),
                               "issued": int(result.issued[i]), "second": int(result.dual[i]), "lost": lost}
        if source is not None:
            row["place"], row["source"] = source[i]
        rows.append(row)
    return rows


def line_rows(instructions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows of instructions that have a place, added up by line of the source, in the order of the kernel. All that
    one block of embedded code wrote counts for the line it begins on."""
    rows: dict[str, dict[str, Any]] = {}
    for inst in instructions:
        row = rows.setdefault(inst["place"], {"place": inst["place"], "instructions": 0, "issued": 0, "second": 0,
                                              "lost": {}})
        row["instructions"] += 1
        row["issued"] += inst["issued"]
        row["second"] += inst["second"]
        for reason, n in inst["lost"].items():
            row["lost"][reason] = row["lost"].get(reason, 0) + n
    return list(rows.values())


def _check_source(result: Result, source: Sequence[Line] | None) -> None:
    """A source fits if it has as many instructions as the kernel has in front of its tail (BRA to itself, NOPs)."""
    if source is None:
        return
    opcodes = [inst.opcode for inst in result.workload.instructions]
    if len(source) >= len(opcodes) or opcodes[len(source):] != ["BRA"] + ["NOP"] * (len(opcodes) - len(source) - 1):
        raise SimulationError(f"the source must be that of the kernel (it has {len(source)} instructions, the kernel "
                              f"{len(opcodes)} with its end)")


def limiter(result: Result) -> str:
    """The one thing that costs most, in a line."""
    found = slots(result)
    name = max(c.REASONS, key=lambda reason: found[reason])
    if found["issued"] >= 90:
        return f"limited by issue slots: {found['issued']:.1f}% of them issue; most of the rest is lost to {name} " \
               f"({found[name]:.2f}%)"
    return f"limited by {name}: {found[name]:.1f}% of the issue slots are lost to it"


def text(result: Result, title: str, source: Sequence[Line] | None = None, worst: int = 12) -> str:
    """The report. `source`: where each instruction comes from; `worst`: how many instructions, those in front of which
    most slots were lost, and how many lines of the source are listed."""
    d = as_dict(result, lines=False)
    fit = d["occupancy"]
    out = [f"{title}  simulated {d['machine']}  {d['policy']}{', warm' * d['warm']}  {d['clocks']:,} clocks  "
           f"{1e6 * d['seconds']:,.1f} us",
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


def _worst_lines(result: Result, source: Sequence[Line] | None, worst: int) -> list[str]:
    total = 4 * result.cycles * result.simulated_sms
    rows = instruction_rows(result, source)
    out = ["slots lost in front of  %     mostly             instruction"]
    for row in _costliest(rows, worst):
        words = f"{row['place']:24} {row['source']}" if source is not None else f"{row['control']}  {row['text']}"
        out.append(f"  0x{row['address']:04x}           {100 * _lost(row) / total:7.3f}  {_reason(row):18} {words}")
    if source is not None:
        out += ["", "line of the source        instructions  slots issued %  lost %  mostly"]
        out += [f"  {row['place']:24}  {row['instructions']:10}  {100 * (row['issued'] - row['second']) / total:14.3f}"
                f"  {100 * _lost(row) / total:6.3f}  {_reason(row)}" for row in _costliest(line_rows(rows), worst)]
    return out


def _lost(row: Mapping[str, Any]) -> int:
    return sum(row["lost"].values())


def _reason(row: Mapping[str, Any]) -> str:
    return max(row["lost"], key=row["lost"].__getitem__)


def _costliest(rows: Sequence[Mapping[str, Any]], count: int) -> list[Mapping[str, Any]]:
    return sorted((row for row in rows if row["lost"]), key=_lost, reverse=True)[:count]
