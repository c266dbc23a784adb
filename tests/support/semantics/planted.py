"""Mistakes planted in a function: it is still well typed, and computes something else."""

import random
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import IntegerAttr, StringAttr, i64
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.utils.exceptions import VerifyException

from collir.dialects.machine import NumberAttr, mesh_of, module_of
from collir.dialects.operation import DistOp, value_text
from collir.dialects.tables import OPERATIONS
from collir.dialects.tensor import SizesAttr, dist_type
from collir.ir.steps import step_op
from collir.layout import DType, LayoutError
from collir.layout.coll import SCALE
from collir.semantics.reference.collectives import Array, Buffers
from collir.semantics.reference.double import in_double
from collir.semantics.reference.executor import execute
from collir.semantics.reference.meaning import meaning

FACTORS = (0.9, 0.99, 1.1, 0.5, 2.0, 3.0, 10.0)
COMPARISONS = ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal")
Change = Callable[[random.Random, DistOp], DistOp | None]
"""A change of a step in place; it returns the step, or None if it does not fit."""


def _scaled(op: DistOp, factor: float) -> DistOp | None:
    if not dist_type(op.result).dtype.is_float:
        return None
    new = step_op(mesh_of(op), SCALE, [op.result], factor=factor)
    assert op.parent is not None
    op.parent.insert_op_after(new, op)
    op.result.replace_uses_with_if(new.result, lambda use: use.operation is not new)
    return op


def _sign(rng: random.Random, op: DistOp) -> DistOp | None:
    """Change the sign of a result."""
    return _scaled(op, -1.0)


def _factor(rng: random.Random, op: DistOp) -> DistOp | None:
    """Multiply a result by a factor."""
    return _scaled(op, rng.choice(FACTORS))


def _operands(rng: random.Random, op: DistOp) -> DistOp | None:
    """Swap two operands of one type."""
    count = range(len(op.operands))
    pairs = [(i, j) for i in count for j in range(i) if op.operands[i].type == op.operands[j].type]
    if not pairs:
        return None
    i, j = rng.choice(pairs)
    op.operands[i], op.operands[j] = op.operands[j], op.operands[i]
    return op


def _value(rng: random.Random, op: DistOp) -> DistOp | None:
    """Let a step use another value of the same type."""
    if not op.operands or op.parent is None:
        return None
    number = rng.randrange(len(op.operands))
    known: list[SSAValue] = [*op.parent.args]
    before: Operation | None = op.prev_op
    while before is not None:
        known += before.results
        before = before.prev_op
    old = op.operands[number]
    fitting = [x for x in known if x.type == old.type and x is not old]
    if not fitting:
        return None
    op.operands[number] = rng.choice(fitting)
    return op


def _comparison(rng: random.Random, op: DistOp) -> DistOp | None:
    """Compare in another way."""
    if op.mnemonic not in COMPARISONS:
        return None
    name = rng.choice([x for x in COMPARISONS if x != op.mnemonic])
    new = OPERATIONS[name].create(
        operands=op.operands, properties=op.properties, result_types=[op.result.type]
    )
    assert isinstance(new, DistOp) and op.parent is not None
    new.result.name_hint = op.result.name_hint
    op.parent.insert_op_before(new, op)
    op.result.replace_all_uses_with(new.result)
    op.parent.erase_op(op)
    return new


def _number(rng: random.Random, op: DistOp) -> DistOp | None:
    """Change a number: a constant, a seed, a factor, an eps, an amount, a dimension."""
    names = [n for n, v in op.properties.items() if isinstance(v, IntegerAttr | NumberAttr)]
    if not names:
        return None
    name = rng.choice(names)
    if isinstance(op.properties[name], NumberAttr):
        old = op.number(name)
        whole = float(old).is_integer() and rng.random() < 0.5
        new = old + rng.choice([-1, 1]) if whole else old * rng.choice([-1.0, *FACTORS])
        op.properties[name] = NumberAttr(new)
    else:
        op.properties[name] = IntegerAttr(op.integer(name) + rng.choice([-1, 1]), i64)
    if op.mnemonic == "pad":  # the same size, cut elsewhere
        dim = op.integer("dim")
        grown = int(dist_type(op.result).shape[dim]) - int(dist_type(op.input).shape[dim])
        op.properties["high"] = IntegerAttr(grown - op.integer("low"), i64)
    return op


