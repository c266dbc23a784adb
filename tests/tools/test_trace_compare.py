"""`collir compare TRACE... PROGRAM` and `collir import trace` on the traces of an example."""

import gzip
import json
from pathlib import Path

import pytest
from support.harness.browser import data_of, needs_browser, used
from support.importing.predicted_traces import STEP, traced

import collir
from collir.importing.traces.compared import Compared
from collir.importing.traces.files import read_traces
from collir.tools import collir as tool
from collir.tools.trace_page import html

TRACES = Path(__file__).parents[2] / "examples" / "traces"
FILES = [str(TRACES / f"rank{rank}.json.gz") for rank in range(4)]
PROGRAM = str(TRACES / "ddp.coll")


def run(*words: str) -> int:
    return tool.main(["compare", *FILES, PROGRAM, *words])


def test_the_slow_rank_and_its_gap_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    found = json.loads(capsys.readouterr().out)
    [late] = found["late"]
    assert late["rank"] == 2 and late["during"] == "load data" and late["share"] > 0.9
    assert late["idles_longer_s"] == pytest.approx(0.03, rel=0.2)  # what was planted
    assert found["matched"] == 1 and not found["did_not_run"] and not found["not_in_program"]
    assert {x["last"] for x in found["collectives"]} == {2}
    [product] = found["products"]
    assert product["ran"] == product["in_program"] == 12
    assert len(found["ranks"]) == 4 and found["steps"] == 2


def test_the_machine_that_is_written_explains_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = tmp_path / "fitted.coll"
    assert run("--json", "--calibrate", str(machine)) == 0
    found = json.loads(capsys.readouterr().out)
    [product] = found["products"]
    assert product["predicted_s"] == pytest.approx(product["measured_s"], rel=0.02)
    own, should = found["ranks"][0], found["predicted"]
    assert should["computes_s"] == pytest.approx(own["computes_s"], rel=0.05)
    [op] = collir.parse(machine).ops
    assert op.name == "machine.machine"


def test_one_rank_alone_tells_the_devices_and_keeps_the_network(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = tmp_path / "fitted.coll"
    assert tool.main(["compare", FILES[0], PROGRAM, "--calibrate", str(machine)]) == 0
    assert "Fitted to a trace, its devices to" in capsys.readouterr().err
    text = machine.read_text(encoding="utf-8")
    assert "level rank[4] { port = 1 GB/s, latency = 50 us, fabric = memory }" in text


def test_a_trace_becomes_a_program_that_takes_as_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "step.coll"
    assert tool.main(["import", "trace", *FILES, "-o", str(path)]) == 0
    assert "remark: a step took 97.8 ms, and takes 97.8 ms here" in capsys.readouterr().err
    [simulation] = collir.simulate(collir.parse(path))
    assert simulation.time == pytest.approx(0.0978, rel=0.01)
    assert len(simulation.collectives) == 5
    port = simulation.mesh.machine.levels[0].port
    assert port == 1e9 or "Port: fitted" in path.read_text(encoding="utf-8")


def test_one_rank_alone_is_compared_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool.main(["compare", FILES[1], PROGRAM]) == 0
    text = capsys.readouterr().out
    assert "1 of 4 ranks are here (1)" in text and "wait" not in text.splitlines()[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*FILES], "is a trace: behind the traces, give the program that ran"),
        ([FILES[0], PROGRAM, PROGRAM], "is no trace: give one program, behind the traces"),
        ([FILES[0], PROGRAM, "--model", "nope"], "model is one of auto, alpha-beta, p2, nccl"),
        ([FILES[0], PROGRAM, "--algorithm", "nope"], "algorithm is one of auto"),
    ],
)
def test_wrong_arguments_are_usage_errors(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["compare", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--html", "--calibrate"])
def test_a_folder_that_is_not_there_is_said_before_files_are_read(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["compare", "none.json", "none.coll", option, "none/x"]) == 1
    assert "error: cannot write none/x: there is no folder none" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--machine", "@dgx_h100(nodes = 1)"],
         "the trace is of 4 ranks, and the machine has 8 devices: give --machine with as many"),
        (["--mesh", "data=2"],
         "the trace is of 4 ranks, and the axes have 2 devices: give --mesh with as many"),
    ],
)  # fmt: skip
def test_a_machine_or_a_mesh_of_another_number_of_ranks_is_an_error(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tool.main(["import", "trace", *FILES, *words]) == 1
    assert message in capsys.readouterr().err


def test_what_ran_is_not_given_to_wrong_requests_where_a_file_is_cut_off(tmp_path: Path) -> None:
    text = gzip.decompress(Path(FILES[1]).read_bytes())
    path = tmp_path / "rank1.json"
    path.write_bytes(text[: text.rindex(b'"gloo:all_reduce"') - 2000])
    [rank] = read_traces([path]).ranks
    assert rank.collectives
    assert all(x.issued == x.start and x.label.startswith("gloo:") for x in rank.collectives)


USE = """
  for (const x of document.querySelectorAll("button")) x.click();
  for (const canvas of document.querySelectorAll(".timeline"))
    for (const key of "ArrowDown + ArrowRight - 0".split(" "))
      canvas.dispatchEvent(new KeyboardEvent("keydown", { key }));
"""


@needs_browser
def test_the_page_has_both_timelines(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    [simulation] = collir.simulate(collir.parse(STEP))
    trace = traced(simulation, late={3: 0.05})
    trace.remarks.append("</script><img src=x onerror=alert(1)>")
    page = html(Compared(trace, simulation), "step.coll")
    assert "<img" not in page
    [function] = data_of(page)["functions"]
    assert len(function["beside"]["lanes"]) == 8
    document = used(page, USE, tmp_path)
    assert "Timeline of the trace" in document and "for rank 3" in document
