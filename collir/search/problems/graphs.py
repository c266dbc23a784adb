"""Undirected graphs: as values, from and to files, and the families that have a formula.

Files are those of the DIMACS challenges (ASCII ``.clq`` and ``.col``: Johnson and Trick, *Cliques,
Coloring, and Satisfiability*, 1996) and of LAD (Solnon, *AllDifferent-based filtering for subgraph
isomorphism*, 2010).
"""

import math
import random as python_random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from pathlib import Path
from typing import TypeVar

from collir.search.problem import SearchError
from collir.syntax.diagnostics import Diagnostic, DiagnosticError, Position, note
from collir.syntax.parsing import decode

_Thing = TypeVar("_Thing")

MAX_VERTICES = 1 << 15
"""Vertices of one graph; the adjacency of a dense one then takes 128 MiB."""

MAX_BYTES = 1 << 27
"""Bytes of one file."""


@dataclass(frozen=True)
class Graph:
    """An undirected graph without loops.

    Attributes:
        adjacency: for each vertex 0..n-1 the set of its neighbours: bit w is set if w is one.
        first: the number that vertex 0 has where the graph comes from (1 in DIMACS files).
        name: what to call the graph.
    """

    adjacency: tuple[int, ...]
    first: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        n = len(self.adjacency)
        for v, row in enumerate(self.adjacency):
            if row < 0 or row >> n:
                raise SearchError(f"vertex {v} has a neighbour that is not one of 0..{n - 1}")
            if row >> v & 1:
                raise SearchError(f"vertex {v} is its own neighbour; graphs here have no loops")

    @staticmethod
    def of(n: int, edges: Iterable[tuple[int, int]], first: int = 0, name: str = "") -> "Graph":
        """The graph of ``n`` vertices 0..n-1 and these edges; repeats count once.

        Raises:
            SearchError: too many vertices, an edge outside of them, or a loop.
        """
        _checked_size(n)
        adjacency = [0] * n
        for v, w in edges:
            if not (0 <= v < n and 0 <= w < n):
                raise SearchError(f"the edge ({v}, {w}) leaves the vertices 0..{n - 1}")
            adjacency[v] |= 1 << w
            adjacency[w] |= 1 << v
        return Graph(tuple(adjacency), first, name)

    @property
    def n(self) -> int:
        """How many vertices there are."""
        return len(self.adjacency)

    @cached_property
    def degrees(self) -> tuple[int, ...]:
        """How many neighbours each vertex has."""
        return tuple(row.bit_count() for row in self.adjacency)

    @property
    def size(self) -> int:
        """How many edges there are."""
        return sum(self.degrees) // 2

    def edges(self) -> Iterator[tuple[int, int]]:
        """The edges as (v, w), v > w, in the order of DIMACS files."""
        for v, row in enumerate(self.adjacency):
            yield from ((v, w) for w in bits(row & ((1 << v) - 1)))

    def renumbered(self, order: Sequence[int]) -> tuple[int, ...]:
        """The adjacency with vertex ``order[i]`` as vertex i; ``order`` is a permutation."""
        place = [0] * self.n
        for i, v in enumerate(order):
            place[v] = i
        return tuple(sum(1 << place[w] for w in bits(self.adjacency[v])) for v in order)

    def numbers(self, members: Iterable[int]) -> list[int]:
        """Vertices 0..n-1 by the numbers that they have in the file, in increasing order."""
        return sorted(v + self.first for v in members)


def bits(members: int) -> Iterator[int]:
    """The elements of a set of small integers, in increasing order."""
    while members:
        low = members & -members
        yield low.bit_length() - 1
        members ^= low


def _checked_size(n: int) -> None:
    if not 0 <= n <= MAX_VERTICES:
        raise SearchError(f"a graph has 0 to {MAX_VERTICES} vertices, not {n}")


# Files


