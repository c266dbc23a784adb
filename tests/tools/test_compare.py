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
        (cost,) = collir.simulate(collir.parse(program(kind, row["size"] // 4)))
        assert row["time_s"] == pytest.approx(cost.time)
        assert row["size"] == cost.collectives[0].collective.size
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


HEAD = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong"
ROW = "  1073741824  268435456  float  sum  -1  "
ELIDED = f"""\
[0] # nThread 1 nGpus 1 minBytes 1073741824 maxBytes 1073741824 step: 2(factor)
[0] #  Rank  0 Group  0 Pid  1 on a device  0 [0x00] GPU
[0] ...
[0] #  Rank  7 Group  0 Pid  1 on b device  3 [0x07] GPU
[0] {HEAD}
[0] {ROW} 4478.8  239.74  419.54  0  4463.7  240.55  420.96  0
[0] # Avg bus bandwidth    : 420.3
"""
TWO_RUNS = f"""\
# nThread 1 nGpus 2 minBytes 1073741824 maxBytes 1073741824 step: 2(factor)
# nThread 1 nGpus 2 minBytes 1073741824 maxBytes 1073741824 step: 2(factor)
#  Rank  0 Group  0 Pid  100 on a device  0 [0x00] GPU
#  Rank  0 Group  0 Pid  100 on b device  0 [0x00] GPU
#  Rank  1 Group  0 Pid  101 on b device  1 [0x01] GPU
#  Rank  1 Group  0 Pid  101 on a device  1 [0x01] GPU
{HEAD}
{HEAD}
{ROW} 5200.0  206.49  206.49  0  5201.0  206.45  206.45  0
{ROW} 5200.0  206.49  206.49  0  5201.0  206.45  206.45  0
# Avg bus bandwidth    : 206.5
# Avg bus bandwidth    : 206.5
"""
LATENCY = "[1,0]<stdout>:# OSU MPI Latency Test v7.4\n[1,0]<stdout>:# Size  Avg Latency(us)\n"
CSV = "size(B),time(us)\n4294967296,24020\n"


@pytest.mark.parametrize(
    ("name", "text", "over", "row", "warning"),
    [
        ("elided.txt", ELIDED, "", ["all_reduce", "8", "1.07"], "2 of 8 ranks are listed"),
        ("two.txt", TWO_RUNS, "", ["all_reduce", "2", "1.07"], "rank 0 is listed 2 times"),
        ("lat.txt", f"{LATENCY}[1,0]<stdout>:8 1.05\n", ",over=gpu:2", ["send", "2", "8"], ""),
        ("r1_allreduce.csv", CSV, ",over=gpu", ["all_reduce", "4", "4.29"], ""),
    ],
)
def test_outputs_that_people_post_are_compared(
    name: str,
    text: str,
    over: str,
    row: list[str],
    warning: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "box.coll").write_text(BOX)
    (tmp_path / name).write_text(text)
    command = ["compare", f"{tmp_path}/box.coll", "--from", f"{tmp_path}/{name}{over}"]
    assert collir_tool.main(command) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[1].split()[:3] == row
    assert warning in err if warning else not err


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
