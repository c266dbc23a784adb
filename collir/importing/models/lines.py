"""The lines of a function, as rows of operations write them.

A value knows its shape in the framework and its written shape. If these differ, it is repeated
along dimensions of size 1 when that is needed; operations on elements do it by themselves.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from collir.importing.models.graph import Shaped

_LONG = 30
"""The most characters of a name that is taken from all of a path."""

_ONE = re.compile(
    r"\s*%(\w+) = (?:reshape|transpose|constant|iota|cast|broadcast_to|where|add|less) "
)
"""A line that makes one value, and that may be left out."""

SIZES = "{sizes}"
"""Stands for the size parameters of a function and their defaults."""

GIVEN = "{given}"
"""Stands for the size parameters in a call of a function that has them."""

FLOATS = ("f64", "f32", "f16", "bf16")


@dataclass(frozen=True)
class LineValue:
    """A value of the function.

    Attributes:
        shape: its shape.
        has: the shape that it is written with, of as many dimensions: where it is 1 and ``shape``
            is more, the value is repeated.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    has: tuple[int, ...]

    @staticmethod
    def of(name: str, type: Shaped) -> "LineValue":
        """Return a value that is written as it is."""
        return LineValue(name, type.shape, type.dtype, type.shape)

    @property
    def type(self) -> str:
        """Its type as it is written, in ``.coll``."""
        return type_text(self.has, self.dtype)

    @property
    def is_float(self) -> bool:
        """Return whether its elements are floating-point numbers."""
        return self.dtype in FLOATS


def type_text(shape: Sequence[int | str], dtype: str) -> str:
    """Return a type in ``.coll``."""
    return f"{dtype}[{', '.join(map(str, shape))}]"


