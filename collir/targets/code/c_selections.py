"""The loop nests of operations that select, by the size of elements or by integers, in C."""

import math

from collir.targets.code.c_folds import larger
from collir.targets.code.c_kernels import OUT, BlockComputation, Body
from collir.targets.code.c_nest import (
    Array,
    CLoop,
    block,
    is_one,
    merged,
    nested,
    number_type,
    value_type,
)
from collir.targets.code.c_text import factor_text, size_text

# ---------------------------------------------------------------------------------------------
# By the size of elements
# ---------------------------------------------------------------------------------------------


def _precedes(c: BlockComputation) -> str:
    """Return the function that says whether an element is before another, the largest first."""
    name = "larger" if c.x.dtype.is_float else "larger_integer"
    c.needs.add(name)
    return name


def _argmax(c: BlockComputation) -> list[str]:
    dim = str(c.op.integer("dim"))
    outer, inner = c.loops(i for i in c.structure.result if i != dim), c.loops([dim])
    outer, (out, x) = merged(outer, [c.out(), *c.inputs()])
    variable = c.variables[dim]
    test = f"{_precedes(c)}({x.value()}, {x.value({variable: 'first'})})"
    found = nested(inner, [f"if ({test}) first = {variable};"]) if inner else []
    return nested(outer, ["size_t first = 0;", *found, out.store("first")])


def _ranked(c: BlockComputation, positions: bool) -> list[str]:
    """Return the statements that find the largest elements, each behind the one before.

    Args:
        positions: whether the result is their positions.
    """
    dim = str(c.op.integer("dim"))
    inner, ranks = c.variables[dim], c.variables["k"]
    outer = c.loops(i for i in c.structure.result if i != "k")
    outer, (out, x) = merged(outer, [c.out(), *c.inputs()])
    count, size = size_text(c.sizes["k"]), size_text(c.sizes[dim])
    precedes = _precedes(c)
    here, before, best = (x.value(at) for at in (None, {inner: "before"}, {inner: "best"}))
    taken = f"{precedes}({here}, {before}) || (!{precedes}({before}, {here}) && {inner} <= before)"
    written = out.store("best") if positions else f"{out.element()} = {x.element({inner: 'best'})};"
    return nested(
        outer,
        [
            f"size_t before = {size};",
            f"for (size_t {ranks} = 0; {ranks} < {count}; ++{ranks}) {{",
            f"  size_t best = {size};",
            f"  for (size_t {inner} = 0; {inner} < {size}; ++{inner}) {{",
            f"    if (before < {size} && ({taken})) continue;",
            f"    if (best == {size} || {precedes}({here}, {best})) best = {inner};",
            "  }",
            f"  {written}",
            "  before = best;",
            "}",
        ],
    )


# ---------------------------------------------------------------------------------------------
# By integers
# ---------------------------------------------------------------------------------------------


def _position(chosen: str, start: str) -> str:
    """Return the statement that sets ``at`` to a position in this rank's block."""
    text = f"(int64_t){chosen}"
    return f"int64_t at = {text};" if start == "0" else f"int64_t at = {text} - (int64_t)({start});"


def _take(c: BlockComputation) -> list[str]:
    dim, shape = c.op.integer("dim"), c.before
    rows, run = math.prod(shape[:dim]), math.prod(shape[dim + 1 :])
    count = math.prod(c.operands[1].local_shape(c.mesh))
    loops = [CLoop("row", rows), CLoop("n", count)]
    loops = [loop for loop in loops if not is_one(loop.size)]
    table = Array.of("x", c.x.dtype, (rows, shape[dim], run), ("row", "at", "i"))
    out = Array.of(OUT, c.x.dtype, (rows, count, run), ("row", "n", "i"))
    inside = f"at >= 0 && at < (int64_t)({size_text(shape[dim])})"
    at = _position("y[n]" if loops and loops[-1].variable == "n" else "y[0]", c.starts[dim])
    source, size = table.place(["row"]), size_text(run * c.x.dtype.bytes)
    step = f"(size_t)at * {factor_text(run)}" if not is_one(run) else "(size_t)at"
    to = out.place(["row", "n"])
    if is_one(shape[dim]):
        step = "0"
    return nested(
        loops,
        [
            at,
            f"if ({inside}) memcpy({to}, {source} + {step}, {size});",
            f"else memset({to}, 0, {size});",
        ],
    )


