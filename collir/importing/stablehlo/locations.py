"""The lines of the user's Python that operations come from, as MLIR prints them."""

import re

_ALIAS = re.compile(r"^#(loc\d*) = loc\((.*)\)[ \t]*$", re.MULTILINE)
_LINE = re.compile(r'"((?>[^"\\]|\\.)*)":(\d+):')
_NAMED = re.compile(r'\s*"((?>[^"\\]|\\.)*)"\s*(?:\(|$)')
_OTHER = re.compile(r"#(loc\d*)")
_PACKAGES = ("/site-packages/", "/jax/", "/flax/", "/equinox/", "/optax/")

_MOST_ALIASES = 64
"""The most aliases that one location is followed through."""


class Locations:
    """The locations of a text, by their aliases."""

    def __init__(self, text: str):
        self._aliases = dict(_ALIAS.findall(text)) if "#loc" in text else {}
        self._known: dict[str, tuple[str, str]] = {}

    def of(self, text: str) -> tuple[str, str]:
        """Return the line of the user, as ``file:line``, and the name of a location; both may be
        empty."""
        text = text.strip()
        if (known := self._known.get(text)) is None:
            known = self._known[text] = self._line(text), self._name(text)
        return known

    def _name(self, text: str) -> str:
        for _ in range(_MOST_ALIASES):
            if (named := _NAMED.match(text)) is not None:
                return named[1]
            alias = _OTHER.fullmatch(text)
            if alias is None or alias[1] not in self._aliases:
                return ""
            text = self._aliases[alias[1]]
        return ""

    def _line(self, text: str) -> str:
        """Return the first line that is not of a package; of calls, the innermost comes first."""
        stack, seen, first = [text], set[str](), ""
        while stack and len(seen) < _MOST_ALIASES:
            own = stack.pop()
            if (line := _LINE.search(own)) is not None:
                location = f"{line[1]}:{line[2]}"
                first = first or location
                if not any(part in line[1] for part in _PACKAGES):
                    return location
            others = [name for name in _OTHER.findall(own) if name not in seen]
            seen.update(others)
            stack += [self._aliases[name] for name in reversed(others) if name in self._aliases]
        return first
