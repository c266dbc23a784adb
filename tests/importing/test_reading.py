"""Machines as others describe them: what is read, what is warned of, and what is refused."""

import random
import re
import string
import time
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from itertools import pairwise, product
from math import prod
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collir.cost.network.disjoint_rings import edge_disjoint_rings
from collir.importing.machines import FORMATS, MAX_BYTES, Place, ReadError, Reading, detect, read
from collir.importing.machines.flat_yaml import parse as parse_yaml
from collir.importing.machines.hostlist import MAX_NAMES, expand
from collir.machine import Fabric, LinkKind
from collir.syntax.reader import read as read_coll
from collir.syntax.writer import write
from collir.tools import collir, collopt
from collir.tools.machine import machine_text, preset

HERE = Path(__file__).parent / "topologies"
"""Written by hand, in the forms of what the tools write.

- dgx_a100: two GPUs and two of eight network adapters at each of four PCIe switches, two adapters
  for storage, six NVSwitches (DGX A100 user guide; numbered as nvidia-smi numbers them).
- hgx_h100: an adapter at the switch of each GPU, 18 NVLinks to NVSwitches (DGX H100 user guide).
- dgx1_v100: the link matrix of the hybrid cube mesh, an adapter for each pair of GPUs (NVIDIA DGX-1
  white paper).
- hgx_a100_4: four A100 with four NVLinks between every two (HGX A100 4-GPU).
- pcie_l40s, nvlink_bridges: servers without NVSwitch, as one puts them together.
- mi300x_rccl: an xGMI link between every two GPUs (AMD Instinct MI300X platform).
- the others say themselves what they are.
"""

FILES = sorted(HERE.iterdir())

SWITCH, RING, FULL, BUS, _, LINKS = LinkKind
NVLINK, PCI, NETWORK, MEMORY = Fabric.NVLINK, Fabric.PCI, Fabric.NETWORK, Fabric.MEMORY

Row = tuple[str, int, float, LinkKind, int, Fabric | None]

EXPECTED: dict[str, tuple[str, list[Row]]] = {
    "dgx_a100.txt": (
        "nvidia-smi",
        [("node", 1, 200e9, SWITCH, 8, NETWORK), ("gpu", 8, 300e9, SWITCH, 1, NVLINK)],
    ),
    "hgx_h100.txt": (
        "nvidia-smi",
        [("node", 1, 400e9, SWITCH, 8, NETWORK), ("gpu", 8, 450e9, SWITCH, 1, NVLINK)],
    ),
    "dgx1_v100.txt": (
        "nvidia-smi",
        [("node", 1, 100e9, SWITCH, 4, NETWORK), ("gpu", 8, 150e9, LINKS, 1, NVLINK)],
    ),
    "hgx_a100_4.txt": ("nvidia-smi", [("gpu", 4, 300e9, FULL, 1, NVLINK)]),
    "pcie_l40s.txt": (
        "nvidia-smi",
        [
            ("socket", 2, 12e9, SWITCH, 1, PCI),
            ("pcie", 2, 12e9, SWITCH, 1, PCI),
            ("gpu", 2, 12e9, SWITCH, 1, PCI),
        ],
    ),
    "nvlink_bridges.txt": (
        "nvidia-smi",
        [("island", 2, 12e9, SWITCH, 1, PCI), ("gpu", 2, 100e9, SWITCH, 1, NVLINK)],
    ),
    "a100_one_without_nvlink.txt": ("nvidia-smi", [("gpu", 7, 300e9, SWITCH, 1, NVLINK)]),
    "a100_mixed_counts.txt": ("nvidia-smi", [("gpu", 8, 225e9, SWITCH, 1, NVLINK)]),
    "dgx_a100_nccl.xml": (
        "nccl",
        [("node", 1, 200e9, SWITCH, 8, NETWORK), ("gpu", 8, 300e9, SWITCH, 1, NVLINK)],
    ),
    "dgx1_v100_nccl.xml": (
        "nccl",
        [("node", 1, 50e9, SWITCH, 4, NETWORK), ("gpu", 8, 150e9, LINKS, 1, NVLINK)],
    ),
    "mi300x_rccl.xml": ("nccl", [("gpu", 8, 448e9, FULL, 1, NVLINK)]),
    "fat_tree.conf": (
        "slurm",
        [
            ("pod", 2, 200e9, SWITCH, 8, NETWORK),
            ("leaf", 2, 100e9, SWITCH, 4, NETWORK),
            ("node", 4, 25e9, SWITCH, 1, NETWORK),
        ],
    ),
    "blocks.conf": (
        "slurm",
        [("block", 2, 450e9, SWITCH, 18, NETWORK), ("node", 18, 25e9, SWITCH, 1, NETWORK)],
    ),
    "fat_tree.yaml": (
        "slurm",
        [
            ("pod", 2, 200e9, SWITCH, 8, NETWORK),
            ("leaf", 2, 100e9, SWITCH, 4, NETWORK),
            ("node", 4, 25e9, SWITCH, 1, NETWORK),
        ],
    ),
    "fat_tree_scontrol.txt": (
        "slurm",
        [
            ("pod", 2, 200e9, SWITCH, 8, NETWORK),
            ("leaf", 2, 100e9, SWITCH, 4, NETWORK),
            ("node", 4, 25e9, SWITCH, 1, NETWORK),
        ],
    ),
    "blocks.yaml": (
        "slurm",
        [("block", 2, 450e9, SWITCH, 18, NETWORK), ("node", 18, 25e9, SWITCH, 1, NETWORK)],
    ),
    "blocks_scontrol.txt": (
        "slurm",
        [("block", 2, 450e9, SWITCH, 18, NETWORK), ("node", 18, 25e9, SWITCH, 1, NETWORK)],
    ),
    "uneven.conf": (
        "slurm",
        [("leaf", 2, 75e9, SWITCH, 3, NETWORK), ("node", 3, 25e9, SWITCH, 1, NETWORK)],
    ),
    "astra_3d.yml": (
        "astra-sim",
        [
            ("dim3", 4, 1.6e12, SWITCH, 32, None),
            ("dim2", 8, 2.8e12, FULL, 4, None),
            ("dim1", 4, 400e9, RING, 1, None),
        ],
    ),
    "epyc_7742_hwloc.xml": (
        "hwloc",
        [
            ("node", 1, 25e9, SWITCH, 1, NETWORK),
            ("socket", 2, 144e9, SWITCH, 1, MEMORY),
            ("numa", 2, 102.4e9, SWITCH, 1, MEMORY),
            ("l3", 4, 102.4e9, SWITCH, 1, MEMORY),
            ("core", 4, 102.4e9, BUS, 1, MEMORY),
        ],
    ),
    "xeon_hwloc1.xml": (
        "hwloc",
        [("socket", 2, 144e9, SWITCH, 1, MEMORY), ("core", 8, 102.4e9, BUS, 1, MEMORY)],
    ),
    "uneven_hwloc.xml": (
        "hwloc",
        [
            ("socket", 2, 144e9, SWITCH, 1, MEMORY),
            ("l3", 2, 102.4e9, SWITCH, 1, MEMORY),
            ("core", 3, 102.4e9, BUS, 1, MEMORY),
        ],
    ),
}
"""File -> its format, and the levels that are in it."""

