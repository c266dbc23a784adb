"""Tests of what is said of passes and pipelines of others that are wrong."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.passes import ModulePass

import collir
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.passes.pipelines import PIPELINES, PassPipeline, PipelineEntry
from collir.passes.table import PASSES
from collir.tools import collopt

PROGRAM = """\
machine @box { level node[2] { port = 8 GB/s, latency = 20 us } }
mesh @m on @box { data = node:2 }
func @f(%g: f32[64] partial(sum: data)) -> f32[64] on @m {
  %r = all_reduce %g over data
  return %r
}
"""


@dataclass(frozen=True)
class WrongPass(ModulePass):
    """Replace steps by others that are wrong."""

    name = "wrong"

    how: str = "type"
    """The kind of mistake."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for step in [x for x in op.walk() if isinstance(x, DistOp)]:
            axes, dim = step.properties["axes"], IntegerAttr(0, i64)
            mesh, g = mesh_of(step), step.input
            if self.how == "type":
                OPERATIONS["all_gather"].make(mesh, g, axes=axes, dim=dim)
            elif self.how == "missing":
                OPERATIONS["reduce_scatter"].make(mesh, g, axes=axes)
            elif self.how == "name":
                OPERATIONS["reduce_scatter"].make(mesh, g, over=axes, dim=dim)
            else:
                raise ValueError("too many")


def _missing() -> type[ModulePass]:
    raise NameError("name 'nonsense' is not defined")


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a program, for passes that are wrong."""
    monkeypatch.setitem(PASSES, "wrong", lambda: WrongPass)
    monkeypatch.setitem(PASSES, "missing", _missing)
    misspelt = PipelineEntry("canonicalise", "it is clean behind it")
    monkeypatch.setitem(PIPELINES, "tidy", PassPipeline("tidy", "Tidy up.", "", (misspelt,)))
    path = tmp_path / "program.coll"
    path.write_text(PROGRAM)
    return str(path)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("type", "LayoutError: %g is partial over data here"),
        ("missing", "TypeError: reduce_scatter needs the property dim (given: axes), in pass"),
        ("name", "TypeError: reduce_scatter needs the property axes (given: over, dim), in pass"),
        ("other", "ValueError: too many, in pass wrong (--debug shows where)\n"),
    ],
)
def test_a_pass_that_fails_is_named(
    how: str, message: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collopt.main([file, "-p", f"wrong{{how={how}}}"]) == 70
    error = capsys.readouterr().err
    assert error.startswith(f"collopt: internal error: {message}")
    assert ", in pass wrong" in error


def test_so_it_is_in_python(file: str) -> None:
    with pytest.raises(ValueError, match="too many") as error:
        collir.run_passes(collir.parse(Path(file)), "wrong{how=other}")
    assert error.value.__notes__ == ["in pass wrong"]


def test_a_pass_that_cannot_be_imported_is_named(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Check that the list of passes says so, and that only its use is an error."""
    problem = "the pass missing cannot be loaded: NameError: name 'nonsense' is not defined ("
    assert collopt.main([file, "-p", "missing"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {problem}{__file__}:")
    assert collopt.main([file, "-p", "canonicalize"]) == 0
    capsys.readouterr()
    with pytest.raises(SystemExit):
        collopt.main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert f"missing ({problem}" in text


@pytest.mark.parametrize("arguments", [["-p", "tidy"], ["--help-pass", "tidy"]])
def test_a_pass_that_a_pipeline_misspells_is_named(
    arguments: list[str], file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collopt.main([file, *arguments]) == 2
    message = "the pipeline tidy names the pass canonicalise: there is none\n"
    assert capsys.readouterr().err.endswith(message)
