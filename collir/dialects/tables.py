"""The tables of dialects, and of the operations that a program may name."""

from xdsl.ir import Dialect

from collir.dialects import coll, nn
from collir.dialects.machine import Machines
from collir.dialects.operation import DistOp

DIALECTS: list[Dialect] = [Machines]
"""The dialects that tools register."""

OPERATIONS: dict[str, type[DistOp]] = {}
"""The operations on distributed tensors of all dialects, by their name in a program."""


def register(dialect: Dialect) -> None:
    """Add a dialect and its operations on distributed tensors, if it is not there yet.

    Raises:
        ValueError: another dialect has an operation of the same name.
    """
    if dialect in DIALECTS:
        return
    operations = {op.KIND.name: op for op in dialect.operations if issubclass(op, DistOp)}
    for name, operation in operations.items():
        if name in OPERATIONS:
            raise ValueError(f"{operation.name}: there is {OPERATIONS[name].name} already")
    DIALECTS.append(dialect)
    OPERATIONS.update(operations)


register(coll.Coll)
register(nn.Nn)
