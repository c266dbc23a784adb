"""Tests of DistIR's figures: of its published rows, of single devices, and of all its operations.

The rows are 40 of those that microsoft/dist-ir at 7cfa1b0 stores; the others were run with it.
"""

import csv
from pathlib import Path

import pytest
from distir import MODELS, Configuration, evaluate, grid
from distir.evaluation import evaluate_stages
from distir.schedule import Job, time_steps
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cost.plain_distir import Program, simulate
from support.harness.hanging import within

ROWS = Path(__file__).parents[3] / "benchmarks" / "papers" / "distir" / "rows.csv"
DEGREES = ("batch_size", "dp_degree", "hp_degree", "pp_degree", "num_microbatches")

RUNS = [
    ("xs", 64, (1, 1, 1, 1), 35, 0.0005022919293968254, 8716292),
    ("xs", 64, (2, 1, 1, 1), 78, 0.0018135754869841275, 9043972),
    ("xs", 64, (1, 2, 1, 1), 78, 0.0006350220942222222, 4521988),
    ("xs", 64, (1, 1, 2, 2), 94, 0.0008629564972698411, 5603332),
    ("xs", 64, (1, 1, 4, 1), 44, 0.0006281210493968254, 2424836),
    ("xs", 64, (1, 2, 2, 2), 204, 0.0009541256553650802, 2916356),
    ("xs", 64, (2, 2, 2, 4), 824, 0.0017306853241904766, 2777088),
    ("xs", 64, (1, 4, 8, 4), 992, 0.0009864878283174614, 659460),
    ("small", 65536, (1, 1, 4, 8), 724, 11.858109490371051, 9126805504),
    ("small", 65536, (2, 2, 2, 8), 3048, 6.357310398502627, 4294967296),
    ("small", 65536, (4, 4, 4, 8), 12160, 1.7914763026529574, 1577058304),
]
"""Model, batch, degrees of data, tensor, pipeline and microbatches; operations, seconds, bytes."""

DEVICES = [
    (
        ("xs", 64, (1, 1, 4, 4)),
        [0.0010874604596825405, 0.000991347797333334, 0.0008999922549841274, 0.000808636712634921],
        [3358720, 3325952, 3325952, 3325956],
    ),
    (
        ("small", 65536, (1, 1, 4, 8)),
        None,
        [9126805504, 6845104128, 4697620480, 5502926852],
    ),
]


def plain(configuration: Configuration) -> Program:
    return Program(**vars(configuration))


def of_model(model: str, batch: int, degrees: tuple[int, int, int, int]) -> Configuration:
    return Configuration(*MODELS[f"mlp-{model}"], batch, *degrees)


def test_published_rows_are_reproduced() -> None:
    with ROWS.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    configurations = [
        Configuration(*MODELS[row["model_size"]], *(int(row[name]) for name in DEGREES))
        for row in rows
    ]
    results = evaluate(configurations)
    assert len(rows) == 40
    assert results.latencies == pytest.approx([float(row["latency"]) for row in rows], rel=1e-12)
    assert results.peaks.tolist() == [int(row["peak_memory"]) for row in rows]


@pytest.mark.parametrize(("model", "batch", "degrees", "operations", "latency", "peak"), RUNS)
def test_runs_are_reproduced(
    model: str,
    batch: int,
    degrees: tuple[int, int, int, int],
    operations: int,
    latency: float,
    peak: int,
) -> None:
    configuration = of_model(model, batch, degrees)
    results = evaluate([configuration])
    assert results.latencies[0] == pytest.approx(latency, rel=1e-12)
    assert results.peaks[0] == peak
    simulated = simulate(plain(configuration))
    assert simulated.counts.total() == operations
    assert (simulated.latency, simulated.peak) == (pytest.approx(latency, rel=1e-12), peak)


@pytest.mark.parametrize(("run", "clocks", "peaks"), DEVICES)
def test_devices_are_reproduced(
    run: tuple[str, int, tuple[int, int, int, int]], clocks: list[float] | None, peaks: list[int]
) -> None:
    configuration = of_model(*run)
    results = evaluate_stages([configuration])
    simulated = simulate(plain(configuration))
    assert results.peaks[:, 0].tolist() == list(simulated.peaks.values()) == peaks
    if clocks is not None:
        assert results.clocks[:, 0] == pytest.approx(clocks, rel=1e-12)
        assert list(simulated.clocks.values()) == pytest.approx(clocks, rel=1e-12)


