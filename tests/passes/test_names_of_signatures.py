"""Names of arguments and results are a contract: no pass changes them, in any printed form."""

from pathlib import Path

import pytest
from support.harness.seeds import some
from xdsl.dialects.builtin import ModuleOp

import collir
from collir.ir.diagnostics import DiagnosticError
from collir.ir.functions import functions_of
from collir.ir.names import argument_names, result_names
from collir.passes.pipelines import PIPELINES
from collir.passes.table import PASSES

HEAD = """
machine @box {
  device { compute f32 = 19.5 TFLOP/s; memory = 40 GB @ 1555 GB/s }
  level node[2] { port = 25 GB/s, latency = 5 us }
  level gpu[2] { port = 300 GB/s, latency = 3 us }
}
mesh @m on @box { data = node:2 * gpu:2 }
"""

UNDERSCORES = f"""{HEAD}
func @f(%g_1: f32[4096] partial(avg: data), %g_2: f32[4096], %g: f32[8])
    -> (f32[4096@data], f32[4096], f32[8], f32[8]) on @m {{
  %s = all_reduce %g_1 over data
  %h = scale %s by 0.5
  %k = slice %h over data dim 0
  %j = slice %g_2 over data dim 0
  %r_1 = sub %k, %j
  %r_2 = scale %g_2 by 1
  %r = scale %g by 2
  %t = scale %g by 2
  return %r_1, %r_2, %r, %t
}}
"""

LAYERS = f"""{HEAD}
func @loss_3(batch = 4, layers = 4)(%x_1: f32[batch, 3], %w_2: f32[layers, 3]) -> f32[] on @m
    auto {{
  %y = repeat layers carry(%h = %x_1) slice(%w = %w_2) {{
    %z = mul %h, %w
    yield %z
  }}
  %l_1 = sum %y dims [0, 1]
  return %l_1
}}

func @step_1(batch = 4, layers = 4)(%x_1: f32[batch@data, 3], %w_2: f32[layers, 3] parameter)
    -> (f32[], f32[layers, 3] parameter) on @m
    auto {{
  %l_1, %d_2 = gradient @loss_3(batch = batch, layers = layers)(%x_1, %w_2) wrt %w_2
  %new_2 = sub %w_2, %d_2
  return %l_1, %new_2
}}
"""

STAGED = (
    LAYERS.replace("data = node", "pipe = node")
    .replace("@data", "")
    .replace("layers = 4", "layers = 8")
)

Signature = tuple[list[str], list[str]]

OPTIONS = {
    "instantiate": 'instantiate{sizes="batch=8"}',
    "microbatch": "differentiate,propagate,microbatch{microbatches=2}",
    "split-level": "split-level{level=node into=2,1}",
}
"""The passes that need options, or other passes in front of them."""

PASSES_ALONE = [
    OPTIONS.get(name, name) for name in PASSES if name not in ("validate", "pipeline", "localize")
]


def signatures(module: ModuleOp) -> dict[str, Signature]:
    """Return the names of arguments and results of all functions."""
    return {f.sym_name.data: (argument_names(f), result_names(f)) for f in functions_of(module)}


def as_printed(
    module: ModuleOp, folder: Path, beside: str = "x.coll"
) -> list[dict[str, Signature]]:
    """Return the names of arguments and results after ways through ``.coll`` and MLIR.

    Args:
        beside: a file in the folder in which files lie that the module reads.
    """
    (folder / "x.mlir").write_text(collir.emit(module, "mlir"))
    return [
        signatures(collir.parse(collir.emit(module, "coll"), beside)),
        signatures(collir.parse(folder / "x.mlir")),
    ]


def passed(text: str | Path, passes: str) -> tuple[ModuleOp, ModuleOp] | None:
    """Return a module before and after passes, or None if they refuse it."""
    before = collir.parse(text)
    try:
        return before, collir.run_passes(before.clone(), passes)
    except DiagnosticError:
        return None


def check_kept(text: str | Path, passes: str, folder: Path) -> None:
    """Check that passes keep the names of all functions that are there before and after, and that
    those behind them are printed and read again as they are."""
    if (modules := passed(text, passes)) is None:
        return
    before, after = map(signatures, modules)
    both = before.keys() & after.keys()
    assert {name: after[name] for name in both} == {name: before[name] for name in both}
    beside = str(text) if isinstance(text, Path) else "x.coll"
    for again in as_printed(modules[1], folder, beside):
        assert again == after


@pytest.mark.turns
@pytest.mark.parametrize("passes", [*PASSES_ALONE, *PIPELINES])
def test_passes_keep_names(passes: str, tmp_path: Path) -> None:
    check_kept(UNDERSCORES, passes, tmp_path)


@pytest.mark.parametrize("passes", some([*PASSES_ALONE, *PIPELINES], 6, "layers"))
def test_passes_keep_names_of_layers(passes: str, tmp_path: Path) -> None:
    check_kept(LAYERS, passes, tmp_path)


EXAMPLES = [
    path
    for path in sorted((Path(__file__).parents[2] / "examples").rglob("*.coll"))
    if "plugin" not in path.parts
]
PAIRS = [(path, passes) for path in EXAMPLES for passes in (*PASSES_ALONE, *PIPELINES)]


@pytest.mark.parametrize(
    ("path", "passes"),
    [
        *some([pair for pair in PAIRS if pair[0].parent.name == "examples"], 2, "names"),
        *some([pair for pair in PAIRS if pair[0].parent.name != "examples"], 0, "names"),
    ],
)
def test_passes_keep_names_of_examples(path: Path, passes: str, tmp_path: Path) -> None:
    check_kept(path, passes, tmp_path)


@pytest.mark.turns
@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zb-h1", "zb-v"])
def test_rows_of_chunks_have_names_of_their_own(schedule: str, tmp_path: Path) -> None:
    """Where a stack is in several rows of chunks, each further one has the name with a number."""
    module = collir.parse(STAGED)
    kept = signatures(module)
    collir.run_passes(module, f"pipeline{{schedule={schedule} microbatches=4}}")
    after = signatures(module)
    rows = len(after["step_1"][0]) - 1
    assert rows == (2 if schedule in ("interleaved", "zb-v") else 1)
    assert after["loss_3"] == kept["loss_3"]
    assert after["step_1"] == (
        ["x_1", "w_2", "w_2_1"][: 1 + rows],
        ["l_1", "new_2", "new_2_1"][: 1 + rows],
    )
    for again in as_printed(module, tmp_path):
        assert again == after


def test_code_has_the_names() -> None:
    module = collir.run_passes(collir.parse(UNDERSCORES), "default")
    assert "def f(self, g_1, g_2, g):" in collir.emit(module, "mpi4py")
    assert "def f(self, g_1, g_2, g):" in collir.emit(module, "torch")
    assert "def f(g_1, g_2, g):" in collir.emit(module, "jax")
    inputs, outputs = ("g_1", "g_2", "g"), ("r_1", "r_2", "r", "t")
    listed = [*(f"const float *{name}" for name in inputs), *(f"float *{x}" for x in outputs)]
    assert ", ".join(listed) in " ".join(collir.emit(module, "mpi").split())
