"""Traces of all ranks fit together as they are read, and have the collectives of the program."""

import random
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from support.programs.collectives import RANDOM, random_module
from support.programs.pipelines import named_options, random_pipeline
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.model import CostModel
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp, is_collective
from collir.dialects.tensor import dist_type
from collir.importing.chakra.traces import (
    ChakraTrace,
    Traces,
    check_collectives,
    check_messages,
    read_groups,
    read_trace,
)
from collir.importing.machines import astra
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.layout import Mesh
from collir.syntax.chakra.messages import ChakraNode, CommType, NodeType, written_trace
from collir.targets.traces.chakra import ExecutionTraces, traces_of
from collir.targets.traces.network import network_of
from collir.tools import collir as tool
from collir.transforms.inlining import inline_calls
from collir.transforms.loops.unrolling import unroll_all


def read_back(traces: ExecutionTraces) -> Traces:
    """Return traces as they are read from their bytes, checked."""
    ranks: list[ChakraTrace] = []
    for rank in range(traces.ranks):
        nodes = tuple(traces.nodes(rank))
        trace = read_trace(b"".join(written_trace(nodes)))
        assert trace.nodes == nodes
        ranks.append(trace)
    groups = {int(name): tuple(group) for name, group in traces.group_table().items()}
    made = Traces(tuple(ranks), groups)
    check_collectives(made)
    check_messages(made)
    return made


def straight(module: ModuleOp) -> ModuleOp:
    """Return a copy of a module without calls and loops, in which no step is ahead."""
    copy = module.clone()
    for op in copy.walk():
        if isinstance(op, DistOp):
            op.properties.pop("ahead", None)
    inline_calls(copy)
    unroll_all(copy)
    return copy


def takes_part(op: DistOp, mesh: Mesh, rank: int) -> bool:
    """Return whether a rank is at the place of the operand of a collective."""
    subs = mesh.by_name
    return all(
        rank // subs[axis].stride % subs[axis].size == at
        for axis, at in dist_type(op.operands[0]).place
        if axis not in op.over
    )


def sent_by(function: FuncOp, rank: int) -> Counter[str]:
    """Return the collectives of a function that a rank takes part in, by their names."""
    mesh = mesh_of(function)
    return Counter(
        op.mnemonic
        for op in function.body.block.ops
        if isinstance(op, DistOp) and is_collective(op) and op.over and op.kind.before
        if op.mnemonic != "send" and mesh.group_size(op.over) > 1 and takes_part(op, mesh, rank)
    )


def kind_of(node: ChakraNode) -> str:
    number = node.attributes["comm_type"]
    assert isinstance(number, int)
    return CommType(number).name.lower()


@given(rng=RANDOM)
@settings(max_examples=25)
def test_traces_have_the_collectives_of_each_rank(rng: random.Random) -> None:
    module = random_module(rng, functions=2, steps=8, models=rng.random() < 0.3, weights=0.2)
    try:
        traces = traces_of(module, CostModel())
    except DiagnosticError:  # a mesh that is on no levels
        return
    for of_function, function in zip(traces, functions_of(straight(module)), strict=True):
        read = read_back(of_function)
        for rank in range(of_function.ranks):
            kinds = Counter(kind_of(node) for _, node in read.collectives(rank))
            assert kinds == sent_by(function, rank)


@given(rng=RANDOM)
@settings(max_examples=4)
def test_traces_of_pipelines_fit_together(rng: random.Random) -> None:
    text, options, _ = random_pipeline(rng)
    module = collir.parse(text)
    try:
        collir.run_passes(module, f"pipeline{{{options} {rng.choice([*named_options()])}}}")
    except DiagnosticError:  # a schedule that does not fit the places
        return
    for traces in traces_of(module, CostModel()):
        read_back(traces)


