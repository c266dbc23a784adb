"""Tests of ``collir calibrate``: from files, and from a run on real ranks."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from support.harness.hanging import HANG

from collir.dialects.machine import MachineOp
from collir.importing.measurements import files
from collir.importing.measurements.tables import LevelExtent, mesh_over
from collir.importing.values import TextPlace
from collir.machine import Level, Machine
from collir.tools import calibrate_driver, collir, measure
from collir.tools.api import parse
from collir.tools.mpi_run import mpiexec

EXAMPLES = Path(__file__).parents[2] / "examples" / "calibration"
FILES = [f"--from={EXAMPLES / name}" for name in ("one_host.txt", "two_hosts.txt")]
MODEL = ["--model", "alpha-beta", "--algorithm", "ring"]
GIVEN = ["calibrate", str(EXAMPLES / "pod.coll"), *FILES, *MODEL]
TRUE = {"host.port": 82e9, "host.latency": 12.5e-6, "gpu.port": 234e9, "gpu.latency": 2.9e-6}
"""The parameters that the times of the examples were made with."""


def machine_of(text: str) -> Machine:
    [machine] = [op.value() for op in parse(text).ops if isinstance(op, MachineOp)]
    return machine


def test_a_machine_from_two_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    output, report = tmp_path / "fitted.coll", tmp_path / "report.txt"
    assert collir.main([*GIVEN, "-o", str(output), "--report", str(report)]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "")
    machine = machine_of(output.read_text())
    host, gpu = machine.levels
    fitted = dict(zip(TRUE, (host.port, host.latency, gpu.port, gpu.latency), strict=True))
    for name, value in TRUE.items():
        assert fitted[name] == pytest.approx(value, rel=0.04)
    assert [level.fabric for level in machine.levels] == ["network", "nvlink"]
    for line in output.read_text().splitlines():
        assert len(line) <= 100
    assert "held back     10" in report.read_text()


@pytest.mark.turns
def test_what_programs_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert collir.main([*GIVEN, "--json"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    result = json.loads(printed.out)
    assert result["model"]["algorithm"] == "ring"
    assert [item["name"] for item in result["parameters"]] == list(TRUE)
    for item in result["parameters"]:
        assert item["fitted"]
        assert item["low"] < item["value"] < item["high"]
    assert result["fitted"]["times"] + result["held_back"]["times"] == 48
    assert result["fitted"]["median_error"] < 0.02
    for item in result["held_back"]["points"]:
        assert item["predicted_s"] == pytest.approx(item["measured_s"], rel=0.1)
    assert machine_of(result["coll"]).name == "pod"


def test_a_level_that_nothing_crosses_is_said_to_keep_its_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = [word for word in GIVEN if "two_hosts" not in word]
    assert collir.main(arguments) == 0
    printed = capsys.readouterr()
    assert "level host[2] { port = 100 GB/s, latency = 10 us" in printed.out
    assert "// Port: as before, no measurement crosses level 'host'." in printed.out
    assert printed.err.count("no measurement crosses level 'host'") == 2


@pytest.mark.slow
def test_references_and_parameters_stay_or_are_resolved(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "two.coll"
    path.write_text(
        "machine @pods(hosts = 2) {\n  device { reduction = 1 TB/s }\n"
        "  level host[hosts] { port = 100 GB/s, latency = 10 us, fabric = network }\n"
        "  level gpu[8] { port = 300 GB/s, latency = 1 us, taper = 2 }\n}\n"
        "machine @four = @pods(hosts = 4)\n"
    )
    for name, head in (
        ("pods", "machine @pods(hosts = 2) {"),
        ("@four", "machine @four {"),
    ):
        arguments = ["calibrate", str(path), "--machine", name, *FILES, "--algorithm", "ring"]
        assert collir.main(arguments) == 0
        text = capsys.readouterr().out
        assert head in text
        assert "taper = 2" in text
        assert "// Reduction: " in text
        assert len(machine_of(text).levels) == 2


def test_lines_that_are_left_out_are_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = (EXAMPLES / "one_host.txt").read_text()
    lines = text.splitlines()
    at = next(index for index, line in enumerate(lines) if line.split()[:1] == ["65536"])
    cells = lines[at].split()
    cells[8], cells[9] = "17", "nan"
    lines[at] = "  ".join(cells)
    lines[at + 1] = "  262144  65536  float  sum"
    path = tmp_path / "damaged.txt"
    path.write_text("\r\n".join(lines[: at + 4]))
    arguments = [
        "calibrate",
        str(EXAMPLES / "pod.coll"),
        "--from",
        str(path),
        "--algorithm",
        "ring",
    ]
    assert collir.main(arguments) == 0
    err = capsys.readouterr().err.replace(f"{path}", "damaged.txt")
    assert f"damaged.txt:{at + 1}:1: warning: 17 elements were wrong" in err
    assert f"damaged.txt:{at + 1}:1: warning: 'nan' is not a time above 0 us" in err
    assert f"damaged.txt:{at + 2}:1: warning: this line has 4 of 13 columns" in err
    assert "warning: the run that begins here has no end" in err


def test_too_many_times(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "many.txt"
    lines = (
        f"all_reduce gpu:8 {4 * size} 1e-3" for size in range(1, calibrate_driver.MAX_POINTS + 2)
    )
    path.write_text("\n".join(["# collir measurements", *lines]))
    arguments = ["calibrate", str(EXAMPLES / "pod.coll"), "--from", str(path)]
    assert collir.main(arguments) == 1
    assert "2001 times are more than 2000" in capsys.readouterr().err
    assert collir.main([*arguments, "--most", "64"]) == 0


def test_a_file_that_is_too_large(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "large.txt"
    path.write_bytes(b"# collir measurements\n" + b"x" * (5 * 2**20))
    assert collir.main(["calibrate", "@laptop", "--from", str(path)]) == 1
    assert "more than 4 MiB" in capsys.readouterr().err


@pytest.mark.turns
@pytest.mark.parametrize("size", [1, 2**60, 2**63 - 1])
def test_any_size_is_a_size(capsys: pytest.CaptureFixture[str], tmp_path: Path, size: int) -> None:
    path = tmp_path / "times.txt"
    lines = [f"{kind} gpu:8 {size} 3.5" for kind in ("all_reduce", "broadcast", "all_to_all")]
    path.write_text("\n".join(["# collir measurements", *lines]))
    for extra in ([], ["--algorithm", "runtime"], ["--model", "nccl"], ["--model", "p2"]):
        arguments = ["calibrate", str(EXAMPLES / "pod.coll"), "--from", str(path), *extra]
        assert collir.main(arguments) == 0, capsys.readouterr().err
        machine_of(capsys.readouterr().out)


# --- runs -----------------------------------------------------------------------------------------


def test_what_a_run_measures() -> None:
    levels = [LevelExtent("node", 2), LevelExtent("gpu", 4)]
    machine = Machine("m", (Level("node", 2, 1e9, 1e-6), Level("gpu", 4, 1e9, 1e-6)))
    groups = measure.groups(levels)
    assert [LevelExtent("node", 2), LevelExtent("gpu", 1, 4)] in [
        list(members) for members in groups
    ]
    for over in groups:
        mesh = mesh_over(machine, over, TextPlace(1))
        beside = [sub for sub in mesh.sub_axes if sub.axis == "beside"]
        colours: dict[int, set[tuple[int, ...]]] = {}
        for rank in range(8):
            coordinates = tuple(rank // sub.stride % sub.size for sub in beside)
            colours.setdefault(measure.colour(over, rank), set()).add(coordinates)
        assert all(len(members) == 1 for members in colours.values())
        assert len(set(map(frozenset, colours.values()))) == len(colours)
    for point, kind in product(measure.points(levels), measure.KINDS):
        assert point.size % 4 == 0
        assert kind in {point.kind for point in measure.points(levels)}


@pytest.mark.turns
def test_a_run_on_ranks() -> None:
    command = [sys.executable, "-m", "collir.tools.measure", "node:2", "gpu:2", "--seconds", "1"]
    measurements = files.read(mpiexec(4, command, timeout=HANG))
    kinds = {row.kind for table in measurements.tables for row in table.rows}
    assert kinds == set(measure.KINDS)
    assert {table.over for table in measurements.tables} == set(
        measure.groups([LevelExtent("node", 2), LevelExtent("gpu", 2)])
    )
    done = subprocess.run(
        [sys.executable, "-m", "collir.tools.measure", "gpu:4"], capture_output=True, check=False
    )
    assert done.returncode == 2
    assert b"these levels have 4 devices, but there are 1 ranks" in done.stderr


@pytest.mark.slow
def test_calibrate_run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    saved = tmp_path / "times.txt"
    path = tmp_path / "four.coll"
    path.write_text(
        "machine @four { level core[4] { port = 9 GB/s, latency = 50 us, kind = bus } }"
    )
    arguments = ["calibrate", str(path), "--run", "--seconds", "5", "--save", str(saved), "--json"]
    assert collir.main(arguments) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["model"]["algorithm"] == "runtime"
    again = ["calibrate", str(path), "--from", str(saved), "--algorithm", "runtime", "--json"]
    assert collir.main(again) == 0
    second = json.loads(capsys.readouterr().out)
    for parameter, expected in zip(second["parameters"], first["parameters"], strict=True):
        assert parameter["value"] == pytest.approx(expected["value"], rel=1e-3)
