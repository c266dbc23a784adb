"""Events of a trace in the JSON of Chrome, one after the other: files have gigabytes.

Other tools write a list of events into an object of JSON under another name.
"""

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import Any

from collir.importing.traces.loose import mapped
from collir.importing.values import ReadError, TextPlace

_CHUNK = 2**20
"""The bytes that are read at a time."""

_LONGEST = 2**26
"""The most characters of an event, or of another value of the file."""

_SPACE = re.compile(r"[\s,]*")
_DECODER = json.JSONDecoder()


def opened(path: Path) -> BufferedIOBase:
    """Return a file, or what is compressed in it."""
    with path.open("rb") as stream:
        magic = stream.read(2)
    return gzip.open(path) if magic == b"\x1f\x8b" else path.open("rb")


def read_up_to(stream: BufferedIOBase, size: int) -> tuple[bytes, bool]:
    """Return at most so many bytes, and whether the file is damaged behind them."""
    pieces: list[bytes] = []
    try:
        while size > 0 and (piece := stream.read1(size)):
            pieces.append(piece)
            size -= len(piece)
    except (EOFError, OSError, zlib.error):  # a compressed file that is cut off, or damaged
        return b"".join(pieces), True
    return b"".join(pieces), False


class ChromeTrace:
    """The events of a file.

    Args:
        key: the name of the list of events.

    Attributes:
        about: the values of the file beside its events, as far as it was read.
        cut_off: whether the file ends in the middle of its events.
    """

    def __init__(self, stream: BufferedIOBase, key: str = "traceEvents"):
        self.about: dict[str, Any] = {}
        self.cut_off = False
        self._stream = stream
        self._events = key
        self._text = ""
        self._at = 0
        self._line = 1
        self._ended = False
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield each event; what is cut off behind the last whole one is left out.

        Raises:
            ReadError: this is no such trace.
        """
        first = self._next()
        if first == "[":  # events alone
            self._at += 1
            yield from self._array()
            return
        if first != "{":
            raise self._error(f"a trace is an object of JSON, with `{self._events}`")
        self._at += 1
        has_events = False
        while (character := self._next()) and character != "}":
            try:
                key = self._key()
                if key == self._events:
                    has_events = True
                    if self._next() != "[":
                        raise self._error(f"`{key}` is a list")
                    self._at += 1
                    yield from self._array()
                else:
                    self.about[key] = self._value()
            except EOFError:
                if not has_events:
                    raise self._error("the file ends before its events begin") from None
                self.cut_off = True
                return
        if not has_events:
            raise self._error(f"there is no `{self._events}`: this is no such trace")
        self.cut_off |= character != "}"

    def _array(self) -> Iterator[dict[str, Any]]:
        while character := self._next():
            if character == "]":
                self._at += 1
                return
            try:
                value = self._value()
            except EOFError:
                self._at = len(self._text)
                break
            if event := mapped(value):
                yield event
        self.cut_off = True

    def _next(self) -> str:
        """Return the next character that is no space or comma; nothing at the end of the file."""
        while True:
            match = _SPACE.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _key(self) -> str:
        """Return a key, and go behind its colon.

        Raises:
            EOFError: the file ends before.
        """
        if self._text[self._at] != '"':
            raise self._error("a key is expected here")
        key = str(self._value())
        if (character := self._next()) != ":":
            if not character:
                raise EOFError
            raise self._error("a colon is expected here")
        self._at += 1
        self._next()
        return key

    def _value(self) -> Any:
        """Return a value.

        Raises:
            EOFError: the file ends in it.
        """
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                is_open = error.msg.startswith("Unterminated") or error.pos > len(self._text) - 16
                if not is_open:
                    self._at = error.pos
                    raise self._error(f"this is no JSON: {error.msg}") from error
                self._need()
                continue
            except RecursionError:
                raise self._error("values are nested too deep") from None
            except ValueError:
                raise self._error("a number has too many digits") from None
            is_open = end == len(self._text) and isinstance(value, int | float)
            if is_open and self._more():  # of a number, more may follow
                continue
            self._at = end
            return value

    def _need(self) -> None:
        """Read more, of the value that begins here."""
        if len(self._text) - self._at > _LONGEST:
            raise self._error(f"a value is longer than {_LONGEST // 2**20} MB")
        if not self._more():
            raise EOFError

    def _more(self) -> bool:
        """Read more of the file, and forget what was read; return whether there was more."""
        if self._ended:
            return False
        data, is_damaged = read_up_to(self._stream, max(_CHUNK, len(self._text) - self._at))
        self.cut_off |= is_damaged
        self._ended = is_damaged or not data
        self._line += self._text.count("\n", 0, self._at)
        self._text = self._text[self._at :] + self._decode(data, self._ended)
        self._at = 0
        return bool(data)

    def _error(self, message: str) -> ReadError:
        before = self._text[: self._at]
        column = self._at - (before.rfind("\n") + 1) + 1
        return ReadError(message, TextPlace(self._line + before.count("\n"), column))
