"""The tables of dialects, and of the operations that a program may name."""

from collections.abc import Mapping

from xdsl.ir import Dialect

from collir.dialects import coll, nn
from collir.dialects.machine import Machines
from collir.dialects.operation import DistOp

DIALECTS: list[Dialect] = [Machines]
"""The dialects that tools register."""

OPERATIONS: dict[str, type[DistOp]] = {}
"""The operations on distributed tensors of all dialects, by their name in a program."""


def register(dialect: Dialect, operations: Mapping[str, type[DistOp]]) -> None:
    """Add a dialect and its operations.

    Raises:
        ValueError: another dialect has an operation of the same name.
    """
    for name in operations:
        if name in OPERATIONS:
            raise ValueError(f"{dialect.name}.{name}: there is {OPERATIONS[name].name} already")
    DIALECTS.append(dialect)
    OPERATIONS.update(operations)


register(coll.Coll, coll.OPERATIONS)
register(nn.Nn, nn.OPERATIONS)
