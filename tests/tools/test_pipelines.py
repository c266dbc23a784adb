"""Tests of pipelines, and of costs and validation between passes."""

from pathlib import Path

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

import collir
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import NumberAttr
from collir.ir.diagnostics import Diagnostic, DiagnosticError
from collir.ir.functions import functions_of
from collir.passes.pipelines import PIPELINES
from collir.passes.table import PASSES
from collir.semantics.validation import validate
from collir.targets.reports.pass_costs import FunctionAt
from collir.tools import collopt
from collir.tools.api import pass_pipeline
from collir.tools.universe import known_passes

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "sync_gradients.coll"


def written(passes: str) -> list[str]:
    """Return the passes of a specification, as they are written behind -p."""
    return [str(module_pass) for module_pass in pass_pipeline(passes).passes]


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_stands_for_its_passes(name: str) -> None:
    passes = ",".join(position.written for position in PIPELINES[name].positions)
    assert written(name) == written(passes)
    assert written(f"cse,{name},dce") == ["cse", *written(passes), "dce"]


@pytest.mark.parametrize("name", PIPELINES)
def test_every_position_has_a_reason_and_no_name_is_taken(name: str) -> None:
    assert name not in known_passes()
    for position in PIPELINES[name].positions:
        assert len(position.why.split()) >= 5
        assert not position.why.endswith(".")


def test_the_order_of_passes_holds_in_every_pipeline() -> None:
    """See docs/decisions/0037."""
    order = ["reorder-by-hierarchy", "fuse", "bucket", "decompose", "overlap"]
    for pipeline in PIPELINES.values():
        names = [position.spec.name for position in pipeline.positions]
        ordered = [name for name in names if name in order]
        assert ordered == [name for name in order if name in names]
        assert "overlap" not in names or names[-1] == "overlap"
        if "cse" in names and "fuse" in names:
            assert names.index("fuse") < names.index("cse")


def test_options_go_to_the_passes_that_have_them() -> None:
    passes = written("ddp{model=p2 chunks=8 limit=3}")
    assert {
        "canonicalize",
        'fuse{model="p2" limit=3}',
        'decompose{model="p2" limit=3 chunks=8}',
    } <= set(passes)


def test_options_are_written_with_hyphens_too() -> None:
    assert written("ddp{up-to=4}") == written("ddp{up_to=4}") != written("ddp")


def test_what_a_pipeline_computes_is_what_its_passes_do(capsys: pytest.CaptureFixture[str]) -> None:
    passes = ",".join(position.written for position in PIPELINES["default"].positions)
    assert collopt.main([str(EXAMPLE), "-p", "default{algorithm=ring}"]) == 0
    by_name = capsys.readouterr().out
    module = collir.run_passes(
        collir.parse(EXAMPLE), passes.replace("decompose", "decompose{algorithm=ring}")
    )
    assert by_name == collir.emit(module)
    assert "reduce_scatter" in by_name


