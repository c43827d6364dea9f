"""`maxdnn bench`: networks or layers on this computer's GPU beside cuDNN, or simulated where there is no GPU."""

import argparse
import json
import math
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from statistics import geometric_mean
from typing import Any

from ._types import at_least, file_name, shape_of

HELP = "time networks or layers on a GPU beside cuDNN through PyTorch; simulated where there is no GPU"
PICTURES = (".png", ".svg")
KINDS = ("inference", "training")
BASELINES = ("fp32", "frozen", "tf32")
_ALIKE = "kind", "n", "mode", "baseline"  # rows of models with the same of these have one summary


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="*", metavar="NETWORK|SHAPE",
                        help="alexnet vgg16 resnet50 inception unet (default: all), or "
                             "N,C,H,W,K,R,S[,stride[,padding]]")
    parser.add_argument("--n", type=at_least(1), nargs="+", metavar="N",
                        help="minibatches (default: of networks 1 8 32, of models 1 16 32, for training 32; "
                             "simulated: 1)")
    parser.add_argument("--kind", choices=KINDS, nargs="+", default=None,
                        help="default: both; of models, and simulated: inference")
    parser.add_argument("--model", action="append", metavar="NAME", default=[],
                        help="a model of torchvision, or package:function that returns one: for inference optimized, "
                             "beside PyTorch in FP32, compiled with frozen parameters, and in TF32; in training "
                             "(--kind training) replaced; may be repeated")
    parser.add_argument("--baseline", choices=BASELINES, nargs="+", default=BASELINES,
                        help="what models stand beside (default: all)")
    parser.add_argument("--jobs", type=at_least(1), default=1, metavar="J",
                        help="so many models get ready at a time, each in a process of its own that keeps its memory, "
                             "before the first is measured; they are measured one after the other (default: 1, here)")
    parser.add_argument("--wait", type=float, default=300.0, metavar="SECONDS",
                        help="with --jobs: how long a model may take to get ready, or to its next row (default: 300)")
    parser.add_argument("--image", type=sizes, metavar="C,H,W", default=(3, 224, 224),
                        help="what a model takes (default: 3,224,224)")
    parser.add_argument("--mode", choices=("eager", "graph", "compiled"), nargs="+", default=["eager", "graph"],
                        help="calls as they are, replayed as CUDA graphs (default: both), or, of models, compiled")
    parser.add_argument("--ordinal", type=at_least(0), default=0, help="which GPU")
    parser.add_argument("--seconds", type=float, default=0.2, help="how long each measurement is repeated")
    parser.add_argument("--simulate", action="store_true", help="do not look for a GPU")
    parser.add_argument("--json", type=file_name, metavar="FILE.json", help="write the rows there, as they come")
    parser.add_argument("--picture", type=file_name, metavar="FILE.png|.svg", help="draw them")


