"""The verifier checks again what has changed since a step was found right."""

from collections.abc import Callable

import pytest
from support.semantics.checks import functions_of
from xdsl.dialects.builtin import ModuleOp, SymbolRefAttr
from xdsl.ir import Operation

from collir.dialects.machine import MESH_ATTRIBUTE
from collir.dialects.operation import DistOp
from collir.dialects.tensor import AxesAttr
from collir.ir.diagnostics import DiagnosticError
from collir.ir.parameters import set_parameters
from collir.ir.renaming import set_type
from collir.ir.verification import verify
from collir.syntax.reader import read

TEXT = """
machine @c { level node[2] { port = 8 GB/s, latency = 20 us }
             level gpu[4] { port = 270 GB/s, latency = 3 us } }
mesh @m on @c { data = node:2, model = gpu:4 }
mesh @other on @c { model = gpu:4, data = node:2 }

func @callee(n = 8) (%x: f32[n] partial(sum: data)) -> f32[n] on @m {
  %y = all_reduce %x over data
  return %y
}

func @f(n = 16) (%x: f32[16] partial(sum: data)) -> f32[16] on @m {
  %numbers = iota dim 0 to f32[n]
  %y = all_reduce %x over data
  return %y
}

func @caller(%x: f32[8] partial(sum: data)) -> f32[8] on @m {
  %y = call @callee(%x)
  return %y
}
"""


def steps(module: ModuleOp, function: int) -> list[Operation]:
    return list(functions_of(module)[function].body.block.ops)


def other_axes(module: ModuleOp) -> None:
    step = steps(module, 1)[1]
    step.properties["axes"] = AxesAttr(("model",))


def other_operand(module: ModuleOp) -> None:
    function = functions_of(module)[1]
    set_type(function.args[0], steps(module, 1)[1].results[0].type)
    function.update_function_type()


def other_result(module: ModuleOp) -> None:
    step = steps(module, 1)[1]
    assert isinstance(step, DistOp)
    set_type(step.result, step.operands[0].type)


def other_default(module: ModuleOp) -> None:
    set_parameters(functions_of(module)[1], {"n": 24})


def other_mesh(module: ModuleOp) -> None:
    functions_of(module)[2].attributes[MESH_ATTRIBUTE] = SymbolRefAttr("other")


def other_signature(module: ModuleOp) -> None:
    callee, whole, _ = functions_of(module)
    callee.properties["function_type"] = whole.function_type
    callee.attributes |= whole.attributes


@pytest.mark.parametrize(
    ("change", "function"),
    [
        (other_axes, "f"),
        (other_operand, "f"),
        (other_result, "f"),
        (other_default, "f"),
        (other_mesh, "caller"),
        (other_signature, "caller"),
    ],
)
def test_a_step_is_checked_again_when_it_changes(
    change: Callable[[ModuleOp], None], function: str
) -> None:
    module = read(TEXT)
    verify(module)
    verify(module)
    change(module)
    with pytest.raises(DiagnosticError) as raised:
        verify(module)
    lines = [line for line, text in enumerate(TEXT.splitlines(), 1) if f"@{function}(" in text]
    errors = raised.value.diagnostics
    assert any(error.position and error.position.line > lines[-1] for error in errors)
