"""The nn dialect: the operations of models, one for each row of their table (``layout.nn``)."""

from xdsl.ir import Dialect

from collir.dialects.operation import DistOp, operation
from collir.layout.nn import NN

OPERATIONS: dict[str, type[DistOp]] = {name: operation("nn", kind) for name, kind in NN.items()}
"""The operations by the name of their row."""

Nn = Dialect("nn", list(OPERATIONS.values()), [])
