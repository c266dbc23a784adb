"""A dialect with one operation of models, ``leaky_relu %x slope 0.1``: its row in every table."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from xdsl.ir import Dialect

from collir.dialects.operation import DistOp, operations
from collir.layout import DistType, DType
from collir.layout.gradients import Reverse, Term
from collir.layout.nn_rows import check_numbers, model_row
from collir.layout.operation_table import OperationTable
from collir.layout.steps import ArgumentKind, Arguments, Parameter, StepKind
from collir.layout.structure import Structure, map_structure
from collir.semantics.reference import exactness, nn
from collir.semantics.reference.arrays import Array
from collir.targets.code import c_models, jax_ops, numpy_ops, torch_ops
from collir.targets.code.c_kernels import BlockComputation
from collir.targets.code.c_text import number_text
from collir.targets.code.forms import ModelStep

# The rows, and the dialect that is made of them. The keyword of a parameter is one of the language.
ROWS: OperationTable[StepKind] = OperationTable("ROWS", __name__)
SLOPE = Parameter("slope", "slope", ArgumentKind.NUMBER)


def _structure(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    check_numbers("leaky_relu", xs[0], floats=True)
    return map_structure("leaky_relu", xs, flops=2)


def _gradient(r: Reverse, operand: int) -> Term:
    """Return the cotangent, times the slope where the operand is not positive."""
    (x,) = r.x
    scaled = r.g.step("scale", factor=r.arguments["slope"])
    return x.step("greater", x.full(0)).step("where", r.g, scaled)


model_row(
    "leaky_relu",
    "Return x where it is positive, and x times a slope elsewhere.",
    _structure,
    1,
    (SLOPE,),
    gradient=_gradient,
    table=ROWS,
)

Extra = Dialect("extra", [*operations("extra", ROWS).values()])


# Its function of arrays, and whether results on small integers are exact.
def _leaky_relu(op: DistOp, arrays: Sequence[Array]) -> Array:
    slope = op.number("slope")

    def leaky(x: Any) -> Any:
        return np.maximum(x, 0) + slope * np.minimum(x, 0)

    return nn.elementwise(leaky)(op, arrays)


nn.FUNCTIONS["leaky_relu"] = _leaky_relu
exactness.GRIDS["leaky_relu"] = exactness.GRIDS["gelu"]


# Its forms in jax, numpy, torch and C.
def _slope(s: ModelStep) -> str:
    return repr(s.op.number("slope"))


jax_ops.EXPRESSIONS["leaky_relu"] = lambda s: f"jax.nn.leaky_relu({s.x}, {_slope(s)})"
numpy_ops.EXPRESSIONS["leaky_relu"] = lambda s: f"xp.where({s.x} > 0, {s.x}, {_slope(s)} * {s.x})"
torch_ops.EXPRESSIONS["leaky_relu"] = lambda s: s.functional("leaky_relu", s.x, _slope(s))


def _in_c(c: BlockComputation) -> list[str]:
    wide = DType.F64 if c.result.dtype is DType.F64 else DType.F32
    slope = number_text(c.op.number("slope"), wide)
    return c_models.elementwise(c_models.Map(f"a > 0 ? a : {slope} * a"))(c)


c_models.BODIES["leaky_relu"] = _in_c
