"""A parser of flat YAML: ``key: value``, and lists of plain values in brackets or behind dashes."""

import re
from dataclasses import dataclass

from collir.importing.values import ReadError, TextPlace, shown

MAX_ITEMS = 10_000

_TOKEN = re.compile(
    r"(?P<skip>[ \t]+|(?:(?<=\s)|^)\#[^\n]*)|(?P<mark>[\[\],])"
    r"|(?P<quoted>\"[^\"\n\\]*\"|'[^'\n]*')|(?P<word>[^\s\[\],\"'#{}&*!|>%@`][^\s\[\],{}]*)"
)
_KEY = re.compile(r"([A-Za-z_][\w-]*|\"[\w-]+\"|'[\w-]+')[ \t]*:(?=\s|$)", re.ASCII)


@dataclass(frozen=True)
class Item:
    """A plain value and its place."""

    text: str
    place: TextPlace


@dataclass(frozen=True)
class Entry:
    """The place of a key, and its value or values."""

    place: TextPlace
    items: tuple[Item, ...]


def parse(text: str) -> dict[str, Entry]:
    """Return the entries of a flat mapping.

    Raises:
        ReadError: the text is malformed, or uses other parts of YAML.
    """
    return _Parser().parse(text)


class _Parser:
    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.key = ""
        self.items: list[Item] = []
        self.opened: TextPlace | None = None  # the bracket that is open
        self.ended = False  # nothing more may follow for the key
        self.comma = True  # an item may follow

    def parse(self, text: str) -> dict[str, Entry]:
        for number, line in enumerate(text.split("\n"), 1):
            if line.strip() in ("---", "...") and not self.opened:
                continue
            self.line(line, number)
        if self.opened:
            raise ReadError("the list that begins here has no ]", self.opened)
        self.finish()
        return self.entries

    def finish(self) -> None:
        if self.key and not self.items and not self.ended:
            raise ReadError(f"{self.key} has no value", self.entries[self.key].place)
        if self.key:
            self.entries[self.key] = Entry(self.entries[self.key].place, tuple(self.items))

    def line(self, line: str, number: int) -> None:
        at = 0
        if not self.opened:
            if match := _KEY.match(line):
                self.finish()
                self.key, self.items, self.ended = match[1].strip("\"'"), [], False
                if self.key in self.entries:
                    raise ReadError(f"{self.key} is given twice", TextPlace(number))
                self.entries[self.key] = Entry(TextPlace(number), ())
                at = match.end()
            elif match := re.match(r"[ \t]*-[ \t]+", line):
                if not self.key or self.ended:
                    raise ReadError("an item of no list", TextPlace(number, match.end()))
                self.values(line, match.end(), number, dashed=True)
                return
        self.values(line, at, number)

    def values(self, line: str, at: int, number: int, dashed: bool = False) -> None:
        before = len(self.items)
        while at < len(line):
            match = _TOKEN.match(line, at)
            place = TextPlace(number, at + 1)
            if match is None:
                raise ReadError(f"'{shown(line[at])}' is not possible here", place)
            at = match.end()
            if match["skip"]:
                continue
            if not self.key:
                raise ReadError(f"'{shown(match[0])}' is not `key: value`", place)
            if match["mark"]:
                self.mark(match[0], place, dashed or len(self.items) > before)
            else:
                self.item(Item(match[0].strip("\"'"), place), dashed, before)

    def mark(self, mark: str, place: TextPlace, busy: bool) -> None:
        if mark == "[" and not self.opened and not self.ended and not busy:
            self.opened, self.comma = place, True
        elif mark == "]" and self.opened:
            self.opened, self.ended = None, True
        elif mark == "," and self.opened and not self.comma:
            self.comma = True
        else:
            raise ReadError(f"'{mark}' is not possible here", place)

    def item(self, item: Item, dashed: bool, before: int) -> None:
        if self.opened:
            possible = self.comma
            self.comma = False
        else:
            possible = not self.ended and (len(self.items) == before if dashed else not self.items)
        if not possible and self.opened:
            message = f"a comma or ] is missing before '{shown(item.text)}'"
            raise ReadError(message, item.place)
        if len(self.items) >= MAX_ITEMS:
            raise ReadError(f"a list has more than {MAX_ITEMS} items", item.place)
        if not possible:
            raise ReadError(f"'{shown(item.text)}' is not possible here", item.place)
        self.items.append(item)
        self.ended = self.ended or not (self.opened or dashed)
