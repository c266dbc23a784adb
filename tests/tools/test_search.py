"""Tests of ``collir search``: its output for each problem, and its options."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from collir.tools import collir

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "search"


@pytest.fixture(autouse=True)
def no_other_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the module that a page of docs/ has read from its own copy of the example."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.modules.pop("coins", None)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert collir.main(["search", *arguments]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    return json.loads(printed(capsys, *arguments, "--json"))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("clique {}/johnson8-4-4.clq", "optimal: 14\n"),
        ("kclique {}/johnson8-4-4.clq 14", "feasible: 14\n"),
        ("kclique {}/hamming6-4.clq 5", "infeasible: there is no solution\n"),
        ("subgraph {}/cycle8.lad {}/cube3.lad --all", "complete: 96 solutions\n"),
        ("subgraph {}/cycle8.lad {}/cube3.lad --all --induced", "complete: 0 solutions\n"),
        ("subgraph {}/cycle8.lad {}/cube3.lad", "feasible: 8\n  "),
        ("knapsack {}/twenty_four.items", "optimal: 809\n  value 809; weight "),
        ("knapsack {}/twenty_four.items --target 810", "infeasible: there is no solution\n"),
        ("tsp {}/burma14.tsp", "optimal: 3323\n  length 3323; tour 1 "),
        ("tsp {}/one_way.atsp --no-dominance", "optimal: 36\n  length 36; tour 1 8 4 2 6 3 7 5\n"),
        ("{}/coins.py:Coins 63 [1,5,10,21,25]", "optimal: 3\n  21 21 21\n28 nodes"),
        ("{}/coins.py:Coins 63 coins=[5,10] --target 9", "infeasible: there is no solution\n"),
        ("{}/coins.py:Coins amount=12 coins=[1,5] --count solutions", "complete: 15 solutions\n"),
        ("queens 6", "feasible: 6\n  1 3 5 0 2 4\n"),
        ("queens 6 --all", "complete: 4 solutions\n"),
        ("queens 3", "infeasible: there is no solution\n"),
        ("semigroups 8", "complete: 1 1 2 4 7 12 23 39 67 semigroups of genus 0, 1, ...\n"),
        ("uts --depth 5", "complete: 3987 nodes\n"),
        ("uts --depth 5 --kernel", "complete: 3987 nodes\n"),
    ],
)
def test_what_is_found(command: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word.replace("{}", str(EXAMPLES)) for word in command.split()]
    out = printed(capsys, *words)
    assert out.startswith(expected)
    last = out.splitlines()[-1]
    assert " nodes" in last
    assert " s (" in last


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = as_json(capsys, "tsp", str(EXAMPLES / "one_way.atsp"))
    assert outcome["status"] == "optimal"
    assert outcome["value"] == outcome["bound"] == 36
    assert outcome["gap"] == 0
    assert outcome["solutions"] == [
        {"value": 36, "solution": {"length": 36, "tour": [1, 8, 4, 2, 6, 3, 7, 5]}}
    ]
    assert outcome["statistics"]["nodes"] > 1
    decided = as_json(capsys, "queens", "6")
    assert decided["solution"] == {"value": 6, "solution": [1, 3, 5, 0, 2, 4]}
    assert as_json(capsys, "queens", "3")["solution"] is None
    counted = as_json(capsys, "semigroups", "4")
    assert counted["total"] == [1, 1, 2, 4, 7]


def test_the_k_best(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(EXAMPLES / "one_way.atsp")
    outcome = as_json(capsys, "tsp", path, "--k", "3")
    values = [solution["value"] for solution in outcome["solutions"]]
    assert len(values) == 3
    assert values == sorted(values)
    lines = printed(capsys, "tsp", path, "--k", "3").splitlines()
    assert [line.split(":")[0].strip() for line in lines[1:4]] == [str(value) for value in values]


@pytest.mark.parametrize(
    "how",
    [
        "--order best-first",
        "--workers 2 --engine local --seed 3 --coordination budget=1",
        "--workers 3 --engine local --coordination stack-stealing",
        "--workers 2 --engine local --coordination depth-bounded=1",
        "--workers 2 --engine local --coordination ordered",
        pytest.param("--coordination sequential --check", marks=pytest.mark.slow),
        "--time-limit 1h --memory-limit 100GB --node-limit 1000000",
    ],
)
def test_ways_to_search(how: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(capsys, "tsp", str(EXAMPLES / "one_way.atsp"), *how.split())
    assert out.startswith("optimal: 36\n")


def test_a_problem_of_a_file_is_divided_among_processes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The workers import the class by its name."""
    options = ["--workers", "2", "--engine", "processes", "--coordination", "budget=1"]
    problem = [f"{EXAMPLES}/coins.py:Coins", "63", "[1, 5, 10, 21, 25]"]
    assert as_json(capsys, *problem, *options)["value"] == 3


def test_a_search_that_a_limit_ends(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "half.search")
    out = printed(capsys, "queens", "10", "--all", "--node-limit", "100", "--checkpoint", path)
    assert out.startswith("interrupted (node limit): ")
    assert out.splitlines()[0].endswith(" solutions so far")
    assert printed(capsys, "queens", "10", "--all", "--resume", path).startswith("complete: 724 ")


def test_a_profile(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    assert collir.main(["search", "semigroups", "5", "--profile", str(path)]) == 0
    assert "for 2 workers: --coordination budget=" in capsys.readouterr().err.replace(
        f"{os.cpu_count()} workers", "2 workers"
    )
    picture = tmp_path / "profile.svg"
    assert collir.main(["search", "semigroups", "5", "--profile", str(picture)]) == 0
    assert picture.read_text().startswith("<?xml")
    assert json.loads(path.read_text())["nodes"] == [1, 1, 2, 4, 7, 12]


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in ((["--help"], "semigroups"), (["tsp", "--help"], "--time-limit")):
        with pytest.raises(SystemExit) as stop:
            collir.main(["search", *arguments])
        assert stop.value.code == 0
        assert expected in capsys.readouterr().out
