"""Tests of P²'s programs as candidates: their number, their costs, and costs of our strategies."""

import json
import random

import pytest
from hypothesis import given, settings
from p2.candidates import p2_candidates
from p2.enumerate import RuleReading
from p2.strategies import json_of, text_of
from support.programs.collectives import RANDOM, module_of, random_mesh

import collir
from collir.cost.collectives.collective import Collective
from collir.cost.model import CostModel, step_cost
from collir.ir.diagnostics import Diagnostic
from collir.ir.remarks import listening
from collir.layout import Axis, Factor, Mesh
from collir.machine import Level, Machine
from collir.syntax.writer import write
from collir.synthesis.programs.fixed import STRATEGIES
from collir.synthesis.searching import TIME

CLUSTER = """\
machine @cluster {
  level node[2] { port =   8 GB/s, latency = 20 us }
  level gpu[16] { port = 270 GB/s, latency =  3 us }
}
mesh @m on @cluster { data = node:2 * gpu:16 }
func @sync(%g: f32[33554432] partial(sum: data)) -> f32[33554432] on @m {
  %r = all_reduce %g over data
  return %r
}
"""


def all_reduce(mesh: Mesh, size: float = 1e9) -> Collective:
    return Collective("all_reduce", mesh, tuple(mesh.by_name), size)


def two_levels(nodes: int, gpus: int) -> Mesh:
    machine = Machine("c", (Level("node", nodes, 8e9, 20e-6), Level("gpu", gpus, 270e9, 3e-6)))
    return Mesh("m", machine, (Axis.placed("data", [Factor("node", nodes), Factor("gpu", gpus)]),))


@pytest.mark.parametrize(
    ("reading", "number"),
    [(RuleReading.MASTER_ALL_REDUCE, 47), (RuleReading.LITERAL, 93), (RuleReading.NO_MASTER, 39)],
)
def test_the_numbers_of_the_paper(reading: RuleReading, number: int) -> None:
    for sizes in ((2, 4), (2, 16), (4, 3)):
        candidates = p2_candidates(all_reduce(two_levels(*sizes)), CostModel("p2"), reading=reading)
        assert len(candidates) == number
        times = [candidate.time for candidate in candidates]
        assert times == pytest.approx(sorted(times))


def test_scatter_reduce_gather_is_the_best_of_large_buffers() -> None:
    """Check the best program on two levels, as in the paper, and the formula of its time."""
    mesh, size, model = two_levels(2, 16), 2**31, CostModel("p2")
    best = p2_candidates(all_reduce(mesh, size), model)[0]
    assert [(s.collective.kind, s.collective.axes) for s in best.costs] == [
        ("reduce_scatter", ("data.gpu",)),
        ("all_reduce", ("data.node",)),
        ("all_gather", ("data.gpu",)),
    ]
    inside, across = 15 / 16 * size / 270e9, 2 * (1 / 2) * size / 8e9
    assert best.time == pytest.approx(2 * inside + across)


@given(rng=RANDOM)
@settings(max_examples=15)
def test_no_strategy_of_decompose_is_cheaper(rng: random.Random) -> None:
    """Compare in the order of the hardware, in which P² lists its programs."""
    mesh = random_mesh(rng)
    if not mesh.placed or not mesh.by_name:
        return
    axes = tuple(sorted(mesh.by_name, key=lambda axis: -mesh.by_name[axis].stride))
    text = _module(mesh, axes)
    model = rng.choice(["p2", "alpha-beta"])
    step = Collective("all_reduce", mesh, axes, 4.0 * 2**10 * mesh.devices)
    best = p2_candidates(step, CostModel(model), size=5)[0]
    assert best.time <= step_cost(step, CostModel(model)).time * (1 + 1e-9)
    levels = len({mesh.by_name[axis].level for axis in mesh.by_name})
    for strategy in STRATEGIES:
        if levels > 2 and strategy != "flat":  # may have more steps than the listed programs
            continue
        module = collir.run_passes(collir.parse(text), f"decompose{{strategy={strategy}}}")
        [cost] = collir.simulate(module, model=model)
        assert best.time <= cost.time * (1 + 1e-9)


def _module(mesh: Mesh, axes: tuple[str, ...]) -> str:
    """Return a program of an all_reduce over some sub-axes of a mesh."""
    elements = 2**10 * mesh.devices
    head = write(module_of([mesh], []))
    listed = ", ".join(axes)
    return head + (
        f"func @f(%g: f32[{elements}] partial(sum: {listed})) -> f32[{elements}] on @m {{\n"
        f"  %r = all_reduce %g over {listed}\n  return %r\n}}\n"
    )


def test_the_report_has_them() -> None:
    module = collir.parse(CLUSTER)
    text = text_of(module, "method=enumerate model=p2 top=3")
    assert text.startswith("@sync: all_reduce over data: 47 candidates, as one step ")
    assert "reduce_scatter data.gpu; all_reduce data.node; all_gather data.gpu" in text
    [entry] = json_of(module, "method=enumerate model=p2 top=2")
    assert (entry["function"], entry["collective"], entry["count"]) == ("sync", "all_reduce", 47)
    assert len(entry["candidates"]) == 2
    assert entry["candidates"][0]["program"] == [
        {"op": "reduce_scatter", "over": ["data.gpu"], "dim": 0, "root": []},
        {"op": "all_reduce", "over": ["data.node"], "dim": None, "root": []},
        {"op": "all_gather", "over": ["data.gpu"], "dim": 0, "root": []},
    ]
    assert entry["bound_s"] <= entry["candidates"][0]["time_s"] <= entry["baseline_s"]