SIZES = """
machine @c { level gpu[4] { port = 8 GB/s, latency = 3 us } }
mesh @m on @c { data = gpu:4 }
func @f(%x: f32[64, 8] partial(sum: data), %y: f32[64@data, 8], %z: f32[64, 8] root(data))
    -> (f32[64, 8], f32[64, 8], f32[64@data, 8], f32[64, 8@data], f32[64, 8] root(data),
        f32[64, 8] root(data), f32[64, 8], f32[64@data, 8]) on @m {
  %0 = all_reduce %x over data
  %1 = all_gather %y over data dim 0
  %2 = reduce_scatter %x over data dim 0
  %3 = all_to_all %y over data dim 0 to 1
  %4 = reduce %x over data
  %5 = gather %y over data dim 0
  %6 = broadcast %z over data
  %7 = scatter %z over data dim 0
  return %0, %1, %2, %3, %4, %5, %6, %7
}
"""


def test_sizes_are_those_that_a_rank_gives() -> None:
    [traces] = traces_of(collir.parse(SIZES), CostModel())
    whole = 64 * 8 * 4
    nodes = [node for node in traces.nodes(1) if node.type is NodeType.COMM_COLL]
    assert [(kind_of(node), node.attributes["comm_size"]) for node in nodes] == [
        ("all_reduce", whole),
        ("all_gather", whole // 4),
        ("reduce_scatter", whole),
        ("all_to_all", whole // 4),
        ("reduce", whole),
        ("gather", whole // 4),
        ("broadcast", whole),
        ("scatter", whole),
    ]


def test_times_add_up() -> None:
    """Times of computations are rounded so that those of a rank together are not."""
    [traces] = traces_of(collir.parse("""
machine @c { device { memory = 1 GB @ 1 TB/s } level gpu[2] { port = 8 GB/s, latency = 3 us } }
mesh @m on @c { data = gpu:2 }
func @f(%x: f32[50000]) -> f32[50000] on @m {
  %y = repeat 10 carry(%a = %x) {
    %b = scale %a by 2.0
    yield %b
  }
  return %y
}
"""), CostModel())  # fmt: skip
    durations = [node.duration for node in traces.nodes(0)]
    assert durations == [0, 1, 0, 1, 0, 0, 1, 0, 1, 0]  # 0.4 us each


def test_a_network_is_read_back() -> None:
    text = (
        "topology: [ Ring, FullyConnected, Switch ]\n"
        "npus_count: [ 8, 4, 2 ]\n"
        "bandwidth: [ 200, 50, 12.5 ]  # GB/s\n"
        "latency: [ 500, 700, 1000 ]  # ns\n"
    )
    machine = collir.parse(
        "machine @c {\n"
        "  level c[2] { port = 400 GB/s, latency = 2 us, rails = 32 }\n"
        "  level b[4] { port = 1200 GB/s, latency = 700 ns, kind = full, rails = 8 }\n"
        "  level a[8] { port = 400 GB/s, latency = 500 ns, kind = ring }\n"
        "}\nmesh @m on @c { data = c:2 * b:4 * a:8 }\n"
        "func @f(%x: f32[64]) -> f32[64] on @m {\n return %x\n}\n"
    )
    [traces] = traces_of(machine, CostModel())
    made, _ = network_of(traces.programs.mesh.machine)
    assert made == text
    levels = [described.level for described in astra.read(made).levels]
    own = traces.programs.mesh.machine.levels
    assert [(x.size, x.port, x.latency, x.kind) for x in levels] == [
        (x.size, x.port, x.latency, x.kind) for x in own
    ]


def test_the_command_writes_what_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f.coll"
    file.write_text(SIZES, encoding="utf-8")
    folder = tmp_path / "out"
    assert tool.main(["export", "chakra", str(file), "-o", str(folder)]) == 0
    out, err = capsys.readouterr()
    assert sorted(path.name for path in folder.iterdir()) == [
        *(f"f.{rank}.et" for rank in range(4)),
        "f.json",
        "f.yml",
    ]
    assert f"{folder}/f.0.et to {folder}/f.3.et" in out
    assert f"--workload-configuration={folder}/f " in out
    assert "remark: ASTRA-sim stops at a reduce, gather, scatter, which it does not" in err
    groups = read_groups((folder / "f.json").read_bytes(), "f.json", 4)
    assert groups == {1: (0, 1, 2, 3)}
    (folder / "f.7.et").touch()
    assert tool.main(["export", "chakra", str(file), "-o", str(folder)]) == 1
    assert "has traces of @f on more than 4 ranks" in capsys.readouterr().err
