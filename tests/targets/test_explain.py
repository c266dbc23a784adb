"""The commands that explain prints can be pasted, and make programs as much faster as it says."""

import re
import shlex
from pathlib import Path

import pytest
from seeds import some

from collir.tools.collopt import main

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.coll"))
SIZES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}


def titles(text: str) -> dict[str, float]:
    """Return the seconds of every function, from titles as ``@f on @m (@c, 8 devices): 12 us``."""
    matches = re.findall(r"^@(\w+) on @.*?: ([\d.]+) (ns|us|ms|s)\b", text, re.MULTILINE)
    return {name: float(number) * SIZES[unit] for name, number, unit in matches}


@pytest.mark.parametrize("before", ["", "place"])
@pytest.mark.parametrize("example", some(EXAMPLES, 3), ids=lambda path: path.stem)
def test_what_explain_prints_can_be_pasted_and_helps(
    example: Path, before: str, capsys: pytest.CaptureFixture[str]
) -> None:
    passes = ["-p", before] if before else []
    if main([str(example), *passes, "-t", "explain{model=alpha-beta}"]):
        assert not before or "placed" not in capsys.readouterr().err
        return  # some function has no cost, and a diagnostic says so
    text = capsys.readouterr().out
    times = titles(text)
    assert "1.00x" not in re.sub(r"bound .*", "", text)
    known: dict[str, dict[str, float]] = {}
    for block in re.split(r"\n(?=@)", text):
        [(name, _), *_] = titles(block).items()
        rows = re.findall(r"([\d.]+)x\n +collopt (.*)", block)
        assert len(rows) == block.count("collopt ")
        for factor, command in rows:
            if command not in known:
                assert main(shlex.split(command)) == 0
                known[command] = titles(capsys.readouterr().out)
            helps = times[name] / known[command][name]
            assert helps > 1.005, (command, name)
            assert helps == pytest.approx(float(factor), rel=0.02), (command, name)
