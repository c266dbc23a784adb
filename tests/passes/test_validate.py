"""Tests of validate, which never changes the module; its errors are golden files."""

from pathlib import Path

import pytest

import collir
from collir.ir.diagnostics import DiagnosticError
from collir.syntax.writer import write
from collir.tools.shell import UsageError

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "train.coll"


def validate(path: Path, **options: int) -> str:
    """Return the pass with its options."""
    listed = " ".join(f"{name}={value}" for name, value in options.items())
    return f'validate{{against="{path}" {listed}}}'


def test_the_module_stays_as_it_is_where_it_is_wrong(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "sync_gradients.coll").read_text(encoding="utf-8")
    wrong = text.replace("return %r", "%t = add %r, %r\n  return %t")
    (tmp_path / "before.coll").write_text(text, encoding="utf-8")
    module = collir.parse(wrong, "after.coll")
    before = write(module)
    with pytest.raises(DiagnosticError) as caught:
        collir.run_passes(module, validate(tmp_path / "before.coll"))
    assert write(module) == before
    (error,) = caught.value.diagnostics
    assert "counts %g[0] of data.node=0, data.gpu=0 twice (proven)" in error.message
    assert error.position is not None
    assert (error.position.file, error.position.line) == ("after.coll", 13)
    (note,) = error.notes
    assert note.position is not None
    assert note.position.file.endswith("before.coll")


@pytest.mark.turns
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.coll")), ids=lambda p: p.stem)
def test_examples_are_proven_without_a_run(path: Path) -> None:
    module = collir.run_passes(collir.parse(path), "fuse,decompose")
    collir.run_passes(module, validate(path, memory=0))


def test_the_other_file_may_be_mlir(tmp_path: Path) -> None:
    module = collir.parse(EXAMPLE)
    before = tmp_path / "before.mlir"
    before.write_text(collir.emit(module, "mlir"), encoding="utf-8")
    collir.run_passes(module, validate(before))


def test_options() -> None:
    module = collir.parse(EXAMPLE)
    with pytest.raises(UsageError, match="0 or more"):
        collir.run_passes(module, validate(EXAMPLE, memory=-1))
    with pytest.raises(UsageError):
        collir.run_passes(module, "validate")
