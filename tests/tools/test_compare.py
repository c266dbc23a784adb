"""Tests of predictions in the columns of nccl-tests, and of their comparison with measurements."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import collir
from collir.importing.measurements.nccl_tests import read
from collir.targets.reports.sizes import SizesTarget, bytes_of
from collir.tools import collir as collir_tool

EXAMPLES = Path(__file__).parents[2] / "examples" / "calibration"

BOX = """
machine @box {
  level node[2] { port =  8 GB/s, latency = 20 us }
  level gpu[4]  { port = 80 GB/s, latency =  3 us }
}
mesh @m on @box { data = node:2 * gpu:4 }
"""

STEPS = {
    "all_reduce": ("f32[N] partial(sum: data)", "f32[N]", ""),
    "reduce": ("f32[N] partial(max: data)", "f32[N] root(data)", ""),
    "broadcast": ("f32[N] root(data)", "f32[N]", ""),
    "reduce_scatter": ("f32[N] partial(sum: data)", "f32[N@data]", "dim 0"),
    "all_gather": ("f32[N@data]", "f32[N]", "dim 0"),
    "scatter": ("f32[N] root(data)", "f32[N@data]", "dim 0"),
    "gather": ("f32[N@data]", "f32[N] root(data)", "dim 0"),
    "all_to_all": ("f32[8@data, N]", "f32[8, N@data]", "dim 0 to 1"),
}
"""Collective -> the types of its operand and result, and its dimensions."""


def program(kind: str, elements: int) -> str:
    """Return a program of one collective on a buffer of some elements."""
    x, y, dims = (text.replace("N", str(elements)) for text in STEPS[kind])
    step = f"{kind} %x over data {dims}"
    return f"{BOX}func @f(%x: {x}) -> {y} on @m {{\n  %r = {step}\n  return %r\n}}\n"


@pytest.mark.parametrize("kind", STEPS)
def test_each_row_is_the_cost_of_a_program_of_that_size(kind: str) -> None:
    module = collir.parse(program(kind, 64))
    report = json.loads(collir.emit(module, "sizes-json{begin=32 end=1MiB factor=8}"))
    (step,) = report["functions"][0]["steps"]
    assert step["op"] == kind
    assert len(step["rows"]) == 6
    for row in step["rows"]:
        (cost,) = collir.cost(collir.parse(program(kind, row["size"] // 4)))
        assert row["time_s"] == pytest.approx(cost.time)
        assert row["size"] == cost.steps[0].collective.size
        assert row["algbw"] == pytest.approx(row["size"] / cost.time)


@pytest.mark.parametrize("kind", STEPS)
def test_predictions_are_read_as_measurements(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "box.coll").write_text(program(kind, 64))
    (tmp_path / "times.txt").write_text(
        collir.emit(collir.parse(program(kind, 64)), "sizes{begin=4K end=1GiB factor=16}")
    )
    files = f"{tmp_path}/times.txt,over=node:2*gpu:4"
    assert collir_tool.main(["compare", f"{tmp_path}/box.coll", "--from", files, "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    report = json.loads(out)
    assert report["times"] == 5
    assert {point["collective"] for point in report["points"]} == {kind}
    for point in report["points"]:
        assert point["ratio"] == pytest.approx(1, rel=2e-3)  # times are printed with few digits


def test_all_tables_of_a_program_are_read() -> None:
    module = collir.parse(EXAMPLES.parent / "sync_gradients.coll")
    collir.run_passes(module, "decompose{strategy=rs-ar-ag}")
    measurements = read(collir.emit(module, "sizes{begin=1K end=1M}"))
    kinds = [table.rows[0].kind for table in measurements.tables]
    assert kinds == ["reduce_scatter", "all_reduce", "all_gather"]
    assert [len(table.rows) for table in measurements.tables] == [11, 11, 11]
    assert measurements.remarks == ()


def test_a_table_has_a_row_for_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", str(EXAMPLES / "pod.coll"), "--model", "alpha-beta", "--algorithm", "ring"]
    assert collir_tool.main([*words, "--from", str(EXAMPLES / "two_hosts.txt")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "collective",
        "ranks",
        "bytes",
        "measured",
        "predicted",
        "ratio",
        "from",
    ]
    assert len(lines) == 1 + 24 + 2
    assert lines[1].split()[:6] == ["all_reduce", "16", "1.02", "KB", "119", "us"]
    assert lines[-1].startswith("24 times: median error ")


@pytest.mark.parametrize(
    ("text", "size"),
    [(8, 8), ("8", 8), ("8K", 8192), ("8KB", 8000), ("8KiB", 8192), ("1.5G", 3 << 29), ("2B", 2)],
)
def test_sizes_are_those_of_nccl_tests_or_have_units(text: int | str, size: int) -> None:
    assert bytes_of(text) == size


@given(begin=st.integers(1, 10**6), times=st.integers(1, 10**6), factor=st.floats(1.001, 100))
def test_sizes_grow_from_the_first_to_the_last(begin: int, times: int, factor: float) -> None:
    try:
        sizes = SizesTarget(begin=begin, end=begin * times, factor=factor).sizes()
    except ValueError as error:
        assert "1000 sizes" in str(error)
        return
    assert sizes[0] == begin
    assert list(sizes) == sorted(set(sizes))
    assert sizes[-1] <= begin * times < max(sizes[-1] * factor, sizes[-1] + 1) + 1
