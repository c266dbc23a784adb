"""Pipelines with different numbers of layers in their chunks, against the step as it was."""

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM
from support.programs.staged_steps import perceptron_text
from support.semantics.checks import (
    agree,
    functions_of,
    results_on_all_devices,
    results_on_one_device,
)
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.layout.pipelines.rules import RULES
from collir.semantics.reference.buffers import assemble, distribute
from collir.semantics.reference.collectives import Array
from collir.semantics.reference.executor import execute
from collir.tools import collrun


def function_named(module: ModuleOp, name: str) -> FuncOp:
    return next(f for f in functions_of(module) if f.sym_name.data == name)


def results(module: ModuleOp, tensors: list[Array]) -> list[Array]:
    """Return what the step of a module computes from whole tensors."""
    step = function_named(module, "step")
    mesh, rng = mesh_of(step), np.random.default_rng(0)
    types = [dist_type(argument) for argument in step.args]
    pairs = zip(tensors, types, strict=True)
    out = execute(module, step, [distribute(mesh, tensor, x, rng) for tensor, x in pairs])
    last = step.body.block.last_op
    assert last is not None
    return [
        assemble(mesh, value, dist_type(operand))
        for value, operand in zip(out, last.operands, strict=True)
    ]


def rows_of(stack: Array, places: list[int], layers: list[int]) -> list[Array]:
    """Return a stack of layers as the rows of its chunks, each in the order of places."""
    chunks = np.split(stack, np.cumsum(layers)[:-1])
    rows: list[dict[int, Array]] = []
    for place, chunk in zip(places, chunks, strict=True):
        if all(place in row for row in rows):
            rows.append({})
        next(row for row in rows if place not in row)[place] = chunk
    return [np.concatenate([row[place] for place in sorted(row)]) for row in rows]


def random_layers(rng: random.Random, places: list[int]) -> list[int]:
    """Return layers of chunks that are in one proportion in all rows."""
    shares = [rng.randint(1, 3) for _ in range(max(places) + 1)]
    times = [rng.randint(1, 2) for _ in places]
    return [
        shares[place] * times[places[:chunk].count(place)] for chunk, place in enumerate(places)
    ]


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=6)
def test_any_layers_compute_the_same(rng: random.Random) -> None:
    count = rng.randint(2, 4)
    rule = RULES[rng.choice(["gpipe", "1f1b", "zb-h1", "interleaved", "zb-v"])]
    places = list(rule.chunk_places(count, None))
    layers = random_layers(rng, places)
    whole = collir.parse(perceptron_text(count, sum(layers), count=2 * count), "step.coll")
    module = collir.run_passes(whole.clone(), "differentiate")
    listed = ",".join(map(str, layers))
    passes = f"differentiate,pipeline{{schedule={rule.name} layers={listed}}}"
    cut = collir.run_passes(whole.clone(), passes)
    cut = collir.parse(collir.emit(cut), "cut.coll")  # what is printed is read again
    numbers = np.random.default_rng(rng.randrange(2**32))
    types = [dist_type(argument) for argument in function_named(module, "step").args]
    x, z, ws, v, rate = (np.asarray(numbers.standard_normal(t.shape)) for t in types)
    loss, new_ws, new_v = results(module, [x, z, ws, v, rate])
    got_loss, *got_ws, got_v = results(cut, [x, z, *rows_of(ws, places, layers), v, rate])
    expected = [loss, *rows_of(new_ws, places, layers), new_v]
    for actual, right in zip([got_loss, *got_ws, got_v], expected, strict=True):
        assert np.allclose(actual, right, rtol=1e-10, atol=1e-12)
    shares = [layers[places.index(place)] for place in range(count)]
    divisor = int(np.gcd.reduce(shares))
    weights = mesh_of(function_named(cut, "step")).axes[0].weights
    lowest = tuple(share // divisor for share in shares)
    assert weights == (lowest if len(set(lowest)) > 1 else None)


def test_the_whole_is_what_all_devices_compute() -> None:
    """The steps on one device that stand for parts and assembled rows are right, too."""
    module = collir.parse(perceptron_text(4, 12), "step.coll")
    module = collir.run_passes(module, "differentiate,pipeline{layers=3,4,4,1}")
    step = function_named(module, "step")
    together = results_on_all_devices(module, step, 3)
    assert agree(together, results_on_one_device(step, 3), 2**16)


@pytest.mark.parametrize("engine", ["mpi", "mpi4py", pytest.param("torch", marks=pytest.mark.slow)])
def test_on_ranks(engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if engine == "torch":
        pytest.importorskip("torch")
    path = tmp_path / "step.coll"
    path.write_text(perceptron_text(3, 6), "utf-8")
    passes = "differentiate,pipeline{layers=2,3,1}"
    status = collrun.main(
        ["--engine", engine, "-n", "3", "-p", passes, "--function", "step", str(path)]
    )
    printed = capsys.readouterr()
    assert status == 0, printed.out + printed.err
    assert "step: ok, every rank's buffers are equal" in printed.out


@pytest.mark.turns
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", "interleaved"])
def test_balanced_layers_are_faster(schedule: str) -> None:
    source, times = perceptron_text(4, 12, words=64), list[float]()
    equal = "1,1,1,1,2,2,2,2" if schedule == "interleaved" else "3,3,3,3"
    for layers in (equal, "balanced"):
        passes = f"differentiate,pipeline{{schedule={schedule} layers={layers}}}"
        module = collir.run_passes(collir.parse(source, "step.coll"), passes)
        [simulation] = [s for s in collir.simulate(module) if s.name == "step"]
        times.append(simulation.time)
    assert times[1] < times[0]


def test_memory_limits_the_layers_of_places() -> None:
    """Under 1f1b the first place keeps most microbatches, so it gets fewer layers."""
    peaks: list[float] = []
    for memory in ("1 GiB", "{} B"):
        limit = memory.format(int(max(peaks, default=0)) - 1)
        module = collir.parse(perceptron_text(4, 24, count=8, memory=limit), "step.coll")
        module = collir.run_passes(module, "differentiate,pipeline{layers=balanced}")
        [simulation] = [s for s in collir.simulate(module) if s.name == "step"]
        peaks.append(simulation.peak)
    assert peaks[1] < peaks[0]
