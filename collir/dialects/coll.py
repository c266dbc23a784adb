"""The coll dialect: distributed tensors, collectives over sub-axes, and local operations.

It has one operation for each row of the table in ``collir.layout.coll``, and those that
run other operations (``nested``).
"""

from xdsl.ir import Dialect

from collir.dialects.algorithms import AlgorithmAttr, AlgorithmOp
from collir.dialects.nested import CallOp, RepeatOp, YieldOp
from collir.dialects.operation import operations
from collir.dialects.records import FieldAttr, RecordOp
from collir.dialects.tensor import (
    AxesAttr,
    BindingsAttr,
    DistTensorType,
    PlaceAttr,
    SizeAttr,
    SizesAttr,
    dist_type,
)
from collir.layout.coll import STEPS

OPERATIONS = operations("coll", STEPS)
"""The operations by the name of their row."""

COLLECTIVES = tuple(op for op in OPERATIONS.values() if op.KIND.sends)
"""The operations that send."""

LOCAL = tuple(op for op in OPERATIONS.values() if op.KIND.local)
"""The operations that send nothing."""

Coll = Dialect(
    "coll",
    [*OPERATIONS.values(), CallOp, RepeatOp, YieldOp, RecordOp, AlgorithmOp],
    [
        AlgorithmAttr,
        DistTensorType,
        AxesAttr,
        PlaceAttr,
        SizesAttr,
        SizeAttr,
        BindingsAttr,
        FieldAttr,
    ],
)

__all__ = [
    "COLLECTIVES",
    "LOCAL",
    "OPERATIONS",
    "AxesAttr",
    "BindingsAttr",
    "Coll",
    "DistTensorType",
    "PlaceAttr",
    "SizeAttr",
    "SizesAttr",
    "dist_type",
]
