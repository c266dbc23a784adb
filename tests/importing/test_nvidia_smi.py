"""Tests of the matrices that `nvidia-smi topo -m` prints."""

import re
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.importing.topology_files import (
    EXPECTED,
    FULL,
    LINKS,
    NETWORK,
    NVLINK,
    PCI,
    SWITCH,
    matrix,
    remarks,
    rows,
    sizes,
    text_of,
)

from collir.importing.machines import detect, read
from collir.importing.values import ReadError, TextPlace
from collir.tools.machine import preset


def test_a_matrix_may_be_pasted_with_spaces_and_underlined() -> None:
    text = text_of("dgx_a100.txt")
    assert rows(read(text.replace("\t", "    "))) == EXPECTED["dgx_a100.txt"][1]
    assert rows(read("\x1b[4m" + text.replace("\n", "\x1b[0m\n", 1))) == EXPECTED["dgx_a100.txt"][1]


def test_cells_that_differ_from_their_mirror_are_warned_of() -> None:
    cells = [["X", "NV2", "NV2"], ["NV1", "X", "NV2"], ["NV2", "NV2", "X"]]
    messages = remarks(matrix(cells))
    assert messages[0] == (3, "GPU1 to GPU0 has 1 NVLinks, GPU0 to GPU1 has 2: taken to be 1")


def test_an_uneven_pcie_tree_is_taken_as_flat() -> None:
    cells = [["X" if i == j else "PIX" if i < 3 and j < 3 else "SYS" for j in range(4)]
             for i in range(4)]  # fmt: skip
    assert sizes(read(matrix(cells))) == [4]
    assert remarks(matrix(cells)) == [
        (line, f"GPU3 reaches 0 others by {way} or nearer, other GPUs 2: {way} is taken as what is "
         "further away")
        for line, way in ((5, "PIX"), (5, "PXB"), (5, "PHB"), (5, "NODE"))
    ]  # fmt: skip


def test_ranks_that_are_not_in_the_order_of_the_gpus_are_named() -> None:
    cells = [["X" if i == j else "PIX" if i % 2 == j % 2 else "SYS" for j in range(4)]
             for i in range(4)]  # fmt: skip
    assert remarks(matrix(cells)) == [
        (4, "ranks of the machine are in this order: GPU0 GPU2 GPU1 GPU3")
    ]


def test_a_switch_with_a_weak_gpu_is_still_a_switch() -> None:
    cells = [["X" if i == j else "NV2" if 3 in (i, j) else "NV12" for j in range(8)]
             for i in range(8)]  # fmt: skip
    assert rows(read(matrix(cells))) == [("gpu", 8, 50e9, SWITCH, 1, NVLINK)]


def test_direct_links_of_mixed_numbers_are_a_matrix() -> None:
    links = [[0, 1, 1, 2], [1, 0, 2, 1], [1, 2, 0, 2], [2, 1, 2, 0]]
    cells = [[f"NV{n}" if n else "X" for n in row] for row in links]
    reading = read(matrix(cells))
    assert rows(reading) == [("gpu", 4, 125e9, LINKS, 1, NVLINK)]
    assert reading.levels[-1].level.links == tuple(map(tuple, links))
    ((line, message),) = remarks(matrix(cells))
    assert line == 2
    assert message.startswith("mixed numbers of links (1, 2): messages are taken to go the short")


def test_the_hybrid_cube_mesh_is_the_one_that_ships() -> None:
    reading = read(text_of("dgx1_v100.txt"))
    shipped = preset("dgx1_v100").op.value()
    assert reading.levels[-1].level.links == shipped.levels[-1].links


def islands(*matrices: list[list[int]]) -> str:
    """Return a matrix of islands with numbers of NVLinks between their GPUs."""
    size = sum(map(len, matrices))
    cells = [["X" if a == b else "SYS" for b in range(size)] for a in range(size)]
    start = 0
    for links in matrices:
        for (a, row), b in product(enumerate(links), range(len(links))):
            if row[b]:
                cells[start + a][start + b] = f"NV{row[b]}"
        start += len(links)
    return matrix(cells)


def test_islands_that_are_linked_in_other_ways_are_no_regular_machine() -> None:
    path = [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]]
    star = [[0, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0], [1, 0, 0, 0]]
    with pytest.raises(ReadError, match="are not linked in the same way") as raised:
        read(islands(path, star))
    assert raised.value.place == TextPlace(6)


SQUARE = [[0, 2, 0, 2], [2, 0, 2, 0], [0, 2, 0, 2], [2, 0, 2, 0]]


def test_equal_islands_may_be_numbered_differently() -> None:
    crossed = [[0, 2, 2, 0], [2, 0, 0, 2], [2, 0, 0, 2], [0, 2, 2, 0]]
    reading = read(islands(SQUARE, crossed))
    assert rows(reading) == rows(read(islands(SQUARE, SQUARE)))
    inner = reading.levels[-1].level
    assert inner.links == tuple(map(tuple, SQUARE))
    message = "ranks of the machine are in this order: GPU0 GPU1 GPU2 GPU3 GPU4 GPU5 GPU7 GPU6"
    assert (9, message) in remarks(islands(SQUARE, crossed))


