"""The rows of the nn dialect that select: by the size of elements, or by integers.

An integer that is out of range selects 0.
"""

from collections.abc import Sequence

from collir.layout import expansions
from collir.layout import nn_gradients as gradients
from collir.layout.dtypes import DType
from collir.layout.errors import LayoutError
from collir.layout.gradients import Gradient
from collir.layout.nn_rows import (
    COUNT,
    check_numbers,
    check_rank,
    dim_of,
    model_row,
    named_type,
    own_indices,
)
from collir.layout.sizes import same_size
from collir.layout.steps import DIM, TO, Arguments, Parameter, StepKind
from collir.layout.structure import Linear, Structure, dim_indices, index_text, sizes_of
from collir.layout.types import DistType

# ---------------------------------------------------------------------------------------------
# By the size of elements
# ---------------------------------------------------------------------------------------------


def _selection(
    name: str,
    doc: str,
    parameters: tuple[Parameter, ...] = (),
    result: DType | None = None,
    gradient: Gradient | None = None,
) -> StepKind:
    """Add the row of an operation that selects elements of a dimension by their size."""

    def structure(xs: Sequence[DistType], arguments: Arguments) -> Structure:
        (x,) = xs
        check_numbers(name, x)
        dim = dim_of(x, arguments)
        size, count = x.dims[dim].size, arguments.get(COUNT.name, 0)
        assert isinstance(count, int)
        if result and not result.represents(int(size) - 1):
            raise LayoutError(f"{result} does not count to {size - 1}", operand=0)
        if COUNT.name in arguments and not 1 <= count <= size:
            raise LayoutError(
                f"{name} takes 1 to {size} elements of dimension {dim}, not {count}",
                operand=0,
                parameter=COUNT.name,
            )
        indices = dim_indices(x)
        sizes = sizes_of(name, xs, [indices])
        new = ("k",) if COUNT.name in arguments else ()
        kept = (*indices[:dim], *new, *indices[dim + 1 :])
        sizes |= dict.fromkeys(new, count)
        blocked = frozenset([str(dim)])
        return Structure((indices,), kept, sizes, blocked=blocked)

    return model_row(name, doc, structure, 1, (*parameters, DIM), result, gradient=gradient)


_selection(
    "argmax", "Return the first position of the largest element of a dimension.", (), DType.I32
)
_selection(
    "top_k",
    "Return the largest elements of a dimension, the largest first.",
    (COUNT,),
    gradient=gradients.top_k,
)
_selection(
    "top_k_indices",
    "Return the positions of the largest elements of a dimension, the largest first.",
    (COUNT,),
    DType.I32,
)

# ---------------------------------------------------------------------------------------------
# By integers
# ---------------------------------------------------------------------------------------------


