"""Local functions survive the way through ``.coll``, custom MLIR and generic MLIR unchanged."""

from pathlib import Path

import pytest
from support.syntax.mlir import mlir
from xdsl.dialects.builtin import ModuleOp

from collir.dialects.local import STEP, Local, local_functions
from collir.ir.diagnostics import Sources
from collir.ir.verification import verify
from collir.localize.localize import localize
from collir.syntax.mlir import read_mlir
from collir.syntax.reader import read
from collir.syntax.writer import write
from collir.tools.api import context

ROOT = Path(__file__).parents[2]
EXAMPLES = (
    "accumulate",
    "hierarchical",
    "layer",
    "layers",
    "parallelism",
    "reshard",
    "ring",
    "stages",
    "sync_gradients",
    "towers",
    "uneven",
    "models/gpt",
    "models/mixtral",
    "models/resnet50",
)
FILES = [ROOT / "examples" / f"{name}.coll" for name in EXAMPLES]
STATEMENTS = sorted((ROOT / "tests" / "filecheck" / "dialects" / "local").glob("*.coll"))


def localized(path: Path) -> ModuleOp:
    """Return the program of a rank of every function of a file."""
    module = read(path.read_text(encoding="utf-8"), str(path))
    if not any(local_functions(module)):
        localize(module)
    for op in module.walk():  # comments are not read
        op.attributes.pop(STEP, None)
    verify(module)
    return module


@pytest.mark.turns
@pytest.mark.parametrize("path", [*FILES, *STATEMENTS], ids=lambda path: path.stem)
def test_local_functions_are_a_fixed_point(path: Path) -> None:
    module = localized(path)
    text = write(module)
    again = read(text, str(path))
    verify(again)
    assert write(again) == text
    assert mlir(again) == mlir(module)
    assert again.is_structurally_equivalent(module)


@pytest.mark.turns
@pytest.mark.parametrize("path", [*FILES[::4], *STATEMENTS], ids=lambda path: path.stem)
def test_mlir_loses_nothing_of_local_functions(path: Path) -> None:
    module = localized(path)
    text = write(module)
    for generic in (False, True):
        again = read_mlir(context(), mlir(module, generic=generic), "<mlir>", Sources())
        verify(again)
        assert again.is_structurally_equivalent(module)
        assert write(again) == text


def test_every_operation_of_the_dialect_has_its_statement() -> None:
    modules = [read(path.read_text(encoding="utf-8"), str(path)) for path in STATEMENTS]
    there = {type(op) for module in modules for op in module.walk()}
    assert there >= {*Local.operations}


def test_every_operation_knows_its_position() -> None:
    for path in STATEMENTS:
        text = path.read_text(encoding="utf-8")
        lines = text.splitlines()
        for function in local_functions(read(text, "x.coll")):
            for op in function.walk():
                file, line, column = str(op.location).removeprefix("loc(").rstrip(")").split(":")
                assert file == '"x.coll"', op.name
                assert lines[int(line) - 1][int(column) - 1 :].strip(), op.name
