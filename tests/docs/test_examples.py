"""Tests that parse, decompose in every way and run each program in examples/."""

from pathlib import Path
from typing import get_args

import pytest
from support.harness.seeds import some
from xdsl.dialects.func import FuncOp

from collir.dialects.machine import mesh_of
from collir.syntax.writer import write
from collir.synthesis.programs.fixed import Strategy
from collir.tools import collrun
from collir.tools.api import parse

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.coll"))


def ranks_of(path: Path) -> set[int]:
    """Return the numbers of devices of the meshes that an example's functions are on."""
    return {mesh_of(op).devices for op in parse(path).ops if isinstance(op, FuncOp)}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_print_to_a_fixed_point(path: Path, tmp_path: Path) -> None:
    printed = write(parse(path))
    # Beside the others, for machines taken from these.
    for example in EXAMPLES:
        (tmp_path / example.name).write_bytes(example.read_bytes())
    copy = tmp_path / "printed.coll"
    copy.write_text(printed, encoding="utf-8")
    assert write(parse(copy)) == printed


SMALLER = {
    "accumulate": ["--set-size", "4194304=65536"],
    "placement": ["--set-size", "8192=128", "--set-size", "12288=192"],
    "ragged": ["--set-size=7864320=7680", "--set-size=31457280=30720", "--set-size=4096=64"],
}
"""Sizes for examples that would take long."""


@pytest.mark.turns
@pytest.mark.parametrize(
    "passes",
    ["decompose", *some([f"decompose{{strategy={name}}}" for name in get_args(Strategy)], 1)],
)
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_run(path: Path, passes: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = collrun.main(["-p", passes, *SMALLER.get(path.stem, []), str(path)])
    printed = capsys.readouterr()
    assert status == 0, printed.out + printed.err
    functions = [op for op in parse(path).ops if isinstance(op, FuncOp)]
    for function, line in zip(functions, printed.out.splitlines(), strict=True):
        assert line.startswith(f"{function.sym_name.data}: ok")


@pytest.mark.turns
@pytest.mark.parametrize(
    ("path", "ranks"),
    some([(path, n) for path in EXAMPLES for n in sorted(ranks_of(path)) if n <= 16], 3),
    ids=lambda value: value.stem if isinstance(value, Path) else str(value),
)
def test_examples_run_on_mpi(path: Path, ranks: int, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--engine", "mpi", "-n", str(ranks), "-p", "decompose", *SMALLER.get(path.stem, [])]
    status = collrun.main([*options, str(path)])
    printed = capsys.readouterr()
    assert status == 0, printed.out + printed.err
    assert "every rank's buffers are equal" in printed.out
