"""Tests of the networks of ASTRA-sim."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collir.importing.machines import read
from collir.importing.machines.flat_yaml import parse as parse_yaml
from collir.syntax.reader import read as read_coll
from collir.syntax.writer import write
from collir.tools.machine import machine_text

DIMENSIONS = st.lists(
    st.tuples(
        st.sampled_from(["Ring", "FullyConnected", "Switch"]),
        st.integers(1, 40),
        st.floats(1e-3, 1e6),
        st.one_of(st.just(0.0), st.floats(1e-9, 1e9)),
    ),
    min_size=1,
    max_size=5,
)


@given(DIMENSIONS, st.booleans())
def test_networks_of_astra_sim_are_read_back(
    dimensions: list[tuple[str, int, float, float]], dashes: bool
) -> None:
    text = ""
    for key, column in zip(
        ("topology", "npus_count", "bandwidth", "latency"),
        zip(*dimensions, strict=True),
        strict=True,
    ):
        items = [str(x) for x in column]
        text += f"{key}:" + (
            "".join(f"\n  - {x}" for x in items) if dashes else f" [ {', '.join(items)} ]"
        )
        text += "  # as it is\n"
    reading = read(text)
    inner = 1
    for (kind, count, bandwidth, latency), described in zip(
        dimensions, reading.levels[::-1], strict=True
    ):
        links = {"Switch": 1, "Ring": min(2, count - 1), "FullyConnected": count - 1}[kind] or 1
        hops = 2 if kind == "Switch" else 1
        assert described.level.size == count
        assert described.level.rails == inner
        assert described.level.port == pytest.approx(bandwidth * 1e9 * links * inner)
        assert described.level.latency == pytest.approx(latency * 1e-9 * hops)
        inner *= count
    again = read_coll(machine_text(reading, "m", "x"))
    assert write(read_coll(write(again))) == write(again)


def test_yaml_may_be_written_in_several_ways() -> None:
    ways = ["a: [x, y]", "a:\n- x\n- y", "---\n'a': [ 'x',\n \"y\" ] # z\n", 'a:\n  - "x"\n  - y\n']
    for text in ways:
        assert [item.text for item in parse_yaml(text)["a"].items] == ["x", "y"]
