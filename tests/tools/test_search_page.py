"""The page of `collir search --html`."""

import math
import re
from html import unescape
from pathlib import Path

import pytest
from support.harness.browser import data_of, needs_browser, used

from collir.problems.knapsack import Knapsack
from collir.search import decide, enumerate_tree, optimise
from collir.search.running.results import Decision, Enumeration, Optimum, Solution, Statistics
from collir.targets.reports.page import rendered as rendered_page
from collir.tools import collir
from collir.tools.search_output import Outcome
from collir.tools.search_page import MOST_SOLUTIONS, html

pytest.importorskip("jinja2")

EXAMPLES = Path(__file__).parents[2] / "examples" / "search"
EVIL = '"><script>alert(1)</script>'
TSP = "tsp", str(EXAMPLES / "burma14.tsp"), "--k=3", "--coordination=depth-bounded=3"
ITEMS = Knapsack([60, 100, 120], [10, 20, 30], 50)


def page_of(folder: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    path = folder / "page.html"
    assert collir.main(["search", *words, "--html", str(path)]) == 0
    assert capsys.readouterr().err == ""
    return path.read_text(encoding="utf-8")


def test_a_page_has_solutions_counts_by_depth_and_advice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = page_of(tmp_path, capsys, *TSP)
    data = data_of(text)
    assert data["title"] == "collir search tsp"
    assert data["sentences"][0] == "The best value is 3323: no solution is better, so the gap is 0."
    nodes, pruned, *_ = data["depths"]
    assert (nodes["name"], pruned["name"]) == ("nodes", "pruned")
    assert f"{sum(nodes['counts']):,} nodes were visited in " in data["sentences"][1]
    assert len(data["tasks"]) > 1
    assert '<td class="n" data-value="3323">3323</td><td>length 3323; tour 1 ' in text
    assert re.search(r"For \d+ workers, <code>--coordination [a-z-]+=\d+</code>: ", text)


def test_a_search_that_ends_early_says_what_is_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "knapsack", str(EXAMPLES / "twenty_four.items"), "--node-limit=20"
    first, second, _ = data_of(page_of(tmp_path, capsys, *words))["sentences"]
    assert first == ("The best value so far is 789; no solution is better than 813, a gap of 3.0%.")
    assert second == "The search ended early: node limit."


def test_outcomes_are_said_in_sentences() -> None:
    def said(outcome: Outcome) -> list[str]:
        return data_of(html(outcome))["sentences"]

    statistics = Statistics(nodes=3)
    best = Solution(5, None, "x")
    assert said(Optimum("infeasible", statistics, None))[0] == "There is no solution."
    assert said(Optimum("feasible", statistics, None, (best,), math.inf))[0] == (
        "The best value so far is 5; how much better others may be is not known."
    )
    assert said(Decision("feasible", statistics, None, best))[0] == (
        "A solution reaches the target: its value is 5."
    )
    assert said(Decision("interrupted", statistics, None))[0] == (
        "The search ended without an answer."
    )
    assert said(Enumeration("complete", statistics, None, 7))[:2] == [
        "7 in all", "All nodes were visited."
    ]  # fmt: skip


def test_without_a_profile_a_page_has_no_counts_by_depth() -> None:
    text = html(optimise(ITEMS))
    assert data_of(text)["title"] == "Optimum of a search"
    assert (
        data_of(text)["depths"] == [] and "By depth" not in text and "workers, <code>" not in text
    )
    assert "By depth" in html(enumerate_tree(ITEMS, profile=True))
    assert "A solution reaches" in html(decide(ITEMS, target=200, profile=True))


def test_a_page_has_at_most_so_many_solutions() -> None:
    solutions = tuple(Solution(n, None, f"solution {n}") for n in range(MOST_SOLUTIONS + 5))
    text = html(Optimum("optimal", Statistics(), None, solutions, 0))
    assert "solution 999<" in text and "solution 1000" not in text
    assert "5 more, which are no better, are left out." in text


def test_nothing_of_a_problem_is_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / EVIL.split("/", maxsplit=1)[0]
    folder.mkdir()
    path = folder / f"{EVIL.split('/', maxsplit=1)[1]}.py"
    shown = (EXAMPLES / "coins.py").read_text(encoding="utf-8")
    path.write_text(f"{shown}\n\nCoins.show = lambda self, node: {{{EVIL!r}: [{EVIL!r}]}}\n")
    solution = Solution(1, None, {EVIL: [EVIL, (EVIL, EVIL)]})
    for text in (
        page_of(tmp_path, capsys, f"{path}:Coins", "63", "[1,5,10,21,25]"),
        html(Optimum("optimal", Statistics(engine=EVIL), None, (solution,), 1), EVIL),
        html(Enumeration("interrupted", Statistics(reason=EVIL), None, EVIL), EVIL, EVIL),
    ):
        assert "<script>alert" not in text and EVIL in unescape(text)
        tags = re.findall(r"<(?:script|link|img|iframe|object)\b[^>]*>", text)
        assert {*tags} == {"<script>", '<script type="application/json" id="data">'}


def test_a_page_that_cannot_be_made_is_one_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "none" / "page.html")
    assert collir.main(["search", "queens", "6", "--html", path]) == 1
    assert f"error: cannot write {path}: " in capsys.readouterr().err
    monkeypatch.setattr(rendered_page, "find_spec", lambda name: None)  # pyright: ignore
    assert collir.main(["search", "queens", "6", "--html", path]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: a page needs jinja2: ")  # before it searches


USE = """
  for (const x of document.querySelectorAll("button")) { x.click(); x.click(); }
  document.querySelector(".logarithmic").click();
  for (const over of document.querySelectorAll(".u-over")) {
    const { left, top } = over.getBoundingClientRect(), at = { clientX: left + 9, clientY: top };
    for (const kind of ["mouseenter", "mousemove"]) over.dispatchEvent(new MouseEvent(kind, at));
  }
  for (const x of document.querySelectorAll(".u-series")) x.querySelector("th").click();
"""


@needs_browser
def test_every_control_works_in_a_browser(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = used(page_of(tmp_path, capsys, *TSP), USE, tmp_path)
    assert document.count("<canvas") == 2
    solutions = document.split('<table class="sorted solutions">')[1].split("</table>")[0]
    values = re.findall(r'<td class="n" data-value="(\d{4})">', solutions)
    assert values == ["3346", "3336", "3323"]
    assert 'aria-sort="descending"><button type="button">solution</button>' in solutions
