"""`maxdnn tune`: measure the candidates for layers and remember the fastest."""

import argparse

from ._devices import add_argument, chosen
from ._types import LAYER, layer, pass_of

HELP = "measure every way to compute a layer on a GPU and remember the fastest"


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("layers", nargs="*", metavar="LAYER", help=LAYER)
    parser.add_argument("--layout", default="CHWN", help="layout of the arrays: CHWN (default) or NCHW")
    parser.add_argument("--pass", dest="kinds", action="append", metavar="PASS",
                        help="forward (default), data or filters, the gradients; may be repeated")
    parser.add_argument("--max-error", type=float, default=2e-6, metavar="E",
                        help="measure no candidate whose documented error is larger (default 2e-6)")
    parser.add_argument("--prepared-filters", action="store_true",
                        help="for calls with filters that were made ready beforehand")
    add_argument(parser)
    parser.add_argument("--seconds", type=float, metavar="S",
                        help="how long for each layer (default 5; on the virtual GPU, which is simulated, 60)")
    parser.add_argument("--again", action="store_true", help="measure what is remembered already, too")
    parser.add_argument("--list", action="store_true", help="what is remembered (of these layers), and measure nothing")
    parser.add_argument("--forget", action="store_true", help="forget what is remembered (of these layers)")


def run(args: argparse.Namespace) -> int:
    from ..errors import MaxdnnError

    shapes, kinds = [layer(text) for text in args.layers], [pass_of(text) for text in args.kinds or ("forward",)]
    if args.list and args.forget:
        raise MaxdnnError("--list shows what --forget would forget: give one of them")
    if args.list or args.forget:
        return _remembered(shapes, args.forget)
    if not shapes:
        raise MaxdnnError(f"tune needs a LAYER: {LAYER}; --list shows what is remembered")
    from ..planning.tuning import tune
    from ..runtime.devices.protocol import Card, able
    from ._progress import Progress

    device = chosen(args.device)
    print(f"measuring on {device.name}" if able(device, Card) else
          f"no GPU: simulating the {device.preset} of the timing model; nothing here is measured")
    with Progress("tuning") as tell:
        for found in tune(shapes, device=device, kind=kinds, layout=args.layout,
                          max_error=args.max_error, prepared_filters=args.prepared_filters, seconds=args.seconds,
                          again=args.again, progress=tell):
            print(found if found.new else f"{found} (remembered since {found.record.measured[:10]})")
    return 0


def _remembered(shapes: list[object], forget: bool) -> int:
    """List or forget the records of some layers, of all if none are given."""
    from ..planning import records

    found = [r for r in records.records() if not shapes or any(repr(s) in r.problem for s in shapes)]
    for record in sorted(found, key=lambda r: (r.chip, r.driver, r.library, r.about)):
        name, seconds = record.results[0]
        old = "" if record.library == records.library() else f", by version {record.library}, not used"
        print(f"{record.chip}{' (simulated)' * record.simulated}{', ' * bool(record.driver)}{record.driver}: "
              f"{record.about}\n  {name}, {seconds * 1e6:.1f} us, {record.measured[:10]}{old}")
        if forget:
            records.forget(record)
    print(f"{len(found)} layer{'s' * (len(found) != 1)} {'forgotten' if forget else 'remembered'}")
    return 0
