"""Tests of `collir why`: what each collective of a program costs, and what would remove it."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from support.harness.browser import data_of

import collir
from collir.cost.programs.removals import collectives, time_without
from collir.tools import collir as tool

EXAMPLES = Path(__file__).parents[2] / "examples"

STEP = """
machine @box {
  device { compute f32 = 10 TFLOP/s; memory = 40 GB @ 1 TB/s }
  level node[2] { port = 25 GB/s, latency = 10 us }
  level gpu[4]  { port = 300 GB/s, latency = 3 us }
}
mesh @m on @box { data = node:2, model = gpu:4 }
func @f(%x: f32[512@data, 1024], %v: f32[1024, 4096@model], %w: f32[4096@model, 1024]) -> f32[] on @m {
  %y = repeat 3 carry(%h = %x) with(%v = %v, %w = %w) {
    %a = einsum "b h, h f -> b f" %h, %v
    %p = einsum "b f, f h -> b h" %a, %w
    %r = all_reduce %p over modelASYNC
    yield %r
  }
  %s = sum %y dims [0, 1]
  %l = all_reduce %s over data
  return %l
}
"""  # noqa: E501


MISPLACED = "data = gpu:2, model = node:2 * gpu:2"


def why(*words: str, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return what the command prints as JSON."""
    assert tool.main(["why", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_function_waits_for_each_collective_as_long_as_it_takes_less_without() -> None:
    [simulation] = collir.simulate(collir.parse(STEP.replace("ASYNC", "")))
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
    path.write_text(STEP.replace("ASYNC", ""), encoding="utf-8")
    [found] = why(str(path), capsys=capsys)
    rows = {x["result"]: x for x in found["listed"]}
    assert rows["r"]["crosses"] == "gpu" and rows["l"]["crosses"] == "node"
    assert rows["r"]["over"] == "model" and rows["r"]["times"] == 3
    assert rows["r"]["from"] == "line 12"
    assert rows["l"]["bytes"] == 4
    assert [x["seconds"] < found["seconds"] for x in found["changes"]]
    assert tool.main(["why", str(path), "--top", "1"]) == 0
    assert "1 more are left out (--top)" in capsys.readouterr().out


def test_a_change_of_layouts_says_what_lies_in_another_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "step.coll"
    text = STEP.replace("ASYNC", "").replace("data = node:2, model = gpu:4", MISPLACED)
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


def test_an_auto_function_has_its_layouts_propagated(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(EXAMPLES / "models" / "styles.coll")
    words = [file, "--function", "tensor_parallel", "--top", "3"]
    [found] = why(*words, capsys=capsys)
    assert found["function"] == "tensor_parallel"
    assert found["collectives"] > 3 == len(found["listed"])


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
