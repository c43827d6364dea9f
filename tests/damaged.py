"""Runs console commands on damaged files, in forked workers: what a command does to its process is part of the answer.

An outcome is "0", "1" or "2" (the exit status), or what is wrong: a signal, a traceback, an error without a line of its
own, no end."""

import contextlib
import io
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator

from maxdnn.cli import main

SECONDS = 60  # for one command
ROOM = 6 << 30  # bytes of address space a worker may add: a damaged size must not take the machine
RIGHT = ("0", "1", "2")


def outcome(command: list[str]) -> str:
    """Of one command in this process."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(command)
    except SystemExit as e:
        status = e.code if isinstance(e.code, int) else 1
    except BaseException as e:
        place = traceback.extract_tb(e.__traceback__)[-1]
        return f"{type(e).__name__}: {e} ({os.path.basename(place.filename)}:{place.lineno})".replace("\n", " ")
    if "Traceback" in err.getvalue():
        return "a traceback on stderr"
    if status == 1 and not (out.getvalue() or err.getvalue().startswith("maxdnn: ")):
        return "status 1 without a word"
    return str(status)


def outcomes(jobs: Iterable[tuple[str, list[str]]], prepare: Callable[[], None]) -> Iterator[tuple[str, str]]:
    """(name, outcome) of every (name, command). One worker runs them until it dies, then another goes on."""
    left = list(jobs)
    while left:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            _work(left, reading, writing, prepare)
        os.close(writing)
        with os.fdopen(reading) as answers:
            for line in answers:
                yield left.pop(0)[0], line.rstrip("\n")
        _, status = os.waitpid(child, 0)
        if left and os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            yield left.pop(0)[0], "no end" if number == signal.SIGALRM else signal.Signals(number).name
        elif left:
            yield left.pop(0)[0], f"the process left with status {os.WEXITSTATUS(status)}"


def _work(left: list[tuple[str, list[str]]], reading: int, writing: int, prepare: Callable[[], None]) -> None:
    try:
        os.close(reading)
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, used + ROOM))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        prepare()
        for _, command in left:
            signal.alarm(SECONDS)
            os.write(writing, (outcome(command) + "\n").encode(errors="replace"))
        os._exit(0)
    finally:
        sys.stdout.flush()
        os._exit(9)
