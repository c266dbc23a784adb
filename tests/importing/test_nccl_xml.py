"""Tests of the topology files that NCCL and RCCL write."""

import re

import pytest
from support.importing.topology_files import (
    NETWORK,
    NVLINK,
    PCI,
    SWITCH,
    TWO_GPUS,
    remarks,
    rows,
    sizes,
    text_of,
)

from collir.importing.machines import read
from collir.importing.values import ReadError


def test_links_to_a_gpu_that_is_not_there_are_left_out() -> None:
    link = '<nvlink target="9" count="1" tclass="0x030200"/>'
    assert remarks(TWO_GPUS.format(link)) == [
        (1, "there is no GPU on bus 9: its links are left out")
    ]


def test_links_in_one_direction_only_are_warned_of() -> None:
    link = '<nvlink target="2" count="2" tclass="0x030200"/>'
    assert remarks(TWO_GPUS.format(link)) == [
        (1, "GPU1 to GPU0 has 0 links, the other way 2: taken to be 0")
    ]


def test_adapters_of_several_speeds_are_taken_as_the_slowest() -> None:
    text = text_of("dgx_a100_nccl.xml").replace('speed="200000"', 'speed="100000"', 1)
    reading = read(text)
    assert reading.levels[0].level.port == 100e9
    assert [remark.place.line for remark in reading.remarks] == [7]


def test_the_speed_of_pcie_is_read_where_it_is_said() -> None:
    text = text_of("dgx_a100_nccl.xml")
    bare = "\n".join(line for line in text.splitlines() if "<nvlink" not in line)
    reading = read(bare)
    assert sizes(reading) == [1, 4, 2]
    assert reading.levels[-1].level.port == 31.51e9
    assert "16 GT/s x16" in reading.levels[-1].sources[1]


def test_a_gpu_that_is_linked_to_itself_has_no_link() -> None:
    text = TWO_GPUS.format('<nvlink target="1" count="12" tclass="0x030200"/>')
    text = text.replace("<gpu ", '<gpu sm="80" ')
    assert remarks(text) == [(1, "GPU0 is linked to itself: these links are left out")]
    assert sizes(read(text)) == [2]


def test_gpus_and_adapters_may_be_known_by_their_class() -> None:
    text = text_of("by_class_nccl.xml")
    assert rows(read(text.replace("0x030200", "0x120000"))) == rows(read(text))
    display = '<pci busid="ffff:ff:01.0" class="0x030000"/>'
    assert rows(read(text.replace("</cpu>", f"{display}</cpu>", 1))) == rows(read(text))
    slow = re.sub(r'(class="0x0207.*?link_speed=)"16 GT/s"', r'\1"8 GT/s"', text)
    assert rows(read(slow))[0] == ("node", 1, 8 * 15.75e9, SWITCH, 8, NETWORK)
    bare = re.sub(r' link_speed="[^"]*" link_width="16"', "", text)
    assert [row[2] for row in rows(read(bare))] == [200e9, 12e9, 12e9]


@pytest.mark.parametrize("width", ["0", "255", ""])
def test_a_width_that_is_not_known_is_not_taken(width: str) -> None:
    text = text_of("by_class_nccl.xml").replace('link_width="16"', f'link_width="{width}"')
    assert [row[2] for row in rows(read(text))] == [200e9, 12e9, 12e9]


@pytest.mark.parametrize(("sm", "said"), [("90", True), ("89", False), ("", False)])
def test_what_nccl_reads_may_leave_nvlinks_out(sm: str, said: bool) -> None:
    text = TWO_GPUS.format("").replace("<gpu ", f'<gpu sm="{sm}" ' if sm else "<gpu ")
    assert rows(read(text)) == [("gpu", 2, 12e9, SWITCH, 1, PCI)]
    assert any("there is no <nvlink> here" in message for _, message in remarks(text)) is said


def test_an_adapter_of_all_sockets_is_one_adapter() -> None:
    net = '<nic><net name="eth0" dev="0" port="0" speed="100000"/></nic>'
    text = TWO_GPUS.format("").replace("</cpu>", f"{net}</cpu><cpu>{net}</cpu>")
    assert rows(read(text))[0] == ("node", 1, 12.5e9, SWITCH, 1, NETWORK)


def test_hosts_that_nvlink_joins_are_one_machine() -> None:
    text = text_of("mnnvl_nccl.xml")
    *_, gpu = read(text).levels
    assert gpu.level.size == 4
    unlinked = text.replace("<nvlink", "<left_out", 1)
    assert rows(read(unlinked))[-1] == ("gpu", 3, 900e9, SWITCH, 1, NVLINK)
    assert (5, "GPU0 has no NVLink, other GPUs have: it is left out") in remarks(unlinked)
    apart = text.replace('tclass="0x068000"', 'tclass="0x030200"')
    with pytest.raises(ReadError, match="several hosts here, which NVLink does not join"):
        read(apart)
    no_adapters = "\n".join(line for line in text.splitlines() if "<nic>" not in line)
    assert rows(read(no_adapters))[0] == ("rack", 1, 100e9, SWITCH, 4, NETWORK)
