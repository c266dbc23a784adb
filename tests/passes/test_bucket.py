"""Collectives on one buffer: the same values, buckets that are right, and never dearer."""

import itertools
import random
from collections.abc import Sequence
from pathlib import Path

import on_ranks
import pytest
from async_code import hazards
from checks import agree, functions_of, results_on_all_devices
from gradients import gradients
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import RANDOM, module_of
from programs import random_mesh as some_mesh
from xdsl.dialects.builtin import StringAttr
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.simulation import simulate
from collir.dialects import coll
from collir.dialects.machine import mesh_of
from collir.layout import Mesh
from collir.synthesis.bucketing import RULES, Group, earliest, up_to

MACHINE = """\
machine @c {
  device { compute f32 = 1 TFLOP/s; memory = 1 GB @ 1 TB/s }
  level node[2] { port = 8 GB/s, latency = 20 us }
  level gpu[4]  { port = 270 GB/s, latency = 3 us }
}
mesh @m on @c { data = node:2, model = gpu:4 }
"""


def steps(body: str, passes: str) -> list[str]:
    """The steps of a function after passes."""
    module = collir.parse(MACHINE + body)
    collir.run_passes(module, passes)
    body = collir.emit(module, "coll").split("func @f")[1].split("{\n")[1]
    return [line.strip() for line in body.splitlines()[:-1]]


SMALL = """\
func @f(%x: f32[64, 32] partial(sum: data), %y: f32[32] partial(sum: data))
    -> (f32[64, 32], f32[32]) on @m {
  %a = all_reduce %x over data
  %b = all_reduce %y over data
  return %a, %b
}
"""


def test_two_small_ones_become_one() -> None:
    assert steps(SMALL, "bucket") == [
        "%0 = reshape %x to [2048]",
        "%1 = concat %0, %y dim 0",
        "%2 = all_reduce %1 over data",
        "%3 = pad %2 dim 0 high -32",
        "%a = reshape %3 to [64, 32]",
        "%b = pad %2 dim 0 low -2048",
        "return %a, %b",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("all_reduce %y over data", "all_reduce %y over data using ring"),
        ("f32[32]", "f64[32]"),
        ("%y: f32[32] partial(sum", "%y: f32[32] partial(max"),
        ("all_reduce %y over data", "all_reduce %a over data"),
    ],
)
def test_others_stay_apart(old: str, new: str) -> None:
    """One that says how it runs, another element type, another reduction, another operand."""
    if "%a over" in new:
        body = """\
func @f(%x: f32[32] partial(sum: data)) -> f32[32] on @m {
  %a = all_reduce %x over data
  %y = mask %a over data op sum
  %b = all_reduce %y over data
  return %b
}
"""
    else:
        body = SMALL.replace(old, new)
    for rule in ("", *(f"{{rule={name}}}" for name in RULES)):
        assert sum("concat" in step for step in steps(body, f"bucket{rule}")) == 0


def test_what_is_ready_late_keeps_nothing_waiting() -> None:
    """The first gradient is sent while the second is computed."""
    body = """\
func @f(%x: f32[1048576] partial(sum: data), %y: f32[1048576] partial(sum: data))
    -> (f32[1048576], f32[1048576]) on @m {
  %c = compute %y flops 1e11
  %a = all_reduce %x over data
  %b = all_reduce %c over data
  return %a, %b
}
"""
    assert not any("concat" in step for step in steps(body, "bucket"))
    assert (
        any("concat" in step for step in steps(body, "bucket{rule=ddp}")) is False
    )  # 1 MiB is full
    assert any("concat" in step for step in steps(body, "bucket{rule=xla}"))


# --- the rules ----------------------------------------------------------------------------------


def group_of(sizes: Sequence[int], ready: Sequence[float], needs: Sequence[int]) -> Group:
    op = coll.AllReduceOp
    return Group(
        tuple(op.__new__(op) for _ in sizes),
        tuple(sizes),
        tuple(ready),
        tuple(needs),
        lambda size: 3.0 + size,
        0.25,
    )


