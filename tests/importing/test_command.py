"""Tests of `collir machine --from FILE`."""

from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest
from support.importing.topology_files import TOPOLOGIES, text_of

from collir.tools import collir, collopt


def test_hosts_are_a_parameter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        collir.main(["machine", "--from", str(TOPOLOGIES / "dgx_a100.txt"), "--name", "a100"]) == 0
    )
    library = tmp_path / "a100.coll"
    library.write_text(capsys.readouterr().out, encoding="utf-8")
    file = tmp_path / "mine.coll"
    file.write_text('machine @mine = @a100(nodes = 4) from "a100.coll"\n', encoding="utf-8")
    assert collopt.main([str(file)]) == 0


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
    assert collir.main(["machine", "--json", "--from", str(TOPOLOGIES / "dgx_a100.txt")]) == 0
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


def test_a_file_given_as_a_name_is_pointed_out(capsys: pytest.CaptureFixture[str]) -> None:
    path = TOPOLOGIES / "dgx_a100.txt"
    assert collir.main(["machine", str(path)]) == 2
    assert f"; collir machine --from {path} reads the file" in capsys.readouterr().err
    program = Path(__file__).parents[2] / "examples" / "ragged.coll"
    assert collir.main(["machine", str(program)]) == 2
    assert f"; collopt {program} reads the file" in capsys.readouterr().err
