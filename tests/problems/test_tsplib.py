"""TSPLIB files: the distance formulas, all matrix formats, and wrong files."""

from itertools import combinations, pairwise, permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.search.plain_search import plain_optimise

from collir.ir.diagnostics import DiagnosticError
from collir.problems.tsp import TSP
from collir.problems.tsplib import FORMATS, METRICS, parse_tsp, read_tsp

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "search"


def test_burma14() -> None:
    problem = read_tsp(EXAMPLES / "burma14.tsp")
    outcome = plain_optimise(problem)
    assert outcome.value == 3323
    # The optimal tour that TSPLIB publishes, in either direction.
    around = [1, 2, 14, 3, 4, 5, 6, 12, 7, 13, 8, 11, 9, 10]
    assert problem.show(outcome.node)["tour"] in (around, [1, *around[:0:-1]])
    assert [problem.matrix[0][i] for i in range(1, 5)] == [153, 510, 706, 966]


def test_the_asymmetric_example() -> None:
    problem = read_tsp(EXAMPLES / "one_way.atsp")
    shortest = min(
        sum(problem.matrix[i][j] for i, j in pairwise((0, *order, 0)))
        for order in permutations(range(1, problem.n))
    )
    assert plain_optimise(problem).value == shortest == 36


def points(metric: str, *coordinates: tuple[float, float]) -> list[list[int]]:
    text = f"TYPE: TSP\nDIMENSION: {len(coordinates)}\nEDGE_WEIGHT_TYPE: {metric}\n"
    lines = [f"{i} {x} {y}\n" for i, (x, y) in enumerate(coordinates, start=1)]
    return parse_tsp(text + "NODE_COORD_SECTION\n" + "".join(lines)).matrix


@pytest.mark.parametrize(
    ("metric", "distance"),
    [
        ("EUC_2D", 4),  # sqrt(12.5) = 3.54
        ("CEIL_2D", 4),
        ("MAN_2D", 5),
        ("MAX_2D", 3),  # 2.5 rounded half up
        ("ATT", 2),  # sqrt(1.25) = 1.12, rounded 1, which is less
    ],
)
def test_distances(metric: str, distance: int) -> None:
    assert points(metric, (1, 1), (3.5, -1.5)) == [[0, distance], [distance, 0]]


def test_geographical_distances() -> None:
    quarter = points("GEO", (0, 0), (0, 90), (90.0, 12.0), (-45.0, 0.0))
    assert quarter[0][1:3] == [10020, 10020]
    assert quarter[0][3] == 5010
    # 30 minutes are half a degree.
    assert points("GEO", (0, 0), (0, 0.3))[0][1] == 56


def test_a_point_has_no_distance_to_itself_but_on_earth() -> None:
    for metric in METRICS:
        assert points(metric, (3, 4), (3, 4))[0][1] == (1 if metric == "GEO" else 0)


FORMS = {
    "FULL_MATRIX": "0 1 2\n1 0 3\n2 3 0",
    "UPPER_ROW": "1 2\n3",
    "LOWER_ROW": "1\n2 3",
    "UPPER_DIAG_ROW": "0 1 2 0 3 0",
    "LOWER_DIAG_ROW": "0\n1 0\n2 3 0",
    "UPPER_COL": "1 2 3",
    "LOWER_COL": "1 2 3",
    "UPPER_DIAG_COL": "0 1 0 2 3 0",
    "LOWER_DIAG_COL": "0 1 2 0 3 0",
}


def explicit(form: str, numbers: str, kind: str = "TSP", dimension: int = 3) -> TSP:
    return parse_tsp(
        f"NAME : small\nTYPE : {kind}\nDIMENSION :{dimension}\nEDGE_WEIGHT_TYPE:EXPLICIT\n"
        f"EDGE_WEIGHT_FORMAT : {form}\nEDGE_WEIGHT_SECTION\n{numbers}\n"
        "EOF\nwhat follows does not matter",
        "f",
    )


