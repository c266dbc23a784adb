"""The dialects, and the operations that a program may name."""

from xdsl.ir import Dialect

from collir.dialects import coll
from collir.dialects.machine import Machines
from collir.dialects.operation import DistOp

DIALECTS: list[Dialect] = [Machines, coll.Coll]
"""The dialects that tools register."""

OPERATIONS: dict[str, type[DistOp]] = {**coll.OPERATIONS}
"""The operations on distributed tensors of all dialects, by what they are called in a program."""
