"""The executor: runs functions on the numpy buffers of all devices, by xDSL's interpreter."""

from collections.abc import Sequence
from functools import cache

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.interpreter import Interpreter, InterpreterFunctions, impl, register_impls
from xdsl.interpreters.func import FuncFunctions

from collir.dialects.machine import mesh_of
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import dist_type
from collir.semantics.reference.collectives import Buffers
from collir.semantics.reference.steps import MEANINGS, Args, Meaning


def execute(module: ModuleOp, function: FuncOp, arguments: Sequence[Buffers]) -> list[Buffers]:
    """Return the results of a function on the buffers of all devices.

    Args:
        arguments: for every argument one array (or None) per rank, of the local shape and dtype.

    Raises:
        ExecutionError: a step cannot be carried out, which does not happen in typed programs.
    """
    interpreter = Interpreter(module)
    interpreter.register_implementations(_functions())
    interpreter.register_implementations(FuncFunctions())
    with np.errstate(all="ignore"):
        return list(interpreter.call_op(function, tuple(arguments)))


_ARRAY = 200
"""The bytes of an array in addition to its elements."""


def memory_needed(function: FuncOp, element: int | None = None) -> int:
    """Return an upper bound of the bytes that ``execute`` holds at once, over all devices.

    The interpreter keeps every value until the function returns. Making the inputs takes the size
    of the arguments once more.

    Args:
        element: the bytes of an element, if the arrays do not hold elements in their types.
    """
    mesh = mesh_of(function)
    values = [*function.args, *function.args, *(r for op in function.body.ops for r in op.results)]
    types = [dist_type(value) for value in values]
    local = (x.local_bytes(mesh) * (element or x.dtype.bytes) // x.dtype.bytes for x in types)
    return sum((size + _ARRAY) * mesh.devices for size in local)


@cache
def _functions() -> InterpreterFunctions:
    """Return the steps in the form that xDSL's interpreter takes."""
    methods = {name: _implementation(name, meaning) for name, meaning in MEANINGS.items()}
    return register_impls(type("StepFunctions", (InterpreterFunctions,), methods))()


def _implementation(name: str, meaning: Meaning) -> object:
    def run(_: InterpreterFunctions, interpreter: Interpreter, op: DistOp, args: Args) -> Args:
        return (meaning.run(op, args),)

    return impl(OPERATIONS[name])(run)
