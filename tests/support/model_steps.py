"""Random arguments of operations of models, for property tests."""

import random
from collections.abc import Callable

from xdsl.dialects.builtin import IntegerAttr, UnitAttr, i64
from xdsl.ir import Attribute

from collir.dialects.machine import NumberAttr
from collir.dialects.operation import arguments_of
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, SizesAttr
from collir.layout import Dim, DistType, DType, Mesh
from collir.layout.structure import typed

Indices = list[list[str]]
"""The index of each dimension, for every operand."""

INTEGERS = {"take": 1, "take_transpose": 1, "one_hot": 0, "cross_entropy": 1}
"""The operand that selects, by the name of an operation."""


def _number(value: int) -> Attribute:
    return IntegerAttr(value, i64)


def _normalised(operands: int) -> Callable[[random.Random], tuple[Indices, dict[str, Attribute]]]:
    def form(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
        indices = list("abc"[: rng.randint(1, 3)])
        dims = rng.sample(range(len(indices)), rng.randint(1, len(indices)))
        own = [indices[dim] for dim in dims]
        eps = NumberAttr(rng.choice([0.0, 0.125, 1e-5]))
        return [indices, *[own] * (operands - 1)], {"dims": SizesAttr(tuple(dims)), "eps": eps}

    return form


def _along(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    indices = list("abc"[: rng.randint(1, 3)])
    return [indices], {"dim": _number(rng.randrange(len(indices)))}


def _cumsum(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    operands, arguments = _along(rng)
    return operands, {**arguments, **({"reverse": UnitAttr()} if rng.random() < 0.5 else {})}


def _top_k(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    operands, arguments = _along(rng)
    return operands, {**arguments, "k": _number(rng.randint(1, 3))}


def _take(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    before, behind = rng.choice([[], ["a"]]), rng.choice([[], ["b"]])
    chosen = rng.choice([[], ["i"], ["i"], ["i", "j"]])
    return [[*before, "v", *behind], chosen], {"dim": _number(len(before))}


def _take_transpose(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    (table, chosen), arguments = _take(rng)
    place = table.index("v")
    return [[*table[:place], *chosen, *table[place + 1 :]], chosen], arguments


def _one_hot(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    return [list("ab"[: rng.randint(0, 2)])], {}


def _cross_entropy(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    (indices,), arguments = _along(rng)
    dim = arguments["dim"]
    assert isinstance(dim, IntegerAttr)
    return [indices, [i for n, i in enumerate(indices) if n != dim.value.data]], arguments


def _steps(rng: random.Random, window: list[int]) -> dict[str, Attribute]:
    padding = tuple(rng.randrange(width) for width in window)
    stride = tuple(rng.randint(1, 3) for _ in window)
    return {"stride": SizesAttr(stride), "padding": SizesAttr(padding)}


def _conv(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    count = rng.choice([1, 1, 2])
    space = [f"space{d}" for d in range(count)]
    window = [f"window{d}" for d in range(count)]
    return [["n", *space, "c"], [*window, "c", "f"]], _steps(rng, [1] * count)


def _pool(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    window = [rng.randint(1, 3) for _ in range(rng.choice([1, 1, 2]))]
    space = [f"space{d}" for d in range(len(window))]
    return [["n", *space, "c"]], {"window": SizesAttr(tuple(window)), **_steps(rng, window)}


FORMS: dict[str, Callable[[random.Random], tuple[Indices, dict[str, Attribute]]]] = {
    "layer_norm": _normalised(3),
    "rms_norm": _normalised(2),
    "cumsum": _cumsum,
    "argmax": _along,
    "top_k": _top_k,
    "top_k_indices": _top_k,
    "take": _take,
    "take_transpose": _take_transpose,
    "one_hot": _one_hot,
    "cross_entropy": _cross_entropy,
    "conv": _conv,
    "max_pool": _pool,
    "avg_pool": _pool,
}
"""The indices of random operands, and random arguments, by the name of an operation."""


def given_type(
    rng: random.Random,
    mesh: Mesh,
    name: str,
    types: list[DistType],
    properties: dict[str, Attribute],
    size: int,
) -> DistTensorType:
    """Return a type of a result with a new dimension of a size, which is often sharded.

    Raises:
        LayoutError: the operands have no result.
    """
    kind = OPERATIONS[name].KIND
    shape = [*types[0].shape, size]
    if "dim" in properties:
        dim = properties["dim"]
        assert isinstance(dim, IntegerAttr)
        place, behind = dim.value.data, dim.value.data + len(types[1].dims)
        shape = [*types[0].shape[:place], size, *types[0].shape[behind:]]
    dtype = types[0].dtype if name != "one_hot" else DType.F32
    whole = {"to": DistTensorType(DistType.make(dtype, shape))}
    assert kind.structure is not None
    structure = kind.structure(types, arguments_of(kind, {**properties, **whole}))
    plain = typed(name, mesh, structure, types, dtype)
    left = [axis for axis in mesh.by_name if axis not in plain.axes and rng.random() < 0.7]
    dims = (
        Dim(dim.size, tuple(left)) if index == "to" else dim
        for index, dim in zip(structure.result, plain.dims, strict=True)
    )
    return DistTensorType(DistType(dtype, tuple(dims), plain.partial, plain.reduction, plain.place))
