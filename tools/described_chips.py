#!/usr/bin/env python
"""Write the tables of benchmarks/results/described_chips.md: plans for chips that there are only documents of.

    python tools/described_chips.py [--check]

--check changes nothing and exits 1 if the document does not say what plans say."""

import argparse
import json
import sys
from pathlib import Path

from maxdnn.layers import LAYERS
from maxdnn.planning import cost
from maxdnn.planning.cost import Chip, described
from maxdnn.planning.plan import Plan
from maxdnn.planning.select import choose
from maxdnn.problem.problem import data, filters, forward

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "benchmarks" / "results" / "described_chips.md"
CHIPS = ("rtx4090", "rtx3080", "a100")
PASSES = {"fprop": forward, "dgrad": data, "wgrad": filters}
LAYOUTS = {"CHWN": "C,H,W,N", "NCHW": "N,C,H,W"}


def figures() -> str:
    """The chips with the source of each figure."""
    every = json.loads(Path(cost.__file__).with_name("chips.json").read_bytes())
    lines = ["| chip | figure | value | known | source |", "|---|---|---|---|---|"]
    for chip in CHIPS:
        lines += [f"| {every[chip]['name']} | {name} | {entry[0]} | {entry[1]} | {entry[2]} |"
                  for name, entry in every[chip].items() if isinstance(entry, list)]
    return "\n".join(lines)


def cell(plan: Plan, chip: Chip) -> str:
    """The candidate, the kernel of its arithmetic and the estimate."""
    native = "" if any(x.spec.arch for x in plan.launches) else ", translated"
    return f"{plan.name}{native}, {plan.clocks(chip) / chip.clock_mhz:.0f} us"


def plans() -> str:
    """The ten layers of the paper, each pass in each layout."""
    chips = [described(name) for name in CHIPS]
    lines = ["| layer, N = 128 | pass | layout | " + " | ".join(chip.name for chip in chips) + " |",
             "|---" * (3 + len(chips)) + "|"]
    for layer in LAYERS:
        name = f"{'AlexNet' if layer.network == 'alexnet' else 'Overfeat'} {layer.name}"
        for kind, make in PASSES.items():
            for layout, said in LAYOUTS.items():
                found = [cell(choose(make(layer.shape, layout=layout), chip, tuned=False), chip) for chip in chips]
                lines.append(f"| {name} | {kind} | {said} | " + " | ".join(found) + " |")
    return "\n".join(lines)


def whole() -> str:
    """What explain() says in full, of one layer on each chip."""
    shape = next(layer.shape for layer in LAYERS if layer.name == "conv3")
    texts = [choose(forward(shape, layout="NCHW"), described(name), tuned=False).explain() for name in CHIPS]
    return "```\n" + "\n\n".join(texts) + "\n```"


def filled(text: str) -> str:
    """The document with its tables as they are now."""
    for name, make in (("figures", figures), ("plans", plans), ("explain", whole)):
        first, last = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        before, rest = text.split(first)
        text = before + first + make() + last + rest.split(last)[1]
    return text


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    text = DOCUMENT.read_text()
    new = filled(text)
    if args.check:
        return int(new != text)
    DOCUMENT.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
