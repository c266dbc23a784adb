"""The benchmark of the import of XLA's HLO prints what it measures."""

import runpy
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "imports" / "xla.py"


def test_a_file_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(BENCHMARK))["main"]
    file = BENCHMARK.parents[2] / "examples" / "models" / "fsdp.hlo.txt"
    assert main([str(file), "--repeats", "1"]) == 0
    line, last = capsys.readouterr().out.splitlines()
    assert line.startswith("fsdp.hlo.txt: 0.01")
    assert "7 of 7 typed" in line
    assert last.endswith("7 of 7 typed")
