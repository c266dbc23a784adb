"""Tests of SLURM's topology.conf and topology.yaml."""

import re
from collections.abc import Sequence
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.importing.topology_files import remarks, rows, sizes

from collir.importing.machines import read
from collir.importing.machines.hostlist import expand
from collir.importing.values import ReadError, TextPlace


def test_a_line_of_slurm_may_be_continued() -> None:
    text = (
        "switchname=a \\\n  nodes=n[0-1],m # two\nSWITCHNAME=b NODES=o[0-2]\n"
        "SwitchName=c \\\nSwitches=a,b"
    )
    assert sizes(read(text)) == [2, 3]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("- topology: a\n  flat: true", 1, "topology a is flat: only those of kind tree or block"),
        ("- topology: a", 1, "topology a is empty: only those of kind tree or block"),
        ("- topology: a\n  tree:\n  block:", 3, "topology a has two kinds"),
        ("- topology: a\n  tree:\n    switches: {switch: s}", 3, "'{' is not read here"),
        ("- topology: a\n  tree:\n    switches:\n      switch: s", 4, "switch belongs to an item"),
        (
            "- topology: a\n  tree:\n    switches:\n      - switch: s\n        switch: t",
            5,
            "switch is given twice",
        ),
        ("- topology: a\n  tree:\n    switches:\n      - s1", 4, "'s1' is not `key: value`"),
        ("- topology: a\n  tree:\n    switches:", 1, "there is no SwitchName="),
        (
            "- topology: a\n  tree:\n    switches:\n      - switch: s\n        children: t",
            5,
            "there is no SwitchName=t",
        ),
        ("x: 1\n- topology: a", 1, "a list of topologies"),
    ],
)
def test_what_is_wrong_in_a_topology_yaml_is_said(text: str, line: int, message: str) -> None:
    with pytest.raises(ReadError, match=re.escape(message)) as error:
        read(text)
    assert error.value.place.line == line


def tree(counts: Sequence[int]) -> str:
    """Return a topology.conf of an even tree; counts are per level, outermost first."""
    lines = ["# a tree"]
    names = ["top"]
    for depth, count in enumerate(counts):
        last = depth == len(counts) - 1
        for name in names:
            lines.append(
                f"SwitchName={name} Nodes={name}n[0-{count - 1}]"
                if last
                else f"SwitchName={name} Switches={name}s[0-{count - 1}]"
            )
        names = [f"{name}s{i}" for name in names for i in range(count)]
    return "\n".join(lines)


def with_spines(conf: str, spines: int, rails: bool) -> str:
    """Return an even tree with every switch of switches written several times; with ``rails``,
    each of them over its own copies of the switches below."""
    lines: list[str] = []
    of_switches = set(re.findall(r"SwitchName=(\S+) Switches=", conf))
    for line in conf.splitlines():
        match = re.match(r"SwitchName=(\S+) Switches=(.*)", line)
        if not match:
            lines.append(line)
            continue
        below = expand(match[2], TextPlace(1))
        for spine in range(spines):
            names = [
                f"{name}p{copy}" if name in of_switches else name
                for name in below
                for copy in ([spine] if rails or name not in of_switches else range(spines))
            ]
            lines.append(f"SwitchName={match[1]}p{spine} Switches={','.join(names)}")
    return "\n".join(lines)


@given(st.lists(st.integers(2, 4), min_size=2, max_size=4), st.integers(1, 3), st.booleans())
def test_parallel_spines_are_one_switch(counts: list[int], spines: int, rails: bool) -> None:
    reading = read(with_spines(tree(counts), spines, rails))
    assert rows(reading) == rows(read(tree(counts)))
    assert bool(reading.remarks) is (spines > 1)
    for remark in reading.remarks:
        assert f"{spines} switches side by side are taken as one" in remark.message


def test_nodes_at_several_leaves_are_those_of_one() -> None:
    text = "SwitchName=rail0 Nodes=n[0-3]\nSwitchName=rail1 Nodes=n[0-3]\n"
    assert sizes(read(text)) == [4]
    message = "rail1 has the children of rail0 (line 1): 2 switches side by side are taken as one"
    assert remarks(text) == [(2, message)]


def as_yaml(conf: str) -> str:
    """Return a topology.conf rewritten as a topology.yaml."""
    lines = ["- topology: t", "  tree:", "    switches:"]
    for line in conf.splitlines()[1:]:
        words = (word.partition("=") for word in line.split())
        keys = {"SwitchName": "- switch", "Nodes": "  nodes", "Switches": "  children"}
        lines += [f"      {keys[key]}: {value}" for key, _, value in words]
    return "\n".join(lines)


@given(st.lists(st.integers(2, 5), min_size=1, max_size=4))
def test_a_tree_is_the_same_in_a_topology_yaml(counts: list[int]) -> None:
    assert rows(read(as_yaml(tree(counts)))) == rows(read(tree(counts)))


@given(st.lists(st.integers(2, 5), min_size=1, max_size=4))
def test_even_trees_of_slurm_are_read_back(counts: list[int]) -> None:
    reading = read(tree(counts))
    assert sizes(reading) == counts
    assert reading.remarks == ()
    assert [described.level.rails for described in reading.levels] == [
        prod(counts[depth + 1 :]) for depth in range(len(counts))
    ]


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 4))
def test_ranges_of_hosts_keep_their_zeros(low: int, more: int, width: int) -> None:
    first = str(low).zfill(width)
    names = expand(f"a[{first}-{low + more}]b,c", TextPlace(1))
    assert names == [f"a{str(i).zfill(len(first))}b" for i in range(low, low + more + 1)] + ["c"]