def _take_transpose(c: BlockComputation) -> list[str]:
    dim, shape = c.op.integer("dim"), c.after
    rows, run, size = math.prod(shape[:dim]), math.prod(shape[dim + 1 :]), shape[dim]
    count = math.prod(c.operands[1].local_shape(c.mesh))
    g = Array.of("x", c.x.dtype, (rows, count, run), ("row", "n", "i"))
    out = Array.of(OUT, c.x.dtype, (rows, size, run), ("row", "at", "i"))
    loops = [CLoop("row", rows), CLoop("n", count), CLoop("i", run)]
    row, chosen, inner = ([x] if not is_one(x.size) else [] for x in loops)
    c.use(c.x.dtype)
    inside = f"at >= 0 && at < (int64_t)({size_text(size)})"
    at = _position("y[n]" if chosen else "y[0]", c.starts[dim])
    if chosen and c.x.dtype.is_short:
        body = [at, f"if (!({inside})) continue;", *_row_sums(out, g, count, run)]
        start = f"memset({OUT}, 0, {size_text(math.prod(shape) * c.x.dtype.bytes)});"
        return [start, *nested([*row, *chosen], body)]
    added = out.store(f"{out.number({'at': '(size_t)at'})} + {g.number()}")
    added = added.replace(out.offset(), out.offset({"at": "(size_t)at"}), 1)
    return [
        f"memset({OUT}, 0, {size_text(math.prod(shape) * c.x.dtype.bytes)});",
        *nested(
            [*row, *chosen],
            [at, f"if ({inside})", *(f"  {line}" for line in nested(inner, [added]))],
        ),
    ]


def _row_sums(out: Array, g: Array, count: int, run: int) -> list[str]:
    """Return the statements that add all slices at the position of slice ``n`` in f32, if it is the
    first of them."""
    columns = 256
    place = {"at": "(size_t)at", "i": "(first + i)"}
    every = "for (size_t i = 0; i < width; ++i)"
    total = out.store("sums[i]").replace(out.offset(), out.offset(place), 1)
    return [
        "size_t before = 0;",
        "while (y[before] != y[n]) ++before;",
        "if (before < n) continue;",
        f"for (size_t first = 0; first < {size_text(run)}; first += {columns}) {{",
        f"  size_t left = {size_text(run)} - first, width = left < {columns} ? left : {columns};",
        f"  float sums[{columns}];",
        f"  {every} sums[i] = 0;",
        f"  for (size_t m = n; m < {size_text(count)}; ++m)",
        f"    if (y[m] == y[n]) {every} sums[i] += {g.number({'n': 'm', 'i': '(first + i)'})};",
        f"  {every} {total}",
        "}",
    ]


def _take_along(c: BlockComputation) -> list[str]:
    dim = c.op.integer("dim")
    loops, out, (x, y) = c.loops(c.structure.result), c.out(), c.inputs()
    found = x.element({c.variables[str(dim)]: "(size_t)at"})
    inside = f"at >= 0 && at < (int64_t)({size_text(c.before[dim])})"
    at = _position(y.element(), c.starts[dim])
    return nested(loops, [at, f"{out.element()} = {inside} ? {found} : 0;"])


def _take_along_transpose(c: BlockComputation) -> list[str]:
    dim, index = c.op.integer("dim"), str(c.op.integer("dim"))
    outer = c.loops(i for i in c.structure.result if i != index)
    out, (g, y) = c.out(), c.inputs()
    chosen, start, place = c.loops(["k"]), c.starts[dim], c.variables[index]
    if c.x.dtype.is_short:  # a sum is rounded once
        own = c.loops([index])
        here = f"{place} + {start}" if own else start
        same = f"(int64_t){y.element()} == (int64_t)({here})"
        added = nested(chosen, [f"if ({same}) sum += {g.number()};"])
        return nested([*outer, *own], ["float sum = 0;", *added, out.store("sum")])
    at, there = _position(y.element(), start), {place: "(size_t)at"}
    total = out.store(f"{out.number(there)} + {g.number()}")
    total = total.replace(out.offset(), out.offset(there), 1)
    inside = f"if (at >= 0 && at < (int64_t)({size_text(c.after[dim])}))"
    cleared = f"memset({OUT}, 0, {size_text(math.prod(c.after) * c.x.dtype.bytes)});"
    return [cleared, *nested([*outer, *chosen], [at, inside, f"  {total}"])]


# ---------------------------------------------------------------------------------------------
# Products of groups
# ---------------------------------------------------------------------------------------------


