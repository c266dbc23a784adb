"""The type of the result of each operation of models, from the indices of its dimensions."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from .forms import check
from .mesh import FLOATS, INTEGERS, Mesh, Type, need
from .rules import COLL, EXACT_BITS, Case, at_one_place, broadcast, is_constant
from .text import Step

LARGEST = {
    dtype: 2**bits - (dtype in INTEGERS or dtype == "bool") for dtype, bits in EXACT_BITS.items()
}
"""The largest integer below which a type holds all."""

Index: TypeAlias = "str | int | None"
"""A name; None for a dimension of size 1 that is repeated."""


@dataclass
class Structure:
    """The indices of each operand and of the result, and what is done with them.

    dtype: the element type of the result.
    reduction: of the indices that the result lacks.
    linear: groups of operands: the result is linear in those of a group together.
    through: the reductions of partial operands that pass through; of a linear operation.
    whole: the indices that are not sharded.
    sizes: of the indices that no operand has.
    """

    operands: list[list[Index]]
    result: list[Index]
    dtype: str
    reduction: str = "sum"
    linear: tuple[tuple[int, ...], ...] = ()
    through: tuple[str, ...] = ("sum", "avg")
    whole: tuple[Index, ...] = ()
    sizes: dict[Index, int] | None = None


def shards_of(c: Case, s: Structure) -> dict[Index, tuple[str, ...]]:
    """Return the sub-axes of each index, in which all operands agree."""
    found: dict[Index, tuple[str, ...]] = {}
    sizes: dict[Index, int] = {}
    for t, indices in zip(c.types, s.operands, strict=True):
        need(len(t.shape) == len(indices), "another rank")
        for n, subs, index in zip(t.shape, t.shards, indices, strict=True):
            if index is None:
                need(n == 1 and not subs, "a repeated dimension")
                continue
            need(sizes.setdefault(index, n) == n, f"sizes of {index}")
            need(found.setdefault(index, subs) == subs, f"shards of {index}")
    used = [sub for subs in found.values() for sub in subs]
    need(len(used) == len(set(used)), "two indices over one sub-axis")
    need(not any(found.get(index) for index in s.whole), "a whole index is sharded")
    s.sizes = {**sizes, **(s.sizes or {})}
    return found


def states(c: Case, s: Structure) -> tuple[frozenset[str], str]:
    """Return the sub-axes over which operands are partial, and the reduction."""
    partial = [i for i, t in enumerate(c.types) if t.partial]
    if not partial:
        return frozenset(), ""
    first = c.types[partial[0]]
    need(first.reduction in s.through, "not linear")
    need(tuple(partial) in s.linear, "not linear in these operands")
    for i in partial:
        t = c.types[i]
        need((t.partial, t.reduction) == (first.partial, first.reduction), "partial otherwise")
    return first.partial, first.reduction


def typed_by(c: Case, s: Structure, written: Type | None = None) -> Type:
    """Return the type that a structure gives; a written type has the shards of new indices."""
    at_one_place(c.types)
    shards = shards_of(c, s)
    partial, reduction = states(c, s)
    lost = {index for index in shards if index not in s.result}
    reduced = [sub for index in lost for sub in shards[index]]
    if reduced:
        need(not partial or reduction == s.reduction, "another reduction")
        need(not partial & set(reduced), "partial over what is reduced")
        if s.reduction == "avg":
            need(c.mesh.even(reduced), "blocks of several sizes")
        partial, reduction = partial | set(reduced), s.reduction
    place = c.types[0].place if c.types else frozenset[tuple[str, int]]()
    sizes = s.sizes or {}
    made = Type(
        s.dtype,
        tuple(1 if index is None else sizes[index] for index in s.result),
        tuple(shards.get(index, ()) for index in s.result),
        partial,
        reduction,
        place,
    )
    if written is None:
        return made
    new = [index not in shards and index not in s.whole for index in s.result]
    rows = zip(made.shards, written.shards, new, strict=True)
    filled = tuple(there if free else here for here, there, free in rows)
    made = c.mesh.checked(replace(made, shards=filled))
    need(made == written, f"the type is {made}")
    return made


def floating(c: Case) -> None:
    need(all(t.dtype in FLOATS for t in c.types), "no floating-point numbers")


def one_dtype(c: Case) -> None:
    need(len({t.dtype for t in c.types}) == 1, "several element types")


def numbers(c: Case) -> None:
    one_dtype(c)
    need(c.x.dtype != "bool", "truth values")


def einsum(c: Case) -> Type:
    numbers(c)
    need(re.fullmatch(r"[\w\s,]*->[\w\s]*", c.step.clauses["text"]), "no names")
    left, _, right = c.step.clauses["text"].partition("->")
    operands = [part.split() for part in left.split(",")]
    result = right.split()
    need(len(operands) == len(c.types), "another number of operands")
    need(all(len(set(names)) == len(names) for names in [*operands, result]), "an index is twice")
    need(set(result) <= {name for names in operands for name in names}, "a new index")
    linear = tuple((i,) for i in range(len(operands)))
    made: list[list[Index]] = [list(names) for names in operands]
    return typed_by(c, Structure(made, list(result), c.x.dtype, linear=linear))


def elementwise(c: Case, dtype: str, linear: tuple[tuple[int, ...], ...] = ()) -> Type:
    """Return the type of a function of every element, whose operands align from the last."""
    shape, _ = broadcast([replace(t, shards=((),) * len(t.shape)) for t in c.types])
    operands: list[list[Index]] = []
    for t in c.types:
        missing = len(shape) - len(t.shape)
        operands.append(
            [d + missing if n == shape[d + missing] else None for d, n in enumerate(t.shape)]
        )
    sizes: dict[Index, int] = dict(enumerate(shape))
    return typed_by(
        c, Structure(operands, list(range(len(shape))), dtype, linear=linear, sizes=sizes)
    )


def unary(linear: bool = False, any_number: bool = False) -> Callable[[Case], Type]:
    def rule(c: Case) -> Type:
        numbers(c) if any_number else floating(c)
        return elementwise(c, c.x.dtype, ((0,),) if linear else ())

    return rule


def binary(*linear: tuple[int, ...], comparison: bool = False) -> Callable[[Case], Type]:
    def rule(c: Case) -> Type:
        numbers(c)
        return elementwise(c, "bool" if comparison else c.x.dtype, linear)

    return rule


def quotient(c: Case) -> Type:
    floating(c)
    return binary((0,))(c)


def where(c: Case) -> Type:
    need(c.x.dtype == "bool" and c.types[1].dtype == c.types[2].dtype, "element types")
    return elementwise(c, c.types[1].dtype)


def dims(c: Case) -> list[int]:
    """Return the dimensions behind ``dims``: each at most once."""
    found = c.integers("dims")
    need(all(0 <= d < len(c.x.shape) for d in found), "no such dimension")
    need(found and len(set(found)) == len(found), "no dimension, or one that is twice")
    return found


def reduced(reduction: str) -> Callable[[Case], Type]:
    """Return the rule of a reduction over dimensions."""

    def rule(c: Case) -> Type:
        taken, rank = dims(c), len(c.x.shape)
        numbers(c)
        need(reduction != "avg" or c.x.dtype in FLOATS, "an average of integers")
        keep: list[Index] = [None if d in taken else d for d in range(rank)]
        result: list[Index] = [i for i in keep if i is not None or "keepdims" in c.step.clauses]
        through = ("sum", "avg") if reduction in ("sum", "avg") else (reduction,)
        return typed_by(
            c, Structure([list(range(rank))], result, c.x.dtype, reduction, ((0,),), through)
        )

    return rule


def along(c: Case, dtype: str, size: int | None = None, linear: bool = False) -> Type:
    """Return the type of what works along a dimension; it stays, with another size, or goes."""
    dim, rank = c.dim(), len(c.x.shape)
    result: list[Index] = list(range(rank))
    sizes: dict[Index, int] = {}
    if size is None:
        del result[dim]
    elif size != c.x.shape[dim]:
        result[dim] = "k"
        sizes["k"] = size
    shape = Structure(
        [list(range(rank))],
        result,
        dtype,
        linear=((0,),) if linear else (),
        whole=(dim,),
        sizes=sizes,
    )
    return typed_by(c, shape)


def argmax(c: Case) -> Type:
    numbers(c)
    return along(c, "i32")


def top(c: Case, dtype: str) -> Type:
    numbers(c)
    k = c.integer("k")
    need(1 <= k <= c.x.shape[c.dim()], "more than there are")
    return along(c, dtype, k)


def cumsum(c: Case) -> Type:
    numbers(c)
    return along(c, c.x.dtype, c.x.shape[c.dim()], linear=True)


def norm(count: int) -> Callable[[Case], Type]:
    """Return the rule of a norm over dimensions with this number of operands."""

    def rule(c: Case) -> Type:
        floating(c)
        one_dtype(c)
        need(c.number("eps") >= 0, "eps")
        taken: list[Index] = list(dims(c))
        rank: list[Index] = list(range(len(c.x.shape)))
        return typed_by(
            c, Structure([rank, *[taken] * (count - 1)], rank, c.x.dtype, whole=tuple(taken))
        )

    return rule


def softmax(c: Case) -> Type:
    floating(c)
    rank: list[Index] = list(range(len(c.x.shape)))
    return typed_by(c, Structure([rank], rank, c.x.dtype, whole=tuple(dims(c))))


def linear_scan(c: Case) -> Type:
    numbers(c)
    dim = c.dim()
    rank: list[Index] = list(range(len(c.x.shape)))
    return typed_by(c, Structure([rank, rank], rank, c.x.dtype, linear=((0,),), whole=(dim,)))


def positions(t: Type) -> None:
    need(t.dtype in INTEGERS, "positions are integers")


def take(c: Case) -> Type:
    dim, y = c.dim(), c.types[1]
    positions(y)
    table: list[Index] = list(range(len(c.x.shape)))
    there: list[Index] = [f"y{d}" for d in range(len(y.shape))]
    result = [*table[:dim], *there, *table[dim + 1 :]]
    return typed_by(c, Structure([table, there], result, c.x.dtype, linear=((0,),)))


def take_transpose(c: Case) -> Type:
    written, y = c.target, c.types[1]
    positions(y)
    need(c.x.dtype != "bool", "truth values")
    dim = c.dim(rank=len(written.shape))
    table: list[Index] = list(range(len(written.shape)))
    there: list[Index] = [f"y{d}" for d in range(len(y.shape))]
    operand = [*table[:dim], *there, *table[dim + 1 :]]
    sizes: dict[Index, int] = {dim: written.shape[dim]}
    shape = Structure([operand, there], table, c.x.dtype, linear=((0,),), sizes=sizes)
    return typed_by(c, shape, written)


def take_along_dim(c: Case) -> Type:
    dim, y = c.dim(), c.types[1]
    positions(y)
    rank: list[Index] = list(range(len(c.x.shape)))
    there: list[Index] = ["at" if d == dim else d for d in rank]
    return typed_by(c, Structure([rank, there], there, c.x.dtype, linear=((0,),)))


def take_along_dim_transpose(c: Case) -> Type:
    written, y = c.target, c.types[1]
    positions(y)
    need(c.x.dtype != "bool", "truth values")
    need(len(written.shape) == len(c.x.shape), "another rank")
    dim = c.dim(rank=len(written.shape))
    rank: list[Index] = list(range(len(written.shape)))
    there: list[Index] = ["at" if d == dim else d for d in rank]
    sizes: dict[Index, int] = {dim: written.shape[dim]}
    structure = Structure([there, there], rank, c.x.dtype, linear=((0,),), sizes=sizes)
    return typed_by(c, structure, written)


def of_groups(c: Case) -> list[Index]:
    """Return the indices of rows, after what operations of groups have in common."""
    x, y, groups = c.types
    positions(groups)
    need(x.dtype == y.dtype != "bool", "element types")
    need(x.shape, "no rows")
    return list(range(len(x.shape) - 1))


def grouped_matmul(c: Case) -> Type:
    rows = of_groups(c)
    matrix: list[Index] = ["o", "i"] if "transposed" in c.step.clauses else ["i", "o"]
    operands: list[list[Index]] = [[*rows, "i"], ["e", *matrix], rows]
    return typed_by(c, Structure(operands, [*rows, "o"], c.x.dtype, linear=((0,), (1,))))


def grouped_matmul_transpose(c: Case) -> Type:
    rows, written = of_groups(c), c.target
    need(len(written.shape) == 3, "another rank")
    operands: list[list[Index]] = [[*rows, "i"], [*rows, "o"], rows]
    sizes: dict[Index, int] = {"e": written.shape[0]}
    structure = Structure(operands, ["e", "i", "o"], c.x.dtype, linear=((0,), (1,)), sizes=sizes)
    return typed_by(c, structure, written)


def one_hot(c: Case) -> Type:
    positions(c.x)
    written = c.target
    rank = len(c.x.shape)
    need(len(written.shape) == rank + 1, "another rank")
    operand: list[Index] = list(range(rank))
    sizes: dict[Index, int] = {"k": written.shape[-1]}
    return typed_by(c, Structure([operand], [*operand, "k"], written.dtype, sizes=sizes), written)


def cross_entropy(c: Case) -> Type:
    dim, y = c.dim(), c.types[1]
    need(c.x.dtype in FLOATS, "no floating-point numbers")
    positions(y)
    operand: list[Index] = list(range(len(c.x.shape)))
    rest = [*operand[:dim], *operand[dim + 1 :]]
    return typed_by(c, Structure([operand, rest], rest, c.x.dtype, whole=(dim,)))


def windows(
    c: Case, word: str, inner: tuple[int, ...], outer: tuple[int, ...], window: tuple[int, ...]
) -> None:
    """Refuse windows that do not lead from the inner sizes to the outer ones."""
    stride, padding = c.integers("stride"), c.integers("padding")
    need(len(stride) == len(padding) == len(inner) == len(outer) == len(window), "dimensions")
    need(min([1, *stride]) >= 1 and min([0, *padding]) >= 0, "steps and padding")
    for n, m, s, p, w in zip(inner, outer, stride, padding, window, strict=True):
        need(p < w <= n + 2 * p, "a window larger than what it is over, or in the padding")
        need(m == (n + 2 * p - w) // s + 1, word)


def outer_sizes(c: Case, inner: tuple[int, ...], window: tuple[int, ...]) -> tuple[int, ...]:
    stride, padding = c.integers("stride"), c.integers("padding")
    need(len(stride) == len(padding) == len(inner) == len(window), "dimensions")
    need(min([1, *stride, *window]) >= 1, "a size below 1")
    rows = zip(inner, stride, padding, window, strict=True)
    return tuple((n + 2 * p - w) // s + 1 for n, s, p, w in rows)


def conv_indices(rank: int) -> tuple[list[Index], list[Index], list[Index], tuple[Index, ...]]:
    """Return the indices of the input, the filter and the result, and those that are whole."""
    need(rank >= 3, "no windows")
    inner = [f"i{d}" for d in range(rank - 2)]
    window = [f"w{d}" for d in range(rank - 2)]
    outer = [f"o{d}" for d in range(rank - 2)]
    return (
        ["b", *inner, "c"],
        [*window, "c", "f"],
        ["b", *outer, "f"],
        (*inner, *window, *outer),
    )


def conv(c: Case) -> Type:
    numbers(c)
    x, w = c.types
    rank = len(x.shape)
    image, kernel, result, whole = conv_indices(rank)
    need(len(w.shape) == rank, "another rank")
    sizes = outer_sizes(c, x.shape[1:-1], w.shape[:-2])
    windows(c, "sizes", x.shape[1:-1], sizes, w.shape[:-2])
    s = Structure([image, kernel], result, x.dtype, linear=((0,), (1,)), whole=whole)
    s.sizes = dict(zip(result[1:-1], sizes, strict=True))
    return typed_by(c, s)


def conv_gradient(of_filter: bool) -> Callable[[Case], Type]:
    """Return the rule of the gradient of ``conv`` in its filter, or in its input."""

    def rule(c: Case) -> Type:
        numbers(c)
        written = c.target
        image, kernel, result, whole = conv_indices(len(written.shape))
        if of_filter:
            operands, to = [image, result], kernel
            shapes = c.x.shape, written.shape, c.types[1].shape
        else:
            operands, to = [result, kernel], image
            shapes = written.shape, c.types[1].shape, c.x.shape
        need(len({len(shape) for shape in shapes}) == 1, "another rank")
        windows(c, "sizes", shapes[0][1:-1], shapes[2][1:-1], shapes[1][:-2])
        s = Structure(operands, to, c.x.dtype, linear=((0,), (1,)), whole=whole)
        s.sizes = {i: n for i, n in zip(to, written.shape, strict=True) if i in whole}
        return typed_by(c, s, written)

    return rule


def pool(linear: bool) -> Callable[[Case], Type]:
    def rule(c: Case) -> Type:
        floating(c) if linear else numbers(c)
        rank = len(c.x.shape)
        image, _, result, whole = conv_indices(rank)
        result = [*result[:-1], "c"]
        window = tuple(c.integers("window"))
        sizes = outer_sizes(c, c.x.shape[1:-1], window)
        windows(c, "sizes", c.x.shape[1:-1], sizes, window)
        s = Structure([image], result, c.x.dtype, linear=((0,),), whole=whole)
        s.through = ("sum", "avg") if linear else ("max",)
        s.sizes = dict(zip(result[1:-1], sizes, strict=True))
        return typed_by(c, s)

    return rule


def avg_pool_transpose(c: Case) -> Type:
    floating(c)
    written = c.target
    image, _, result, whole = conv_indices(len(c.x.shape))
    need(len(written.shape) == len(c.x.shape), "another rank")
    windows(c, "sizes", written.shape[1:-1], c.x.shape[1:-1], tuple(c.integers("window")))
    s = Structure([[*result[:-1], "c"]], image, c.x.dtype, linear=((0,),), whole=whole)
    s.sizes = dict(zip(image[1:-1], written.shape[1:-1], strict=True))
    return typed_by(c, s, written)


def max_pool_transpose(c: Case) -> Type:
    numbers(c)
    x, y = c.types
    image, _, result, whole = conv_indices(len(y.shape))
    need(len(x.shape) == len(y.shape), "another rank")
    windows(c, "sizes", y.shape[1:-1], x.shape[1:-1], tuple(c.integers("window")))
    s = Structure([[*result[:-1], "c"], image], image, x.dtype, linear=((0,),), whole=whole)
    return typed_by(c, s)


def made_type(c: Case) -> Type:
    """Return the type of an operation without operands: any that is not partial."""
    written = c.target
    need(not written.partial, "partial")
    return written


def constant(c: Case) -> Type:
    written = made_type(c)
    is_constant(c.number("value"), written.dtype)
    return written


def iota(c: Case) -> Type:
    written = made_type(c)
    dim = c.integer("dim")
    need(written.dtype != "bool" and 0 <= dim < len(written.shape), "no such dimension")
    need(written.shape[dim] - 1 <= LARGEST[written.dtype], "positions that it does not hold")
    return written


def uniform(c: Case) -> Type:
    written = c.target
    need(c.x.dtype in INTEGERS and not c.x.shape, "a seed is an integer without dimensions")
    need(written.dtype in FLOATS, "no floating-point numbers")
    result: list[Index] = list(range(len(written.shape)))
    sizes: dict[Index, int] = dict(enumerate(written.shape))
    return typed_by(c, Structure([[]], result, written.dtype, sizes=sizes), written)


def broadcast_to(c: Case) -> Type:
    written, x = c.target, c.x
    missing = len(written.shape) - len(x.shape)
    need(missing >= 0, "fewer dimensions")
    indices: list[Index] = [
        d + missing if n == written.shape[d + missing] else None for d, n in enumerate(x.shape)
    ]
    s = Structure([indices], list(range(len(written.shape))), x.dtype, linear=((0,),))
    s.sizes = dict(enumerate(written.shape))
    return typed_by(c, s, written)


NN: dict[str, Callable[[Case], Type]] = {
    "einsum": einsum,
    "neg": unary(linear=True, any_number=True),
    "relu": unary(any_number=True),
    **dict.fromkeys(
        ("exp", "log", "sqrt", "rsqrt", "tanh", "erf", "sigmoid", "sin", "cos", "silu", "gelu"),
        unary(),
    ),
    "mul": binary((0,), (1,)),
    "sub": binary((0, 1)),
    "div": quotient,
    "maximum": binary(),
    "minimum": binary(),
    **dict.fromkeys(
        ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal"),
        binary(comparison=True),
    ),
    "stop_gradient": unary(linear=True, any_number=True),
    "where": where,
    "sum": reduced("sum"),
    "max": reduced("max"),
    "min": reduced("min"),
    "mean": reduced("avg"),
    "argmax": argmax,
    "top_k": lambda c: top(c, c.x.dtype),
    "top_k_indices": lambda c: top(c, "i32"),
    "cumsum": cumsum,
    "linear_scan": linear_scan,
    "layer_norm": norm(3),
    "rms_norm": norm(2),
    "softmax": softmax,
    "log_softmax": softmax,
    "take": take,
    "take_transpose": take_transpose,
    "take_along_dim": take_along_dim,
    "take_along_dim_transpose": take_along_dim_transpose,
    "grouped_matmul": grouped_matmul,
    "grouped_matmul_transpose": grouped_matmul_transpose,
    "one_hot": one_hot,
    "cross_entropy": cross_entropy,
    "conv": conv,
    "conv_transpose": conv_gradient(of_filter=False),
    "conv_filter": conv_gradient(of_filter=True),
    "max_pool": pool(linear=False),
    "avg_pool": pool(linear=True),
    "max_pool_transpose": max_pool_transpose,
    "avg_pool_transpose": avg_pool_transpose,
    "constant": constant,
    "iota": iota,
    "uniform": uniform,
    "broadcast_to": broadcast_to,
}

RULES = {**COLL, **NN}
"""The rule of each operation."""


def check_stateless(c: Case) -> None:
    """Refuse what is wrong with the arguments of a step whatever the state of its operand."""
    words = c.step.clauses
    if "dim" in words and c.step.op != "terms":
        c.dim()
    if c.step.op == "all_to_all":
        need(c.dim() != c.dim("to"), "one dimension")
    if c.step.op == "mask":
        need(words["op"] in ("sum", "prod"), "no mask for this reduction")
    count = c.mesh.count(c.axes)
    if c.step.op == "shift":
        n = c.integer("by")
        need(n and (abs(n) < count or "open" not in words), "no block is moved, or none is left")
    for word in {"from", "to", "at"} & set(words) if c.step.op in ("send", "part") else ():
        c.mesh.coordinates(c.axes, c.integer(word))
    need(c.step.op not in ("send", "terms") or c.axes, "not over axes of size 1")


def typed(mesh: Mesh, step: Step, types: list[Type], sizes: dict[str, int]) -> Type:
    """Return the type of the result of a step."""
    check(step)
    c = Case(mesh, step, types, sizes)
    if "over" in step.clauses:
        check_stateless(c)
        if not c.axes:
            return c.x
    return mesh.checked(RULES[step.op](c))
