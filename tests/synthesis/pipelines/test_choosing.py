"""The best schedule by the price of the simulator: against all named ones, and its own remark."""

import random

import pytest
from support.harness.hanging import HANG
from support.harness.seeds import fresh
from support.programs.pipelines import named_options, random_pipeline
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.programs.simulate import simulate
from collir.ir.diagnostics import DiagnosticError
from collir.syntax.units import seconds_text

SLOW_LINKS = """
machine @c {
  device { compute f64 = 10 TFLOP/s; memory = 40 GiB @ 1.5 TB/s }
  level node[2] { port = 1 GB/s, latency = 20 us }
}
mesh @m on @c { pipe = node:2 }
func @loss(batch = 96, layers = 2, width = 64)
    (%x: f64[batch, width], %w: f64[layers, width, width], %s: f64[width]) -> f64[] on @m auto {
  %y = repeat layers carry(%c = %x) slice(%w = %w) with(%s = %s) {
    %0 = mul %c, %s
    %1 = einsum "b i, i j -> b j" %0, %w
    yield %1
  }
  %q = mul %y, %y
  %l = mean %q dims [0, 1]
  return %l
}
func @step(batch = 96, layers = 2, width = 64)
    (%x: f64[batch, width], %w: f64[layers, width, width] parameter, %s: f64[width] parameter)
    -> (f64[], f64[layers, width, width], f64[width]) on @m auto {
  %l, %d, %e =
    gradient @loss(batch = batch, layers = layers, width = width)(%x, %w, %s) wrt %w, %s
  return %l, %d, %e
}
"""
"""A step whose sends take longer than its tasks, so that they wait for each other."""


def seconds_of(module: ModuleOp, options: str) -> float | None:
    """Return the simulated seconds of a step with stages; None if the options do not suit it."""
    try:
        after = collir.run_passes(module.clone(), f"pipeline{{{options}}},decompose")
    except DiagnosticError:
        return None
    [simulation] = [s for s in simulate(after) if s.name == "step"]
    return simulation.time


def best_of_named(text: str, options: str, limit: float = HANG) -> float:
    """Return the simulated seconds of the best schedule of a step, after a check that no named one
    is faster."""
    module = collir.parse(text, "step.coll")
    seconds = seconds_of(module, f"{options} schedule=optimal limit={limit:.0f}")
    assert seconds is not None
    for named in named_options():
        if (other := seconds_of(module, f"{options} {named}")) is not None:
            assert seconds <= other * (1 + 1e-9), named
    return seconds


@pytest.mark.turns
def test_sends_that_wait_for_each_other(caplog: pytest.LogCaptureFixture) -> None:
    """The remark says the time of the printed program, and what is not known to be better."""
    seconds = best_of_named(SLOW_LINKS, "microbatches=3")
    assert f"@step takes {seconds_text(seconds)}, and no schedule takes more than" in caplog.text


def test_devices_without_rates(caplog: pytest.LogCaptureFixture) -> None:
    """Tasks of maps alone take no time then, and sends do."""
    device = SLOW_LINKS[SLOW_LINKS.index("  device") : SLOW_LINKS.index("  level")]
    product = '%1 = einsum "b i, i j -> b j" %0, %w'
    text = SLOW_LINKS.replace(device, "").replace(product, "%1 = tanh %0")
    text = text.replace(" slice(%w = %w)", "").replace("wrt %w, %s", "wrt %s")
    text = text.replace("%l, %d, %e", "%l, %e").replace(
        "f64[], f64[layers, width, width], f", "f64[], f"
    )
    assert seconds_of(collir.parse(text, "step.coll"), "microbatches=2 schedule=optimal")
    assert "@step takes" in caplog.text


@pytest.mark.slow
def test_random_pipelines() -> None:
    rng = fresh("pipelines")
    for _ in range(10):
        text, options, _ = random_pipeline(random.Random(rng.getrandbits(32)))
        best_of_named(text, options, limit=5)