WARNINGS = {
    "a100_mixed_counts.txt": ["4:1: warning: mixed numbers of links: from 9 to 12"],
    "a100_one_without_nvlink.txt": [
        "7:1: warning: GPU5 has no NVLink, other GPUs have: it is left"
    ],
    "dgx1_v100.txt": ["2:1: warning: mixed numbers of links (1, 2), and GPU0 and GPU5 have no NV"],
    "dgx1_v100_nccl.xml": ["6:9: warning: mixed numbers of links (1, 2), and GPU0 and GPU5 have"],
    "blocks_scontrol.txt": ["3:1: warning: AggregatedBlock is not read"],
    "fat_tree.conf": ["6:33: warning: LinkSpeed is relative, and not read"],
    "fat_tree.yaml": [
        "3:13: warning: topology blocks is not read: fat tree is that of the cluster",
        "30:13: warning: topology flat is not read: fat tree is that of the cluster",
    ],
    "fat_tree_scontrol.txt": ["1:26: warning: LinkSpeed is relative, and not read"],
    "uneven.conf": ["3:12: warning: leaf1 has 3 nodes, leaf0 has 4: all are taken to have 3"],
    "uneven_hwloc.xml": ["15:9: warning: L3Cache 1 has 3 cores, L3Cache 0 has 4: all are taken to"],
}
"""File -> what is warned of; nothing in the others."""


