"""Random operations of models on operands of random types, most of them well typed."""

import random
from collections.abc import Sequence
from dataclasses import replace

from support.programs.arguments import FORMS, INTEGERS, Indices, given_type
from support.programs.collectives import FunctionBuilder
from xdsl.dialects.builtin import IntegerAttr, StringAttr, UnitAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute

from collir.dialects.machine import NumberAttr
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import DistTensorType, SizesAttr
from collir.layout import Dim, DistType, DType, LayoutError, Mesh, Reduction, check_type, place_at
from collir.layout.cuts import units
from collir.layout.nn_rows import NN


def random_step(rng: random.Random, name: str = "") -> tuple[str, Indices, dict[str, Attribute]]:
    """Return an operation, the index of each dimension of its operands, and its arguments.

    Args:
        name: the operation; any, if it is empty.
    """
    name = name or rng.choice(["einsum"] * 12 + ["add"] * 4 + list(NN))
    kind = OPERATIONS[name].KIND
    if name == "einsum":
        known = "abcd"[: rng.randint(1, 4)]
        operands = [
            rng.sample(known, rng.randint(0, min(3, len(known)))) for _ in range(rng.randint(1, 3))
        ]
        used = list(dict.fromkeys(index for over in operands for index in over))
        result = rng.sample(used, rng.randint(0, len(used)))
        equation = f"{', '.join(' '.join(over) for over in operands)} -> {' '.join(result)}"
        return name, operands, {"equation": StringAttr(equation)}
    if name in FORMS:
        return name, *FORMS[name](rng)
    rank = rng.randint(1, 3)
    if kind.operands == 0:
        amount = rng.choice([0.0, 1.0, -2.0, 0.5])
        of: dict[str, Attribute] = {
            "value": NumberAttr(amount),
            "dim": IntegerAttr(rng.randrange(rank), i64),
        }
        return name, [], {x.name: of[x.name] for x in kind.parameters if x.name in of}
    if "dims" in {parameter.name for parameter in kind.parameters}:
        dims = rng.sample(range(rank), rng.randint(1, rank))
        may_keep = "keepdims" in {parameter.name for parameter in kind.parameters}
        keep: dict[str, Attribute] = (
            {"keepdims": UnitAttr()} if may_keep and rng.random() < 0.5 else {}
        )
        return name, [list("abc"[:rank])], {"dims": SizesAttr(tuple(dims)), **keep}
    operands = [list("abc"[:rank])]
    if name == "broadcast_to":
        return name, [[index if rng.random() < 0.6 else "1" for index in operands[0]]], {}
    for _ in range((kind.operands or 1) - 1):
        second = list("abc"[rng.randint(0, rank - 1) if rng.random() < 0.4 else 0 : rank])
        operands.append([index if rng.random() < 0.8 else "1" for index in second])
    return name, operands, {}


def with_type(
    rng: random.Random,
    mesh: Mesh,
    name: str,
    types: list[DistType],
    dtype: DType,
    properties: dict[str, Attribute],
) -> dict[str, Attribute]:
    """Return the argument of an operation that is the type of its result, if it takes one."""
    if "to" not in {parameter.name for parameter in OPERATIONS[name].KIND.parameters}:
        return {}
    if name in FORMS:
        size = units(mesh, list(mesh.by_name)) * rng.choice([1, 2])
        return {"to": given_type(rng, mesh, name, types, properties, size)}
    if not types:
        (to,) = random_types(rng, mesh, [list("abc"[: rng.randint(1, 3)])], dtype)
        return {"to": DistTensorType(to)}
    (x,) = types
    left = [axis for axis in mesh.by_name if axis not in x.axes and rng.random() < 0.7]
    size = units(mesh, list(mesh.by_name))
    dims = [Dim(size, tuple(left[:1])) if dim.size == 1 else dim for dim in x.dims]
    if rng.random() < 0.5:
        dims.insert(0, Dim(size, tuple(left[1:])))
    return {"to": DistTensorType(replace(x, dims=tuple(dims)))}


def random_types(rng: random.Random, mesh: Mesh, operands: Indices, dtype: DType) -> list[DistType]:
    """Return types of operands that mostly agree."""
    sharded: dict[str, list[str]] = {}
    partial: list[set[str]] = [set() for _ in operands]
    place: dict[str, int] = {}
    names = list(dict.fromkeys(index for over in operands for index in over if index != "1"))
    for axis in mesh.by_name:
        what = rng.choice(["index", "index", "partial", "partial all", "place", "none"])
        if what == "index" and names:
            sharded.setdefault(rng.choice(names), []).append(axis)
        elif what == "partial" and partial:
            rng.choice(partial).add(axis)
        elif what == "partial all":
            for one in partial:
                one.add(axis)
        elif what == "place" and rng.random() < 0.5:
            place[axis] = rng.randrange(mesh.by_name[axis].size)
    size = {index: units(mesh, list(mesh.by_name)) * rng.choice([1, 2]) for index in names}
    size |= {index: rng.randint(1, 3) for index in names if index.startswith("window")}
    reduction = rng.choice([Reduction.SUM] * 3 + [Reduction.MAX, Reduction.AVG])
    if reduction is Reduction.AVG and not dtype.is_float:
        reduction = Reduction.SUM
    types: list[DistType] = []
    for over, own in zip(operands, partial, strict=True):
        dims = tuple(
            Dim(1) if index == "1" else Dim(size[index], tuple(sharded.get(index, ())))
            for index in over
        )
        free = {axis for index in over for axis in sharded.get(index, ())}
        mine = frozenset(own - free) if rng.random() < 0.9 else frozenset[str]()
        types.append(DistType(dtype, dims, mine, reduction if mine else None, place_at(place)))
    return types


def random_operation(
    rng: random.Random,
    mesh: Mesh,
    operation: str,
    name: str,
    dtypes: Sequence[DType] = tuple(DType),
) -> FuncOp:
    """Return a function of one operation, on operands of random types.

    Args:
        dtypes: the element types of operands that do not select.
    """
    most = 4000
    while True:
        most += 40  # weights may need sizes that are all large
        operation, operands, properties = random_step(rng, operation)
        dtype = rng.choice(dtypes)
        types = random_types(rng, mesh, operands, dtype)
        no = frozenset[str]()
        if operation == "where":
            types[0] = replace(types[0], dtype=DType.BOOL, partial=no, reduction=None)
        if operation in INTEGERS:
            number, chosen = INTEGERS[operation], rng.choice([DType.I8, DType.I32, DType.I64])
            types[number] = replace(types[number], dtype=chosen, partial=no, reduction=None)
        try:
            properties |= with_type(rng, mesh, operation, types, dtype, properties)
            named = [x.data for x in properties.values() if isinstance(x, DistTensorType)]
            if max((x.elements for x in (*types, *named)), default=0) > most:
                continue
            for x in (*types, *named):
                check_type(mesh, x)
        except LayoutError:
            continue
        builder = FunctionBuilder(mesh, types, name)
        result = builder.try_op(OPERATIONS[operation], list(builder.values), properties)
        if result is not None:
            return builder.function([result])
