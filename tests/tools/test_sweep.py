"""``collir sweep`` finds the fastest configuration: all of small spaces are simulated beside it."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from collir.synthesis.sweeping.configuration import Configuration
from collir.synthesis.sweeping.groups import Estimate
from collir.synthesis.sweeping.space import Space
from collir.tools.collir import main
from collir.tools.machine import preset
from collir.tools.sweep_model import Model
from collir.tools.sweep_search import MEMORY_MARGIN, TIME_MARGINS

EXAMPLE = Path(__file__).parents[2] / "examples" / "models" / "sweep.coll"
SIZES = {"batch": 16, "seq": 512, "hidden": 1024, "layers": 4, "vocab": 8192}


def _model() -> Model:
    machine = preset("dgx_a100_80gb").op.value()
    text = EXAMPLE.read_text(encoding="utf-8")
    return Model(str(EXAMPLE), text, "", tuple(SIZES.items()), machine, "pipe")


def _space(model: Model, devices: int) -> Space:
    step = model.step
    batch, layers = step.parameters[step.batch], step.parameters[step.layers]
    axes = step.axes, step.data, step.pipeline
    return Space(model.machine, *axes, (devices,), batch, layers, chunks=(2,))


def _estimates(model: Model, space: Space) -> list[tuple[Configuration, Estimate]]:
    found = model.estimator(1).estimates(space.configurations(Counter()))
    return [(c, estimate) for c, estimate in found if isinstance(estimate, Estimate)]


def _check(model: Model, space: Space) -> None:
    """Simulate all configurations of a space, and compare them with their estimates."""
    entries = _estimates(model, space)
    assert entries
    for configuration, estimate in entries:
        simulation = model.simulated(configuration)
        timed = estimate.timed()
        margin = TIME_MARGINS[configuration.zero]
        assert estimate.time <= timed <= simulation.time * (1 + margin), configuration
        assert estimate.memory <= simulation.peak * (1 + MEMORY_MARGIN), configuration


def test_estimates_are_bounds_of_simulations() -> None:
    model = _model()
    degrees = {"pipe": (2,), "data": (2,)}
    _check(model, replace(_space(model, 4), degrees=degrees, recompute=(False,), zero=(0,)))


@pytest.mark.slow
def test_estimates_are_bounds_of_all_simulations() -> None:
    model = _model()
    _check(model, _space(model, 8))


def _swept(capsys: pytest.CaptureFixture[str], *more: str, microbatch: str = "1,4") -> str:
    """Return what a sweep of a small space without stages prints."""
    arguments = ["sweep", str(EXAMPLE), "--machine", "@dgx_a100_80gb", "--devices", "4"]
    arguments += ["--degree", "pipe=1", "--degree", "model=1,2", "--recompute", "none"]
    arguments += ["--microbatch", microbatch, "--workers", "1", "--top", "3"]
    for name, size in SIZES.items():
        arguments += ["--set-size", f"{name}={size}"]
    assert main([*arguments, *more]) == 0
    return capsys.readouterr().out


def test_the_best_and_the_front_are_those_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(_swept(capsys, "--zero", "0,1", "--pareto", "--json"))
    assert all(space["proven"] for space in found["spaces"])
    model = _model()
    space = replace(
        _space(model, 4),
        degrees={"pipe": (1,), "model": (1, 2)},
        recompute=(False,),
        zero=(0, 1),
        microbatch=(1, 4),
    )
    simulations = [model.simulated(c) for c in space.configurations(Counter())]
    times = sorted(simulation.time for simulation in simulations)
    assert [each["seconds"] for each in found["best"]] == times[:3]
    front = {(each["seconds"], each["memory_bytes"]) for each in found["front"]}
    points = {(simulation.time, simulation.peak) for simulation in simulations}
    beaten = {x for x in points for y in points if y != x and y[0] <= x[0] and y[1] <= x[1]}
    assert len(front) > 1
    assert front == points - beaten


def test_an_explanation_lists_single_changes(capsys: pytest.CaptureFixture[str]) -> None:
    more = "--zero", "0", "--explain", "2", "--compare", "1", "2", "--memory", "1 GB"
    explanation = _swept(capsys, *more, microbatch="1,2,4").partition("2 of 4 devices")[2]
    assert "computing" in explanation
    assert "does not fit" in explanation
    comparison = explanation.rpartition("4 devices")[2]
    assert "tokens/s" in comparison


def test_a_written_program_takes_the_time_that_is_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "best.coll"
    arguments = ["sweep", str(EXAMPLE), "--machine", "@dgx_a100_80gb", "--devices", "8", "--json"]
    arguments += ["--degree", "pipe=2", "--degree", "model=2", "--recompute", "full", "--zero", "3"]
    arguments += ["--microbatch", "2", "--workers", "1", "--top", "1", "-o", str(path)]
    arguments += ["--set-size", "layers=4"]
    assert main(arguments) == 0
    [best] = json.loads(capsys.readouterr().out)["best"]
    import collir
    from collir.tools.functions import for_report

    module = collir.run_passes(collir.parse(path), best["passes"])
    [simulation] = collir.simulate(for_report(module, ["step"]))
    assert simulation.time == best["seconds"]
    assert simulation.peak == best["memory_bytes"]
