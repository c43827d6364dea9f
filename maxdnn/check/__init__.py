"""Hazard checker: abstract interpretation of the issue timing that control codes guarantee. Knows instructions and
control flow; knows neither what an instruction computes nor how long a memory access takes."""

from pathlib import Path

from .. import cubin
from ..cubin import CubinKernel
from .advice import advice
from .effects import all_effects
from .flow import Graph
from .hazards import Hazards
from .report import Finding, Place, Report
from .shared import shared_findings
from .static import static_findings
from .timing import Timing

__all__ = ["Finding", "Place", "Report", "check_cubin", "check_hazards"]


INCOMPLETE = "calls nest too many ways: not every path was followed"


def check_hazards(kernel: CubinKernel) -> Report:
    """Check every reachable instruction of a kernel on all paths. Raises DecodeError at a word that is no
    instruction."""
    graph = Graph(kernel)
    effects = all_effects(kernel.instructions)
    timing = Timing(graph, effects)
    races, note = shared_findings(kernel, graph, effects)
    found = [*Hazards(timing).find(), *static_findings(graph, effects), *races]
    found.sort(key=lambda finding: finding.consumer.address)
    return Report(kernel.name, len(kernel.instructions), tuple(found), tuple(advice(timing)),
                  tuple(text for text in (note, "" if graph.complete else INCOMPLETE) if text))


def check_cubin(source: str | Path | bytes) -> tuple[Report, ...]:
    """The reports of all kernels of a cubin, in file order. Raises CubinError, DecodeError."""
    return tuple(check_hazards(kernel) for kernel in cubin.read(source).kernels.values())
