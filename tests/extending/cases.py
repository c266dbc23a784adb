"""Tests of the extensions of this folder; test_extending.py runs them with these as plugins."""

from pathlib import Path

import pytest
from support.harness.seeds import fresh
from support.semantics.checks import (
    agree,
    functions_of,
    results_on_all_devices,
    results_on_one_device,
)
from support.targets.on_ranks import differences

import collir
from collir.dialects.machine import mesh_of
from collir.tools import collopt

MACHINE = """\
machine @pair {
  level node[2] { port =   8 GB/s, latency = 20 us }
  level gpu[2]  { port = 270 GB/s, latency =  3 us }
}
mesh @m on @pair { data = node:2 * gpu:2 }
"""
PROGRAM = f"""{MACHINE}
func @sums(%g: f32[24] partial(sum: data), %h: i32[3, 5] partial(max: data))
    -> (f32[24], i32[3, 5]) on @m {{
  %r = reduce_broadcast %g over data
  %s = reduce_broadcast %h over data.gpu, data.node using binomial
  %t = negate %s
  %u = negate %t
  return %r, %u
}}
"""
REDUCTIONS = [("f32", "sum"), ("f64", "avg"), ("bf16", "max"), ("i32", "prod"), ("i64", "min")]


def test_it_reads_and_prints_to_a_fixed_point(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = collir.emit(collir.parse(PROGRAM), "coll")
    assert "%r = reduce_broadcast %g over data\n" in text
    assert "reduce_broadcast %h over data.gpu, data.node using binomial" in text
    source, generic = tmp_path / "toy.coll", tmp_path / "toy.mlir"
    source.write_text(PROGRAM)
    assert collopt.main([str(source), "-t", "mlir", "--print-op-generic", "-o", str(generic)]) == 0
    assert '"coll.reduce_broadcast"' in generic.read_text()
    assert '"toy.negate"' in generic.read_text()
    assert collopt.main([str(generic)]) == 0
    assert capsys.readouterr().out == text


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("reduce_broadcast %g over data dim 0", "has no `dim`"),
        ("reduce_broadcast %g over data using ring", "use binomial"),
        ("negate %g, %g", "takes 1 operand, not 2: `negate %x`"),
    ],
)
def test_wrong_uses_are_diagnostics(step: str, message: str) -> None:
    text = PROGRAM.replace("reduce_broadcast %g over data\n", f"{step}\n")
    with pytest.raises(collir.DiagnosticError, match=message):
        collir.parse(text)


@pytest.mark.parametrize(("dtype", "reduction"), REDUCTIONS)
def test_the_oracles_agree(dtype: str, reduction: str, tmp_path: Path) -> None:
    """Check results on the buffers of all devices, on one device, and on real ranks."""
    text = f"""{MACHINE}
func @f(%g: {dtype}[24] partial({reduction}: data)) -> {dtype}[24] on @m {{
  %r = reduce_broadcast %g over data
  return %r
}}
"""
    module = collir.parse(text)
    [function] = functions_of(module)
    seed = fresh(text).randrange(2**32)
    results = results_on_all_devices(module, function, seed)
    assert agree(results, results_on_one_device(function, seed), mesh_of(function).devices)
    assert differences(module, [function], tmp_path) == []


def test_programs_with_it_are_proven() -> None:
    """Check by proof that passes keep results, both when they make such a step and split it."""
    module = collir.parse(
        f"""{MACHINE}
func @f(%g: f32[24] partial(sum: data)) -> f32[24] on @m {{
  %0 = reduce %g over data
  %r = broadcast %0 over data
  return %r
}}
"""
    )
    collir.run_passes(module, "join-reductions", validate=True)
    assert "  %r = reduce_broadcast %g over data\n  return %r" in collir.emit(module, "coll")
    collir.run_passes(module, "decompose,reorder-by-hierarchy,bucket,overlap", validate=True)


@pytest.mark.parametrize("model", ["alpha-beta", "p2", "nccl"])
@pytest.mark.parametrize("nodes", [2, 3, 8])
def test_it_has_a_cost_above_its_bound(model: str, nodes: int) -> None:
    program = PROGRAM.replace(" using binomial", "" if model == "nccl" else " using binomial")
    [cost] = collir.simulate(
        collir.parse(
            program.replace("node[2]", f"node[{nodes}]").replace("node:2", f"node:{nodes}")
        ),
        model=model,
    )
    assert len(cost.collectives) == 2
    assert all(step.time >= step.bound > 0 for step in cost.collectives)


def test_passes_know_where_it_may_stand() -> None:
    """Check that a negation moves before a sum; it would make a minimum of a maximum."""
    module = collir.parse(
        f"""{MACHINE}
func @f(%g: f32[1024] partial(sum: data)) -> f32[1024@data] on @m {{
  %a = reduce_broadcast %g over data
  %b = negate %a
  %r = slice %b over data dim 0
  return %r
}}
"""
    )
    collir.run_passes(module, "reorder-by-hierarchy,fuse", validate=True)
    assert "negate" in collir.emit(module, "coll")


def test_it_may_run_in_chunks() -> None:
    """Check that a step that cannot be async is not made so."""
    module = collir.parse(
        f"""{MACHINE}
func @f(%g: f32[1048576] partial(sum: data)) -> f32[1048576] on @m {{
  %r = reduce_broadcast %g over data
  return %r
}}
"""
    )
    collir.run_passes(module, "decompose{chunks=4}", validate=True)


@pytest.mark.parametrize(
    ("target", "calls"),
    [
        (
            "mpi",
            ["TRY(reduce_broadcast(g, r, 24, MPI_FLOAT, MPI_SUM, mesh->over_data_node_data_gpu,"],
        ),
        ("nccl", ["ncclReduce(g, r, 24, ncclFloat32, ncclSum, 0,", "ncclBroadcast(r, r, 24,"]),
        ("mpi4py", [".Reduce(g, r, MPI.SUM)", ".Bcast(r)"]),
        ("torch", ["dist.reduce(", "dist.broadcast(r, group_src=0,"]),
        ("jax", ['return lax.psum(g, ("data_node", "data_gpu"))']),
    ],
)
def test_every_code_target_prints_it(target: str, calls: list[str]) -> None:
    module = collir.parse(
        f"""{MACHINE}
func @f(%g: f32[24] partial(sum: data)) -> f32[24] on @m {{
  %r = reduce_broadcast %g over data
  return %r
}}
"""
    )
    text = collir.emit(module, target)
    for call in calls:
        assert call in text, text


def test_a_target_prints_any_operation() -> None:
    assert collir.emit(collir.parse(PROGRAM), "count") == "@sums 2\n"


def test_what_a_target_has_no_line_for_is_an_error() -> None:
    """Check that a target refuses an operation that it has no line for."""
    message = r":11:8: error: negate has no row in HostMethod.ELEMENTS \(collir"
    with pytest.raises(collir.DiagnosticError, match=message):
        collir.emit(collir.parse(PROGRAM), "mpi")