def test_operations_are_counted() -> None:
    counts = simulate(plain(of_model("xs", 64, (2, 2, 2, 4)))).counts
    assert counts == {
        **dict.fromkeys(("MatMul", "Relu", "ReluGrad", "MatMulGrad"), 128),
        "Add": 96,
        "MPIAllreduce": 80,
        "Identity": 40,
        "Send": 32,
        "Concat": 24,
        "Loss": 16,
        "LossGrad": 16,
        "SGDOptimizer": 8,
    }


def test_the_schedule_of_two_stages() -> None:
    text = "0f0|0f1 1f0|0f2 1b0|0b0 1f1|0f3 1b1|0b1 1f2|1b2|0b2 1f3|1b3|0b3"
    expected = tuple(
        tuple(Job(int(job[0]), job[1] == "f", int(job[2])) for job in step.split())
        for step in text.split("|")
    )
    assert time_steps(2, 4) == expected


@st.composite
def configurations(draw: st.DrawFn) -> Configuration:
    """Draw small configurations that can run."""
    pipeline = draw(st.sampled_from([1, 2, 3, 4]))
    per_stage = draw(st.sampled_from([1, 2, 4, 6]))
    data, microbatches = draw(st.integers(1, 3)), draw(st.integers(1, 9))
    even = pipeline * per_stage % 2 == 0
    tensor = draw(st.integers(1, 3)) if even else 1
    width = tensor * draw(st.integers(1, 2000))
    batch = data * microbatches * draw(st.integers(1, 3000))
    return Configuration(pipeline * per_stage, width, batch, data, tensor, pipeline, microbatches)


@pytest.mark.turns
@settings(max_examples=60, deadline=None)
@given(st.lists(configurations(), min_size=1, max_size=4))
def test_figures_equal_those_of_all_operations(drawn: list[Configuration]) -> None:
    results = evaluate(drawn)
    for configuration, latency, peak in zip(drawn, results.latencies, results.peaks, strict=True):
        simulated = simulate(plain(configuration))
        assert latency == pytest.approx(simulated.latency, rel=1e-12)
        assert peak == simulated.peak
        stages = evaluate_stages([configuration])
        replicas = configuration.data * configuration.tensor
        assert stages.peaks[:, 0].tolist() * replicas == list(simulated.peaks.values())
        clocks = stages.clocks[:, 0].tolist() * replicas
        assert clocks == pytest.approx(list(simulated.clocks.values()), rel=1e-12)


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        (Configuration(16, 8, 64, pipeline=32), "16 layers are not divisible by 32 stages"),
        (Configuration(96, 8, 64, pipeline=32), "SGDOptimizer is not registered for 3 weights"),
        (Configuration(1, 8, 64, tensor=2), "1 layers cannot be divided in pairs over 2 devices"),
        (Configuration(2, 8, 64, tensor=3), "a width of 8 is not divisible by 3 devices"),
        (
            Configuration(2, 8, 64, data=2, microbatches=64),
            "a batch of 64 is not divisible by 2 replicas with 64 microbatches",
        ),
        (Configuration(2, 8, 0), "batch must be at least 1, not 0"),
    ],
)
def test_configurations_that_cannot_run_have_a_reason(
    configuration: Configuration, reason: str
) -> None:
    results = evaluate([configuration, Configuration(2, 8, 64)])
    assert results.reasons == (reason, None)
    assert (results.latencies[0], results.peaks[0]) == (-1, -1)
    assert results.peaks[1] > 0


def test_many_configurations_are_evaluated_together() -> None:
    """Check that thousands of configurations end soon."""
    degrees = [(d, h, p) for d in (1, 2, 4) for h in (1, 2, 4) for p in (1, 2, 4, 8, 16)]
    drawn = [
        Configuration(*MODELS[model], 2**exponent, d, h, p, k)
        for model in ("mlp-small", "mlp-medium", "mlp-large")
        for exponent in (10, 14)
        for d, h, p in degrees
        for k in (1, 2, 4, 8, 16, 32, 64, 128)
    ]
    assert len(drawn) == 2160
    with within():
        results = evaluate(drawn)
    assert min(results.latencies) > 0


def test_the_published_grid() -> None:
    models = ("mlp-small", "mlp-medium", "mlp-large")
    assert [len(grid(model)) for model in models] == [1035] * 3
    assert sum(len(grid(model)) for model in models) == 3105
    assert {c.devices for c in grid("mlp-xs", [1, 4], [8])} == {1, 4}
    assert all(c.rows >= 1 for c in grid("mlp-small"))
