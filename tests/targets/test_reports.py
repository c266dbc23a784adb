"""Reports for people and for programs have the numbers of the cost model."""

import json
import random

import pytest
from hypothesis import given, settings
from support.machine import levelled_machines
from support.programs.collectives import RANDOM

import collir
from collir.targets.reports.crossover import SIZES
from collir.targets.reports.text import bytes_text, rate_text, ratio_text, seconds_text, table

SYNC = """\
machine @a100x4 {
  level node[4] { port =   8 GB/s, latency = 20 us }
  level gpu[16] { port = 270 GB/s, latency =  3 us }
}
mesh @m on @a100x4 { data = node:4 * gpu:2, model = gpu:8 }
func @flat(%g: f32[536870912] partial(sum: data)) -> f32[536870912] on @m {
  %r = all_reduce %g over data using ring
  return %r
}
func @steps(%g: f32[536870912] partial(sum: data)) -> f32[536870912] on @m {
  %0 = reduce_scatter %g over data.gpu dim 0
  %1 = all_reduce %0 over data.node
  %2 = all_gather %1 over data.gpu dim 0
  return %2
}
func @nothing(%g: f32[16]) -> f32[16@data] on @m {
  %r = slice %g over data dim 0
  return %r
}
"""


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (1.0, "1.00 s"),
        (0.0123456, "12.3 ms"),
        (999.6e-6, "1.00 ms"),
        (3e-6, "3.00 us"),
        (2.5e-9, "2.50 ns"),
        (0.0, "0 ns"),
        (4321.0, "4321 s"),
    ],
)
def test_times(value: float, shown: str) -> None:
    assert seconds_text(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0 B"),
        (1, "1 B"),
        (999, "999 B"),
        (1000, "1 KB"),
        (2**31, "2.15 GB"),
        (1.5e6, "1.50 MB"),
    ],
)
def test_sizes(value: float, shown: str) -> None:
    assert bytes_text(value) == shown


def test_rates_ratios_and_tables() -> None:
    assert rate_text(235e9) == "235 GB/s"
    assert rate_text(float("inf")) == "-"
    assert (ratio_text(3, 2), ratio_text(300, 2), ratio_text(1, 0)) == ("1.50x", "150x", "-")
    assert table(["a", "b"], [["x", "1"], ["yy", "22"]], left=1) == ["a    b", "x    1", "yy  22"]


def test_the_json_form() -> None:
    """Computed by hand: on a NIC that 8 groups share, a ring of 8 ranks sends 8 * 2 * 7/8
    buffers; its code waits for the slowest hop in each of 14 rounds."""
    report = json.loads(collir.emit(collir.parse(SYNC), "cost-json{model=alpha-beta}"))
    flat, steps, nothing = report["functions"]
    assert (flat["name"], flat["machine"], flat["mesh"]) == ("flat", "a100x4", "m")
    (step,) = flat["steps"]
    size = 4 * 536870912
    assert step["op"] == "all_reduce"
    assert step["over"] == ["data.node", "data.gpu"]
    assert step["algorithm"] == "ring"
    assert step["bytes"] == size
    assert step["port_bytes"] == {"node": 14 * size, "gpu": 2 * 7 / 8 * size}
    hops = 14 * 20e-6
    assert step["time_s"] == pytest.approx(14 * size / 8e9 + hops)
    assert step["bound_s"] == pytest.approx(8 * 2 * 3 / 4 * size / 8e9)
    assert [s["op"] for s in steps["steps"]] == ["reduce_scatter", "all_reduce", "all_gather"]
    assert steps["time_s"] == pytest.approx(sum(s["time_s"] for s in steps["steps"]))
    assert steps["bound_s"] == pytest.approx(sum(s["bound_s"] for s in steps["steps"]))
    assert steps["time_s"] < flat["time_s"]
    assert (nothing["steps"], nothing["time_s"]) == ([], 0)


def test_the_python_api_the_table_and_the_json_agree() -> None:
    module = collir.parse(SYNC)
    for model in ("alpha-beta", "p2", "nccl"):
        functions = json.loads(collir.emit(module, f"cost-json{{model={model}}}"))["functions"]
        costs = collir.simulate(module, model=model)
        assert [f["time_s"] for f in functions] == [c.time for c in costs]
        page = collir.emit(module, f"cost{{model={model}}}")
        for cost in costs:
            assert f"@{cost.name} on @m (@a100x4, 64 devices): {seconds_text(cost.time)}" in page


def test_the_order_of_ranks_is_an_option() -> None:
    text = SYNC.replace("over data using", "over data.gpu, data.node using")
    module = collir.parse(text)
    written, hardware = (
        collir.simulate(module, model="alpha-beta", order=order)[0].time
        for order in ("written", "hardware")
    )
    assert written == pytest.approx(2 * hardware, rel=1e-3)