def test_the_front_trades_time_for_memory() -> None:
    """Check that every program of the front is the cheapest within its memory."""
    text = CLUSTER.replace("data = node:2 * gpu:16", "data = node:2 * gpu:4, model = gpu:4")
    module = collir.parse(text)
    [entry] = json_of(module, "front=true")
    front = [(c["time_s"], c["memory_bytes"]) for c in entry["candidates"]]
    assert len(front) > 1
    assert front == sorted(front) and len({memory for _, memory in front}) == len(front)
    assert [memory for _, memory in front] == sorted((m for _, m in front), reverse=True)
    [best] = json_of(module, "top=1")
    assert front[0][0] == best["candidates"][0]["time_s"]
    unsharded = 2 * 33554432 * 4
    for time, memory in front:
        within = f"top=1 memory={memory / unsharded}"
        [limited] = json_of(module, within)
        assert limited["candidates"][0]["time_s"] == pytest.approx(time)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 7), (7, 1), (13, 1)])
def test_machines_of_one_device_and_of_primes(sizes: tuple[int, int]) -> None:
    nodes, gpus = sizes
    text = CLUSTER.replace("node[2]", f"node[{nodes}]").replace("gpu[16]", f"gpu[{gpus}]")
    text = text.replace("data = node:2 * gpu:16", f"data = {nodes * gpus}")
    if nodes * gpus == 1:
        text = text.replace(" partial(sum: data)", "").replace(
            "all_reduce %g over data", "scale %g by 1"
        )
    assert "node" in collir.emit(collir.run_passes(collir.parse(text), "place,decompose"), "coll")
    module = collir.run_passes(collir.parse(text), "place")
    entries = json_of(module)
    assert len(entries) == (nodes * gpus > 1)
    for entry in entries:
        assert entry["bound_s"] <= entry["candidates"][0]["time_s"] <= entry["baseline_s"]


AXES_IN_ANOTHER_ORDER = """\
machine @c {
  level rack[2] { port = 10 GB/s, latency = 20 us }
  level node[2] { port = 80 GB/s, latency = 3 us }
  level gpu[4]  { port = 80 GB/s, latency = 3 us }
}
mesh @m on @c { data = gpu:2, model = rack:2 * node:2 * gpu:2 }
func @f(%x: bf16[67108864@(model.rack, model.gpu, data)]) -> TARGET on @m {
  %r = permute %x to TARGET
  return %r
}
func @g(%x: i8[64,1024,12288@(data, model)]) -> i8[64, 1024, 12288] on @m {
  %r = all_gather %x over data, model dim 2
  return %r
}
""".replace("TARGET", "bf16[67108864@(model.node, model.gpu, data)]")


@pytest.mark.parametrize("options", ["", "{order=hardware}", "{model=p2}"])
def test_permutes_cost_no_less_than_their_bound(options: str) -> None:
    """Check a mesh whose axes are declared in another order than that of the hardware."""
    costs = json.loads(collir.emit(collir.parse(AXES_IN_ANOTHER_ORDER), f"cost-json{options}"))
    for function in costs["functions"]:
        assert function["time_s"] >= function["bound_s"] > 0


@pytest.mark.parametrize("model", ["p2", "alpha-beta", "nccl"])
def test_decompose_writes_the_first_of_the_strategies(model: str) -> None:
    """Check a case in which the first strategy only changes the order of the sub-axes."""
    module = collir.parse(AXES_IN_ANOTHER_ORDER)
    entries = json_of(module, f"model={model} top=1")
    after = collir.run_passes(module, f"decompose{{model={model}}}")
    for entry, function in zip(entries, collir.simulate(after, model=model), strict=True):
        best = min(entry["candidates"][0]["time_s"], entry["baseline_s"])
        assert function.time == pytest.approx(best)


def test_options_of_the_other_method_are_refused() -> None:
    module = collir.parse(CLUSTER)
    for options in ("method=enumerate memory=1.5", "method=enumerate front=true", "size=3"):
        with pytest.raises(collir.UsageError, match="are of method="):
            text_of(module, options)


@pytest.mark.turns
def test_programs_of_p2_are_listed_within_the_limit() -> None:
    """Check a reduction with ten times as many programs as are found in a second."""
    levels = "".join(f"level l{n}[4] {{ port = 8 GB/s, latency = 3 us }}\n" for n in range(4))
    over = " * ".join(f"l{n}:4" for n in range(4))
    module = collir.parse(f"""
machine @k {{ {levels} }}
mesh @m on @k {{ x = {over} }}
func @f(%x: f32[65536] partial(sum: x)) -> f32[65536] on @m {{
  %r = all_reduce %x over x
  return %r
}}
""")
    remarks: list[Diagnostic] = []
    with listening(remarks.append):
        [entry] = json_of(module, "method=enumerate size=6 limit=1 model=alpha-beta")
    assert (entry["proven"], entry["ended"], entry["count"]) == (False, TIME, None)
    [remark] = remarks
    assert "cut off by the limit of 1 s" in remark.message
