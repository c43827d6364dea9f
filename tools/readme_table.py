#!/usr/bin/env python
"""Write the efficiency table of README.md from the results in benchmarks/results/.

    python tools/readme_table.py [--check]

--check changes nothing and exits 1 if the README does not say what the results say."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
BEGIN, END = "<!-- table -->", "<!-- end of table -->"
HEAD = ("| layer | paper: cuDNN v2 | paper: maxDNN | simulated gm204 | measured H200: maxDNN | H200: cuDNN, direct and "
        "implicit GEMM | H200: cuDNN, fastest |")


def rows(name: str) -> dict[tuple[str, str], dict[str, Any]]:
    layers = json.loads((RESULTS / name).read_text())["layers"]
    return {(row["network"], row["layer"]): row for row in layers}


def table() -> str:
    simulated, measured = rows("alexnet_overfeat.json"), rows("alexnet_overfeat.h200.json")
    lines = [HEAD, "|---|---|---|---|---|---|---|"]
    for key, sim in simulated.items():
        gpu = measured[key]
        name = f"{'AlexNet' if key[0] == 'alexnet' else 'Overfeat'} {key[1]}"
        cells = (name, sim["paper_cudnn_ce"], sim["paper_ce"], sim["ce"], gpu["ce"], gpu["cudnn_direct_ce"],
                 gpu["cudnn_best_ce"])
        lines.append("| " + " | ".join(c if isinstance(c, str) else f"{c:.1f}" for c in cells) + " |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare only; exit status 1 if they differ")
    args = parser.parse_args(argv)
    readme = ROOT / "README.md"
    text = readme.read_text()
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    wanted = f"{before}{BEGIN}\n{table()}\n{END}{after}"
    if args.check:
        return int(text != wanted)
    part = readme.with_suffix(".part")
    part.write_text(wanted)
    os.replace(part, readme)
    return 0


if __name__ == "__main__":
    sys.exit(main())