def test_crossover_of_strategies_says_where_the_fastest_changes() -> None:
    text = SYNC.partition("func @steps")[0].replace(" using ring", "")
    module = collir.parse(text)
    names = ["flat", "rs-ar-ag", "reduce-ar-bcast", "ar-per-level"]
    strategies = ",".join(names)
    target = f"crossover{{algorithm=ring strategies={strategies}}}"
    lines = collir.emit(module, target).splitlines()
    assert lines[0].split() == ["bytes/rank", *names, "fastest"]
    assert lines[-1].startswith("fastest: ")
    # The times of a size are those of the cost model for a buffer of that size.
    for size, line in zip((1000, 10_000_000_000), (lines[1], lines[-3]), strict=True):
        sized = collir.parse(text.replace("536870912", str(size // 4)))
        times = [
            seconds_text(collir.simulate(m, algorithm="ring")[0].time)
            for m in (
                collir.run_passes(sized.clone(), f"decompose{{strategy={name}}}") for name in names
            )
        ]
        assert all(time in line for time in times[:1]), (line, times)
    two = collir.emit(module, "crossover{strategies=flat,rs-ar-ag}").splitlines()
    assert two[0].split() == ["bytes/rank", "flat", "rs-ar-ag", "fastest"]


@pytest.mark.turns
def test_crossover_shows_the_programs_that_a_search_finds_for_some_size() -> None:
    """Small buffers are reduced in fewer steps than large ones; each program is best somewhere."""
    text = SYNC.partition("func @steps")[0].replace(" using ring", "")
    lines = collir.emit(
        collir.parse(text), "crossover{model=alpha-beta algorithm=ring}"
    ).splitlines()
    columns = [f"best {number}" for number in range(1, 9) if f"best {number}" in lines[0]]
    programs = [line for line in lines if line.startswith("best ")]
    assert columns and [line.partition(":")[0] for line in programs] == columns
    assert all(sum(line.endswith(name) for line in lines) >= 1 for name in columns)
    size = next(size for size, line in zip(SIZES, lines[1:], strict=False) if "best 1" in line)
    sized = collir.parse(text.replace("536870912", str(int(size) // 4)))
    after = collir.run_passes(sized, "decompose{model=alpha-beta algorithm=ring}")
    kinds = [op.name.partition(".")[2] for op in after.walk() if op.name.startswith("coll.")]
    [program] = [line for line in programs if line.startswith("best 1:")]
    assert [step.split()[0] for step in program.removeprefix("best 1: ").split("; ")] == kinds


@pytest.mark.turns
def test_a_plot_is_svg_and_always_the_same() -> None:
    pytest.importorskip("matplotlib")
    module = collir.parse(SYNC)
    plot = collir.emit(module, "crossover{svg=true}")
    assert plot.startswith("<?xml")
    assert all(f">{name}</text>" in plot for name in ("flat", "steps", "bytes per rank"))
    assert plot == collir.emit(module, "crossover{svg=true}")


APART = """\
machine @two {
  level node[2] { port =  8 GB/s, latency = 20 us }
  level gpu[2]  { port = 80 GB/s, latency =  3 us }
}
mesh @m on @two { pipe = node:2, data = gpu:2 }
func @f(%x: f32[64] partial(sum: data)) -> (f32[64] at(pipe = 0), f32[64]) on @m {
  %a = all_reduce %x over data
  %k = keep %a at pipe = 1
  %s = send %k over pipe from 1 to 0
  %same = permute %a to f32[64]
  return %s, %same
}
"""


def test_sizes_have_a_table_for_each_place_that_runs_a_step() -> None:
    module = collir.parse(APART)
    [function] = json.loads(collir.emit(module, "sizes-json{end=16}"))["functions"]
    [costed] = json.loads(collir.emit(module, "cost-json"))["functions"]
    assert [step["op"] for step in function["steps"]] == [step["op"] for step in costed["steps"]]
    assert [(step["op"], step.get("at", "")) for step in function["steps"]] == [
        ("all_reduce", "pipe = 0"),
        ("all_reduce", "pipe = 1"),
        ("send", "pipe = 1 to pipe = 0"),
        ("permute", "pipe = 0"),
        ("permute", "pipe = 1"),
    ]
    text = collir.emit(module, "sizes{end=16}")
    assert "# @f on @m: all_reduce over data, 2 ranks, at pipe = 1\n" in text
    assert "# @f on @m: permute inside devices, at pipe = 0\n" in text
    assert "bounded by 0 ns" not in collir.emit(module, "cost")


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=15)
def test_rows_add_up_to_what_a_simulation_takes(rng: random.Random) -> None:
    """Where nothing overlaps, local steps and copies of results included."""
    module = collir.run_passes(collir.parse(levelled_machines.random_program(rng)), "decompose")
    [simulation] = collir.simulate(module)
    [function] = json.loads(collir.emit(module, "cost-json"))["functions"]
    assert function["time_s"] == simulation.time
    assert sum(row["time_s"] for row in function["steps"]) == pytest.approx(simulation.time)
