"""The rows of the nn dialect that multiply each row by the matrix of its group, as experts do.

A group that is out of range gives 0. Rows are taken to be spread evenly over the groups.
"""

from collections.abc import Sequence

from collir.layout import nn_gradients as gradients
from collir.layout.errors import LayoutError
from collir.layout.nn_rows import check_numbers, check_rank, model_row, named_type
from collir.layout.sizes import same_size
from collir.layout.steps import TO, ArgumentKind, Arguments, Parameter
from collir.layout.structure import Linear, Structure, sizes_of
from collir.layout.types import DistType

TRANSPOSED = Parameter("transposed", "transposed", ArgumentKind.FLAG)

_GROUP = frozenset(["e"])


def _check_pair(name: str, x: DistType, y: DistType) -> None:
    check_numbers(name, x)
    if x.dtype is not y.dtype:
        raise LayoutError(
            f"{name} needs one dtype: {{0}} is {x.dtype} and {{1}} is {y.dtype}: cast one of them",
            operand=1,
        )


def _rows(name: str, x: DistType) -> tuple[str, ...]:
    """Return the indices of rows: those of all dimensions but the last."""
    if not x.dims:
        raise LayoutError(f"{name} needs rows of numbers, and {{0}} has no dimension", operand=0)
    return tuple(map(str, range(len(x.dims) - 1)))


def _grouped_matmul(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    name, (x, w, groups) = "grouped_matmul", xs
    _check_pair(name, x, w)
    rows = _rows(name, x)
    if len(w.dims) != 3:
        raise LayoutError(
            f"{name} needs a matrix for each group in {{1}}, which is {list(map(int, w.shape))}: "
            "three dimensions",
            operand=1,
        )
    check_rank(name, groups, 2, rows)
    matrix = ("o", "i") if TRANSPOSED.name in arguments else ("i", "o")
    indices = ((*rows, "i"), ("e", *matrix), rows)
    return Structure(
        indices,
        (*rows, "o"),
        sizes_of(name, xs, indices),
        linear=Linear.PAIR,
        flops=2,
        selected=_GROUP,
        grouped=_GROUP,
    )


model_row(
    "grouped_matmul",
    "Return the product of each row with the matrix of its group.",
    _grouped_matmul,
    3,
    (TRANSPOSED,),
    integers=2,
    aliases=("gmm", "grouped_mm", "ragged_dot"),
    gradient=gradients.grouped_matmul,
)


def _grouped_matmul_transpose(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    name, (x, g, groups), to = "grouped_matmul_transpose", xs, named_type(arguments)
    _check_pair(name, x, g)
    rows = _rows(name, x)
    check_rank(name, g, 1, (*rows, "o"))
    check_rank(name, groups, 2, rows)
    indices = ((*rows, "i"), (*rows, "o"), rows)
    sizes = sizes_of(name, xs, indices)
    if len(to.dims) != 3 or not same_size(to.shape[1:], (sizes["i"], sizes["o"])):
        raise LayoutError(
            f"{name} makes a matrix of {sizes['i']} times {sizes['o']} for each group: "
            f"{list(map(int, to.shape))} does not fit",
            operand=0,
            parameter=TO.name,
        )
    return Structure(
        indices,
        ("e", "i", "o"),
        {**sizes, "e": to.dims[0].size},
        linear=Linear.PAIR,
        flops=2,
        selected=_GROUP,
        grouped=_GROUP,
    )


model_row(
    "grouped_matmul_transpose",
    "Add the products of the elements of rows of two tensors, for each group.",
    _grouped_matmul_transpose,
    3,
    (TO,),
    integers=2,
    aliases=("tgmm",),
    gradient=gradients.grouped_matmul_transpose,
)
