"""Where the values of a function live: which are views of others, and until when.

Shared by all code targets; it decides nothing about a runtime.
"""

from dataclasses import dataclass

from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue

from collir.dialects.coll import VIEWS, dist_type
from collir.syntax.writer import unique_names


@dataclass(frozen=True)
class Plan:
    """The buffers of a function.

    ``owner`` maps every value to the value whose memory it is. ``last_use`` maps an owner to the
    last operation that reads it. ``result_of`` maps an owner to the index of the result it is
    written to directly; results that are arguments, or that share memory with an earlier result,
    are not in it and have to be copied.
    """

    names: dict[SSAValue, str]
    owner: dict[SSAValue, SSAValue]
    last_use: dict[SSAValue, Operation]
    result_of: dict[SSAValue, int]
    returned: tuple[SSAValue, ...]

    def is_temporary(self, value: SSAValue) -> bool:
        """Whether a value needs memory of the function's own."""
        return (
            self.owner[value] is value
            and isinstance(value.owner, Operation)
            and value not in self.result_of
        )


def plan(function: FuncOp) -> Plan:
    """The plan of a function with one block."""
    owner: dict[SSAValue, SSAValue] = {argument: argument for argument in function.args}
    last_use: dict[SSAValue, Operation] = {}
    returned: tuple[SSAValue, ...] = ()
    for op in function.body.ops:
        for operand in op.operands if not isinstance(op, VIEWS) else ():
            last_use[owner[operand]] = op
        for result in op.results:
            owner[result] = owner[op.operands[0]] if isinstance(op, VIEWS) else result
        if not op.results:
            returned = tuple(op.operands)
    result_of: dict[SSAValue, int] = {}
    for index, value in enumerate(returned):
        root = owner[value]
        # Memory that starts out on more devices than the result is on must not be the caller's.
        same = dist_type(root).root == dist_type(value).root
        if isinstance(root.owner, Operation) and root not in result_of and same:
            result_of[root] = index
    return Plan(unique_names(function), owner, last_use, result_of, returned)