def _axes(rng: random.Random, op: DistOp) -> DistOp | None:
    """Swap two indices of an einsum, or name other dimensions."""
    if op.mnemonic == "einsum":
        words = op.word("equation").replace("->", " -> ").replace(",", " , ").split()
        at = [n for n, word in enumerate(words) if word not in ("->", ",")]
        i, j = rng.sample(at, 2)
        words[i], words[j] = words[j], words[i]
        op.properties["equation"] = StringAttr(" ".join(words).replace(" ,", ","))
        return op
    lists = [n for n, v in op.properties.items() if isinstance(v, SizesAttr)]
    if not lists:
        return None
    name = rng.choice(lists)
    items = list(op.sizes(name))
    if name == "dims" and items:
        items[rng.randrange(len(items))] = rng.randrange(len(dist_type(op.operands[0]).shape))
    else:
        rng.shuffle(items)
    op.properties[name] = SizesAttr(tuple(items))
    return op


def _dropped(rng: random.Random, op: DistOp) -> DistOp | None:
    """Leave a step out: its operand goes on."""
    same = [x for x in op.operands if x.type == op.result.type]
    if not same:
        return None
    op.result.replace_all_uses_with(rng.choice(same))
    return op


CHANGES: dict[str, Change] = {
    "sign": _sign,
    "factor": _factor,
    "swapped operands": _operands,
    "other value": _value,
    "comparison": _comparison,
    "number, seed or mask": _number,
    "axes": _axes,
    "dropped": _dropped,
}


def planted(rng: random.Random, function: FuncOp) -> tuple[str, FuncOp, str] | None:
    """Return the kind of a mistake, a copy of a function with it, and the name of the value behind
    the step; None if the one that was drawn is not well typed."""
    copy = function.clone()
    module_of(function).body.block.insert_op_after(copy, function)
    kind = rng.choice([*CHANGES, "sign", "factor"])
    steps = [op for op in copy.walk() if isinstance(op, DistOp)]
    if kind == "comparison":
        steps = [op for op in steps if op.mnemonic in COMPARISONS] or steps
    try:
        changed = CHANGES[kind](rng, rng.choice(steps))
        if changed is not None:
            copy.verify()
            return kind, copy, value_text(changed.result, f"a {changed.mnemonic}")
    except (VerifyException, LayoutError, ValueError):
        pass
    copy.detach()
    return None


def differ(before: FuncOp, after: FuncOp) -> bool:
    """Return whether two functions differ by 1e-6 of a result, in float64 on one device, on inputs
    that are normally distributed and divided by the root of their next to last size."""
    return any(_differ(*(_results(f, n) for f in (before, after))) for n in range(4))


def _differ(expected: list[NDArray[np.float64]], actual: list[NDArray[np.float64]]) -> bool:
    return any(
        np.isfinite(x).all()
        and not np.allclose(x, y, rtol=1e-6, atol=1e-6 * float(np.abs(x).max(initial=0)))
        for x, y in zip(expected, actual, strict=True)
    )


def _results(function: FuncOp, number: int) -> list[NDArray[np.float64]]:
    module, alone = in_double(meaning(function)[1])
    given: list[Buffers] = [[x] for x in _inputs(alone, number)]
    return [np.asarray(x, np.float64) for [x] in execute(module, alone, given)]


def _inputs(function: FuncOp, number: int) -> list[Array]:
    rng, tensors = np.random.default_rng([7, number]), list[Array]()
    for arg in function.args:
        x = dist_type(arg)
        if x.dtype is DType.BOOL or not x.dtype.is_float:
            dtype = bool if x.dtype is DType.BOOL else f"i{x.dtype.bytes}"
            tensors.append(rng.integers(0, 2 if dtype is bool else 4, x.shape).astype(dtype))
            continue
        tensor = rng.normal(size=x.shape) / float(x.shape[-2] if len(x.shape) > 1 else 1) ** 0.5
        tensors.append(np.abs(tensor) if number % 2 or not x.shape else tensor)
    return tensors
