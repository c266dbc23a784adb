"""Gradients of operations of models on sharded operands, against finite differences."""

import pytest
from support.semantics.checks import functions_of
from support.semantics.differentiated import wrong_gradients

import collir

MESH = """
machine @box { level gpu[4] { port = 300 GB/s, latency = 3 us } }
mesh @m on @box { a = gpu:2, b = gpu:2 }
"""

SQUARED = """
  %v = all_reduce %y over AXES
  %q = mul %v, %v
  %loss = sum %q dims DIMS
  return %loss
}
"""


def squared(head: str, steps: str, axes: str, dims: str, over: str = "") -> str:
    """Return a program whose loss is the sum of the squares of ``%y``, partial over some axes and
    then sharded over others."""
    end = SQUARED.replace("AXES", axes).replace("DIMS", dims)
    if not axes:
        end = end.replace("  %v = all_reduce %y over \n", "").replace("%v", "%y")
    if over:
        end = end.replace("return %loss", f"%whole = all_reduce %loss over {over}\n  return %whole")
    return f"{MESH}func @f({head}) -> f64[] on @m {{\n  {steps}\n{end}"


CASES: dict[str, str] = {
    "a table sharded by rows and tokens": squared(
        "%t: f64[8@b, 3], %i: i32[4@a]", "%y = take %t, %i dim 0", "b", "[0, 1]", "a"
    ),
    "a table sharded by columns": squared(
        "%t: f64[3, 8@b], %i: i32[4, 2@a]", "%y = take %t, %i dim 0", "", "[0, 1, 2]", "a, b"
    ),
    "a transpose on sharded rows": squared(
        "%g: f64[4@a, 3], %i: i32[4@a]",
        "%y = take_transpose %g, %i dim 0 to f64[2@b, 3] partial(sum: a)",
        "a",
        "[0, 1]",
        "b",
    ),
    "labels of a sharded batch": squared(
        "%x: f64[4@a, 3], %i: i32[4@a]", "%y = cross_entropy %x, %i dim 1", "", "[0]", "a"
    ),
    "a mean of a sharded batch": squared("%x: f64[4@a, 3]", "%y = mean %x dims [0]", "a", "[0]"),
    "norms of a sharded batch": squared(
        "%x: f64[4@a, 6@b, 3], %g: f64[3], %b: f64[3]",
        "%n = layer_norm %x, %g, %b dims [2] eps 0.1\n  %y = rms_norm %n, %g dims [2] eps 0.1",
        "",
        "[0, 1, 2]",
        "a, b",
    ),
    "a convolution over sharded channels": squared(
        "%x: f64[4@a, 5, 4@b], %w: f64[3, 4@b, 2]",
        "%y = conv %x, %w stride [2] padding [1]",
        "b",
        "[0, 1, 2]",
        "a",
    ),
    "a convolution with sharded features": squared(
        "%x: f64[2@a, 4, 5, 3], %w: f64[3, 2, 3, 2@b]",
        "%y = conv %x, %w stride [1, 2] padding [2, 0]",
        "",
        "[0, 1, 2, 3]",
        "a, b",
    ),
    "a transposed convolution": squared(
        "%g: f64[2@a, 3, 4@b], %w: f64[3, 2, 4@b]",
        "%y = conv_transpose %g, %w stride [2] padding [1] to f64[2@a, 6, 2] partial(sum: b)",
        "b",
        "[0, 1, 2]",
        "a",
    ),
    "a filter": squared(
        "%x: f64[2@a, 6, 2@b], %g: f64[2@a, 3, 2]",
        "%y = conv_filter %x, %g stride [2] padding [1] to f64[3, 2@b, 2] partial(sum: a)",
        "a",
        "[0, 1, 2]",
        "b",
    ),
    "windows": squared(
        "%x: f64[2@a, 5, 6, 2@b]",
        "%m = max_pool %x window [3, 2] stride [2, 2] padding [1, 0]\n"
        "  %y = avg_pool %m window [2, 3] stride [1, 1] padding [0, 1]",
        "",
        "[0, 1, 2, 3]",
        "a, b",
    ),
    "a transposed average": squared(
        "%g: f64[2@a, 3, 2@b]",
        "%y = avg_pool_transpose %g window [2] stride [2] padding [1] to f64[2@a, 4, 2@b]",
        "",
        "[0, 1, 2]",
        "a, b",
    ),
}
"""Programs with a loss, by what they show."""


@pytest.mark.parametrize("case", CASES)
def test_gradients_on_sharded_operands(case: str) -> None:
    module = collir.parse(CASES[case])
    [function] = functions_of(module)
    assert wrong_gradients(module, function, 3) == []
