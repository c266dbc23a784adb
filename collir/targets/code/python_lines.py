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
    for word in ("return ", "del "):
        if statement.startswith(word):
            return _expression(word, statement.removeprefix(word), indent)
    targets, equals, value = statement.partition(" = ")
    is_index = targets.endswith("]") and targets.count("(") == targets.count(")")
    if equals and is_index:
        return _expression(f"{targets}{equals}", value, indent)
    if not equals or not _is_target(targets):
        return _expression("", statement, indent)
    alone = len(_items(targets)) == 1 and targets.startswith("(")
    if "," in targets and indent + len(_head(targets + equals, value)) > WIDTH:
        *first, last = _exploded("(", targets[1:-1] if alone else targets, ")", indent)
        return [*first, *lines_of(f"{last}{equals}{value}", indent)]
    return _expression(f"{targets}{equals}", value, indent)


def call_lines(head: str, arguments: list[str], indent: int) -> list[str]:
    """Return the lines of a call whose arguments have a line each."""
    lines = [f"{head}("]
    for argument in arguments:
        lines += [f"    {line}" for line in _argument(argument, indent + 4)]
        lines[-1] += ","
    return [*lines, ")"]


def _is_target(text: str) -> bool:
    """Return whether a text is variables, some in tuples."""
    return bool(re.fullmatch(r"[\w, ()]+", text)) and not re.search(r"\w\(", text)


def _head(prefix: str, value: str) -> str:
    """Return the first line of a value that is broken at its last bracket."""
    split = _last_bracket(value)
    return prefix + (value if split is None else value[: split[0] + 1])


def _expression(prefix: str, text: str, indent: int, comma: int = 0) -> list[str]:
    """Return the lines of an expression behind a prefix.

    Args:
        comma: the letters that are to follow.
    """
    if indent + len(prefix) + len(text) + comma <= WIDTH:
        return [f"{prefix}{text}"]
    if len(_items(text)) > 1 and not comma:
        return _exploded(f"{prefix}(", text, ")", indent)
    terms = _chain(text) or _terms(text)
    if len(terms) > 1 and not prefix and comma:
        return [line for term in terms for line in _expression("", term, indent, comma)]
    if len(terms) > 1 and prefix:
        terms = [text] if indent + 4 + len(text) <= WIDTH else terms
        parts = (line for term in terms for line in _expression("", term, indent + 4))
        return [f"{prefix}(", *(f"    {line}" for line in parts), ")"]
    split = _last_bracket(text)
    if split is None:
        return [f"{prefix}(", f"    {text}", ")"] if prefix else [text]
    start, end = split
    if prefix and indent + len(prefix) + start + 1 > WIDTH:
        inner = _expression("", text, indent + 4)
        return [f"{prefix}(", *(f"    {line}" for line in inner), ")"]
    return _exploded(f"{prefix}{text[: start + 1]}", text[start + 1 : end], text[end:], indent)


def _exploded(opening: str, inside: str, closing: str, indent: int) -> list[str]:
    """Return the lines of what is between brackets: in one line, or a line for every item."""
    items = _items(inside)
    is_call = re.search(r"[\w)\]].$", opening) is not None
    if indent + 4 + len(inside) <= WIDTH and (is_call or len(items) == 1):
        return [opening, f"    {inside}", closing]
    grouped = opening.endswith("(") and not is_call and not inside.rstrip().endswith(",")
    alone = len(items) == 1 and (_is_comprehension(items[0]) or grouped)
    comma = "" if alone else ","
    lines = [opening]
    for item in items:
        lines += [f"    {line}" for line in _argument(item, indent + 4)]
        lines[-1] += comma
    return [*lines, closing]


def _argument(text: str, indent: int) -> list[str]:
    name, equals, value = text.partition("=")
    if equals and name.isidentifier() and not value.startswith("="):
        return _expression(f"{name}=", value, indent, comma=1)
    return _expression("", text, indent, comma=1)


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
    """Return the terms of a sum, the factors of a product, or the parts of a choice, outside of all
    brackets; each but the first with its operator."""
    choices = [
        place
        for place, letter, depth in _scan(text)
        if depth == 0 and letter in "ie" and re.match(" (if|else) ", text[place - 1 :])
    ]
    if choices:
        starts, ends = [0, *choices], [*choices, len(text)]
        return [text[start:end].strip() for start, end in zip(starts, ends, strict=True)]
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
    bracket: tuple[int, int] | None = None
    opened = -1
    for place, letter, depth in _scan(text):
        if letter in _PAIRS and depth == 0:
            opened = place
        elif letter in _PAIRS.values() and depth == 0:
            inside = text[opened + 1 : place]
            if len(inside) > 2 or bracket is None:
                bracket = (opened, place)
    return bracket
