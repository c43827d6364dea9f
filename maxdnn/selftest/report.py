"""The report of a self-test: one file, to be read by people above and by programs below the line. It names the card,
its driver and this library, and nothing of whose computer it is."""

import getpass
import json
import platform
import re
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import MaxdnnError
from ..planning import records
from ..runtime.files import write_whole
from .items import DIFFERENT, FAILED, NOTED, SAME, Result

FORMAT = "maxdnn selftest 1"
TITLES = {"kernels": "Kernels: the same bits?", "questions": "Questions to silicon: is it as the virtual GPU says?",
          "clocks": "Clocks of loops: measured and simulated", "times": "Seconds of plans: measured and simulated"}
_FENCE = "```"


def clean(text: str) -> str:
    """A message without what is private: folders, the names of user and computer."""
    names = [str(Path.home()), str(Path.cwd()), str(Path(__file__).parents[2])]
    for find in (getpass.getuser, socket.gethostname):
        with suppress(Exception):
            names.append(find())
    for name in sorted(filter(lambda n: len(n) > 1, names), key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "~", text)
    return " ".join(text.split())[:500]


def about(stand: Any) -> dict[str, Any]:
    """The device and what stands around it."""
    device = stand.device
    facts = device.facts() if stand.card else {"name": device.name}
    how = ("virtual" if not stand.card else "native" if stand.native else "translated")
    return {"device": facts, "how": how, "library": records.library(), "python": platform.python_version(),
            "numpy": np.__version__, "system": f"{platform.system()} {platform.machine()}",
            "date": datetime.now(UTC).isoformat(timespec="seconds")}


def made(around: dict[str, Any], results: Sequence[Result], complete: bool = True) -> dict[str, Any]:
    """The report as plain data; of a test that has not come to its end unless `complete`."""
    counts = Counter(r.state for r in results)
    return {"format": FORMAT, **around, "complete": complete,
            "counts": {state: counts[state] for state in (SAME, DIFFERENT, FAILED, NOTED)},
            "results": [asdict(r) for r in results]}


def passed(report: dict[str, Any]) -> bool:
    """Whether everything was run and nothing differed or failed."""
    return report["complete"] and not report["counts"][DIFFERENT] and not report["counts"][FAILED]


def heading(around: dict[str, Any]) -> str:
    device = around["device"]
    if around["how"] == "virtual":
        return (f"maxDNN self-test of the virtual GPU ({device['name']}, simulated: no GPU was tested), "
                f"library {around['library']}")
    how = "its own machine code" if around["how"] == "native" else "translated code, no test of the native kernels"
    return (f"maxDNN self-test on {device['name']} (sm_{device['capability'][0]}{device['capability'][1]}, "
            f"{device['driver']}): {how}, library {around['library']}")


def worth_saying(result: Result) -> bool:
    """Whether a line of text is made of it."""
    return result.state in (DIFFERENT, FAILED) or bool(result.text)


def line(result: Result) -> str:
    bad = result.state in (DIFFERENT, FAILED)
    return f"{result.state.upper() + ': ' if bad else ''}{result.name}{': ' if result.text else ''}{result.text}"


def text(report: dict[str, Any]) -> str:
    """For people: the heading, what differed, then the figures."""
    device = {k: v for k, v in report["device"].items() if k not in ("name", "capability", "driver")}
    lines = [f"# {heading(report)}", "",
             ", ".join(f"{n} {state}" for state, n in report["counts"].items() if n) or "nothing was run", "",
             *([] if report["complete"] else ["The test was stopped before its end.", ""]),
             f"{report['date']}, Python {report['python']}, NumPy {report['numpy']}, {report['system']}"
             + "".join(f", {k} {v}" for k, v in device.items())]
    for part, title in TITLES.items():
        found = [Result(**r) for r in report["results"] if r["part"] == part]
        judged = [r for r in found if r.state != NOTED]
        if found:
            lines += ["", f"## {title}", ""]
            lines += [f"{sum(r.state == SAME for r in judged)} of {len(judged)} as expected"] * bool(judged)
            lines += [f"- {line(r)}" for r in found if worth_saying(r)]
    return "\n".join(lines) + "\n"


def write(path: Path, report: dict[str, Any]) -> None:
    """One file, whole or not at all: the text, then everything as JSON between two fences."""
    content = f"{text(report)}\n{_FENCE}json\n{json.dumps(report, indent=1, sort_keys=True)}\n{_FENCE}\n"
    write_whole(path, lambda file: file.write(content.encode()))


def read(path: Path) -> dict[str, Any]:
    """The data of a report file. Raises MaxdnnError for anything else."""
    try:
        body = path.read_text(encoding="utf-8").split(f"{_FENCE}json\n")[1].split(f"\n{_FENCE}")[0]
        found = json.loads(body)
        if found["format"] == FORMAT:
            return found
    except (IndexError, ValueError, KeyError, TypeError, RecursionError):
        pass
    raise MaxdnnError(f"{path}: no report of maxdnn selftest")
