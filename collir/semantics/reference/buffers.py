"""Conversions between a global tensor and the buffers of all devices, by a type.

Generated inputs are small integers, chosen so that every order of reducing them, and every
average over a part of the devices, is exact in every dtype. Results may be compared bit by bit.
Parameters are such integers times a power of two, so that layers do not magnify their inputs.
States, such as the mean of squares of a gradient, are not negative, and scalars, such as the number
of a step, are positive.
"""

from collections.abc import Iterator
from itertools import product

import ml_dtypes
import numpy as np

from collir.ir.roles import Role
from collir.layout import DistType, DType, Mesh, Reduction
from collir.semantics.reference.collectives import Array, Buffers, combine
from collir.semantics.reference.devices import block_of, block_shape, coordinate, slices_of

NUMPY: dict[DType, np.dtype] = {
    DType.F16: np.dtype(np.float16),
    DType.BF16: np.dtype(ml_dtypes.bfloat16),
    DType.F32: np.dtype(np.float32),
    DType.F64: np.dtype(np.float64),
    DType.I8: np.dtype(np.int8),
    DType.I32: np.dtype(np.int32),
    DType.I64: np.dtype(np.int64),
    DType.BOOL: np.dtype(np.bool_),
}
"""The numpy dtype of every element type."""


class InconsistentError(RuntimeError):
    """Buffers that contradict their type: copies that differ, or data where none belongs."""


PARAMETER = 2.0**-3
"""The number that generated parameters are multiples of."""


def random_tensor(x: DistType, rng: np.random.Generator, role: Role | None = None) -> Array:
    """Return a global tensor of small numbers that suits the type's reduction and its role."""
    if x.dtype is DType.BOOL:
        values = rng.integers(0, 2, size=x.shape)
    elif x.reduction is Reduction.PROD:
        values = rng.choice(np.array([-2, -1, 1, 2, 3]), size=x.shape)
    else:
        values = rng.integers(-3, 4, size=x.shape)
    if not x.shape and x.dtype is not DType.BOOL:
        values = np.maximum(abs(values), 1)
    if role is Role.STATE:
        values = abs(values)
    if role is Role.PARAMETER and x.dtype.is_float:
        values = values * PARAMETER
    return values.astype(NUMPY[x.dtype])


def distribute(mesh: Mesh, tensor: Array, x: DistType, rng: np.random.Generator) -> Buffers:
    """Return buffers that stand for ``tensor`` under type ``x``; the parts of a sum are random.

    Args:
        tensor: an array of the type's global shape and dtype.
    """
    partial = mesh.ordered(x.partial)
    coordinates = list(product(*(range(mesh.by_name[a].size) for a in partial)))
    parts = dict(zip(coordinates, _parts(tensor, len(coordinates), x, rng), strict=True))
    buffers: Buffers = []
    for rank in range(mesh.devices):
        if any(coordinate(mesh, rank, axis) != at for axis, at in x.place):
            buffers.append(None)
            continue
        part = parts[tuple(coordinate(mesh, rank, axis) for axis in partial)]
        buffers.append(part[block_slices(mesh, rank, x)].copy())
    return buffers


def block_slices(mesh: Mesh, rank: int, x: DistType) -> tuple[slice, ...]:
    """Return the slices of the global tensor that are the block of a device."""
    return slices_of(mesh, rank, x.dims)


