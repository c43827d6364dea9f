"""The paper's table: computational efficiency of ten convolution layers, simulated on a GTX 980 (no GPU needed) or
measured on the GPU that is present (--gpu), beside the paper's figures for cuDNN and maxDNN.

Simulated are the kernel with the paper's loop, which is compared with the paper, and the one that conv_fprop runs.

Writes alexnet_overfeat.{json,csv,md,txt}, figure1 (AlexNet) and figure2 (Overfeat) and the picture of lost issue slots
as .png and .svg into --output. An interrupted run continues where it stopped."""

import argparse
import csv
import io
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import numpy as np
from fingerprint import fingerprint

import maxdnn
from maxdnn.algorithms.paper.maxwell import CONV_PAPER
from maxdnn.layers import LAYERS, Layer
from maxdnn.simulator import columns, report, timing
from maxdnn.simulator.machine import Machine, preset

NAME = "alexnet_overfeat"
POLICIES = columns.POLICIES[:2]
OURS, CHECK = "conv_fprop", "check"  # pieces of work that are no policy


class Interrupted(Exception):
    """Asked to stop."""


class Store:
    """Finished pieces of a run, on disk, so that an interrupted run continues. `key`: what the pieces depend on."""

    def __init__(self, folder: Path, key: str) -> None:
        self.path = folder / f"{NAME}.partial.json"
        self.pieces: dict[str, Any] = {}
        if self.path.exists():
            saved = json.loads(self.path.read_text())
            if saved.get("key") == key:
                self.pieces = saved["pieces"]
        self.key = key

    def put(self, name: str, value: Any) -> None:
        self.pieces[name] = value
        write(self.path, json.dumps({"key": self.key, "pieces": self.pieces}))


