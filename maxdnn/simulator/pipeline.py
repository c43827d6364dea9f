"""The issues of a window of cycles in the Trace Event format that Perfetto and chrome://tracing open: one process per
SM, one track per warp, one microsecond on the screen per cycle."""

import json
from typing import Any

from ..errors import SimulationError
from .simulate import Result


def trace_events(result: Result) -> dict[str, Any]:
    """The trace as a JSON object. Needs a result simulated with Options(trace=(first, last)); raises SimulationError
    otherwise."""
    if result.options.trace is None:
        raise SimulationError("no pipeline trace was kept: simulate with Options(trace=(first cycle, last cycle))")
    events: list[dict[str, Any]] = []
    named: set[tuple[int, int]] = set()
    for cycle, scheduler, warp, index, second, block, there, read in result.events.tolist():
        sm, local = scheduler // 4, warp % result.resident_warps
        if (sm, local) not in named:
            named.add((sm, local))
            events += _names(sm, local, scheduler % 4, first=len([s for s, _ in named if s == sm]) == 1)
        inst = result.workload.instructions[index]
        events.append({"name": inst.opcode, "cat": inst.cls.name, "ph": "X", "ts": cycle, "dur": 1, "pid": sm,
                       "tid": local, "args": {"address": f"0x{inst.address:04x}", "text": inst.text(),
                                              "control": str(inst.control), "block": block,
                                              "result at": there, "operands read by": read,
                                              "second of a pair": bool(second)}})
    events.sort(key=lambda e: (e["ph"] != "M", e.get("ts", 0)))
    return {"traceEvents": events, "displayTimeUnit": "ns",
            "otherData": {"machine": result.machine.name, "policy": result.options.policy, "unit": "1 us = 1 cycle"}}


def _names(sm: int, warp: int, scheduler: int, first: bool) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [{"name": "thread_name", "ph": "M", "pid": sm, "tid": warp,
                                  "args": {"name": f"scheduler {scheduler}, warp {warp:02d}"}},
                                 {"name": "thread_sort_index", "ph": "M", "pid": sm, "tid": warp,
                                  "args": {"sort_index": scheduler * 100 + warp}}]
    if first:
        out.append({"name": "process_name", "ph": "M", "pid": sm, "args": {"name": f"SM {sm}"}})
    return out


def dumps(result: Result) -> str:
    return json.dumps(trace_events(result))
