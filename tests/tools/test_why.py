"""Tests of `collir why`: what each collective of a program costs, and what would remove it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.harness.browser import data_of
from support.programs.two_axes import program

import collir
from collir.cost.programs.removals import collectives, time_without
from collir.tools import collir as tool

EXAMPLES = Path(__file__).parents[2] / "examples"

STEP = program(4, "f")

MISPLACED = "data = gpu:2, model = node:2 * gpu:2"


def why(*words: str, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return what the command prints as JSON."""
    assert tool.main(["why", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_function_waits_for_each_collective_as_long_as_it_takes_less_without() -> None:
    [simulation] = collir.simulate(collir.parse(STEP))
    inner, last = collectives(simulation)
    assert (inner.times, last.times) == (3, 1)
    assert time_without(simulation, inner.path) == pytest.approx(simulation.time - inner.alone)
    assert time_without(simulation, last.path) == pytest.approx(simulation.time - last.alone)
    both = time_without(simulation, inner.path, last.path)
    assert both == pytest.approx(simulation.time - inner.alone - last.alone)


def test_what_runs_beside_other_steps_is_not_waited_for() -> None:
    module = collir.parse((EXAMPLES / "layers.coll").read_text(encoding="utf-8"))
    for simulation in collir.simulate(module):
        sent = collectives(simulation)
        exposed = [simulation.time - time_without(simulation, x.path) for x in sent]
        assert all(-1e-12 <= e <= x.alone * (1 + 1e-9) for e, x in zip(exposed, sent, strict=True))
        assert any(e < x.alone * 0.9 for e, x in zip(exposed, sent, strict=True))


def test_collectives_are_listed_with_what_they_cross(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "step.coll"
    path.write_text(STEP, encoding="utf-8")
    [found] = why(str(path), capsys=capsys)
    rows = {x["result"]: x for x in found["listed"]}
    assert rows["r"]["crosses"] == "gpu" and rows["l"]["crosses"] == "node"
    assert rows["r"]["over"] == "model" and rows["r"]["times"] == 3
    assert rows["r"]["from"] == "line 13"
    assert rows["l"]["bytes"] == 4
    assert [x["seconds"] < found["seconds"] for x in found["changes"]]
    assert tool.main(["why", str(path), "--top", "1"]) == 0
    assert "1 more are left out (--top)" in capsys.readouterr().out


def test_a_change_of_layouts_says_what_lies_in_another_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "step.coll"
    text = STEP.replace("data = node:2, model = gpu:4", MISPLACED)
    path.write_text(text, encoding="utf-8")
    [found] = why(str(path), capsys=capsys)
    [placed] = [x for x in found["changes"] if x["passes"].startswith("place{")]
    assert placed["layouts"] == ["mesh @m { data = node:2, model = gpu:4 }"]
    [other] = [x for x in found["changes"] if "shard" in x["passes"]]
    assert all(re.match(r"%[xvw]: f32\[", x) for x in other["layouts"])


def test_a_program_of_xla_has_the_lines_of_the_users_python(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = str(EXAMPLES / "models" / "fsdp.hlo.txt")
    [found] = why(file, "--mesh", "data=2,fsdp=4", capsys=capsys)
    assert found["collectives"] == 7
    assert {x["from"].rpartition(":")[0] for x in found["listed"]} == {"xla_programs.py"}
    overlapped = [x for x in found["listed"] if x["less_with"] == "overlap"]
    assert overlapped and all(x["seconds_left"] < x["seconds_exposed"] for x in overlapped)


def test_a_page_has_the_collectives_and_the_program_of_the_hlo(tmp_path: Path) -> None:
    path = tmp_path / "why.html"
    file = str(EXAMPLES / "models" / "fsdp.hlo.txt")
    assert tool.main(["why", file, "--mesh", "data=2,fsdp=4", "--html", str(path)]) == 0
    text = path.read_text(encoding="utf-8")
    assert "Collectives, and what would remove them" in text
    assert "<td>xla_programs.py:62</td><td>fsdp</td><td>gpu</td>" in text
    assert "-p overlap: " in text and "%ws_0: f32[32, 32]" in text
    data = data_of(text)
    assert any("all_gather %ws_0 over fsdp dim 0" in line for line in data["source"])
    [step] = [x for x in data["functions"][0]["steps"] if x[0] == "%all_gather"]
    assert "all_gather %ws_0" in data["source"][step[9] - 1]


LAYERS = """
machine @box {
  device { compute f32 = 10 TFLOP/s; memory = 40 GB @ 1 TB/s }
  level gpu[4] { port = 300 GB/s, latency = 3 us }
}
mesh @m on @box { data = gpu:2, model = gpu:2 }
func @layers(%x: f32[64@data, 32], %u: f32[32, 64@model], %d: f32[64@model, 32])
    -> f32[64@data, 32] on @m auto {
  %y = repeat 4 carry(%h = %x) with(%u = %u, %d = %d) {
    %0 = einsum "b i, i j -> b j" %h, %u
    %1 = einsum "b j, j i -> b i" %0, %d
    yield %1
  }
  return %y
}
"""


def test_an_auto_function_has_its_layouts_propagated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "layers.coll"
    path.write_text(LAYERS)
    [found] = why(str(path), "--function", "layers", capsys=capsys)
    assert found["function"] == "layers"
    assert found["collectives"] == len(found["listed"]) == 1


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ([str(EXAMPLES / "train.coll"), "--mesh", "a=2"], 2, "go with a program of XLA"),
        ([str(EXAMPLES / "train.coll"), "--function", "f"], 2, "there is no function @f"),
        ([str(EXAMPLES / "train.coll"), "--top", "0"], 2, "--top is a positive number"),
        (["nothing.coll"], 1, "cannot read nothing.coll: no such file"),
    ],
)
def test_wrong_uses_are_one_error(
    words: list[str], status: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["why", *words]) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
