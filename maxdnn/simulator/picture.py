"""Where the issue slots went, as a stacked bar per launch. Needs matplotlib (the extra `plot`)."""

from collections.abc import Mapping
from typing import Any

from ..errors import SimulationError
from .columns import REASONS


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise SimulationError("pictures need matplotlib: pip install maxdnn[plot]") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot
    return pyplot


def stacked_slots(rows: Mapping[str, Mapping[str, float]], title: str) -> Any:
    """A matplotlib figure: one bar per name, its lost issue slots in percent by reason (report.slots); what is not lost
    is issued. Reasons below 0.02% everywhere are left out."""
    pyplot = _pyplot()
    reasons = [r for r in REASONS if any(row[r] >= 0.02 for row in rows.values())]
    figure, axes = pyplot.subplots(figsize=(max(5.0, 1.5 + 0.75 * len(rows)), 4.6), layout="constrained")
    colours = pyplot.get_cmap("tab20").colors
    bottom = [0.0] * len(rows)
    for number, reason in enumerate(reasons):
        heights = [row[reason] for row in rows.values()]
        axes.bar(list(rows), heights, bottom=bottom, label=reason, color=colours[number % 20], width=0.7)
        bottom = [b + h for b, h in zip(bottom, heights, strict=True)]
    for x, (row, top) in enumerate(zip(rows.values(), bottom, strict=True)):
        axes.annotate(f"{row['issued']:.1f}%\nissued", (x, top), ha="center", va="bottom", fontsize=8,
                      xytext=(0, 2), textcoords="offset points")
    axes.set_ylim(0, 1.3 * max([*bottom, 0.1]))
    axes.set_ylabel("issue slots lost (%)")
    axes.set_title(title)
    axes.tick_params(axis="x", labelrotation=30 if len(rows) > 6 else 0)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)
    return figure
