"""Runs console commands and calls of the API on damaged files, in forked workers: what they do to their process is part
of the answer.

An outcome is "0", "1" or "2" (the exit status; of a call 0, or 1 for an error of this library), or what is wrong: a
signal, a traceback, an error without a line of its own, no end, more memory than the file can ask for."""

import contextlib
import io
import os
import pathlib
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from maxdnn import cubin
from maxdnn.cli import main
from maxdnn.cubin import CubinKernel
from maxdnn.emulator import VirtualGpu
from maxdnn.errors import MaxdnnError
from maxdnn.isa.program import Graph

SECONDS = 60  # for one command
ROOM = 6 << 30  # bytes of address space a worker may add: a damaged size must not take the machine
PAGES = 1 << 30  # bytes of memory a worker may come to have used
RIGHT = ("0", "1", "2")


def api(path: str) -> int:
    """What the library offers for a cubin, one after the other: 1 if anything was refused. What commands call besides
    (checker, translator, launches) they are asked for."""
    data = pathlib.Path(path).read_bytes()

    def each(use: Callable[[CubinKernel], Any]) -> Callable[[], Any]:
        return lambda: [use(kernel) for kernel in cubin.read(data).kernels.values()]
    calls = [lambda: cubin.interface(data), lambda: cubin.require_linked(cubin.read(data)), each(Graph),
             each(lambda k: [i.text() for i in k.instructions]),
             each(lambda k: (k.param_bytes, k.texture_channels(0), k.words())),
             lambda: VirtualGpu().load(data)]
    status = 0
    for call in calls:
        try:
            call()
        except MaxdnnError as e:
            assert str(e), type(e)
            status = 1
    return status


def outcome(command: list[str]) -> str:
    """Of one command in this process; of `["(api)", file]`, of the calls of `api`."""
    out, err = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            if command[0] == "(api)":
                return str(api(command[1]))
            status = main(command)
    except SystemExit as e:
        status = e.code if isinstance(e.code, int) else 1
    except BaseException as e:
        place = traceback.extract_tb(e.__traceback__)[-1]
        return f"{type(e).__name__}: {e} ({os.path.basename(place.filename)}:{place.lineno})".replace("\n", " ")
    if "Traceback" in err.getvalue():
        return "a traceback on stderr"
    if "not enough memory" in err.getvalue():
        return "not enough memory"
    if status == 1 and not (out.getvalue() or "maxdnn: " in err.getvalue()):  # a slow run says first that it goes on
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


def _peak() -> int:
    """The most memory this process has used, bytes."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


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
        peak = _peak()
        for _, command in left:
            signal.alarm(SECONDS)
            found = outcome(command)
            peak, before = _peak(), peak
            if peak - before > PAGES:
                found = f"took {(peak - before) >> 20} MiB more than anything before it ({found})"
            os.write(writing, (found + "\n").encode(errors="replace"))
        os._exit(0)
    finally:
        sys.stdout.flush()
        os._exit(9)
