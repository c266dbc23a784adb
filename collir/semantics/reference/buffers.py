"""From a global tensor to the buffers of all devices and back, by what a type means.

Generated inputs are small integers, chosen so that every order of reducing them, and every
average over a part of the devices, is exact in every dtype: results may be compared bit by bit.
"""

from collections.abc import Iterator
from itertools import product

import ml_dtypes
import numpy as np

from collir.layout import DistType, DType, Mesh, Reduction
from collir.semantics.reference.collectives import Array, Buffers, combine
from collir.semantics.reference.devices import block_of, coordinate

NUMPY: dict[DType, np.dtype] = {
    DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.F32: np.dtype(np.float32),
    DType.F64: np.dtype(np.float64),
    DType.I8: np.dtype(np.int8),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
}
"""The numpy dtype of every element type."""


class InconsistentError(RuntimeError):
    """Buffers that are not what their type says: copies that differ, data where none belongs."""


def random_tensor(x: DistType, rng: np.random.Generator) -> Array:
    """A global tensor of small integers that suits the type's reduction."""
    if x.reduction is Reduction.PROD:
        values = rng.choice(np.array([-2, -1, 1, 2, 3]), size=x.shape)
    else:
        values = rng.integers(-3, 4, size=x.shape)
    return values.astype(NUMPY[x.dtype])


def distribute(mesh: Mesh, tensor: Array, x: DistType, rng: np.random.Generator) -> Buffers:
    """Buffers whose meaning under ``x`` is ``tensor``; what each part of a partial value holds is
    random.

    Args:
        tensor: an array of the type's global shape and dtype.
    """
    partial = mesh.ordered(x.partial)
    coordinates = list(product(*(range(mesh.by_name[a].size) for a in partial)))
    parts = dict(zip(coordinates, _parts(tensor, len(coordinates), x.reduction, rng), strict=True))
    out: Buffers = []
    for rank in range(mesh.devices):
        if any(coordinate(mesh, rank, axis) for axis in x.root):
            out.append(None)
            continue
        part = parts[tuple(coordinate(mesh, rank, axis) for axis in partial)]
        out.append(part[block_slices(mesh, rank, x)].copy())
    return out


def block_slices(mesh: Mesh, rank: int, x: DistType) -> tuple[slice, ...]:
    """Where in the global tensor the block of a device lies."""
    sizes = x.local_shape(mesh)
    indices = block_of(mesh, rank, x.dims)
    return tuple(slice(i * n, (i + 1) * n) for i, n in zip(indices, sizes, strict=True))


def _parts(
    tensor: Array, count: int, reduction: Reduction | None, rng: np.random.Generator
) -> Iterator[Array]:
    """``count`` random tensors that reduce to ``tensor``."""
    dtype = tensor.dtype
    if count == 1 or reduction is None:
        yield from [tensor] * count
        return
    if reduction in (Reduction.MAX, Reduction.MIN):
        sign = 1 if reduction is Reduction.MIN else -1
        owner = rng.integers(0, count, size=tensor.shape)
        for index in range(count):
            away = sign * rng.integers(0, 4, size=tensor.shape)
            yield tensor + np.where(owner == index, 0, away).astype(dtype)
    elif reduction is Reduction.PROD:
        owner = rng.integers(0, count, size=tensor.shape)
        product = np.ones(tensor.shape, dtype)
        for index in range(count):
            last = index == count - 1
            sign = product if last else rng.choice(np.array([-1, 1], dtype), size=tensor.shape)
            product = product * sign
            yield np.where(owner == index, tensor * sign, sign)
    elif reduction is Reduction.AVG:
        # Multiples of count around the mean: averages over parts of the devices stay integers.
        owners = [rng.integers(0, count, size=tensor.shape) for _ in range(4)]
        for index in range(count):
            up, down, up_too, down_too = (np.equal(owner, index).astype(dtype) for owner in owners)
            yield tensor + dtype.type(count) * (up - down + up_too - down_too)
    else:
        bound = max(1, min(3, 48 // count))
        rest = rng.integers(-bound, bound + 1, size=(count - 1, *tensor.shape)).astype(dtype)
        yield from rest
        yield tensor - combine(list(rest), Reduction.SUM)


def equal(one: Array, other: Array) -> bool:
    """Whether two arrays hold the same values; what is not a number is equal to itself."""
    return bool(
        np.array_equal(one, other)
        or np.array_equal(one.astype(np.float64), other.astype(np.float64), equal_nan=True)
    )


def assemble(mesh: Mesh, xs: Buffers, x: DistType) -> Array:
    """The global tensor that buffers stand for under a type.

    Raises:
        InconsistentError: a shape, a missing or needless buffer, or copies that are not equal.
    """
    partial = mesh.ordered(x.partial)
    held: dict[tuple[tuple[int, ...], tuple[int, ...]], Array] = {}
    where: dict[tuple[int, ...], tuple[slice, ...]] = {}
    for rank, buffer in enumerate(xs):
        if any(coordinate(mesh, rank, axis) for axis in x.root):
            if buffer is not None:
                raise InconsistentError(f"rank {rank} is not a root, but holds data")
            continue
        if buffer is None or buffer.shape != x.local_shape(mesh):
            shape = None if buffer is None else buffer.shape
            raise InconsistentError(f"rank {rank} holds {shape}, not {x.local_shape(mesh)}")
        block = block_of(mesh, rank, x.dims)
        where[block] = block_slices(mesh, rank, x)
        key = (block, tuple(coordinate(mesh, rank, axis) for axis in partial))
        if not equal(held.setdefault(key, buffer), buffer):
            raise InconsistentError(f"rank {rank} holds another copy of block {block}")
    out = np.zeros_like(next(iter(held.values())), shape=x.shape)
    for block, place in where.items():
        parts = [held[key] for key in sorted(held) if key[0] == block]
        out[place] = combine(parts, x.reduction) if x.reduction else parts[0]
    return out
