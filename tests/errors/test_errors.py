"""Tests of every diagnostic against a golden file: `NAME.expect` beside `NAME.coll`, `NAME.mlir`...

The first line of an input is a comment with the command, `%s` standing for the file; the next
line describes the error in a sentence. Graphs, cities and items have comments of their own
formats. The golden file holds `exit STATUS` and the text of stderr. Files without a command are
inputs of other files. `--update-golden` writes the golden files anew.
"""

import io
import shlex
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from support.harness.commands import tool_of

HERE = Path(__file__).parent
SUFFIXES = {"coll": "//", "mlir": "//", "clq": "c", "tsp": "COMMENT:", "items": "#"}
"""Suffix of an input -> the start of a comment in its format."""


def command_of(path: Path) -> list[str]:
    """Return the words of the command in a file's first line; empty if it has none."""
    with path.open("rb") as file:
        comment, _, text = file.readline().decode("utf-8", "replace").partition(" ")
    words = shlex.split(text) if comment in SUFFIXES.values() else []
    return words if tool_of(words) else []


INPUTS = sorted(
    path for suffix in SUFFIXES for path in HERE.rglob(f"*.{suffix}") if command_of(path)
)


def run_tool(path: Path) -> tuple[int, str, str]:
    """Return the exit status, stdout and stderr of the command of an input, run in its folder."""
    tool = tool_of([word.replace("%s", path.name) for word in command_of(path)])
    assert tool is not None
    out, err = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(err):
            status = tool[0](tool[1])
    except SystemExit as stop:  # argparse
        status = int(stop.code or 0)
    return status, out.getvalue(), err.getvalue()


@pytest.mark.parametrize("path", INPUTS, ids=lambda path: str(path.relative_to(HERE)))
def test_diagnostic(
    path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(path.parent)  # so that messages name the bare file
    status, out, err = run_tool(path)
    report = f"exit {status}\n{err}"
    golden = path.with_suffix(".expect")
    if request.config.getoption("--update-golden"):
        golden.write_text(report, encoding="utf-8")
    assert report == golden.read_text(encoding="utf-8")
    assert status in (1, 2)
    if "--split-input-file" not in command_of(path):
        assert out == "", "a command that fails prints no output"
    assert "Traceback" not in err
    assert "internal error" not in err


def test_every_golden_file_has_an_input() -> None:
    named = {path.with_suffix(".expect") for path in INPUTS}
    assert set(HERE.rglob("*.expect")) == named
