"""Jobs that get ready side by side and measure one after the other."""

import importlib
import itertools

import pytest

from maxdnn.cli._turns import Failed, in_turns

WORK = '''
import os, time
from maxdnn.errors import MaxdnnError

def work(job, turn):
    if job == "dies":
        os.abort()
    if job == "fails":
        raise MaxdnnError("in words")
    if job == "sleeps":
        time.sleep(60)
    turn()
    turn()  # it is ours
    begun = time.monotonic()
    time.sleep(0.2)
    yield begun, time.monotonic()
    if job == "dies later":
        os.abort()
    if job == "sleeps later":
        time.sleep(60)
'''


@pytest.mark.long
def test_jobs_take_turns_and_one_that_ends_costs_its_results_only(tmp_path, monkeypatch):
    (tmp_path / "slow_work.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    work = importlib.import_module("slow_work").work
    jobs = ["one", "dies", "two", "fails", "dies later", "sleeps later", "sleeps", "three"]
    found = {job: [] for job in jobs}
    for job, result in in_turns(work, jobs, 3, 5.0):
        found[job].append(result)
    spans = sorted(x for results in found.values() for x in results if not isinstance(x, Failed))
    assert len(spans) == 5 and all(a[1] <= b[0] for a, b in itertools.pairwise(spans)), "never two at a time"
    ends = {job: results[-1].why for job, results in found.items() if isinstance(results[-1], Failed)}
    assert ends == {"dies": "its process ended with -6", "fails": "in words",
                    "dies later": "its process ended with -6", "sleeps later": "nothing came for 5 s",
                    "sleeps": "was not ready after 5 s"}