def write(path: Path, text: str) -> None:
    """A file appears whole or not at all."""
    temporary = path.with_suffix(path.suffix + ".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def two_digits(value: float) -> float:
    """An error as far as it means something: its further digits differ from one computer to the next."""
    return float(f"{value:.1e}")


# -- simulating -------------------------------------------------------------------------------------------------------


def work(layer: Layer) -> float:
    """How much there is to simulate, for the progress bar: loop trips of one SM's blocks."""
    s = layer.shape
    return s.P * s.Q * -(-s.N // 64) * -(-s.K // 64) * (s.patch / 8 + 3)


def simulated(layer: Layer, policy: str, machine: Machine, advance: Callable[[float], None]) -> dict[str, Any]:
    """One layer under one policy, or by the planner's choice of direct kernel if that is OURS, as plain data."""
    done = 0.0

    def progress(blocks: int, of: int) -> None:
        nonlocal done
        advance(blocks / of - done)
        done = blocks / of
    kernel, policy = (None, POLICIES[0]) if policy == OURS else (CONV_PAPER.name, policy)
    # A table of direct convolutions, which does not depend on what somebody measured.
    plan = maxdnn.plan(layer.shape, kernel=kernel, algorithm="direct", tuned=False)
    timed = timing.conv(plan, machine=machine, options=timing.Options(policy), progress=progress)
    launches = [report.as_dict(r, lines=False) for r in timed.results]
    return {"kernel": timed.plan.spec.name, "ce": timed.ce, "ce_from_time": timed.ce_from_time, "clocks": timed.clocks,
            "seconds": timed.seconds, "launches": launches}


def checked(layer: Layer) -> dict[str, Any]:
    """Every output element of the layer by both kernels on the virtual GPU, against float64."""
    from verify_layers import TOLERANCE, verify
    results = verify(layer, CONV_PAPER.name, None)
    error = float(np.max([r.error for r in results]))  # NaN, from an output that is missing, stays NaN
    return {"error": two_digits(error), "ok": bool(error < TOLERANCE), "outputs": results[0].outputs}


def pieces(layers: Sequence[Layer], quick: bool) -> list[tuple[str, float, Layer, str]]:
    """(name, weight, layer, policy or OURS or CHECK), the longest first."""
    policies = POLICIES[:1] if quick else (*POLICIES, OURS)
    found = [(f"{x.network}-{x.name} {p}", work(x), x, p) for x in layers for p in policies]
    if not quick:
        found += [(f"{x.network}-{x.name} {CHECK}", work(x), x, CHECK) for x in layers]
    return sorted(found, key=lambda piece: (piece[3] == CHECK, -piece[1]))


def run_pieces(todo: Sequence[tuple[str, float, Layer, str]], machine: Machine, store: Store, workers: int) -> None:
    """Simulations side by side, then the checks one by one (each uses all cores itself)."""
    stop = threading.Event()
    with progress_bar() as bar:
        task = bar.add_task("starting", total=sum(weight for _, weight, _, _ in todo))
        for name, weight, _, _ in todo:
            if name in store.pieces:
                bar.advance(task, weight)

        def one(piece: tuple[str, float, Layer, str]) -> tuple[str, Any]:
            name, weight, layer, policy = piece
            bar.update(task, description=name)
            if policy == CHECK:
                value = checked(layer)
                bar.advance(task, weight)
                return name, value

            def advance(share: float) -> None:
                if stop.is_set():
                    raise Interrupted
                bar.advance(task, weight * share)
            return name, simulated(layer, policy, machine, advance)
        left = [p for p in todo if p[0] not in store.pieces]
        _pool([p for p in left if p[3] != CHECK], one, store, workers, stop)
        _pool([p for p in left if p[3] == CHECK], one, store, 1, stop)


def _pool(group: Sequence[Any], one: Callable[[Any], tuple[str, Any]], store: Store, threads: int,
          stop: threading.Event) -> None:
    pool = ThreadPoolExecutor(threads)
    running: set[Future[tuple[str, Any]]] = {pool.submit(one, piece) for piece in group}
    try:
        while running:
            finished, running = wait(running, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in sorted(finished, key=lambda f: f.exception() is not None):  # keep what is whole, then raise
                store.put(*future.result())
    except BaseException:
        stop.set()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def progress_bar() -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
    return Progress(TextColumn("{task.description:40}"), BarColumn(), TaskProgressColumn(), TextColumn("time left"),
                    TimeRemainingColumn(), console=Console(stderr=True))


def simulated_rows(layers: Sequence[Layer], machine: Machine, store: Store) -> list[dict[str, Any]]:
    rows = []
    for layer in layers:
        name = f"{layer.network}-{layer.name}"
        results = {p: store.pieces[f"{name} {p}"] for p in POLICIES if f"{name} {p}" in store.pieces}
        first, ours = results[POLICIES[0]], store.pieces.get(f"{name} {OURS}")
        row = {"network": layer.network, "layer": layer.name, "gpu": machine.name, "kind": "simulated",
               "kernel": first["kernel"], "label": f"simulated {machine.name}", "ce": first["ce"],
               "paper_ce": layer.paper_ce, "paper_cudnn_ce": layer.paper_cudnn_ce,
               "difference": first["ce"] - layer.paper_ce, "clocks": first["clocks"],
               "seconds": first["seconds"], "ce_from_time": first["ce_from_time"],
               "policy": POLICIES[0], "ce_by_policy": {p: r["ce"] for p, r in results.items()},
               "launches": first["launches"], "check": store.pieces.get(f"{name} {CHECK}")}
        if ours:
            row |= {"ours_kernel": ours["kernel"], "ours_ce": ours["ce"], "ours_launches": ours["launches"]}
        rows.append(row)
    return rows


# -- measuring --------------------------------------------------------------------------------------------------------


def measured_rows(layers: Sequence[Layer]) -> list[dict[str, Any]]:
    """Rows of gpu_table.py, in this table's words."""
    from gpu_table import GpuTable
    rows = []
    for row in GpuTable().rows(layers):
        layer = next(x for x in layers if (x.network, x.name) == (row["network"], row["layer"]))
        rows.append(row | {"label": f"measured {row['gpu']}", "paper_cudnn_ce": layer.paper_cudnn_ce,
                           "difference": row["ce"] - layer.paper_ce,
                           "check": {"error": two_digits(row["error"]), "ok": row["correct"]}})
    return rows


# -- writing ----------------------------------------------------------------------------------------------------------


Column = tuple[str, Callable[[dict[str, Any]], str]]


def figure_column(heading: str, key: str, form: str = ".2f") -> Column:
    return heading, lambda row: format(row[key], form)


def columns_of(row: dict[str, Any]) -> list[Column]:
    """Headings of the printed table and what stands in each; simulated and measured rows have different ones."""
    found: list[Column] = [("network", lambda r: r["network"]), ("layer", lambda r: r["layer"]),
                           figure_column("paper cuDNN", "paper_cudnn_ce", ".1f"),
                           figure_column("paper maxDNN", "paper_ce", ".1f"), figure_column(row["label"], "ce")]
    simulated = row["kind"] == "simulated"
    if simulated:
        found.append(figure_column("difference", "difference", "+.2f"))
        found += [(p, lambda r, p=p: f"{r['ce_by_policy'][p]:.2f}") for p in list(row["ce_by_policy"])[1:]]
    for heading, key in (("conv_fprop's kernel", "ours_ce"), ("cuDNN direct", "cudnn_direct_ce"),
                         ("cuDNN best", "cudnn_best_ce")):
        if key in row:
            found.append(figure_column(heading, key))
    if simulated:
        found += [(f"{cache} hits", lambda r, cache=cache: f"{r['launches'][0]['hit_percent'][cache]:.1f}")
                  for cache in ("texture/L1", "L2")]
    return [*found, ("outputs", lambda r: verdict(r["check"]))]


def verdict(check: dict[str, Any] | None) -> str:
    return "not checked" if check is None else f"{'right' if check['ok'] else 'WRONG'} ({check['error']:.1e})"


def table(rows: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Headings and cells of the printed table."""
    chosen = columns_of(rows[0])
    return [heading for heading, _ in chosen], [[cell(row) for _, cell in chosen] for row in rows]


def summary(rows: Sequence[dict[str, Any]]) -> str:
    """How far simulated rows are from the paper's; measured ones are of another GPU than the paper's."""
    if rows[0]["kind"] == "measured":
        return f"mean {sum(r['ce'] for r in rows) / len(rows):.1f}; the paper's figures are of a GeForce GTX 980"
    worst = max(rows, key=lambda r: abs(r["difference"]))
    return (f"mean absolute difference {sum(abs(r['difference']) for r in rows) / len(rows):.2f} points, largest "
            f"{worst['difference']:+.2f} ({worst['network']} {worst['layer']})")


def as_text(rows: Sequence[dict[str, Any]]) -> str:
    head, body = table(rows)
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    lines = ["  ".join(cell.ljust(w) if i < 2 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths,
                                                                                              strict=True)))
             for line in [head, *body]]
    return "\n".join(["Computational efficiency, percent of peak; minibatch 128", "", *lines, "", summary(rows), ""])


def as_markdown(rows: Sequence[dict[str, Any]]) -> str:
    head, body = table(rows)
    lines = ["| " + " | ".join(line) + " |" for line in [head, ["---"] * len(head), *body]]
    return "\n".join(["Computational efficiency, percent of peak; minibatch 128", "", *lines, "", summary(rows), ""])


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    out = io.StringIO()
    head, body = table(rows)
    csv.writer(out, lineterminator="\n").writerows([head, *body])
    return out.getvalue()


def figure(rows: Sequence[dict[str, Any]], title: str) -> Any:
    """The paper's figures: for each layer the efficiency of cuDNN and maxDNN (paper) and ours."""
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    series = [("cuDNN v2 (paper)", "paper_cudnn_ce", "#b8c4cf"), ("maxDNN (paper)", "paper_ce", "#4c72b0"),
              (f"maxDNN ({rows[0]['label']})", "ce", "#dd8452")]
    drawing, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for number, (label, key, colour) in enumerate(series):
        places = [x + (number - 1) * 0.27 for x in range(len(rows))]
        bars = axes.bar(places, [r[key] for r in rows], 0.25, label=label, color=colour)
        axes.bar_label(bars, fmt="%.1f", fontsize=7, padding=1)
    axes.set_xticks(range(len(rows)), [r["layer"] for r in rows])
    axes.set_ylim(0, 108)
    axes.set_ylabel("computational efficiency (%)")
    axes.set_title(title)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncol=3, fontsize=8, frameon=False)
    return drawing


def draw(rows: Sequence[dict[str, Any]], folder: Path) -> None:
    drawings = {}
    for number, (network, title) in enumerate((("alexnet", "AlexNet"), ("overfeat", "Overfeat")), 1):
        chosen = [r for r in rows if r["network"] == network]
        if chosen:
            drawings[f"figure{number}"] = figure(chosen, f"Figure {number}: {title}, forward, minibatch 128")
    if "launches" in rows[0]:
        from maxdnn.simulator.picture import stacked_slots
        lost = {f"{r['network']}\n{r['layer']}": r["launches"][0]["slots_percent"] for r in rows}
        drawings["slots"] = stacked_slots(lost, f"Issue slots lost, {rows[0]['label']}, {rows[0]['policy']}")
    import matplotlib
    matplotlib.rcParams["svg.hashsalt"] = NAME  # the same rows give the same files
    for name, drawing in drawings.items():
        drawing.savefig(folder / f"{name}.png", dpi=150)
        drawing.savefig(folder / f"{name}.svg", metadata={"Date": None})


def save(rows: Sequence[dict[str, Any]], folder: Path, marks: dict[str, str] | None) -> None:
    """`marks`: the fingerprint of what simulated rows depend on."""
    data = {"layers": list(rows), "summary": summary(rows), "fingerprint": marks,
            "formula": "ce = C / (2 x 128 x clocks x SMs), C = 2 N P Q (C R S + 1) K"}
    write(folder / f"{NAME}.json", json.dumps(data, indent=1) + "\n")
    write(folder / f"{NAME}.txt", as_text(rows))
    write(folder / f"{NAME}.md", as_markdown(rows))
    write(folder / f"{NAME}.csv", as_csv(rows))
    draw(rows, folder)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    names = [f"{x.network}-{x.name}" for x in LAYERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results", metavar="DIR")
    parser.add_argument("--layers", nargs="+", metavar="LAYER", default=names, choices=names, help=", ".join(names))
    parser.add_argument("--network", choices=["alexnet", "overfeat"], help="only this network's layers")
    parser.add_argument("--quick", action="store_true",
                        help="only the kernel with the paper's loop, under one policy; outputs are not checked")
    parser.add_argument("--machine", default="gm204", help="preset to simulate (default gm204, the paper's)")
    parser.add_argument("--gpu", action="store_true", help="measure on the GPU that is present instead of simulating")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = parse(argv)
    layers = [x for x in LAYERS if f"{x.network}-{x.name}" in args.layers and args.network in (None, x.network)]
    if not layers:
        print("no layer is left: --network and --layers exclude each other", file=sys.stderr)
        return 2
    args.output.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    marks = None
    if args.gpu:
        rows = measured_rows(layers)
    else:
        machine = preset(args.machine)
        marks = fingerprint(machine)
        store = Store(args.output, json.dumps(marks))
        workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        try:
            run_pieces(pieces(layers, args.quick), machine, store, workers)
        except KeyboardInterrupt:
            print(f"interrupted; {len(store.pieces)} pieces are kept in {store.path}, the same command continues",
                  file=sys.stderr)
            return 130
        rows = simulated_rows(layers, machine, store)
        store.path.unlink(missing_ok=True)
    save(rows, args.output, marks)
    print(as_text(rows), end="")
    print(f"wrote {args.output} after {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return 0 if all(r["check"] is None or r["check"]["ok"] for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
