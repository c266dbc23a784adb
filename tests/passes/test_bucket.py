"""Tests of bucket: the rules, equal results, and programs that never get slower."""

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.harness.seeds import fresh, some
from support.programs.collectives import RANDOM, module_of
from support.programs.collectives import random_mesh as some_mesh
from support.programs.gradients import gradients
from support.semantics.checks import agree, functions_of, results_on_all_devices
from support.targets import on_ranks
from support.targets.async_code import hazards
from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.programs.simulate import simulate
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.operation import is_collective
from collir.layout import Mesh
from collir.synthesis.scheduling.bucketing import RULES, Bucketable, earliest_buckets, xla_rule

PAIR = """\
machine @pair {
  device { memory = 80 GB @ 2 TB/s }
  level node[2] { port = 8 GB/s, latency = 20 us }
  level gpu[2]  { port = 80 GB/s, latency = 3 us }
}
mesh @m on @pair { data = node:2, model = gpu:2 }
"""

UNLIKE = {
    "blocks that change places in the other direction": """
func @f(%x: f32[4@data, 4], %y: f32[4@data, 4], %z: f32[4, 4@data])
    -> (f32[4, 4@data], f32[4, 4@data], f32[4@data, 4]) on @m {
  %a = all_to_all %x over data dim 0 to 1
  %b = all_to_all %y over data dim 0 to 1
  %c = all_to_all %z over data dim 1 to 0
  return %a, %b, %c
}
""",
    "a value that not all ranks hold": """
func @f(%x: f32[8] partial(sum: data), %y: f32[8] partial(sum: data),
        %z: f32[8] partial(sum: data) root(model)) -> (f32[8], f32[8], f32[8] root(model)) on @m {
  %a = all_reduce %x over data
  %b = all_reduce %y over data
  %c = all_reduce %z over data
  return %a, %b, %c
}
""",
}


@pytest.mark.parametrize("reason", UNLIKE)
def test_of_three_collectives_the_two_that_are_alike_share_a_buffer(reason: str) -> None:
    before = collir.parse(PAIR + UNLIKE[reason])
    after = collir.run_passes(before.clone(), "bucket{rule=xla}")
    [old], [new] = functions_of(before), functions_of(after)
    assert sum(map(is_collective, new.body.ops)) == 2
    results = [results_on_all_devices(m, f, seed=3) for m, f in ((after, new), (before, old))]
    assert agree(results[0], results[1], 4)


# --- the rules ----------------------------------------------------------------------------------


def group_of(sizes: Sequence[int], ready: Sequence[float], needs: Sequence[int]) -> Bucketable:
    op = OPERATIONS["all_reduce"]
    return Bucketable(
        tuple(op.__new__(op) for _ in sizes),
        tuple(sizes),
        tuple(ready),
        tuple(needs),
        lambda size: 3.0 + size,
        lambda size: 0.5 + 0.25 * size,
    )


def end(group: Bucketable, buckets: Sequence[range]) -> float:
    """Return the time at which all members are done, with one bucket after the other."""
    now = 0.0
    for bucket in buckets:
        size = sum(group.sizes[index] for index in bucket)
        now = max(now, group.ready[bucket[-1]]) + group.time(size)
        now += group.packing(size) if len(bucket) > 1 else 0.0
    return now


def partitions(count: int) -> list[list[range]]:
    """Return all partitions of so many members into intervals."""
    listed: list[list[range]] = []
    for cuts in itertools.product([False, True], repeat=count - 1):
        places = [0, *(n + 1 for n, cut in enumerate(cuts) if cut), count]
        listed.append([range(a, b) for a, b in itertools.pairwise(places)])
    return listed


@given(data=st.data(), count=st.integers(1, 8))
@settings(max_examples=27)
def test_the_earliest_is_that_of_all(data: st.DataObject, count: int) -> None:
    sizes = [data.draw(st.integers(1, 9)) for _ in range(count)]
    waits = [data.draw(st.sampled_from([0.0, 1.0, 5.0])) for _ in range(count)]
    needs = [data.draw(st.sampled_from([-1, -1, n - 1])) for n in range(count)]
    group = group_of(sizes, list(itertools.accumulate(waits)), needs)

    def allowed(buckets: Sequence[range]) -> bool:
        return all(group.needs[index] < bucket[0] for bucket in buckets for index in bucket)

    best = min(end(group, buckets) for buckets in partitions(count) if allowed(buckets))
    for rule in RULES.values():
        assert allowed(rule(group))
    assert end(group, earliest_buckets(group)) == pytest.approx(best)


def test_rules_of_sizes() -> None:
    mib = 2**20
    group = group_of([mib // 2, mib // 2, 20 * mib, 4 * mib, 2 * mib, mib], [0] * 6, [-1] * 6)
    assert RULES["ddp"](group) == [range(2), range(2, 5), range(5, 6)]
    assert RULES["xla"](group) == [range(6)]
    assert xla_rule(6 * mib)(group) == [range(2), range(2, 3), range(3, 5), range(5, 6)]


# --- random programs ----------------------------------------------------------------------------


PASSES = [
    *(f"bucket{{rule={rule}}}" for rule in RULES),
    "bucket,overlap",
    "bucket{rule=xla},overlap",
]


@pytest.mark.turns
@pytest.mark.parametrize("passes", some(PASSES, 2))
@given(rng=RANDOM)
@settings(max_examples=8)
def test_it_computes_the_same(passes: str, rng: random.Random) -> None:
    before = gradients(rng)
    after = before.clone()
    try:
        collir.run_passes(after, passes)
    except collir.DiagnosticError:  # not on levels, no cost, not enough memory
        assert str(after) == str(before)
        return
    for old, new in zip(functions_of(before), functions_of(after), strict=True):
        results = [results_on_all_devices(m, f, seed=3) for m, f in ((after, new), (before, old))]
        assert agree(results[0], results[1], mesh_of(old).devices)
    assert hazards(after) == []


@pytest.mark.turns
@given(rng=RANDOM)
@settings(max_examples=10)
def test_it_never_takes_longer(rng: random.Random) -> None:
    module = gradients(rng)
    try:
        [before] = simulate(module)
        for passes in ("bucket", "overlap"):
            collir.run_passes(module, passes)
            [after] = simulate(module)
            assert after.time <= before.time * (1 + 1e-9)
            before = after
    except collir.DiagnosticError:
        return


@pytest.mark.turns
def test_on_ranks(tmp_path: Path) -> None:
    """Check packed and overlapped programs on real ranks."""
    functions: list[FuncOp] = []
    mesh: Mesh | None = None
    for seed in range(40):
        rng = fresh(seed)
        if mesh is None:
            mesh = some_mesh(rng, 8)
            mesh = mesh if mesh.placed and len(mesh.by_name) > 1 else None
        if mesh is None:
            continue
        module = gradients(rng, mesh)
        try:
            collir.run_passes(module, "bucket{rule=xla},decompose,overlap,canonicalize")
        except collir.DiagnosticError:
            continue
        [function] = functions_of(module)
        function.detach()
        functions.append(function)
        if len(functions) == 12:
            break
    assert len(functions) == 12
    for number, function in enumerate(functions):
        function.properties["sym_name"] = StringAttr(f"f{number}")
    assert mesh is not None
    module = module_of([mesh], functions)
    assert any(isinstance(op, OPERATIONS["concat"]) for op in module.walk())
    assert on_ranks.differences(module, functions, tmp_path) == []
