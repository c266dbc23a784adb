"""Tests of completion in shells, asked by the variables of argcomplete's shell function."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from collir.targets.table import TARGETS
from collir.tools import completion
from collir.tools.universe import known_passes

pytest.importorskip("argcomplete")

MODULES = {"collopt": "collopt", "collrun": "collrun", "collir": "collir"}


def offered(line: str, folder: Path) -> list[str]:
    """Return the completions that a tool offers at the end of a command line."""
    out = folder / "offered"
    variables = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(out),
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    tool = MODULES[line.split()[0]]
    code = f"import sys; sys.argv = ['{tool}']; from collir.tools import {tool}; {tool}.main()"
    subprocess.run([sys.executable, "-c", code], env={**os.environ, **variables}, check=True)
    return [word.strip() for word in out.read_text(encoding="utf-8").splitlines()]


@pytest.mark.turns
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("collopt -p place,decompo", ["place,decompose"]),
        ("collopt -t crosso", ["crossover", "crossover-plane"]),
        ("collrun --engine ", ["numpy", "local", "mpi", "mpi4py", "jax", "torch"]),
        ("collrun x.coll -p dd", ["ddp"]),
        (
            "collir machine gcp",
            ["gcp_a2", "gcp_a3_high", "gcp_a3_mega", "gcp_a3_ultra", "gcp_a4", "gcp_v100x8"],
        ),
        ("collir new --gpu h", ["h100", "h200"]),
    ],
)
def test_shells_are_offered(line: str, expected: list[str], tmp_path: Path) -> None:
    assert offered(line, tmp_path) == expected


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("decompose{model=p2},reorder", ["decompose{model=p2},reorder-by-hierarchy"]),
        ("decompose{alg", ["decompose{algorithm="]),
        ("decompose{model=p2 alg", ["decompose{model=p2 algorithm="]),
        ('place{weights="a:1,b:2" lim', ['place{weights="a:1,b:2" limit=']),
        ("zer", ["zero"]),
        ("decompose{model=p2}", []),
        ("nothing{", []),
    ],
)
def test_lists_of_passes(typed: str, expected: list[str]) -> None:
    assert completion.pass_list(known_passes())(prefix=typed) == expected


def test_options_of_every_target_are_offered() -> None:
    offer = completion.specifications(TARGETS, lambda name: TARGETS[name]())
    assert offer(prefix="nccl{s") == ["nccl{symmetric=", "nccl{sized="]
    assert offer(prefix="") == list(TARGETS)
