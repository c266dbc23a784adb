"""The index structures of steps that move elements and have typing rules of their own.

A dimension that keeps its elements has one index in the operands and in the result. A dimension
that is cut or extended is needed whole, and becomes a new one. Where dimensions are split or
merged, the first of them with more than one element share an index, as they are sharded alike, and
the others are needed whole.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from collir.layout.sizes import formula_of, same_size
from collir.layout.structure import Linear, Structure, dim_indices
from collir.layout.types import DistType

Operands = Sequence[DistType]
Arguments = Mapping[str, Any]


def _moved(
    operands: Operands, result: Sequence[str], shape: Sequence[int], regrouped: Sequence[str] = ()
) -> Structure:
    """Return the structure of a step that moves elements, given the indices of its result."""
    own = dim_indices(operands[0])
    return Structure(
        (own,) * len(operands),
        tuple(result),
        dict(zip((*result, *own), (*shape, *operands[0].shape), strict=True)),
        linear=Linear.ALL,
        blocked=frozenset(own).symmetric_difference(result),
        flops=0,
        selected=frozenset(own).difference(result),
        regrouped=frozenset(regrouped),
    )


def transposed(operands: Operands, arguments: Arguments) -> Structure:
    """Return the structure of a transpose."""
    order: Sequence[int] = arguments["order"]
    return _moved(operands, [*map(str, order)], [operands[0].shape[dim] for dim in order])


def padded(operands: Operands, arguments: Arguments) -> Structure:
    """Return the structure of a pad."""
    dim: int = arguments["dim"]
    size = operands[0].shape[dim] + arguments["low"] + arguments["high"]
    return _resized(operands, dim, size)


def joined(operands: Operands, arguments: Arguments) -> Structure:
    """Return the structure of a concat."""
    dim: int = arguments["dim"]
    return _resized(operands, dim, sum(x.shape[dim] for x in operands))


def _resized(operands: Operands, dim: int, size: int) -> Structure:
    result, shape = [*dim_indices(operands[0])], [*operands[0].shape]
    result[dim], shape[dim] = f"new.{dim}", size
    return _moved(operands, result, shape)


def split(operands: Operands, arguments: Arguments) -> Structure:
    """Return the structure of a split."""
    dim, shape = arguments["dim"], operands[0].shape
    return _regrouped(operands, (*shape[:dim], *arguments["sizes"], *shape[dim + 1 :]))


def merged(operands: Operands, arguments: Arguments) -> Structure:
    """Return the structure of a merge."""
    dim, shape = arguments["dim"], operands[0].shape
    return _regrouped(operands, (*shape[:dim], math.prod(shape[dim : dim + 2]), *shape[dim + 2 :]))


def reshaped(operands: Operands, arguments: Arguments) -> Structure:
    """Return the structure of a reshape."""
    return _regrouped(operands, arguments["shape"])


def _regrouped(operands: Operands, shape: Sequence[int]) -> Structure:
    before = operands[0].shape
    result = [f"new.{dim}" for dim in range(len(shape))]
    regrouped: list[str] = []
    for sources, targets in reshape_groups(before, shape):
        if sources and targets:
            source = max(sources, key=lambda dim: before[dim] > 1)
            target = max(targets, key=lambda dim: shape[dim] > 1)
            result[target] = str(source)
            if formula_of(before[source]) != formula_of(shape[target]):
                regrouped += [*map(str, sources), *(result[dim] for dim in targets)]
    return _moved(operands, result, shape, regrouped)


def reshape_groups(
    before: Sequence[int], after: Sequence[int]
) -> list[tuple[Sequence[int], Sequence[int]]]:
    """Return the finest groups of dimensions of two shapes whose products are equal, in order."""
    groups: list[tuple[list[int], list[int]]] = [([], [])]
    i = j = 0
    while i < len(before) and j < len(after):
        have, want = before[i], after[j]
        sources, targets = [i], [j]
        i, j = i + 1, j + 1
        while not same_size(have, want):  # with equal totals, the smaller has more dimensions
            if have < want or j == len(after):
                have *= before[i]
                sources.append(i)
                i += 1
            else:
                want *= after[j]
                targets.append(j)
                j += 1
        groups.append((sources, targets))
    groups[-1][0].extend(range(i, len(before)))  # the dimensions left have size 1
    groups[-1][1].extend(range(j, len(after)))
    return [group for group in groups if group != ([], [])]
