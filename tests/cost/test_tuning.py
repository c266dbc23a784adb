"""The ranges of NCCL's fastest algorithms: every size has the choice that its prices make."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from collir.cost.collectives import nccl
from collir.cost.collectives.tuning import (
    KINDS,
    expected_prices,
    fastest_ranges,
    own_prices,
    saved,
)
from collir.cost.network.group import Group
from collir.machine import Level, Machine
from collir.tools.export_tuner import group_of

LAST = 2**63 - 1
SIZES = st.floats(0, 40).map(lambda power: int(2**power) - 1)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    """Draw all ranks of a machine of GPUs, fast or slow, with or without several nodes."""
    ports = st.sampled_from([0.1, 1.0, 12.5, 50.0, 100.0, 400.0])
    latencies = st.sampled_from([0.0, 1.0, 14.0, 60.0])
    inside = draw(st.sampled_from([2, 3, 4, 8]))
    nvls = draw(st.sampled_from([None, 90e9, 480e9]))
    node = Level("node", draw(st.sampled_from([1, 2, 3, 16])), draw(ports) * 1e9,
                 draw(latencies) * 1e-6)  # fmt: skip
    gpu = Level("gpu", inside, draw(ports) * 4e9, draw(latencies) * 1e-6, nvls=nvls)
    return group_of(Machine("m", (node, gpu)), node.size * inside)


kinds = st.sampled_from(KINDS)


@settings(max_examples=40)
@given(groups(), kinds, st.lists(SIZES, min_size=20, max_size=40))
def test_every_size_has_its_best_choice(group: Group, kind: str, sizes: list[int]) -> None:
    found = fastest_ranges(kind, group, 0, LAST)
    assert (found[0].first, found[-1].last) == (0, LAST)
    ends = [size for each in found for size in (each.first, each.last)]
    for size in (*sizes, *ends):
        [own] = [each for each in found if each.first <= size <= each.last]
        at_size = own_prices(kind, group, size)
        assert at_size[own.choice] <= min(at_size.values()) * (1 + 1e-12)
    for one, after in itertools.pairwise(found):
        assert one.last + 1 == after.first
        assert one.choice != after.choice


@settings(max_examples=15)
@given(groups(), SIZES)
def test_all_sizes_of_a_stretch_are_right(group: Group, first: int) -> None:
    found = fastest_ranges("all_reduce", group, first, first + 300)
    for each in found:
        for size in range(each.first, each.last + 1):
            prices = own_prices("all_reduce", group, size)
            assert prices[each.choice] <= min(prices.values()) * (1 + 1e-12)


@settings(max_examples=40)
@given(groups(), st.data())
def test_estimates_stay_close_to_straight_lines_between_bends(
    group: Group, data: st.DataObject
) -> None:
    bends = nccl.bends("all_reduce", group)
    place = data.draw(st.integers(1, len(bends) - 2))
    if bends[place + 1] - bends[place] < 2:
        return
    low, high = bends[place], bends[place + 1] - 1
    middle = data.draw(st.integers(low, high))
    ends = [own_prices("all_reduce", group, size) for size in (low, high)]
    for choice, time in own_prices("all_reduce", group, middle).items():
        line = ends[0][choice] + (ends[1][choice] - ends[0][choice]) * (middle - low) / max(
            1, high - low
        )
        stray = (high / low - 1) ** 2 / 8 if choice.startswith(nccl.TREE) else 0.0
        assert abs(time - line) <= stray * ends[1][choice] + 1e-12 * time


def test_what_is_saved_is_known_where_both_choices_are() -> None:
    machine = Machine("m", (Level("node", 2, 12.5e9, 10e-6), Level("gpu", 8, 100e9, 2e-6)))
    group = group_of(machine, 16)
    for size in nccl.bends("all_reduce", group):
        prices = own_prices("all_reduce", group, size)
        expected = expected_prices("all_reduce", group, size)
        chosen = min(expected, key=lambda choice: expected[choice])
        part = saved("all_reduce", group, size)
        assert part == 1 - min(prices.values()) / prices[chosen]


def test_a_change_between_powers_of_two_is_found_to_the_byte() -> None:
    group = group_of(Machine("m", (Level("gpu", 8, 370e9, 4.5e-6),)), 8)
    found = fastest_ranges("broadcast", group, 0, LAST)
    assert [each.choice for each in found] == ["ring/LL", "ring/LL128", "ring/Simple"]
    for one, after in itertools.pairwise(found):
        below, above = (own_prices("broadcast", group, x) for x in (one.last, after.first))
        assert below[one.choice] <= below[after.choice]
        assert above[after.choice] < above[one.choice]
