"""The page of a simulation: one HTML file with its style, its scripts and its data in it, which asks for nothing from
anywhere. What it shows is the JSON that the caller hands over; this room knows how to show it, not where it is from."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent
_PARTS = ("page.css", "base.js", "charts.js", "source.js", "timeline.js", "page.js")


def html(data: Mapping[str, Any], *, what: str, preset: str, chip: str, changed: Mapping[str, Any],
         files: Mapping[str, str], missing: str = "") -> str:
    """The page. data: what `maxdnn simulate --json` gives, each launch with its "timeline" (sim/timeline.py). what:
    the title; preset, chip: of the machine; changed: figures of it that the caller set; files: text of the sources by
    the name that instructions' places give; missing: why there are none, in a sentence, if there should be."""
    about = {"what": what, "preset": preset, "chip": chip, "changed": dict(changed), "missing": missing}
    text = json.dumps({"about": about, "simulation": data, "files": dict(files)}, separators=(",", ":"))
    page = (_FOLDER / "page.html").read_text("utf-8")
    for name in _PARTS:
        page = page.replace(f"/* {name} */", (_FOLDER / name).read_text("utf-8"), 1)
    # In a script a "<" could begin what ends it; in a JSON string \u003c is the same character.
    return page.replace("/* data */", text.replace("<", "\\u003c"), 1)
