"""Tests of texts that are refused, each at the place that is wrong, and of very long ones."""

from pathlib import Path

import pytest
from support.harness.hanging import within
from support.harness.seeds import some
from support.importing.topology_files import ASTRA, TWO_GPUS

from collir.importing.machines import read
from collir.importing.machines.hostlist import MAX_NAMES
from collir.importing.values import MAX_BYTES, ReadError
from collir.tools import collir

MATRIX = "     GPU0 GPU1\nGPU0  X   NV1\nGPU1 NV1   X\n"

BOMB = (
    '<?xml version="1.0"?>\n<!DOCTYPE system [\n<!ENTITY a "aaaaaaaaaa">\n'
    '<!ENTITY b "&a;&a;&a;&a;&a;&a;">\n]>\n<system>&b;</system>\n'
)
"""A file whose entities expand exponentially."""

CORES = """<topology><object type="Machine">
<object type="Package"><object type="NUMANode"><object type="Core"/></object></object>
<object type="NUMANode"><object type="Package"><object type="Core"/></object></object>
</object></topology>"""
"""A file in which sockets and NUMA nodes contain each other."""

LINKED = """<topology>
<object type="OSDev" name="cuda0" gp_index="1"/><object type="OSDev" name="cuda1" gp_index="2"/>
<distances2 name="NVLinkBandwidth"><indexes>{0}</indexes><u64values>{1}</u64values></distances2>
</topology>"""
"""Two GPUs in hwloc's XML; ``{0}`` takes the objects of the matrix, ``{1}`` its values."""

GPUS = 6

UNLINKED = "\n".join(
    ["\t" + "\t".join(f"GPU{i}" for i in range(GPUS))]
    + [
        f"GPU{i}\t"
        + "\t".join("X" if i == j else "NV4" if 0 in (i, j) else "SYS" for j in range(GPUS))
        for i in range(GPUS)
    ]
)
"""A matrix in which NVLink joins all GPUs to the first only."""

UNEVEN_ISLANDS = "\n".join(
    ["\t" + "\t".join(f"GPU{i}" for i in range(GPUS))]
    + [
        f"GPU{i}\t"
        + "\t".join("X" if i == j else "NV4" if i // 4 == j // 4 else "SYS" for j in range(GPUS))
        for i in range(GPUS)
    ]
)
"""A matrix in which NVLink joins four GPUs, and the other two."""

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
    ("<topology/>", "1:1: there is no <object> of type Core or PU here"),
    (TWO_GPUS.format("").replace('dev="0"', ""), "1:29: dev of a <gpu> must be an integer, not ''"),
    (
        TWO_GPUS.format('<nvlink target="2" count="x"/>'),
        "1:42: count of a <nvlink> must be an integer",
    ),
    (
        '<system><cpu><pci busid="1"/></cpu></system>',
        '1:14: there is no <gpu> here, and no <pci> of a class of GPUs (class="0x030200")',
    ),
    (TWO_GPUS.format("").replace('"2"', '"1"'), "2:16: two GPUs are on bus 1"),
    (
        TWO_GPUS.format(f'<nvlink target="2" count="{2**60}"/>'),
        "1:42: count of a <nvlink> must be from 0 to 1000, not 1152921504606846976",
    ),
    (
        '<system><cpu host_hash="1"/><cpu host_hash="2"/><gpu dev="0"/></system>',
        "1:29: there are several hosts here, which NVLink does not join: give the file",
    ),
    (CORES, "3:48: this core's sockets and NUMA nodes are in another order"),
    (LINKED.format("1 2", "0 1 1"), "3:1: the matrix has 3 values for 2 objects, not 4"),
    (LINKED.format("1 3", "0 1 1 0"), "3:1: there is no object 3 here"),
    (LINKED.format("1 2", "0 x 1 0"), "3:1: a bandwidth must be an integer, not 'x'"),
    (LINKED.format("1 2", "0 -1 -1 0"), "3:1: a bandwidth must be from 0 to 1000000000, not -1"),
    (
        f'<topology>\n<object type="NUMANode" local_memory="{2**61}"/>\n'
        '<object type="Core"/></topology>',
        "2:1: local_memory must be from 0 to",
    ),
    # nvidia-smi
    (MATRIX.replace("GPU1 NV1   X", ""), "1:6: GPU1 has a column, but no row"),
    (MATRIX.replace("  X   NV1", "  X"), "2:7: GPU0 has 1 of 2 cells"),
    (MATRIX.replace("  X   NV1", " NV1  NV1"), "2:6: GPU0 to GPU0 is 'NV1': X is what is itself"),
    (MATRIX.replace("  X   NV1", "  X   MEH"), "2:11: 'MEH' is not NV# (such as NV12), PIX"),
    (MATRIX.replace("NV1", f"NV{2**60}"), "2:11: 'NV1152921504606846976' is not NV#"),
    (MATRIX.replace("GPU0 GPU1", "GPU0 GPU0"), "1:11: GPU0 has two columns"),
    (MATRIX + "GPU0 X NV1\n", "4:1: there are two rows of GPU0"),
    (MATRIX + "GPU2 X NV1\n", "4:1: GPU2 has a row, but no column"),
    (
        UNEVEN_ISLANDS,
        "6:1: NVLink joins GPUs to islands of 4, 2: no regular machine describes that",
    ),
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
    ("SwitchName=a Nodes=n0\nSwitchName=b Nodes=n[0-1]\n", "2:20: n0 hangs on a and on b, whose"),
    ("BlockName=a Nodes=n0\nBlockName=b Nodes=n0\n", "2:19: n0 hangs on a and on b, whose"),
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
"""Texts, each with the place and a part of the message."""


@pytest.mark.parametrize(("text", "message"), REFUSED, ids=lambda x: repr(x)[:40])
def test_a_wrong_text_is_refused_where_it_is_wrong(text: str, message: str) -> None:
    with pytest.raises(ReadError) as error:
        read(text)
    report = f"{error.value.place.line}:{error.value.place.column}: {error.value.message}"
    assert message in report
    assert report.startswith(message.partition(" ")[0])


@pytest.mark.parametrize(("text", "message"), REFUSED[::6], ids=lambda x: repr(x)[:40])
def test_the_command_reports_it_and_exits_with_1(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x"
    path.write_text(text, encoding="utf-8")
    assert collir.main(["machine", "--from", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    place, _, reason = message.partition(" ")
    assert err.startswith(f"{path}:{place} error: ")
    assert reason in err


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
"""Kind of text -> a function that makes a text of about ``MAX_BYTES``."""


@pytest.mark.parametrize("kind", some(list(LONG), 2))
def test_long_texts_end_soon(kind: str) -> None:
    text = LONG[kind]()
    with within():
        try:
            assert read(text).levels
        except ReadError as error:
            assert error.message
