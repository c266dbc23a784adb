"""Tests of the predictions of measured training (benchmarks/training.py)."""

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
PAGE = FOLDER.parent / "docs" / "training.md"

COLUMNS = (
    "# GPUs,global batch,micro batch,hidden size,attention heads,# layers,sequence length,"
    "tensor parallelism,data parallelism,pipeline parallelism,iteration time (ms)\n"
)
SINGLE = (
    COLUMNS
    + """\
2,8,2,1024,16,24,1024,1,2,1,184.330367
2,16,2,1024,16,24,1024,1,1,2,428.535606
8,16,1,2048,16,16,1024,8,1,1,1500
"""
)
MULTI = (
    f"Parameters (billion),{COLUMNS}"
    + """\
175,512,1536,3,12288,96,96,2048,4,8,16,55236
175,512,1536,3,12288,96,96,2048,2,8,32,64296.3
"""
)


@pytest.fixture(scope="module")
def training() -> Iterator[ModuleType]:
    """The command, as a module of its folder."""
    sys.path.insert(0, str(FOLDER))
    yield importlib.import_module("training")
    sys.path.remove(str(FOLDER))


def part(name: str) -> Any:
    """Return a module of the command."""
    return importlib.import_module(f"measured.{name}")


def test_the_page_has_the_numbers_of_the_machine() -> None:
    """Those of docs/training.md are those of the machine; if not, it was fitted anew."""
    text = (FOLDER / "models" / "training" / "a100.coll").read_text(encoding="utf-8")
    fitted = text.split("// Fitted.")[1].split("latency")[0]
    numbers = re.findall(r"[\d.]{4,}", fitted)
    assert len(numbers) == 7
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"| {number} " in page for number in numbers)


@pytest.mark.turns
def test_rows_are_predicted(
    training: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The three measured rows here are within 12 %; the third one is made up."""
    for text, rows in ((SINGLE, 3), (MULTI, 2)):
        table = tmp_path / "rows.csv"
        table.write_text(text)
        assert training.main(["--rows", str(table), "--list"]) == 0
        *listed, last = capsys.readouterr().out.splitlines()
        found = json.loads(last)
        assert list(found) == ["mape", "median", "pairs", "rows"]
        assert found["rows"] == len(listed) == rows
        pairs = [re.findall(r"ed ([\d.e+]+)", text) for text in listed]
        errors = [float(predicted) / float(measured) - 1 for measured, predicted in pairs]
        assert all(abs(error) < 0.12 for error in errors[:2])
        assert found["mape"] == pytest.approx(sum(map(abs, errors)) / rows, abs=1e-4)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("hidden size", "width", ":1: error: no column 'hidden size'"),
        ("2,8,2,1024", "2,8,two,1024", ":2: error: micro batch is a number, not 'two'"),
        (
            "1,1,2,428",
            "1,1,4,428",
            ":3: error: 2 GPUs are not 1 x 1 x 4 = 4 (tensor x data x pipeline)",
        ),
        ("2,8,2,1024", "2,9,2,1024", ":2: error: a global batch of 9 is no multiple of 2 x 2"),
        ("24,1024,1,1,2", "23,1024,1,1,2", ":3: error: 23 layers are not divided by 2 stages"),
        (",184.330367", "", ":2: error: 10 values for 11 columns"),
        ("184.330367", "-3", ":2: error: the time is above 0"),
        ("2,8,2,1024", "2,8,0,1024", ":2: error: micro batch is at least 1"),
    ],
)
def test_wrong_rows_are_refused_with_their_line(
    training: ModuleType,
    old: str,
    new: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = tmp_path / "rows.csv"
    table.write_text(SINGLE.replace(old, new, 1))
    assert training.main(["--rows", str(table)]) == 1
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith(f"{table}{message}")
    assert printed.err.count("\n") == 1


def test_a_file_that_is_not_there_is_refused(
    training: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    assert training.main(["--rows", "nowhere.csv"]) == 1
    assert capsys.readouterr().err.startswith("nowhere.csv: error: cannot be read")


@pytest.mark.turns
def test_the_activations_of_a_layer_are_those_of_korthikanti(training: ModuleType) -> None:
    """Equations 2, 4 and 6 of Korthikanti et al. (2022), and 34 s b h without the matrices."""
    b, s, h, a, t = 1, 2048, 12288, 96, 8

    def kept(core: str, sequence: bool) -> float:
        sizes = part("programs").Sizes(b, s, h, a, t, core, sequence)
        return part("programs").kept_bytes(sizes) / (s * b * h)

    assert kept("", False) == pytest.approx(10 + 24 / t + 5 * a * s / h / t)
    assert kept("", True) == pytest.approx((34 + 5 * a * s / h) / t)
    assert kept("recompute", True) == kept("fused", True) == pytest.approx(34 / t)


def test_the_operations_of_a_microbatch_are_those_of_narayanan(training: ModuleType) -> None:
    """72 b s h^2 (1 + s / 6h) of a layer and 6 b s h V of the words: equation 3, for 3 passes."""
    sizes = part("programs").Sizes(2, 1024, 1024, 16, 2)
    simulation = part("programs").microbatch(sizes)
    inner = [step for outer in simulation.program if outer.loop for step in outer.loop.body.program]
    flops = sum(
        count
        for step in [*simulation.program, *inner]
        for _, count in getattr(step.does, "work", ())
        if getattr(step.does, "product", None)
    )
    b, s, h, v = sizes.micro, sizes.seq, sizes.hidden, sizes.vocab
    assert sizes.tensor * flops == 72 * b * s * h**2 + 12 * b * s**2 * h + 6 * b * s * h * v


def test_the_schedule_is_1f1b(training: ModuleType) -> None:
    """Equal stages take (K + P - 1)(F + B), or (K + (P - 1) / v)(F + B) with v chunks; a slow last
    stage sets the pace."""
    seconds = part("iteration").pipeline_seconds
    assert seconds((1.0,) * 4, (2.0,) * 4, 8, 1) == pytest.approx((8 + 3) * 3.0)
    assert seconds((1.0,) * 4, (2.0,) * 4, 8, 3) == pytest.approx((8 + 3 / 3) * 3.0)
    assert seconds((1.0, 5.0), (2.0, 6.0), 8, 1) == pytest.approx(8 * 11.0 + 3.0)
    assert seconds((1.0,), (2.0,), 8, 1) == pytest.approx(24.0)


def test_a_device_waits_for_its_host(training: ModuleType) -> None:
    elapsed, Cost = part("iteration").elapsed, part("programs").Cost
    assert elapsed([Cost(1.0, 3.0), Cost(4.0, 1.0)]) == 7.0  # the second part is late
    assert elapsed([Cost(4.0, 1.0), Cost(1.0, 3.0)]) == 5.0  # the host is ahead


def test_scores(training: ModuleType) -> None:
    found = part("scores").score([1.0, 1.02, 2.0, 4.0], [1.1, 1.02, 1.0, 4.0], "aaab")
    assert found.mape == pytest.approx((0.1 + 0.5) / 4)
    assert found.pairs == 0.0 and found.regret == 1.0  # 1.02 is not apart from 1