@pytest.mark.parametrize("form", FORMATS)
def test_forms_of_a_matrix(form: str) -> None:
    problem = explicit(form, FORMS[form])
    assert problem.matrix == [[0, 1, 2], [1, 0, 3], [2, 3, 0]]
    assert problem.names == (1, 2, 3)


def test_an_asymmetric_instance() -> None:
    problem = explicit("FULL_MATRIX", "99 1 9 9 99 1 1 9 99", "ATSP")
    assert not problem.symmetric
    assert plain_optimise(problem).value == 3


def test_numbers_run_over_lines() -> None:
    assert explicit("UPPER_ROW", " 1\n\n2 3 ").matrix == explicit("UPPER_ROW", "1 2 3").matrix


def test_a_section_after_another() -> None:
    text = (
        "TYPE: TSP (by hand)\nDIMENSION: 2\nEDGE_WEIGHT_TYPE: EXPLICIT\n"
        "EDGE_WEIGHT_FORMAT: UPPER_ROW\nDISPLAY_DATA_TYPE: TWOD_DISPLAY\n"
        "EDGE_WEIGHT_SECTION\n7\nDISPLAY_DATA_SECTION\n1 0.5 0\n2 1e1 -.5\n"
    )
    assert parse_tsp(text).matrix == [[0, 7], [7, 0]]


HEAD = "TYPE: TSP\nDIMENSION: 2\nEDGE_WEIGHT_TYPE: EUC_2D\n"
FULL = "TYPE: TSP\nDIMENSION: 2\nEDGE_WEIGHT_TYPE: EXPLICIT\nEDGE_WEIGHT_FORMAT: FULL_MATRIX\n"
WRONG = [
    ("", "f:1:1: error: there is nothing here"),
    ("hello world", "f:1:1: error: 'hello' is nothing that is read of an instance; there is NAME"),
    (
        "DIMENSON: 3",
        "f:1:1: error: 'DIMENSON' is nothing that is read of an instance; did you mean",
    ),
    ("TYPE: TSP\nTYPE: TSP", "f:2:1: error: TYPE is given a second time; the first is in line 1"),
    ("TYPE: CVRP", "f:1:7: error: TYPE 'CVRP' is not supported; there is TSP, ATSP"),
    ("TYPE:\nDIMENSION: 1", "f:1:1: error: TYPE says nothing"),
    (
        HEAD + "EDGE_WEIGHT_FORMAT: SPARSE",
        "f:4:21: error: EDGE_WEIGHT_FORMAT 'SPARSE' is not supported; there is FUNCTION, FULL_M",
    ),
    ("NAME: x", "f:1:1: error: the file has no TYPE"),
    ("TYPE: TSP", "f:1:1: error: the file has no DIMENSION"),
    ("TYPE: TSP\nDIMENSION: 3", "f:2:1: error: the file has no EDGE_WEIGHT_TYPE"),
    ("TYPE: TSP\nDIMENSION: 0", "f:2:12: error: DIMENSION must be at least 1, not 0"),
    ("TYPE: TSP\nDIMENSION: 1001", "f:2:12: error: DIMENSION must be at most 1000, not 1001"),
    ("TYPE: TSP\nDIMENSION:-3", "f:2:11: error: DIMENSION must be at least 1, not -3"),
    ("TYPE: TSP\nDIMENSION: many", "f:2:12: error: DIMENSION must be a whole number, not 'many'"),
    (
        "TYPE: TSP\nDIMENSION: 3\nEDGE_WEIGHT_TYPE: EUC_3D",
        "f:3:19: error: EDGE_WEIGHT_TYPE 'EUC_3D' is not supported; there is EXPLICIT, EUC_2D",
    ),
    (HEAD, "f:3:1: error: the file has no NODE_COORD_SECTION"),
    (FULL, "f:4:1: error: the file has no EDGE_WEIGHT_SECTION"),
    ("NODE_COORD_SECTION\n1 1 1", "f:1:1: error: the file has no DIMENSION"),
    (HEAD + "NODE_COORD_SECTION 1 1", "f:4:20: error: NODE_COORD_SECTION begins on a line of its"),
    (HEAD + "NODE_COORD_SECTION\n1 1 1\n", "f:4:1: error: NODE_COORD_SECTION has 1 lines, not one"),
    (HEAD + "NODE_COORD_SECTION\n1 1 1\nEOF", "f:6:1: error: NODE_COORD_SECTION has 1 lines"),
    (HEAD + "NODE_COORD_SECTION\n1 1\n", "f:5:1: error: a city is a number and two coordinates"),
    (HEAD + "NODE_COORD_SECTION\n1 1 1\n1 2 2", "f:6:1: error: there is a city 1 already"),
    (HEAD + "NODE_COORD_SECTION\n1 1 nan", "f:5:5: error: a coordinate must be a number, not 'nan"),
    (HEAD + "NODE_COORD_SECTION\n1 1 1e999", "f:5:5: error: a coordinate must be from -1e+09 to"),
    (HEAD + "NODE_COORD_SECTION\n1 1 1\n2 2 2\n3 3 3", "f:7:1: error: '3' is nothing that is read"),
    (HEAD + "EDGE_WEIGHT_SECTION\n1", "f:4:1: error: the file has no EDGE_WEIGHT_FORMAT"),
    (
        FULL + "EDGE_WEIGHT_SECTION\n0 1 1",
        "f:5:1: error: EDGE_WEIGHT_SECTION has 3 distances; FULL",
    ),
    (FULL + "EDGE_WEIGHT_SECTION\n0 1\nEOF", "f:7:1: error: EDGE_WEIGHT_SECTION has 2 distances"),
    (FULL + "EDGE_WEIGHT_SECTION\n0 1\n1 0 5", "f:7:5: error: EDGE_WEIGHT_SECTION has more dist"),
    (FULL + "EDGE_WEIGHT_SECTION\n0 -1 1 0", "f:6:3: error: a distance must not be negative"),
    (FULL + "EDGE_WEIGHT_SECTION\n0 99999999999999999 1 0", "f:6:3: error: a distance must be at"),
    (FULL + "EDGE_WEIGHT_SECTION\n0 1.5 1 0", "f:6:3: error: a distance must be a whole number"),
    (FULL + "EDGE_WEIGHT_SECTION\n0 1 2 0", "f:1:7: error: it is 1 from city 1 to city 2, but 2 b"),
    (
        HEAD.replace("EUC_2D", "GEO") + "NODE_COORD_SECTION\n1 1 1\n2 96.1 16",
        "f:3:19: error: city 2 is at 96.1 16, which is no place on earth; GEO takes latitude",
    ),
]


