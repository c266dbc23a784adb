"""Tests of the command collir: its subcommands, and its messages on wrong ones."""

import json
import subprocess
import sys

import pytest

from collir.syntax.machines import PRESETS, shipped
from collir.tools import collir


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, expected in (
        (["--version"], "collir 0."),
        (["--help"], "  machine "),
        (["machine", "--help"], "--list"),
    ):
        with pytest.raises(SystemExit) as stop:
            collir.main(arguments)
        assert stop.value.code == 0
        assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the following arguments are required: COMMAND"),
        (["machin"], "there is no command 'machin'; did you mean machine?"),
        (["frobnicate"], "there is no command 'frobnicate'; there is machine"),
        (["machine"], "machine takes the name of a machine, or --list"),
        (["machine", "--list", "gcp_a2"], "machine takes the name of a machine, or --list"),
        (["machine", "gcp_a1"], "no machine 'gcp_a1' ships with collir; did you mean gcp_a4?"),
        (["machine", "lumi"], "'lumi' ships with collir; collir machine --list shows all"),
        (["machine", "../gcp_a2"], "no machine '../gcp_a2' ships with collir"),
        (["machine", "--lost"], "unrecognized arguments: --lost"),
    ],
)
def test_a_wrong_use_is_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collir.main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("collir: error: ")
    assert message in err
    assert err.count("\n") == 1


def test_list_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert collir.main(["machine", "--list"]) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "parameters", "devices", "levels"]
    assert [line.split()[0] for line in lines] == list(shipped())
    line = next(line for line in lines if line.startswith("gcp_a2 "))
    assert "nodes = 2" in line
    assert "node[2] x gpu[16]" in line
    assert line.split()[4] == "32"
    assert "Google Cloud" in line


@pytest.mark.parametrize("name", ["gcp_a2", "@gcp_a2"])
def test_a_name_prints_the_file(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert collir.main(["machine", name]) == 0
    assert capsys.readouterr().out == (PRESETS / "gcp_a2.coll").read_text(encoding="utf-8")


def test_json_is_in_si_units(capsys: pytest.CaptureFixture[str]) -> None:
    assert collir.main(["machine", "dgx_a100", "--json"]) == 0
    machine = json.loads(capsys.readouterr().out)
    assert machine["parameters"] == {"nodes": 2}
    assert machine["devices"] == 16
    assert machine["levels"][0] == {
        "name": "node",
        "size": 2,
        "size_from": "nodes",
        "port": 200e9,
        "latency": 14e-6,
        "kind": "switch",
        "taper": 1.0,
        "rails": 8,
        "fabric": "network",
        "ports": None,
        "shape": None,
        "links": None,
        "parts": [],
        "nvls": None,
    }
    assert machine["device"]["compute"]["bf16"] == 312e12
    assert machine["device"]["memory"] == 40e9


def test_list_as_json_has_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert collir.main(["machine", "--list", "--json"]) == 0
    assert [machine["name"] for machine in json.loads(capsys.readouterr().out)] == list(shipped())


def test_the_module_starts_without_the_passes_and_targets() -> None:
    code = (
        "import sys; from collir.tools import collir; collir.main(['machine', '--list']); "
        "loaded = [m for m in sys.modules if m.startswith('collir.')]; "
        "print([m for m in loaded if m.startswith(('collir.targets.code.', 'collir.semantics'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
