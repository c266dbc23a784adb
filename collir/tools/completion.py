"""Completion in shells, by argcomplete."""

import argparse
import os
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xdsl.passes import ModulePass
    from xdsl.utils.target import Target

    from collir.passes.pipelines import Known

Completer = Callable[..., list[str]]
"""A function of the word before the cursor, as ``prefix``, that returns its completions."""

_LINE = "COMP_LINE"


def complete(parser: argparse.ArgumentParser, **completers: Completer) -> None:
    """Answer the shell and exit if it asks for completions; do nothing otherwise.

    Args:
        completers: completers of arguments, by their ``dest``.
    """
    if not asked():
        return
    try:
        import argcomplete
    except ImportError:  # the shell may ask although argcomplete is not installed
        raise SystemExit(1) from None
    for action in parser._actions:  # pyright: ignore[reportPrivateUsage]
        if action.dest in completers:
            setattr(action, "completer", completers[action.dest])  # noqa: B010
    argcomplete.autocomplete(parser)


def asked() -> bool:
    """Return whether the shell asks for completions."""
    return "_ARGCOMPLETE" in os.environ


def typed_words() -> list[str]:
    """Return the words of the command line that the shell completes, without the command."""
    return os.environ.get(_LINE, "").split()[1:]


def listed(names: Callable[[], Iterable[str]]) -> Completer:
    """Return a completer that offers names; ``names`` is called when the shell asks."""

    def offered(prefix: str, **_: object) -> list[str]:
        return [name for name in names() if name.startswith(prefix)]

    return offered


def specifications(
    names: Iterable[str], class_of: "Callable[[str], type[ModulePass] | type[Target] | None]"
) -> Completer:
    """Return a completer of lists such as ``canonicalize,decompose{model=p2}``.

    Args:
        names: the passes, pipelines or targets.
        class_of: returns the class of a name, whose fields are its options, or None.
    """

    def offered(prefix: str, **_: object) -> list[str]:
        start = _start_of_last(prefix)
        done, last = prefix[:start], prefix[start:]
        name, brace, options = last.partition("{")
        if not brace:
            return [f"{done}{known}" for known in names if known.startswith(last)]
        chosen = class_of(name) if name in names else None
        if chosen is None or "}" in options:
            return []
        before, space, option = options.rpartition(" ")
        return [
            f"{done}{name}{{{before}{space}{field.name}="
            for field in fields(chosen)
            if field.init and field.name.startswith(option)
        ]

    return offered


def pass_list(known: "Known") -> Completer:
    """Return a completer of lists of passes and pipelines."""
    from collir.passes.pipelines import PIPELINES

    return specifications(
        [*known, *PIPELINES], lambda name: known[name]() if name in known else None
    )


def _start_of_last(text: str) -> int:
    """Return where the last entry of a list begins; commas in braces are of options."""
    start, depth = 0, 0
    for index, character in enumerate(text):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if character == "," and not depth:
            start = index + 1
    return start
