"""Graphs: sizes of the families, round trips through files, and errors of bad files."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collir.ir.diagnostics import DiagnosticError
from collir.problems import graph_files, graphs
from collir.problems.graph_files import read_dimacs, read_lad
from collir.problems.graphs import UndirectedGraph
from collir.search.core.problem import SearchError

nx: Any = importlib.import_module("networkx")  # it has no types
EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "search"

KNOWN = [  # vertices and edges as the DIMACS challenge lists them
    (graphs.hamming(6, 2), 64, 1824),
    (graphs.hamming(6, 4), 64, 704),
    (graphs.hamming(8, 2), 256, 31616),
    (graphs.hamming(8, 4), 256, 20864),
    (graphs.johnson(8, 2, 4), 28, 210),
    (graphs.johnson(8, 4, 4), 70, 1855),
    (graphs.johnson(16, 2, 4), 120, 5460),
    (graphs.keller(4), 171, 9435),
    (graphs.keller(5), 776, 225990),
    (graphs.mann(9), 45, 918),
    (graphs.mann(27), 378, 70551),
    (graphs.c_fat(200, 1), 200, 1534),
    (graphs.c_fat(200, 2), 200, 3235),
    (graphs.c_fat(200, 5), 200, 8473),
    (graphs.c_fat(500, 1), 500, 4459),
    (graphs.c_fat(500, 10), 500, 46627),
    (graphs.petersen(), 10, 15),
    (graphs.cycle(8), 8, 8),
    (graphs.cube(3), 8, 12),
]


@pytest.mark.parametrize(("graph", "n", "size"), KNOWN, ids=lambda x: getattr(x, "name", None))
def test_families_have_the_sizes_of_the_collections(
    graph: UndirectedGraph, n: int, size: int
) -> None:
    assert (graph.n, graph.size) == (n, size)
    assert len(set(graph.edges())) == size
    assert all(graph.adjacency[w] >> v & 1 for v, w in graph.edges())


def test_families_are_numbered_as_in_dimacs() -> None:
    """Smaller neighbours of a vertex, as the files list them."""
    keller, hamming = graphs.keller(4), graphs.hamming(8, 4)
    lower = [w for v, w in keller.edges() if v == 55 - 1]
    assert keller.numbers(lower)[:14] == [1, 2, 3, 4, 5, 8, 12, 16, 20, 24, 25, 26, 27, 30]
    assert hamming.numbers(w for v, w in hamming.edges() if v == 25 - 1) == [4, 6, 7, 8, 16, 24]


def test_small_families_are_those_of_networkx() -> None:
    theirs: list[Any] = [nx.petersen_graph(), nx.cycle_graph(8), nx.hypercube_graph(4)]
    for graph, other in zip(
        (graphs.petersen(), graphs.cycle(8), graphs.cube(4)), theirs, strict=True
    ):
        assert nx.is_isomorphic(nx.Graph(graph.edges()), other)


def test_a_seed_gives_one_graph() -> None:
    assert graphs.random(30, 0.5, 7) == graphs.random(30, 0.5, 7)
    assert graphs.random(30, 0.5, 7) != graphs.random(30, 0.5, 8)
    assert [graphs.random(9, p, 1).size for p in (0, 1)] == [0, 36]


@given(st.integers(0, 12), st.data())
def test_files_there_and_back(
    tmp_path_factory: pytest.TempPathFactory, n: int, data: st.DataObject
):
    vertex = st.integers(0, max(0, n - 1))
    pairs = data.draw(st.lists(st.tuples(vertex, vertex).filter(lambda e: e[0] != e[1])) if n > 1
                      else st.just([]))  # fmt: skip
    graph = UndirectedGraph.of(n, pairs)
    path = tmp_path_factory.mktemp("files") / "graph"
    edges = "".join(f"e {v + 1} {w + 1}\n" for v, w in graph.edges())
    path.write_text(f"c a comment\np edge {graph.n} {graph.size}\n{edges}", encoding="utf-8")
    assert read_dimacs(path) == UndirectedGraph(graph.adjacency, 1, "graph")
    rows = [list(graphs.set_bits(row)) for row in graph.adjacency]
    lines = [str(graph.n), *(" ".join(map(str, [len(row), *row])) for row in rows)]
    path.write_text("\n".join(lines), encoding="utf-8")
    assert read_lad(path) == UndirectedGraph(graph.adjacency, 0, "graph")


def test_examples_are_what_the_families_give() -> None:
    for file, graph in {
        "hamming6-4.clq": graphs.hamming(6, 4),
        "johnson8-4-4.clq": graphs.johnson(8, 4, 4),
        "keller4.clq": graphs.keller(4),
        "c-fat200-1.clq": graphs.c_fat(200, 1),
    }.items():
        assert read_dimacs(EXAMPLES / file).adjacency == graph.adjacency
    for file, graph in {
        "petersen.lad": graphs.petersen(),
        "cycle8.lad": graphs.cycle(8),
        "cube3.lad": graphs.cube(3),
    }.items():
        assert read_lad(EXAMPLES / file).adjacency == graph.adjacency


@pytest.mark.parametrize(
    "text",
    [
        "c hello\np edge 3 2\ne 1 2\ne 2 3\n",
        "c hello\r\np col 3 2\r\ne 1 2\r\ne 2 3\r\n",
        "\ufeffp edge 3 2\n\n  e 2  1 \n\te 3 2",
        "p edge 3 4\ne 1 2\ne 2 1\ne 2 3\ne 3 2\n",  # both directions, M counts lines
        "p edge 3 2\ne 1 2\ne 2 1\ne 2 3\ne 3 2\n",  # both directions, M counts edges
        "p edge 3 4\ne 1 2\ne 2 3\n",  # one direction, M counts both
        "comment\np edge 3 3\ne 1 2\ne 2 3\ne 2 3\n",  # a repeated line
    ],
)
def test_dimacs_files_as_they_are_found(tmp_path: Path, text: str) -> None:
    path = tmp_path / "path.clq"
    path.write_text(text, encoding="utf-8", newline="")
    assert read_dimacs(path) == UndirectedGraph((0b010, 0b101, 0b010), 1, "path")


@pytest.mark.parametrize(
    "text", ["3\n1 1\n2 0 2\n1 1\n", "3 1 1 2 2 0 1 1", "3\r\n1 1\r\n2 0 2\r\n1 1"]
)
def test_lad_files_as_they_are_found(tmp_path: Path, text: str) -> None:
    path = tmp_path / "path.lad"
    path.write_text(text, encoding="utf-8", newline="")
    assert read_lad(path) == UndirectedGraph((0b010, 0b101, 0b010), 0, "path")


BAD_DIMACS: list[tuple[str | bytes, str, str]] = [
    ("", "1:1", "there is no line `p edge N M`; write one before the first edge"),
    ("c only\nc comments\n\n", "2:11", "there is no line `p edge N M`; write one before"),
    ("e 1 2\n", "1:1", "an edge before the line `p edge N M`; write that line first"),
    ("p edge 3\n", "1:1", "a `p` line has 4 words, not 3; write `p edge N M`"),
    ("p cnf 3 2\n", "1:3", "`cnf` is no format of a graph; write `p edge N M` or `p col N M`"),
    ("p edge x 2\n", "1:8", "the number of vertices is `x`, not a number from 0 to 32768"),
    ("p edge -3 2\n", "1:8", "the number of vertices is `-3`, not a number"),
    ("p edge 1_0 2\n", "1:8", "the number of vertices is `1_0`, not a number"),
    ("p edge ٣ 2\n", "1:8", "the number of vertices is `٣`, not a number"),
    ("p edge 1000000000000 2\n", "1:8", "1000000000000 vertices are too many: at most 32768"),
    ("p edge " + "9" * 5000 + " 2\n", "1:8", "the number of vertices is `" + "9" * 40 + "...`"),
    ("p edge 3 -1\n", "1:10", "the number of edges is `-1`, not a number"),
    ("p edge 2 1\np edge 2 1\n", "2:1", "a second line `p`; a file has one graph"),
    ("p edge 2 1\ne 1\n", "2:1", "an `e` line has 3 words, not 2; write `e V W`"),
    ("p edge 2 1\ne 1 2 5\n", "2:1", "an `e` line has 3 words, not 4"),
    (
        "p edge 2 1\ne 1 3\n",
        "2:5",
        "a vertex is `3`, not a number from 1 to 2; vertices count from",
    ),
    ("p edge 2 1\n  e 0 1\n", "2:5", "a vertex is `0`, not a number from 1 to 2"),
    ("p edge 2 1\ne 1 1.5\n", "2:5", "a vertex is `1.5`, not a number"),
    ("p edge 2 1\ne 2 2\n", "2:3", "an edge from vertex 2 to itself; remove this line"),
    ("p edge 0 1\ne 1 2\n", "2:1", "an edge of a graph of 0 vertices; correct the line `p`"),
    ("p edge 2 1\nn 1 7\n", "2:1", "weights of vertices are not read; remove the lines `n`"),
    ("p edge 2 1\n<html>\n", "2:1", "a line starts with c, p or e, not with `<html>`"),
    ("p edge 3 3\ne 1 2\n", "1:1", "3 edges are announced, but 1 lines give 1 different ones"),
    (b"p edge 2 1\ne 1 \xff2\n", "2:5", "the file is not UTF-8 text (byte 0xff)"),
    ("\0\0\0\0", "1:1", "a line starts with c, p or e, not with `"),
]

BAD_LAD: list[tuple[str | bytes, str, str]] = [
    ("", "1:1", "the file ends before the number of vertices; is it cut off?"),
    ("two\n", "1:1", "the number of vertices is `two`, not a number"),
    ("1000000000000\n", "1:1", "1000000000000 vertices are too many"),
    ("2\n1 1\n", "2:4", "the file ends before the degree of vertex 1"),
    ("2\n1 1\n1\n\n", "3:2", "the file ends before a neighbour of vertex 1"),
    ("2\n2 1 0\n", "2:1", "the degree of vertex 0 is `2`, not a number from 0 to 1"),
    ("2\n1 2\n1 0\n", "2:3", "a neighbour of vertex 0 is `2`, not a number from 0 to 1"),
    ("2\n1 0\n1 0\n", "2:3", "vertex 0 is its own neighbour; remove it, and count 1 less"),
    ("2\n1 1\n1 0\n7\n", "4:1", "`7` follows the last vertex, 1; correct the number of vertices"),
    ("0\n7\n", "2:1", "`7` follows the number of vertices"),
    ("3\n1 2\n1 2\n1 1\n", "2:3", "vertex 0 has the neighbour 2, but 2 has no neighbour 0"),
    (b"2\n\xfe\n", "2:1", "the file is not UTF-8 text (byte 0xfe)"),
]


def check(read: object, path: Path, content: str | bytes, place: str, message: str) -> None:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert callable(read)
    with pytest.raises(DiagnosticError) as caught:
        read(path)
    (diagnostic,) = caught.value.diagnostics
    assert str(diagnostic.position) == f"{path}:{place}"
    assert diagnostic.message.startswith(message)
    assert str(caught.value).startswith(f"{path}:{place}: error: ")


@pytest.mark.parametrize(("content", "place", "message"), BAD_DIMACS)
def test_what_is_said_of_a_bad_dimacs_file(
    tmp_path: Path, content: str | bytes, place: str, message: str
) -> None:
    check(read_dimacs, tmp_path / "bad.clq", content, place, message)


@pytest.mark.parametrize(("content", "place", "message"), BAD_LAD)
def test_what_is_said_of_a_bad_lad_file(
    tmp_path: Path, content: str | bytes, place: str, message: str
) -> None:
    check(read_lad, tmp_path / "bad.lad", content, place, message)


def test_notes_say_what_else_counts(tmp_path: Path) -> None:
    path = tmp_path / "two.clq"
    path.write_text("p edge 2 0\np edge 2 0\n")
    with pytest.raises(DiagnosticError, match=r"two.clq:1:1: note: the first one is here"):
        read_dimacs(path)
    path.write_bytes(b"30\nc a preamble\n\x00\xff\xfe")
    with pytest.raises(DiagnosticError, match=r"note: a binary DIMACS file .* \(bin2asc\)"):
        read_dimacs(path)


@pytest.mark.parametrize("read", [read_dimacs, read_lad])
def test_files_that_cannot_be_read(tmp_path: Path, read: object) -> None:
    assert callable(read)
    for path in (tmp_path, tmp_path / "missing", "a\0b"):
        with pytest.raises(DiagnosticError, match=r"cannot read "):
            read(path)


def test_a_file_too_long_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_files, "MAX_BYTES", 1000)
    path = tmp_path / "long.clq"
    path.write_text("p edge 2 1\ne 1 2\n" + "c" * 1000)
    with pytest.raises(DiagnosticError, match=r"long.clq is longer than 1000 bytes; split off"):
        read_dimacs(path)


@given(
    st.one_of(st.binary(max_size=60), st.text("pe clad123 40\n\r\t-", max_size=60).map(str.encode))
)
def test_any_bytes_are_a_graph_or_a_diagnostic(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "file"
    path.write_bytes(content)
    for read in (read_dimacs, read_lad):
        try:
            graph = read(path)
        except DiagnosticError as error:
            assert re.search(r"file:\d+:\d+: error: ", str(error))
        else:
            assert all(graph.adjacency[w] >> v & 1 for v, w in graph.edges())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UndirectedGraph((1,)), "vertex 0 is its own neighbour"),
        (lambda: UndirectedGraph((2,)), "vertex 0 has a neighbour that is not one of 0..0"),
        (lambda: UndirectedGraph.of(2, [(0, 2)]), r"the edge \(0, 2\) leaves the vertices 0..1"),
        (lambda: UndirectedGraph.of(-1, []), "a graph has 0 to 32768 vertices, not -1"),
        (lambda: graphs.hamming(40, 2), "the bits of a word are 0 to 12, not 40"),
        (lambda: graphs.johnson(60, 30, 2), "a graph has 0 to 32768 vertices, not 11826458156"),
        (lambda: graphs.johnson(4, 5, 2), "the set bits of a word are 0 to 4, not 5"),
        (lambda: graphs.keller(0), "the dimensions are 1 to 6, not 0"),
        (lambda: graphs.mann(45), "the triples of 3, 9, 27 or 81 points are known here, not of 45"),
        (lambda: graphs.c_fat(200, 0), "the fatness of a ring is a number greater than 0, not 0"),
        (lambda: graphs.random(5, 1.5, 0), "a probability is a number from 0 to 1, not 1.5"),
        (lambda: graphs.cycle(2), "the vertices of a cycle are 3 to 32768, not 2"),
        (lambda: graphs.cube(-1), "the dimensions of a cube are 0 to 15, not -1"),
    ],
)  # fmt: skip
def test_graphs_that_cannot_be(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(SearchError, match=message):
        make()
