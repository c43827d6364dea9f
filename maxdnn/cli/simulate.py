"""`maxdnn simulate`: how long a layer or a launch takes on a Maxwell GPU, and where every issue slot goes."""

import argparse
import dataclasses
import json
import math
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ._sources import Source
from ._types import at_least, file_name, layer, pass_of

HELP = "cycle-level timing of a convolution layer, or of any cubin with a launch file"
PICTURES = (".png", ".svg")
# What a layer may be given, and what it is taken for if it is not.
_OF_LAYERS = {"layout": ("--layout", "CHWN"), "direction": ("--pass", "forward"), "algorithm": ("--algorithm", "auto"),
              "max_error": ("--max-error", None), "kernel": ("--kernel", "best")}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "--launch: see `maxdnn run --help`"
    parser.add_argument("what", metavar="LAYER|SHAPE|FILE.cubin",
                        help="alexnet-conv2; N,C,H,W,K,R,S[,stride[,padding]]; or a cubin (with --launch)")
    parser.add_argument("--launch", type=file_name, metavar="FILE.json",
                        help="the launches of a cubin's kernels, see below; --layout, --pass, --algorithm, --max-error "
                             "and --kernel are for layers")
    parser.add_argument("--machine", default="gm204",
                        help="preset: gm107 gm200 gm204 gm20b gp104 h100 h100-pcie h200 (default gm204)")
    parser.add_argument("--layout", help="layout of the arrays: CHWN (default) or NCHW")
    parser.add_argument("--pass", dest="direction", metavar="PASS",
                        help="forward (default), data or filters: the gradient with respect to the images or filters")
    parser.add_argument("--algorithm", help="auto (default), direct, winograd or fft, as for maxdnn.conv_fprop")
    parser.add_argument("--max-error", type=float, metavar="E",
                        help="take no candidate whose documented error is larger (default 2e-6; none for --kernel)")
    parser.add_argument("--kernel",
                        help="the candidate of the planner with this name; sconv_fprop_paper: with the paper's loop, "
                             "as in the paper's table; best (default): the planner's choice")
    parser.add_argument("--policy", default="", help="how a scheduler chooses a warp (default: the machine's own way)")
    parser.add_argument("--all-sms", action="store_true", default=None,
                        help="simulate every SM instead of one and its mirror images (on sm_90 small launches whose "
                             "CTAs are unlike always do)")
    parser.add_argument("--warm", action="store_true",
                        help="each launch follows one of the same kernel with the same arguments: L2 holds what that "
                             "touched last, and what the launches before it have left (default: the caches are empty "
                             "when a launch begins)")
    parser.add_argument("--set", nargs=2, metavar=("FIGURE", "VALUE"), action="append", default=[],
                        help="change a figure of the machine, for what-if studies; may be repeated (docs/timing.md "
                             "lists the figures and their ranges)")
    parser.add_argument("--worst", type=at_least(0), default=12, metavar="N", help="list the N costliest instructions")
    parser.add_argument("--source", type=file_name, metavar="FILE.sass",
                        help="the kernel's source: list its lines, and instructions with their place and in its words")
    parser.add_argument("--json", action="store_true", help="one JSON object, with every instruction, instead of text")
    parser.add_argument("--html", type=file_name, metavar="FILE.html",
                        help="write a page to look at: all of this, the sources and a timeline, in one file")
    parser.add_argument("--picture", type=file_name, metavar="FILE.png|.svg",
                        help="draw where the issue slots of the longest launch went")
    parser.add_argument("--trace", nargs=2, type=at_least(0), metavar=("FIRST", "LAST"),
                        help="write a pipeline trace of the longest launch, from cycle FIRST to before LAST")
    parser.add_argument("--trace-file", type=file_name, default=Path("pipeline.json"), metavar="FILE.json",
                        help="where it goes, for Perfetto or chrome://tracing (default pipeline.json)")


