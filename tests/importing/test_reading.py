"""Tests of what all readers of machines share: detection, the levels, remarks, any text."""

import random
import string
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.importing.topology_files import ASTRA, EXPECTED, FILES, remarks, rows, text_of

from collir.importing.machines import FORMATS, detect, read
from collir.importing.values import ReadError
from collir.syntax.reader import read as read_coll
from collir.syntax.writer import write
from collir.tools import collir, collopt
from collir.tools.machine import machine_text, preset

WARNINGS = {
    "a100_mixed_counts.txt": ["4:1: warning: mixed numbers of links: from 9 to 12"],
    "a100_one_without_nvlink.txt": [
        "7:1: warning: GPU5 has no NVLink, other GPUs have: it is left"
    ],
    "dgx1_v100.txt": ["2:1: warning: mixed numbers of links (1, 2), and GPU0 and GPU5 have no NV"],
    "dgx1_v100_nccl.xml": ["6:9: warning: mixed numbers of links (1, 2), and GPU0 and GPU5 have"],
    "by_class_nccl.xml": [
        "13:7: warning: there is no <nvlink> here, so GPUs are taken to be linked by PCIe only",
    ],
    "blocks_scontrol.txt": ["3:1: warning: AggregatedBlock is not read"],
    "fat_tree.conf": ["6:33: warning: LinkSpeed is relative, and not read"],
    "fat_tree.yaml": [
        "3:13: warning: topology blocks is not read: fat tree is that of the cluster",
        "30:13: warning: topology flat is not read: fat tree is that of the cluster",
    ],
    "fat_tree_scontrol.txt": ["1:26: warning: LinkSpeed is relative, and not read"],
    "mi250_amd_smi.txt": ["3:1: warning: mixed numbers of links (1, 2): messages are taken to go"],
    "uneven.conf": ["3:12: warning: leaf1 has 3 nodes, leaf0 has 4: all are taken to have 3"],
    "uneven_hwloc.xml": ["7:5: warning: Package 0 has 7 cores, Package 1 has 8: all are taken to"],
    "v100_hwloc3.xml": [
        "37:3: warning: devices of the machine are the GPUs that hwloc has links of; its 2 cores"
    ],
}
"""File -> the starts of its warnings; a file that is not listed has none."""


def test_every_fixture_is_expected() -> None:
    assert {path.name for path in FILES} == set(EXPECTED)
    assert {name for name, _ in EXPECTED.values()} == set(FORMATS)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_levels_of_a_file_are_read(name: str) -> None:
    assert rows(read(text_of(name))) == EXPECTED[name][1]


@pytest.mark.parametrize("name", EXPECTED)
def test_the_format_is_found_by_the_content(name: str) -> None:
    format, _ = EXPECTED[name]
    assert detect(text_of(name)) == format
    assert read(text_of(name)) == read(text_of(name), format)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_output_is_read_by_collopt_and_printed_to_a_fixed_point(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collir.main(["machine", "--from", str(path)]) == 0
    written = tmp_path / "machine.coll"
    written.write_text(capsys.readouterr().out, encoding="utf-8")
    assert collopt.main([str(written)]) == 0
    printed = capsys.readouterr().out
    assert write(read_coll(printed)) == printed


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_what_is_odd_is_warned_of_with_its_line(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collir.main(["machine", "--from", str(path)]) == 0
    err = capsys.readouterr().err
    warnings = [line for line in err.splitlines() if ": warning: " in line]
    expected = WARNINGS.get(path.name, [])
    assert len(warnings) == len(expected)
    for line, start in zip(warnings, expected, strict=True):
        assert line.startswith(f"{path}:{start}")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_number_has_its_source_in_a_comment(path: Path) -> None:
    written = machine_text(read(path.read_text(encoding="utf-8")), "m", path.name).splitlines()
    assert all(len(line) <= 100 for line in written)
    for index, line in enumerate(written):
        if line.startswith("  level"):
            first = index
            while written[first - 1].startswith("  //"):
                first -= 1
            comment = " ".join(written[first:index]).lower()
            for word in ("size:", "port", "latency"):
                assert word in comment
            assert "assumed" in comment or path.suffix == ".yml"


def test_a_dgx_a100_is_the_one_that_ships() -> None:
    """The preset's fitted bandwidth and latency differ: the file has nominal values."""
    for name in ("dgx_a100.txt", "dgx_a100_nccl.xml"):
        node, gpu = read(text_of(name)).machine("m").levels
        ours, fitted = preset("dgx_a100").op.value().levels
        assert (node.port, node.latency, node.rails) == (ours.port, ours.latency, ours.rails)
        assert gpu == replace(fitted, port=300e9, latency=3.4e-6)


def test_what_is_not_read_is_warned_of() -> None:
    assert remarks(ASTRA + "dimension: 1\n") == [(5, "dimension is not read")]
    assert remarks("SwitchName=a Nodes=n[0-1] Colour=red\n") == [(1, "Colour is not read")]


JUNK = [
    *string.printable,
    "\x00",
    "\x1b",
    "é",
    "\U0001f600",
    "9" * 30,
    "<!--",
    "]]>",
    "&a;",
    "[0-9]",
]


def survives(text: str, format: str | None) -> None:
    """Check that a text is refused at a place, or read and printed to a fixed point."""
    try:
        reading = read(text, format)
    except ReadError as error:
        assert error.place.line >= 1
        assert error.place.column >= 1
        return
    module = read_coll(machine_text(reading, "m", "x\n*/ machine"))
    assert write(read_coll(write(module))) == write(module)


@settings(max_examples=18)
@given(st.sampled_from(sorted(EXPECTED)), st.integers(0), st.booleans())
def test_a_mutated_file_is_read_or_refused(name: str, seed: int, cut: bool) -> None:
    rng = random.Random(seed)
    text = text_of(name)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(text))
        end = min(len(text), at + rng.choice([0, 0, 1, 1, 5, 40]))
        text = text[:at] + rng.choice(["", "", *JUNK]) + text[end:] or " "
    if cut:
        text = text[: rng.randrange(len(text) + 1)]
    survives(text, None)
    survives(text, EXPECTED[name][0])


@settings(max_examples=18)
@given(st.sampled_from(sorted(EXPECTED)), st.integers(0))
def test_a_file_with_words_in_other_places_is_read_or_refused(name: str, seed: int) -> None:
    rng = random.Random(seed)
    words = text_of(name).split(" ")
    for _ in range(rng.randint(1, 5)):
        words[rng.randrange(len(words))] = words[rng.randrange(len(words))]
    survives(" ".join(words), EXPECTED[name][0])


@pytest.mark.turns
@pytest.mark.parametrize("name", EXPECTED)
def test_a_truncated_file_is_read_or_refused(name: str) -> None:
    text = text_of(name)
    for end in range(0, len(text), max(1, len(text) // 60)):
        survives(text[:end], EXPECTED[name][0])


@pytest.mark.turns
@given(st.text(), st.sampled_from(sorted(FORMATS)))
def test_any_text_is_refused_by_any_reader(text: str, format: str) -> None:
    survives(text, format)


@given(st.binary(max_size=200))
def test_no_bytes_make_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x"
    path.write_bytes(data)
    assert collir.main(["machine", "--from", str(path)]) == 1
