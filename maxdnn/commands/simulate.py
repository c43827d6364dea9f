"""`maxdnn simulate`: how long a layer or a launch takes on a Maxwell GPU, and where every issue slot goes."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ._types import at_least

HELP = "cycle-level timing of a convolution layer, or of any cubin with a launch description"

_LAUNCH = """launch description (JSON): {"kernel": name, "grid": [x, y, z], "block": [x, y, z], "shared_bytes": n,
"args": [number | {"f32": value} | {"f64": value} | {"buffer": bytes, "i32": [first words]} ...],
"textures": {name: index of a buffer argument}, "constants": {symbol: [int32 ...]}}; all but grid and block may be
left out, the kernel's name if there is only one"""
_PICTURES = (".png", ".svg")


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _LAUNCH
    parser.add_argument("what", metavar="LAYER|SHAPE|FILE.cubin",
                        help="alexnet-conv2; N,C,H,W,K,R,S[,stride[,padding]]; or a cubin (with --launch)")
    parser.add_argument("--launch", type=Path, metavar="FILE.json", help="the launch of a cubin's kernel, see below")
    parser.add_argument("--machine", default="gm204", help="preset: gm107 gm200 gm204 gm20b gp104 (default gm204)")
    parser.add_argument("--kernel", default="sconv_fprop_K64_N64",
                        help="the convolution kernel (default %(default)s); sconv_fprop_paper: with the paper's loop, "
                             "as in the paper's table; best: the planner's choice")
    parser.add_argument("--policy", default="greedy-then-oldest", help="how a scheduler chooses a warp")
    parser.add_argument("--all-sms", action="store_true", help="simulate every SM instead of one and its mirror images")
    parser.add_argument("--set", nargs=2, metavar=("FIGURE", "VALUE"), action="append", default=[],
                        help="change a figure of the machine, for what-if studies; may be repeated (docs/timing.md "
                             "lists the figures and their ranges)")
    parser.add_argument("--worst", type=at_least(0), default=12, metavar="N", help="list the N costliest instructions")
    parser.add_argument("--source", type=Path, metavar="FILE.sass",
                        help="the kernel's source: list its lines, and instructions with their place and in its words")
    parser.add_argument("--json", action="store_true", help="one JSON object, with every instruction, instead of text")
    parser.add_argument("--picture", type=Path, metavar="FILE.png|.svg", help="draw where the issue slots went")
    parser.add_argument("--trace", nargs=2, type=at_least(0), metavar=("FIRST", "LAST"),
                        help="write a pipeline trace of the cycles from FIRST to before LAST")
    parser.add_argument("--trace-file", type=Path, default=Path("pipeline.json"), metavar="FILE.json",
                        help="where it goes, for Perfetto or chrome://tracing (default pipeline.json)")


def run(args: argparse.Namespace) -> int:
    from ..sim.machine import preset
    from ..sim.simulate import Options

    machine = preset(args.machine)
    if args.set:
        machine = machine.replace(**{name: _value(name, value) for name, value in args.set})
    _check(args)
    options = Options(args.policy, args.all_sms, tuple(args.trace) if args.trace else None)
    results, extra = _launch(args, machine, options) if args.what.endswith(".cubin") else _layer(args, machine, options)
    _print(args, results, extra)
    _write(args, results[0])
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
    from ..files import check_writable
    cubin = args.what.endswith(".cubin")
    if args.launch is not None and not cubin:
        raise MaxdnnError(f"--launch describes the launch of a cubin's kernel, and {args.what} is a layer")
    if args.picture:
        if args.picture.suffix.lower() not in _PICTURES:
            raise MaxdnnError(f"--picture must end in {' or '.join(_PICTURES)} (got {args.picture})")
        check_writable("--picture", args.picture)
    if args.trace:
        check_writable("--trace-file", args.trace_file)


def _layer(args: argparse.Namespace, machine: Any, options: Any) -> tuple[list[Any], dict[str, Any]]:
    from .. import timing

    kernel = None if args.kernel == "best" else args.kernel
    timed = timing.conv(_shape(args.what), kernel=kernel, machine=machine, options=options)
    return list(timed.results), {"shape": str(timed.shape), "kernel": timed.plan.spec.name,
                                 "clocks": timed.clocks, "ce": timed.ce,
                                 "ce_from_time": timed.ce_from_time, "exact_lines": timed.exact_lines}


def _shape(what: str) -> Any:
    from ..errors import ShapeError
    from ..layers import LAYERS
    from ..shape import ConvShape

    named = {f"{x.network}-{x.name}": x.shape for x in LAYERS}
    if what in named:
        return named[what]
    try:
        numbers = [int(n) for n in what.split(",")]
    except ValueError:
        numbers = []
    if not 7 <= len(numbers) <= 9:
        raise ShapeError(f"LAYER must be one of {', '.join(named)}, or N,C,H,W,K,R,S[,stride[,padding]] (got {what!r})")
    return ConvShape(*numbers)


def _launch(args: argparse.Namespace, machine: Any, options: Any) -> tuple[list[Any], dict[str, Any]]:
    from .. import timing
    from ..errors import LaunchError
    from ..files import read_json

    if args.launch is None:
        raise LaunchError("a cubin needs --launch FILE.json, the description of its launch")
    description = read_json(args.launch)
    result = timing.described_launch(Path(args.what).read_bytes(), description, machine=machine, options=options)
    return [result], {"kernel": description.get("kernel"), "clocks": result.cycles}


def _print(args: argparse.Namespace, results: list[Any], extra: dict[str, Any]) -> None:
    from ..assemble import source_lines
    from ..sim import report

    source = source_lines(args.source) if args.source else None
    if args.json:
        print(json.dumps(extra | {"launches": [report.as_dict(r, source=source) for r in results]}, indent=1))
        return
    for number, result in enumerate(results):
        title = args.what + (f"  launch {number + 1} of {len(results)}" if len(results) > 1 else "")
        print(report.text(result, title, source, args.worst))
    if "ce" in extra:
        print(f"computational efficiency {extra['ce']:.2f}% from clocks, {extra['ce_from_time']:.2f}% from time")


def _write(args: argparse.Namespace, result: Any) -> None:
    from ..files import write_whole
    from ..sim import picture, pipeline, report

    if args.picture:
        figure = picture.stacked_slots({args.what: report.slots(result)}, f"simulated {result.machine.name}")
        kind = args.picture.suffix[1:].lower()
        write_whole(args.picture, lambda file: figure.savefig(file, dpi=150, format=kind))
        print(f"wrote {args.picture}", file=sys.stderr)
    if args.trace:
        write_whole(args.trace_file, lambda file: file.write(pipeline.dumps(result).encode()))
        print(f"wrote {args.trace_file}", file=sys.stderr)
