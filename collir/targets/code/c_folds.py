"""Loop nests in C that fold terms over the indices that a result lacks.

An einsum, a reduction, a convolution and the sums of a pool are such nests. Where the last index of
the result is the innermost loop of all arrays too, the sums of a row are computed together, so that
all arrays are read in order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from collir.layout import DType
from collir.layout.cuts import Extent
from collir.layout.sizes import OpenSize
from collir.targets.code.c_nest import Array, CLoop, block, is_one, nested, number_type, value_type
from collir.targets.code.c_text import size_text

_COLUMNS = 256
"""The most sums of a row that are computed together."""


@dataclass(frozen=True)
class TermFold:
    """A fold of terms.

    Attributes:
        out: the result.
        outer, inner: the loops over the indices of the result, and over those that it lacks.
        arrays: the operands.
        term: a function of the arrays, as the loops have them, to a term.
        kind: the C type of what is folded.
        start: the number to begin with.
        combine: a function of a variable and a term to the statements that fold the term into it.
        finish: the result as an expression of ``{0}``, what was folded.
    """

    out: Array
    outer: Sequence[CLoop]
    inner: Sequence[CLoop]
    arrays: Sequence[Array]
    term: Callable[[Sequence[Array]], str]
    kind: str
    start: str
    combine: Callable[[str, str], list[str]]
    finish: str = "{0}"

    def lines(self) -> list[str]:
        """Return the loop nest."""
        if not self.inner:
            return nested(self.outer, [self.out.store(self.finish.format(self.term(self.arrays)))])
        if self._has_rows():
            return self._by_rows()
        return nested(
            self.outer,
            [
                f"{self.kind} sum = {self.start};",
                *block(self.inner, self.combine("sum", self.term(self.arrays))),
                self.out.store(self.finish.format("sum")),
            ],
        )

    def _has_rows(self) -> bool:
        """Return whether the last loop over the result goes through all arrays in order."""
        if not self.outer or self.outer[-1].first:
            return False
        last = self.outer[-1].variable
        strides = [array.strides.get(last) for array in (self.out, *self.arrays)]
        used = any(last in line for loop in self.inner for line in loop.first)
        return not used and all(n is None or is_one(n) for n in strides) and strides[0] is not None

    def _by_rows(self) -> list[str]:
        """Return the nest with an array of sums, for the last loop over the result."""
        *outer, last = self.outer
        size = size_text(last.size)
        if not isinstance(last.size, Extent | OpenSize) and last.size <= _COLUMNS:
            return nested(outer, [f"{self.kind} sums[{size}];", *self._row(last.variable, size)])
        cut = [
            f"for (size_t first = 0; first < {size}; first += {_COLUMNS}) {{",
            f"  size_t left = {size} - first, width = left < {_COLUMNS} ? left : {_COLUMNS};",
            f"  {self.kind} sums[{_COLUMNS}];",
            *(f"  {line}" for line in self._row(last.variable, "width", "first")),
            "}",
        ]
        return nested(outer, cut, whole=True)

    def _row(self, name: str, width: str, first: str = "") -> list[str]:
        """Return the statements that compute the sums of a row.

        Args:
            first: the variable of the first column, if the row is cut into several.
        """
        head = f"for (size_t {name} = 0; {name} < {width}; ++{name})"
        arrays = [_from(array, name, first) for array in self.arrays]
        finished = _from(self.out, name, first).store(self.finish.format(f"sums[{name}]"))
        combined = self.combine(f"sums[{name}]", self.term(arrays))
        row = [head, f"  {combined[0]}"]
        if len(combined) > 1:
            row = [f"{head} {{", *(f"  {line}" for line in combined), "}"]
        return [
            head,
            f"  sums[{name}] = {self.start};",
            *nested(self.inner, row, whole=True),
            head,
            f"  {finished}",
        ]


def _from(array: Array, variable: str, first: str) -> Array:
    """Return an array in which a loop begins at a variable."""
    if not first or variable not in array.strides:
        return array
    return replace(array, strides={**array.strides, first: 1})


LOWEST = {
    DType.F16: "-INFINITY",
    DType.BF16: "-INFINITY",
    DType.F32: "-INFINITY",
    DType.F64: "-INFINITY",
    DType.I8: "INT8_MIN",
    DType.I32: "INT32_MIN",
    DType.I64: "INT64_MIN",
}
"""The element below all others of each type."""

HIGHEST = {
    dtype: text[1:] if dtype.is_float else text.replace("MIN", "MAX")
    for dtype, text in LOWEST.items()
}
"""The element above all others of each type."""


def larger(operator: str, dtype: DType, value: str, than: str) -> str:
    """Return the condition that a value takes the place of an extreme; one that is not a number
    does."""
    plain = f"{value} {operator} {than}"
    return f"{plain} || {value} != {value}" if dtype.is_float else plain


def extreme(
    operator: str,
    out: Array,
    outer: Sequence[CLoop],
    inner: Sequence[CLoop],
    array: Array,
) -> TermFold:
    """Return the fold to the largest (``>``) or smallest (``<``) element of an array."""
    kind = value_type(array.dtype)

    def combine(to: str, term: str) -> list[str]:
        taken = larger(operator, array.dtype, "value", to)
        return [f"{kind} value = {term};", f"if ({taken}) {to} = value;"]

    start = (LOWEST if operator == ">" else HIGHEST)[array.dtype]
    return TermFold(out, outer, inner, [array], lambda read: read[0].value(), kind, start, combine)


def total(
    out: Array,
    outer: Sequence[CLoop],
    inner: Sequence[CLoop],
    arrays: Sequence[Array],
    finish: str = "{0}",
) -> TermFold:
    """Return the fold to the sum of products of the elements of arrays."""
    return TermFold(
        out,
        outer,
        inner,
        arrays,
        lambda read: " * ".join(array.number() for array in read),
        number_type(out.dtype),
        "0",
        lambda to, term: [f"{to} += {term};"],
        finish,
    )
