"""Reports of a simulation have its numbers, in forms that other programs read."""

import json
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import collir
from collir.cost.model import CostModel
from collir.cost.network.loads import Resource, ResourceKind
from collir.cost.programs.simulate import simulate
from collir.cost.programs.simulation import Simulation
from collir.targets.reports.bars import bars_of
from collir.targets.reports.text import seconds_text

EXAMPLES = Path(__file__).parents[2] / "examples"

TEXT = """\
machine @c {
  device { memory = 1 GB @ 1 GB/s; reduction = 1 GB/s }
  level node[4] { port = 25 Gbit/s, latency = 20 us }
  level gpu[4]  { port = 10 GB/s,   latency =  3 us }
}
mesh @m on @c { data = node:4 * gpu:4 }
func @f(%g: f32[2097152] partial(sum: data), %h: f32[1024] partial(sum: data.node))
    -> (f32[2097152], f32[1024]) on @m {
  %0 = all_reduce %h over data.node async
  %1 = reduce_scatter %g over data.gpu dim 0 async
  %2 = all_reduce %1 over data.node
  %3 = all_gather %2 over data.gpu dim 0
  %4 = scale %0 by 2.0
  return %3, %4
}
func @local(%x: f32[1024]) -> f32[1024] on @m {
  %r = scale %x by 2.0
  return %r
}
func @nothing(%x: f32[1024]) -> f32[1024] on @m {
  return %x
}
"""


def emitted(target: str, text: str = TEXT) -> str:
    return collir.emit(collir.parse(text), target)


def simulations() -> list[Simulation]:
    return simulate(collir.parse(TEXT))


# --- tables -------------------------------------------------------------------------------------


def test_the_table_and_its_json_agree_with_the_simulation() -> None:
    functions = json.loads(emitted("simulate-json"))["functions"]
    for simulation, report in zip(simulations(), functions, strict=True):
        assert (report["time_s"], report["bound_s"]) == (simulation.time, simulation.bound)
        assert report["memory"]["peak_bytes"] == simulation.peak
        assert [(step["start_s"], step["end_s"]) for step in report["steps"]] == simulation.spans
        for step in report["steps"]:
            parts = step["latency_s"] + step["transfer_s"] + step["work_s"]
            assert parts == pytest.approx(step["alone_s"])
            assert step["alone_s"] <= (step["end_s"] - step["start_s"]) * (1 + 1e-9)
        levels = [level.name for level in simulation.mesh.machine.levels]
        busy = {
            Resource(levels.index(entry["level"]), ResourceKind(entry["part"])): entry["time_s"]
            for entry in report["busy_s"]
        }
        assert busy == simulation.busy


# --- traces -------------------------------------------------------------------------------------


def events(text: str = TEXT) -> list[dict[str, Any]]:
    return json.loads(emitted("trace", text))["traceEvents"]


def test_a_trace_has_a_process_for_each_level_and_one_for_the_device() -> None:
    names = {
        event["pid"]: event["args"]["name"] for event in events() if event["name"] == "process_name"
    }
    assert list(names.values())[:3] == ["@f level node", "@f level gpu", "@f device"]
    assert len(names) == 9
    assert all(event["pid"] in names for event in events())


def test_slices_of_a_thread_do_not_overlap_and_phases_lie_in_steps() -> None:
    slices: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in events():
        if event["ph"] == "X":
            lane = slices.setdefault((event["pid"], event["tid"]), [])
            start, length = (int(event[what] * 1000.0) for what in ("ts", "dur"))  # as Perfetto
            lane.append((start, start + length))
    for (pid, tid), spans in slices.items():
        assert spans == sorted(spans)
        for (_, end), (start, _) in pairwise(spans):
            assert start >= end
        if tid == 1:
            steps = slices[pid, 0]
            for start, end in spans:
                assert any(a <= start and end <= b for a, b in steps)
            covered = sum(end - start for start, end in spans)
            assert covered == sum(end - start for start, end in steps)


def test_counters_are_in_order_and_of_a_port_never_more_than_all() -> None:
    last: dict[tuple[int, str], float] = {}
    for event in events():
        if event["ph"] != "C":
            continue
        key = event["pid"], event["name"]
        assert event["ts"] >= last.get(key, 0.0)
        last[key] = event["ts"]
        (value,) = event["args"].values()
        assert 0 <= value <= 100 + 1e-9 or "memory" in event["name"]
    assert {name for _, name in last} == {
        "port of node (% in use)",
        "port of gpu (% in use)",
        "memory (bytes)",
    }


def test_arrows_lead_from_inside_a_slice_to_where_one_begins() -> None:
    slices = [x for x in events() if x["ph"] == "X" and x["tid"] % 2 == 0]
    arrows: dict[str, list[dict[str, Any]]] = {}
    for event in events():
        if event["ph"] in "sf":
            arrows.setdefault(event["id"], []).append(event)
    assert arrows
    for start, end in arrows.values():
        assert (start["ph"], end["ph"], end["bp"]) == ("s", "f", "e")
        assert (start["pid"], start["tid"]) != (end["pid"], end["tid"])
        for event in (start, end):
            own = [x for x in slices if (x["pid"], x["tid"]) == (event["pid"], event["tid"])]
            assert any(x["ts"] <= event["ts"] <= x["ts"] + x["dur"] for x in own)
        assert start["ts"] <= end["ts"]