@pytest.mark.parametrize("name", PIPELINES)
def test_help_prints_the_passes_and_their_reasons(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert collopt.main(["--help-pass", name]) == 0
    page = " ".join(capsys.readouterr().out.split())
    assert page.startswith(f"{name}: {PIPELINES[name].summary}")
    for number, position in enumerate(PIPELINES[name].positions, 1):
        assert f" {number}. `{position.written}`: {position.why}." in page


@pytest.mark.turns
@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("example", ["hierarchical", "train"])
def test_no_pass_of_a_pipeline_makes_an_example_slower(name: str, example: str) -> None:
    module = collir.parse(ROOT / "examples" / f"{example}.coll")
    costs = collir.pass_costs(module, name)
    for done, saved, before in costs.saved:
        assert saved >= -1e-9 * before, done
    assert any(saved > 0 for _, saved, _ in costs.saved)


# --- what passes cost -----------------------------------------------------------------------------


def test_the_costs_between_passes_are_those_of_a_simulation() -> None:
    module = collir.parse(EXAMPLE)
    [before] = collir.simulate(module, algorithm="ring")
    costs = collir.pass_costs(module, "canonicalize,decompose{algorithm=ring}")
    [after] = collir.simulate(module, algorithm="ring")
    assert [stage.done for stage in costs.stages] == ["no pass", "canonicalize", "decompose"]
    first, same, last = (stage.functions["sync_gradients"] for stage in costs.stages)
    assert isinstance(first, FunctionAt)
    assert isinstance(last, FunctionAt)
    assert first == same
    assert (first.time, first.peak) == (before.time, before.peak)
    assert (last.time, last.peak) == (after.time, after.peak)
    assert (first.collectives, last.collectives) == (1, 3)
    # Of 4 MiB a flat ring over 8 sends 7/8 twice; over the nodes alone a half twice, of each GPU.
    assert (first.level, first.outermost, last.outermost) == ("node", 7 * 2**20, 2**22)
    assert costs.saved == [
        ("canonicalize", 0.0, before.time),
        ("decompose", before.time - after.time, before.time),
    ]


class Fails(ModulePass):
    """A pass that fails."""

    name = "fails"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        raise DiagnosticError(Diagnostic("this pass fails"))


def test_what_was_reached_is_reported_if_a_pass_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PASSES, "fails", lambda: Fails)
    arguments = [str(EXAMPLE), "-p", "canonicalize,fails", "--cost-between-passes"]
    assert collopt.main(arguments) == 1
    assert "  canonicalize  " in capsys.readouterr().err


# --- validation -----------------------------------------------------------------------------------


class Halves(ModulePass):
    """A wrong pass, which halves every scale."""

    name = "halves"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for scale in op.walk():
            if isinstance(scale, OPERATIONS["scale"]):
                scale.properties["factor"] = NumberAttr(scale.number("factor") / 2)


SCALED = """
machine @c { level node[2] { port = 8 GB/s, latency = 20 us } }
mesh @m on @c { data = node:2 }
func @mean(%g: f32[8] partial(sum: data)) -> f32[8] on @m {
  %s = all_reduce %g over data
  %r = scale %s by 0.5
  return %r
}
"""


def test_a_pass_that_changes_the_program_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(PASSES, "halves", lambda: Halves)
    path = tmp_path / "mean.coll"
    path.write_text(SCALED)
    arguments = [str(path), "-p", "canonicalize,halves,default"]
    assert collopt.main(arguments) == 0
    assert "scale %s by 0.25" in capsys.readouterr().out
    assert collopt.main([*arguments, "--validate-passes"]) == 70
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(
        "collopt: internal error: RuntimeError: pass halves changed the program: @mean "
    )
    with pytest.raises(RuntimeError, match="pass halves changed the program: @mean"):
        collir.run_passes(collir.parse(path), "canonicalize,halves", validate=True)


def test_what_right_passes_do_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "examples" / "train.coll"
    assert collopt.main([str(path), "-p", "default", "--validate-passes"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    validated = collir.run_passes(collir.parse(path), "default", validate=True)
    assert captured.out == collir.emit(validated)


def test_what_cannot_be_told_is_a_remark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unknown(_: ModuleOp, after: ModuleOp) -> list[validate.Checked]:
        [function] = functions_of(after)
        verdict = validate.Verdict(validate.Outcome.UNKNOWN, "none", "too large to run")
        return [validate.Checked(function, verdict)]

    monkeypatch.setattr(validate, "compare_modules", unknown)
    assert collopt.main([str(EXAMPLE), "-p", "cse", "--validate-passes"]) == 0
    remark = "pass cse, @sync_gradients: too large to run"
    assert capsys.readouterr().err == f"collopt: remark: {remark}\n"
    with pytest.warns(UserWarning, match=remark):
        collir.run_passes(collir.parse(EXAMPLE), "cse", validate=True)
