"""A reader of JSON that keeps the place of every value, and takes only what is certain.

It does not call itself, so that no depth stops it, and has limits for depth, values and bytes.
"""

import json
import re
from bisect import bisect_right
from typing import Any, cast

from collir.importing.values import ReadError, TextPlace, shown

MOST_BYTES = 2**26
"""The longest text that is read."""

MOST_VALUES = 1_500_000
MOST_DEPTH = 64
_MOST_DIGITS = 25

_TOKEN = re.compile(
    r'[ \t\r\n]*(?:(?P<mark>[{}\[\],:])|(?P<text>"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+")'
    r"|(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)(?![0-9A-Za-z.+-])"
    r"|(?P<word>true|false|null)\b|(?P<end>\Z))"
)
_COMMA, _COLON, _END = ",", ":", "end"
_NAME, _NAME_OR_END, _VALUE, _VALUE_OR_END = "name", "name or end", "value", "value or end"
"""The tokens that may come next, by what came before."""

_WORDS = {"true": True, "false": False, "null": None}


class JsonValue:
    """A value with its place.

    Attributes:
        value: a text, a number, a bool, None, a list of values, or values by their names.
        at: where it begins in the text.
    """

    __slots__ = ("at", "document", "value")

    def __init__(self, value: Any, at: int, document: "JsonDocument"):
        self.value, self.at, self.document = value, at, document

    @property
    def place(self) -> TextPlace:
        """Its line and column."""
        return self.document.place(self.at)

    def __contains__(self, name: str) -> bool:
        return isinstance(self.value, dict) and name in cast("dict[str, JsonValue]", self.value)

    def fault(self, message: str) -> ReadError:
        """Return an error at its place."""
        return ReadError(message, self.place)

    def member(self, name: str) -> "JsonValue":
        """Return a value by its name.

        Raises:
            ReadError: there is none.
        """
        if not isinstance(self.value, dict):
            raise self.fault(f"an object with `{name}` is expected here, not {self.what}")
        values = cast("dict[str, JsonValue]", self.value)
        if name not in values:
            raise self.fault(f"there is no `{name}` here")
        return values[name]

    def members(self) -> "dict[str, JsonValue]":
        """Return all values by their names.

        Raises:
            ReadError: it is no object.
        """
        if not isinstance(self.value, dict):
            raise self.fault(f"an object is expected here, not {self.what}")
        return cast("dict[str, JsonValue]", self.value)

    def items(self, name: str = "", optional: bool = False) -> "list[JsonValue]":
        """Return the values of a list: its own, or of one that it has by a name.

        Raises:
            ReadError: it is no list.
        """
        if optional and name not in self:
            return []
        it = self.member(name) if name else self
        if not isinstance(it.value, list):
            noun = f"`{name}` is a list" if name else "a list is expected here"
            raise it.fault(f"{noun}, not {it.what}")
        return cast("list[JsonValue]", it.value)

    def integer(
        self, name: str = "", low: int = 0, high: int = 2**31 - 1, default: int | None = None
    ) -> int:
        """Return a whole number between bounds.

        Raises:
            ReadError: it is none.
        """
        if default is not None and name not in self:
            return default
        it = self.member(name) if name else self
        if type(it.value) is not int or not low <= it.value <= high:
            noun = f"`{name}`" if name else "this"
            bounds = f"from {low} on" if high == 2**31 - 1 else f"from {low} to {high}"
            raise it.fault(f"{noun} is a number {bounds}, not {it.what}")
        return it.value

    def text(self, name: str, default: str | None = None) -> str:
        """Return a text.

        Raises:
            ReadError: it is none.
        """
        if default is not None and name not in self:
            return default
        it = self.member(name)
        if not isinstance(it.value, str):
            raise it.fault(f"`{name}` is a text, not {it.what}")
        return it.value

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Return a bool.

        Raises:
            ReadError: it is none.
        """
        if default is not None and name not in self:
            return default
        it = self.member(name)
        if not isinstance(it.value, bool):
            raise it.fault(f"`{name}` is true or false, not {it.what}")
        return it.value

    @property
    def what(self) -> str:
        """The value, in words for a message."""
        match self.value:
            case dict():
                return "an object"
            case list():
                return "a list"
            case str():
                return f"'{shown(self.value)}'"
            case None | bool():
                return json.dumps(self.value)
            case _:
                return shown(str(self.value))


class JsonDocument:
    """A text of JSON, and its outermost value.

    Raises:
        ReadError: it is no JSON, or an object has a name twice.
    """

    def __init__(self, data: bytes):
        if len(data) > MOST_BYTES:
            raise ReadError(f"the file is longer than {MOST_BYTES // 2**20} MB", TextPlace(1))
        try:
            self.source = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = 1 + data.count(b"\n", 0, error.start)
            raise ReadError("this is no JSON: the text is not UTF-8", TextPlace(line)) from error
        self.lines: list[int] | None = None
        self.root = self._parsed()

    def place(self, at: int) -> TextPlace:
        """Return the line and the column of a character."""
        if self.lines is None:
            self.lines = [m.end() for m in re.finditer("\n", self.source)]
        line = bisect_right(self.lines, at)
        return TextPlace(line + 1, at - (self.lines[line - 1] if line else 0) + 1)

    def _fault(self, message: str, at: int) -> ReadError:
        return ReadError(f"this is no JSON: {message}", self.place(at))

    def _match(self, at: int) -> re.Match[str]:
        """Return the token at a place, or behind the blanks there."""
        if match := _TOKEN.match(self.source, at):
            return match
        start = (
            at + len(self.source[at : at + 10_000]) - len(self.source[at : at + 10_000].lstrip())
        )
        message = f"'{shown(self.source[start : start + 20])}' is no value"
        raise self._fault(message, start)

    def _text(self, text: str, at: int) -> str:
        if "\\" not in text:
            return text[1:-1]
        try:
            return cast(str, json.loads(text))
        except ValueError as error:
            raise self._fault("this text has an unknown escape", at) from error

    def _scalar(self, kind: str, text: str, at: int) -> Any:
        if kind == "text":
            return self._text(text, at)
        if kind == "word":
            return _WORDS[text]
        if len(text) > _MOST_DIGITS:
            message = f"a number of more than {_MOST_DIGITS} digits is not read"
            raise ReadError(message, self.place(at))
        return int(text) if text.isdigit() or text[1:].isdigit() else float(text)

    def _parsed(self) -> JsonValue:
        """Return the outermost value: read by a stack of the objects and lists that are open."""
        root: JsonValue | None = None
        stack: list[dict[str, JsonValue] | list[JsonValue]] = []
        name, expects, count, at = "", _VALUE, 0, 0
        while True:
            match = self._match(at)
            kind, at = match.lastgroup or "", match.end()
            text, begin = match[kind], match.start(kind)
            inside = stack[-1] if stack else None
            if kind == "end":
                if expects is not _END or root is None:
                    raise self._fault("it ends too early", begin)
                return root
            if expects is _END:
                raise self._fault("something follows the value", begin)
            if kind == "mark" and text in "}]":
                opened = type(inside) is (dict if text == "}" else list)
                if not opened or expects not in (_COMMA, _NAME_OR_END, _VALUE_OR_END):
                    raise self._fault(f"`{text}` closes nothing here", begin)
                _ = stack.pop()
                expects = _COMMA if stack else _END
            elif expects is _COMMA or expects is _COLON:
                if text != expects or kind != "mark":
                    raise self._fault(f"`{expects}` is expected, not '{shown(text)}'", begin)
                expects = _NAME if expects is _COMMA and type(inside) is dict else _VALUE
            elif expects is _NAME or expects is _NAME_OR_END:
                if kind != "text":
                    raise self._fault(f"a name is expected, not '{shown(text)}'", begin)
                name = self._text(text, begin)
                if inside is not None and name in inside:
                    raise ReadError(f"`{shown(name)}` is there twice", self.place(begin))
                expects = _COLON
            else:
                count += 1
                if count > MOST_VALUES:
                    message = f"there are more than {MOST_VALUES:,} values"
                    raise ReadError(message, self.place(begin))
                if kind == "mark" and text not in "{[":
                    raise self._fault(f"a value is expected, not '{text}'", begin)
                made: Any = {} if text == "{" else []
                if kind != "mark":
                    made = self._scalar(kind, text, begin)
                value = JsonValue(made, begin, self)
                if isinstance(inside, dict):
                    inside[name] = value
                elif inside is not None:
                    inside.append(value)
                else:
                    root = value
                expects = _COMMA if stack else _END
                if kind == "mark":
                    if len(stack) == MOST_DEPTH:
                        message = f"values are nested deeper than {MOST_DEPTH}"
                        raise ReadError(message, self.place(begin))
                    stack.append(made)
                    expects = _NAME_OR_END if text == "{" else _VALUE_OR_END
