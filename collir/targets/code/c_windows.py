"""The loop nests of operations that look through windows, in C.

Windows are over the dimensions between the first and the last. Position p of window w in a
dimension is element w * stride + p - padding; where there is none, the padding, it is left out.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from collir.layout import DistType
from collir.targets.code.c_folds import TermFold, extreme, larger, total
from collir.targets.code.c_kernels import OUT, BlockComputation, Body
from collir.targets.code.c_nest import Array, CLoop, block, is_one, nested, number_type, value_type
from collir.targets.code.c_text import factor_text, size_text


@dataclass(frozen=True)
class _Windows:
    """The variables of an operation that looks through windows.

    Attributes:
        at: that of the windows, in each dimension.
        own: that of the positions in a window.
        element: that of the elements.
        counts, window, sizes: the numbers of these.
        stride, padding: where windows are.
    """

    at: list[str]
    own: list[str]
    element: list[str]
    counts: list[int]
    window: list[int]
    sizes: list[int]
    stride: Sequence[int]
    padding: Sequence[int]

    @staticmethod
    def of(
        c: BlockComputation, counts: Sequence[int], window: Sequence[int], sizes: Sequence[int]
    ) -> "_Windows":
        """Return the variables for windows over elements of some sizes."""
        at, own, element = ([f"{name}{d}" for d in range(1, len(window) + 1)] for name in "iwe")
        stride, padding = c.op.sizes("stride"), c.op.sizes("padding")
        return _Windows(at, own, element, [*counts], [*window], [*sizes], stride, padding)

    def elements_of_windows(self) -> list[CLoop]:
        """Return the loops over the positions of a window that are elements."""
        return [CLoop(own, self.window[d], *self._element(d)) for d, own in enumerate(self.own)]

    def windows_with_elements(self) -> list[CLoop]:
        """Return the loops over the windows that have an element at a position."""
        return [CLoop(at, self.counts[d], *self._element(d)) for d, at in enumerate(self.at)]

    def _element(self, d: int) -> tuple[tuple[str, ...], bool]:
        """Return the statements that set an element, and whether they may end the iteration."""
        step, more, element = self.stride[d], self.padding[d], self.element[d]
        if is_one(self.sizes[d]) and not more:
            return (), False
        at = self.at[d] if step == 1 else f"{self.at[d]} * {step}"
        terms = [at] if self.counts[d] != 1 else []
        terms += [self.own[d]] if self.window[d] != 1 else []
        text = f"size_t {element} = {' + '.join(terms) or 0}"
        if not more:
            return (f"{text};",), False
        beyond = f"if ({element} >= {size_text(self.sizes[d])}) continue;"
        return (f"{text} - {more};", beyond), True  # below 0 is a large number

    def windows_of_elements(self) -> list[CLoop]:
        """Return the loops over the positions at which an element is in a window."""
        return [CLoop(own, self.window[d], *self._window(d)) for d, own in enumerate(self.own)]

    def _window(self, d: int) -> tuple[tuple[str, ...], bool]:
        """Return the statements that set a window, and whether they may end the iteration."""
        step, more, at, count = self.stride[d], self.padding[d], self.at[d], self.counts[d]
        terms = [self.element[d]] if self.sizes[d] != 1 else []
        text = " + ".join([*terms, *([str(more)] if more else [])]) or "0"
        if self.window[d] != 1:
            text += f" - {self.own[d]}"  # below 0 is a large number
        if step > 1:
            left = f"if ({at} % {step} || {at} / {step} >= {factor_text(count)}) continue;"
            return (f"size_t {at} = {text};", left, f"{at} /= {step};"), True
        if self.window[d] == 1:
            return () if is_one(count) else (f"size_t {at} = {text};",), False
        return (f"size_t {at} = {text};", f"if ({at} >= {factor_text(count)}) continue;"), True

    def over_windows(self) -> list[CLoop]:
        """Return the loops over the windows."""
        return [CLoop(v, n) for v, n in zip(self.at, self.counts, strict=True)]

    def over_elements(self) -> list[CLoop]:
        """Return the loops over the elements."""
        return [CLoop(v, n) for v, n in zip(self.element, self.sizes, strict=True)]


def _array(c: BlockComputation, name: str, x: DistType, variables: Sequence[str]) -> Array:
    c.use(x.dtype)
    return Array.of(name, x.dtype, x.local_shape(c.mesh), variables)


def _needed(loops: Sequence[CLoop]) -> list[CLoop]:
    """Return the loops with more than one iteration, or with statements at their beginning."""
    return [loop for loop in loops if loop.first or not is_one(loop.size)]


def _shape(c: BlockComputation, operand: int) -> tuple[int, ...]:
    return c.operands[operand].local_shape(c.mesh)


# ---------------------------------------------------------------------------------------------
# Convolutions
# ---------------------------------------------------------------------------------------------


def _conv(c: BlockComputation) -> list[str]:
    filters = _shape(c, 1)
    w = _Windows.of(c, c.after[1:-1], filters[:-2], c.before[1:-1])
    x = _array(c, "x", c.x, ["n", *w.element, "channel"])
    y = _array(c, "y", c.operands[1], [*w.own, "channel", "feature"])
    out = _array(c, OUT, c.result, ["n", *w.at, "feature"])
    outer = [CLoop("n", c.after[0]), *w.over_windows(), CLoop("feature", c.after[-1])]
    inner = [*w.elements_of_windows(), CLoop("channel", filters[-2])]
    return total(out, _needed(outer), _needed(inner), [x, y]).lines()


def _conv_transpose(c: BlockComputation) -> list[str]:
    filters = _shape(c, 1)
    w = _Windows.of(c, c.before[1:-1], filters[:-2], c.after[1:-1])
    x = _array(c, "x", c.x, ["n", *w.at, "feature"])
    y = _array(c, "y", c.operands[1], [*w.own, "channel", "feature"])
    out = _array(c, OUT, c.result, ["n", *w.element, "channel"])
    outer = [CLoop("n", c.after[0]), *w.over_elements(), CLoop("channel", c.after[-1])]
    inner = [*w.windows_of_elements(), CLoop("feature", filters[-1])]
    return total(out, _needed(outer), _needed(inner), [x, y]).lines()


def _conv_filter(c: BlockComputation) -> list[str]:
    made = _shape(c, 1)
    w = _Windows.of(c, made[1:-1], c.after[:-2], c.before[1:-1])
    x = _array(c, "x", c.x, ["n", *w.element, "channel"])
    y = _array(c, "y", c.operands[1], ["n", *w.at, "feature"])
    out = _array(c, OUT, c.result, [*w.own, "channel", "feature"])
    sides = [CLoop("channel", c.after[-2]), CLoop("feature", c.after[-1])]
    outer = [*(CLoop(v, n) for v, n in zip(w.own, w.window, strict=True)), *sides]
    inner = [CLoop("n", made[0]), *w.windows_with_elements()]
    return total(out, _needed(outer), _needed(inner), [x, y]).lines()


# ---------------------------------------------------------------------------------------------
# Pools
# ---------------------------------------------------------------------------------------------


def _pool(c: BlockComputation) -> tuple[_Windows, Array, Array, list[CLoop]]:
    """Return the windows of a pool, its result and operand, and the loops over the result."""
    w = _Windows.of(c, c.after[1:-1], c.op.sizes("window"), c.before[1:-1])
    x = _array(c, "x", c.x, ["n", *w.element, "channel"])
    out = _array(c, OUT, c.result, ["n", *w.at, "channel"])
    outer = [CLoop("n", c.after[0]), *w.over_windows(), CLoop("channel", c.after[-1])]
    return w, out, x, _needed(outer)


def _max_pool(c: BlockComputation) -> list[str]:
    w, out, x, outer = _pool(c)
    return extreme(">", out, outer, w.elements_of_windows(), x).lines()


def _count(c: BlockComputation) -> str:
    """Return the number of positions of a window."""
    return str(math.prod(c.op.sizes("window")))


def _avg_pool(c: BlockComputation) -> list[str]:
    w, out, x, outer = _pool(c)
    return total(out, outer, w.elements_of_windows(), [x], f"{{0}} / {_count(c)}").lines()


def _avg_pool_transpose(c: BlockComputation) -> list[str]:
    w = _Windows.of(c, c.before[1:-1], c.op.sizes("window"), c.after[1:-1])
    x = _array(c, "x", c.x, ["n", *w.at, "channel"])
    out = _array(c, OUT, c.result, ["n", *w.element, "channel"])
    outer = [CLoop("n", c.after[0]), *w.over_elements(), CLoop("channel", c.after[-1])]
    return TermFold(
        out,
        _needed(outer),
        w.windows_of_elements(),
        [x],
        lambda read: f"{read[0].number()} / {_count(c)}",
        number_type(out.dtype),
        "0",
        lambda to, term: [f"{to} += {term};"],
    ).lines()


def _max_pool_transpose(c: BlockComputation) -> list[str]:
    w = _Windows.of(c, c.before[1:-1], c.op.sizes("window"), c.after[1:-1])
    g = _array(c, "x", c.x, ["n", *w.at, "channel"])
    x = _array(c, "y", c.operands[1], ["n", *w.element, "channel"])
    out = _array(c, OUT, c.result, ["n", *w.element, "channel"])
    outer = [CLoop("n", c.after[0]), *w.over_windows(), CLoop("channel", c.after[-1])]
    kind, positions = value_type(x.dtype), w.elements_of_windows()
    taken = larger(">", x.dtype, "a", "most")
    largest = extreme(">", out, [], positions, x)
    added = out.store(f"{out.number()} + {g.number()}")
    return [
        f"memset({OUT}, 0, {size_text(math.prod(c.after) * c.result.dtype.bytes)});",
        *nested(
            _needed(outer),
            [
                "int found = 0;",
                f"{kind} most = {largest.start};",
                *block(positions, [f"{kind} a = {x.value()};", f"if ({taken}) most = a;"]),
                *block(
                    positions,
                    [f"if (!found && {x.value()} == most) {{", f"  {added}", "  found = 1;", "}"],
                ),
            ],
        ),
    ]


WINDOWS: dict[str, Body] = {
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "conv_filter": _conv_filter,
    "max_pool": _max_pool,
    "max_pool_transpose": _max_pool_transpose,
    "avg_pool": _avg_pool,
    "avg_pool_transpose": _avg_pool_transpose,
}
"""The statements of the kernels, by the names of the operations."""
