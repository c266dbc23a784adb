"""Tables of reports: not wider than they have to be, with all that is in their cells."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from collir.targets.reports.columns import folded
from collir.targets.reports.text import WIDTH, table, table_rows, wrapped

WORDS = st.text("ab_/.+,;%=-2 ", max_size=60).map(str.strip)
NAMES = st.lists(
    st.from_regex(r"%?[a-z]{1,12}([._/+][a-z]{1,12}){0,6}", fullmatch=True), max_size=5
).map(" ".join)
QUANTITIES = st.from_regex(r"[0-9]{1,3}\.[0-9] (us|KB|GB/s|%)", fullmatch=True)
MARKS = st.sampled_from(["", "  ", "- ", "- - "])
CELLS = st.tuples(MARKS, WORDS | NAMES | QUANTITIES).map("".join)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]], int]:
    """Return the head of a table, its rows, and the number of columns that are flush left."""
    columns = draw(st.integers(1, 12))
    line = st.lists(CELLS, min_size=columns, max_size=columns)
    return draw(line), draw(st.lists(line, max_size=6)), draw(st.integers(0, columns))


def letters(text: str) -> str:
    return re.sub(r"\s", "", text)


@given(tables(), st.integers(0, 8))
@settings(max_examples=40)
def test_a_table_is_as_wide_as_the_limit_if_it_can_be(
    shape: tuple[list[str], list[list[str]], int], indent: int
) -> None:
    head, rows, left = shape
    narrow = folded([head, *rows], left, 0)
    least = sum(max(len(line) for cell in x for line in cell) for x in zip(*narrow, strict=True))
    lines = table(head, rows, left, indent)
    if least + 2 * (len(head) - 1) + indent <= WIDTH:
        assert max(map(len, lines)) + indent <= WIDTH
    assert all(line == line.rstrip() for line in lines)


@given(tables())
@settings(max_examples=40)
def test_a_table_has_all_that_is_in_its_cells(
    shape: tuple[list[str], list[list[str]], int],
) -> None:
    head, rows, left = shape
    printed = table_rows(head, rows, left)
    for cells, lines in zip([head, *rows], printed, strict=True):
        assert sorted(letters("".join(lines))) == sorted(letters("".join(cells)))
    for cell in (cell for row in rows for cell in row):  # and in its order
        [narrow] = table_rows([], [[cell]], min(left, 1), WIDTH - 5)
        assert letters("".join(narrow)) == letters(cell)


def test_cells_are_broken_between_words_and_not_before_units() -> None:
    text = "%short.layers.attention_gain = all_reduce over data"
    rows = [[text, "ring/Simple", "12.3 ms"], ["  %a = add", "", "1 us"]]
    lines = table(["step", "algorithm", "time"], rows, 2, WIDTH - 52)
    assert lines == [
        "step                            algorithm       time",
        "%short.layers.attention_gain =  ring/Simple  12.3 ms",
        "  all_reduce over data",
        "  %a = add                                      1 us",
    ]
    narrow = table(["step", "algorithm", "time"], rows, 2, WIDTH - 40)
    assert narrow[1:5] == [
        "%short.layers.      ring/Simple  12.3 ms",
        "  attention_gain =",
        "  all_reduce over",
        "  data",
    ]


def test_a_table_that_cannot_be_narrow_is_broken_between_words() -> None:
    lines = table(["", ""], [["a" * 200, "one two three"]], 2)
    assert lines[1:] == ["a" * 200 + "  one two", " " * 204 + "three"]


def test_sentences_hang() -> None:
    assert wrapped("short") == ["short"]
    first, *rest = wrapped("  " + "word " * 60, 4)
    assert len(first) <= WIDTH - 4
    assert all(line.startswith("    word") for line in rest)