def end(group: Group, buckets: Sequence[range]) -> float:
    """When all are done, one bucket after the other."""
    now = 0.0
    for bucket in buckets:
        size = sum(group.sizes[index] for index in bucket)
        now = max(now, group.ready[bucket[-1]]) + group.time(size)
        now += group.packing * size if len(bucket) > 1 else 0.0
    return now


def partitions(count: int) -> list[list[range]]:
    """All ways to cut a row into intervals."""
    found: list[list[range]] = []
    for cuts in itertools.product([False, True], repeat=count - 1):
        places = [0, *(n + 1 for n, cut in enumerate(cuts) if cut), count]
        found.append([range(a, b) for a, b in itertools.pairwise(places)])
    return found


@given(data=st.data(), count=st.integers(1, 8))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_the_earliest_is_that_of_all(data: st.DataObject, count: int) -> None:
    sizes = [data.draw(st.integers(1, 9)) for _ in range(count)]
    waits = [data.draw(st.sampled_from([0.0, 1.0, 5.0])) for _ in range(count)]
    needs = [data.draw(st.sampled_from([-1, -1, n - 1])) for n in range(count)]
    group = group_of(sizes, list(itertools.accumulate(waits)), needs)

    def allowed(buckets: Sequence[range]) -> bool:
        return all(group.needs[index] < bucket[0] for bucket in buckets for index in bucket)

    best = min(end(group, one) for one in partitions(count) if allowed(one))
    for rule in RULES.values():
        assert allowed(rule(group))
    assert end(group, earliest(group)) == pytest.approx(best)


def test_rules_of_sizes() -> None:
    mib = 2**20
    group = group_of([mib // 2, mib // 2, 20 * mib, 4 * mib, 2 * mib, mib], [0] * 6, [-1] * 6)
    assert RULES["ddp"](group) == [range(2), range(2, 5), range(5, 6)]
    assert RULES["xla"](group) == [range(6)]
    assert up_to(6 * mib)(group) == [range(2), range(2, 3), range(3, 5), range(5, 6)]


# --- random programs ----------------------------------------------------------------------------


PASSES = [
    *(f"bucket{{rule={rule}}}" for rule in RULES),
    "bucket,overlap",
    "bucket{rule=xla},overlap",
]


@pytest.mark.parametrize("passes", PASSES)
@given(rng=RANDOM)
@settings(max_examples=40, deadline=None, derandomize=True)
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
    assert hazards(after, "mpi") == []
    assert hazards(after, "nccl") == []


@given(rng=RANDOM)
@settings(max_examples=60, deadline=None, derandomize=True)
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


def test_on_ranks(tmp_path: Path) -> None:
    """Some programs after all that is done to them, on real ranks."""
    functions: list[FuncOp] = []
    mesh: Mesh | None = None
    for seed in range(40):
        rng = random.Random(seed)
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
    assert any(isinstance(op, coll.ConcatOp) for op in module.walk())
    assert on_ranks.differences(module, functions, tmp_path) == []


def test_what_a_device_has_no_memory_for_is_not_packed() -> None:
    """A buffer beside the gradients: 50 MB instead of 34 MB."""
    arguments = ", ".join(f"%g{n}: f32[1024, 1024] partial(sum: data)" for n in range(4))
    results = ", ".join("f32[1024, 1024]" for _ in range(4))
    lines = [f"  %r{n} = all_reduce %g{n} over data" for n in range(4)]
    body = "\n".join([*lines, f"  return {', '.join(f'%r{n}' for n in range(4))}"])
    text = f"func @f({arguments})\n    -> ({results}) on @m {{\n{body}\n}}\n"
    for memory, there in (("45 MB", False), ("1 GB", True)):
        for passes in ("bucket", "bucket{rule=xla}"):
            machine = MACHINE.replace("1 GB", memory).replace("20 us", "2 ms")
            module = collir.parse(machine + text)
            collir.run_passes(module, passes)
            assert any(isinstance(op, coll.ConcatOp) for op in module.walk()) is there


def test_what_is_under_way_is_not_packed() -> None:
    body = SMALL.replace("over data\n", "over data async\n")
    assert not any("concat" in step for step in steps(body, "bucket{rule=xla}"))
