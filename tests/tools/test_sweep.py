"""``collir sweep`` finds the fastest configuration: all of small spaces are simulated beside it."""

import json
import random
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from support.harness.browser import CHROMIUM, data_of, used
from support.harness.seeds import chosen
from support.programs.collectives import RANDOM
from support.semantics.staged_checks import assert_computes
from support.tools.swept import GPT, PERCEPTRON, Subject, all_of, estimates_of, space_of

import collir
from collir.cost.programs.simulation import Simulation
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.synthesis.sweeping.configuration import Configuration
from collir.synthesis.sweeping.space import ConfigurationSpace
from collir.tools.collir import main
from collir.tools.functions import for_report
from collir.tools.sweep_model import Model
from collir.tools.sweep_search import memory_margin, time_margin

SIZES = {"batch": 16, "seq": 512, "hidden": 1024, "layers": 4, "vocab": 8192}
SMALL_GPT = GPT._replace(sizes=SIZES)

both = pytest.mark.parametrize(
    "subject",
    [
        pytest.param(PERCEPTRON, id="perceptron"),
        pytest.param(SMALL_GPT, id="gpt", marks=pytest.mark.slow),
    ],
)


def _check(model: Model, space: ConfigurationSpace, most: int = 8) -> None:
    """Simulate ``most`` configurations of a space, and compare them with their estimates."""
    entries = [*estimates_of(model, all_of(space))]
    assert entries
    for configuration, estimate in chosen(entries, min(most, len(entries)), str(space)):
        simulation = model.simulated(configuration)
        timed = estimate.timed()
        margin = time_margin(configuration)
        assert estimate.time <= timed <= simulation.time * (1 + margin), configuration
        memory = simulation.peak * (1 + memory_margin(configuration, space.data[0]))
        assert estimate.memory <= memory, configuration


@pytest.mark.turns
def test_estimates_are_bounds_of_simulations() -> None:
    model = PERCEPTRON.model
    degrees = {"pipe": (1, 2), "model": (1, 2)}
    space = replace(space_of(model, 4), degrees=degrees, microbatch=(1,), recompute=(True,))
    _check(model, space)


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=6, deadline=None)
def test_configurations_compute_the_same(rng: random.Random) -> None:
    """Whatever a configuration divides, cuts, sends ahead and reorders, on all devices."""
    sizes = {"batch": 16, "seq": 4, "width": rng.choice([4, 8]), "layers": rng.choice([4, 5])}
    model = replace(PERCEPTRON._replace(sizes=sizes).model, added=("replica",))
    space = space_of(model, rng.choice([2, 4, 8]))
    degrees = {"replica": (rng.choice([1, 2]),)} if space.devices[0] > 2 else {}
    configuration = rng.choice(all_of(replace(space, degrees=degrees)))
    before = model.program(configuration)
    assert_computes(before, collir.run_passes(before.clone(), configuration.passes))


def test_sizes_that_divide_nothing_are_left_out() -> None:
    """Eight columns over 16 devices, though a step has eight microbatches when it is estimated."""
    model = PERCEPTRON._replace(sizes={"batch": 32, "seq": 4, "width": 2, "layers": 4}).model
    degrees = {"pipe": (1,), "data": (1,), "model": (8, 16)}
    space = replace(space_of(model, 16), degrees=degrees, microbatch=(1, 2, 4), recompute=(False,))
    space = replace(space, divided={})  # that of types is counted before there are estimates
    found = [*model.estimator(1).estimates(all_of(space, replace(space, devices=(8,))))]
    whole = {c.degrees["model"] for c, estimate in found if not isinstance(estimate, str)}
    reasons = {e for c, e in found if isinstance(e, str) and c.degrees["model"] == 16}
    assert whole == {8}
    assert reasons == {"a dimension does not divide by the size of an axis"}


def _over_two_axes(path: Path) -> Subject:
    """Return a perceptron whose batch is divided over `data` and `expert`, and products over the
    latter too."""
    text = PERCEPTRON.path.read_text().replace("data = gpu:2", "data = gpu:2, expert = gpu:2")
    text = text.replace("model = gpu:4", "model = gpu:2").replace("@data", "@(data, expert)")
    path.write_text(text)
    return Subject(path, {})


