"""Functions of JAX that are one operation in ``.coll``, found by their jaxprs."""

from collections.abc import Callable, Mapping
from typing import Any

_SILENT = frozenset({"broadcast_in_dim", "convert_element_type", "stop_gradient", "reshape"})
"""Operations without an effect on the meaning of a function."""

Known = tuple[str, dict[str, Any]]


def named(op: str, params: Mapping[str, Any]) -> Known | None:
    """Return the operation that a call is, with its parameters; None if it is its body."""
    find = _NAMES.get(str(params.get("name")))
    if find is None or op not in ("jit", "pjit", "custom_jvp_call"):
        return None
    jaxpr = getattr(params.get("jaxpr") or params.get("call_jaxpr"), "jaxpr", None)
    return find(jaxpr) if jaxpr is not None else None


def _steps(jaxpr: Any) -> list[Any]:
    """Return the equations of a jaxpr and of the jaxprs that it calls, without silent ones."""
    listed: list[Any] = []
    for eqn in jaxpr.eqns:
        inner = eqn.params.get("jaxpr") or eqn.params.get("call_jaxpr")
        if inner is not None and eqn.primitive.name in ("jit", "pjit", "custom_jvp_call"):
            listed += _steps(getattr(inner, "jaxpr", inner))
        elif eqn.primitive.name not in _SILENT:
            listed.append(eqn)
    return listed


def _of_one(jaxpr: Any) -> bool:
    """Return whether a jaxpr makes one value of one of the same type."""
    given, made = jaxpr.invars, jaxpr.outvars
    if len(given) != 1 or len(made) != 1:
        return False
    first, result = given[0].aval, made[0].aval
    return first.shape == result.shape and first.dtype == result.dtype


def _map(kind: str, form: list[str], numbers: tuple[float, ...] = ()) -> Callable[..., Any]:
    def find(jaxpr: Any) -> Known | None:
        steps = _steps(jaxpr)
        if not _of_one(jaxpr) or [x.primitive.name for x in steps] != form:
            return None
        found = tuple(float(x.val) for eqn in steps for x in eqn.invars if hasattr(x, "val"))
        return (kind, {}) if found == numbers else None

    return find


def _uniform(jaxpr: Any) -> Known | None:
    """Random numbers between two bounds."""
    names = [x.primitive.name for x in _steps(jaxpr)]
    return ("uniform", {}) if names[:1] == ["random_bits"] and len(jaxpr.invars) == 3 else None


def _randint(jaxpr: Any) -> Known | None:
    """Random integers between two bounds."""
    names = [x.primitive.name for x in _steps(jaxpr)]
    return ("randint", {}) if "random_bits" in names and len(jaxpr.invars) == 3 else None


_NAMES: dict[str, Callable[[Any], Known | None]] = {
    "relu": _map("relu", ["max"], (0.0,)),
    "silu": _map("silu", ["logistic", "mul"]),
    "swish": _map("silu", ["logistic", "mul"]),
    "_uniform": _uniform,
    "_randint": _randint,
}
"""The functions of JAX by name, and what finds the operation of each in its jaxpr."""
