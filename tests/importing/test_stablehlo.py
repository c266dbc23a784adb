"""Modules of StableHLO, without JAX: their layouts, and what is no such module."""

import contextlib
import re
from pathlib import Path

import pytest
from support.harness.seeds import fresh
from xdsl.dialects.builtin import ModuleOp

import collir

FOLDER = Path(__file__).with_name("stablehlo")
SHARDED = (FOLDER / "sharded.mlir").read_text(encoding="utf-8")
MODEL = Path(__file__).parents[2] / "examples" / "models" / "language_model.mlir"


def refusal(text: str, optimizer: str = "") -> str:
    with pytest.raises(collir.DiagnosticError) as caught:
        _ = collir.import_stablehlo(text, "own.mlir", optimizer=optimizer)
    [found] = caught.value.diagnostics
    at = found.position
    return f"{at.file}:{at.line}: {found.message}" if at else found.message


def test_layouts_of_shardy_are_types() -> None:
    imported = collir.import_stablehlo(SHARDED)
    assert "mesh @m on @cluster { data = gpu:2, model = gpu:4 }" in imported.text
    assert "%arg0: f32[16, 32@model]" in imported.text
    assert "redistribute %relu to f32[8@data, 32@model]" in imported.text
    assert "to f32[8@(data, model), 16]" in imported.text
    [remark] = imported.remarks
    assert "leaves dimensions open" in remark
    [own] = [x for x in collir.simulate(propagated(imported.text)) if x.name == "model"]
    assert any(x.collective.axes for x in own.collectives)


def propagated(text: str) -> ModuleOp:
    module = collir.parse(text)
    collir.run_passes(module, "propagate")
    return module


def test_parts_of_axes_and_older_shardings_are_layouts() -> None:
    parts = SHARDED.replace('[{}, {"model"}]>}, %arg1', '[{}, {"model":(2)2}]>}, %arg1')
    assert "32@model_1]" in collir.import_stablehlo(parts).text
    older = SHARDED.replace(
        '{sdy.sharding = #sdy.sharding<@mesh, [{"data"}, {}]>}) ->',
        '{mhlo.sharding = "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"}) ->',
    )
    assert older != SHARDED
    assert collir.import_stablehlo(older).text == collir.import_stablehlo(SHARDED).text
    named = collir.import_stablehlo(SHARDED, mesh={"fsdp": 2, "tensor": 4}).text
    assert "%arg1: f32[8@fsdp, 16]" in named


def test_lines_and_weights_are_those_of_the_user() -> None:
    text = MODEL.read_text(encoding="utf-8")
    imported = collir.import_stablehlo(text, optimizer="adamw")
    assert "repeat layers carry" in imported.text
    assert "%w: f32 @weights parameter" in imported.text
    assert {x.kind for x in imported.arguments} == {"weight", "argument"}
    broken = text.replace("stablehlo.rsqrt", "stablehlo.cbrt_of", 1)
    assert refusal(broken).startswith("language_model.py:")
    bare = re.sub(r"(?m)^#loc.*\n| loc\([^()]*(\(#loc\d+\))?\)", "", text)
    assert "as_text(debug_info=True)" in refusal(bare, optimizer="adamw")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "own.mlir:1: the file is empty"),
        ("HloModule x", "own.mlir:1: this is no StableHLO"),
        ("module {", "own.mlir:1: the file ends too early"),
        ("module {}", "own.mlir:1: the module has no functions"),
        (SHARDED.replace("call @relu(%0)", "call @gone(%0)"),
         "own.mlir:5: there is no function @gone"),
        (SHARDED.replace("%1 = stablehlo.maximum %arg0, %0", "%1 = func.call @relu(%arg0)"),
         "own.mlir:16: function @relu calls itself"),
        (SHARDED.replace("stablehlo.transpose %arg0", "stablehlo.transpose %arg9"),
         "own.mlir:7: there is no value %arg9"),
        (SHARDED.replace("stablehlo.maximum", "stablehlo.guess"),
         "own.mlir:16: there is no row for"),
        (SHARDED.replace("contracting_dims = [1] x [0]", "contracting_dims = [1] x [7]", 1),
         "own.mlir:4: dot_general is not understood"),
        (SHARDED.replace("tensor<16x32xf32>", "tensor<?x32xf32>"), "a size that depends on data"),
        (SHARDED.replace("xf32", "xcomplex<f32>"),
         "complex<f32>, a dtype that .coll does not have"),
        ("module attributes {a = " + "[" * 999, "own.mlir:1: more than 64 brackets are open"),
    ],
)  # fmt: skip
def test_what_is_no_module_is_one_error(text: str, message: str) -> None:
    assert message in refusal(text)


@pytest.mark.parametrize("number", range(60))
def test_mutants_are_refused_or_read(number: int) -> None:
    rng, text = fresh(number), SHARDED
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text))
        part = text[rng.randrange(len(text)) :][:6]
        other = rng.choice(["", *'<>(){}[]%#@"0x:,-= ', part, "9" * 12])
        text = text[:at] + other + text[at + rng.randint(1, 8) :]
    text = text if rng.random() < 0.8 else text[: rng.randrange(len(text))]
    with contextlib.suppress(collir.DiagnosticError):
        _ = collir.parse(collir.import_stablehlo(text).text)
