"""Random arguments of operations of models, for property tests."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, UnitAttr, i64
from xdsl.ir import Attribute

from collir.dialects.machine import NumberAttr
from collir.dialects.operation import arguments_of
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, SizesAttr
from collir.layout import Axis, Dim, DistType, DType, LayoutError, Mesh
from collir.layout.structure import typed
from collir.machine import Level, Machine

Indices = list[list[str]]
"""The index of each dimension, for every operand."""

INTEGERS = {
    "take": 1,
    "take_transpose": 1,
    "take_along_dim": 1,
    "take_along_dim_transpose": 1,
    "grouped_matmul": 2,
    "grouped_matmul_transpose": 2,
    "one_hot": 0,
    "cross_entropy": 1,
    "uniform": 0,
}
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


def _linear_scan(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    (indices,), arguments = _cumsum(rng)
    return [indices, indices], arguments


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


def _take_along(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    (indices,), arguments = _along(rng)
    dim = arguments["dim"]
    assert isinstance(dim, IntegerAttr)
    return [indices, ["k" if d == dim.value.data else i for d, i in enumerate(indices)]], arguments


def _take_along_transpose(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    (_, chosen), arguments = _take_along(rng)
    return [chosen, chosen], arguments


def _grouped_matmul(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    rows = rng.choice([[], ["a"], ["a"], ["a", "b"]])
    turned = rng.random() < 0.5
    matrix = ["o", "i"] if turned else ["i", "o"]
    return [[*rows, "i"], ["v", *matrix], rows], {"transposed": UnitAttr()} if turned else {}


def _grouped_matmul_transpose(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    (x, _, rows), _ = _grouped_matmul(rng)
    return [x, [*rows, "o"], rows], {}


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


def _conv_transpose(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    (x, w), arguments = _conv(rng)
    return [[*x[:-1], "f"], w], arguments


def _conv_filter(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    (x, _), arguments = _conv(rng)
    made = [f"made{d}" for d in range(len(x) - 2)]
    return [x, ["n", *made, "f"]], arguments


def _max_pool_transpose(rng: random.Random) -> tuple[Indices, dict[str, Attribute]]:
    """Return windows of which there are as many as elements."""
    (x,), _ = _pool(rng)
    more = [rng.randint(0, 1) for _ in x[1:-1]]
    width = tuple(2 * n + 1 for n in more)
    window = {"window": width, "stride": (1,) * len(more), "padding": tuple(more)}
    return [x, x], {name: SizesAttr(sizes) for name, sizes in window.items()}


FORMS: dict[str, Callable[[random.Random], tuple[Indices, dict[str, Attribute]]]] = {
    "layer_norm": _normalised(3),
    "rms_norm": _normalised(2),
    "cumsum": _cumsum,
    "linear_scan": _linear_scan,
    "argmax": _along,
    "top_k": _top_k,
    "top_k_indices": _top_k,
    "take": _take,
    "take_transpose": _take_transpose,
    "take_along_dim": _take_along,
    "take_along_dim_transpose": _take_along_transpose,
    "grouped_matmul": _grouped_matmul,
    "grouped_matmul_transpose": _grouped_matmul_transpose,
    "one_hot": _one_hot,
    "uniform": lambda rng: ([[]], {}),
    "cross_entropy": _cross_entropy,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "conv_filter": _conv_filter,
    "max_pool": _pool,
    "max_pool_transpose": _max_pool_transpose,
    "avg_pool_transpose": _pool,
    "avg_pool": _pool,
}
"""The indices of random operands, and random arguments, by the name of an operation."""


def _given_shape(
    name: str, types: list[DistType], properties: dict[str, Attribute], size: int
) -> list[int]:
    first, second = types[0].shape, types[-1].shape
    if name == "uniform":
        return [size, 2 * size]
    if name == "one_hot":
        return [*first, size]
    if name == "take_transpose":
        dim = properties["dim"]
        assert isinstance(dim, IntegerAttr)
        place, behind = dim.value.data, dim.value.data + len(types[1].dims)
        return [*first[:place], size, *first[behind:]]
    if name == "take_along_dim_transpose":
        dim = properties["dim"]
        assert isinstance(dim, IntegerAttr)
        return [size if d == dim.value.data else int(n) for d, n in enumerate(first)]
    if name == "grouped_matmul_transpose":
        return [size, first[-1], types[1].shape[-1]]
    known = {n: x.data for n, x in properties.items() if isinstance(x, SizesAttr)}
    steps = list(zip(known["stride"], known["padding"], strict=True))
    if name == "conv_filter":
        pairs = zip(first[1:-1], second[1:-1], steps, strict=True)
        return [*(x + 2 * p - (n - 1) * s for x, n, (s, p) in pairs), first[-1], second[-1]]
    window = second[:-2] if name == "conv_transpose" else known["window"]
    pairs = zip(first[1:-1], window, steps, strict=True)
    last = second[-2] if name == "conv_transpose" else first[-1]
    return [first[0], *((n - 1) * s + w - 2 * p for n, w, (s, p) in pairs), last]


def given_type(
    rng: random.Random,
    mesh: Mesh,
    name: str,
    types: list[DistType],
    properties: dict[str, Attribute],
    size: int,
) -> DistTensorType:
    """Return a type of a result; a new dimension has a size, and is often sharded.

    Raises:
        LayoutError: the operands have no result.
    """
    kind = OPERATIONS[name].KIND
    shape = _given_shape(name, types, properties, size)
    if min(shape, default=1) < 1:
        raise LayoutError("there is no such window")
    dtype = types[0].dtype if name not in ("one_hot", "uniform") else DType.F32
    whole = {"to": DistTensorType(DistType.make(dtype, shape))}
    assert kind.structure is not None
    structure = kind.structure(types, arguments_of(kind, {**properties, **whole}))
    plain = typed(name, mesh, structure, types, dtype)
    left = [axis for axis in mesh.by_name if axis not in plain.axes and rng.random() < 0.7]
    new = {"0": left[:1], "1": left[1:]} if name == "uniform" else {"to": left, "e": left}
    if name == "take_along_dim_transpose":
        dim = properties["dim"]
        assert isinstance(dim, IntegerAttr)
        new = {str(dim.value.data): left}
    dims = (
        Dim(dim.size, tuple(new[index])) if index in new else dim
        for index, dim in zip(structure.result, plain.dims, strict=True)
    )
    return DistTensorType(DistType(dtype, tuple(dims), plain.partial, plain.reduction, plain.place))


def random_arrays(rng: random.Random, name: str) -> tuple[list[Any], dict[str, Attribute]]:
    """Return random operands of an operation on one device, and its arguments."""
    while True:
        operands, arguments = FORMS[name](rng)
        numbers = np.random.default_rng(rng.randrange(2**32))
        names = dict.fromkeys(index for over in operands for index in over)
        size = {index: rng.randint(*(1, 3) if "window" in index else (3, 5)) for index in names}
        arrays: list[Any] = []
        for number, over in enumerate(operands):
            shape = tuple(size[index] for index in over)
            selects = number == INTEGERS.get(name)
            drawn = numbers.integers(-1, 5, shape) if selects else numbers.normal(size=shape)
            arrays.append(drawn.astype(np.int32 if selects else np.float32))
        kind = OPERATIONS[name].KIND
        assert kind.structure is not None
        dtypes = [DType.I32 if x.dtype.kind == "i" else DType.F32 for x in arrays]
        types = [DistType.make(d, x.shape) for d, x in zip(dtypes, arrays, strict=True)]
        try:
            if "to" in {parameter.name for parameter in kind.parameters}:
                mesh = one_device()
                arguments["to"] = given_type(rng, mesh, name, types, arguments, 5)
            kind.structure(types, arguments_of(kind, arguments))
        except LayoutError:  # a window that does not fit
            continue
        return arrays, arguments


def one_device() -> Mesh:
    machine = Machine("one", (Level("device", 1, port=1.0, latency=0.0),))
    return Mesh("one", machine, (Axis("device", 1),))
