"""Complex values as pairs of real ones, so that no other part of an import knows them.

Rotary positions as products with ``e^(i angle)`` become arithmetic on real values, and a Fourier
transform a product with a matrix of cosines and one of sines.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from collir.importing.models.graph import ModelGraph, ModelNode, Ref, RepeatedNodes, Shaped, live

COMPLEX = {"complex64": "f32", "complex128": "f64", "complex32": "f16"}
"""The dtypes of torch that are complex, and those of their parts."""

Pair = tuple[Ref, Ref]
"""The real and the imaginary part of a value."""


def with_real_parts(graph: ModelGraph) -> ModelGraph:
    """Return the graph without complex values, but for what no rule here knows."""
    if not any(_is_complex(x) for node in graph.nodes if isinstance(node, ModelNode)
               for x in node.results):  # fmt: skip
        return graph
    made = _Parts({x.name: x.value for x in graph.inputs})
    for node in graph.nodes:
        assert isinstance(node, ModelNode)
        made.add(node)
    return live(replace(graph, nodes=made.nodes))


def _is_complex(x: Shaped | None) -> bool:
    return x is not None and x.dtype in COMPLEX


@dataclass
class _Parts:
    """The nodes of a graph so far.

    Attributes:
        types: the types of values that are real.
        pairs: the real and imaginary parts of complex values; of a node with several values, a pair
            for each.
        node: the node that is replaced.
    """

    types: dict[str, Shaped]
    pairs: dict[str, Any] = field(default_factory=dict[str, Any])
    nodes: list[ModelNode | RepeatedNodes] = field(default_factory=list[ModelNode | RepeatedNodes])
    node: ModelNode | None = None
    count: int = 0

    def add(self, node: ModelNode) -> None:
        """Add a node, or real ones in its place."""
        self.node, self.count = node, 0
        is_made = any(_is_complex(x) for x in node.results)
        takes = any(name in self.pairs for name in node.operands())
        rule = _RULES.get(node.op)
        if rule is None and node.op in _ALIKE:
            rule = _alike
        if not (is_made or takes) or rule is None:
            self.nodes.append(node)
            if node.results[0] is not None:
                self.types[node.name] = node.results[0]
            return
        result = rule(self, *node.args, **node.kwargs)
        if is_made:
            self.pairs[node.name] = result
        else:  # the value is real again
            self.nodes.append(replace(node, op="expand", args=(result, list(node.result.shape)),
                                      kwargs={}))  # fmt: skip
            self.types[node.name] = node.result

    def new(self, op: str, *args: Any, shape: Sequence[int], dtype: str = "", **kwargs: Any) -> Ref:
        """Add a real node, and return its value."""
        assert self.node is not None
        name, self.count = f"{self.node.name}_part_{self.count}", self.count + 1
        type = Shaped(tuple(shape), dtype or self.dtype)
        self.nodes.append(
            ModelNode(name, op, args, kwargs, (type,), self.node.path, self.node.line)
        )
        self.types[name] = type
        return Ref(name)

    @property
    def dtype(self) -> str:
        """The dtype of the parts of what the node makes, or takes."""
        assert self.node is not None
        first = self.node.results[0]
        assert first is not None
        return COMPLEX.get(first.dtype, first.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of what the node makes."""
        assert self.node is not None
        return self.node.result.shape

    def pair(self, x: Any) -> Pair | None:
        """Return the parts of a complex value; None if it is real."""
        return self.pairs.get(x.name) if isinstance(x, Ref) else None

    def zeros_as(self, x: Ref) -> Ref:
        """Return zeros like a value."""
        shape = self.types[x.name].shape
        return self.new("zeros", list(shape), shape=shape)

    def both(self, x: Any) -> tuple[Any, Any]:
        """Return the parts of a value, or of a number; None where there is none."""
        if isinstance(x, complex):
            return x.real, x.imag
        return self.pair(x) or (x, None)

    def shape_of(self, x: Ref) -> tuple[int, ...]:
        """Return the shape of a real value."""
        return self.types[x.name].shape


