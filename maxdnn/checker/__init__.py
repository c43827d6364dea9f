"""Hazard checker for machine code.

Control codes are checked over all paths that known predicate values leave open, by abstract interpretation of the
issue timing that they guarantee. Shared memory is checked along sampled paths. Reports errors, warnings (undecided or
not followed) and advice. It knows instructions, control flow and how addresses are computed; it does not know how long
a memory access takes.
"""

from pathlib import Path

from .. import cubin
from ..cubin import CubinKernel
from ..errors import CubinError
from ..isa.program import Graph
from . import sm80
from .advice import advice
from .effects import all_effects
from .hazards import Hazards
from .maxwell import MAXWELL
from .products import product_findings
from .report import ERROR, WARNING, Finding, Place, Report
from .shared import Walk, shared_findings
from .timing import Timing
from .together import UNITS, together_findings

__all__ = ["Finding", "Place", "Report", "check_cubin", "check_hazards"]


def check_hazards(kernel: CubinKernel) -> Report:
    """Check the control codes and the shared memory of a kernel, on all paths that its predicates leave open.

    Parameters
    ----------
    kernel : CubinKernel
        Such as `maxdnn.cubin.read(path).kernel()`.

    Returns
    -------
    Report
        Errors (an execution reads a wrong value), warnings (undecided or not followed) and advice, each with its
        place.

    Raises
    ------
    CubinError
        The argument is no kernel of `maxdnn.cubin.read`.
    DecodeError
        A word is no instruction.

    Notes
    -----
    Source: latencies mined from code of the vendor's compiler (maxdnn/checker/latencies.json, `latencies` of
    maxdnn/isa/hopper.json). Shared memory is followed along sampled paths.
    """
    if not isinstance(kernel, CubinKernel):
        raise CubinError(f"kernel must be a CubinKernel, such as maxdnn.cubin.read(path).kernel() (got {kernel!r})")
    timing = _timing(kernel)
    found = _findings(kernel, timing)
    errors, warnings = (tuple(f for f in found if f.level == level) for level in (ERROR, WARNING))
    advised = advice(timing) if timing.rules is MAXWELL else ()
    return Report(kernel.name, len(kernel.instructions), errors, warnings, tuple(advised))


def findings(kernel: CubinKernel) -> list[Finding]:
    """Errors and warnings by address: what decides whether a kernel is clean, without the advice, which takes long."""
    return _findings(kernel, _timing(kernel))


def control_findings(kernel: CubinKernel) -> list[Finding]:
    """Errors and warnings about control codes alone, in no order: shared memory is not looked at."""
    return _control_findings(kernel, _timing(kernel))


def _timing(kernel: CubinKernel) -> Timing:
    figures = kernel.table.latencies
    return Timing(Graph(kernel), all_effects(kernel.instructions), sm80.rules(figures) if figures else MAXWELL)


def _findings(kernel: CubinKernel, timing: Timing) -> list[Finding]:
    found = [*_control_findings(kernel, timing), *_memory_findings(kernel, timing), *_not_followed(timing.graph)]
    return sorted(found, key=lambda finding: finding.consumer.address)


def _control_findings(kernel: CubinKernel, timing: Timing) -> list[Finding]:
    graph, effects = timing.graph, timing.effects
    return [*Hazards(timing).find(), *timing.rules.static(graph, effects),
            *product_findings(graph, effects, kernel.registers)]


def _memory_findings(kernel: CubinKernel, timing: Timing) -> list[Finding]:
    """Findings about shared memory.

    Warp by warp along sampled paths; where asynchronous units work, all warps of a block together.
    """
    graph, effects = timing.graph, timing.effects
    if any(inst.opcode in UNITS for inst in graph.code):
        return together_findings(kernel, graph, effects)
    return shared_findings(kernel, Walk(graph, effects, timing.knowledge, timing.entry_states))


def _not_followed(graph: Graph) -> list[Finding]:
    return [Finding("not-followed", "control flow", None, Place.of(graph.code[i]), None, None,
                    f"{why}: what comes then was not checked", "name the targets, or check that part by hand", WARNING)
            for i, why in graph.unfollowed]


def check_cubin(source: str | Path | bytes) -> tuple[Report, ...]:
    """Check all kernels of a cubin.

    Parameters
    ----------
    source : str, Path or bytes
        A path, or the cubin itself.

    Returns
    -------
    tuple of Report
        In the order of the file.

    Raises
    ------
    CubinError
        This is no cubin.
    DecodeError
        A word is no instruction.
    OSError
        The file cannot be read.
    """
    return tuple(check_hazards(kernel) for kernel in cubin.read(source).kernels.values())
