"""A GPT that learns text in 2 x 2 x 2 devices, as emitted jax, follows one that learns on one."""

import runpy
from pathlib import Path

import pytest
from support.programs.model_pages import ROOT

BENCHMARK = runpy.run_path(str(ROOT / "benchmarks" / "models" / "train.py"))


@pytest.mark.slow
def test_losses_are_those_of_one_device(tmp_path: Path) -> None:
    found: dict[int, list[float]] = {}
    for devices in (8, 1):
        folder = tmp_path / str(devices)
        folder.mkdir()
        found[devices] = BENCHMARK["losses"](devices, 100, ROOT / "docs" / "tour.md", folder, "jax")
    assert found[8] == pytest.approx(found[1], rel=1e-4)
    assert min(found[8]) < 0.7 * found[8][0]
