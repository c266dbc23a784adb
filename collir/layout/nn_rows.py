"""The table of the operations of models: one row for each, with its index structure.

The typing rule of a row and its work follow from the structure. The rows are in ``nn``,
``nn_selections``, ``nn_grouped`` and ``nn_windows``.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from collir.layout.dtypes import DType
from collir.layout.errors import LayoutError
from collir.layout.expansions import Expansion
from collir.layout.gradients import Gradient
from collir.layout.mesh import Mesh
from collir.layout.operation_table import OperationTable
from collir.layout.steps import (
    DIM,
    TO,
    Argument,
    ArgumentKind,
    Arguments,
    Parameter,
    StepKind,
    reads_all,
    rows_in,
)
from collir.layout.structure import REPEATED, Structure, index_text, typed
from collir.layout.types import Dim, DistType, check_type

NN: OperationTable[StepKind] = OperationTable("NN", __name__)
"""The rows of the nn dialect by name, in the order in which they are listed to users."""

row = rows_in(NN, StepKind)

DIMS = Parameter("dims", "dims", ArgumentKind.SIZES, is_dim=True)
KEEPDIMS = Parameter("keepdims", "keepdims", ArgumentKind.FLAG)
VALUE = Parameter("value", "value", ArgumentKind.NUMBER)
EPS = Parameter("eps", "eps", ArgumentKind.NUMBER)
COUNT = Parameter("k", "k", ArgumentKind.INTEGER)
WINDOW = Parameter("window", "window", ArgumentKind.SIZES)
STRIDE = Parameter("stride", "stride", ArgumentKind.SIZES)
PADDING = Parameter("padding", "padding", ArgumentKind.SIZES)
REVERSE = Parameter("reverse", "reverse", ArgumentKind.FLAG)
EQUATION = Parameter("", "equation", ArgumentKind.TEXT)

StructureOf = Callable[[Sequence[DistType], Arguments], Structure]


def model_row(
    name: str,
    doc: str,
    structure: StructureOf,
    operands: int | None,
    parameters: tuple[Parameter, ...] = (),
    result: DType | None = None,
    aliases: tuple[str, ...] = (),
    conditions: int = 0,
    gradient: Gradient | None = None,
    expansion: Expansion | None = None,
    integers: int | None = None,
    moved: Callable[[Sequence[int], int], int] = reads_all,
    table: dict[str, StepKind] = NN,
) -> StepKind:
    """Add a row whose rule follows from its structure.

    Args:
        doc: the first line of the operation's documentation.
        result: the dtype of the result, if it is not that of the operands.
        conditions: the number of operands in front that are truth values.
        integers: the number of the operand that holds integers, if one does; the result then has
            the dtype of the first operand, or of the type that the operation names.
        moved: the bytes that it reads and writes.
        table: the rows of the dialect that has the operation.
    """

    def rule(mesh: Mesh, *values: Any) -> DistType:
        count = 1 if operands is None else operands
        xs: Sequence[DistType] = values[0] if operands is None else values[:count]
        given: Iterable[tuple[Parameter, Argument]] = zip(parameters, values[count:], strict=True)
        arguments = {x.name: value for x, value in given if value is not False}  # False: no flag
        if integers is None:
            _check_dtypes(name, xs, conditions)
        else:
            _check_integers(name, xs[integers], integers)
        dtype = result or xs[-1 if integers is None else 0].dtype
        if TO.name in arguments:
            to = named_type(arguments)
            dtype = dtype if integers != 0 else to.dtype
            return _given(name, mesh, structure(xs, arguments), xs, dtype, to)
        return typed(name, mesh, structure(xs, arguments), xs, dtype)

    rule.__doc__ = doc
    return rows_in(table, StepKind)(
        name=name,
        rule=rule,
        parameters=parameters,
        operands=operands,
        structure=structure,
        gradient=gradient,
        expansion=expansion,
        aliases=aliases,
        moved=moved,
    )


def named_type(arguments: Arguments) -> DistType:
    """Return the type that an operation names for its result."""
    to = arguments[TO.name]
    assert isinstance(to, DistType)
    return to


def _given(
    name: str,
    mesh: Mesh,
    structure: Structure,
    operands: Sequence[DistType],
    dtype: DType,
    to: DistType,
) -> DistType:
    """Return the type that an operation names for its result.

    The dimensions that operands lack may be sharded in it, since every device makes its own block;
    all else is as the structure says.

    Raises:
        LayoutError: the type says something else.
    """
    check_type(mesh, to)
    plain = typed(name, mesh, structure, operands, dtype)
    known = {index for indices in structure.operands for index in indices}
    for number, (index, wanted) in enumerate(zip(structure.result, to.dims, strict=True)):
        if wanted.axes and index in structure.blocked:
            raise LayoutError(
                f"{name} makes the whole of dimension {number} on every device: slice the result",
                axes=wanted.axes,
                parameter=TO.name,
            )
    dims = (
        dim
        if index in known or index == REPEATED or index in structure.blocked
        else Dim(dim.size, tuple(axis for axis in wanted.axes if axis not in plain.axes))
        for index, dim, wanted in zip(structure.result, plain.dims, to.dims, strict=True)
    )
    kept = DistType(dtype, tuple(dims), plain.partial, plain.reduction, plain.place)
    if not kept.agrees(to):
        advice = "redistribute" if kept.dtype is to.dtype else "cast"
        raise LayoutError(
            f"{name} may shard the dimensions that it makes, and the rest follows from its "
            f"operands: with {{0}} the type is {kept.text(mesh)}, not {to.text(mesh)}: {advice} "
            "the result",
            operand=0,
            parameter=TO.name,
        )
    return to


def check_numbers(name: str, x: DistType, floats: bool = False) -> None:
    if x.dtype is DType.BOOL or (floats and not x.dtype.is_float):
        raise LayoutError(
            f"{name} is of {'floating-point ' * floats}numbers, and {{0}} is {x.dtype}: cast it",
            operand=0,
        )


def _check_integers(name: str, x: DistType, number: int) -> None:
    if x.dtype.is_float or x.dtype is DType.BOOL:
        raise LayoutError(
            f"{name} selects by integers, and {{{number}}} is {x.dtype}: cast it", operand=number
        )


def _check_dtypes(name: str, operands: Sequence[DistType], conditions: int) -> None:
    for number, x in enumerate(operands):
        if number < conditions and x.dtype is not DType.BOOL:
            raise LayoutError(
                f"{name} chooses by truth values, and {{{number}}} is {x.dtype}: compare it",
                operand=number,
            )
        if number > conditions and x.dtype is not operands[conditions].dtype:
            raise LayoutError(
                f"{name} needs one dtype: {{{conditions}}} is {operands[conditions].dtype} and "
                f"{{{number}}} is {x.dtype}: cast one of them",
                operand=number,
            )


def dims_of(name: str, x: DistType, arguments: Arguments, floats: bool = False) -> tuple[int, ...]:
    """Return the dimensions that an operation names.

    Raises:
        LayoutError: one does not exist or is given twice, none is given, or the dtype is wrong.
    """
    dims = arguments[DIMS.name]
    assert isinstance(dims, tuple)
    check_numbers(name, x, floats)
    numbers = [dim for dim in dims if isinstance(dim, int)]
    for dim in numbers:
        if dim not in range(len(x.dims)) or numbers.count(dim) > 1:
            what = "is given twice" if numbers.count(dim) > 1 else "does not exist"
            raise LayoutError(
                f"dimension {dim} {what}: {{0}} has {len(x.dims)} dimensions, from 0",
                operand=0,
                parameter=DIMS.name,
            )
    if not numbers:
        raise LayoutError(f"{name} needs a dimension", parameter=DIMS.name)
    return tuple(numbers)


def dim_of(x: DistType, arguments: Arguments) -> int:
    """Return the dimension that an operation names.

    Raises:
        LayoutError: it does not exist.
    """
    dim = arguments[DIM.name]
    assert isinstance(dim, int)
    if dim not in range(len(x.dims)):
        raise LayoutError(
            f"dimension {dim} does not exist: {{0}} has {len(x.dims)} dimensions, from 0",
            operand=0,
            parameter=DIM.name,
        )
    return dim


def check_rank(name: str, x: DistType, number: int, indices: Sequence[str]) -> None:
    """Check that an operand has a dimension for each index.

    Raises:
        LayoutError: it has not.
    """
    if len(x.dims) != len(indices):
        listed = ", ".join(map(index_text, indices)) or "nothing"
        raise LayoutError(
            f"{name} needs {{{number}}} over {listed} of {{0}}, and it is "
            f"{list(map(int, x.shape))}",
            operand=number,
        )


def own_indices(x: DistType, number: int) -> tuple[str, ...]:
    """Return indices of dimensions that no other operand has."""
    return tuple(f"{number}.{d}" for d in range(len(x.dims)))
