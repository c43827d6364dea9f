"""`maxdnn selftest`: run the library on a card and report what is not as expected."""

import argparse
import time
from typing import TYPE_CHECKING

from ._devices import add_argument, chosen
from ._types import file_name

if TYPE_CHECKING:
    from ..selftest.items import Result

HELP = "run every kernel on a GPU, compare with the virtual GPU and the timing model, write a report"

_EVERY = 10.0  # seconds after which a report of what there is so far is written


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = ("Owners of Maxwell and Pascal cards: please attach the report to an issue; docs/selftest.md says "
                     "what is learned from it. Exit status: 0 if everything is as expected, else 1.")
    add_argument(parser)
    parser.add_argument("--report", type=file_name, metavar="FILE", help="write the report there (text, then JSON)")
    parser.add_argument("--quick", action="store_true", help="as few problems as use every kernel")


def run(args: argparse.Namespace) -> int:
    from ..runtime.files import check_writable
    from ..selftest import report
    from ..selftest.items import Stand
    from ..selftest.run import apart, here, processes
    from ._progress import Progress

    if args.report:
        check_writable("--report", args.report)
    stand = Stand(chosen(args.device))
    around = report.about(stand)
    print(report.heading(around))
    results: dict[int, Result] = {}  # by the number of the item: they come in any order
    written = time.monotonic()
    with Progress("testing") as tell:
        for number, result in (apart(stand.device.ordinal, args.quick, tell, processes(around["device"]["memory_mib"]))
                               if stand.card else here(stand, args.quick, tell)):
            results[number] = result
            if report.worth_saying(result):
                print(f"{result.part}: {report.line(result)}", flush=True)
            if args.report and time.monotonic() - written > _EVERY:
                report.write(args.report, report.made(around, _ordered(results), complete=False))
                written = time.monotonic()
    found = report.made(around, _ordered(results))
    if args.report:
        report.write(args.report, found)
        print(f"wrote {args.report}")
    print(", ".join(f"{n} {state}" for state, n in found["counts"].items()))
    return 0 if report.passed(found) else 1


def _ordered(results: "dict[int, Result]") -> "list[Result]":
    return [results[number] for number in sorted(results)]
