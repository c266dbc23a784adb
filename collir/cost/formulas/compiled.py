"""Expressions as functions of numpy over arrays of values."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import sympy

from collir.cost.formulas.functions import Array, Expr, Valued, symbol

BLOCK = 2**13
"""The number of rows that are computed together, so that they stay in a cache."""


def compiled(
    expressions: Sequence[Expr], names: Sequence[str], constants: Sequence[str] = ()
) -> Callable[[Mapping[str, Array | float]], list[Array]]:
    """Return a function from values by name (numbers, or arrays of one length) to the values of
    expressions.

    Args:
        names: the names of all other symbols.
        constants: the names of constants, which are mostly numbers: products multiply by them last.
    """
    names = [*names, *constants]
    lines, results = _Lines(names, constants), list[str]()
    for expr in expressions:
        results.append(lines.of(expr))
    body = "\n    ".join([*_freed(lines.lines, results), f"return [{', '.join(results)}]"])
    arguments = ", ".join(lines.arguments.values())
    scope: dict[str, Any] = dict(lines.functions)
    exec(f"def run({arguments}):\n    {body}", scope)
    run = cast("Callable[..., list[Any]]", scope["run"])

    def over_blocks(values: Mapping[str, Array | float]) -> list[Array]:
        arrays = {name: np.asarray(x) for name, x in values.items() if np.ndim(x)}
        rows = max((len(x) for x in arrays.values()), default=1)
        columns = [np.empty(rows) for _ in expressions]
        for start in range(0, rows, BLOCK):
            part = slice(start, start + BLOCK)
            own = (arrays[n][part] if n in arrays else values[n] for n in names)
            for into, result in zip(columns, run(*own), strict=True):
                into[part] = result
        return columns

    return over_blocks


def _freed(lines: Sequence[str], results: Sequence[str]) -> Iterator[str]:
    """Yield lines that delete names after their last use, so that their memory is used again."""
    last = {
        name: place for place, line in enumerate(lines) for name in re.findall(r"\bt\d+\b", line)
    }
    dead: dict[int, list[str]] = {}
    for name, place in last.items():
        if name not in results:
            dead.setdefault(place, []).append(name)
    for place, line in enumerate(lines):
        yield f"{line}; del {', '.join(dead[place])}" if place in dead else line


class _Lines:
    """Lines of code that compute each expression once."""

    def __init__(self, names: Sequence[str], constants: Sequence[str]) -> None:
        self.constants = {symbol(name) for name in constants}
        self.arguments = {name: f"v{number}" for number, name in enumerate(names)}
        self.lines: list[str] = []
        self.known: dict[Expr, str] = {}
        self.functions: dict[str, Callable[..., Any]] = {}

    def of(self, expr: Expr) -> str:
        """Return the text of an expression: a number, or a name that has its value."""
        if expr.is_Number:
            return repr(float(expr))
        if expr not in self.known:
            self.known[expr] = self._new(expr)
        return self.known[expr]

    def _new(self, expr: Expr) -> str:
        match expr:
            case sympy.Symbol():
                return self.arguments[expr.name]
            case sympy.Add():
                text = " + ".join(self._all(expr.args))
            case sympy.Mul():
                fixed, varied = self._split(expr)
                above, below = expr.as_numer_denom()
                if fixed and varied:
                    text = f"{self.of(sympy.Mul(*fixed))} * {self.of(sympy.Mul(*varied))}"
                elif below != 1 and not below.is_Number:
                    text = f"{self.of(above)} / {self.of(below)}"
                else:
                    text = " * ".join(self._all(expr.args))
            case sympy.Pow():
                base, exponent = expr.as_base_exp()
                if exponent.is_Integer and exponent < 0:
                    text = f"1.0 / {self.of(base**-exponent)}"
                elif exponent.is_Integer and exponent <= 4:
                    text = " * ".join([self.of(base)] * int(exponent))
                else:
                    text = f"{self.of(base)} ** {self.of(exponent)}"
            case Valued():
                name = type(expr).__name__
                self.functions[name] = type(expr).values
                text = f"{name}({', '.join(self._all(expr.args))})"
            case _:
                raise TypeError(f"{type(expr)} is not part of a cost")
        name = f"t{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def _split(self, expr: Expr) -> tuple[list[Expr], list[Expr]]:
        """Return the factors of a product that consist of constants, with its number, and the other
        factors. The first list is empty if there are no constants."""
        if not self.constants & expr.free_symbols:
            return [], [*expr.args]
        fixed = [x for x in expr.args if x.free_symbols <= self.constants]
        return fixed, [x for x in expr.args if x.free_symbols - self.constants]

    def _all(self, exprs: Iterable[Expr]) -> list[str]:
        return [self.of(x) for x in exprs]
