"""Roles of values are kept as attributes that round-trip in MLIR and that clones keep."""

import pytest
from xdsl.dialects.builtin import ArrayAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation

import collir
from collir.dialects.nested import RepeatOp
from collir.ir.diagnostics import DiagnosticError, Sources
from collir.ir.roles import ROLE, Role, argument_roles, role_of, set_role
from collir.ir.verification import verify
from collir.syntax.mlir import read_mlir
from collir.tools.api import context

PROGRAM = """
machine @box { level gpu[4] { port = 1 GB/s, latency = 1 us } }
mesh @m on @box { data = gpu:4 }

func @f(%w: f32[3, 8], %x: f32[8]) -> (f32[8], f32[3, 8]) on @m {
  %y, %all = repeat 3 carry(%c = %x) slice(%s = %w) {
    %t = mul %c, %s
    yield %t, %t
  }
  %z = exp %y
  return %z, %all
}
"""


def parts(module: ModuleOp) -> tuple[FuncOp, RepeatOp, Operation]:
    function = next(op for op in module.ops if isinstance(op, FuncOp))
    loop, step, _ = function.body.ops
    assert isinstance(loop, RepeatOp)
    return function, loop, step


def with_roles() -> ModuleOp:
    module = collir.parse(PROGRAM)
    function, loop, step = parts(module)
    set_role(function.args[0], Role.PARAMETER)
    set_role(loop.results[1], Role.ACTIVATION)
    set_role(step, Role.GRADIENT)
    return module


def test_values_have_the_roles_that_they_were_given() -> None:
    function, loop, step = parts(with_roles())
    assert argument_roles(function) == [Role.PARAMETER, None]
    assert [role_of(result) for result in loop.results] == [None, Role.ACTIVATION]
    assert role_of(step.results[0]) is Role.GRADIENT


def test_arguments_of_a_loop_have_the_roles_of_its_operands() -> None:
    _, loop, _ = parts(with_roles())
    assert [role_of(arg) for arg in loop.body.block.args] == [None, Role.PARAMETER]
    with pytest.raises(ValueError, match="operand it stands for"):
        set_role(loop.body.block.args[0], Role.STATE)


def test_roles_that_are_taken_away_leave_no_attribute() -> None:
    module = with_roles()
    function, loop, step = parts(module)
    set_role(function.args[0], None)
    for op in (loop, step):
        set_role(op, None)
    assert module.is_structurally_equivalent(collir.parse(PROGRAM))


def test_clones_and_mlir_keep_roles() -> None:
    module = with_roles()
    text = collir.emit(module, "mlir")
    assert text.count(ROLE) == 3
    for copy in (module.clone(), read_mlir(context(), text, "program.mlir", Sources())):
        assert copy.is_structurally_equivalent(module)


@pytest.mark.parametrize("attribute", [StringAttr("weight"), ArrayAttr([StringAttr("state")] * 2)])
def test_unknown_and_miscounted_roles_are_errors(attribute: StringAttr) -> None:
    module = with_roles()
    _, _, step = parts(module)
    step.attributes[ROLE] = attribute
    with pytest.raises(DiagnosticError, match="role"):
        verify(module)
