"""XML as a tree of elements with their places; entities are refused, sizes are bounded."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

from collir.importing.values import ReadError, TextPlace, shown

MAX_DEPTH = 64
MAX_ELEMENTS = 300_000


@dataclass
class Element:
    """An XML element: its tag, its attributes, its place, its parent, its children and the text
    directly inside."""

    tag: str
    attributes: dict[str, str]
    place: TextPlace
    parent: "Element | None" = None
    children: list["Element"] = field(default_factory=list["Element"])
    words: list[str] = field(default_factory=list[str])

    def get(self, name: str) -> str:
        """Return an attribute, or an empty text."""
        return self.attributes.get(name, "")

    @property
    def text(self) -> str:
        """The text directly inside."""
        return "".join(self.words)

    def inside(self, tag: str) -> Iterator["Element"]:
        """Yield the elements of a tag below this element, in the order of the text."""
        stack = self.children[::-1]
        while stack:
            element = stack.pop()
            if element.tag == tag:
                yield element
            stack += element.children[::-1]

    def ancestors(self) -> Iterator["Element"]:
        """Yield the elements around this element, innermost first."""
        above = self.parent
        while above:
            yield above
            above = above.parent


def parse(text: str) -> Element:
    """Return the root element of a text.

    Raises:
        ReadError: the text is not XML, declares an entity, or is too large or too deep.
    """
    return _Parser().parse(text)


class _Parser:
    def __init__(self) -> None:
        self.expat = expat.ParserCreate()
        self.expat.StartElementHandler = self.start
        self.expat.EndElementHandler = self.end
        self.expat.CharacterDataHandler = self.data
        self.expat.EntityDeclHandler = self.entity
        self.root: Element | None = None
        self.open: list[Element] = []
        self.count = 0

    def place(self) -> TextPlace:
        return TextPlace(self.expat.CurrentLineNumber, self.expat.CurrentColumnNumber + 1)

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.count += 1
        if len(self.open) >= MAX_DEPTH:
            raise ReadError(f"elements are nested more than {MAX_DEPTH} deep", self.place())
        if self.count > MAX_ELEMENTS:
            raise ReadError(f"there are more than {MAX_ELEMENTS} elements", self.place())
        parent = self.open[-1] if self.open else None
        element = Element(tag, attributes, self.place(), parent)
        if parent:
            parent.children.append(element)
        else:
            self.root = element
        self.open.append(element)

    def end(self, _tag: str) -> None:
        self.open.pop()

    def data(self, text: str) -> None:
        self.open[-1].words.append(text)

    def entity(self, name: str, *_rest: object) -> None:
        raise ReadError(f"entity '{shown(name)}' is declared: entities are not read", self.place())

    def parse(self, text: str) -> Element:
        try:
            self.expat.Parse(text, True)
        except expat.ExpatError as error:
            reason = expat.ErrorString(error.code) or "not well-formed"
            hint = f": <{shown(self.open[-1].tag)}> is open" if self.open else ""
            place = TextPlace(max(error.lineno, 1), error.offset + 1)
            raise ReadError(f"this is not XML: {reason}{hint}", place) from None
        assert self.root is not None
        return self.root