def _grouped_matmul(c: BlockComputation) -> list[str]:
    out, (x, w, y) = c.out(), c.inputs()
    rows, columns, inner = c.loops(c.structure.operands[2]), c.loops(["o"]), c.loops(["i"])
    rows, (out, x, y) = merged(rows, [out, x, y])
    at = _position(y.element(), c.starts[0])
    inside = f"at >= 0 && at < (int64_t)({size_text(c.sizes['e'])})"
    product = f"{x.number()} * {w.number({c.variables['e']: '(size_t)at'})}"
    if c.x.dtype.is_short or "transposed" in c.op.properties:  # sums of neighbours
        start = f"{number_type(c.x.dtype)} sum = 0;"
        added = nested(inner, [f"sum += {product};"])
        sums = [start, f"if ({inside})", *(f"  {line}" for line in added), out.store("sum")]
        return nested(rows, [at, *nested(columns, sums)])
    added = nested([*inner, *columns], [out.store(f"{out.number()} + {product}")])
    cleared = f"memset({OUT}, 0, {size_text(math.prod(c.after) * c.x.dtype.bytes)});"
    body = [at, f"if ({inside})", *(f"  {line}" for line in added)]
    return [cleared, *nested(rows, body)]


def _grouped_matmul_transpose(c: BlockComputation) -> list[str]:
    out, (x, g, y) = c.out(), c.inputs()
    rows, (x, g, y) = merged(c.loops(c.structure.operands[2]), [x, g, y])
    product, start, group = f"{x.number()} * {g.number()}", c.starts[0], c.variables["e"]
    if c.x.dtype.is_short:  # a sum is rounded once
        here = f"{group} + {start}" if c.loops(["e"]) else start
        added = nested(
            rows, [f"if ((int64_t){y.element()} == (int64_t)({here})) sum += {product};"]
        )
        return nested(c.loops("eio"), ["float sum = 0;", *added, out.store("sum")])
    at, own = _position(y.element(), start), {group: "(size_t)at"}
    total = out.store(f"{out.number(own)} + {product}").replace(out.offset(), out.offset(own), 1)
    inside = f"if (at >= 0 && at < (int64_t)({size_text(c.after[0])}))"
    added = [f"  {line}" for line in nested(c.loops("io"), [total])]
    cleared = f"memset({OUT}, 0, {size_text(math.prod(c.after) * c.x.dtype.bytes)});"
    return [cleared, *nested(rows, [at, inside, *added])]


def _one_hot(c: BlockComputation) -> list[str]:
    last = len(c.after) - 1
    out, (x,) = c.out(), c.inputs()
    start, position = c.starts[last], c.variables["to"]
    inner = c.loops(["to"])
    outer, (out, x) = merged(c.loops(c.structure.result[:-1]), [out, x])
    number = f"(int64_t){position}" if inner else "0"
    same = f"at == {number}"
    return nested(outer, [_position(x.element(), start), *nested(inner, [out.store(same)])])


def _cross_entropy(c: BlockComputation) -> list[str]:
    dim = str(c.op.integer("dim"))
    inner = c.loops([dim])
    variable, size = c.variables[dim], size_text(c.sizes[dim])
    outer, (out, x, y) = merged(c.loops(c.structure.result), [c.out(), *c.inputs()])
    kind = value_type(x.dtype)
    chosen = x.value({variable: "(size_t)at"})
    taken = larger(">", x.dtype, "a", "most")
    return nested(
        outer,
        [
            f"int64_t at = (int64_t){y.element()};",
            f"{kind} most = -INFINITY, sum = 0;",
            *block(inner, [f"{kind} a = {x.value()};", f"if ({taken}) most = a;"]),
            *nested(inner, [f"sum += exp{c.function}({x.value()} - most);"]),
            f"if (at >= 0 && at < (int64_t)({size}))",
            f"  sum = log{c.function}(sum) - ({chosen} - most);",
            "else",
            "  sum = 0;",
            out.store("sum"),
        ],
    )


SELECTIONS: dict[str, Body] = {
    "argmax": _argmax,
    "top_k": lambda c: _ranked(c, positions=False),
    "top_k_indices": lambda c: _ranked(c, positions=True),
    "take": _take,
    "take_transpose": _take_transpose,
    "take_along_dim": _take_along,
    "take_along_dim_transpose": _take_along_transpose,
    "grouped_matmul": _grouped_matmul,
    "grouped_matmul_transpose": _grouped_matmul_transpose,
    "one_hot": _one_hot,
    "cross_entropy": _cross_entropy,
}
"""The statements of the kernels, by the names of the operations."""
