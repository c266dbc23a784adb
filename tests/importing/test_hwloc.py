"""Tests of the files of hosts that hwloc writes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.importing.topology_files import (
    BUS,
    FULL,
    LINKS,
    MEMORY,
    NVLINK,
    PCI,
    SWITCH,
    remarks,
    rows,
    sizes,
    text_of,
)

from collir.importing.machines import read


def test_the_memory_of_a_host_is_dealt_out_to_its_cores() -> None:
    device = read(text_of("epyc_7742_hwloc.xml")).machine("m").device
    assert device is not None
    assert device.memory == 4 * 64 * 2**30 / 64


def test_the_gpus_of_hwloc_are_warned_of() -> None:
    text = '<topology><object type="Core"/>\n<object type="OSDev" name="cuda0"/></topology>'
    ((line, message),) = remarks(text)
    assert line == 2
    assert message.startswith("cuda0 is not read: this file does not say how GPUs are linked")


def host(sockets: int, numa: int, caches: int, cores: int) -> str:
    """Return a host; each number is of the children in each part."""
    core = '<object type="Core"><object type="PU"/></object>'
    cache = f'<object type="L3Cache">{core * cores}</object>'
    group = f'<object type="Group"><object type="NUMANode"/>{cache * caches}</object>'
    socket = f'<object type="Package">{group * numa}</object>'
    return f"<topology>{socket * sockets}</topology>"


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_even_hosts_of_hwloc_are_read_back(
    sockets: int, numa: int, caches: int, cores: int
) -> None:
    expected = [size for size in (sockets, numa) if size > 1]
    expected += [caches * cores] if caches * cores > 1 or not expected else []
    assert sizes(read(host(sockets, numa, caches, cores))) == expected


def test_caches_that_share_a_memory_do_not_multiply_it() -> None:
    """Cores behind one L3 cache or behind many have the bandwidth of one memory."""
    for sockets, numa, caches in ((2, 1, 8), (1, 1, 4), (2, 2, 2)):
        one = read(host(sockets, numa, 1, caches * 4))
        many = read(host(sockets, numa, caches, 4))
        assert rows(many) == rows(one)
        *_, cores = many.machine("m").levels
        assert cores.port * numa == 102.4e9
        assert f"{sockets * numa * caches} L3 caches of 4 cores" in many.levels[-1].sources[-1]
        assert "L3" not in one.levels[-1].sources[-1]


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_no_more_is_given_to_the_children_than_their_parent_has(
    sockets: int, numa: int, caches: int, cores: int
) -> None:
    machine = read(host(sockets, numa, caches, cores)).machine("m")
    inner = [level for level in machine.levels if level.name != "socket"]
    above = 102.4e9
    for level in inner:
        below = level.port * (1 if level.kind is BUS else level.size)
        assert below <= above * 1.001
        above = level.port


@pytest.mark.parametrize("wrapper", ["NUMANode", "MemCache"])
def test_a_group_with_memory_is_a_numa_node(wrapper: str) -> None:
    group = f'<object type="Group"><object type="{wrapper}"/><object type="Core"/></object>'
    text = f'<topology><object type="Package">{group * 2}</object></topology>'
    assert (
        rows(read(text))
        == [
            ("numa", 2, 51.2e9, SWITCH, 1, MEMORY),
            ("core", 1, 51.2e9, BUS, 1, MEMORY),
        ][:1]
    )


def test_numa_nodes_around_sockets_are_linked_as_sockets() -> None:
    node = '<object type="NUMANode"><object type="Socket"><object type="Core"/></object></object>'
    text = f"<topology>{node * 2}</topology>"
    assert rows(read(text)) == [("numa", 2, 144e9, SWITCH, 1, MEMORY)]


def test_without_cores_a_device_is_a_thread() -> None:
    threads = '<object type="PU"/><object type="PU"/>'
    text = f'<topology><object type="Package">{threads}</object></topology>'
    assert rows(read(text)) == [("thread", 2, 102.4e9, BUS, 1, MEMORY)]


@pytest.mark.parametrize(
    ("version", "kind", "adapters"),
    [
        ("2.0", "3", 1), ("2.0", "6", 0), ("", "3", 1), ("3.0", "3", 0), ("3.0", "32", 1),
        ("3.0", "48", 1), ("3.0", "16", 0), ("3.1", "2", 0),
    ],
)  # fmt: skip
def test_the_types_of_devices_are_bits_since_hwloc_3(
    version: str, kind: str, adapters: int
) -> None:
    device = f'<object type="OSDev" name="mlx5_0" osdev_type="{kind}"/>'
    text = f'<topology version="{version}"><object type="Core"/>{device}</topology>'
    assert [row[0] for row in rows(read(text))][:-1] == ["node"] * adapters


def linked(values: str, kind: str = "NVLinkBandwidth") -> str:
    """Return four GPUs of which each two share a PCIe bridge, and bandwidths between them."""
    gpu = (
        '<object type="PCIDev" pci_link_speed="{1}">'
        '<object type="OSDev" name="cuda{0}" gp_index="{0}"/></object>'
    )
    bridge = '<object type="Bridge" bridge_type="1-1">{}</object>'
    gpus = [gpu.format(i, 16 if i else 8) for i in range(4)]
    devices = "".join(bridge.format("".join(gpus[i : i + 2])) for i in (0, 2))
    return (
        f'<topology version="2.0"><object type="Machine">{devices}</object>\n'
        f'<distances2 type="OSDev" indexing="gp" name="{kind}"><indexes>0 1 2 3</indexes>'
        f"<u64values>{values}</u64values></distances2></topology>"
    )


def test_gpus_are_linked_as_hwloc_says() -> None:
    full = "0 50000 50000 50000 50000 0 50000 50000 50000 50000 0 50000 50000 50000 50000 0"
    assert rows(read(linked(full))) == [("gpu", 4, 150e9, FULL, 1, NVLINK)]
    assert rows(read(linked(full, "XGMIBandwidth"))) == [("gpu", 4, 150e9, FULL, 1, NVLINK)]
    pairs = "9 50000 0 0 50000 9 0 0 0 0 9 50000 0 0 50000 9"
    assert rows(read(linked(pairs))) == [
        ("island", 2, 8e9, SWITCH, 1, PCI),
        ("gpu", 2, 50e9, SWITCH, 1, NVLINK),
    ]
    mixed = "0 25000 50000 50000 25000 0 50000 50000 50000 50000 0 25000 50000 50000 25000 0"
    (level,) = read(linked(mixed)).machine("m").levels
    assert (level.port, level.kind) == (125e9, LINKS)
    assert level.links == ((0, 1, 2, 2), (1, 0, 2, 2), (2, 2, 0, 1), (2, 2, 1, 0))


def test_gpus_without_links_are_in_the_tree_of_pcie() -> None:
    assert rows(read(linked(" ".join("0" * 16)))) == [
        ("pcie", 2, 8e9, SWITCH, 1, PCI),
        ("gpu", 2, 8e9, SWITCH, 1, PCI),
    ]


def test_what_of_links_is_left_out_is_said() -> None:
    text = linked("0 " * 15 + "0").replace("<distances2", '<object type="Package" os_index="1" '
        'gp_index="7"/><distances2').replace(">0 1 2 3<", ">0 1 2 7<")  # fmt: skip
    messages = [message for _, message in remarks(text)]
    assert "links of GPUs to Package 1, which is no GPU, are left out" in messages
    assert "cuda3 is in no matrix of links: it is left out" in messages
