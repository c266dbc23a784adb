"""Tests of split-level: results and the costs of rings do not change."""

import random

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM, module_of, random_function, random_mesh
from support.semantics.checks import agree, functions_of, results_on_all_devices

import collir
from collir.dialects.machine import mesh_of
from collir.ir.verification import verify
from collir.machine import LinkKind
from collir.syntax.reader import read
from collir.syntax.writer import write
from collir.tools.api import run_passes

BOX = """\
machine @nodes(count = 4) {
  level node[count] { port =   8 GB/s, latency = 20 us }
  level gpu[16]     { port = 270 GB/s, latency =  3 us }
}
machine @box = @nodes(count = 2)
mesh @m on @box { data = node:2 * gpu:8, model = gpu:2 }
mesh @free on @box { data = 32 }
func @f(%g: f32[33554432@model] partial(sum: data)) -> f32[33554432@model] on @m {
  %r = all_reduce %g over data using ring
  return %r
}
"""


@given(rng=RANDOM)
@settings(max_examples=14)
def test_splitting_changes_no_result(rng: random.Random) -> None:
    mesh = random_mesh(rng, devices=rng.choice([4, 8, 12, 16]), weights=0.3)
    before = read(
        write(module_of([mesh], [random_function(rng, mesh, 5, "f", models=rng.random() < 0.3)])),
        "x.coll",
    )
    level = rng.choice(mesh.machine.levels)
    outer = rng.choice([n for n in range(1, level.size + 1) if level.size % n == 0])
    into = f"split-level{{level={level.name} into={outer},{level.size // outer}}}"
    try:
        after = run_passes(before.clone(), into)
    except collir.DiagnosticError as error:
        plain = level.kind is LinkKind.SWITCH and not (level.ports or level.parents)
        assert "lies across" in str(error) or not plain
        return
    verify(after)
    assert write(read(write(after))) == write(after)
    [old], [new] = functions_of(before), functions_of(after)
    assert agree(
        results_on_all_devices(after, new, seed=3),
        results_on_all_devices(before, old, seed=3),
        mesh_of(old).devices,
    )


@pytest.mark.parametrize("model", ["p2", "alpha-beta", "nccl"])
def test_rings_cost_what_they_did(model: str) -> None:
    before, after = read(BOX), run_passes(read(BOX), "split-level{level=gpu into=4,4}")
    assert collir.simulate(before, model=model)[0].time == pytest.approx(
        collir.simulate(after, model=model)[0].time
    )


def test_with_rings_groups_make_other_programs_cheaper() -> None:
    """Check latencies: a ring of 16 has 30 messages in a row, two rings of 4 have 12."""
    text = BOX.replace(" using ring", "").replace("33554432", "4096")
    options = "model=alpha-beta algorithm=ring"
    times = [
        collir.simulate(
            run_passes(read(text), f"{passes}decompose{{{options}}}"), "alpha-beta", "ring"
        )
        for passes in ("", "split-level{level=gpu into=4,4},")
    ]
    assert times[1][0].time < times[0][0].time
