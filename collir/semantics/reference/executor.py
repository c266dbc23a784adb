"""The executor: runs functions on the numpy buffers of all devices, by xDSL's interpreter."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.interpreter import (
    Interpreter,
    InterpreterFunctions,
    ReturnedValues,
    impl,
    impl_callable,
    impl_terminator,
    register_impls,
)

from collir.dialects.machine import mesh_of, meshes_remembered, module_of
from collir.dialects.nested import CallOp, RepeatOp, YieldOp
from collir.dialects.operation import DistOp
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import dist_type
from collir.ir.calls import calls_in
from collir.ir.retyping import function_at
from collir.layout import Place
from collir.semantics.reference.collectives import Buffers, ExecutionError
from collir.semantics.reference.steps import Args, meaning_of
from collir.transforms.inlining import function_without_calls

Change = Callable[[DistOp, Args, Buffers], Buffers]
"""A function of a step, its operands and its result that returns another result."""


def execute(
    module: ModuleOp,
    function: FuncOp,
    arguments: Sequence[Buffers],
    change: Change | None = None,
    listeners: tuple[Interpreter.Listener, ...] = (),
) -> list[Buffers]:
    """Return the results of a function on the buffers of all devices.

    Args:
        arguments: for every argument one array (or None) per rank, of the local shape and dtype.
        change: a function that returns the result to go on with in the place of a step's own.
        listeners: observers of every step.

    Raises:
        ExecutionError: a step cannot be carried out, which does not happen in typed programs.
    """
    if _needs_gradients(function):
        function = function_without_calls(function)
        module = module_of(function)
    interpreter = Interpreter(module, listeners=listeners)
    with ExitStack() as copies, np.errstate(all="ignore"), meshes_remembered():
        functions = _step_functions()()
        functions.change = change
        interpreter.register_implementations(functions)
        interpreter.register_implementations(_NestedFunctions(copies))
        return list(interpreter.call_op(function, tuple(arguments)))


def _needs_gradients(function: FuncOp) -> bool:
    """Return whether a function, or one that it calls, calls a gradient."""
    known, left = {function}, [function]
    while left:
        for call in calls_in(left.pop()):
            if call.sought:
                return True
            callee = call.function()
            if callee is not None and callee not in known:
                known.add(callee)
                left.append(callee)
    return False


_ARRAY = 200
"""The bytes of an array in addition to its elements."""


def memory_needed(function: FuncOp, element: int | None = None) -> int:
    """Return an upper bound of the bytes that ``execute`` holds at once, over all devices.

    The interpreter keeps every value until the function returns. Making the inputs takes the size
    of the arguments once more.

    Args:
        element: the bytes of an element, if the arrays do not hold elements in their types.
    """
    function, mesh = function_without_calls(function), mesh_of(function)
    values = [*function.args, *function.args, *(r for op in function.walk() for r in op.results)]
    types = [dist_type(value) for value in values]
    local = (x.local_bytes(mesh) * (element or x.dtype.bytes) // x.dtype.bytes for x in types)
    return sum((size + _ARRAY) * mesh.devices for size in local)


class _Changing(InterpreterFunctions):
    """Steps whose results are changed, if ``change`` is not None."""

    change: Change | None = None


@cache
def _step_functions() -> type[_Changing]:
    """Return the steps in the form that xDSL's interpreter takes."""
    methods = {name: _implementation(name) for name in OPERATIONS}
    return register_impls(type("StepFunctions", (_Changing,), methods))


@register_impls
class _NestedFunctions(InterpreterFunctions):
    """Functions, calls and loops, run by their definitions.

    xDSL has functions too, in a module that imports all of its interpreters: a quarter of a second.

    Attributes:
        copies: the context that removes functions at the values of calls after the run.
        at_values: the functions that calls run, by callee, values and place.
    """

    def __init__(self, copies: ExitStack):
        self.copies = copies
        self.at_values: dict[tuple[FuncOp, tuple[tuple[str, int], ...], Place], FuncOp] = {}

    @impl_callable(FuncOp)
    def run_function(self, interpreter: Interpreter, op: FuncOp, args: Args) -> Args:
        return interpreter.run_ssacfg_region(op.body, args, op.sym_name.data)

    @impl_terminator(ReturnOp)
    def run_return(
        self, interpreter: Interpreter, op: ReturnOp, args: Args
    ) -> tuple[ReturnedValues, Args]:
        return ReturnedValues(args), ()

    @impl(CallOp)
    def run_call(self, interpreter: Interpreter, op: CallOp, args: Args) -> Args:
        callee = op.function()
        if callee is None:
            raise ExecutionError(f"there is no function @{op.symbol}")
        values = {name: int(value) for name, value in op.values.items()}
        place = op.place(callee)
        key = (callee, tuple(values.items()), place)
        if (values or place) and key not in self.at_values:
            copy = self.copies.enter_context(function_at(callee, values, {}, place))
            self.at_values[key] = copy
        return interpreter.call_op(self.at_values.get(key, callee), args)

    @impl(RepeatOp)
    def run_repeat(self, interpreter: Interpreter, op: RepeatOp, args: Args) -> Args:
        carries, slices = len(op.carried), len(op.sliced)
        carried, sliced = args[:carries], args[carries : carries + slices]
        rows: dict[int, Args] = {}
        numbers = range(op.times)
        for number in reversed(numbers) if op.reverse is not None else numbers:
            inputs = (*carried, *(_row(x, number) for x in sliced), *args[carries + slices :])
            yielded = interpreter.run_ssacfg_region(op.body, inputs, op.name)
            carried, rows[number] = yielded[:carries], yielded[carries:]
        stacks = zip(*(rows[number] for number in numbers), strict=True)
        return (*carried, *map(_stacked, stacks))

    @impl_terminator(YieldOp)
    def run_yield(
        self, interpreter: Interpreter, op: YieldOp, args: Args
    ) -> tuple[ReturnedValues, Args]:
        return ReturnedValues(args), ()


def _row(xs: Buffers, number: int) -> Buffers:
    """Return a slice along the leading dimension, on every device that holds an array."""
    return [None if x is None else x[number, ...] for x in xs]


def _stacked(values: Sequence[Buffers]) -> Buffers:
    """Return the stack of values along a new leading dimension, on every device."""
    return [
        None if parts[0] is None else np.concatenate([x.reshape((1, *x.shape)) for x in parts])
        for parts in zip(*values, strict=True)
    ]


def _implementation(name: str) -> object:
    def run(functions: _Changing, interpreter: Interpreter, op: DistOp, args: Args) -> Args:
        result = meaning_of(name).run(op, args)
        return (result if functions.change is None else functions.change(op, args, result),)

    return impl(OPERATIONS[name])(run)