def _parts(tensor: Array, count: int, x: DistType, rng: np.random.Generator) -> Iterator[Array]:
    """Yield ``count`` random tensors that reduce to ``tensor`` under a type.

    They are integers that the dtype of the type can represent, if the elements of ``tensor`` are.
    """
    dtype, reduction = tensor.dtype, x.reduction
    if count == 1 or reduction is None:
        yield from [tensor] * count
        return
    if dtype.kind == "b":
        owner = rng.integers(0, count, size=tensor.shape)
        for index in range(count):
            noise = rng.integers(0, 2, size=tensor.shape).astype(dtype)
            away = tensor & noise if reduction is Reduction.MAX else tensor | noise
            yield np.where(owner == index, tensor, away)
    elif reduction in (Reduction.MAX, Reduction.MIN):
        owner = rng.integers(0, count, size=tensor.shape)
        for index in range(count):
            away = rng.integers(0, 4, size=tensor.shape)
            if dtype.kind == "i":
                limits, up = np.iinfo(NUMPY[x.dtype]), reduction is Reduction.MIN
                room = (
                    limits.max - np.maximum(tensor, 0)
                    if up
                    else np.minimum(tensor, -1) - limits.min
                )
                away = np.minimum(away, room)
            away = np.where(owner == index, 0, away).astype(dtype)
            yield tensor + away if reduction is Reduction.MIN else tensor - away
    elif reduction is Reduction.PROD:
        owner = rng.integers(0, count, size=tensor.shape)
        product = np.ones(tensor.shape, dtype)
        for index in range(count):
            last = index == count - 1
            sign = product if last else rng.choice(np.array([-1, 1], dtype), size=tensor.shape)
            product = product * sign
            yield np.where(owner == index, tensor * sign, sign)
    elif reduction is Reduction.AVG:
        # Offsets are multiples of count, so averages over parts of the devices stay integers.
        owners = [rng.integers(0, count, size=tensor.shape) for _ in range(4)]
        for index in range(count):
            up, down, up_too, down_too = (np.equal(owner, index).astype(dtype) for owner in owners)
            yield tensor + dtype.type(count) * (up - down + up_too - down_too)
    else:
        bound = max(1, min(3, 48 // count))
        rest = rng.integers(-bound, bound + 1, size=(count - 1, *tensor.shape)).astype(dtype)
        last = tensor - combine(list(rest), Reduction.SUM)
        if dtype.kind == "i":
            limits = np.iinfo(NUMPY[x.dtype])
            rest[0] += last - np.clip(last, limits.min, limits.max)
            last = np.clip(last, limits.min, limits.max)
        yield from rest
        yield last


def equal(a: Array, b: Array) -> bool:
    """Return whether two arrays hold the same values; NaN equals NaN."""
    return bool(
        np.array_equal(a, b)
        or np.array_equal(a.astype(np.float64), b.astype(np.float64), equal_nan=True)
    )


def assemble(mesh: Mesh, xs: Buffers, x: DistType) -> Array:
    """Return the global tensor that buffers stand for under a type.

    Raises:
        InconsistentError: a wrong shape, a missing or needless buffer, or copies that differ.
    """
    partial = mesh.ordered(x.partial)
    held: dict[tuple[tuple[int, ...], tuple[int, ...]], Array] = {}
    slices: dict[tuple[int, ...], tuple[slice, ...]] = {}
    for rank, buffer in enumerate(xs):
        if any(coordinate(mesh, rank, axis) != at for axis, at in x.place):
            if buffer is not None:
                raise InconsistentError(f"rank {rank} is not at its place, but holds data")
            continue
        due = block_shape(mesh, rank, x.dims)
        if buffer is None or buffer.shape != due:
            shape = None if buffer is None else buffer.shape
            raise InconsistentError(f"rank {rank} holds {shape}, not {due}")
        block = block_of(mesh, rank, x.dims)
        slices[block] = block_slices(mesh, rank, x)
        key = (block, tuple(coordinate(mesh, rank, axis) for axis in partial))
        if not equal(held.setdefault(key, buffer), buffer):
            raise InconsistentError(f"rank {rank} holds another copy of block {block}")
    tensor = np.zeros_like(next(iter(held.values())), shape=x.shape)
    for block, place in slices.items():
        parts = [held[key] for key in sorted(held) if key[0] == block]
        tensor[place] = combine(parts, x.reduction) if x.reduction else parts[0]
    return tensor
