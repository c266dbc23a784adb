"""Long statements of Python over several lines, as formatters break them.

A statement that does not fit in a line is broken at its last bracket that has something to break;
if the rest still does not fit, every item between the brackets gets a line of its own.
"""

import re
from collections.abc import Iterator

WIDTH = 88
"""The letters of a line."""

_PAIRS = {"(": ")", "[": "]", "{": "}"}


def lines_of(statement: str, indent: int) -> list[str]:
    """Return the lines of a statement that is indented by a number of letters."""
    if indent + len(statement) <= WIDTH:
        return [statement]
    if statement.startswith("return "):
        return _expression("return ", statement.removeprefix("return "), indent)
    targets, equals, value = statement.partition(" = ")
    if not equals or not _is_target(targets):
        return _expression("", statement, indent)
    alone = len(_items(targets)) == 1 and targets.startswith("(")
    if "," in targets and indent + len(_head(targets + equals, value)) > WIDTH:
        *first, last = _exploded("(", targets[1:-1] if alone else targets, ")", indent)
        return [*first, *lines_of(f"{last}{equals}{value}", indent)]
    return _expression(f"{targets}{equals}", value, indent)


def call_lines(head: str, arguments: list[str], indent: int) -> list[str]:
    """Return the lines of a call or a tuple whose arguments each have a line of their own.

    Args:
        arguments: the arguments, some with a comment behind ``  #``.
    """
    lines = [f"{head}("]
    for argument in arguments:
        text, mark, comment = argument.partition("  #")
        *first, last = _expression("", text, indent + 4)
        lines += [*(f"    {line}" for line in first), f"    {last},{mark}{comment}"]
    return [*lines, ")"]


def _is_target(text: str) -> bool:
    """Return whether a text is variables, some in tuples."""
    return bool(re.fullmatch(r"[\w, ()]+", text)) and not re.search(r"\w\(", text)


def _head(prefix: str, value: str) -> str:
    """Return the first line of a value that is broken at its last bracket."""
    split = _last_bracket(value)
    return prefix + (value if split is None else value[: split[0] + 1])


def _expression(prefix: str, text: str, indent: int) -> list[str]:
    """Return the lines of an expression behind a prefix."""
    if indent + len(prefix) + len(text) <= WIDTH:
        return [f"{prefix}{text}"]
    if len(_items(text)) > 1:
        return _exploded(f"{prefix}(", text, ")", indent)
    terms = _chain(text) or _terms(text)
    if len(terms) > 1 and prefix:
        return [f"{prefix}(", *(f"    {term}" for term in terms), ")"]
    split = _last_bracket(text)
    if split is None:
        return [f"{prefix}(", f"    {text}", ")"] if prefix else [text]
    start, end = split
    return _exploded(f"{prefix}{text[: start + 1]}", text[start + 1 : end], text[end:], indent)


def _exploded(opening: str, inside: str, closing: str, indent: int) -> list[str]:
    """Return the lines of what is between brackets: in one line, or a line for every item."""
    items = _items(inside)
    if indent + 4 + len(inside) <= WIDTH and not opening.endswith("= (") and opening != "(":
        return [opening, f"    {inside}", closing]
    comma = "" if len(items) == 1 and _is_comprehension(items[0]) else ","
    lines = [opening]
    for item in items:
        name, equals, value = item.partition("=")
        keyword = equals and name.isidentifier() and not value.startswith("=")
        parts = _expression(f"{name}=" if keyword else "", value if keyword else item, indent + 4)
        lines += [f"    {line}" for line in parts]
        lines[-1] += comma
    return [*lines, closing]


def _is_comprehension(text: str) -> bool:
    return " for " in text


def _scan(text: str) -> Iterator[tuple[int, str, int]]:
    """Yield the places, letters and depths of all letters outside of strings."""
    depth, quoted = 0, False
    for place, letter in enumerate(text):
        if letter == '"':
            quoted = not quoted
        if quoted:
            continue
        if letter in ")]}":
            depth -= 1
        yield place, letter, depth
        if letter in _PAIRS:
            depth += 1


def _items(text: str) -> list[str]:
    """Return what commas outside of all brackets divide."""
    cuts = [place for place, letter, depth in _scan(text) if letter == "," and depth == 0]
    ends = [*cuts, len(text)]
    starts = [0, *(cut + 1 for cut in cuts)]
    items = [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    return [item for item in items if item]


def _terms(text: str) -> list[str]:
    """Return the terms of a sum, or the factors of a product, outside of all brackets; each but
    the first with its operator."""
    for operators in ("+-", "*/"):
        cuts = [
            place
            for place, letter, depth in _scan(text)
            if depth == 0 and letter in operators and text[place - 1 : place + 2] == f" {letter} "
        ]
        if cuts:
            starts, ends = [0, *cuts], [*cuts, len(text)]
            return [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]
    return [text]


def _chain(text: str) -> list[str]:
    """Return the links of a chain of two or more attributes of what calls give; else none."""
    cuts = [
        place
        for place, letter, depth in _scan(text)
        if letter == "." and depth == 0 and place and text[place - 1] in ")]"
    ]
    if len(cuts) < 2:
        return []
    starts, ends = [0, *cuts], [*cuts, len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def _last_bracket(text: str) -> tuple[int, int] | None:
    """Return the places of the last brackets outside of others that have more than a number
    between them."""
    found: tuple[int, int] | None = None
    opened = -1
    for place, letter, depth in _scan(text):
        if letter in _PAIRS and depth == 0:
            opened = place
        elif letter in _PAIRS.values() and depth == 0:
            inside = text[opened + 1 : place]
            if len(inside) > 2 or found is None:
                found = (opened, place)
    return found
