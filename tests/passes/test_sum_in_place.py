"""The pass `sum-in-place` on random losses in microbatches: the same results, in less memory."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from support.harness.seeds import fresh
from support.programs.batch_losses import random_loss
from support.programs.collectives import RANDOM
from support.programs.staged_steps import step_of
from support.semantics.local_programs import assert_runs, lowered
from support.semantics.staged_checks import assert_computes
from support.targets.on_ranks import differences
from support.tools.swept import GPT, all_of, space_of
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.cost.programs.memory import BufferUse
from collir.cost.programs.simulation import Simulation
from collir.dialects.local import LocalFuncOp, LocalRepeatOp
from collir.ir.diagnostics import DiagnosticError
from collir.syntax.writer import write
from collir.synthesis.sweeping.configuration import SUMMED


def in_microbatches(rng: random.Random, before: ModuleOp) -> ModuleOp | None:
    """Return a step in microbatches, with explicit layouts; None if it cannot be."""
    once = rng.choice(["", "{reduce-once=true}"])
    passes = f"microbatch{{microbatches={rng.choice([2, 4])}}},propagate{once},canonicalize,cse"
    try:
        return collir.run_passes(before.clone(), passes)
    except DiagnosticError:
        return None


def sums_of(program: LocalFuncOp) -> tuple[int, int]:
    """Return how many carries of loops have one buffer, and how many have two."""
    loops = [op for op in program.walk() if isinstance(op, LocalRepeatOp)]
    pairs = [pair for op in loops for pair in zip(op.ends, op.spares, strict=True)]
    alone = sum(end is spare for end, spare in pairs)
    return alone, len(pairs) - alone


def assert_sums(rng: random.Random) -> bool:
    """Check a random loss in microbatches; return whether the pass changes it."""
    before = collir.parse(random_loss(rng).text, "loss.coll")
    cut = in_microbatches(rng, before)
    if cut is None:
        return False
    after = collir.run_passes(cut.clone(), SUMMED)
    assert_computes(before, after)
    step = step_of(after)
    program, old = (lowered(x)[step.sym_name.data] for x in (after, cut))
    assert_runs(program, after, step, rng)
    assert sums_of(program)[0] >= sums_of(old)[0]
    return write(cut) != write(after)


@given(rng=RANDOM)
@settings(max_examples=2)
def test_random_losses(rng: random.Random) -> None:
    _ = assert_sums(rng)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_more_random_losses(seed: int) -> None:
    rng = fresh(seed)
    assert sum(assert_sums(rng) for _ in range(30)) > 10


@pytest.mark.turns
def test_on_ranks(tmp_path: Path) -> None:
    """Sums that C programs write over are those of the numpy executor."""
    rng, found = fresh("sums on ranks"), list[ModuleOp]()
    while not found:
        cut = in_microbatches(rng, collir.parse(random_loss(rng).text, "loss.coll"))
        after = cut and collir.run_passes(cut.clone(), SUMMED)
        if cut and after and write(cut) != write(after):
            found.append(after)
    [after] = found
    alone, _ = sums_of(lowered(after)[step_of(after).sym_name.data])
    assert alone
    assert differences(after, [step_of(after)], tmp_path) == []


@pytest.mark.turns
def test_gradients_are_summed_in_one_buffer() -> None:
    """Beside the sums, which are in f32, there are no gradients of all layers in bf16."""
    model = GPT.model
    [c] = [
        c
        for c in all_of(space_of(model, 8))
        if (c.degrees["data"], c.microbatches, c.zero, c.recompute) == (8, 4, 1, False)
    ]
    with_sums, before = (
        model.simulated(c, passes) for passes in (c.passes, c.passes.replace(f"{SUMMED},", ""))
    )
    stacks = 12 * 24 * 2048**2 * 2  # bytes of the weights of layers in bf16
    assert stacks < _gradients(before) and _gradients(with_sums) < stacks / 10
    assert with_sums.peak < before.peak
    _, uses = with_sums.memory_by_use[0]
    assert uses[BufferUse.PARAMETERS] < stacks  # of which the exact ones are divided


def _gradients(simulation: Simulation) -> float:
    """Return the bytes of gradients in the loop over microbatches at its peak, sums apart."""
    [loop] = [step.loop for step in simulation.program if step.loop is not None]
    return loop.peak.uses.get(BufferUse.GRADIENTS, 0)