# --- charts -------------------------------------------------------------------------------------


@pytest.mark.turns
def test_a_chart_is_svg_with_all_that_happens() -> None:
    text = emitted("gantt")
    root = ET.fromstring(text)
    assert root.tag.endswith("svg")
    words = [element.text for element in root.iter() if element.tag.endswith("text")]
    for word in ("node", "gpu", "device", "all_reduce", "reduce_scatter", "port of node"):
        assert word in words
    assert text == emitted("gantt")


LOOPS = """machine @box { level gpu[2] { port = 8 GB/s, latency = 3 us } }
mesh @m on @box { data = gpu:2 }
func @f(%x: f32[1024] partial(sum: data), %y: f32[2048@data]) -> (f32[1024], f32[2048]) on @m {
  %a = repeat 9 carry(%h = %x) {
    %b = all_reduce %h over data
    %c = mask %b over data op sum
    yield %c
  }
  %d = all_reduce %a over data
  %e = all_gather %y over data dim 0
  return %d, %e
}
"""


def test_the_steps_of_loops_are_drawn() -> None:
    """The first two iterations, those between as one, and the last."""
    [simulation] = collir.simulate(collir.parse(LOOPS))
    bars, lanes = bars_of(simulation)
    kinds = [bar.kind for bar in bars if bar.lane == lanes[-1]]
    assert kinds == [*["all_reduce"] * 3, "more iterations", "all_reduce", "all_gather"]
    [more] = [bar for bar in bars if bar.kind == "more iterations"]
    assert more.texts == ("6 iterations", "6x")
    assert max(bar.end for bar in bars) == pytest.approx(simulation.time)
    assert more.end - more.start == pytest.approx(6 * (bars[0].end - bars[0].start))


# --- explanations -------------------------------------------------------------------------------


def line_of(explanation: str, what: str) -> str:
    """Return the time in a line of an explanation."""
    (line,) = [line for line in explanation.splitlines() if line.strip().startswith(what)]
    return " ".join(line.removeprefix("    " + what).split()[:2])


@pytest.mark.parametrize(
    ("what", "old", "new"),
    [
        ("twice the port of node", "25 Gbit/s", "50 Gbit/s"),
        ("twice the port of gpu", "10 GB/s", "20 GB/s"),
        ("twice the rate of reducing", "reduction = 1 GB/s", "reduction = 2 GB/s"),
    ],
)
def test_what_would_help_is_what_the_better_machine_takes(what: str, old: str, new: str) -> None:
    explanation = emitted("explain{model=alpha-beta}").split("\n\n")[0]
    better = simulate(collir.parse(TEXT.replace(old, new)), CostModel("alpha-beta"))[0].time
    assert line_of(explanation, what) == seconds_text(better)


def test_other_programs_and_placements_are_those_of_the_passes() -> None:
    text = (EXAMPLES / "train.coll").read_text()
    explanation = emitted("explain", text).split("\n\n")[0]
    decomposed = collir.parse(text)
    collir.run_passes(decomposed, "decompose")
    best = simulate(decomposed)[0].time
    assert line_of(explanation, "its cheapest program") == seconds_text(best)
    unplaced = collir.parse(text.replace("node:2 * gpu:2", "4").replace("gpu:2", "2"))
    collir.run_passes(unplaced, "place,decompose")
    assert seconds_text(simulate(unplaced)[0].time) in explanation


def test_explanations_add_up() -> None:
    first = emitted("explain").split("\n\n")[0].splitlines()
    begin, end = first.index("  where its time goes:"), first.index("  what would help:")
    shares = [int(line.split()[-1].rstrip("%")) for line in first[begin + 1 : end]]
    assert 97 <= sum(shares) <= 103


# --- absurd sizes -------------------------------------------------------------------------------


@pytest.mark.turns
@pytest.mark.parametrize("target", ["simulate", "simulate-json", "trace", "gantt", "explain"])
def test_exabytes(target: str) -> None:
    """Times of years are printed as any other time."""
    text = TEXT.replace("2097152", str(2**60))
    assert simulate(collir.parse(text))[0].time > 1e9
    assert emitted(target, text)


def test_a_chart_of_many_kinds_of_steps_can_be_read() -> None:
    """Check that kinds differ in colour, that the legend is inside, and that no part is empty."""
    plots = pytest.importorskip("collir.targets.reports.plots")
    kinds = [f"mul+scale+tanh+add+scale+{number}" for number in range(27)]
    bars = [plots.Bar("device", n, n + 1.0, (kind,), kind) for n, kind in enumerate(kinds)]
    svg = plots.timelines(
        [plots.TimeChart("steps", 27.0, ["device"], bars, {}, {"": [(0.0, 1.0)]})]
    )
    assert "% in use" not in svg
    legend = svg[svg.index('id="legend_1"') :]
    places = [float(x) for x in re.findall(r'd="M ([-0-9.]+) ', legend)]
    assert min(places) > 0
    assert max(places) < 0.75 * 720  # the width of the chart in points; names are 2 inches long
    colours = re.findall(r"style=\"fill: (#\w+); stroke: \1;", legend)
    assert len(set(colours)) == len(colours) == len(kinds)