@pytest.mark.parametrize(("text", "message"), WRONG, ids=range(len(WRONG)))
def test_what_is_wrong_with_a_file(text: str, message: str) -> None:
    with pytest.raises(DiagnosticError) as error:
        parse_tsp(text, "f")
    assert str(error.value).startswith(message)


PIECES = [
    *("TYPE: TSP", "TYPE: ATSP", "DIMENSION: 2", "EDGE_WEIGHT_TYPE: EXPLICIT", "EOF", "1", "0 1"),
    *("EDGE_WEIGHT_TYPE: GEO", "EDGE_WEIGHT_FORMAT: UPPER_ROW", "EDGE_WEIGHT_SECTION", "2 3 4"),
    *("NODE_COORD_SECTION", "1 2 3", "DISPLAY_DATA_SECTION", ":", "NAME", "-1", "nan 1 1", "\x00"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("\n".join) | st.text(max_size=50))
def test_a_text_is_an_instance_or_has_an_error(text: str) -> None:
    try:
        problem = parse_tsp(text, "f")
    except DiagnosticError as error:
        assert all(d.position is not None for d in error.diagnostics)
    else:
        assert all(
            problem.matrix[i][j] == problem.matrix[j][i]
            for i, j in combinations(range(problem.n), 2)
            if problem.symmetric
        )
