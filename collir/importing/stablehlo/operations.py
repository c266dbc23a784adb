"""The operations of StableHLO as operations of JAX, which have rows: names, orders of operands, and
parameters."""

import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from collir.importing.stablehlo.text import Region, StableHloOperation, StableHloTensor

Made = tuple[str, Sequence[Any], dict[str, Any]]
"""The name of JAX's operation, its operands, and its parameters."""

_SAME = {
    "add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "maximum": "max",
    "minimum": "min", "negate": "neg", "exponential": "exp", "exponential_minus_one": "expm1",
    "log": "log", "log_plus_one": "log1p", "logistic": "logistic", "tanh": "tanh", "sqrt": "sqrt",
    "rsqrt": "rsqrt", "cbrt": "cbrt", "sine": "sin", "cosine": "cos", "tan": "tan", "abs": "abs",
    "sign": "sign", "floor": "floor", "ceil": "ceil", "power": "pow", "remainder": "rem",
    "and": "and", "or": "or", "xor": "xor", "not": "not", "atan2": "atan2", "clamp": "clamp",
    "is_finite": "is_finite", "convert": "convert_element_type", "reshape": "reshape",
    "round_nearest_even": "round", "square": "square", "erf": "erf", "erfc": "erfc",
    "erf_inv": "erf_inv", "sinh": "sinh", "cosh": "cosh",
}  # fmt: skip
"""Operations whose operands are those of JAX."""

REDUCERS = {
    "add": "sum", "maximum": "max", "minimum": "min", "and": "and", "or": "or", "multiply": "prod",
}  # fmt: skip
"""The reductions that a function of two elements is."""


class UnknownForm(Exception):
    """An operation that is not written as others of its name; its argument says how."""


def short(op: str) -> str:
    """Return the name of an operation without its dialect."""
    return op.rpartition(".")[2]


