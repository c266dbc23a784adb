"""Tests of the test bed: its figures against worked examples, and links as in a machine's file."""

import runpy
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import pytest

from collir.dialects.machine import MachineOp
from collir.machine import Machine
from collir.syntax.reader import read

FOLDER = Path(__file__).parents[2] / "benchmarks" / "testbed"
METRICS: dict[str, Any] = runpy.run_path(str(FOLDER / "metrics.py"))
SHAPING: dict[str, Any] = runpy.run_path(str(FOLDER / "shaping.py"))
TREES: dict[str, Any] = runpy.run_path(str(FOLDER / "trees.py"))


def machine(name: str) -> Machine:
    text = (FOLDER / "machines" / f"{name}.coll").read_text(encoding="utf-8")
    [value] = [op.value() for op in read(text).ops if isinstance(op, MachineOp)]
    return value


def test_the_best_is_looked_for_among_the_first_predicted() -> None:
    predicted, measured = [3.0, 1.0, 2.0, 4.0], [1.0, 2.0, 1.02, 9.0]
    assert METRICS["order"](predicted) == [1, 2, 0, 3]
    assert [METRICS["among_best"](predicted, measured, k) for k in (1, 2, 3)] == [0, 0, 1]
    assert [METRICS["close_among"](predicted, measured, k) for k in (1, 2)] == [0, 1]
    assert METRICS["regret"](predicted, measured) == pytest.approx(1.0)


def test_of_equal_predictions_the_first_is_first_whatever_sums_leave() -> None:
    assert METRICS["order"]([0.1 + 0.2, 0.3, 0.2]) == [2, 0, 1]


def test_pairs_that_measure_alike_do_not_count_and_equal_predictions_count_half() -> None:
    # 1 and 1.04 are alike; of the others (1, 2) and (1.04, 2), the second is predicted to be equal.
    assert METRICS["pairs"]([1.0, 5.0, 5.0], [1.0, 1.04, 2.0]) == (1.5, 2)
    assert METRICS["pairs"]([2.0, 1.0], [1.0, 2.0]) == (0.0, 1)


def test_tau_of_all_orders_of_four_is_that_of_inversions() -> None:
    for order in permutations(range(4)):
        inversions = sum(order[i] > order[j] for i in range(4) for j in range(i + 1, 4))
        tau = METRICS["kendall"](list(map(float, order)), [0.0, 1.0, 2.0, 3.0])
        assert tau == pytest.approx(1 - 2 * inversions / 6)


def test_tau_of_ties() -> None:
    # tau-b: 2 pairs agree, one is a tie in the first list: 2 / sqrt(2 * 3).
    assert METRICS["kendall"]([1.0, 1.0, 2.0], [1.0, 2.0, 3.0]) == pytest.approx(2 / 6**0.5)
    assert METRICS["kendall"]([1.0, 1.0], [1.0, 2.0]) is None


def test_errors_are_relative_to_what_was_measured() -> None:
    errors = METRICS["errors"]([1.0, 3.0, 1.8], [2.0, 2.0, 2.0])
    assert errors == pytest.approx([-0.5, 0.5, -0.1])
    assert METRICS["middle_and_worst"]([-0.1, 0.3, -0.4]) == (0.3, -0.4)


def test_every_child_of_every_level_has_a_link_as_fast_as_its_port() -> None:
    links = SHAPING["links"](machine("two_racks"))
    assert [sum(link.level == level for link in links) for level in range(3)] == [2, 4, 16]
    assert {(link.level, link.rate) for link in links} == {(0, 3.125e6), (1, 6.25e6), (2, 12.5e6)}
    assert SHAPING["bridges"](machine("two_racks"))[0] == "br0-0"
    last = links[-1]
    assert (last.outside, last.inside, last.bridge) == ("out2-15", "eth0", "br2-3")
    third = links[2 + 2]
    assert (third.outside, third.inside, third.bridge) == ("out1-2", "in1-2", "br1-1")


def test_uneven_ports_are_uneven_links() -> None:
    links = SHAPING["links"](machine("uneven"))
    assert [link.rate for link in links if not link.is_rank] == [6.25e6, 6.25e6, 3.125e6, 3.125e6]
    assert {link.rate for link in links if link.is_rank} == {12.5e6}


def test_an_interface_is_shaped_to_bits_and_acknowledgements_are_not() -> None:
    root, data, queue, rest, *filters = SHAPING["shaped"]("out0-1", 6.25e6)
    assert root.endswith("htb default 10")
    assert "classid 1:10" in data
    assert " rate 50000000bit " in data
    assert " burst 3125 " in data
    assert queue.split()[-2:] == ["limit", str(SHAPING["QUEUE"])]
    assert "10gbit" in rest
    assert [int(rule.split(" u16 ")[1].split()[0]) for rule in filters] == [40, 52, 64, 72, 80]
    assert all(rule.endswith("flowid 1:20") for rule in filters)


def test_a_matrix_of_links_is_shaped_towards_each_rank() -> None:
    rates = SHAPING["lanes"](machine("lanes"))
    assert rates[0] == [0, 3e6, 1.5e6, 1.5e6, 3e6, 0.75e6, 0.75e6, 0.75e6]
    assert SHAPING["lanes"](machine("ports")) == []
    lines = list(SHAPING["shaped_towards"]("eth0", {"10.0.0.2": 3e6, "10.0.0.3": 1.5e6}))
    assert lines[0].endswith("htb default 20")
    assert "classid 1:100 htb rate 24000000bit" in lines[-6]
    assert lines[-1].endswith("match ip dst 10.0.0.3/32 flowid 1:101")


def test_chunks_of_trees_are_cuts_of_the_parts_of_ranks() -> None:
    trees = TREES["trees_of"](machine("lanes"), "all_gather", 2**20)
    begins = TREES["begins"](trees)
    assert (len(begins), begins[0], begins[-1]) == (121, 0, 2**18)
    assert begins[::15] == [2**15 * rank for rank in range(9)]
    assert {after - begin for begin, after in pairwise(begins)} == {2184, 2185}


def test_steps_of_trees_wait_as_thread_blocks_or_for_their_data() -> None:
    trees = TREES["trees_of"](machine("ports"), "broadcast", 2**20)
    blocks, apart = (TREES["emit"]("f", trees, is_apart) for is_apart in (False, True))
    steps = sum(len(block.steps) for block in trees.program.ranks[0].blocks)
    tables = "blocks_f_0, steps_f_0, afters_f_0}"
    assert f"{{{trees.pieces}, {len(trees.program.ranks[0].blocks)}, {tables}" in blocks
    assert f"{{{trees.pieces}, {steps}, {tables}" in apart


@pytest.mark.parametrize(
    "name", ["two_nodes", "four_nodes", "two_racks", "uneven", "ports", "lanes"]
)
def test_ranks_together_send_no_more_than_the_computer_carries(name: str) -> None:
    links = SHAPING["links"](machine(name))
    assert sum(link.rate for link in links if link.is_rank) * 8 <= 1.6e9
