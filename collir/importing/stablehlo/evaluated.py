"""The elements of constants: operations on known values, computed by numpy."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, "np.dtype[Any]"]

_MAPS: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil,
    "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "tanh": np.tanh, "sin": np.sin, "cos": np.cos,
    "log1p": np.log1p, "expm1": np.expm1, "square": np.square, "is_finite": np.isfinite,
    "pow": np.power, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "eq": np.equal, "ne": np.not_equal, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor, "not": np.invert,
}  # fmt: skip
"""Functions of elements, by the names of JAX."""

MAPS = frozenset({
    *_MAPS, "div", "rem", "select_n", "convert_element_type", "logistic", "erf", "erfc", "erf_inv",
    "tan", "atan2", "cbrt", "round", "rsqrt", "clamp",
})  # fmt: skip
"""All functions of elements: each of their operands may be one number instead of an array."""


def evaluated(
    op: str, given: Sequence[Any], params: Mapping[str, Any], sizes: Sequence[int],
    dtype: "np.dtype[Any]",
) -> Array | None:  # fmt: skip
    """Return what an operation makes of known values; None if that is not computed here.

    Args:
        sizes, dtype: those of its result.
    """
    whole = tuple(sizes)
    made: Any = None
    with np.errstate(all="ignore"):
        if op in _MAPS:
            made = _MAPS[op](*given)
        elif op == "rsqrt":
            made = 1 / np.sqrt(given[0])
        elif op == "clamp":
            made = np.minimum(np.maximum(given[1], given[0]), given[2])
        elif op == "div":
            made = _quotient(*given)
        elif op == "rem":
            made = _remainder(*given)
        elif op == "select_n" and given[0].dtype == np.bool_ and len(given) == 3:
            made = _chosen(*given)
        elif op == "convert_element_type":
            [own] = given
            is_cut = own.dtype.kind == "f" and dtype.kind in "iu"
            made = own != 0 if dtype.kind == "b" else np.trunc(own) if is_cut else own
        else:
            find = _SHAPES.get(op)
            made = find(given, params, whole) if find is not None else None
    if made is None or made.shape not in (whole, ()):
        return None
    made = made.astype(dtype) if made.dtype != dtype else made
    return np.broadcast_to(made, whole) if made.shape != whole else made


def _quotient(x: Array, y: Array) -> Array:
    if x.dtype.kind not in "iu":
        return np.divide(x, y)
    safe = np.where(y == 0, 1, y)
    return np.where(y == 0, -1, (np.abs(x) // np.abs(safe)) * np.sign(x) * np.sign(safe))


def _chosen(which: Any, false: Any, true: Any) -> Array:
    return np.where(which, true, false)  # pyright: ignore[reportUnknownVariableType]


def _remainder(x: Any, y: Any) -> Array:
    divisor: Any = np.where(y == 0, 1, y)
    return np.fmod(x, divisor)


def _broadcast(given: Sequence[Any], params: Mapping[str, Any], sizes: tuple[int, ...]) -> Array:
    shape = [1] * len(sizes)
    for place, size in zip(params["broadcast_dimensions"], given[0].shape, strict=True):
        shape[place] = size
    made: Any = given[0].reshape(shape)
    return np.broadcast_to(made, sizes)


def _iota(given: Sequence[Any], params: Mapping[str, Any], sizes: tuple[int, ...]) -> Array:
    dim: int = params["dimension"]
    shape = [n if d == dim else 1 for d, n in enumerate(sizes)]
    numbers: Any = np.arange(sizes[dim])
    return np.broadcast_to(numbers.reshape(shape), sizes)


def _slice(given: Sequence[Any], params: Mapping[str, Any], sizes: tuple[int, ...]) -> Array:
    steps = params["strides"] or [1] * len(sizes)
    bounds = zip(params["start_indices"], steps, sizes, strict=True)
    return given[0][tuple(slice(at, at + n * step, step) for at, step, n in bounds)]


def _dynamic(given: Sequence[Any], params: Mapping[str, Any], sizes: tuple[int, ...]) -> Array:
    x, *starts = given
    places = [min(max(int(at), 0), room - n)
              for at, room, n in zip(starts, x.shape, sizes, strict=True)]  # fmt: skip
    return x[tuple(slice(at, at + n) for at, n in zip(places, sizes, strict=True))]


def _reshape(given: Sequence[Any], params: Mapping[str, Any], sizes: tuple[int, ...]) -> Array:
    one = given[0].size == 1 and sizes
    return np.broadcast_to(given[0].reshape(()), sizes) if one else given[0].reshape(sizes)


def _transpose(given: Sequence[Any], params: Mapping[str, Any], sizes: tuple[int, ...]) -> Array:
    return given[0].transpose(params["permutation"])


def _concatenate(given: Sequence[Any], params: Mapping[str, Any], sizes: tuple[int, ...]) -> Array:
    return np.concatenate(given, params["dimension"])


def _reverse(given: Sequence[Any], params: Mapping[str, Any], sizes: tuple[int, ...]) -> Array:
    return np.flip(given[0], params["dimensions"])


def _reduce(name: str) -> Callable[..., Array]:
    def made(given: Sequence[Any], params: Mapping[str, Any], sizes: tuple[int, ...]) -> Array:
        return getattr(given[0], name)(tuple(params["axes"]))

    return made


_SHAPES: dict[str, Callable[..., Array]] = {
    "broadcast_in_dim": _broadcast, "iota": _iota, "slice": _slice, "dynamic_slice": _dynamic,
    "reshape": _reshape, "transpose": _transpose, "concatenate": _concatenate, "rev": _reverse,
    "reduce_and": _reduce("all"), "reduce_or": _reduce("any"), "reduce_sum": _reduce("sum"),
    "reduce_max": _reduce("max"), "reduce_min": _reduce("min"),
}  # fmt: skip
