"""Tests of the tables that `rocm-smi --showtopo` and `amd-smi topology` print."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.importing.topology_files import (
    EXPECTED,
    FULL,
    LINKS,
    NVLINK,
    PCI,
    SWITCH,
    remarks,
    rows,
    text_of,
)

from collir.importing.machines import detect, read
from collir.importing.values import ReadError


def table(title: str, size: int, cell: Callable[[int, int], object]) -> str:
    """Return a table of rocm-smi."""
    names = [f"GPU{i}" for i in range(size)]
    lines = [f"=== {title} between two GPUs ===", f"       {' '.join(names)}"]
    lines += [
        f"{name} {' '.join(str(cell(a, b)) for b in range(size))}" for a, name in enumerate(names)
    ]
    return "\n".join(lines) + "\n\n"


def types(size: int, linked: Callable[[int, int], bool]) -> str:
    return table(
        "Link Type", size, lambda a, b: 0 if a == b else "XGMI" if linked(a, b) else "PCIE"
    )


def test_the_table_of_link_types_is_enough() -> None:
    assert rows(read(types(4, lambda a, b: True))) == [("gpu", 4, 150e9, FULL, 1, NVLINK)]
    hops = table("Hops", 4, lambda a, b: int(a != b))
    assert rows(read(hops)) == rows(read(types(4, lambda a, b: True)))
    assert [message[:36] for _, message in remarks(hops)] == [
        "without a table of link types, GPUs "
    ]
    assert rows(read(types(1, lambda a, b: True))) == [("gpu", 1, 12e9, SWITCH, 1, PCI)]
    for name in ("mi100_rocm_smi.txt", "mi250_amd_smi.txt"):
        text = text_of(name).replace("\n", "\r\n")
        assert detect(text) == "amd-smi"
        assert rows(read(text)) == EXPECTED[name][1]


def test_gpus_that_weigh_more_have_no_link_of_their_own() -> None:
    """A ring of four, in which opposite GPUs are two hops apart."""
    weights = table("Weight", 4, lambda a, b: (0, 15, 30, 15)[(a - b) % 4])
    text = weights + types(4, lambda a, b: True)
    (described,) = read(text).levels
    assert described.level.kind is LINKS
    assert described.level.links == ((0, 1, 0, 1), (1, 0, 1, 0), (0, 1, 0, 1), (1, 0, 1, 0))
    assert remarks(text)[0] == (
        10,
        "GPU0 to GPU2 weighs 30, others 15: such pairs are taken to have no link of their own",
    )


@pytest.mark.parametrize("none", ["0-0", "N/A"])
def test_gpus_without_a_bandwidth_have_no_link_of_their_own(none: str) -> None:
    """Half of a node of MI250: four links in a package, one or two between packages."""
    cells = ["N/A", "50000-200000", "50000-50000", none]
    speeds = table("Numa BW", 4, lambda a, b: cells[a ^ b])
    text = types(4, lambda a, b: True) + speeds
    (described,) = read(text).levels
    assert described.level.links == ((0, 4, 1, 0), (4, 0, 0, 1), (1, 0, 0, 4), (0, 1, 4, 0))
    assert described.level.port == 250e9
    message = "GPU0 to GPU3 has no bandwidth, others have: such pairs are taken to have no link of"
    assert remarks(text)[0][1].startswith(message)


def test_paths_over_pcie_are_those_of_hops_or_of_numa_nodes() -> None:
    pcie = types(4, lambda a, b: False)
    hops = table("Hops", 4, lambda a, b: 0 if a == b else 2 if a // 2 == b // 2 else 3)
    numa = "".join(f"GPU[{i}]\t\t: (Topology) Numa Node: {i // 2}\n" for i in range(4))
    expected = [("socket", 2, 12e9, SWITCH, 1, PCI), ("gpu", 2, 12e9, SWITCH, 1, PCI)]
    assert rows(read(pcie + hops)) == rows(read(pcie + numa)) == expected
    assert remarks(pcie + hops) == []
    assert rows(read(pcie)) == [("gpu", 4, 12e9, SWITCH, 1, PCI)]
    assert remarks(pcie)[0][1].startswith("without hops and NUMA nodes, all paths")


@given(st.integers(2, 12), st.sampled_from(["0-0", "N/A", "50000-50000", "32000-64000"]))
def test_bandwidths_that_are_known_are_taken(size: int, bandwidth: str) -> None:
    speeds = table("Numa BW", size, lambda a, b: "N/A" if a == b else bandwidth)
    (described,) = read(types(size, lambda a, b: True) + speeds).levels
    lane = 64e9 if bandwidth.endswith("64000") else 50e9
    assert described.level.port == lane * (size - 1)
    assert ("assumed" in described.sources[1]) is (bandwidth in ("0-0", "N/A"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (table("Weight", 2, lambda a, b: 15), "3:1: there is no table of link types: give all"),
        (types(2, lambda a, b: True).replace("XGMI 0", "XGMI"), "4:6: GPU1 has 1 of 2 cells"),
        (types(2, lambda a, b: True).replace("GPU1 X", "GPU7 X"), "4:1: GPU7 has a row, but no"),
        (types(2, lambda a, b: True).replace("XGMI", "MEH"), "3:8: 'MEH' is not XGMI or PCIE"),
        (types(2, lambda a, b: True).replace("\nGPU1 ", "\nGPU0 "), "4:1: there are two rows of"),
        (types(2, lambda a, b: True).partition("GPU1 X")[0], "3:6: the table has no cell for GPU1"),
        ("LINK TYPE TABLE:\n", "1:1: there is no table of GPUs here"),
        ("LINK TYPE TABLE:\nGPU0 0\n", "2:1: this line of names has other words"),
    ],
)
def test_what_is_wrong_in_a_table_is_said(text: str, message: str) -> None:
    with pytest.raises(ReadError, match=re.escape(message.partition(": ")[2])) as error:
        read(text)
    place = error.value.place
    assert message.startswith(f"{place.line}:{place.column}:")
