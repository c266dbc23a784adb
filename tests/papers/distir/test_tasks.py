"""Tests that the compiled program has the operations that DistIR's figures are computed from.

The functions of tasks that ``pipeline`` makes of examples/models/distir_mlp.coll are walked, loops
unrolled. DistIR's names stand for groups of steps: ReluGrad for a comparison and a selection,
MatMulGrad for two products, Loss and LossGrad for the steps on the batch outside the layers. Left
out are what DistIR alone has (Concat, Identity) and what it adds up elsewhere (Add: the program
adds stacked gradients behind the loop; LossGrad belongs to the backward task).
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from distir.operations import Shape
from distir.tasks import Stage, backward, forward
from support.programs.model_pages import function_of
from xdsl.ir import Block

import collir
from collir.dialects.machine import mesh_of
from collir.dialects.nested import RepeatOp
from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.tools import collopt, collrun

PAGE = Path(__file__).parents[3] / "examples" / "models" / "distir_mlp.coll"
BATCH, WIDTH, LAYERS = 64, 512, 8

Entry = tuple[str, tuple[int, ...]]
"""DistIR's name of an operation, and its shape: rows, inputs and outputs of a product."""


def compiled_task(name: str, data: int, tensor: int, stages: int) -> list[Entry]:
    """Return the operations of a task of the compiled program, with four microbatches."""
    text = PAGE.read_text(encoding="utf-8")
    mesh = f"data = {data}, model = {tensor}, pipe = {stages}"
    text = re.sub(r"(?m)^(mesh @m on @box) .*$", rf"\1 {{ {mesh} }}", text)
    text = text.replace("@dgx_a100(nodes = 1)", "@dgx_a100(nodes = 2)")
    module = collir.parse(text)
    collir.run_passes(module, "pipeline{microbatches=4}")
    return list(grouped(entries(function_of(module, name).body.block)))


def entries(block: Block, inside: bool = False) -> Iterator[Entry]:
    """Yield the names and shapes of the steps of a block, loops unrolled."""
    for op in block.ops:
        if isinstance(op, RepeatOp):
            for _ in range(op.times):
                yield from entries(op.body.block, True)
        elif isinstance(op, DistOp):
            yield from entry(op, inside)


def entry(op: DistOp, inside: bool) -> Iterator[Entry]:
    mesh = mesh_of(op)
    operands = [dist_type(x).local_shape(mesh) for x in op.operands]
    (result,) = (dist_type(x).local_shape(mesh) for x in op.results)
    rows = BATCH // 4 // next(axis.size for axis in mesh.axes if axis.name == "data")
    match op.mnemonic:
        case "einsum" if operands[0][0] != rows or operands[1][0] == rows:
            yield "gradient of weight", result
        case "einsum" if "i j -> b i" in str(op.properties["equation"]):
            yield "gradient of operand", (operands[0][0], *operands[1])
        case "einsum":
            yield "MatMul", (operands[0][0], *operands[1])
        case "relu":
            yield "Relu", result
        case "where":
            yield "ReluGrad", result
        case "all_reduce" if result:
            yield "MPIAllreduce", result
        case "sub" | "mul" | "add" if not inside and result[:1] == (rows,):
            yield "Loss", result
        case _:
            return


def grouped(steps: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the operations of DistIR that some steps stand for.

    An all_reduce of an operand's gradient may stand before the product of the weight's gradient.
    """
    previous: Entry | None = None
    reduced: list[Entry] = []
    for name, shape in steps:
        if name == "gradient of weight":
            yield from reduced
            reduced = []
        elif name == "MPIAllreduce" and previous and previous[0] == "gradient of operand":
            reduced = [(name, shape)]
        elif not (name == "Loss" and previous and previous[0] == "Loss"):
            yield ("MatMulGrad" if name == "gradient of operand" else name), shape
        previous = name, shape


def task(operations: Iterable[tuple[str, Shape]], rows: int, tensor: int) -> list[Entry]:
    """Return the operations of a task of the evaluator, without those that are DistIR's alone."""
    sizes = {"rows": rows, "width": WIDTH, "part": WIDTH // tensor}
    alone = ("Identity", "Concat", "Add", "LossGrad")
    return [
        (kind, tuple(sizes[x] for x in shape)) for kind, shape in operations if kind not in alone
    ]


@pytest.mark.turns
@pytest.mark.parametrize(
    ("data", "tensor", "stages"), [(1, 1, 2), (2, 2, 2), (2, 1, 4), (1, 4, 4), (4, 2, 2)]
)
def test_compiled_tasks_have_the_operations_of_the_figures(
    data: int, tensor: int, stages: int
) -> None:
    rows = BATCH // data // 4
    for at in (0, stages - 1):
        last = at == stages - 1
        stage = Stage(LAYERS // stages, False, at == 0, last, tensor > 1, True)
        expected = [(o.kind, o.shape) for o in forward(stage, False)]
        found = compiled_task(f"forward_{at}", data, tensor, stages)
        assert found == task(expected, rows, tensor)
        expected = [(o.kind, o.shape) for o in backward(stage, False)]
        found = compiled_task(f"backward_{at}", data, tensor, stages)
        gradient = [("Loss", (rows, WIDTH))] if last else []
        assert found == gradient + task(expected, rows, tensor)


@pytest.mark.turns
def test_the_commands_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    page = str(PAGE)
    assert collopt.main([page, "-p", "propagate", "--function", "step"]) == 0
    simulation = ["-p", "pipeline{microbatches=4}", "-t", "simulate", "--function", "step"]
    assert collopt.main([page, *simulation]) == 0
    assert collrun.main([page, "--set-size", "batch=8", "--set-size", "width=16"]) == 0
    assert "step: ok" in capsys.readouterr().out
