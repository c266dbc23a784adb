"""Tests of clusters from two files: the network from one, a host from the other."""

import json
from pathlib import Path

import pytest
from support.importing.topology_files import EXPECTED, TOPOLOGIES, Row, rows, text_of

from collir.importing.machines import join, read
from collir.importing.values import ReadError
from collir.machine import Fabric
from collir.tools import collir, collopt

TREE = (
    "SwitchName=leaf0 Nodes=n[0-3]\nSwitchName=leaf1 Nodes=n[4-7]\nSwitchName=top "
    "Switches=leaf[0-1]\n"
)


HOSTS = [
    name
    for name, (format, levels) in EXPECTED.items()
    if format not in ("slurm", "astra-sim") and levels[0][0] != "rack"
]


@pytest.mark.parametrize("name", HOSTS)
def test_the_levels_are_those_of_the_network_and_of_the_host(name: str) -> None:
    host = read(text_of(name))
    joined = join(read(TREE), host, name)
    leaf, node, *inner = rows(joined)
    has_adapters = bool(host.levels[0].parameter)
    assert inner == EXPECTED[name][1][has_adapters:]
    port, rails = (EXPECTED[name][1][0][2], EXPECTED[name][1][0][4]) if has_adapters else (25e9, 1)
    assert (node[:3], node[4]) == (("node", 4, port), rails)
    assert (leaf[:3], leaf[4]) == (("leaf", 2, 4 * port), 4 * rails)
    assert joined.machine("m").devices == 8 * host.machine("m").devices
    assert (joined.device, joined.remarks) == (host.device, ())


def test_blocks_that_nvlink_joins_are_one_level() -> None:
    blocks = "BlockName=a Nodes=n[0-1]\nBlockName=b Nodes=n[2-3]\nBlockSizes=2\n"
    rack, gpu = rows(join(read(blocks), read(text_of("mnnvl_nccl.xml")), "mnnvl.xml"))
    assert gpu == EXPECTED["mnnvl_nccl.xml"][1][1]
    assert rack == network_row("block", 2, 200e9, 4)
    with pytest.raises(ReadError, match="NVLink joins 2 hosts here, but what is innermost in the"):
        join(read(TREE), read(text_of("mnnvl_nccl.xml")), "mnnvl.xml")


def network_row(name: str, size: int, port: float, rails: int) -> Row:
    kind = EXPECTED["dgx_a100.txt"][1][0][3]
    return (name, size, port, kind, rails, Fabric.NETWORK)


@pytest.mark.parametrize(
    ("host", "known"), [("n3", True), ("n3.cluster.org", True), ("login", False), ("", True)]
)
def test_a_host_that_is_no_node_is_warned_of(host: str, known: bool) -> None:
    info = f'<info name="HostName" value="{host}"/>' if host else ""
    text = f'<topology>{info}<object type="Core"/></topology>'
    remarks = join(read(TREE), read(text), "host.xml").remarks
    assert [remark.message for remark in remarks] == (
        [] if known else [f"this host, {host}, is not among the nodes of the network"]
    )


def test_the_files_come_in_either_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = tmp_path / "topology.conf"
    network.write_text(TREE + "SwitchName=top2 Switches=leaf[0-1]\n", encoding="utf-8")
    host = TOPOLOGIES / "uneven_hwloc.xml"
    texts: list[str] = []
    for files in ((network, host), (host, network)):
        words = [word for file in files for word in ("--from", str(file))]
        assert collir.main(["machine", *words, "--name", "c"]) == 0
        out, err = capsys.readouterr()
        assert f"{network}:4:12: warning: top2 has the children of top" in err
        assert f"{host}:7:5: warning: Package 0 has 7 cores" in err
        texts.append(out)
        assert collir.main(["machine", *words, "--json"]) == 0
        assert json.loads(capsys.readouterr()[0])["devices"] == 8 * 14
    assert texts[0] == texts[1]
    plain = "".join(
        "".join(line.strip().removeprefix("//") for line in texts[0].splitlines()).split()
    )
    sentence = f"Lines of leaf and node are those of {network}, of socket and core those of {host}."
    assert "".join(sentence.split()) in plain
    assert "".join(f"{host}, line 7: Package 0 has 7 cores".split()) in plain
    written = tmp_path / "c.coll"
    written.write_text(texts[0], encoding="utf-8")
    assert collopt.main([str(written)]) == 0
