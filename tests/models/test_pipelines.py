"""Pipelines on the models of examples/models, and the programs that other systems would run."""

import runpy
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from support.harness.seeds import some
from support.programs.model_pages import PAGES, ROOT, page
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.dialects.coll import OPERATIONS
from collir.dialects.machine import mesh_of
from collir.dialects.tensor import dist_type
from collir.ir.functions import functions_of
from collir.layout import DType
from collir.passes.pipelines import PIPELINES
from collir.semantics.validation.validate import Outcome, compare_modules
from collir.syntax.writer import write
from collir.targets.reports.pass_costs import FunctionAt
from collir.tools import collrun
from collir.transforms.instantiation import instantiate

BENCHMARK = runpy.run_path(str(ROOT / "benchmarks" / "passes.py"))

SMALL = {
    "gpt": ("step", {"seq": 4, "hidden": 16, "heads": 4, "layers": 2, "vocab": 24}),
    "mixtral": (
        "step",
        {
            "seq": 4,
            "hidden": 16,
            "heads": 4,
            "kv": 2,
            "inner": 6,
            "places": 2,
            "layers": 2,
            "vocab": 24,
        },
    ),
    "zero": ("zero_3", {"batch": 64, "width": 64, "layers": 2}),
}
"""A function of each page, and sizes that run in seconds."""


def pipeline_of(name: str) -> str:
    """Return the pipeline of the function of a page."""
    return BENCHMARK["MODELS"][name].functions[SMALL[name][0]]


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_no_pass_makes_them_slower(name: str) -> None:
    """Programs keep their true sizes; the printed programs read back."""
    module = page(name)
    for done, saved, before in collir.pass_costs(module, pipeline_of(name)).saved:
        assert saved >= -1e-9 * before, done
    printed = write(module)
    assert write(collir.parse(printed)) == printed


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) for name in ("zero", "gpt", "mixtral")]
)
def test_pipelines_keep_what_they_compute(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The programs run on all devices in numpy, and are compared with a run on a single device."""
    function, sizes = SMALL[name]
    given = [word for size in sizes.items() for word in ("--set-size", "{}={}".format(*size))]
    path, passes = str(PAGES / f"{name}.coll"), pipeline_of(name)
    status = collrun.main([path, "--function", function, *given, "-p", passes])
    printed = capsys.readouterr()
    assert status == 0, printed.out + printed.err


PAGES_OF_STEPS = ("mlp", "styles", "gpt", "llama", "switch", "mixtral", "words", "zero")
"""Pages with training steps that are simulated at their true sizes."""


@pytest.mark.parametrize(
    "name",
    [PAGES_OF_STEPS[0], *(pytest.param(x, marks=pytest.mark.slow) for x in PAGES_OF_STEPS[1:])],
)
@pytest.mark.parametrize("pipeline", some(list(PIPELINES), 1))
def test_no_pass_of_a_pipeline_makes_a_training_step_slower(name: str, pipeline: str) -> None:
    """Each function is compared after each pass, as a pass may take back what others won."""
    costs = collir.pass_costs(collir.run_passes(page(name), "differentiate,propagate"), pipeline)
    for before, after in pairwise(costs.stages):
        for function, at in after.functions.items():
            start = before.functions[function]
            assert isinstance(at, FunctionAt) and isinstance(start, FunctionAt)
            assert at.time <= start.time * (1 + 1e-9), (after.done, function)


@pytest.mark.slow
@pytest.mark.parametrize("pipeline", ["megatron", "fsdp"])
def test_pipelines_of_whole_steps_are_proven(pipeline: str) -> None:
    """Every style at its true sizes, gradients included."""
    module = collir.run_passes(page("styles"), "differentiate,propagate")
    compared = compare_modules(module, collir.run_passes(module.clone(), pipeline))
    assert len(compared) == len(functions_of(module))
    for comparison in compared:
        assert (comparison.verdict.outcome, comparison.verdict.how) == (Outcome.SAME, "proof")


# --- how other systems issue them -----------------------------------------------------------------


def unrolled(name: str, **sizes: int) -> ModuleOp:
    """Return what is measured of a page, at some sizes, with one layer after another."""
    module = BENCHMARK["program"](name)
    instantiate(module, sizes)
    return BENCHMARK["straight"](module, name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "packing"), [("zero", "XLA"), ("gpt", "DDP"), ("mixtral", "Alone")]
)
def test_baselines_compute_the_same(name: str, packing: str) -> None:
    module = unrolled(name, layers=1)
    issued = BENCHMARK["baseline"](module, BENCHMARK[packing]())
    for comparison in compare_modules(module, issued):
        assert (comparison.verdict.outcome, comparison.verdict.how) == (Outcome.SAME, "proof")


@pytest.mark.turns
def test_xla_packs_until_a_limit_would_be_exceeded() -> None:
    module = BENCHMARK["baseline"](unrolled("gpt", layers=3), BENCHMARK["XLA"]())
    [function] = functions_of(module)
    buckets: list[list[int]] = []
    for op in function.body.ops:
        if isinstance(op, OPERATIONS["all_reduce"]) and dist_type(op.result).dtype is DType.BF16:
            assert "async" in op.properties
            owner = op.operands[0].owner
            tensors = owner.operands if isinstance(owner, OPERATIONS["concat"]) else op.operands
            buckets.append([dist_type(tensor).local_bytes(mesh_of(op)) for tensor in tensors])
    parameters = 3 * (12 * 768**2 + 13 * 768) + (50304 + 1024 + 2) * 768
    assert sum(map(sum, buckets)) == 2 * parameters
    limit = 30 * 2**20 + 7
    assert max(map(len, buckets)) > 10
    assert all(sum(bucket) <= limit or len(bucket) == 1 for bucket in buckets)
    for bucket, following in pairwise(buckets):
        assert sum(bucket) + following[0] > limit


@pytest.mark.slow
def test_the_page_has_what_the_benchmark_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["passes.py"])
    BENCHMARK["main"]()
    text = (Path(__file__).parents[2] / "docs" / "pipelines.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out in text


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_pipelines_are_as_fast_as_other_systems(name: str) -> None:
    """Nearly: the pipelines let no collective run beside the steps of the next iteration."""
    for function, (*baselines, ours) in BENCHMARK["rows_of"](name):
        assert ours <= min(baselines) * 1.03, function