def read_dimacs(path: str | Path) -> Graph:
    """Reads an ASCII DIMACS file: ``c`` comments, ``p edge N M``, then ``e V W``, vertices from 1.

    Edges may be repeated or given in both directions, and M may count the lines, or the edges once
    or twice: all of this is found in the collections.

    Raises:
        DiagnosticError: the file cannot be read as one; says where and why.
    """
    return _Dimacs(str(path), _text(path)).graph(Path(path).stem)


def read_lad(path: str | Path) -> Graph:
    """Reads a LAD file: the number of vertices; for each its degree and its neighbours, from 0.

    Raises:
        DiagnosticError: the file cannot be read as one, or an edge is only in one of its two lists
            (a directed graph); says where and why.
    """
    return _Lad(str(path), _text(path)).graph(Path(path).stem)


def write_dimacs(graph: Graph, path: str | Path, comment: str = "") -> None:
    """Writes an ASCII DIMACS file, with a comment of any number of lines.

    Raises:
        DiagnosticError: the file cannot be written.
    """
    lines = [f"c {line}".rstrip() for line in comment.splitlines()]
    lines.append(f"p edge {graph.n} {graph.size}")
    lines += [f"e {v + 1} {w + 1}" for v, w in graph.edges()]
    _write(path, lines)


def write_lad(graph: Graph, path: str | Path) -> None:
    """Writes a LAD file.

    Raises:
        DiagnosticError: the file cannot be written.
    """
    rows = [list(bits(row)) for row in graph.adjacency]
    _write(path, [str(graph.n), *(" ".join(map(str, [len(row), *row])) for row in rows)])


def _write(path: str | Path, lines: list[str]) -> None:
    try:
        Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8", newline="\n")
    except (OSError, ValueError) as error:
        raise DiagnosticError(Diagnostic(f"cannot write {path}: {_reason(error)}")) from None


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) else None
    return (text or str(error)).lower()


def _text(path: str | Path) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise DiagnosticError(Diagnostic(f"cannot read {path}: {_reason(error)}")) from None
    if len(data) > MAX_BYTES:
        message = f"{path} is longer than {MAX_BYTES} bytes; split off what is not the graph"
        raise DiagnosticError(Diagnostic(message))
    try:
        return decode(data, str(path))
    except DiagnosticError as error:
        (found,) = error.diagnostics
        hint = note("a binary DIMACS file (.clq.b) has to be made ASCII first (bin2asc)", None)
        raise DiagnosticError(Diagnostic(found.message, found.position, (hint,))) from None


_TOKEN = re.compile(r"\S+")
_NUMBER = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True)
class _Word:
    """A word of a file and where it stands."""

    text: str
    position: Position

    def fail(self, message: str) -> DiagnosticError:
        return DiagnosticError(Diagnostic(message, self.position))

    @property
    def quoted(self) -> str:
        return f"`{self.text if len(self.text) <= 40 else self.text[:40] + '...'}`"

    def number(self, what: str, low: int, high: int, hint: str) -> int:
        """The word as a number from ``low`` to ``high``."""
        value = int(self.text) if _NUMBER.fullmatch(self.text) else None
        if value is None or not low <= value <= high:
            raise self.fail(f"{what} is {self.quoted}, not a number from {low} to {high}; {hint}")
        return value

    def vertices(self) -> int:
        """The word as the number of vertices of a graph."""
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
        found = _TOKEN.finditer(self.lines[index])
        return [_Word(m.group(), Position(self.file, index + 1, m.start() + 1)) for m in found]

    def end(self) -> _Word:
        """The place behind the last word."""
        last = len(self.lines) - 1
        while last > 0 and not self.lines[last].strip():
            last -= 1
        column = len(self.lines[last].rstrip()) + 1
        return _Word("", Position(self.file, last + 1, column))