@given(st.lists(st.integers(0, 3), min_size=15, max_size=15), st.permutations(range(6)))
def test_an_island_in_any_order_is_the_same(numbers: list[int], order: list[int]) -> None:
    links = [[0] * 6 for _ in range(6)]
    for (a, b), count in zip(combinations(range(6), 2), numbers, strict=True):
        links[a][b] = links[b][a] = count + (b == a + 1)
    other = [[links[a][b] for b in order] for a in order]
    reading = read(islands(links, other))
    assert rows(reading) == rows(read(islands(links, links)))
    assert reading.levels[-1].level.links == read(islands(links, links)).levels[-1].level.links


def test_gpus_of_pairs_are_counted_not_the_pairs() -> None:
    """Three pairs of GPUs, of which two share a PCIe switch."""
    cells = [
        [
            "X" if a == b else "NV4" if a // 2 == b // 2 else "PIX" if max(a, b) < 4 else "SYS"
            for b in range(6)
        ]
        for a in range(6)
    ]
    message = (
        "GPU4 reaches 1 others by PIX or nearer, other GPUs 3: PIX is taken as what is further away"
    )
    assert remarks(matrix(cells))[0] == (6, message)


def test_names_and_cells_may_be_glued_by_a_terminal() -> None:
    text = text_of("dgx_a100.txt")
    expected = EXPECTED["dgx_a100.txt"][1]
    first, _, rest = text.partition("\n")
    for header in (first.replace("\t", ""), first.strip().replace("\t", "")):
        assert detect(f"{header}\n{rest}") == "nvidia-smi"
        assert rows(read(f"{header}\n{rest}")) == expected
    lines = [re.sub(r"\t ?(?=X|NV|PXB|PHB|SYS|NODE|PIX)", "", line) for line in text.split("\n")]
    assert rows(read("\n".join(lines))) == expected


def test_a_wide_matrix_may_be_wrapped_quoted_or_a_table() -> None:
    text = text_of("dgx_a100.txt")
    expected = EXPECTED["dgx_a100.txt"][1]
    head, _, _ = text.partition("\n\n")
    wrapped: list[str] = []
    for line in head.split("\n"):
        words = line.split("\t")
        wrapped += ["\t".join(words[:9]), "\t".join(words[9:])]
    assert rows(read("\n".join(wrapped))) == expected
    assert rows(read("\n\n".join(head.split("\n")))) == expected
    assert rows(read("\n".join(f"> {line}" for line in head.split("\n")))) == expected
    table = ["|" + "|".join(line.split("\t")) + "|" for line in head.split("\n")]
    table.insert(1, "|---" * 5 + "|")
    assert detect("\n".join(table)) == "nvidia-smi"
    assert rows(read("\n".join(table))) == expected
    assert rows(read(text.replace("\n", "\r\n"))) == expected


def test_adapters_that_do_not_divide_over_the_gpus_are_shared() -> None:
    cells = [["X" if i == j else "NV1" if max(i, j) < 2 else "PIX" for j in range(5)]
             for i in range(5)]  # fmt: skip
    reading = read(matrix(cells, nics=3))
    assert rows(reading)[0] == ("node", 1, 75e9, SWITCH, 1, NETWORK)
    assert reading.remarks[0].place == TextPlace(4)
    assert reading.remarks[0].message.startswith("3 adapters do not divide over 2 GPUs")


def test_a_single_gpu_is_a_machine() -> None:
    assert rows(read("\tGPU0\nGPU0\tX\n")) == [("gpu", 1, 12e9, SWITCH, 1, PCI)]
    assert rows(read("GPU0 CPU Affinity\nGPU0 X 0-7\n")) == [("gpu", 1, 12e9, SWITCH, 1, PCI)]


@given(st.lists(st.integers(1, 4), min_size=3, max_size=3))
def test_trees_of_pcie_are_read_back(counts: list[int]) -> None:
    leaves = list(product(*map(range, counts)))
    connections = ["SYS", "NODE", "PIX"]
    cells = [
        ["X" if a == b else connections[next(i for i in range(3) if a[i] != b[i])] for b in leaves]
        for a in leaves
    ]
    reading = read(matrix(cells))
    assert sizes(reading) == ([count for count in counts if count > 1] or [1])
    assert reading.remarks == ()


@given(st.integers(2, 16), st.integers(1, 18))
def test_equal_links_between_all_are_a_switch_or_direct(gpus: int, links: int) -> None:
    cells = [["X" if i == j else f"NV{links}" for j in range(gpus)] for i in range(gpus)]
    (described,) = read(matrix(cells)).levels
    direct = links * (gpus - 1) <= 18 and gpus > 2
    assert described.level.kind is (FULL if direct else SWITCH)
    assert described.level.port == 25e9 * links * (gpus - 1 if direct else 1)
