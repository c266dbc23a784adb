"""Tests of the command collopt: help, usage errors, input and output."""

import inspect
import os
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import cast

import pytest
from support.harness.seeds import fresh
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.dialects.tables import OPERATIONS
from collir.ir.lazy import Lazy
from collir.passes.pipelines import PIPELINES
from collir.passes.table import PASSES
from collir.targets.table import TARGETS
from collir.tools import collir as collir_tool
from collir.tools import collopt, collrun
from collir.tools.collopt_driver import CollOpt
from collir.tools.pass_pages import XDSL_PASSES

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "sync_gradients.coll")
MISSING = "no.coll"
BROKEN = "mesh @m on @nothing { data = 8 }\n"


def test_version_names_both_versions(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        collopt.main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("collopt 0.")


def test_help_lists_passes_and_targets_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        collopt.main(["--help"])
    lines = capsys.readouterr().out.splitlines()
    for name in ("decompose", "canonicalize", "cse", "dce", "coll", "mpi", "mlir"):
        assert len([line for line in lines if line.startswith(f"  {name} ")]) == 1, name


def test_help_reads_docstrings_without_imports() -> None:
    for load in (*PASSES.values(), *TARGETS.values()):
        assert isinstance(load, Lazy)
        assert load.docstring() == inspect.getdoc(cast(type, load()))


@pytest.mark.parametrize("columns", [20, 60, 300])
def test_help_has_whole_sentences(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit):
        collopt.main(["--help"])
    lines = capsys.readouterr().out.partition("\npasses:\n")[2].splitlines()
    entries = [
        line for line in lines if re.match(r"  [a-z]\S* ", line) and "more of xDSL" not in line
    ]
    names = {*PASSES, *PIPELINES, *TARGETS, *XDSL_PASSES, "mlir"}
    assert {entry.split()[0] for entry in entries} == names
    text = "\n".join(line for line in lines if "more of xDSL" not in line)
    for entry in re.split(r"\n(?:  (?=\S)|\n)", text):
        assert entry.rstrip().endswith((".", "?", ":")), entry
    assert (
        "Decompose collectives and redistributions into the cheapest sequence of steps."
        in " ".join(text.split())
    )


def test_every_argument_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    tools = [collopt.main, collrun.main]
    commands = [["machine"], ["calibrate"], ["search", "clique"], ["search", "uts"]]
    calls = [(tool, list[str]()) for tool in tools] + [
        (collir_tool.main, words) for words in commands
    ]
    for tool, words in calls:
        with pytest.raises(SystemExit):
            tool([*words, "--help"])
        lines = capsys.readouterr().out.partition("\noptions:\n")[2].partition("\n\n")[0]
        for option in re.split(r"\n(?=  -)", lines):
            assert re.search(r"(\S  +|\n +)\w", option), option


def test_help_pass_prints_the_docstring_and_the_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert collopt.main(["--help-pass", "decompose"]) == 0
    page = capsys.readouterr().out
    assert "Horovod" not in page
    assert "%0 = reduce_scatter %g over data.gpu dim 0" in page
    assert "strategy: str" in page


@pytest.mark.parametrize("name", OPERATIONS)
def test_help_op_says_how_it_is_written(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert collopt.main(["--help-op", name]) == 0
    page = capsys.readouterr().out
    assert re.match(rf"{name}: \w.*\.\n\n  %r = {name}\b", page)
    assert f"In MLIR it is {OPERATIONS[name].name}.\n" in page


@pytest.mark.parametrize("name", TARGETS)
def test_help_target_says_what_each_option_is(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = TARGETS[name]()
    assert collopt.main(["--help-target", name]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(rf"{name}: .*\.", lines[0]), "the first line is a sentence"
    for field in fields(target):
        index = next(i for i, line in enumerate(lines) if line.startswith(f"  {field.name}: "))
        assert re.match(r" {6}[A-Z]", lines[index + 1]), f"what is {field.name}?"


def test_help_target_knows_the_targets_of_xdsl(capsys: pytest.CaptureFixture[str]) -> None:
    assert collopt.main(["--help-target", "mlir"]) == 0
    assert capsys.readouterr().out.startswith("mlir: The module in MLIR's syntax.\n\nOptions:\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["-p", "decompos"],
        ["-p", "decompose{strategy=best}"],
        ["-p", "decompose{"],
        ["-p", "decompose{colour=red}"],
        ["-t", "mpi{main=3}"],
        ["-t", "mpi{colour=red}"],
        ["-t", "mpi{"],
        ["--help-op", "reduce_scater"],
        ["--help-op", "nothing"],
        ["--help-pass", "nothing"],
        ["-t", "cobol"],
        ["-f", "json"],
        ["--strategy", "flat"],
        ["second.coll"],
        ["-p", ","],
    ],
    ids=" ".join,
)
def test_wrong_use_is_one_line_and_status_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert collopt.main([EXAMPLE, *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("collopt: error: ")
    assert len(captured.err.splitlines()) == 1


def test_a_folder_is_no_file_whatever_its_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder.coll"
    folder.mkdir()
    assert collopt.main([str(folder)]) == 1
    assert f"cannot read {folder}: is a directory" in capsys.readouterr().err


def test_a_target_of_xdsl_that_cannot_print_our_operations_is_a_diagnostic(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert collopt.main([EXAMPLE, "-t", "riscv-asm"]) == 1
    assert "error: xDSL's target riscv-asm cannot print this" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_no_internal_error() -> None:
    code = "from collir.tools.collopt import script; script()"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", code, EXAMPLE],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "No space left on device" in done.stderr


@pytest.mark.turns
@pytest.mark.skipif(os.name != "posix", reason="needs sh")
@pytest.mark.parametrize(
    ("redirection", "arguments", "said"),
    [
        (">&-", [EXAMPLE], "collopt: error: standard output is closed"),
        (">&-", [MISSING], "error: cannot read no.coll: no such file or directory"),
        ("<&-", ["-"], "error: cannot read <stdin>: standard input is closed"),
        ("2>&-", [MISSING], ""),
    ],
)
def test_a_closed_stream_is_no_internal_error(
    redirection: str, arguments: list[str], said: str
) -> None:
    code = "from collir.tools.collopt import script; script()"
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (1, said)


def test_a_closed_output_does_not_keep_a_file_from_being_written(tmp_path: Path) -> None:
    code = "from collir.tools.collopt import script; script()"
    target = tmp_path / "out.coll"
    command = [sys.executable, "-c", code, EXAMPLE, "-o", str(target)]
    subprocess.run(["sh", "-c", 'exec "$@" >&- <&- 2>&-', "sh", *command], check=True)
    assert "all_reduce" in target.read_text()


def test_an_output_file_is_written_whole(tmp_path: Path) -> None:
    target = tmp_path / "out.coll"
    assert collopt.main([EXAMPLE, "-p", "decompose{algorithm=ring}", "-o", str(target)]) == 0
    assert "reduce_scatter" in target.read_text()
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_as_the_output_stays_a_link(tmp_path: Path, exists: bool) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link.coll"
    folder.mkdir()
    target = folder / "out.coll"
    if exists:
        target.write_text("before")
    link.symlink_to(Path("folder") / "out.coll")
    assert collopt.main([EXAMPLE, "-o", str(link)]) == 0
    assert link.is_symlink() and "all_reduce" in target.read_text()
    assert list(folder.iterdir()) == [target]


def test_a_failure_leaves_the_output_file_as_it_was(tmp_path: Path) -> None:
    source, target = tmp_path / "in.coll", tmp_path / "out.coll"
    source.write_text(BROKEN)
    target.write_text("before")
    assert collopt.main([str(source), "-o", str(target)]) == 1
    assert target.read_text() == "before"
    assert sorted(tmp_path.iterdir()) == [source, target]


def test_an_output_file_that_cannot_be_written_is_a_diagnostic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collopt.main([EXAMPLE, "-o", str(tmp_path / "missing" / "out")]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_a_device_can_be_the_output() -> None:
    assert collopt.main([EXAMPLE, "-o", os.devnull]) == 0
    assert not Path(os.devnull).is_file()


def test_an_internal_error_says_so_and_shows_the_traceback_only_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(CollOpt, "apply_passes", broken)
    assert collopt.main([EXAMPLE]) == 70
    err = capsys.readouterr().err
    assert "internal error: ZeroDivisionError: oops" in err
    assert "Traceback" not in err
    assert collopt.main([EXAMPLE, "--debug"]) == 70
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.turns
def test_a_reader_that_goes_away_is_no_error() -> None:
    program = (
        "import sys; sys.argv = ['collopt', *sys.argv[1:]]\n"
        "from collir.tools.collopt import script; script()"
    )
    done = subprocess.run(
        f'"{sys.executable}" -c "{program}" {EXAMPLE} -t mpi | head -1',
        shell=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.turns
@pytest.mark.parametrize("target", ["simulate", "cost-symbolic"])
def test_functions_made_for_gradients_are_not_reported(
    target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Propagation makes them, and they are gone where calls have become steps."""
    file = str(ROOT / "examples" / "models" / "jobs.coll")
    assert collopt.main([file, "-t", target]) == 0
    assert re.findall(r"^@(\w+)", capsys.readouterr().out, re.MULTILINE)[:2] == ["loss", "train"]


SOUND = "machine @box {{ level {}[2] {{ port = 1 GB/s, latency = 1 us }} }}\n"


@pytest.mark.parametrize("seed", range(4))
def test_wrong_parts_of_a_split_file_do_not_keep_others_from_being_printed(
    seed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random = fresh(f"parts {seed}")
    sound = [random.random() < 0.5 for _ in range(6)]
    parts = [
        "// -----------\n" * random.randrange(3)
        + (SOUND.format(f"level{index}") if good else f"machine @box {index}\n")
        for index, good in enumerate(sound)
    ]
    path = tmp_path / "parts.coll"
    path.write_text("// -----\n".join(parts))
    assert collopt.main([str(path), "--split-input-file"]) == (not all(sound))
    printed, errors = capsys.readouterr()
    for index, (part, good) in enumerate(zip(printed.split("// -----\n"), sound, strict=True)):
        assert (f"level{index}[2]" in part) == bool(part) == good
    lines = path.read_text().splitlines()
    wrong = [int(line) for line in re.findall(r"parts.coll:(\d+):\d+: error", errors)]
    assert [lines[line - 1] for line in wrong] == [
        f"machine @box {index}" for index, good in enumerate(sound) if not good
    ]


def test_an_internal_error_in_a_part_is_reported_beside_the_output_of_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "parts.coll"
    path.write_text("// -----\n".join(SOUND.format(name) for name in "abc"))

    def fail_on_b(module: ModuleOp) -> None:
        if "level b[" in collir.emit(module):
            raise ZeroDivisionError

    monkeypatch.setattr("collir.tools.collopt_driver.verify", fail_on_b)
    output = tmp_path / "whole.coll"
    assert collopt.main([str(path), "--split-input-file"]) == 70
    out, error = capsys.readouterr()
    assert re.findall(r"level (\w)", out) == ["a", "c"]
    assert error.count("\n") == 1
    assert "internal error: ZeroDivisionError" in error
    assert collopt.main([str(path), "--split-input-file", "-o", str(output)]) == 70
    assert not output.exists()