class _Dimacs(_File):
    _EDGE = re.compile(r"e +([1-9][0-9]{0,8}) +([1-9][0-9]{0,8})\s*")
    _FORMATS = ("edge", "edges", "col", "clq")

    def graph(self, name: str) -> Graph:
        header: _Word | None = None
        count = said = given = 0
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
                    count, said = self.header(words, header)
                    header = words[0]
                    adjacency = [0] * count
                    continue
                v, w = self.edge(words, header, count)
            given += 1
            adjacency[v] |= 1 << w
            adjacency[w] |= 1 << v
        if header is None:
            raise self.end().fail("there is no line `p edge N M`; write one before the first edge")
        graph = Graph(tuple(adjacency), 1, name)
        if said not in (given, graph.size, 2 * graph.size):
            raise header.fail(
                f"{said} edges are announced, but {given} lines give {graph.size} different ones; "
                f"the file may be cut off: if it is whole, write `p edge {count} {graph.size}`"
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
    def graph(self, name: str) -> Graph:
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
        return Graph(tuple(adjacency), 0, name)

    def next(self, words: Iterator[_Word], what: str) -> _Word:
        word = next(words, None)
        if word is None:
            raise self.end().fail(f"the file ends before {what}; is it cut off?")
        return word

    def check_symmetric(self, adjacency: list[int]) -> None:
        reverse = [0] * len(adjacency)
        for v, row in enumerate(adjacency):
            for w in bits(row):
                reverse[w] |= 1 << v
        for v, row in enumerate(adjacency):
            for w in bits(row & ~reverse[v]):
                raise self.neighbour(v, w).fail(
                    f"vertex {v} has the neighbour {w}, but {w} has no neighbour {v}; "
                    "directed graphs are not read: list the edge at both"
                )

    def neighbour(self, v: int, w: int) -> _Word:
        """Where vertex w stands among the neighbours of v (in a file that has been read)."""
        words = (word for index in range(len(self.lines)) for word in self.words(index))
        next(words)
        for _ in range(v):
            for _ in range(int(next(words).text)):
                next(words)
        next(words)
        return next(word for word in words if int(word.text) == w)


# Families


def hamming(n: int, d: int) -> Graph:
    """Words of ``n`` bits, adjacent if they differ in ``d`` bits or more (DIMACS hammingN-D)."""
    _between("the bits of a word", n, 0, 12)
    steps = [step for step in range(1 << n) if step.bit_count() >= max(d, 1)]
    return _translated(range(1 << n), steps, lambda v, step: v ^ step, f"hamming{n}-{d}")


def johnson(n: int, w: int, d: int) -> Graph:
    """Words of ``n`` bits, ``w`` of them set, adjacent if they differ in ``d`` bits or more."""
    _between("the bits of a word", n, 0, 64)
    _between("the set bits of a word", w, 0, n)
    _checked_size(math.comb(n, w))
    words = sorted(sum(1 << i for i in ones) for ones in combinations(range(n), w))
    return _compared(words, lambda v, u: (v ^ u).bit_count() >= d, f"johnson{n}-{w}-{d}")


def keller(n: int) -> Graph:
    """The graph of Lagarias and Shor on Keller's conjecture in ``n`` dimensions (DIMACS kellerN).

    Of all words of n digits 0..3, two are adjacent if they differ in two places or more, and in one
    of them by 2 modulo 4. The graph has the neighbours of the word 0, in increasing order (as in
    the DIMACS file), so that its cliques are smaller by one than those of all words.
    """
    _between("the dimensions", n, 1, 6)
    digits = (d for d in product(range(4), repeat=n) if 2 in d and sum(map(bool, d)) > 1)
    words = [int("0" + "".join(map(str, d)), 16) for d in digits]  # 4 bits each: sums do not mix
    mask = int("3" * n, 16)
    return _translated(words, words, lambda v, step: (v + step) & mask, f"keller{n}")


def mann(points: int) -> Graph:
    """Covering a Steiner triple system as a clique problem (Mannino and Sassano; DIMACS MANN_a).

    The complement of: a vertex for each point, and a triangle for each triple, its corners adjacent
    to one point of the triple each. The triples are the lines of the affine space of 3^k points (9,
    27, 81: MANN_a9, a27, a81). A clique of points + triples - c vertices is a cover by c points.
    """
    if points not in (3, 9, 27, 81):
        raise SearchError(f"the triples of 3, 9, 27 or 81 points are known here, not of {points}")
    vectors = list(product(range(3), repeat=round(math.log(points, 3))))
    place = {v: i for i, v in enumerate(vectors)}
    triples: list[tuple[int, int, int]] = []
    for a, b in combinations(vectors, 2):
        c = tuple(-(x + y) % 3 for x, y in zip(a, b, strict=True))
        if b < c:
            triples.append((place[a], place[b], place[c]))
    apart: set[tuple[int, int]] = set()
    for index, triple in enumerate(triples):
        corners = [points + 3 * index + i for i in range(3)]
        apart.update(combinations(corners, 2))
        apart.update(zip(triple, corners, strict=True))
    n = points + 3 * len(triples)
    edges = (pair for pair in combinations(range(n), 2) if pair not in apart)
    return Graph.of(n, edges, 1, f"MANN_a{points}")


def c_fat(n: int, c: float) -> Graph:
    """A ring of floor(n / (c ln n)) parts, adjacent within and to the next (DIMACS c-fatN-C).

    Vertex v is in part v modulo their number: sizes differ by one at most (Berman and Pelc;
    Hasselberg, Pardalos and Vairaktarakis). The numbering need not be that of the DIMACS file.
    """
    _between("the vertices", n, 2, MAX_VERTICES)
    if not 0 < c < math.inf:
        raise SearchError(f"the fatness of a ring is a number greater than 0, not {c}")
    parts = max(1, min(n, math.floor(n / (c * math.log(n)))))
    members = [sum(1 << v for v in range(part, n, parts)) for part in range(parts)]
    around = [members[i - 1] | members[i] | members[(i + 1) % parts] for i in range(parts)]
    rows = tuple(around[v % parts] & ~(1 << v) for v in range(n))
    return Graph(rows, 1, f"c-fat{n}-{c}")


def random(n: int, p: float, seed: int) -> Graph:
    """Each pair of ``n`` vertices is an edge with probability ``p``; a seed gives one graph."""
    _checked_size(n)
    if not 0 <= p <= 1:
        raise SearchError(f"a probability is a number from 0 to 1, not {p}")
    generator = python_random.Random(seed)
    edges = ((v, w) for v in range(n) for w in range(v) if generator.random() < p)
    return Graph.of(n, edges, 1, f"random{n}-{p}-{seed}")


def petersen() -> Graph:
    """The graph of Petersen: the pairs of 5 things, adjacent if they have nothing in common."""
    pairs = list(combinations(range(5), 2))
    return _compared(pairs, lambda v, w: not set(v) & set(w), "petersen", 0)


def cycle(n: int) -> Graph:
    """The cycle of ``n`` vertices, 3 or more."""
    _between("the vertices of a cycle", n, 3, MAX_VERTICES)
    return Graph.of(n, ((v, (v + 1) % n) for v in range(n)), name=f"cycle{n}")


def cube(k: int) -> Graph:
    """The corners and edges of the cube of ``k`` dimensions; 2^k vertices."""
    _between("the dimensions of a cube", k, 0, 15)
    edges = ((v, v ^ 1 << i) for v in range(1 << k) for i in range(k))
    return Graph.of(1 << k, edges, name=f"cube{k}")


def _between(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise SearchError(f"{what} are {low} to {high}, not {value}")


def _translated(
    words: Sequence[int], steps: Sequence[int], move: Callable[[int, int], int], name: str
) -> Graph:
    """The graph of ``words``, each adjacent to the words where the steps lead from it."""
    bit = {word: 1 << i for i, word in enumerate(words)}
    rows = tuple(sum(bit.get(move(v, step), 0) for step in steps) for v in words)
    return Graph(rows, 1, name)


def _compared(
    things: Sequence[_Thing], adjacent: Callable[[_Thing, _Thing], bool], name: str, first: int = 1
) -> Graph:
    pairs = combinations(range(len(things)), 2)
    edges = ((v, w) for v, w in pairs if adjacent(things[v], things[w]))
    return Graph.of(len(things), edges, first, name)