Rule = Callable[..., Any]
_RULES: dict[str, Rule] = {}


def _rule(*names: str) -> Callable[[Rule], Rule]:
    def add(function: Rule) -> Rule:
        _RULES.update(dict.fromkeys(names, function))
        return function

    return add


# --- steps to and from complex values ----- ------------------------------------------


@_rule("polar")
def _polar(p: _Parts, size: Ref, angle: Ref) -> Pair:
    parts = (p.new(op, angle, shape=p.shape_of(angle)) for op in ("cos", "sin"))
    real, imaginary = (p.new("mul.Tensor", size, x, shape=p.shape) for x in parts)
    return real, imaginary


@_rule("complex")
def _complex(p: _Parts, real: Ref, imaginary: Ref) -> Pair:
    return real, imaginary


@_rule("view_as_complex")
def _view_as_complex(p: _Parts, x: Ref) -> Pair:
    real, imaginary = (p.new("select.int", x, -1, at, shape=p.shape) for at in (0, 1))
    return real, imaginary


@_rule("view_as_real")
def _view_as_real(p: _Parts, z: Ref) -> Ref:
    return p.new("stack", list(p.both(z)), -1, shape=p.shape)


@_rule("real")
def _real(p: _Parts, z: Ref) -> Ref:
    return p.both(z)[0]


@_rule("imag")
def _imaginary(p: _Parts, z: Ref) -> Ref:
    return p.both(z)[1]


@_rule("_conj", "conj", "conj_physical", "_conj_physical")
def _conjugate(p: _Parts, z: Ref) -> Pair:
    real, imaginary = p.both(z)
    return real, p.new("neg", imaginary, shape=p.shape)


@_rule("abs")
def _size(p: _Parts, z: Ref) -> Ref:
    pair = p.new("stack", list(p.both(z)), -1, shape=(*p.shape, 2))
    return p.new("linalg_vector_norm", pair, 2, [-1], shape=p.shape)


@_rule("_to_copy", "to.dtype", "to.dtype_layout")
def _to(p: _Parts, x: Ref, *_: Any, **__: Any) -> Any:
    assert p.node is not None
    pair = p.pair(x)
    to = p.node.result.dtype
    if pair is None:
        real = p.new("_to_copy", x, shape=p.shape)
        return real, p.zeros_as(real)
    if to not in COMPLEX:
        return p.new("_to_copy", pair[0], shape=p.shape)
    return tuple(p.new("_to_copy", part, shape=p.shape) for part in pair)


# --- arithmetic -----------------------------------------------------------------------------------


def _bilinear(p: _Parts, op: str, x: Any, y: Any) -> Pair:
    """Return a product of two values, of which one may be real."""
    (a, b), (c, d) = p.both(x), p.both(y)

    def times(left: Any, right: Any) -> Ref:
        return p.new(op, left, right, shape=p.shape)

    if b is None:
        return times(a, c), times(a, d)
    if d is None:
        return times(a, c), times(b, c)
    real = p.new("sub.Tensor", times(a, c), times(b, d), shape=p.shape)
    return real, p.new("add.Tensor", times(a, d), times(b, c), shape=p.shape)


@_rule("mul.Tensor", "mul.Scalar")
def _mul(p: _Parts, x: Any, y: Any) -> Pair:
    return _bilinear(p, "mul.Tensor", x, y)


@_rule("matmul", "mm", "bmm")
def _matmul(p: _Parts, x: Any, y: Any) -> Pair:
    return _bilinear(p, "matmul", x, y)


