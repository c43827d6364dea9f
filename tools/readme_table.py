#!/usr/bin/env python
"""Write the efficiency table of README.md and the networks' table in benchmarks/results/ from the rows beside it.

    python tools/readme_table.py [--check]

--check changes nothing and exits 1 if a document does not say what the results say."""

import argparse
import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
NETWORKS = {"alexnet": "AlexNet", "vgg16": "VGG-16", "resnet50": "ResNet-50", "inception": "Inception-like",
            "unet": "U-Net, dilated"}
HEAD = ("| layer | paper: cuDNN v2 | paper: maxDNN | simulated gm204 | H200: maxDNN, direct | H200: maxDNN, fastest | "
        "H200: cuDNN, direct and implicit GEMM | H200: cuDNN, fastest | H200: cuDNN, TF32 |")


def rows(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    layers = json.loads((RESULTS / name).read_text())["layers"]
    return {(row["network"], row["layer"]): row for row in layers}


def table() -> str:
    simulated, measured = rows("alexnet_overfeat.json"), rows("alexnet_overfeat.h200.json")
    lines = [HEAD, "|---" * (HEAD.count("|") - 1) + "|"]
    for key, sim in simulated.items():
        gpu = measured[key]
        name = f"{'AlexNet' if key[0] == 'alexnet' else 'Overfeat'} {key[1]}"
        cells = (name, sim["paper_cudnn_ce"], sim["paper_ce"], sim["ce"], gpu["ce"], gpu["best_ce"],
                 gpu["cudnn_direct_ce"], gpu["cudnn_best_ce"], gpu["tf32_ce"])
        lines.append("| " + " | ".join(c if isinstance(c, str) else f"{c:.1f}" for c in cells) + " |")
    return "\n".join(lines)


def networks() -> str:
    """Speed relative to cuDNN of a network's convolutions, and what all rows say."""
    every = json.loads((RESULTS / "networks.h200.json").read_text())["rows"]

    def ratio(row: dict[str, Any], part: str = "") -> float:
        return row[f"cudnn_{part}seconds"] / row[f"{part}seconds"]

    def cell(network: str, kind: str, n: int) -> str:
        graph, eager = (next(ratio(row) for row in every if (row["network"], row["kind"], row["n"], row["mode"])
                             == (network, kind, n, mode)) for mode in ("graph", "eager"))
        return f"{graph:.2f} ({eager:.2f})"
    lines = ["| convolutions of | inference, N = 1 | N = 8 | N = 32 | training, N = 32 |", "|---|---|---|---|---|"]
    for network, name in NETWORKS.items():
        cells = [cell(network, "inference", n) for n in (1, 8, 32)] + [cell(network, "training", 32)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines.append("")
    for kind in ("inference", "training"):
        rows = [row for row in every if row["kind"] == kind]
        parts = []
        for part, what in (("", "convolutions"), ("whole_", "whole networks")):
            ratios = [ratio(row, part) for row in rows]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            parts.append(f"{what} ahead in {sum(r > 1 for r in ratios)} of {len(ratios)}, geometric mean {mean:.2f}, "
                         f"least {min(ratios):.2f}")
        far = max(row[name] / row[f"cudnn_{name}"] for row in rows for name in ("error", "gradient_error")
                  if name in row)
        parts.append(f"at most {far:.1f} times as far from float64 as cuDNN")
        lines.append(f"{kind.capitalize()}: {'; '.join(parts)}." + "  " * (kind == "inference"))
    return "\n".join(lines)


PLACES = {"README.md": ("table", table), "benchmarks/results/networks.md": ("networks", networks)}


def written(text: str, name: str, content: str) -> str:
    """The document with its table as the results say."""
    before, rest = text.split(f"<!-- {name} -->")
    _, after = rest.split(f"<!-- end of {name} -->")
    return f"{before}<!-- {name} -->\n{content}\n<!-- end of {name} -->{after}"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only; exit status 1 if they differ")
    args = parser.parse_args(argv)
    status = 0
    for path, (name, make) in PLACES.items():
        document = ROOT / path
        text = document.read_text()
        wanted = written(text, name, make())
        if args.check:
            status |= text != wanted
            continue
        part = document.with_suffix(".part")
        part.write_text(wanted)
        os.replace(part, document)
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
