"""Programs of trees: proven for each collective, in limits, and as ``collir synthesize`` writes
them."""

import json
from collections import Counter
from math import isclose
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.algorithms.chunk_programs import results, wanted
from support.harness.seeds import fresh
from support.machine.tree_graphs import link_graphs, switch_graphs
from support.semantics.checks import functions_of
from support.semantics.local_programs import assert_runs, lowered

import collir
from collir.algorithms.checking import check
from collir.algorithms.collectives import divisions
from collir.algorithms.msccl_xml import text_of
from collir.algorithms.program import DOES
from collir.importing.algorithms.msccl_xml import read_msccl_xml
from collir.layout.algorithm_names import AlgorithmName
from collir.machine import Level, LinkKind
from collir.syntax.algorithms import own_algorithm, prove
from collir.synthesis.trees.declared import declared_text
from collir.synthesis.trees.graph import CapacityGraph, graph_of_level
from collir.synthesis.trees.program import (
    TREE_COLLECTIVES,
    ProgramLimits,
    program_of_trees,
)
from collir.synthesis.trees.schedules import TreeProblem
from collir.tools.collir import main


@given(st.one_of(link_graphs(), switch_graphs()), st.sampled_from(TREE_COLLECTIVES), st.data())
@settings(max_examples=60)
def test_every_program_implements_its_collective(
    graph: CapacityGraph, collective: str, data: st.DataObject
) -> None:
    root = data.draw(st.integers(0, graph.ranks - 1))
    root = root if collective in ("broadcast", "reduce") else 0
    problem = TreeProblem(graph, collective, root)
    limits = ProgramLimits(data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9)), 3)
    for schedule in (problem.fastest(), problem.with_trees(2), problem.shortest()):
        program = program_of_trees("t", collective, graph.ranks, schedule.trees, root, limits)
        # All blocks work in one order of messages: a connection may hold a single one.
        assert check(program, capacity=1).problems == []
        read = read_msccl_xml(text_of(program).encode())
        assert check(read.program).problems == []
        assert read.program.chunks == program.chunks
        for rank in program.ranks:
            for block in rank.blocks:
                assert len(block.steps) <= limits.steps
                assert all(step.count <= limits.size for step in block.steps)


@given(link_graphs(), st.sampled_from(TREE_COLLECTIVES))
@settings(max_examples=30)
def test_the_messages_of_a_file_take_as_long_as_predicted(
    graph: CapacityGraph, collective: str
) -> None:
    problem = TreeProblem(graph, collective)
    schedule = problem.fastest()
    text = text_of(program_of_trees("t", collective, graph.ranks, schedule.trees, 0))
    program = read_msccl_xml(text.encode()).program
    chunks: Counter[tuple[int, int]] = Counter()
    for rank, own in enumerate(program.ranks):
        for block in own.blocks:
            for step in block.steps:
                chunks[rank, block.sends_to] += step.count if DOES[step.kind].sends else 0
    whole = program.chunks * divisions(collective, graph.ranks)
    sent = {link: count for link, count in chunks.items() if count}
    seconds = max(n / whole / float(graph.links[link].bandwidth) for link, n in sent.items())
    # An all_reduce is predicted as two passes, which may take turns on the busiest link.
    assert seconds <= 1 / schedule.bandwidth * (1 + 1e-9)
    if collective != "all_reduce":
        assert isclose(seconds, 1 / problem.bound)


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather"])
def test_numbers_are_what_a_plain_interpreter_gives(collective: str) -> None:
    graph = graph_of_level(Level("gpu", 6, 4e9, 1e-6, LinkKind.TORUS, shape=(2, 3)))
    schedule = TreeProblem(graph, collective).fastest()
    program = program_of_trees("t", collective, 6, schedule.trees, 0)
    assert results(program, fresh(collective), 8) == wanted(program)


def test_a_port_with_many_connections_has_several_channels() -> None:
    graph = graph_of_level(Level("gpu", 40, 100e9, 1e-6))
    schedule = TreeProblem(graph, "all_gather").shortest()
    text = text_of(program_of_trees("t", "all_gather", 40, schedule.trees, 0), "msccl")
    read = read_msccl_xml(text.encode())
    assert check(read.program).is_right
    assert read.refused["msccl"] == []


