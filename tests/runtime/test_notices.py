"""What takes longer than one expects is said on standard error, whatever that is."""

import os
import subprocess
import sys

import pytest

from maxdnn.runtime import notices

COMPILE = """
import numba
from maxdnn.simulator import jit

class Made:  # stands in for a function that is compiled when it is told to
    def compile(self, signature): pass
    def disable_compile(self): pass

numba.njit = lambda *given, **settings: given[0] if given else lambda function: Made()
import maxdnn.simulator.compiled
"""


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("environment", "words"), [
    ({"MAXDNN_CACHE": "/dev/null/no"}, ["for this process alone: there is no cache folder that can be used"]),
    ({"MAXDNN_CACHE_BYTES": "0"}, ["for this process alone: there is no cache folder that can be used"]),
    ({"MAXDNN_CACHE_BYTES": "20"}, ["once: ", "could not be kept in "]), ({}, ["once: "])])
def test_compiling_the_timing_model_is_said_and_whether_it_is_kept(environment, words, tmp_path):
    """Nothing is compiled here: what stands in for numba's compiler does nothing."""
    env = {**os.environ, "MAXDNN_CACHE": str(tmp_path / "cache"), **environment}
    done = subprocess.run([sys.executable, "-c", COMPILE], env=env, capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    assert len(lines) == len(words) and all(w in line for w, line in zip(words, lines, strict=True)), done.stderr
    assert lines[0].startswith("maxdnn: compiling the timing model, which takes half a minute, ")


def test_a_broken_standard_error_stops_nothing(monkeypatch, tmp_path):
    with (tmp_path / "closed").open("w", encoding="utf-8") as closed:
        pass
    for broken in (None, closed):
        monkeypatch.setattr(sys, "stderr", broken)
        notices.say("words")
