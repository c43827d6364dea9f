"""Runs the trial of a source's machine code in another process (selftest/trial.py). Sends it the cubin, reads the
steps that it reports and ends it when a step takes longer than its time limit."""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ..planning.cost import Chip

PASSED, FAILED, UNDECIDED = "passed", "failed", "undecided"
WORKER = "maxdnn.selftest.trial"
MARK = "maxdnn trial: "  # before what the other process says
NATIVE, ENDED = "native", "ended"  # steps: machine code begins to run; this is the outcome
START = 120.0  # seconds until machine code runs: Python and the driver's compiler included
STEP = 20.0  # seconds that it may then take for the runs of a problem
LONGEST = 300.0  # seconds of all steps together
_LEAVING = 10.0  # seconds to wait for a killed process to end


class Outcome(NamedTuple):
    """Of a trial. `state`: PASSED, FAILED or UNDECIDED. `text`: in words."""

    state: str
    text: str


def tried(chip: Chip, source: str, code: bytes, arch: str) -> Outcome:
    """Run the trial of a cubin on the GPU of a chip, in another process."""
    if not sys.executable:
        return Outcome(UNDECIDED, "there is no Python to start another process with")
    started = time.monotonic()
    try:
        other = _Process([sys.executable, "-m", WORKER, chip.trial, chip.name, source, arch], code)
    except OSError as e:
        return Outcome(UNDECIDED, f"no other process could be started: {e}")
    try:
        outcome = _followed(other)
    finally:
        other.end()
    took = time.monotonic() - started
    return outcome._replace(text=f"{outcome.text}, {took:.1f} s") if outcome.state == PASSED else outcome


def _followed(other: "_Process") -> Outcome:
    """The outcome, from the steps that the process reports. Once it has said that machine code begins to run, an end
    or a silence of the process is the code's failure; before that it decides nothing."""
    running, end = False, time.monotonic() + LONGEST
    while True:
        if time.monotonic() > end:
            return Outcome(UNDECIDED, f"it takes longer than {LONGEST:.0f} s")
        try:
            step = other.said(STEP if running else START)
        except queue.Empty:
            return (Outcome(FAILED, f"it hangs: no answer within {STEP:.0f} s") if running else
                    Outcome(UNDECIDED, f"the other process was not ready within {START:.0f} s"))
        if step is None:
            status = other.status()
            return (Outcome(FAILED, f"the process that ran it ended with status {status}") if running else
                    Outcome(UNDECIDED, f"the other process ended with status {status}"))
        if step["step"] == ENDED:
            return Outcome(step["state"], step["text"])
        running = running or step["step"] == NATIVE


class _Process:
    def __init__(self, command: list[str], code: bytes) -> None:
        package = str(Path(__file__).parents[2])  # so that the process imports this very library
        paths = [package, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in paths if p), "PYTHONIOENCODING": "utf-8",
                       "MAXDNN_TUNED": "0", "MAXDNN_VERBOSE": "0", "MAXDNN_NATIVE": ""}
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, env=environment)
        self._steps: queue.Queue[dict[str, Any] | None] = queue.Queue()
        threading.Thread(target=self._write, args=(code,), daemon=True).start()
        threading.Thread(target=self._read, daemon=True).start()

    def _write(self, code: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError), self._process.stdin as stdin:
            stdin.write(code)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with suppress(OSError, ValueError):
            for line in self._process.stdout:
                text = line.decode("utf-8", "replace")
                if text.startswith(MARK):
                    self._steps.put(json.loads(text[len(MARK):]))
        self._steps.put(None)

    def said(self, seconds: float) -> dict[str, Any] | None:
        """The next step; None if the process has ended. Raises queue.Empty if no step comes within `seconds`."""
        return self._steps.get(timeout=seconds)

    def status(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(_LEAVING)
        return None

    def end(self) -> None:
        """Kill the process. It may stay for a while if the driver is still busy with its kernel; this waits a short
        time only."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_LEAVING)