class Lines:
    """The lines of a function or the body of a loop.

    Attributes:
        lines: the lines so far.
        called: the functions that they call, each with its text.
        stacked: the weights of layers that are stacked, each with the record of all layers.
        is_generic: whether they are of a function for any mesh.
        sizes: the parameters that are the numbers of iterations of loops, by the ``id`` of a node.
    """

    def __init__(
        self,
        names: set[str],
        called: dict[str, str],
        indent: str = "  ",
        sizes: Mapping[int, str] = MappingProxyType({}),
        stacked: Mapping[str, str] = MappingProxyType({}),
    ):
        self.lines: list[str] = []
        self.called = called
        self.names = names
        self.sizes = sizes
        self.stacked = stacked
        self.is_generic = False
        self.hint = ""
        self._indent = indent
        self._known: dict[str, LineValue] = {}
        self._reshaped: dict[str, LineValue] = {}

    def inner(self) -> "Lines":
        """Return the lines of a body inside these, whose names are its own."""
        made = Lines(set(), self.called, self._indent + "  ", self.sizes, self.stacked)
        made.is_generic = self.is_generic
        return made

    def name(self, hint: str) -> str:
        """Return a name that no other value has."""
        hint = hint.partition(".")[2] or hint  # of a field
        hint = ".".join(hint.split(".")[-2:]) if len(hint) > _LONG else hint
        hint = re.sub(r"\W+", "_", hint, flags=re.ASCII)
        hint = re.sub(r"(_\d+)+$", "", hint.lower()) or "x"
        hint = f"x_{hint}" if hint[0].isdigit() else hint
        made, number = hint, 1
        while made in self.names:
            made, number = f"{hint}_{number}", number + 1
        self.names.add(made)
        return made

    def end(self, keyword: str, results: Sequence[LineValue]) -> None:
        """Add the last line, and leave out lines of one value that nothing reads."""
        self.raw(f"{keyword} {', '.join(f'%{x.name}' for x in results)}")
        used: set[str] = set()
        kept: list[str] = []
        for line in reversed(self.lines):
            made = _ONE.match(line)
            if made is None or made[1] in used:
                used.update(re.findall(r"%([\w.]+)", line[made.end() :] if made else line))
                kept.append(line)
        self.lines[:] = kept[::-1]

    def called_as(self, text: str, hint: str) -> str:
        """Return the name of a function to call, which equal functions share.

        Args:
            text: the function, without ``func`` and its name.
        """
        made, number = hint, 1
        while (known := self.called.get(made)) is not None and known != f"func @{made}{text}":
            made, number = f"{hint}_{number}", number + 1
        self.called[made] = f"func @{made}{text}"
        return made

    def raw(self, line: str) -> None:
        """Add a line."""
        self.lines.append(f"{self._indent}{line}")

    def step(self, text: str, shape: Iterable[int], dtype: str, hint: str = "") -> LineValue:
        """Add an operation, and return its result; equal operations are added once."""
        if text not in self._known:
            name = self.name(hint or self.hint or text.partition(" ")[0])
            self.raw(f"%{name} = {text}")
            shape = tuple(shape)
            self._known[text] = LineValue(name, shape, dtype, shape)
        return self._known[text]

    # --- numbers and positions ------------------------------------------------------------------

    def number(self, value: float, dtype: str, shape: Sequence[int] = ()) -> LineValue:
        """Return a number, as a value of some shape."""
        if isinstance(value, float) and math.isnan(value):
            most = self.number(math.inf, dtype)
            made = self.step(f"sub %{most.name}, %{most.name}", (), dtype, "nan")
            return self.reshape(made, (1,) * len(shape), shape) if shape else made
        text = f"constant value {_number(value, dtype)} to {dtype}[]"
        made = self.step(text, (), dtype, "c")
        return self.reshape(made, (1,) * len(shape), shape) if shape else made

    def iota(self, size: int, dtype: str = "i64") -> LineValue:
        """Return the numbers from 0 to below a size."""
        whole = self.step(f"iota dim 0 to i64[{size}]", (size,), "i64", "positions")
        return self.cast(whole, dtype)

    # --- shapes ---------------------------------------------------------------------------------

    def whole(self, x: LineValue) -> LineValue:
        """Return a value that is written with its shape."""
        if x.has == x.shape:
            return x
        if x.is_float:  # a product has the layout of its operand
            repeats = tuple(n if had == 1 else 1 for n, had in zip(x.shape, x.has, strict=True))
            ones = self.step(
                f"constant value 1 to {type_text(repeats, x.dtype)}", repeats, x.dtype, "ones"
            )
            return self.step(f"mul %{x.name}, %{ones.name}", x.shape, x.dtype)
        return self.step(
            f"broadcast_to %{x.name} to {type_text(x.shape, x.dtype)}", x.shape, x.dtype
        )

    def reshape(
        self, x: LineValue, has: Sequence[int], shape: Sequence[int] | None = None
    ) -> LineValue:
        """Return a value with another shape; its elements stay in order.

        Args:
            has: the shape that it is written with.
            shape: the shape that it then has; by default the same.
        """
        has, shape = tuple(has), tuple(has if shape is None else shape)
        if x.has == has:
            return replace(x, shape=shape)
        x = self._reshaped.get(x.name, x)
        if x.has == has:
            return replace(x, shape=shape)
        made = self.step(f"reshape %{x.name} to [{', '.join(map(str, has))}]", has, x.dtype, x.name)
        self._reshaped[made.name] = x
        return replace(made, shape=shape)

    def view(self, x: LineValue, shape: Sequence[int]) -> LineValue:
        """Return a value with another shape, as torch's ``view`` does."""
        shape = tuple(shape)
        if x.shape == shape:
            return x
        if x.has != x.shape:
            kept = [(n, had) for n, had in zip(x.shape, x.has, strict=True) if n != 1]
            if [n for n, _ in kept] == [n for n in shape if n != 1]:  # only sizes of 1 differ
                left = iter(kept)
                return self.reshape(x, [next(left)[1] if n != 1 else 1 for n in shape], shape)
        return self.reshape(self.whole(x), shape)

    def transpose(self, x: LineValue, order: Sequence[int]) -> LineValue:
        """Return a value with its dimensions in another order."""
        order = list(order)
        if order == sorted(order):
            return x
        has, shape = tuple(x.has[d] for d in order), tuple(x.shape[d] for d in order)
        long = [d for d in order if x.has[d] != 1]
        if long == sorted(long):
            return self.reshape(x, has, shape)
        made = self.step(
            f"transpose %{x.name} order [{', '.join(map(str, order))}]", has, x.dtype, x.name
        )
        return replace(made, shape=shape)

    def expand(self, x: LineValue, shape: Sequence[int]) -> LineValue:
        """Return a value that is repeated to a shape."""
        shape = tuple(shape)
        has = (1,) * (len(shape) - len(x.has)) + x.has
        return self.reshape(x, has, shape)

    def pad(self, x: LineValue, dim: int, low: int, high: int, value: float = 0) -> LineValue:
        """Return a value with elements added, or cut off where numbers are negative."""
        if low == high == 0:
            return x
        shape = (*x.shape[:dim], x.shape[dim] + low + high, *x.shape[dim + 1 :])
        if not math.prod(shape):
            return LineValue("", shape, x.dtype, shape)  # nothing, which no operation takes
        if x.has[dim] == 1 and low <= 0 and high <= 0:
            return replace(x, shape=shape)
        if x.has[dim] != x.shape[dim]:
            x = self.whole(x)
        has = (*x.has[:dim], x.has[dim] + low + high, *x.has[dim + 1 :])
        parts = (f" low {low}" if low else "", f" high {high}" if high else "")
        filled = f" value {_number(value, x.dtype)}" if value and max(low, high) > 0 else ""
        made = self.step(f"pad %{x.name} dim {dim}{''.join(parts)}{filled}", has, x.dtype, x.name)
        return replace(made, shape=shape)

    def cut(self, x: LineValue, dim: int, start: int, size: int) -> LineValue:
        """Return some neighbouring elements of a dimension."""
        return self.pad(x, dim, -start, start + size - x.shape[dim])

    def strided(self, x: LineValue, dim: int, start: int, stride: int, size: int) -> LineValue:
        """Return every ``stride``-th element of a dimension: the first ones of whole groups."""
        if stride == 1:
            return self.cut(x, dim, start, size)
        groups = self.pad(x, dim, -start, start + size * stride - x.shape[dim])
        apart = self.view(groups, (*x.shape[:dim], size, stride, *x.shape[dim + 1 :]))
        first = self.cut(apart, dim + 1, 0, 1)
        return self.view(first, (*x.shape[:dim], size, *x.shape[dim + 1 :]))

    def concat(self, parts: Sequence[LineValue], dim: int) -> LineValue:
        """Return values one behind the other along a dimension."""
        if len(parts) == 1:
            return parts[0]
        have = [max(x.has[d] for x in parts) for d in range(len(parts[0].shape))]
        same = [self.repeated(x, (*have[:dim], x.shape[dim], *have[dim + 1 :])) for x in parts]
        size = sum(x.shape[dim] for x in parts)
        has = (*same[0].has[:dim], size, *same[0].has[dim + 1 :])
        shape = (*parts[0].shape[:dim], size, *parts[0].shape[dim + 1 :])
        names = ", ".join(f"%{x.name}" for x in same)
        return replace(self.step(f"concat {names} dim {dim}", has, same[0].dtype), shape=shape)

    def repeated(self, x: LineValue, has: Sequence[int]) -> LineValue:
        """Return a value that is written with these sizes where it is repeated."""
        has = tuple(has)
        return replace(self.whole(replace(x, shape=has)), shape=x.shape) if x.has != has else x

    # --- elements -------------------------------------------------------------------------------

    def cast(self, x: LineValue, dtype: str) -> LineValue:
        """Return a value of another dtype."""
        if x.dtype == dtype:
            return x
        made = self.step(f"cast %{x.name} to {dtype}", x.has, dtype, x.name)
        return replace(made, shape=x.shape)

    def map(self, text: str, *values: LineValue, dtype: str = "") -> LineValue:
        """Return a function of the elements of values, which are repeated as numpy does.

        Args:
            text: an operation whose operands are ``{}``.
            dtype: that of the result; by default that of the last value.
        """
        rank = max(len(x.shape) for x in values)
        shapes = [(1,) * (rank - len(x.shape)) + x.shape for x in values]
        written = [(1,) * (rank - len(x.has)) + x.has for x in values]
        shape = tuple(_joined(sizes) for sizes in zip(*shapes, strict=True))
        has = tuple(_joined(sizes) for sizes in zip(*written, strict=True))
        names = ", ".join(f"%{x.name}" for x in values)
        made = self.step(text.format(names), has, dtype or values[-1].dtype)
        return replace(made, shape=shape)

    def scale(self, x: LineValue, factor: float) -> LineValue:
        """Return a value times a number."""
        if factor == 1:
            return x
        if factor == -1:
            return self.map("neg {}", x)
        return self.map(f"scale {{}} by {_number(factor, x.dtype)}", x)

    # --- sums and products ----------------------------------------------------------------------

    def reduce(self, kind: str, x: LineValue, dims: Sequence[int], keep: bool = False) -> LineValue:
        """Return the sum, the mean or the largest or smallest element over dimensions."""
        dims = sorted(d % len(x.shape) for d in dims) if x.shape else []
        repeated = [d for d in dims if x.has[d] != x.shape[d]]
        if repeated and kind == "sum":
            x = self.repeated(x, [x.shape[d] if d in dims else n for d, n in enumerate(x.has)])
        shape = [1 if d in dims else n for d, n in enumerate(x.shape)]
        has = [1 if d in dims else n for d, n in enumerate(x.has)]
        if dims:
            tail = " keepdims" if keep else ""
            written = [n for d, n in enumerate(has) if keep or d not in dims]
            made = self.step(
                f"{kind} %{x.name} dims [{', '.join(map(str, dims))}]{tail}", written, x.dtype
            )
        else:
            made = x
        if not keep:
            shape = [n for d, n in enumerate(shape) if d not in dims]
        return replace(made, shape=tuple(shape))

    def einsum(self, equation: str, *values: LineValue) -> LineValue:
        """Return a sum of products; a letter stands for an index."""
        before, after = equation.split("->")
        terms = before.split(",")
        sizes: dict[str, int] = {}
        for term, x in zip(terms, values, strict=True):
            for letter, size in zip(term, x.shape, strict=True):
                sizes[letter] = max(size, sizes.get(letter, 1))
        made: list[LineValue] = []
        texts: list[str] = []
        for term, x in zip(terms, values, strict=True):
            # An operand lacks the indices that it repeats, unless no other operand has them.
            used = {c for t, y in zip(terms, values, strict=True) if y is not x
                     for c, n in zip(t, y.has, strict=True) if n == sizes[c]}  # fmt: skip
            left = [n == sizes[c] or c not in used for c, n in zip(term, x.has, strict=True)]
            full = [sizes[c] if is_left else 1 for c, is_left in zip(term, left, strict=True)]
            x = self.repeated(replace(x, shape=tuple(full)), full)
            x = self.reshape(x, [n for n, is_left in zip(full, left, strict=True) if is_left])
            made.append(x)
            texts.append(" ".join(c for c, is_left in zip(term, left, strict=True) if is_left))
        kept = {c for text in texts for c in text.split()}
        equation = f"{', '.join(texts)} -> {' '.join(c for c in after if c in kept)}".strip()
        names = ", ".join(f"%{x.name}" for x in made)
        shape = [sizes[c] for c in after if c in kept]
        dtype = values[0].dtype
        result = self.step(f'einsum "{equation}" {names}', shape, dtype)
        return self.reshape(result, [sizes[c] if c in kept else 1 for c in after],
                            [sizes[c] for c in after])  # fmt: skip


def wrapped(items: Sequence[str], width: int = 90) -> str:
    """Return items with commas, on lines of some width."""
    lines = [""]
    for number, item in enumerate(items):
        text = item + (", " if number < len(items) - 1 else "")
        if len(lines[-1]) + len(text) > width:
            lines.append("")
        lines[-1] += text
    return "\n      ".join(line.rstrip() for line in lines)


def _joined(sizes: Iterable[int]) -> int:
    return max(sizes, key=lambda n: (n != 1, n))


def _number(value: float, dtype: str) -> str:
    """Return a number as ``.coll`` writes it."""
    if dtype not in FLOATS or isinstance(value, bool):
        return str(int(value))
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return repr(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(value)