def run(args: argparse.Namespace) -> int:
    from ..simulator.machine import preset
    from ..simulator.simulate import Options

    machine = preset(args.machine)
    if args.set:
        machine = machine.replace(**{name: _value(name, value) for name, value in args.set})
    _check(args)
    options = Options(args.policy, args.all_sms, tuple(args.trace) if args.trace else None, warm=args.warm)
    time = _launch if args.what.endswith(".cubin") else _layer
    results, extra, sources = time(args, machine, options)
    _print(args, results, extra, sources)
    _write(args, results, extra, sources)
    return 0


def _value(figure: str, text: str) -> Any:
    from ..errors import SimulationError
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise SimulationError(f"--set {figure} must be given a number (got {text[:80]!r})") from None


def _check(args: argparse.Namespace) -> None:
    """What would fail at the end, or be ignored, is said before the work."""
    from ..errors import MaxdnnError
    from ..runtime.files import check_writable
    from ..simulator.columns import POLICIES

    if args.launch is not None and not args.what.endswith(".cubin"):
        raise MaxdnnError(f"--launch describes the launches of a cubin's kernels, and {args.what} is a layer")
    for name, (option, default) in _OF_LAYERS.items():
        if getattr(args, name) is None:
            setattr(args, name, default)
        elif args.what.endswith(".cubin"):
            raise MaxdnnError(f"{option} says how a layer is computed, and {args.what} is a cubin, whose launches "
                              "--launch describes")
    if args.what and not args.what.endswith(".cubin") and os.path.exists(args.what):
        kind = "folder" if os.path.isdir(args.what) else "file"
        raise MaxdnnError(f"{args.what} is a {kind}; simulate takes a LAYER such as alexnet-conv2, a SHAPE "
                          "N,C,H,W,K,R,S[,stride[,padding]], or FILE.cubin with --launch")
    if args.policy and args.policy not in POLICIES:
        raise MaxdnnError(f"--policy must be one of {', '.join(POLICIES)} (got {args.policy!r})")
    if args.source:
        args.source.stat()  # says what is wrong with the name
        if not args.source.is_file():
            raise MaxdnnError(f"--source: {args.source} must be a file, which is read more than once")
        args.source.open("rb").close()
    if args.trace and args.trace[0] >= args.trace[1]:
        raise MaxdnnError(f"--trace must be a first cycle and a later one (got {args.trace[0]} {args.trace[1]})")
    if args.picture:
        if args.picture.suffix.lower() not in PICTURES:
            raise MaxdnnError(f"--picture must end in {' or '.join(PICTURES)} (got {args.picture})")
        check_writable("--picture", args.picture)
    if args.html:
        check_writable("--html", args.html)
    if args.trace:
        check_writable("--trace-file", args.trace_file)


