"""Problems of users for ``collir search``: a class of a file or a module, behind a colon.

collir search coins.py:Coins 63 '[1, 5, 10]'
"""

import argparse
import ast
import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.search.core.goals import Nodes, Solutions
from collir.search.core.problem import Problem
from collir.tools.search_subjects import Parser, Subject, at_least_one
from collir.tools.shell import UsageError


def own_subject(name: str) -> Subject:
    """Return the subject of a class that is named as ``FILE.py:CLASS`` or ``MODULE:CLASS``."""
    folds = {"solutions": Solutions, "nodes": Nodes}
    return Subject(
        f"the problem {name}",
        _configure,
        lambda options: _problem(name, options),
        lambda options: folds[options.count]() if options.count else None,
    )


def _configure(parser: Parser) -> None:
    parser.add_argument(
        "arguments",
        nargs="*",
        metavar="ARGUMENT",
        help="an argument of the class: a number, list or the like of Python, or else text; "
        "NAME=VALUE for one by name",
    )
    parser.add_argument("--k", type=at_least_one, default=1, help="the k best solutions")
    parser.add_argument(
        "--target", type=float, help="whether a solution is as good as this, or better"
    )
    parser.add_argument(
        "--count", choices=("solutions", "nodes"), help="count all of them, without bounds"
    )


def _problem(name: str, options: argparse.Namespace) -> Problem[Any]:
    """Return the problem that a class makes of the arguments.

    Raises:
        DiagnosticError: the class cannot be imported, is no problem, or does not take them.
    """
    place, _, class_name = name.rpartition(":")
    kind = getattr(_module(place), class_name, None)
    if not (isinstance(kind, type) and issubclass(kind, Problem)):
        what = f"{name} is no subclass of collir.search.Problem"
        message = f"{place} has no class {class_name}" if kind is None else what
        raise DiagnosticError(Diagnostic(message))
    given = [text.partition("=") for text in options.arguments]
    named = {key: _value(text) for key, equals, text in given if equals and key.isidentifier()}
    plain = [
        _value("".join(parts)) for parts in given if not (parts[1] and parts[0].isidentifier())
    ]
    try:
        problem = cast(type[Problem[Any]], kind)(*plain, **named)
    except Exception as error:  # the class of a user may raise anything
        raise DiagnosticError(Diagnostic(f"{name}: {type(error).__name__}: {error}")) from error
    if options.target is not None:
        problem.target = options.target
    return problem


def _value(text: str) -> object:
    """Return the value of a literal of Python; a text that is none stands for itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _module(place: str) -> ModuleType:
    """Return the module of a file or of a name; other processes import it by its name."""
    path = Path(place)
    of_file = path.suffix == ".py"
    if of_file and not path.is_file():
        raise DiagnosticError(Diagnostic(f"cannot read {place}: no such file"))
    if not of_file and not all(part.isidentifier() for part in place.split(".")):
        raise UsageError(f"'{place}' is no module: write FILE.py:CLASS or MODULE:CLASS")
    folder, name = (str(path.parent.resolve()), path.stem) if of_file else (str(Path.cwd()), place)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(name)
    except Exception as error:  # the module of a user may raise anything
        message = f"{place} cannot be imported: {type(error).__name__}: {error}"
        raise DiagnosticError(Diagnostic(message)) from error
    if of_file and Path(module.__file__ or "").resolve() != path.resolve():
        message = f"there is another module {name}, of Python or a package: rename {place}"
        raise DiagnosticError(Diagnostic(message))
    return module
