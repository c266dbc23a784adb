"""Tests of the topology files that NCCL and RCCL write."""

from topology_files import TWO_GPUS, remarks, sizes, text_of

from collir.importing.machines import read


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