def text_of(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def rows(found: Reading) -> list[Row]:
    levels = [one.level for one in found.levels]
    return [(x.name, x.size, x.port, x.kind, x.rails, x.fabric) for x in levels]


def sizes(found: Reading) -> list[int]:
    return [one.level.size for one in found.levels]


# --- files ---------------------------------------------------------------------------------------


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
    said = [line for line in err.splitlines() if ": warning: " in line]
    expected = WARNINGS.get(path.name, [])
    assert len(said) == len(expected)
    for line, start in zip(said, expected, strict=True):
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
    """But for what was fitted: the file says what the links are nominally."""
    for name in ("dgx_a100.txt", "dgx_a100_nccl.xml"):
        node, gpu = read(text_of(name)).machine("m").levels
        ours, fitted = preset("dgx_a100").op.value().levels
        assert (node.port, node.latency, node.rails) == (ours.port, ours.latency, ours.rails)
        assert gpu == replace(fitted, port=300e9, latency=3.4e-6)


def test_the_memory_of_a_host_is_dealt_out_to_its_cores() -> None:
    device = read(text_of("epyc_7742_hwloc.xml")).machine("m").device
    assert device is not None
    assert device.memory == 4 * 64 * 2**30 / 64


# --- the command ---------------------------------------------------------------------------------


def test_hosts_are_a_parameter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert collir.main(["machine", "--from", str(HERE / "dgx_a100.txt"), "--name", "a100"]) == 0
    library = tmp_path / "a100.coll"
    library.write_text(capsys.readouterr().out, encoding="utf-8")
    mine = tmp_path / "mine.coll"
    mine.write_text('machine @mine = @a100(nodes = 4) from "a100.coll"\n', encoding="utf-8")
    assert collopt.main([str(mine)]) == 0


def test_standard_input_is_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"GPU0\nGPU0 X\n")))
    assert collir.main(["machine", "--from", "-"]) == 0
    assert "machine @stdin {" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(b"GPU0\nGPU0\n")))
    assert collir.main(["machine", "--from", "-"]) == 1
    assert capsys.readouterr().err == ("<stdin>:2:1: error: GPU0 has 0 of 1 cells\nGPU0\n^~~~\n")