# --- the command ---------------------------------------------------------------------------------


def synthesized(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """Return the JSON that the command prints."""
    assert main(["synthesize", "--json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def test_small_buffers_take_trees_of_less_depth(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["dgx1_v100", "--level", "gpu", "--collective", "all_gather"]
    chosen: dict[str, dict[str, Any]] = {}
    for size in ("16KB", "64MB"):
        found = synthesized(capsys, *words, "--size", size)
        (chosen[size],) = (x for x in found["schedules"] if x["chosen"])
        assert chosen[size]["seconds"] == min(x["seconds"] for x in found["schedules"])
        assert isclose(found["bound"]["busbw"], 150e9)
    assert (chosen["16KB"]["depth"], chosen["64MB"]["depth"]) == (2, 4)
    assert chosen["64MB"]["optimal"]
    assert chosen["64MB"]["gap"] == 0
    trees = chosen["64MB"]["trees"]
    assert sum(tree["count"] for tree in trees) == chosen["64MB"]["count"] == 48


@pytest.mark.parametrize("collective", TREE_COLLECTIVES)
@pytest.mark.parametrize("runtime", ["rccl", "msccl"])
def test_what_is_written_is_proven(
    collective: str, runtime: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trees.xml"
    words = ["synthesize", "@mi300x", "--level", "gpu", "--collective", collective]
    assert main([*words, "--runtime", runtime, "-o", str(file)]) == 0
    assert f"proven: the algorithm implements {collective}" in capsys.readouterr().out
    read = read_msccl_xml(file.read_bytes())
    assert read.program.collective == collective
    assert check(read.program).is_right
    assert read.refused[runtime] == []


def test_a_number_of_trees_is_that_of_each_root(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["dgx_a100", "--collective", "all_reduce", "--trees", "2"]
    (schedule,) = synthesized(capsys, *words)["schedules"]
    assert schedule["count"] == 32
    assert 0.99 < 1 - schedule["gap"] < 1
    assert not schedule["optimal"]


@given(
    st.one_of(link_graphs(), switch_graphs()), st.sampled_from(TREE_COLLECTIVES), st.integers(1, 4)
)
@settings(max_examples=30)
def test_every_declaration_implements_its_collective(
    graph: CapacityGraph, collective: str, pieces: int
) -> None:
    problem = TreeProblem(graph, collective)
    for schedule in (problem.with_trees(2), problem.shortest()):
        text = declared_text("t", collective, schedule.trees, pieces)
        prove(own_algorithm(AlgorithmName("@t", collective, text)), graph.ranks)


@pytest.mark.parametrize("collective", TREE_COLLECTIVES)
def test_a_program_that_uses_trees_runs_and_costs_what_its_pieces_do(
    collective: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pieces of the buffer follow each other, so its price is that of one more piece for each
    link on the way."""
    machine = tmp_path / "m.coll"
    machine.write_text(
        "machine @m { level gpu[4] { port = 9 GB/s, latency = 2 us, links = "
        "[[0, 2, 1, 0], [2, 0, 0, 1], [1, 0, 0, 2], [0, 1, 2, 0]] } }\n",
        encoding="utf-8",
    )
    made = tmp_path / "made.coll"
    arguments = ["synthesize", str(machine), "--collective", collective, "--size", "36MB"]
    assert main([*arguments, "-o", str(made), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    [chosen] = [x for x in found["schedules"] if x["chosen"]]
    module = collir.parse(made)
    [function] = functions_of(module)
    [cost] = collir.simulate(module, model="alpha-beta")
    ways = 2 if collective == "all_reduce" else 1
    assert found["bound"]["seconds"] < cost.time
    assert cost.time < 1.6 * chosen["seconds"] + ways * 40 * 2e-6
    small = made.read_text(encoding="utf-8").replace("f32[9000000", "f32[240")
    module = collir.parse(small)
    [function] = functions_of(module)
    rng = fresh(collective)
    assert_runs(lowered(module)[function.sym_name.data], module, function, rng)
