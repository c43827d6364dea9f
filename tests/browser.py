"""Headless Chromium for tests, driven over a pipe in its own protocol (Chrome DevTools), so that nothing else is
needed: `with Browser() as b: b.open(path); b.value("document.title")`. Where there is none its tests are skipped,
unless MAXDNN_REQUIRE_BROWSER is 1, as in continuous integration."""

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

REQUIRED = "MAXDNN_REQUIRE_BROWSER"
NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--remote-debugging-pipe")
# Chromium reads its commands from descriptor 3 and answers on 4.
BEGIN = "import os, sys; a = sys.argv; os.dup2(int(a[1]), 3); os.dup2(int(a[2]), 4); os.execv(a[3], a[3:])"
PATIENCE = 60.0  # seconds for one answer


def program() -> str:
    """Path of the browser. Without one the test that asks is skipped in words, or fails where one is required."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        reason = f"no {' or '.join(NAMES)} on the path: the tests that look at the page are left out"
        if os.environ.get(REQUIRED, "0") not in ("", "0"):
            pytest.fail(f"{reason}, and {REQUIRED} says that they must run")
        pytest.skip(f"{reason} (apt-get install chromium; {REQUIRED}=1 makes this a failure)")
    return found


class Browser:
    """One page. `errors`: what the console and uncaught exceptions said; `requests`: everything that was fetched."""

    def __init__(self, width: int = 1200, height: int = 900) -> None:
        found = program()
        self._folder = tempfile.TemporaryDirectory(prefix="maxdnn-chromium-", ignore_cleanup_errors=True)
        read, self._to = os.pipe()
        self._from, write = os.pipe()
        ends = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (read, write)]  # neither is 3 or 4
        self._process = subprocess.Popen(
            [sys.executable, "-c", BEGIN, *map(str, ends), found, *FLAGS, f"--user-data-dir={self._folder.name}",
             "about:blank"], pass_fds=ends, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for end in (read, write, *ends):
            os.close(end)
        self._number, self._rest, self._session = 0, b"", ""
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._loaded = False
        page = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)
        self._folder.cleanup()

    def call(self, method: str, **parameters: Any) -> Any:
        """The result of a command of the protocol."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return answer["result"]

    def _message(self) -> dict[str, Any]:
        """The next answer or event; events are noted."""
        end = time.monotonic() + PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            assert ready, f"Chromium said nothing for {PATIENCE:.0f} s"
            data = os.read(self._from, 1 << 20)
            assert data, "Chromium ended"
            self._rest += data
        text, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(text)
        method, said = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.errors.append(str(said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.errors.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        elif method == "Page.loadEventFired":
            self._loaded = True
        return message

    def open(self, path: Path) -> None:
        """Load a file and wait until its scripts have run."""
        self._loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._message()

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives, as JSON gives it."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, f"{expression}: {answer['exceptionDetails']}"
        return answer["result"].get("value")

    def resize(self, width: int, height: int, dark: bool = False, phone: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme",
                                                           "value": "dark" if dark else "light"}])

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        """kind: mousePressed, mouseReleased, mouseMoved, mouseWheel."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