@_rule("div.Tensor", "div.Scalar")
def _div(p: _Parts, x: Any, y: Any) -> Pair:
    (a, b), (c, d) = p.both(x), p.both(y)
    if d is not None:  # x / y = x conj(y) / |y|^2
        squares = (p.new("mul.Tensor", v, v, shape=p.shape_of(v)) for v in (c, d))
        size = p.new("add.Tensor", *squares, shape=p.shape_of(c))
        p.pairs["conjugate"] = c, p.new("neg", d, shape=p.shape_of(d))
        a, b = _bilinear(p, "mul.Tensor", x, Ref("conjugate"))
        c = size
    real, imaginary = (p.new("div.Tensor", v, c, shape=p.shape) for v in (a, b))
    return real, imaginary


def _sum(op: str) -> None:
    @_rule(f"{op}.Tensor", f"{op}.Scalar")
    def made(p: _Parts, x: Any, y: Any) -> Pair:
        (a, b), (c, d) = p.both(x), p.both(y)
        real = p.new(f"{op}.Tensor", a, c, shape=p.shape)
        b = p.zeros_as(a) if b is None else b
        return real, p.new(f"{op}.Tensor", b, 0 if d is None else d, shape=p.shape)


_sum("add")
_sum("sub")


@_rule("exp")
def _exp(p: _Parts, z: Ref) -> Pair:
    real, imaginary = p.both(z)
    return _polar(p, p.new("exp", real, shape=p.shape), imaginary)


_ALIKE = {
    "view", "reshape", "_unsafe_view", "unsqueeze", "squeeze", "squeeze.dim", "squeeze.dims",
    "expand", "slice.Tensor", "select.int", "transpose.int", "permute", "t", "cat", "stack",
    "index.Tensor", "index_select", "gather", "repeat", "roll", "flip", "neg", "sum.dim_IntList",
    "mean.dim", "sum", "mean", "flatten.using_ints", "chunk", "split.Tensor", "split_with_sizes",
    "unbind.int", "getitem", "constant_pad_nd", "pad", "cumsum", "where.self", "expand_as",
}  # fmt: skip
"""Operations that do the same to each part."""


def _alike(p: _Parts, *args: Any, **kwargs: Any) -> Any:
    """Return what an operation makes of each part."""
    node = p.node
    assert node is not None
    types = tuple(
        replace(x, dtype=COMPLEX[x.dtype]) if x is not None and x.dtype in COMPLEX else x
        for x in node.results
    )
    made: list[Ref] = []
    for part in (0, 1):
        names = {name: p.pairs[name][part].name for name in node.operands() if name in p.pairs}
        name = f"{node.name}_part_{part}"
        p.nodes.append(replace(node.replaced(names), name=name, results=types))
        if types[0] is not None:
            p.types[name] = types[0]
        made.append(Ref(name))
    return tuple(made)


# --- Fourier transforms ---------------------------------------------------------------------------


def _waves(p: _Parts, rows: int, columns: int, n: int) -> Pair:
    """Return cos and sin of 2 pi j k / n for j below some number and k below another."""
    i64 = {"dtype": "i64"}
    j, k = (p.new("arange", size, shape=(size,), **i64) for size in (rows, columns))
    j = p.new("view", j, [rows, 1], shape=(rows, 1), **i64)
    products = p.new("mul.Tensor", j, k, shape=(rows, columns), **i64)
    turns = p.new("remainder.Scalar", products, n, shape=(rows, columns), **i64)
    numbers = p.new("_to_copy", turns, shape=(rows, columns))
    angles = p.new("mul.Tensor", numbers, 2 * math.pi / n, shape=(rows, columns))
    cos, sin = (p.new(op, angles, shape=(rows, columns)) for op in ("cos", "sin"))
    return cos, sin


def _along(p: _Parts, x: Ref, dim: int, matrix: Ref) -> Ref:
    """Return a value with a dimension that a matrix [old, new] makes of one."""
    shape = list(p.shape_of(x))
    shape[dim], shape[-1] = shape[-1], shape[dim]
    last = p.new("transpose.int", x, dim, -1, shape=shape) if dim != len(shape) - 1 else x
    shape[-1] = p.shape_of(matrix)[1]
    made = p.new("matmul", last, matrix, shape=shape)
    if dim == len(shape) - 1:
        return made
    shape[dim], shape[-1] = shape[-1], shape[dim]
    return p.new("transpose.int", made, dim, -1, shape=shape)