def sizes(text: str) -> tuple[int, ...]:
    """C,H,W."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = ()
    if len(found) != 3 or min(found) < 1:
        raise argparse.ArgumentTypeError(f"must be C,H,W, three sizes of at least 1 (got {text!r})")
    return found


def run(args: argparse.Namespace) -> int:
    from ..errors import MaxdnnError
    from ..runtime.files import check_writable, write_whole

    for option, path in (("--json", args.json), ("--picture", args.picture)):
        if path is not None:
            check_writable(option, path)
    if args.picture and args.picture.suffix.lower() not in PICTURES:
        raise MaxdnnError(f"--picture must end in {' or '.join(PICTURES)} (got {args.picture})")
    for option, value in (("--seconds", args.seconds), ("--wait", args.wait)):
        if not 0 < value < math.inf:
            raise MaxdnnError(f"{option} must be positive (got {value})")
    jobs = list(_jobs(args.what)) if args.what or not args.model else []
    if jobs and "compiled" in args.mode:
        raise MaxdnnError("--mode compiled is of models: name them by --model, and no NETWORK or SHAPE beside them")
    why = "--simulate was given" if args.simulate else _no_gpu(args.ordinal)
    if args.model and why is not None:
        raise MaxdnnError(f"--model needs a GPU: {why}")
    failed: list[str] = []
    if why is None:
        about, rows = _measured(args, jobs, failed)
    else:
        about, rows = _simulated(args, jobs, why)
    done = []
    for row in rows:
        print(_line(row), flush=True)
        done.append(row)
        if args.json:
            data = (json.dumps(about | {"rows": done}, indent=1) + "\n").encode()
            write_whole(args.json, lambda file, data=data: file.write(data))  # type: ignore[misc]
    print(*_summary(done), sep="\n")
    for what in failed:
        print(f"not measured: {what}", file=sys.stderr)
    if args.picture and done:
        figure = _draw(done, about)
        kind = args.picture.suffix[1:].lower()
        write_whole(args.picture, lambda file: figure.savefig(file, dpi=150, format=kind))
    return int(bool(failed))


def _jobs(what: list[str]) -> Iterator[tuple[str, Any]]:
    """(name, None) of networks, (text, shape) of layers. Raises ShapeError for what is neither."""
    from ..networks import NETWORKS

    for text in what or NETWORKS:
        yield text, None if text in NETWORKS else shape_of(text, "NETWORK", NETWORKS)


def _no_gpu(ordinal: int) -> str | None:
    """Why nothing can be measured; None if it can."""
    from ..errors import DeviceError
    from ..runtime.devices import find
    try:
        import torch
    except ImportError:
        return "PyTorch is not installed: pip install 'maxdnn[torch,cuda]'"
    if not torch.cuda.is_available():
        return "PyTorch finds no CUDA GPU"
    try:
        find.gpu(ordinal)
    except DeviceError as e:
        return str(e)
    return None


def _measured(args: argparse.Namespace, jobs: list[tuple[str, Any]],
              failed: list[str]) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """What is measured with, and the rows; what stops one network or layer costs its rows only, and is told at once and
    put into `failed`."""
    from ..errors import MaxdnnError
    from ..torch.measure import Bench

    bench = Bench(args.ordinal, args.seconds)
    about = {"what": "measured"} | bench.about

    def fails(what: str, e: Exception) -> None:
        if not isinstance(e, MaxdnnError):
            traceback.print_exc()
        failed.append(f"{what}: {e}")

    def rows() -> Iterator[dict[str, Any]]:
        yield from _models(args, fails)
        for kind in args.kind or KINDS:
            training = kind == "training"
            for name, shape in jobs:
                for n in (shape.N,) if shape is not None else args.n or ((32,) if training else (1, 8, 32)):
                    try:
                        yield from (bench.network(name, n, training, args.mode) if shape is None else
                                    bench.layer(shape, training, args.mode))
                    except Exception as e:
                        fails(f"{name}, N = {n}, {kind}", e)
    print(f"measured on {about['gpu']} beside cuDNN {about['cudnn']} through PyTorch {about['torch']}: float32, "
          "TF32 off, cudnn.benchmark on\n" + _heading("ms", "cuDNN"))
    return about, rows()


def _models(args: argparse.Namespace, fails: Callable[[str, Exception], None]) -> Iterator[dict[str, Any]]:
    """The rows of the models that were asked for; `fails` gets what stops one, and which."""
    from ..errors import MaxdnnError
    from ..torch import measure_models
    from ._turns import Failed, in_turns

    jobs = [measure_models.Job(name, args.image, n, kind == "training", tuple(args.mode), tuple(args.baseline))
            for kind in args.kind or KINDS[:1] for name in args.model
            for n in args.n or ((32,) if kind == "training" else (1, 16, 32))]
    names = {job: f"{job.name}, N = {job.n}, {'training' if job.training else 'inference'}" for job in jobs}
    if args.jobs > 1:
        for (job, *_), row in in_turns(measure_models.measured, [(job, args.ordinal, args.seconds) for job in names],
                                       args.jobs, args.wait):
            if isinstance(row, Failed):
                fails(names[job], MaxdnnError(row.why))
            else:
                yield row
        return
    for job in names:
        try:
            yield from measure_models.measured((job, args.ordinal, args.seconds), lambda: None)
        except Exception as e:
            fails(names[job], e)


def _simulated(args: argparse.Namespace, jobs: list[tuple[str, Any]],
               why: str) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    from ..errors import MaxdnnError
    from ..networks import convolutions
    from ..planning.select import plan
    from ..simulator import timing
    from ..simulator.machine import preset
    from ._progress import Progress

    if args.kind not in (None, ["inference"]):
        raise MaxdnnError(f"--kind must be inference where there is no GPU ({why})")
    machine = preset("gm204")
    about = {"what": "simulated", "gpu": machine.name, "why": why}

    def rows() -> Iterator[dict[str, Any]]:
        for name, shape in jobs:
            for n in (shape.N,) if shape is not None else args.n or (1,):
                layers = [shape] if shape is not None else [layer for layer, _ in convolutions(name, n)]
                spent: dict[Any, float] = {}
                with Progress(f"simulating {name}") as tell:
                    for layer in layers:
                        if layer not in spent:
                            spent[layer] = timing.call(plan(layer, layout="NCHW"), machine=machine).seconds
                            tell(len(spent), len(set(layers)))
                yield {"network": name, "n": n, "kind": "inference", "mode": "simulated",
                       "seconds": sum(spent[layer] for layer in layers), "flops": sum(layer.flops for layer in layers)}
    print(f"SIMULATED on the preset {machine.name}, nothing was measured: {why}\n" + _heading("simulated ms", ""))
    return about, rows()


def _heading(unit: str, beside: str) -> str:
    line = f"{'network':28} {'N':>4} {'kind':9} {'mode':9} {'convolutions ' + unit:>26}"
    if beside:
        line += f" {beside:>10} {'ratio':>6} {'whole ms':>10} {beside:>10} {'ratio':>6} {'error':>8} {beside:>8}"
    return line


def _line(row: dict[str, Any]) -> str:
    line = f"{row['network']:28} {row['n']:4} {row['kind']:9} {row['mode']:9} "
    line += f"{1e3 * row['seconds']:26.3f}" if "seconds" in row else f"{'beside ' + row['baseline']:44}"
    for part in ("", "whole_"):
        ours, theirs = row.get(f"{part}seconds"), row.get(f"cudnn_{part}seconds")
        if ours and theirs:
            line += (f" {1e3 * ours:10.3f}" if part else "") + f" {1e3 * theirs:10.3f} {theirs / ours:6.2f}"
    if "error" in row:
        ours, theirs = (max(row[f"{who}error"], row.get(f"{who}gradient_error", 0.0)) for who in ("", "cudnn_"))
        line += f" {ours:8.1e} {theirs:8.1e}"
    return line


def _summary(rows: Iterable[dict[str, Any]]) -> list[str]:
    """How often and by how much this library is ahead, and how its errors compare, for each kind of measured rows."""
    lines, every = [], list(rows)
    of_models = [row for row in every if "baseline" in row]
    for key in dict.fromkeys(tuple(row[name] for name in _ALIKE) for row in of_models):
        some = [row for row in of_models if tuple(row[name] for name in _ALIKE) == key]
        kind, n, mode, baseline = key
        ratios = [row["cudnn_whole_seconds"] / row["whole_seconds"] for row in some]
        worse = max(row["error"] / row["cudnn_error"] for row in some)
        lines.append(f"{kind} of models, N = {n}, {mode}, beside {baseline}: {_ahead(ratios)}; outputs at most "
                     f"{worse:.2g} times as far from float64")
    rows = [row for row in every if "cudnn_seconds" in row]
    for kind in KINDS:
        of_kind = [row for row in rows if row["kind"] == kind]
        for part, what in (("", "convolutions"), ("whole_", "whole")):
            ratios = [row[f"cudnn_{part}seconds"] / row[f"{part}seconds"] for row in of_kind if f"{part}seconds" in row]
            if ratios:
                lines.append(f"{kind}, {what}: {_ahead(ratios, 'of cuDNN ')}")
        hosts = [row["host_seconds"] / row["cudnn_host_seconds"] for row in of_kind if "host_seconds" in row]
        if hosts:
            lines.append(f"{kind}, host time of whole networks called as they are: geometric mean "
                         f"{geometric_mean(hosts):.2f} of PyTorch's, at most {max(hosts):.2f}")
        for name, what in (("error", "outputs"), ("gradient_error", "gradients")):
            worse = [row[name] / row[f"cudnn_{name}"] for row in of_kind if row.get(f"cudnn_{name}")]
            if worse:
                lines.append(f"{kind}, {what}: at most {max(worse):.2f} times as far from float64 as cuDNN's")
    return lines


def _ahead(ratios: list[float], of: str = "") -> str:
    return (f"ahead {of}in {sum(r > 1 for r in ratios)} of {len(ratios)}, geometric mean of the speed "
            f"{geometric_mean(ratios):.2f}, least {min(ratios):.2f}")


def _draw(rows: list[dict[str, Any]], about: dict[str, Any]) -> Any:
    """Bars: the speed of the convolutions relative to cuDNN, or what was simulated."""
    from matplotlib.figure import Figure

    names = [f"{row['network']}  N={row['n']}  {row.get('baseline') or row['kind']}  {row['mode']}" for row in rows]
    measured = about["what"] == "measured"
    values = [row["flops"] / row["seconds"] / 1e12 if not measured else
              row["cudnn_seconds"] / row["seconds"] if "seconds" in row else
              row["cudnn_whole_seconds"] / row["whole_seconds"] for row in rows]
    figure = Figure(figsize=(9, 1.2 + 0.26 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    places = range(len(rows))
    axes.barh(places, values, color=["#2a7f62" if not measured or v >= 1 else "#b4543c" for v in values])
    axes.set_yticks(places, names, fontsize=7)
    axes.invert_yaxis()
    if measured:
        axes.axvline(1, color="black", linewidth=0.8)
        axes.set_xlabel("speed of the convolutions, or of whole models, relative to PyTorch with cuDNN")
        axes.set_title(f"measured on {about['gpu']}, float32")
    else:
        axes.set_xlabel("simulated TFLOP/s of the convolutions")
        axes.set_title(f"SIMULATED {about['gpu']}")
    return figure