@pytest.mark.turns
def test_a_batch_may_be_over_several_axes(tmp_path: Path) -> None:
    subject = _over_two_axes(tmp_path / "two.coll")
    small = subject._replace(sizes={"seq": 4, "width": 4}).model
    model, degrees = subject.model, {"pipe": (1,), "model": (1, 2)}
    space = replace(space_of(model, 4), degrees=degrees, microbatch=(1, 2), recompute=(False,))
    assert {c.degrees["expert"] for c in all_of(space)} == {1, 2, 4}
    _check(model, space)
    for configuration in chosen(all_of(space), 3, "two axes"):
        before = small.program(configuration)
        assert_computes(before, collir.run_passes(before.clone(), configuration.passes))


@pytest.mark.turns
def test_configurations_that_cannot_be_compiled_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Kinds are compiled at small sizes, at which a pass may refuse nothing."""
    original = Model.simulated

    def simulated(self: Model, configuration: Configuration, passes: str = "") -> Simulation:
        if configuration.zero:
            raise DiagnosticError(Diagnostic("there is no such step"))
        return original(self, configuration, passes)

    monkeypatch.setattr(Model, "simulated", simulated)
    text = _swept(PERCEPTRON, capsys, "--microbatch=2", "--zero=0,1,3")
    assert "have no program: there is no such step\n" in text


@pytest.mark.turns
def test_kinds_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second sweep compiles no kind, also of another batch; a broken file is as none."""
    monkeypatch.setenv("COLLIR_CACHE", str(tmp_path))
    first = _swept(PERCEPTRON, capsys, "--json", "--zero", "0")
    files = [*tmp_path.iterdir()]
    assert files
    with monkeypatch.context() as patched:
        patched.setattr(Model, "_ingredients", None)
        assert _swept(PERCEPTRON, capsys, "--json", "--zero", "0") == first
        assert "seconds" in _swept(PERCEPTRON, capsys, "--json", "--zero", "0", "--global-batch=32")
    for file in files:
        file.write_bytes(b"no pickle")
    assert _swept(PERCEPTRON, capsys, "--json", "--zero", "0") == first


def test_a_sweep_that_has_no_time_lists_one(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(_swept(PERCEPTRON, capsys, "--json", "--time-limit", "0.01"))
    [space] = found["spaces"]
    assert not space["complete"]
    assert "enough" in space["reason"]
    assert found["best"][0]["seconds"] > 0


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param((2,), id="2"),
        pytest.param((1, 4, 8), id="others"),
    ],
)
@pytest.mark.slow
def test_estimates_of_a_gpt_are_bounds_of_simulations(rows: tuple[int, ...]) -> None:
    model = SMALL_GPT.model
    space = replace(space_of(model, 4), degrees={"pipe": (2,), "data": (2,)}, microbatch=rows)
    _check(model, replace(space, recompute=(False,), zero=(0,)), most=10**9)


@pytest.mark.slow
def test_estimates_are_bounds_of_all_simulations() -> None:
    model = SMALL_GPT.model
    _check(model, space_of(model, 8), most=10**9)


def _arguments(subject: Subject, devices: int) -> list[str]:
    """Return the arguments of a sweep on so many devices."""
    sizes = (f"--set-size={name}={size}" for name, size in subject.sizes.items())
    machine = ["--machine", "@dgx_a100_80gb", "--devices", str(devices)]
    return ["sweep", str(subject.path), *machine, "--workers", "1", *sizes]


