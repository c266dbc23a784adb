"""Tests of the command that prints DistIR's figures for a file of configurations."""

import csv
from pathlib import Path

import pytest
from distir.sweep import main

ROWS = Path(__file__).parents[3] / "benchmarks" / "papers" / "distir" / "rows.csv"
HEAD = "model_size,world_size,batch_size,dp_degree,hp_degree,pp_degree,num_microbatches"


def swept(
    text: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Return the exit status, stdout and stderr for the text of a file."""
    monkeypatch.chdir(folder)
    Path("x.csv").write_text(text, encoding="utf-8")
    status = main(["x.csv"])
    output = capsys.readouterr()
    return status, output.out, output.err


def test_the_rows_of_a_file_have_distirs_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(ROWS)]) == 0
    lines = capsys.readouterr().out.splitlines()
    with ROWS.open(encoding="utf-8", newline="") as file:
        expected = list(csv.DictReader(file))
    for found, row in zip(csv.DictReader(lines), expected, strict=True):
        for name, value in row.items():
            if name in ("latency", "throughput"):
                assert float(found[name]) == pytest.approx(float(value), rel=1e-12)
            else:
                assert found[name] == value


def test_sizes_stand_for_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    head = HEAD.replace("model_size,world_size", "layers, width")
    status, out, err = swept(f"{head},note\n8, 512,64,1,2,1,1,x\n", tmp_path, monkeypatch, capsys)
    assert (status, err) == (0, "")
    named, values = out.splitlines()
    assert named == (
        "layers,width,world_size,batch_size,dp_degree,hp_degree,pp_degree,num_microbatches,"
        "latency,throughput,peak_memory"
    )
    assert values.startswith("8,512,2,64,1,2,1,1,0.00063502209422222")
    assert values.endswith(",4521988")


def test_rows_that_distir_cannot_run_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"{HEAD}\nmlp-large,32,64,1,1,32,1\n"
    status, out, err = swept(text, tmp_path, monkeypatch, capsys)
    assert status == 0
    assert out.splitlines()[1] == "mlp-large,32,64,1,1,32,1,-1.0,-64.0,-1"
    assert err == (
        "x.csv:2:1: warning: no results: SGDOptimizer is not registered for 3 weights\n"
        "mlp-large,32,64,1,1,32,1\n^~~\n"
    )


def test_all_errors_of_a_file_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = f"""{HEAD}
mlp-smal,1,64,1,1,1,1
gpt,1,64,1,1,1,1
mlp-xs,3,64,1,2,1,1
mlp-xs,1,64, x,1,1,1
mlp-xs,1,64,1,1,0,1
mlp-xs,1,64
"""
    status, out, err = swept(text, tmp_path, monkeypatch, capsys)
    assert (status, out) == (1, "")
    assert [line for line in err.splitlines() if ": error: " in line] == [
        "x.csv:2:1: error: there is no model 'mlp-smal'; did you mean mlp-small?",
        "x.csv:3:1: error: there is no model 'gpt'; "
        "there is mlp-xs, mlp-small, mlp-medium, mlp-large",
        "x.csv:4:8: error: world_size is 3, but 1 x 2 x 1 are 2 devices",
        "x.csv:5:14: error: dp_degree must be an integer, not 'x'",
        "x.csv:6:17: error: pp_degree must be from 1 to 16777216, not 0",
        "x.csv:7:1: error: this line has 3 cells, the line of names 7",
    ]
    assert "mlp-xs,1,64, x,1,1,1\n             ^" in err


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("\n", "x.csv:1:1: error: the file is empty\n\n^\n"),
        (
            "width,dp_degree,dp_degree,hp_degree,pp_degree,num_microbatches\n",
            "x.csv:1:1: error: columns are missing: layers, batch_size; model_size may stand for "
            "layers and width\nwidth,dp_degree,dp_degree,hp_degree,pp_degree,num_microbatches\n"
            "^~~~~\nx.csv:1:17: error: column dp_degree is there twice\n"
            "width,dp_degree,dp_degree,hp_degree,pp_degree,num_microbatches\n"
            "                ^~~~~~~~~\n",
        ),
    ],
)
def test_the_line_of_names_is_checked(
    text: str,
    error: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert swept(text, tmp_path, monkeypatch, capsys) == (1, "", error)


def test_a_file_is_needed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert main(["nowhere.csv"]) == 1
    assert "cannot read nowhere.csv: no such file or directory" in capsys.readouterr().err