def _transformed(
    p: _Parts, z: Mapping[int, Ref | None], dims: Sequence[int], forward: bool
) -> tuple[Ref, Ref]:
    """Return the Fourier transform of a value over dimensions, without a factor."""
    a, b = z[0], z[1]
    assert a is not None
    for d in dims:
        n = p.shape_of(a)[d]
        cos, sin = _waves(p, n, n, n)
        if forward:
            sin = p.new("neg", sin, shape=(n, n))
        if b is None:
            a, b = _along(p, a, d, cos), _along(p, a, d, sin)
            continue
        shape = p.shape_of(a)
        real = p.new("sub.Tensor", _along(p, a, d, cos), _along(p, b, d, sin), shape=shape)
        b = p.new("add.Tensor", _along(p, a, d, sin), _along(p, b, d, cos), shape=shape)
        a = real
    assert b is not None
    return a, b


def _factor(p: _Parts, x: Ref, norm: int, sizes: Sequence[int]) -> Ref:
    """Return a value by the number of elements (2), by its root (1), or as it is (0)."""
    if norm == 0:
        return x
    n = math.prod(sizes)
    return p.new("mul.Tensor", x, 1 / (math.sqrt(n) if norm == 1 else n), shape=p.shape_of(x))


def _positive(dims: Sequence[int], rank: int) -> list[int]:
    return [d % rank for d in dims]


@_rule("_fft_c2c")
def _fft(p: _Parts, z: Ref, dims: Sequence[int], norm: int, forward: bool) -> Pair:
    a, b = p.both(z)
    dims = _positive(dims, len(p.shape))
    parts = _transformed(p, {0: a, 1: b}, dims, forward)
    real, imaginary = (_factor(p, x, norm, [p.shape[d] for d in dims]) for x in parts)
    return real, imaginary


@_rule("_fft_r2c")
def _real_fft(p: _Parts, x: Ref, dims: Sequence[int], norm: int, onesided: bool) -> Pair:
    shape = p.shape_of(x)
    dims = _positive(dims, len(shape))
    parts = _transformed(p, {0: x, 1: None}, dims[::-1], True)
    real, imaginary = (_factor(p, v, norm, [shape[d] for d in dims]) for v in parts)
    if onesided:
        d, half = dims[-1], p.shape[dims[-1]]
        real, imaginary = (
            p.new("slice.Tensor", v, d, 0, half, shape=p.shape) for v in (real, imaginary)
        )
    return real, imaginary


@_rule("_fft_c2r")
def _to_real_fft(p: _Parts, z: Ref, dims: Sequence[int], norm: int, last: int) -> Ref:
    """Return real values of one half of their spectrum, which stands for both, but for its ends."""
    a, b = p.both(z)
    dims = _positive(dims, len(p.shape))
    *others, d = dims
    if others:
        a, b = _transformed(p, {0: a, 1: b}, others, False)
    half = p.shape_of(a)[d]
    cos, sin = _waves(p, half, last, last)
    k = p.new("arange", half, shape=(half,), dtype="i64")
    weights = p.new("full", [half], 2, shape=(half,))
    for edge in {0, last // 2 if last % 2 == 0 else 0}:
        is_edge = p.new("eq.Scalar", k, edge, shape=(half,), dtype="bool")
        as_one = p.new("_to_copy", is_edge, shape=(half,))
        weights = p.new("sub.Tensor", weights, as_one, shape=(half,))
    column = p.new("view", weights, [half, 1], shape=(half, 1))
    cos, sin = (p.new("mul.Tensor", v, column, shape=(half, last)) for v in (cos, sin))
    y = p.new("sub.Tensor", _along(p, a, d, cos), _along(p, b, d, sin), shape=p.shape)
    return _factor(p, y, norm, [p.shape[d] for d in dims])