def _swept(subject: Subject, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """Return what a sweep of a small space without stages prints."""
    degrees = ["--degree", "pipe=1", "--degree", "model=1,2"]
    arguments = _arguments(subject, 4)
    assert main([*arguments, *degrees, "--recompute", "none", "--top", "3", *more]) == 0
    return capsys.readouterr().out


@pytest.mark.turns
@both
def test_the_best_and_the_front_are_those_of_all(
    subject: Subject, capsys: pytest.CaptureFixture[str]
) -> None:
    more = "--zero", "0,1", "--microbatch", "1,2", "--pareto", "--json"
    found = json.loads(_swept(subject, capsys, *more))
    assert all(space["complete"] for space in found["spaces"])
    model = subject.model
    space = replace(
        space_of(model, 4),
        degrees={"pipe": (1,), "model": (1, 2)},
        recompute=(False,),
        zero=(0, 1),
        microbatch=(1, 2),
    )
    simulations = [model.simulated(c) for c in all_of(space)]
    times = sorted(simulation.time for simulation in simulations)
    assert [each["seconds"] for each in found["best"]] == times[:3]
    front = {(each["seconds"], each["memory_bytes"]) for each in found["front"]}
    points = {(simulation.time, simulation.peak) for simulation in simulations}
    beaten = {x for x in points for y in points if y != x and y[0] <= x[0] and y[1] <= x[1]}
    assert len(front) > 1
    assert front == points - beaten


@pytest.mark.turns
def test_machines_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "two.coll"
    path.write_text(
        "machine @slow = @dgx_a100_80gb\n"
        "machine @fast {\n"
        "  device { compute f32 = 900 TFLOP/s, bf16 = 900 TFLOP/s; memory = 80 GB @ 9 TB/s;\n"
        "    power = 1 kW; price = 3.6 USD/h }\n"
        "  level node[1] { port = 900 GB/s, latency = 1 us }\n"
        "  level gpu[8] { port = 900 GB/s, latency = 1 us } }\n"
    )
    arguments = _arguments(PERCEPTRON, 4)
    arguments[arguments.index("@dgx_a100_80gb")] = str(path)
    more = "--degree=pipe=1", "--degree=model=1", "--recompute=none", "--zero=0", "--top=1"
    files = f"-o={tmp_path}/best.coll", f"--csv={tmp_path}/best.csv"
    assert main([*arguments, *more, *files]) == 0
    *_, head, first, second = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["machine", "devices", "time"]
    assert head.endswith("USD per 10^12 tokens  MWh per 10^12 tokens")
    rate = float(first.split()[5].replace(",", ""))
    cost, energy = (float(x.replace(",", "")) for x in first.split()[-2:])
    assert cost == pytest.approx(4e12 / rate * 3.6 / 3600, rel=0.01)
    assert energy == pytest.approx(4e12 / rate / 3600 / 1e3, abs=0.06)
    assert second.split()[-2:] == ["-", "-"]
    assert (first.split()[0], second.split()[0]) == ("@fast", "@slow")
    assert "900 TFLOP/s" in (tmp_path / "best.coll").read_text()
    rows = (tmp_path / "best.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["machine", "slow", "fast"]


@pytest.mark.turns
@pytest.mark.parametrize(
    ("subject", "memory"),
    [
        pytest.param(PERCEPTRON, "400 MB", id="perceptron"),
        pytest.param(SMALL_GPT, "1 GB", id="gpt", marks=pytest.mark.slow),
    ],
)
def test_an_explanation_lists_single_changes(
    subject: Subject, memory: str, capsys: pytest.CaptureFixture[str]
) -> None:
    more = "--zero", "0", "--explain", "2", "--compare", "1", "2", "--memory", memory
    text = _swept(subject, capsys, *more, "--microbatch", "1,2,4")
    explanation, _, comparison = text.partition("2 of 4 devices")[2].rpartition("4 devices")
    assert "computing" in explanation
    assert "does not fit" in explanation
    assert "tokens/s" in comparison


@pytest.mark.turns
@pytest.mark.parametrize(
    "subject",
    [
        pytest.param(PERCEPTRON, id="perceptron"),
        pytest.param(GPT._replace(sizes={"layers": 4}), id="gpt", marks=pytest.mark.slow),
    ],
)
def test_a_written_program_takes_the_time_that_is_listed(
    subject: Subject, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "best.coll"
    arguments = [*_arguments(subject, 8), "--json", "--top", "1", "-o", str(path)]
    arguments += ["--degree", "pipe=2", "--degree", "model=2", "--recompute", "full", "--zero", "3"]
    assert main([*arguments, "--microbatch", "2"]) == 0
    [best] = json.loads(capsys.readouterr().out)["best"]
    module = collir.run_passes(collir.parse(path), best["passes"])
    [simulation] = collir.simulate(for_report(module, ["step"]))
    assert simulation.time == best["seconds"]
    assert simulation.peak == best["memory_bytes"]


@pytest.mark.turns
@pytest.mark.parametrize("ends", [" fused", ""])
def test_products_of_a_step_are_those_of_palm(tmp_path: Path, ends: str) -> None:
    """6 N + 12 L h s for each word, whether or not kernels skip half of the scores."""
    path = tmp_path / "model.coll"
    path.write_text(GPT.path.read_text().replace(" fused\n", f"{ends}\n"))
    model = Subject(path, SIZES).model
    hidden, layers, seq = SIZES["hidden"], SIZES["layers"], SIZES["seq"]
    weights = 12 * layers * hidden**2 + SIZES["vocab"] * hidden
    operations = SIZES["batch"] * seq * (6 * weights + 12 * layers * hidden * seq)
    assert model.least_seconds == pytest.approx(operations / 312e12, rel=1e-9)
    causal = replace(model, causal=True).least_seconds
    attention = SIZES["batch"] * seq * 12 * layers * hidden * seq
    skipped = (model.least_seconds - causal) * 312e12 / attention
    assert skipped == pytest.approx(0.5 * (1 - 128 / seq), rel=0.05) if ends else skipped == 0


@pytest.mark.turns
def test_gathers_of_stages_are_ahead_if_the_pipeline_has_the_memory() -> None:
    """Programs that are compared keep their schedule: there is no memory for all microbatches."""
    model = PERCEPTRON._replace(sizes={"batch": 256, "seq": 512, "width": 1024, "layers": 8}).model
    configuration = Configuration(
        (("pipe", (1, 2)), ("data", (1, 2)), ("model", (1, 1))),
        *("pipe", 256, 16, "1f1b", 1, True, 3),
    )
    without = configuration.passes.replace("prefetch,rotate,", "")
    most = model.simulated(configuration).peak
    device = model.machine.device
    assert device is not None
    small = replace(model, machine=replace(model.machine, device=replace(device, memory=most)))
    before, after = small.simulated(configuration, without), small.simulated(configuration)
    assert after.time < before.time * 0.99
    assert after.peak == most


@pytest.mark.turns
def test_a_plot_has_strategies_the_memory_and_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sweep.svg"
    more = "--zero=0,3", f"--plot={path}", "--memory=1 GB", "--microbatch=2"
    _ = _swept(PERCEPTRON, capsys, *more)
    text = path.read_text()
    legend = "ZeRO-3", "tensor", "data alone", "simulated, with its number"
    assert all(f">{words}</text>" in text for words in (*legend, "1 GB of a device", "3"))
    assert ">stages</text>" not in text


COMPARE = """
  for (const x of [...document.querySelectorAll("tbody input")].slice(0, 2)) x.click();
  for (const x of document.querySelectorAll("th button")) x.click();
  const zero = [...document.querySelectorAll(".filters select")]
    .find((x) => x.parentElement.textContent.startsWith("ZeRO"));
  zero.value = "3";
  zero.dispatchEvent(new Event("change"));
"""


def test_a_page_has_all_configurations_and_compares_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sweep.html"
    words = "--zero=0,3", f"--html={path}", "--memory=1 GB", "--microbatch=2", "--degree=pipe=1"
    _ = _swept(PERCEPTRON, capsys, *words)
    text = path.read_text(encoding="utf-8")
    [table] = data_of(text)["tables"]
    [zero] = [n for n, name in enumerate(table["names"], 3) if name == "ZeRO"]
    assert {point[zero] for point in table["points"]} == {"0", "3"}
    simulated = [x for x in table["points"] if table["kinds"][x[2]] == "simulated"]
    assert len(simulated) == len(table["rows"]) > 1
    body = re.findall(r"<tr data-row=.*?</tr>", text, re.DOTALL)
    times = [re.findall(r'data-value="([^"]*)">([^<]*)<', row)[1] for row in body]
    assert all(float(a) <= float(b) for (a, _), (b, _) in pairwise(times))  # the fastest first
    assert [own for _, own in times] == [row[1] for row in table["rows"]]
    if CHROMIUM:
        document = used(text, COMPARE, tmp_path)
        assert "What differs" in document
        few = sum(point[zero] == "3" for point in table["points"])
        assert f"{few} of {len(table['points'])} points" in document
