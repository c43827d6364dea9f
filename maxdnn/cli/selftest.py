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
    parser.add_argument("--native", action="store_true",
                        help="only try out, again, each source's machine code as a first use does, and remember what "
                             "comes of it")
    parser.add_argument("--quick", action="store_true", help="as few problems as use every kernel")


def run(args: argparse.Namespace) -> int:
    return _native(args) if args.native else _everything(args)


def _native(args: argparse.Namespace) -> int:
    """Every source that the GPU has machine code of."""
    from ..errors import DeviceError
    from ..planning.select import chip_of
    from ..runtime import trust
    from ..selftest.trial import sources

    chip = chip_of(chosen(args.device))
    if not chip.trial:
        raise DeviceError(f"--native needs a GPU (got {chip.name}, on which nothing has to be tried)")
    wanted = sources(chip)
    if not wanted:
        raise DeviceError(f"{chip.name} runs translations alone: there is no machine code of it to try")
    off = [source for source in wanted if not trust.again(chip, source).on]
    print(f"{chip.name}, {chip.driver}: {len(wanted) - len(off)} of {len(wanted)} sources run as machine code"
          + f", translations instead of {', '.join(off)}" * bool(off))
    return 1 if off else 0


def _everything(args: argparse.Namespace) -> int:
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