def as_jax(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    """Return an operation as one of JAX.

    Raises:
        UnknownForm: it has a form that JAX does not have.
    """
    name = short(x.op)
    if name in _FORMS:
        return _FORMS[name](x, operands)
    return _SAME.get(name, name), operands, {}


def _first(x: StableHloOperation, *names: str) -> Any:
    """Return the attribute that has one of some names.

    Raises:
        UnknownForm: it has none of them.
    """
    for name in names:
        if name in x.attributes:
            return x.attributes[name]
    raise UnknownForm(f"without {names[0]}")


def _numbers(x: StableHloOperation, *names: str) -> list[int]:
    made = _first(x, *names)
    if not isinstance(made, str):
        made = made.tolist() if hasattr(made, "tolist") else made
        if not isinstance(made, list) or not all(isinstance(n, int) for n in made):  # pyright: ignore
            raise UnknownForm(f"whose {names[0]} are no list of numbers")
        return made  # pyright: ignore
    return [int(n) for n in re.findall(r"-?\d+", made)]


def _number(x: StableHloOperation, *names: str) -> int:
    made = _first(x, *names)
    if not isinstance(made, int):
        raise UnknownForm(f"whose {names[0]} is no number")
    return made


def _fields(text: Any, *names: str) -> dict[str, list[int]]:
    """Return the lists of ``#stablehlo.gather<offset_dims = [1], index_vector_dim = 2>``."""
    text = str(text)
    made = {name: [int(n) for n in re.findall(r"\d+", listed)]
            for name, listed in re.findall(r"(\w+) = \[([^\]]*)\]", text)}  # fmt: skip
    made |= {name: [int(number)] for name, number in re.findall(r"(\w+) = (\d+)", text)}
    return {name: made.get(name, []) for name in names}


def reducer(region: Region) -> str:
    """Return the operation of a function of two elements; empty if it is no single operation on
    both."""
    inside = [
        x for x in region.operations if not x.op.endswith("return") and short(x.op) != "convert"
    ]
    names = [x.name for x in region.takes]
    if not inside and len(names) == 2:
        [end] = region.operations[-1:]
        return "second" if end.operands == (names[1],) else ""
    if len(inside) != 1 or len(names) != 2:
        return ""
    casts = {r: o for x in region.operations if short(x.op) == "convert"
             for r, o in zip(x.results, x.operands, strict=True)}  # fmt: skip
    own = [casts.get(name, name) for name in inside[0].operands]
    return short(inside[0].op) if sorted(own) == sorted(names) else ""


def reduction(x: StableHloOperation) -> str:
    """Return the operation that a reduction applies."""
    words: list[str] = list(x.attributes.get("words", []))
    if "applies" in words:
        return short(words[words.index("applies") + 1])
    return reducer(x.regions[0]) if x.regions else ""


# --- forms ----------------------------------------------------------------------------------------

_FORMS: dict[str, Callable[[StableHloOperation, Sequence[Any]], Made]] = {}


def _form(*names: str) -> Callable[[Callable[..., Made]], Callable[..., Made]]:
    def add(function: Callable[..., Made]) -> Callable[..., Made]:
        _FORMS.update(dict.fromkeys(names, function))
        return function

    return add


@_form("round_nearest_afz")
def _round(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    return "round", operands, {"rounding_method": "AWAY_FROM_ZERO"}


@_form("select")
def _select(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    which, true, false = operands
    return "select_n", [which, false, true], {}


@_form("compare")
def _compare(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    said = str(x.attributes.get("comparison_direction", "")) or x.attributes.get("words", [""])[0]
    found = re.search(r"\b(EQ|NE|LT|LE|GT|GE)\b", said)
    if found is None:
        raise UnknownForm("in no known direction")
    return found[1].lower(), operands, {}


@_form("iota")
def _iota(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    return "iota", operands, {"dimension": _number(x, "dim", "iota_dimension")}


@_form("broadcast_in_dim")
def _broadcast(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    dims = _numbers(x, "dims", "broadcast_dimensions")
    return "broadcast_in_dim", operands, {"broadcast_dimensions": dims}


@_form("transpose")
def _transpose(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    return "transpose", operands, {"permutation": _numbers(x, "dims", "permutation")}


@_form("reverse")
def _reverse(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    return "rev", operands, {"dimensions": _numbers(x, "dims", "dimensions")}


@_form("concatenate")
def _concatenate(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    return "concatenate", operands, {"dimension": _number(x, "dim", "dimension")}


@_form("slice")
def _slice(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    if "list" in x.attributes:
        ranges: Any = x.attributes["list"]
        starts, steps = [r[0] for r in ranges], [r[2] if len(r) > 2 else 1 for r in ranges]
    else:
        starts, steps = _numbers(x, "start_indices"), _numbers(x, "strides")
    strides = steps if any(n != 1 for n in steps) else None
    return "slice", operands, {"start_indices": starts, "strides": strides}


@_form("pad")
def _pad(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    low, high = _numbers(x, "low", "edge_padding_low"), _numbers(x, "high", "edge_padding_high")
    inside = _numbers(x, "interior", "interior_padding")
    return "pad", operands, {"padding_config": [*zip(low, high, inside, strict=True)]}


@_form("dynamic_slice")
def _dynamic_slice(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    return "dynamic_slice", operands, {"slice_sizes": _numbers(x, "sizes", "slice_sizes")}


@_form("dot_general")
def _dot_general(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    if "dot_dimension_numbers" in x.attributes:
        known = _fields(
            x.attributes["dot_dimension_numbers"], "lhs_contracting_dimensions",
            "rhs_contracting_dimensions", "lhs_batching_dimensions", "rhs_batching_dimensions",
        )  # fmt: skip
        left, right, first, second = known.values()
    else:
        (left, right), (first, second) = (
            map(list, x.attributes.get(name) or ([], []))
            for name in ("contracting_dims", "batching_dims")
        )
    return "dot_general", operands, {"dimension_numbers": ((left, right), (first, second))}


@_form("convolution")
def _convolution(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    text = x.attributes.get("dimension_numbers")
    if text is not None:
        parts = [
            tuple(part.replace(" ", "").split(",")) for part in re.findall(r"\[([^\]]*)\]", text)
        ]
    else:
        parts = [tuple(map(str, part)) for part in _first(x, "dim_numbers")]
    image, filters, result = parts
    sides = sorted(c for c in image if c.isdigit())

    def places(names: Sequence[str], first: str, second: str) -> tuple[int, ...]:
        return tuple(names.index(c) for c in (first, second, *sides))

    window: Any = x.attributes.get("window", {})
    count = len(sides)
    reverse = window.get("reverse", x.attributes.get("window_reversal", []))
    if any(reverse):
        raise UnknownForm("with filters that are reversed")
    pads: Any = window.get("pad", x.attributes.get("padding", [[0, 0]] * count))
    return "conv_general_dilated", operands, {
        "dimension_numbers": SimpleNamespace(
            lhs_spec=places(image, "b", "f"), rhs_spec=places(filters, "o", "i"),
            out_spec=places(result, "b", "f")),
        "window_strides": window.get("stride", x.attributes.get("window_strides")) or [1] * count,
        "padding": [tuple(int(n) for n in pair) for pair in pads],
        "lhs_dilation": window.get("lhs_dilate", x.attributes.get("lhs_dilation")) or [1] * count,
        "rhs_dilation": window.get("rhs_dilate", x.attributes.get("rhs_dilation")) or [1] * count,
        "feature_group_count": x.attributes.get("feature_group_count", 1),
        "batch_group_count": x.attributes.get("batch_group_count", 1),
    }  # fmt: skip


@_form("gather")
def _gather(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    known = _fields(
        _first(x, "dimension_numbers"), "offset_dims", "collapsed_slice_dims",
        "operand_batching_dims", "start_indices_batching_dims", "start_index_map",
    )  # fmt: skip
    sizes = _numbers(x, "slice_sizes")
    return "gather", operands, {"dimension_numbers": SimpleNamespace(**known), "slice_sizes": sizes}


@_form("scatter")
def _scatter(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    kind = {"add": "scatter-add", "multiply": "scatter-mul", "second": "scatter"}.get(
        reducer(x.regions[0]) if x.regions else ""
    )
    if kind is None or len(operands) != 3:
        raise UnknownForm("of another function, or of several arrays")
    known = _fields(
        _first(x, "scatter_dimension_numbers"), "update_window_dims", "inserted_window_dims",
        "scatter_dims_to_operand_dims", "input_batching_dims", "scatter_indices_batching_dims",
    )  # fmt: skip
    known["operand_batching_dims"] = known.pop("input_batching_dims")
    return kind, operands, {"dimension_numbers": SimpleNamespace(**known)}


@_form("reduce")
def _reduce(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    kind = REDUCERS.get(reduction(x))
    if kind is None or len(operands) != 2:
        raise UnknownForm("by a function that is no sum, product, or bound")
    return f"reduce_{kind}", operands[:1], {"axes": _numbers(x, "dimensions")}


@_form("reduce_window")
def _reduce_window(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    kind = REDUCERS.get(reduction(x))
    if kind is None or len(operands) != 2:
        raise UnknownForm("by a function that is no sum, product, or bound")
    window = _numbers(x, "window_dimensions")
    ones = [1] * len(window)
    strides = [*x.attributes.get("window_strides", ones)]
    pads = [
        tuple(int(n) for n in pair) for pair in x.attributes.get("padding", [(0, 0)] * len(window))
    ]
    dilated = [
        *x.attributes.get("base_dilations", ones),
        *x.attributes.get("window_dilations", ones),
    ]
    [type] = x.types
    moved = [d for d, n in enumerate(window) if n != 1]
    if (
        len(moved) == 1
        and strides == ones
        and set(dilated) <= {1}
        and isinstance(type, StableHloTensor)
    ):
        [dim] = moved
        size = type.sizes[dim]
        reach = {(window[dim] - 1, 0): False, (0, window[dim] - 1): True}.get(
            (pads[dim][0], pads[dim][-1])
        )
        if reach is not None and window[dim] == size:
            return f"cum{kind}", operands[:1], {"axis": dim, "reverse": reach}
    params = {
        "window_dimensions": window, "window_strides": strides, "padding": pads,
        "window_dilation": dilated,
    }  # fmt: skip
    return f"reduce_window_{kind}", operands[:1], params


@_form("select_and_scatter")
def _select_and_scatter(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    if [reducer(x.regions[-1]), len(x.regions)] != ["add", 2]:
        raise UnknownForm("of another function than a sum")
    window = _numbers(x, "window_dimensions")
    strides = [*x.attributes.get("window_strides", [1] * len(window))]
    pads = [
        tuple(int(n) for n in pair) for pair in x.attributes.get("padding", [(0, 0)] * len(window))
    ]
    params = {"window_dimensions": window, "window_strides": strides, "padding": pads}
    return "select_and_scatter_add", [operands[1], operands[0]], params


@_form("top_k")
def _top_k(x: StableHloOperation, operands: Sequence[Any]) -> Made:
    [*sizes] = x.types[0].sizes
    return "top_k", operands, {"k": sizes[-1], "axis": len(sizes) - 1}
