"""collir: the commands beside collopt and collrun, a subcommand each."""

import argparse
import difflib
import sys
from collections.abc import Callable, Sequence
from typing import Protocol, TextIO

import collir
from collir.ir.diagnostics import Sources
from collir.targets.reports.terminal import drawn_on
from collir.tools import completion
from collir.tools.shell import CommandParser, UsageError, run_tool


class Command(Protocol):
    """A module that implements a subcommand."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add the arguments of the command."""

    def run(self, options: argparse.Namespace) -> int:
        """Run the command and return its exit status."""
        ...


def _calibrate() -> Command:
    from collir.tools import calibrate

    return calibrate


def _check() -> Command:
    from collir.tools import check

    return check


def _compare() -> Command:
    from collir.tools import compare

    return compare


def _export() -> Command:
    from collir.tools import export

    return export


def _import() -> Command:
    from collir.tools import imports

    return imports


def _machine() -> Command:
    from collir.tools import machine

    return machine


def _new() -> Command:
    from collir.tools import new

    return new


def _search() -> Command:
    from collir.tools import search

    return search


def _sweep() -> Command:
    from collir.tools import sweep

    return sweep


def _synthesize() -> Command:
    from collir.tools import synthesize

    return synthesize


def _why() -> Command:
    from collir.tools import why

    return why


COMMANDS: dict[str, tuple[str, Callable[[], Command]]] = {
    "machine": ("the machines that ship with collir, or that others describe", _machine),
    "new": ("a program to start from, for a cluster of yours", _new),
    "import": ("your own model, as a program", _import),
    "export": ("a program for other simulators", _export),
    "calibrate": ("machines fitted to measurements", _calibrate),
    "compare": ("measured times beside predicted ones", _compare),
    "check": ("whether an algorithm of another tool implements its collective", _check),
    "synthesize": (
        "algorithms of trees that reach the bound of a collective on links",
        _synthesize,
    ),
    "why": ("what each collective of a program costs, and what would remove it", _why),
    "sweep": ("the fastest way to run a training step on a machine", _sweep),
    "search": ("exact search of trees", _search),
}
"""Name of a command -> its summary, and a function that imports its module when it is needed."""


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    parser = CommandParser(prog="collir", description="Everything but collopt and collrun.")
    parser.add_argument("--version", action="version", version=f"collir {collir.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    for name, (summary, load) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=f"{summary.capitalize()}.")
        command.add_argument("--debug", action="store_true", help="show tracebacks of our errors")
        if name == chosen:
            load().configure(command)
    completion.complete(parser)
    return parser


def _run(arguments: Sequence[str]) -> int:
    words = completion.typed_words() if completion.asked() else arguments
    chosen = next((word for word in words if not word.startswith("-")), None)
    if chosen is not None and chosen not in COMMANDS and not completion.asked():
        close = difflib.get_close_matches(chosen, COMMANDS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"there is {', '.join(COMMANDS)}"
        raise UsageError(f"there is no command '{chosen}'; {hint}")
    options = _parser(chosen).parse_args(arguments)
    with drawn_on(_shown_on(options)):
        return COMMANDS[options.command][1]().run(options)


def _shown_on(options: argparse.Namespace) -> TextIO | None:
    """Return the stream that the tables of a command go to; None for a file."""
    if options.command != "calibrate":
        return sys.stdout
    return None if options.report else sys.stderr


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    return run_tool("collir", Sources(), "--debug" in words, lambda: _run(words))


def script() -> None:
    """Run the console script."""
    sys.exit(main())