def _timeline(args: argparse.Namespace, options: Any, launches: int) -> Any:
    """The options with a timeline if a page wants it: the more launches, the less of each."""
    return dataclasses.replace(options, timeline=max(64, min(4096, 16384 // launches))) if args.html else options


def _layer(args: argparse.Namespace, machine: Any,
           options: Any) -> tuple[list[Any], dict[str, Any], dict[str, Source]]:
    from ..build.cubins import cubin
    from ..simulator import timing
    from ._progress import Progress
    from ._sources import of_cubin, of_launches

    pass_of(args.direction)
    plan = _plan(args)
    sources = {}
    if args.html:
        if _missing():
            print(f"maxdnn: {_missing()}", file=sys.stderr)
        else:
            sources = of_launches(plan.launches)
    if args.source:
        code = cubin(plan.spec.source.removesuffix(".sass"), machine.arch)
        sources |= of_cubin(args.source, code, plan.spec.name)
    options = _timeline(args, options, len(plan.launches))
    with Progress("simulating") as tell:
        timed = timing.call(plan, machine=machine, options=options, progress=tell)
    inner = timed.convolution
    return list(timed.results), {
        "shape": str(timed.shape), "layout": args.layout, "pass": args.direction, "algorithm": plan.algorithm,
        "family": plan.family, "kernel": timed.plan.spec.name,
        "clocks": timed.clocks, "ce": timed.ce, "ce_from_time": timed.ce_from_time,
        "convolution": {"clocks": inner.clocks, "ce": inner.ce, "ce_from_time": inner.ce_from_time},
        "launches": [{"kernel": x.kernel, "doing": launch.doing, "ce": x.ce, "useful_flops": x.useful}
                     for x, launch in zip(timed.launches, timed.timed, strict=True)],
        "left_out": [{"kernel": x.spec.name, "doing": x.doing} for x in plan.launches if x not in timed.timed]}, sources


def _plan(args: argparse.Namespace) -> Any:
    """The plan of the kernel that is named, or the one that promises the fewest clocks on the machine, of those of an
    algorithm."""
    from ..algorithms.registry import kernels
    from ..errors import ShapeError
    from ..planning.cost import preset
    from ..planning.select import ALGORITHMS, MAX_ERROR, choose, plans
    from ..problem.problem import data, filters, forward

    if args.algorithm not in ALGORITHMS:
        raise ShapeError(f"--algorithm must be one of {', '.join(ALGORITHMS)} (got {args.algorithm[:80]!r})")
    problem = {"forward": forward, "data": data, "filters": filters}[args.direction](layer(args.what),
                                                                                     layout=args.layout)
    chip, most = preset(args.machine), MAX_ERROR if args.max_error is None else args.max_error
    if not most > 0:
        raise ShapeError(f"--max-error must be a positive number (got {most})")
    if args.kernel == "best" and chip.runs_maxwell:
        return choose(problem, chip, algorithm=args.algorithm, max_error=most)
    names = plans(problem, chip, algorithm=args.algorithm, max_error=most if args.kernel == "best" else math.inf)
    if not chip.runs_maxwell:
        names = {name: plan for name, plan in names.items() if plan.spec.arch == chip.arch}
        if not names:
            raise ShapeError(f"{args.what}: of what computes it on {chip.name} nothing is machine code of {chip.arch}, "
                             "which alone the model can time")
        if args.kernel == "best":
            return min(names.values(), key=lambda plan: plan.clocks(chip))
    if args.kernel not in names:
        foreign = {s.arch for s in kernels().values() if s.arch and args.kernel.startswith(s.name)}
        why = f", machine code of {foreign.pop()}, whose clocks the model does not know" if foreign else ""
        raise ShapeError(f"--kernel must be one of {', '.join(_folded(names))}, or best (got {args.kernel[:80]!r}"
                         f"{why})")
    return choose(problem, chip, args.kernel, algorithm=args.algorithm)


def _folded(names: Iterable[str]) -> list[str]:
    """Names of candidates; those that a number at the end alone tells apart as one, with the least and the largest."""
    numbers: dict[str, list[int]] = {}
    for name in names:
        found = re.fullmatch(r"(.*_(?:split|parts))(\d+)", name)
        numbers.setdefault(found[1] if found else name, []).extend([int(found[2])] if found else [])
    return [f"{name}{min(found)}..{max(found)}" if found else name for name, found in numbers.items()]


def _missing() -> str:
    """Why a page of kernels is without their sources, which nothing but the assembler reads; "" if it need not be."""
    from ..build.assemble import has_perl
    return "" if has_perl() else "Without Perl 5 the page lists instructions, but not the sources they were made of."


def _launch(args: argparse.Namespace, machine: Any,
            options: Any) -> tuple[list[Any], dict[str, Any], dict[str, Source]]:
    from ..cubin import read
    from ..errors import LaunchError
    from ..runtime.files import read_bytes
    from ..simulator import launchfile, timing
    from ._progress import Progress
    from ._sources import of_cubin

    if args.launch is None:
        raise LaunchError("a cubin needs --launch FILE.json, the description of its launches")
    description, code = launchfile.read(args.launch), read_bytes(args.what)
    arch, sources = read(code).arch, {}
    if (arch >= "sm_80") != machine.sm90 or "sm_80" <= arch < machine.arch:
        raise LaunchError(f"{args.what} is machine code of {arch}, and --machine {machine.name} runs "
                          f"{machine.arch if machine.sm90 else 'sm_50 to sm_62'}")
    if args.source:
        sources = of_cubin(args.source, code, read(code).kernel(description.launches[0].kernel).name)
    options = _timeline(args, options, len(description.launches))
    with Progress("simulating") as tell:
        found = timing.described(code, description, machine=machine, options=options, progress=tell)
    return [x.result for x in found], {"clocks": sum(x.clocks for x in found),
                                       "launches": [{"kernel": x.kernel} for x in found]}, sources


def _print(args: argparse.Namespace, results: list[Any], extra: dict[str, Any], sources: dict[str, Source]) -> None:
    from ..simulator import report

    if args.json:
        print(json.dumps(extra | {"launches": _rows(results, extra, sources)}, indent=1))
        return
    for number, (about, result) in enumerate(zip(extra["launches"], results, strict=True)):
        title = args.what + (f"  launch {number + 1} of {len(results)}, {about['kernel']}" if len(results) > 1 else "")
        print(report.text(result, title, _lines(sources, about), args.worst))
    if "ce" in extra:
        print(f"computational efficiency {extra['ce']:.2f}% from clocks, {extra['ce_from_time']:.2f}% from time; "
              f"of the convolution kernel alone {extra['convolution']['ce']:.2f}%")
    for launch in extra.get("left_out", ()):
        print(f"left out: {launch['kernel']} ({launch['doing']}), which is translated there, to code the model does "
              "not see")


def _rows(results: list[Any], extra: dict[str, Any], sources: dict[str, Source]) -> list[dict[str, Any]]:
    from ..simulator import report
    return [about | report.as_dict(result, source=_lines(sources, about))
            for about, result in zip(extra["launches"], results, strict=True)]


def _lines(sources: dict[str, Source], about: dict[str, Any]) -> list[tuple[str, str]] | None:
    source = sources.get(about["kernel"])
    return source.lines if source else None


def _write(args: argparse.Namespace, results: list[Any], extra: dict[str, Any], sources: dict[str, Source]) -> None:
    from ..runtime.files import write_whole
    from ..simulator import picture, pipeline, report

    result = max(results, key=lambda r: r.cycles)
    if args.html:
        text = _page(args, results, extra, sources)
        write_whole(args.html, lambda file: file.write(text.encode()))
        print(f"wrote {args.html}", file=sys.stderr)
    if args.picture:
        figure = picture.stacked_slots({args.what: report.slots(result)}, f"simulated {result.machine.name}")
        kind = args.picture.suffix[1:].lower()
        write_whole(args.picture, lambda file: figure.savefig(file, dpi=150, format=kind))
        print(f"wrote {args.picture}", file=sys.stderr)
    if args.trace:
        write_whole(args.trace_file, lambda file: file.write(pipeline.dumps(result).encode()))
        print(f"wrote {args.trace_file}", file=sys.stderr)


def _page(args: argparse.Namespace, results: list[Any], extra: dict[str, Any], sources: dict[str, Source]) -> str:
    """What --json gives, with a timeline for each launch and the text of the sources, as a page."""
    from ..simulator import page, timeline

    machine = results[0].machine
    rows = [row | {"timeline": timeline.as_dict(result)}
            for row, result in zip(_rows(results, extra, sources), results, strict=True)]
    files = {name: text for source in sources.values() for name, text in source.files.items()}
    changed = {name: json.loads(value) for name, value in args.set}
    return page.html(extra | {"launches": rows}, what=args.what, preset=machine.name, chip=machine.title,
                     changed=changed, files=files,
                     missing="" if sources or args.launch else _missing())