def test_json_of_a_file_is_as_of_a_preset(capsys: pytest.CaptureFixture[str]) -> None:
    assert collir.main(["machine", "--json", "--from", str(HERE / "dgx_a100.txt")]) == 0
    assert '"size_from": "nodes"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "nccl"], "--format and --name go with --from FILE"),
        (["gcp_a2", "--name", "x"], "--format and --name go with --from FILE"),
        (["gcp_a2", "--from", "x"], "machine takes the name of a machine, or --list, or --from"),
        (["--list", "--from", "x"], "machine takes the name of a machine, or --list, or --from"),
        (["--from", "x", "--name", "1x"], "'1x' is not a name"),
        (["--from", "x", "--format", "gif"], "invalid choice: 'gif'"),
    ],
)
def test_a_wrong_use_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collir.main(["machine", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("file", "name"),
    [("a-b.txt", "a_b"), ("8xh100.txt", "m_8xh100"), ("é.txt", "m_"), ("-_-.txt", "m_")],
)
def test_a_machine_is_named_after_its_file(
    file: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / file).write_text(text_of("hgx_a100_4.txt"), encoding="utf-8")
    assert collir.main(["machine", "--from", str(tmp_path / file)]) == 0
    assert f"machine @{name} {{" in capsys.readouterr().out


# --- what is refused -----------------------------------------------------------------------------

TOPO = "     GPU0 GPU1\nGPU0  X   NV1\nGPU1 NV1   X\n"
ASTRA = "topology: [Ring]\nnpus_count: [4]\nbandwidth: [50.0]\nlatency: [500.0]\n"
BOMB = (
    '<?xml version="1.0"?>\n<!DOCTYPE system [\n<!ENTITY a "aaaaaaaaaa">\n'
    '<!ENTITY b "&a;&a;&a;&a;&a;&a;">\n]>\n<system>&b;</system>\n'
)
PAIR = """<system><cpu><pci busid="1"><gpu dev="0">{0}</gpu></pci>
<pci busid="2"><gpu dev="1"/></pci></cpu></system>"""
CORES = """<topology><object type="Machine">
<object type="Package"><object type="L3Cache"><object type="Core"/></object></object>
<object type="L3Cache"><object type="Package"><object type="Core"/></object></object>
</object></topology>"""
HEX = 6
UNLINKED = "\n".join(
    ["\t" + "\t".join(f"GPU{i}" for i in range(HEX))]
    + [
        f"GPU{i}\t"
        + "\t".join("X" if i == j else "NV4" if 0 in (i, j) else "SYS" for j in range(HEX))
        for i in range(HEX)
    ]
)
SIX = "\n".join(
    ["\t" + "\t".join(f"GPU{i}" for i in range(HEX))]
    + [
        f"GPU{i}\t"
        + "\t".join("X" if i == j else "NV4" if i // 4 == j // 4 else "SYS" for j in range(HEX))
        for i in range(HEX)
    ]
)

REFUSED = [
    ("", "1:1: the file is empty"),
    (" \n\t\n", "1:1: the file is empty"),
    ("hello\n", "1:1: this is none of NCCL's topology XML"),
    ("\x00\x01\x02GPU", "1:1: this is none of NCCL's topology XML"),
    ("<graph/>", "1:1: this XML is neither NCCL's (<system>) nor hwloc's (<topology>)"),
    ("<!-- <system>", "1:1: this XML is neither"),
    # XML
    (BOMB, "3:12: entity 'a' is declared: entities are not read"),
    (BOMB.replace("system", "topology"), "3:12: entity 'a' is declared"),
    (
        '<!DOCTYPE system [<!ENTITY a SYSTEM "/etc/passwd">]><system>&a;</system>',
        "1:50: entity 'a'",
    ),
    ("<system>&a;</system>", "1:9: this is not XML: undefined entity"),
    ("<system>\n<cpu>", "2:6: this is not XML: no element found: <cpu> is open"),
    ("<system></cpu>", "1:11: this is not XML: mismatched tag: <system> is open"),
    ("<system>" + "<pci>" * 100, "1:324: elements are nested more than 64 deep"),
    ("<system/>", "1:1: there is no GPU here"),
    ("<topology/>", "1:1: there is no <object> of type Core here"),
    (PAIR.format("").replace('dev="0"', ""), "1:29: dev of a <gpu> must be an integer, not ''"),
    (PAIR.format('<nvlink target="2" count="x"/>'), "1:42: count of a <nvlink> must be an integer"),
    (PAIR.format('<nvlink target="1" count="1"/>'), "1:42: a GPU is linked to itself"),
    (PAIR.format("").replace('"2"', '"1"'), "2:16: two GPUs are on bus 1"),
    (
        PAIR.format(f'<nvlink target="2" count="{2**60}"/>'),
        "1:42: count of a <nvlink> must be from 0 to 1000, not 1152921504606846976",
    ),
    (
        '<system><cpu host_hash="1"/><cpu host_hash="2"/><gpu dev="0"/></system>',
        "1:29: there are several hosts here: give the file of one",
    ),
    (CORES, "3:47: this core's sockets, NUMA nodes and caches are in another order"),
    (
        f'<topology>\n<object type="NUMANode" local_memory="{2**61}"/>\n'
        '<object type="Core"/></topology>',
        "2:1: local_memory must be from 0 to",
    ),
    # nvidia-smi
    (TOPO.replace("GPU1 NV1   X", ""), "1:6: GPU1 has a column, but no row"),
    (TOPO.replace("  X   NV1", "  X"), "2:7: GPU0 has 1 of 2 cells"),
    (TOPO.replace("  X   NV1", " NV1  NV1"), "2:6: GPU0 to GPU0 is 'NV1': X is what is itself"),
    (TOPO.replace("  X   NV1", "  X   MEH"), "2:11: 'MEH' is not NV# (such as NV12), PIX"),
    (TOPO.replace("NV1", f"NV{2**60}"), "2:11: 'NV1152921504606846976' is not NV#"),
    (TOPO.replace("GPU0 GPU1", "GPU0 GPU0"), "1:11: GPU0 has two columns"),
    (TOPO + "GPU0 X NV1\n", "4:1: there are two rows of GPU0"),
    (TOPO + "GPU2 X NV1\n", "4:1: GPU2 has a row, but no column"),
    (SIX, "6:1: NVLink joins GPUs to islands of 4, 2: no regular machine describes that"),
    (UNLINKED, "2:1: GPU0 has 20 NVLinks, more than a GPU has, and not to all others: no regular"),
    ("\t".join(f"GPU{i}" for i in range(300)) + "\n", "1:1: GPU0 has a column, but no row"),
    # SLURM
    ("SwitchName=a\n", "1:12: a needs either Nodes= or Switches="),
    ("BlockName=a\n", "1:11: a needs Nodes="),
    ("SwitchName=a Nodes=n0 Switches=b\n", "1:12: a needs either Nodes= or Switches="),
    ("SwitchName= Nodes=n0\n", "1:12: a name is needed here, not ''"),
    ("SwitchName=a Nodes=\n", "1:20: a name is missing"),
    ("SwitchName=a Nodes=n[0-3\n", "1:21: a bracket is not closed"),
    ("SwitchName=a Nodes=n[0-3]]\n", "1:26: ']' is not possible here"),
    ("SwitchName=a Nodes=n[3-0]\n", "1:22: the range 3-0 runs backwards"),
    ("SwitchName=a Nodes=n[a-b]\n", "1:22: 'a-b' is not a range such as 0-3"),
    ("SwitchName=a Nodes=n[0-999999999999]\n", "1:22: the range 0-999999999999 names too many"),
    (f"SwitchName=a Nodes=n[0-{2**60}]\n", "1:22: '0-1152921504606846976' is not a range"),
    (
        "SwitchName=a Nodes=" + "n[0-9]" * 9 + "\n",
        f"1:20: the file names more than {MAX_NAMES} nodes",
    ),
    ("SwitchName=a Nodes=n0,n0\n", "1:20: a lists a name twice"),
    ("SwitchName=a Nodes=n0\nSwitchName=a Nodes=n1\n", "2:12: a is defined twice, first in line 1"),
    ("SwitchName=a Nodes=n0\nSwitchName=b Nodes=n0\n", "2:20: n0 hangs on a and on b"),
    ("SwitchName=a Switches=b\n", "1:23: there is no SwitchName=b"),
    ("SwitchName=a Switches=a\n", "1:12: a hangs on itself: no switch is on top"),
    (
        "SwitchName=a Nodes=n0\nSwitchName=b Switches=c\nSwitchName=c Switches=b\n",
        "2:12: b hangs on itself, below no top switch",
    ),
    (
        "SwitchName=a Nodes=n0\nSwitchName=b Nodes=n1\n",
        "2:12: there is no path between b and a (line 1): these are 2 machines",
    ),
    (
        "SwitchName=a Nodes=n0\nSwitchName=b Nodes=n1\nSwitchName=c Switches=b\n"
        "SwitchName=d Switches=a,c\n",
        "1:12: a has nodes, and switches beside it have switches",
    ),
    ("SwitchName=a Nodes=n0\nBlockName=b Nodes=n1\n", "2:11: there are switches and blocks"),
    ("SwitchName=a Nodes=n0 what\n", "1:23: 'what' is not NAME=VALUE"),
    # ASTRA-sim
    (ASTRA.replace("latency", "delay"), "1:1: there is no latency"),
    (ASTRA.replace("[4]", "[4, 4]"), "2:1: npus_count has 2 values, topology has 1"),
    (ASTRA.replace("Ring", "Torus"), "1:12: 'Torus' is not a topology: use Ring, FullyConnected"),
    (ASTRA.replace("[4]", f"[{2**60}]"), "2:14: npus_count must be from 1 to 2147483647, not 1152"),
    (ASTRA.replace("[4]", f"[{'9' * 9999}]"), "2:14: npus_count must be from 1 to 2147483647"),
    (ASTRA.replace("[4]", "[4.5]"), "2:14: npus_count must be an integer, not '4.5'"),
    (ASTRA.replace("[4]", "[0]"), "2:14: npus_count must be from 1 to 2147483647, not 0"),
    (ASTRA.replace("50.0", "0"), "3:13: a bandwidth must be positive and finite, not 0"),
    (ASTRA.replace("50.0", "1e999"), "3:13: a bandwidth must be positive and finite, not 1e999"),
    (ASTRA.replace("50.0", "1e305"), "3:13: 1e305 is out of range"),
    (ASTRA.replace("500.0", "-1"), "4:11: a latency must not be negative and finite, not -1"),
    (ASTRA.replace("500.0", ".inf"), "4:11: a latency must be a number, not '.inf'"),
    (ASTRA.replace("[50.0]", "[50.0"), "4:1: a comma or ] is missing before 'latency:'"),
    (ASTRA.replace("[500.0]", "[500.0"), "4:10: the list that begins here has no ]"),
    (ASTRA.replace("[4]", "&a [4]"), "2:13: '&' is not possible here"),
    (ASTRA.replace("[4]", "*a"), "2:13: '*' is not possible here"),
    (ASTRA.replace("[4]", "{a: 4}"), "2:13: '{' is not possible here"),
    (ASTRA.replace("[4]", "[[4]]"), "2:14: '[' is not possible here"),
    (ASTRA.replace("[4]", ""), "2:1: npus_count has no value"),
    (ASTRA + "latency: [1]\n", "5:1: latency is given twice"),
    (
        "topology: [Ring, Ring]\nnpus_count: [65536, 65536]\nbandwidth: [1, 1]\nlatency: [1, 1]\n",
        "2:21: there are more than 2^31 - 1 NPUs",
    ),
]


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=lambda x: repr(x)[:40])
def test_a_wrong_text_is_refused_where_it_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ReadError) as found:
        read(text)
    said = f"{found.value.place.line}:{found.value.place.column}: {found.value.message}"
    assert message in said
    assert said.startswith(message.partition(" ")[0])


