"""Reading undirected graphs.

The files are those of the DIMACS challenges (ASCII ``.clq`` and ``.col``: Johnson and Trick,
*Cliques, Coloring, and Satisfiability*, 1996) and of LAD (Solnon, *AllDifferent-based filtering for
subgraph isomorphism*, 2010).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from collir.ir.diagnostics import Diagnostic, DiagnosticError, Position, note
from collir.problems.graphs import MAX_VERTICES, UndirectedGraph, set_bits
from collir.problems.text import read_limited
from collir.syntax.encoding import decode

MAX_BYTES = 1 << 27
"""The maximum number of bytes of a file."""


def read_dimacs(path: str | Path) -> UndirectedGraph:
    """Read an ASCII DIMACS file: ``c`` comments, ``p edge N M``, then ``e V W``, vertices from 1.

    Edges may be repeated or given in both directions, and M may count the lines, or the edges once
    or twice, since the public collections contain all of these.

    Raises:
        DiagnosticError: the file cannot be read as one; says where and why.
    """
    return _Dimacs(str(path), _text(path)).graph(Path(path).stem)


def read_lad(path: str | Path) -> UndirectedGraph:
    """Read a LAD file: the number of vertices; for each its degree and its neighbours, from 0.

    Raises:
        DiagnosticError: the file cannot be read as one, or an edge is only in one of its two lists
            (a directed graph); says where and why.
    """
    return _Lad(str(path), _text(path)).graph(Path(path).stem)


def _text(path: str | Path) -> str:
    too_long = f"{path} is longer than {MAX_BYTES} bytes; split off what is not the graph"
    data = read_limited(Path(path), MAX_BYTES, too_long)
    try:
        return decode(data, str(path))
    except DiagnosticError as error:
        (wrong,) = error.diagnostics
        hint = note("a binary DIMACS file (.clq.b) has to be made ASCII first (bin2asc)", None)
        raise DiagnosticError(Diagnostic(wrong.message, wrong.position, (hint,))) from None


_TOKEN = re.compile(r"\S+")
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class _Word:
    """A word of a file and its position."""

    text: str
    position: Position

    def fail(self, message: str) -> DiagnosticError:
        return DiagnosticError(Diagnostic(message, self.position))

    @property
    def quoted(self) -> str:
        return f"`{self.text if len(self.text) <= 40 else self.text[:40] + '...'}`"

    def number(self, what: str, low: int, high: int, hint: str) -> int:
        """Return the word as a number from ``low`` to ``high``."""
        value = int(self.text) if _NUMBER.fullmatch(self.text) else None
        if value is None or not low <= value <= high:
            raise self.fail(f"{what} is {self.quoted}, not a number from {low} to {high}; {hint}")
        return value

    def vertices(self) -> int:
        """Return the word as the number of vertices of a graph."""
        if _NUMBER.fullmatch(self.text) and int(self.text) > MAX_VERTICES:
            raise self.fail(
                f"{self.text} vertices are too many: at most {MAX_VERTICES} are searched; "
                "split the graph, or remove vertices of too small a degree"
            )
        return self.number("the number of vertices", 0, MAX_VERTICES, "write the number of them")


class _File:
    """The words of a file."""

    def __init__(self, file: str, text: str):
        self.file = file
        self.lines = text.split("\n")

    def words(self, index: int) -> list[_Word]:
        matches = _TOKEN.finditer(self.lines[index])
        return [_Word(m.group(), Position(self.file, index + 1, m.start() + 1)) for m in matches]

    def end(self) -> _Word:
        """Return an empty word at the position behind the last word."""
        last = len(self.lines) - 1
        while last > 0 and not self.lines[last].strip():
            last -= 1
        column = len(self.lines[last].rstrip()) + 1
        return _Word("", Position(self.file, last + 1, column))


class _Dimacs(_File):
    _EDGE = re.compile(r"e +([1-9][0-9]{0,8}) +([1-9][0-9]{0,8})\s*")
    _FORMATS = ("edge", "edges", "col", "clq")

    def graph(self, name: str) -> UndirectedGraph:
        header: _Word | None = None
        count = announced = lines = 0
        adjacency: list[int] = []
        for index, line in enumerate(self.lines):
            match = self._EDGE.fullmatch(line)
            if match and header and match[1] != match[2]:
                v, w = int(match[1]) - 1, int(match[2]) - 1
                if v >= count or w >= count:
                    v, w = self.edge(self.words(index), header, count)
            else:
                words = self.words(index)
                if not words or words[0].text.startswith("c"):
                    continue
                if words[0].text == "p":
                    count, announced = self.header(words, header)
                    header = words[0]
                    adjacency = [0] * count
                    continue
                v, w = self.edge(words, header, count)
            lines += 1
            adjacency[v] |= 1 << w
            adjacency[w] |= 1 << v
        if header is None:
            raise self.end().fail("there is no line `p edge N M`; write one before the first edge")
        graph = UndirectedGraph(tuple(adjacency), 1, name)
        if announced not in (lines, graph.size, 2 * graph.size):
            raise header.fail(
                f"{announced} edges are announced, but {lines} lines give {graph.size} different "
                "ones; the file may be cut off: if it is whole, "
                f"write `p edge {count} {graph.size}`"
            )
        return graph

    def header(self, words: list[_Word], earlier: _Word | None) -> tuple[int, int]:
        if earlier is not None:
            first = note("the first one is here", earlier.position)
            message = "a second line `p`; a file has one graph: remove this line, or split the file"
            raise DiagnosticError(Diagnostic(message, words[0].position, (first,)))
        if len(words) != 4:
            raise words[0].fail(
                f"a `p` line has 4 words, not {len(words)}; write `p edge N M` "
                "with the numbers of vertices and edges"
            )
        if words[1].text not in self._FORMATS:
            raise words[1].fail(
                f"{words[1].quoted} is no format of a graph; write `p edge N M` or `p col N M`"
            )
        hint = "write the number of them"
        return words[2].vertices(), words[3].number("the number of edges", 0, 10**12, hint)

    def edge(self, words: list[_Word], header: _Word | None, count: int) -> tuple[int, int]:
        kind = words[0]
        if kind.text == "n":
            raise kind.fail("weights of vertices are not read; remove the lines `n`")
        if kind.text != "e":
            raise kind.fail(
                f"a line starts with c, p or e, not with {kind.quoted}; "
                "put `c ` before a comment, and remove what is not the graph"
            )
        if header is None:
            raise kind.fail("an edge before the line `p edge N M`; write that line first")
        if len(words) != 3:
            raise kind.fail(f"an `e` line has 3 words, not {len(words)}; write `e V W`")
        hint = "vertices count from 1 to the number in the line `p`"
        if count == 0:
            raise kind.fail("an edge of a graph of 0 vertices; correct the line `p`")
        v, w = (word.number("a vertex", 1, count, hint) for word in words[1:])
        if v == w:
            raise words[1].fail(f"an edge from vertex {v} to itself; remove this line")
        return v - 1, w - 1


class _Lad(_File):
    def graph(self, name: str) -> UndirectedGraph:
        words = (word for index in range(len(self.lines)) for word in self.words(index))
        count = self.next(words, "the number of vertices").vertices()
        hint = "vertices count from 0"
        adjacency = [0] * count
        for v in range(count):
            word = self.next(words, f"the degree of vertex {v}")
            degree = word.number(
                f"the degree of vertex {v}",
                0,
                count - 1,
                "without loops it is less than their number",
            )
            for _ in range(degree):
                word = self.next(words, f"a neighbour of vertex {v}")
                w = word.number(f"a neighbour of vertex {v}", 0, count - 1, hint)
                if v == w:
                    raise word.fail(
                        f"vertex {v} is its own neighbour; remove it, and count 1 less before"
                    )
                adjacency[v] |= 1 << w
        if extra := next(words, None):
            last = f"last vertex, {count - 1}" if count else "number of vertices"
            raise extra.fail(
                f"{extra.quoted} follows the {last}; correct the number of vertices or a degree, "
                "or remove this"
            )
        self.check_symmetric(adjacency)
        return UndirectedGraph(tuple(adjacency), 0, name)

    def next(self, words: Iterator[_Word], what: str) -> _Word:
        word = next(words, None)
        if word is None:
            raise self.end().fail(f"the file ends before {what}; is it cut off?")
        return word

    def check_symmetric(self, adjacency: list[int]) -> None:
        reverse = [0] * len(adjacency)
        for v, row in enumerate(adjacency):
            for w in set_bits(row):
                reverse[w] |= 1 << v
        for v, row in enumerate(adjacency):
            for w in set_bits(row & ~reverse[v]):
                raise self.neighbour(v, w).fail(
                    f"vertex {v} has the neighbour {w}, but {w} has no neighbour {v}; "
                    "directed graphs are not read: list the edge at both"
                )

    def neighbour(self, v: int, w: int) -> _Word:
        """Return the word of vertex w among the neighbours of v, in a file that has been read."""
        words = (word for index in range(len(self.lines)) for word in self.words(index))
        next(words)
        for _ in range(v):
            for _ in range(int(next(words).text)):
                next(words)
        next(words)
        return next(word for word in words if int(word.text) == w)
