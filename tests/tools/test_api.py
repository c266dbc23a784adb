"""Tests of the Python API, which mirrors the tools."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

import collir

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "sync_gradients.coll"


def test_parse_run_and_emit() -> None:
    module = collir.parse(EXAMPLE)
    collir.run_passes(module, "decompose{strategy=rs-ar-ag},canonicalize")
    assert "reduce_scatter %g over data.gpu dim 0" in collir.emit(module)
    assert "coll.reduce_scatter" in collir.emit(module, "mlir")
    assert "int main(" in collir.emit(module, "mpi{main=true}")


def test_a_line_that_no_program_is_names_a_file(tmp_path: Path) -> None:
    text = collir.emit(collir.parse(EXAMPLE))
    assert collir.emit(collir.parse(str(EXAMPLE))) == text
    plain = tmp_path / "plain"
    plain.write_text(text)
    assert collir.emit(collir.parse(str(plain))) == text
    for missing in ("missing.coll", "missing.mlir", "/missing/file", "a folder/b"):
        with pytest.raises(collir.DiagnosticError, match=f"cannot read {missing}: no such file"):
            collir.parse(missing)
    for program in ("", "// see other.coll", " // a/b", "machine @a100 from @dgx_a100 // a/b"):
        with contextlib.suppress(collir.DiagnosticError):
            collir.parse(program)


def test_a_text_is_parsed_as_coll() -> None:
    text = EXAMPLE.read_text(encoding="utf-8")
    assert collir.emit(collir.parse(text)) == collir.emit(collir.parse(EXAMPLE))


def test_bad_input_raises_diagnostics_with_positions() -> None:
    with pytest.raises(collir.DiagnosticError) as raised:
        collir.parse("mesh @m on @c { data = 8 }", "x.coll")
    (diagnostic,) = raised.value.diagnostics
    assert str(diagnostic.position) == "x.coll:1:12"
    assert "there is no machine @c" in diagnostic.message


@pytest.mark.parametrize("passes", ["decompos", "decompose{strategy=best}", "decompose{"])
def test_a_wrong_pass_is_a_usage_error(passes: str) -> None:
    with pytest.raises(collir.UsageError):
        collir.run_passes(collir.parse(EXAMPLE), passes)


@pytest.mark.parametrize("target", ["cobol", "mpi{main=1}", "mpi{"])
def test_a_wrong_target_is_a_usage_error(target: str) -> None:
    with pytest.raises(collir.UsageError):
        collir.emit(collir.parse(EXAMPLE), target)


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        getattr(collir, "nothing")  # noqa: B009


def test_packages_are_there_without_importing_them_and_listed() -> None:
    code = (
        "import collir; assert set(collir.__all__) <= set(dir(collir)); "
        "found = [getattr(collir, name) for name in collir.__all__]; "
        "print(collir.search.optimise.__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "optimise\n"
