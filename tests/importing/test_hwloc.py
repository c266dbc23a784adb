"""Tests of the files of hosts that hwloc writes."""

from hypothesis import given
from hypothesis import strategies as st
from topology_files import remarks, sizes, text_of

from collir.importing.machines import read


def test_the_memory_of_a_host_is_dealt_out_to_its_cores() -> None:
    device = read(text_of("epyc_7742_hwloc.xml")).machine("m").device
    assert device is not None
    assert device.memory == 4 * 64 * 2**30 / 64


def test_the_gpus_of_hwloc_are_warned_of() -> None:
    text = '<topology><object type="Core"/>\n<object type="OSDev" name="cuda0"/></topology>'
    assert remarks(text) == [(2, "cuda0 is not read: hwloc does not say how GPUs are linked")]


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_even_hosts_of_hwloc_are_read_back(sockets: int, caches: int, cores: int) -> None:
    core = '<object type="Core"><object type="PU"/></object>'
    cache = f'<object type="L3Cache">{core * cores}</object>'
    socket = f'<object type="Package">{cache * caches}</object>'
    text = f"<topology>{socket * sockets}</topology>"
    expected = [size for size in (sockets, caches) if size > 1]
    expected += [cores] if cores > 1 or not expected else []
    assert sizes(read(text)) == expected