def _take(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    table, chosen = xs
    dim = dim_of(table, arguments)
    indices = [own_indices(table, 0), own_indices(chosen, 1)]
    result = (*indices[0][:dim], *indices[1], *indices[0][dim + 1 :])
    sizes = sizes_of("take", xs, indices)
    selected = frozenset([indices[0][dim]])
    return Structure(tuple(indices), result, sizes, linear=Linear.FIRST, flops=0, selected=selected)


TAKE = model_row(
    "take",
    "Return the slices of a dimension at some positions.",
    _take,
    2,
    (DIM,),
    integers=1,
    moved=lambda operands, written: 2 * written + operands[1],
    aliases=("embedding", "gather_rows", "index_select", "lookup"),
    gradient=gradients.take,
)


def _take_transpose(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    (g, chosen), to = xs, named_type(arguments)
    name, before, behind = "take_transpose", len(to.dims), len(chosen.dims)
    dim = arguments[DIM.name]
    assert isinstance(dim, int)
    check_numbers(name, g)
    if dim not in range(before):
        raise LayoutError(
            f"dimension {dim} does not exist: the type has {before} dimensions, from 0",
            parameter=DIM.name,
        )
    every = own_indices(g, 0)
    if len(every) != before - 1 + behind:
        raise LayoutError(
            f"{name} needs {{0}} with the dimensions of {{1}} in the place of dimension {dim} of "
            f"{list(map(int, to.shape))}: {before - 1 + behind} dimensions, not {len(every)}",
            operand=0,
            parameter=TO.name,
        )
    shared = every[dim : dim + behind]
    result = (*every[:dim], "to", *every[dim + behind :])
    sizes = sizes_of(name, xs, [every, shared])
    for index, wanted in zip(result, to.dims, strict=True):
        if not same_size(sizes.setdefault(index, wanted.size), wanted.size):
            raise LayoutError(
                f"{name} needs one size of {index_text(index)}: it is {sizes[index]} in {{0}} and "
                f"{wanted.size} in the type",
                operand=0,
                parameter=TO.name,
            )
    selected = frozenset(["to"])
    return Structure((every, shared), result, sizes, linear=Linear.FIRST, selected=selected)


model_row(
    "take_transpose",
    "Add slices to a tensor of zeros, at some positions of a dimension.",
    _take_transpose,
    2,
    (DIM, TO),
    integers=1,
    aliases=("scatter_add", "index_add", "segment_sum"),
    gradient=gradients.take_transpose,
)


def _take_along_dim(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    name, (x, chosen) = "take_along_dim", xs
    dim = dim_of(x, arguments)
    over = dim_indices(x)
    new = (*over[:dim], "k", *over[dim + 1 :])
    check_rank(name, chosen, 1, new)
    sizes = sizes_of(name, xs, [over, new])
    selected = frozenset([over[dim]])
    return Structure((over, new), new, sizes, linear=Linear.FIRST, flops=0, selected=selected)


model_row(
    "take_along_dim",
    "Return the elements of a dimension at some positions, others for each row.",
    _take_along_dim,
    2,
    (DIM,),
    integers=1,
    moved=lambda operands, written: 2 * written + operands[1],
    aliases=("gather_elements", "take_along_axis"),
    gradient=gradients.take_along_dim,
)


def _take_along_dim_transpose(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    name, (g, chosen), to = "take_along_dim_transpose", xs, named_type(arguments)
    check_numbers(name, g)
    dim = dim_of(g, arguments)
    over = dim_indices(g)
    new = (*over[:dim], "k", *over[dim + 1 :])
    check_rank(name, chosen, 1, new)
    sizes = sizes_of(name, xs, [new, new])
    wanted = tuple(sizes.get(index, 0) for index in over)
    if len(to.dims) != len(over) or any(
        not same_size(size, n)
        for d, (size, n) in enumerate(zip(wanted, to.shape, strict=True))
        if d != dim
    ):
        raise LayoutError(
            f"{name} needs a type with the sizes of {{0}} but for dimension {dim}: "
            f"{list(map(int, to.shape))} does not fit {list(map(int, g.shape))}",
            operand=0,
            parameter=TO.name,
        )
    sizes[over[dim]] = to.dims[dim].size
    selected = frozenset([over[dim]])
    return Structure((new, new), over, sizes, linear=Linear.FIRST, selected=selected)


model_row(
    "take_along_dim_transpose",
    "Add elements to a tensor of zeros, at some positions of a dimension, others for each row.",
    _take_along_dim_transpose,
    2,
    (DIM, TO),
    integers=1,
    aliases=("scatter_elements",),
    gradient=gradients.take_along_dim_transpose,
)


def _one_hot(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    (x,), to = xs, named_type(arguments)
    indices = dim_indices(x)
    if not same_size(to.shape[:-1], x.shape) or not to.dims:
        raise LayoutError(
            f"one_hot adds a dimension behind those of {{0}}, which is {list(map(int, x.shape))}: "
            f"{list(map(int, to.shape))} does not fit",
            operand=0,
            parameter=TO.name,
        )
    sizes = {**sizes_of("one_hot", xs, [indices]), "to": to.dims[-1].size}
    return Structure((indices,), (*indices, "to"), sizes, flops=0)


model_row(
    "one_hot",
    "Return 1 at the position that an integer names in a new last dimension, and 0 elsewhere.",
    _one_hot,
    1,
    (TO,),
    integers=0,
)


def _cross_entropy(xs: Sequence[DistType], arguments: Arguments) -> Structure:
    logits, labels = xs
    name = "cross_entropy"
    check_numbers(name, logits, floats=True)
    dim = dim_of(logits, arguments)
    indices = dim_indices(logits)
    kept = (*indices[:dim], *indices[dim + 1 :])
    check_rank(name, labels, 1, kept)
    sizes = sizes_of(name, xs, [indices, kept])
    return Structure((indices, kept), kept, sizes, blocked=frozenset([str(dim)]), flops=5)


model_row(
    "cross_entropy",
    "Return the logarithm of the sum of e^x over a dimension, less the x of a label.",
    _cross_entropy,
    2,
    (DIM,),
    integers=1,
    gradient=gradients.cross_entropy,
    expansion=expansions.cross_entropy,
)
