"""``collir search PROBLEM``: exact search."""

import argparse
import contextlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, cast

from collir import search
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.search.core.coordination import COORDINATIONS, Coordination, coordination_of
from collir.search.core.plan import ORDERS
from collir.search.core.problem import Problem, SearchError
from collir.search.engines.mpi import agree, launched, leads
from collir.search.running.checkpoint import EVERY
from collir.search.running.options import ENGINES
from collir.search.running.plots import svg
from collir.search.running.profiling import to_json
from collir.syntax.units import Quantity
from collir.targets.reports.page.rendered import check_installed
from collir.tools.own_problems import own_subject
from collir.tools.search_output import Outcome, as_json, as_text
from collir.tools.search_page import advice, html
from collir.tools.search_subjects import SUBJECTS, Options, Parser, Subject, at_least_one
from collir.tools.shell import CommandParser, UsageError, check_folders, write_whole


def _common(parser: Parser) -> None:
    """Add the options of every search."""
    add = parser.add_argument
    add("--workers", type=at_least_one, default=1, help="how many workers search (default: 1)")
    add("--engine", choices=ENGINES, default="auto", help="where the workers run (default: auto)")
    add("--order", choices=ORDERS, default="depth-first", help="which nodes are visited first")
    add(
        "--coordination",
        type=_coordination,
        metavar="NAME[=NUMBER]",
        help="how the search is divided: " + ", ".join(COORDINATIONS),
    )
    add("--depth-limit", type=int, metavar="N", help="nodes at this depth have no children")
    add("--time-limit", type=_seconds, metavar="TIME", help="end after this, such as `30 s`")
    add("--node-limit", type=int, metavar="N", help="end after so many nodes")
    add("--memory-limit", type=_bytes, metavar="SIZE", help="end at this size, such as `2 GB`")
    add("--checkpoint", metavar="FILE", help="write down now and then how far the search is")
    add(
        "--checkpoint-every",
        type=_seconds,
        metavar="TIME",
        help=f"time between two checkpoints; default: {EVERY:g} s",
    )
    add("--resume", metavar="FILE", help="go on from there; only read a file that you trust")
    add("--seed", type=int, default=0, help="seed of the turns that the engine `local` takes")
    add(
        "--check",
        action="store_true",
        help="first see that bounds and the like hold, in all of a small tree",
    )
    add("--progress", action=argparse.BooleanOptionalAction, help="say how far the search is")
    add("--profile", metavar="FILE", help="write counts for each depth: .json, .svg")
    add("--html", metavar="FILE", help="write a page of the outcome and of the counts by depth")
    add("--json", action="store_true", help="print JSON")
    add("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)


def _quantity(text: str, kind: Quantity, more: dict[str, int], example: str) -> float:
    match = re.fullmatch(r"\s*([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([A-Za-z]*)\s*", text)
    if match and match[2] in more:
        return float(match[1]) * more[match[2]]
    if not match or match[2] not in kind.units:
        raise argparse.ArgumentTypeError(f"{example}, not '{text}'")
    return kind.parse(match[1], match[2])


def _seconds(text: str) -> float:
    return _quantity(
        text, Quantity.TIME, {"min": 60, "h": 3600}, "a time such as `30 s` or `10 min`"
    )


def _bytes(text: str) -> int:
    return int(_quantity(text, Quantity.BYTES, {}, Quantity.BYTES.example))


def _coordination(text: str) -> Coordination:
    try:
        return coordination_of(text)
    except SearchError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    problems = parser.add_subparsers(
        metavar="PROBLEM",
        dest="problem",
        required=True,
        description="One of these, or a problem of your own: FILE.py:CLASS or MODULE:CLASS.",
    )

    for name, subject in SUBJECTS.items():
        summary = subject.summary
        subparser = problems.add_parser(name, help=summary, description=f"{summary.capitalize()}.")
        _configure(subparser, subject)

    def own(name: str) -> Parser:
        return _configure(CommandParser(prog=f"{parser.prog} {name}"), own_subject(name))

    problems.choices = _Problems(problems.choices, own)
    setattr(problems, "_name_parser_map", problems.choices)  # noqa: B010 - where argparse looks


def _configure(parser: Parser, subject: Subject) -> Parser:
    subject.configure(parser)
    _common(parser)
    return parser


class _Problems(dict[str, Parser]):
    """The parsers of problems by name; that of a user's problem is made when it is looked up."""

    def __init__(self, known: Mapping[str, Parser], make: Callable[[str], Parser]):
        super().__init__(known)
        self._make = make

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or ":" in str(name)

    def __missing__(self, name: str) -> Parser:
        return self._make(name)


def _subject(name: str) -> Subject:
    """Return the subject of a problem by its name."""
    return SUBJECTS[name] if name in SUBJECTS else own_subject(name)


def run(options: argparse.Namespace) -> int:
    """Run the command and return its exit status; a rank of several searches with the others."""
    if options.engine == "auto" and launched():
        options.engine = "mpi"
    distributed = options.engine == "mpi" and launched()
    problem, error = _problem(options)
    if distributed and (failure := agree(_plain(error))) and error is None:
        error = DiagnosticError(Diagnostic(f"rank {failure[0]}: {failure[1]}"))
    if distributed and not leads():  # rank 0 prints for all ranks, errors included
        with contextlib.suppress(SearchError, UsageError):
            if error is None:
                _search(_subject(options.problem), problem, options)
        return 0
    if error is not None:
        raise error
    return _report(problem, options)


def _problem(options: Options) -> tuple[Any, Exception | None]:
    """Return the problem, or the error that it or a requested page cannot be made."""
    try:
        if options.html:
            check_installed()
        check_folders(options.html, options.profile)
        return _subject(options.problem).problem(options), None
    except SearchError as error:
        return None, UsageError(str(error))
    except (DiagnosticError, UsageError, OSError) as error:
        return None, error


def _plain(error: Exception | None) -> str | None:
    """Return the message of an error, without the name of the tool."""
    if isinstance(error, DiagnosticError):
        return "; ".join(diagnostic.message for diagnostic in error.diagnostics)
    return None if error is None else str(error)


def _report(problem: Problem[Any], options: Options) -> int:
    """Search and print the outcome; return the exit status."""
    subject = _subject(options.problem)
    try:
        outcome = _search(subject, problem, options)
    except SearchError as error:
        if (known := search.so_far(error)) is not None:
            _print(cast(Outcome, known), subject.noun, options)
        text = "; ".join([str(error), *getattr(error, "__notes__", ())])
        raise DiagnosticError(Diagnostic(text)) from error
    _print(outcome, subject.noun, options)
    if options.profile:
        _write_profile(options.profile, outcome)
    if options.html:
        title = f"collir search {options.problem}"
        write_whole(options.html, html(outcome, title, subject.noun))
    return 0


def _print(outcome: Outcome, noun: str, options: Options) -> None:
    """Print an outcome."""
    sys.stdout.write((as_json if options.json else as_text)(outcome, noun) + "\n")
    sys.stdout.flush()


def _write_profile(path: str, outcome: Outcome) -> None:
    """Write the profile, as a picture or as JSON, and print its recommendation."""
    workers = max(outcome.statistics.workers, os.cpu_count() or 1)
    if path.endswith(".svg"):
        assert outcome.profile is not None
        write_whole(path, svg(outcome.profile))
    else:
        write_whole(path, json.dumps(to_json(outcome, workers), indent=2) + "\n")
    sys.stderr.write(f"{advice(outcome)}\n")


def _search(subject: Subject, problem: Problem[Any], options: Options) -> Outcome:
    """Run the search that the options describe."""
    settings = _settings(options)
    count = getattr(options, "k", 1)
    if fold := subject.fold(options):
        if options.order != "depth-first":
            raise UsageError("to count is to visit all nodes: that goes depth-first only")
        return search.enumerate_tree(problem, fold, **settings)
    if problem.target is None:
        return search.k_best(problem, count, **settings)
    if count > 1:
        raise UsageError("--target asks whether there is one solution, --k for several")
    return search.decide(problem, **settings)


def _settings(options: Options) -> search.Options:
    """Return the options of every search, as the API takes them.

    Raises:
        UsageError: an option would have no effect.
    """
    if options.checkpoint_every is not None and options.checkpoint is None:
        raise UsageError("--checkpoint-every goes with --checkpoint FILE")
    settings = search.Options(
        order=options.order,
        coordination=options.coordination,
        workers=options.workers,
        engine=options.engine,
        seed=options.seed,
        depth_limit=options.depth_limit,
        time_limit=options.time_limit,
        node_limit=options.node_limit,
        memory_limit=options.memory_limit,
        progress=options.progress,
        profile=options.profile is not None or options.html is not None,
        check=options.check,
    )
    if options.checkpoint is not None:
        settings["checkpoint"] = options.checkpoint
        settings["checkpoint_every"] = options.checkpoint_every or EVERY
    if options.resume is not None:
        settings["resume"] = options.resume
    return settings
