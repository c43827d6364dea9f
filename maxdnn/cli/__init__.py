"""The `maxdnn` console command: finds the subcommands, parses, and turns this library's errors into one line."""

import argparse
import importlib
import os
import pkgutil
import sys
from collections.abc import Sequence
from typing import Any

from ..errors import AssemblyError, MaxdnnError


def command_names() -> list[str]:
    """The subcommands there are, alphabetically."""
    return sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(f"maxdnn {importlib.import_module('maxdnn').__version__}")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """The parser with every subcommand; parsed arguments carry the chosen one's `run`."""
    parser = argparse.ArgumentParser(prog="maxdnn", description="Maxwell convolution kernels and their toolchain.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    choices = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for name in command_names():
        module = importlib.import_module(f"{__name__}.{name}")
        sub = choices.add_parser(name, help=module.HELP, description=module.HELP)
        module.configure(sub)
        sub.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a subcommand. Exit status: its own; 1 with one line on stderr for an error of this library or the file
    system; 2 for wrong arguments; 130 for an interrupt."""
    args = build_parser().parse_args(argv)
    try:
        status = args.run(args)
        sys.stdout.flush()
        return int(status or 0)
    except BrokenPipeError:  # the reader of our output went away, as in `maxdnn disasm K.cubin | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("maxdnn: interrupted", file=sys.stderr)
        return 130
    except MemoryError as e:
        print(f"maxdnn: not enough memory: {e}" if str(e) else "maxdnn: not enough memory", file=sys.stderr)
    except AssemblyError as e:  # what is wrong, and below it the line of the source; not how our assembler was called
        print(f"maxdnn: {e.message or e}", file=sys.stderr)
    except MaxdnnError as e:
        print(f"maxdnn: {e}", file=sys.stderr)
    except OSError as e:
        print(f"maxdnn: {e.filename}: {e.strerror}" if e.filename else f"maxdnn: {e}", file=sys.stderr)
    return 1
