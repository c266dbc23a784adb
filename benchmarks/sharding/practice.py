"""The plans that people use: they follow from the layouts of the arguments of a step."""

from collections.abc import Sequence

from cases import AXIS, step_of
from simulated import Plan, simulated
from xdsl.dialects.builtin import FunctionType
from xdsl.dialects.func import FuncOp

import collir
from collir.cost.model import CostModel
from collir.dialects.tensor import DistTensorType, dist_type
from collir.ir.remarks import listening
from collir.ir.roles import Role, role_of
from collir.synthesis.propagation.graph import Layout
from collir.synthesis.propagation.propagate import propagate
from collir.synthesis.propagation.rewrite import with_layout


def propagated(page: str, text: str, layouts: Sequence[Layout]) -> Plan:
    """Return the plan that follows from layouts of arguments."""
    module = collir.parse(page + text)
    function = step_of(module)
    for argument, layout in zip(function.args, layouts, strict=True):
        argument._type = DistTensorType(with_layout(dist_type(argument), layout))  # pyright: ignore
    results = function.function_type.outputs.data
    types = [argument.type for argument in function.args]
    function.properties["function_type"] = FunctionType.from_lists(types, results)
    module = collir.parse(collir.emit(module, "coll"))
    with listening(lambda _: None):
        propagate(module)
    module.verify()
    return simulated(module, CostModel())


def data_parallel(function: FuncOp, batch: int, n: int, zero: bool) -> list[Layout] | None:
    """Return the layouts of arguments of data parallelism: of the batch, and with ``zero`` of
    weights and states; None if nothing divides."""
    layouts: list[Layout] = []
    divided = 0
    for argument in function.args:
        shape = tuple(map(int, dist_type(argument).shape))
        at, role = None, role_of(argument)
        if role is None and shape and shape[0] == batch:
            at = 0
        elif zero and role in (Role.PARAMETER, Role.STATE):
            inside = [d for d in range(min(1, len(shape) - 1), len(shape)) if shape[d] % n == 0]
            at = max(inside, key=lambda d: shape[d], default=None)
            divided += at is not None
        layouts.append(tuple((AXIS,) if d == at else () for d in range(len(shape))))
    return layouts if divided or not zero else None