@pytest.mark.parametrize(("text", "message"), REFUSED[::6], ids=lambda x: repr(x)[:40])
def test_the_command_reports_it_and_exits_with_1(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x"
    path.write_text(text, encoding="utf-8")
    assert collir.main(["machine", "--from", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    place, _, said = message.partition(" ")
    assert err.startswith(f"{path}:{place} error: ")
    assert said in err


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("not UTF-8", b"GPU0\n\xff", "x:2:1: error: the file is not UTF-8 text (byte 0xff)"),
        ("too long", b" " * (MAX_BYTES + 1), "x:1:1: error: the file has more than 4 MiB"),
        ("UTF-16", "GPU0".encode("utf-16"), "x:1:1: error: the file is not UTF-8 text"),
    ],
)
def test_binary_files_are_refused(
    name: str, data: bytes, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").write_bytes(data)
    assert collir.main(["machine", "--from", str(tmp_path / "x")]) == 1
    assert message in capsys.readouterr().err


def test_files_that_cannot_be_read_are_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path, reason in ((tmp_path / "no", "no such file"), (tmp_path, "is a directory")):
        assert collir.main(["machine", "--from", str(path)]) == 1
        assert f"error: cannot read {path}: {reason}" in capsys.readouterr().err


def test_an_endless_file_ends(capsys: pytest.CaptureFixture[str]) -> None:
    assert collir.main(["machine", "--from", "/dev/zero"]) == 1
    assert "/dev/zero:1:1: error: the file has more than 4 MiB" in capsys.readouterr().err


LONG = {
    "letters": lambda: "a" * MAX_BYTES,
    "letters of SLURM": lambda: "SwitchName=a Nodes=n0\n" + "a" * (MAX_BYTES - 30),
    "continued lines": lambda: "SwitchName=a Nodes=n0\n" + "\\\n" * (MAX_BYTES // 2 - 20),
    "blank lines": lambda: "GPU0 GPU1\n" + "\n" * (MAX_BYTES - 30),
    "spaces": lambda: "GPU0 GPU1\n" + " " * (MAX_BYTES - 30),
    "escapes": lambda: "GPU0 GPU1\n" + "\x1b[0" * (MAX_BYTES // 3 - 30),
    "comments": lambda: "<!--" * (MAX_BYTES // 4),
    "brackets": lambda: "topology: " + "[" * (MAX_BYTES - 30),
    "items": lambda: "topology: [" + "a," * (MAX_BYTES // 2 - 30),
    "dashes": lambda: "topology:\n" + "- a\n" * (MAX_BYTES // 4 - 30),
    "elements": lambda: "<system>" + "<a/>" * (MAX_BYTES // 4 - 30),
    "deep cores": lambda: (
        "<topology>" + '<object type="L3Cache">' * 60 + '<object type="Core"/>' * 190_000
    ),
    "a wide group": lambda: (
        '<topology><object type="Group">'
        + '<object type="Core"/>' * 190_000
        + "</object></topology>"
    ),
    "switches": lambda: "".join(f"SwitchName=a{i} Nodes=n{i}\n" for i in range(120_000)),
    "a chain": lambda: (
        "SwitchName=a0 Nodes=n0\n"
        + "".join(f"SwitchName=a{i} Switches=a{i - 1}\n" for i in range(1, 90_000))
    ),
    "links": lambda: (
        "\t".join(f"GPU{i}" for i in range(256))
        + "\n"
        + "\n".join(
            f"GPU{i}\t" + "\t".join("X" if i == j else "NV1" for j in range(256))
            for i in range(256)
        )
    ),
    "a sparse graph": lambda: (
        "\t".join(f"GPU{i}" for i in range(16))
        + "\n"
        + "\n".join(
            f"GPU{i}\t"
            + "\t".join(
                "X" if i == j else "NV999" if i // 8 == j // 8 or 0 in (i, j) else "SYS"
                for j in range(16)
            )
            for i in range(16)
        )
    ),
}


@pytest.mark.parametrize("kind", LONG)
def test_long_texts_end_soon(kind: str) -> None:
    text = LONG[kind]()
    start = time.process_time()
    try:
        assert read(text).levels
    except ReadError as error:
        assert error.message
    assert time.process_time() - start < 20  # the slowest takes a few seconds


# --- odd machines --------------------------------------------------------------------------------


def matrix(cells: Sequence[Sequence[str]], nics: int = 0) -> str:
    """What nvidia-smi would print; the last ``nics`` rows are adapters."""
    gpus = len(cells) - nics
    names = [f"GPU{i}" for i in range(gpus)] + [f"NIC{i}" for i in range(nics)]
    lines = ["\t" + "\t".join([*names, "CPU Affinity", "NUMA Affinity"])]
    lines += ["\t".join([name, *row, "0-7", "0"]) for name, row in zip(names, cells, strict=True)]
    return "\n".join(lines) + "\n\nLegend:\n"


def remarks(text: str) -> list[tuple[int, str]]:
    return [(one.place.line, one.message) for one in read(text).remarks]


def test_a_matrix_may_be_pasted_with_spaces_and_underlined() -> None:
    text = text_of("dgx_a100.txt")
    assert rows(read(text.replace("\t", "    "))) == EXPECTED["dgx_a100.txt"][1]
    assert rows(read("\x1b[4m" + text.replace("\n", "\x1b[0m\n", 1))) == EXPECTED["dgx_a100.txt"][1]


def test_cells_that_differ_from_their_mirror_are_warned_of() -> None:
    cells = [["X", "NV2", "NV2"], ["NV1", "X", "NV2"], ["NV2", "NV2", "X"]]
    said = remarks(matrix(cells))
    assert said[0] == (3, "GPU1 to GPU0 has 1 NVLinks, GPU0 to GPU1 has 2: taken to be 1")


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
    found = read(matrix(cells))
    assert rows(found) == [("gpu", 4, 125e9, LINKS, 1, NVLINK)]
    assert found.levels[-1].level.links == tuple(map(tuple, links))
    ((line, message),) = remarks(matrix(cells))
    assert line == 2
    assert message.startswith("mixed numbers of links (1, 2): messages are taken to go the short")


def test_the_hybrid_cube_mesh_is_the_one_that_ships() -> None:
    found = read((HERE / "dgx1_v100.txt").read_text())
    shipped = preset("dgx1_v100").op.value()
    assert found.levels[-1].level.links == shipped.levels[-1].links


def test_islands_that_are_linked_in_other_ways_are_no_regular_machine() -> None:
    one = [[0, 1, 1], [1, 0, 2], [1, 2, 0]]
    other = [[0, 2, 1], [2, 0, 1], [1, 1, 0]]
    cells = [["SYS"] * 6 for _ in range(6)]
    for start, links in ((0, one), (3, other)):
        for a, row in enumerate(links):
            for b, n in enumerate(row):
                cells[start + a][start + b] = f"NV{n}" if n else "X"
    with pytest.raises(ReadError, match="are not linked in the same way") as raised:
        read(matrix(cells))
    assert raised.value.place == Place(5)


def test_a_file_given_as_a_name_is_pointed_out(capsys: pytest.CaptureFixture[str]) -> None:
    path = HERE / "dgx_a100.txt"
    assert collir.main(["machine", str(path)]) == 2
    assert f"; collir machine --from {path} reads the file" in capsys.readouterr().err


def test_adapters_that_do_not_divide_over_the_gpus_are_shared() -> None:
    cells = [["X" if i == j else "NV1" if max(i, j) < 2 else "PIX" for j in range(5)]
             for i in range(5)]  # fmt: skip
    found = read(matrix(cells, nics=3))
    assert rows(found)[0] == ("node", 1, 75e9, SWITCH, 1, NETWORK)
    assert found.remarks[0].place == Place(4)
    assert found.remarks[0].message.startswith("3 adapters do not divide over 2 GPUs")


def test_links_to_a_gpu_that_is_not_there_are_left_out() -> None:
    link = '<nvlink target="9" count="1" tclass="0x030200"/>'
    assert remarks(PAIR.format(link)) == [(1, "there is no GPU on bus 9: its links are left out")]


def test_links_in_one_direction_only_are_warned_of() -> None:
    link = '<nvlink target="2" count="2" tclass="0x030200"/>'
    assert remarks(PAIR.format(link)) == [
        (1, "GPU1 to GPU0 has 0 links, the other way 2: taken to be 0")
    ]


def test_adapters_of_several_speeds_are_taken_as_the_slowest() -> None:
    text = text_of("dgx_a100_nccl.xml").replace('speed="200000"', 'speed="100000"', 1)
    found = read(text)
    assert found.levels[0].level.port == 100e9
    assert [one.place.line for one in found.remarks] == [7]


def test_the_speed_of_pcie_is_read_where_it_is_said() -> None:
    text = text_of("dgx_a100_nccl.xml")
    bare = "\n".join(line for line in text.splitlines() if "<nvlink" not in line)
    found = read(bare)
    assert sizes(found) == [1, 4, 2]
    assert found.levels[-1].level.port == 31.51e9
    assert "16 GT/s x16" in found.levels[-1].sources[1]


def test_a_single_gpu_is_a_machine() -> None:
    assert rows(read("\tGPU0\nGPU0\tX\n")) == [("gpu", 1, 12e9, SWITCH, 1, PCI)]
    assert rows(read("GPU0 CPU Affinity\nGPU0 X 0-7\n")) == [("gpu", 1, 12e9, SWITCH, 1, PCI)]


def test_what_is_not_read_is_warned_of() -> None:
    assert remarks(ASTRA + "dimension: 1\n") == [(5, "dimension is not read")]
    assert remarks("SwitchName=a Nodes=n[0-1] Colour=red\n") == [(1, "Colour is not read")]


def test_the_gpus_of_hwloc_are_warned_of() -> None:
    text = '<topology><object type="Core"/>\n<object type="OSDev" name="cuda0"/></topology>'
    assert remarks(text) == [(2, "cuda0 is not read: hwloc does not say how GPUs are linked")]


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


# --- properties ----------------------------------------------------------------------------------


def tree(counts: Sequence[int]) -> str:
    """A topology.conf of an even tree, its top first."""
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


def as_yaml(conf: str) -> str:
    """The same tree as a topology.yaml."""
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
    found = read(tree(counts))
    assert sizes(found) == counts
    assert found.remarks == ()
    assert [one.level.rails for one in found.levels] == [
        prod(counts[depth + 1 :]) for depth in range(len(counts))
    ]


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
    found = read(text)
    inner = 1
    for (kind, count, bandwidth, latency), one in zip(dimensions, found.levels[::-1], strict=True):
        links = {"Switch": 1, "Ring": min(2, count - 1), "FullyConnected": count - 1}[kind] or 1
        hops = 2 if kind == "Switch" else 1
        assert one.level.size == count
        assert one.level.rails == inner
        assert one.level.port == pytest.approx(bandwidth * 1e9 * links * inner)
        assert one.level.latency == pytest.approx(latency * 1e-9 * hops)
        inner *= count
    again = read_coll(machine_text(found, "m", "x"))
    assert write(read_coll(write(again))) == write(again)


@given(st.lists(st.integers(1, 4), min_size=3, max_size=3))
def test_trees_of_pcie_are_read_back(counts: list[int]) -> None:
    leaves = list(product(*map(range, counts)))
    ways = ["SYS", "NODE", "PIX"]
    cells = [
        ["X" if a == b else ways[next(i for i in range(3) if a[i] != b[i])] for b in leaves]
        for a in leaves
    ]
    found = read(matrix(cells))
    assert sizes(found) == ([count for count in counts if count > 1] or [1])
    assert found.remarks == ()


@given(st.integers(2, 16), st.integers(1, 18))
def test_equal_links_between_all_are_a_switch_or_direct(gpus: int, links: int) -> None:
    cells = [["X" if i == j else f"NV{links}" for j in range(gpus)] for i in range(gpus)]
    (found,) = read(matrix(cells)).levels
    direct = links * (gpus - 1) <= 18 and gpus > 2
    assert found.level.kind is (FULL if direct else SWITCH)
    assert found.level.port == 25e9 * links * (gpus - 1 if direct else 1)


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))
def test_even_hosts_of_hwloc_are_read_back(sockets: int, caches: int, cores: int) -> None:
    core = '<object type="Core"><object type="PU"/></object>'
    cache = f'<object type="L3Cache">{core * cores}</object>'
    socket = f'<object type="Package">{cache * caches}</object>'
    text = f"<topology>{socket * sockets}</topology>"
    expected = [size for size in (sockets, caches) if size > 1]
    expected += [cores] if cores > 1 or not expected else []
    assert sizes(read(text)) == expected


@given(st.integers(3, 8), st.data())
def test_rings_use_no_link_twice(n: int, data: st.DataObject) -> None:
    links = [[0] * n for _ in range(n)]
    for a in range(n):
        for b in range(a):
            links[a][b] = links[b][a] = data.draw(st.integers(0, 2))
    left = [list(row) for row in links]
    for ring in edge_disjoint_rings(links):
        assert sorted(ring) == list(range(n))
        for a, b in pairwise((*ring, ring[0])):
            left[a][b] -= 1
            left[b][a] -= 1
    assert min(map(min, left)) >= 0


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 4))
def test_ranges_of_hosts_keep_their_zeros(low: int, more: int, width: int) -> None:
    first = str(low).zfill(width)
    names = expand(f"a[{first}-{low + more}]b,c", Place(1))
    assert names == [f"a{str(i).zfill(len(first))}b" for i in range(low, low + more + 1)] + ["c"]


def test_yaml_may_be_written_in_several_ways() -> None:
    ways = ["a: [x, y]", "a:\n- x\n- y", "---\n'a': [ 'x',\n \"y\" ] # z\n", 'a:\n  - "x"\n  - y\n']
    for text in ways:
        assert [item.text for item in parse_yaml(text)["a"].items] == ["x", "y"]


# --- fuzz ----------------------------------------------------------------------------------------

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
    """Reads a text, and writes what comes of it, or says why not."""
    try:
        found = read(text, format)
    except ReadError as error:
        assert error.place.line >= 1
        assert error.place.column >= 1
        return
    module = read_coll(machine_text(found, "m", "x\n*/ machine"))
    assert write(read_coll(write(module))) == write(module)


@settings(deadline=None, max_examples=30)
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


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(sorted(EXPECTED)), st.integers(0))
def test_a_file_with_words_in_other_places_is_read_or_refused(name: str, seed: int) -> None:
    rng = random.Random(seed)
    words = text_of(name).split(" ")
    for _ in range(rng.randint(1, 5)):
        words[rng.randrange(len(words))] = words[rng.randrange(len(words))]
    survives(" ".join(words), EXPECTED[name][0])


@pytest.mark.parametrize("name", EXPECTED)
def test_a_truncated_file_is_read_or_refused(name: str) -> None:
    text = text_of(name)
    for end in range(0, len(text), max(1, len(text) // 60)):
        survives(text[:end], EXPECTED[name][0])


@given(st.text(), st.sampled_from(sorted(FORMATS)))
def test_any_text_is_refused_by_any_reader(text: str, format: str) -> None:
    survives(text, format)


@given(st.binary(max_size=200))
def test_no_bytes_make_a_traceback(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x"
    path.write_bytes(data)
    assert collir.main(["machine", "--from", str(path)]) == 1
