"""A dialect as an extension, with one operation: toy.negate changes the sign of every element.

In collir itself a dialect is a table of rows in layout/, a file of dialects/, and a call of
register in dialects/tables.py. Its operations need rules in the oracles and lines in code targets,
as others do; here only the Python targets get one.
"""

from xdsl.ir import Dialect

from collir.dialects import tables
from collir.dialects.operation import operations
from collir.layout import DistType, Mesh, local_rules
from collir.layout.operation_table import OperationTable
from collir.layout.steps import StepKind, rows_in

ROWS: OperationTable[StepKind] = OperationTable("ROWS", __name__)
row = rows_in(ROWS, StepKind)


def negate(mesh: Mesh, x: DistType) -> DistType:
    """Return the type of -x: a partial max becomes a partial min."""
    return local_rules.scale(mesh, x, -1.0)


row(name="negate", rule=negate, elementwise=True)

tables.register(Dialect("toy", [*operations("toy", ROWS).values()]))

from fractions import Fraction  # noqa: E402

from collir.layout import Reduction  # noqa: E402
from collir.semantics.reference.exactness import GRIDS  # noqa: E402
from collir.semantics.reference.steps import MEANINGS, Effect, Meaning  # noqa: E402
from collir.semantics.symbolic import execution  # noqa: E402
from collir.semantics.symbolic.algebra import scaled  # noqa: E402
from collir.semantics.symbolic.values import SymbolicValue  # noqa: E402
from collir.synthesis.reorder.swap import HOPS  # noqa: E402
from collir.targets.code import numpy_ops, torch_ops  # noqa: E402

MEANINGS["negate"] = Meaning(
    lambda op, args: [None if x is None else -x for x in args[0]], Effect.VALUES
)
GRIDS["negate"] = lambda op, mesh, operands: operands[0]
execution.RULES["negate"] = lambda run, op, xs: SymbolicValue(
    xs[0].shape, xs[0].place, scaled(xs[0].expr, Fraction(-1))
)
HOPS["negate"] = lambda x, arguments, ahead: x.reduction in (None, Reduction.SUM)
numpy_ops.EXPRESSIONS["negate"] = lambda s: f"-{s.x}"
torch_ops.EXPRESSIONS["negate"] = lambda s: f"-{s.x}"
