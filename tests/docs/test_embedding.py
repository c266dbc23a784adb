"""Tests of the commands in the README of examples/embed, run in a folder of their own."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.harness.hanging import HANG
from support.harness.seeds import some

EXAMPLES = Path(__file__).parents[2] / "examples"
README = EXAMPLES / "embed" / "README.md"


def sessions() -> dict[str, list[tuple[str, str]]]:
    """Return the commands of every section of the README, each with its output."""
    commands: dict[str, list[tuple[str, str]]] = {}
    for section in README.read_text(encoding="utf-8").split("\n## ")[1:]:
        (block,) = re.findall(r"```console\n(.*?)```", section, re.DOTALL)
        parts = [part.partition("\n") for part in block.split("$ ")[1:]]
        commands[section.splitlines()[0]] = [(command, output) for command, _, output in parts]
    return commands


@pytest.mark.turns
@pytest.mark.parametrize("language", some(list(sessions()), 1))
def test_a_program_calls_what_is_emitted(language: str, tmp_path: Path) -> None:
    if language == "Python" and find_spec("mpi4py") is None:
        pytest.skip("mpi4py is not installed: pip install '.[mpi4py]'")
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    for command, output in sessions()[language]:
        done = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path / "examples" / "embed",
            env=os.environ | {"PATH": path},
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout == output, done.stderr
