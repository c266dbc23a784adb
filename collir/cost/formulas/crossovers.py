"""The sizes at which one function costs less than another: inequalities of volumes, which are sums
of products of parameters and of sizes of axes.

``first < second`` is simplified for people: common terms and positive factors are left out.
Parameters are at least 1 and axes have at least 2 devices.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, product

import sympy

from collir.cost.formulas.costs import CostFormulas
from collir.cost.formulas.functions import Expr, FormulaMissingError, Larger
from collir.cost.formulas.memory import Spare
from collir.cost.formulas.terms import text_of

NEGLIGIBLE = 1e-3
"""Up to which share of another term of its side a term is left out."""

MOST = 6
"""The largest number of inequalities of a comparison."""


@dataclass(frozen=True)
class Inequality:
    """``less < more``.

    Attributes:
        left_out: terms of ``less - more`` that are negligible at the sizes of the program.
    """

    less: Expr
    more: Expr
    left_out: Expr = sympy.S.Zero

    def __str__(self) -> str:
        return f"{text_of(self.less)} < {text_of(self.more)}"


@dataclass(frozen=True)
class Comparison:
    """The sizes for which one function has less of a cost than another.

    Attributes:
        cost: one of ``COSTS``.
        conditions: at least one inequality of each of them has to hold. No conditions: the first
            function always has less.
        is_equal: whether both functions always have the same.
    """

    first: str
    second: str
    cost: str
    conditions: tuple[tuple[Inequality, ...], ...]
    is_equal: bool = False

    @property
    def is_always(self) -> bool:
        """True if the first function has less for all sizes."""
        return not self.conditions and not self.is_equal

    @property
    def is_never(self) -> bool:
        """True if the first function has less for no sizes."""
        return self.is_equal or not all(self.conditions)

    @property
    def where(self) -> str:
        """The condition as text: ``always``, ``never``, or inequalities."""
        if self.is_never:
            return "never"
        if self.is_always:
            return "always"
        alternatives = [" or ".join(map(str, some)) for some in self.conditions]
        if len(alternatives) == 1:
            return alternatives[0]
        return " and ".join(f"({x})" if " or " in x else x for x in alternatives)

    def __str__(self) -> str:
        less, same = VERBS[self.cost]
        if self.is_equal:
            return f"@{self.first} and @{self.second} {same}"
        if self.is_always or self.is_never:
            return f"@{self.first} {self.where} {less} than @{self.second}"
        return f"@{self.first} {less} than @{self.second} for {self.where}"


VERBS = {
    "sent": ("sends less", "send the same"),
    "messages": ("sends fewer messages", "send as many messages"),
    "flops": ("computes less", "compute the same"),
    "moved": ("reads and writes less", "read and write the same"),
    "held": ("holds less", "hold the same"),
    "memory": ("needs less memory", "need the same memory"),
}
"""The verbs of comparisons by cost: to have less, and to have the same."""

COSTS = tuple(VERBS)
"""The costs that are compared: bytes sent, messages, floating-point operations, bytes of memory
read and written, bytes of arguments, and the most bytes of a device."""


def compared(
    first: CostFormulas,
    second: CostFormulas,
    cost: str = "sent",
    over: str = "",
    per: str = "",
    **values: int,
) -> Comparison:
    """Return where one function has less of a cost than another one.

    Args:
        cost: one of ``COSTS``.
        over: an axis; bytes and messages count if they are sent over it, alone or with others.
        per: a parameter, such as the number of layers; only costs that grow with it count.
        values: the values of some parameters and axes; the others stay symbols.

    Raises:
        FormulaMissingError: the answer is more than a few inequalities.
    """
    defaults = {**second.values, **first.values, **values}
    signs = _Signs(frozenset({*first.axes, *second.axes}))
    left, right = (_largest_of(f, cost, over, per, values) for f in (first, second))
    if {*left} == {*right}:
        return Comparison(first.name, second.name, cost, (), True)
    conditions: dict[tuple[Inequality, ...], None] = {}
    for a in left:
        some = [_inequality(a - b, signs, defaults) for b in right]
        if True not in some:
            inequalities = {x for x in some if isinstance(x, Inequality)}
            conditions[tuple(sorted(inequalities, key=str))] = None
        if sum(map(len, conditions)) > MOST:
            raise FormulaMissingError(
                f"where @{first.name} has less of '{cost}' than @{second.name} takes more than"
                f" {MOST} inequalities: compare what grows with one parameter, or give sizes values"
            )
    return Comparison(first.name, second.name, cost, tuple(conditions))


def equal_costs(
    functions: Sequence[CostFormulas],
    cost: str = "sent",
    over: str = "",
    per: str = "",
    **values: int,
) -> list[list[CostFormulas]]:
    """Return functions in groups with always equal costs; see ``compared``."""
    groups: dict[frozenset[Expr], list[CostFormulas]] = {}
    for formulas in functions:
        sums = frozenset(_largest_of(formulas, cost, over, per, values))
        groups.setdefault(sums, []).append(formulas)
    return [*groups.values()]


def comparisons(
    functions: Sequence[CostFormulas],
    cost: str = "sent",
    over: str = "",
    per: str = "",
    **values: int,
) -> list[Comparison]:
    """Return the comparison of every two functions; see ``compared``."""
    pairs = combinations(functions, 2)
    return [either_less(first, second, cost, over, per, **values) for first, second in pairs]


def either_less(
    first: CostFormulas,
    second: CostFormulas,
    cost: str = "sent",
    over: str = "",
    per: str = "",
    **values: int,
) -> Comparison:
    """Return where the first function has less of a cost. If it never has, return where the second
    one does; see ``compared``."""
    comparison = compared(first, second, cost, over, per, **values)
    if comparison.is_never and not comparison.is_equal:
        return compared(second, first, cost, over, per, **values)
    return comparison


def volume(formulas: CostFormulas, cost: str, over: str = "") -> Expr:
    """Return a cost of a function as an expression; see ``compared``.

    Raises:
        ValueError: there is no such cost.
    """
    sums: dict[str, Callable[[], Iterable[Expr]]] = {
        "sent": lambda: _over(formulas.sent, over),
        "messages": lambda: _over(formulas.messages, over),
        "flops": lambda: formulas.work.values(),
        "moved": lambda: (formulas.moved,),
        "held": lambda: formulas.held.values(),
        "memory": lambda: (formulas.memory.replace(Spare, lambda *_: sympy.S.One),),
    }
    if cost not in sums:
        raise ValueError(f"costs are {', '.join(COSTS)}, not '{cost}'")
    return sympy.Add(*sums[cost]())


def growth(formulas: CostFormulas, cost: str, per: str, over: str = "") -> Expr:
    """Return the part of a cost that grows with a parameter, for each unit of this parameter.

    Raises:
        ValueError: there is no such cost.
    """
    signs = _Signs(frozenset(formulas.axes))
    sums = _undominated(_sums(volume(formulas, cost, over), per), signs)
    return sums[0] if len(sums) == 1 else Larger(*sums)


def _over(by_axes: Mapping[tuple[str, ...], Expr], axis: str) -> Iterator[Expr]:
    for axes, amount in by_axes.items():
        if not axis or axis in axes:
            yield amount


# --- the largest of several sums ----------------------------------------------------------------


def _largest_of(
    formulas: CostFormulas, cost: str, over: str, per: str, values: Mapping[str, int]
) -> list[Expr]:
    """Return the sums whose largest is a cost at some values; see ``compared``."""
    sizes = [(sympy.Symbol(name, positive=True), value) for name, value in values.items()]
    expr = sympy.sympify(volume(formulas, cost, over).subs(sizes))
    sums = _undominated(_sums(expr, per), _Signs(frozenset(formulas.axes)))
    return [sympy.expand(x) for x in sums]


def _sums(expr: Expr, per: str) -> list[Expr]:
    """Return the sums whose maximum is an expression; with ``per``, their growth for each unit of
    this parameter."""
    alternatives = _alternatives(expr)
    if not per:
        return alternatives
    parameter = sympy.Symbol(per, positive=True)
    return list(dict.fromkeys(sympy.expand(x).coeff(parameter) for x in alternatives))


def _alternatives(expr: Expr) -> list[Expr]:
    """Return expressions without ``Larger`` whose maximum is the expression."""
    match expr:
        case Larger():
            return [x for part in expr.args for x in _alternatives(part)]
        case sympy.Add() if expr.has(Larger):
            parts = [_alternatives(part) for part in expr.args]
            return [sympy.Add(*terms) for terms in product(*parts)]
        case _ if expr.has(Larger):
            raise FormulaMissingError(f"{expr} is not the largest of some sums")
        case _:
            return [expr]


def _undominated(exprs: Sequence[Expr], signs: "_Signs") -> list[Expr]:
    """Return the expressions that can be the largest: those never below another one are dropped."""
    kept: list[Expr] = []
    for expr in exprs:
        if any(signs.of(other - expr) in (0, 1) for other in kept):
            continue
        kept = [other for other in kept if signs.of(expr - other) != 1] + [expr]
    return kept


# --- differences --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Signs:
    """Signs of expressions for all sizes, if they have one.

    Attributes:
        axes: the names of axes.
    """

    axes: frozenset[str]

    def of(self, expr: Expr) -> int | None:
        """Return the sign of an expression for all sizes: 1, 0 or -1; None if it varies.

        Each symbol is its least value and a number that is not negative: an expression has the sign
        that all terms of its expansion have.
        """
        above, below = _fraction(expr)
        signs = self._of_sum(above), self._of_sum(below)
        return None if signs[0] is None or signs[1] is None else signs[0] * signs[1]

    def _of_sum(self, expr: Expr) -> int | None:
        symbols = sorted(expr.free_symbols, key=str)
        if not symbols:
            return int(sympy.sign(expr))
        poly = sympy.Poly(expr, *symbols)
        found = _common_sign(poly)
        if found is not None:
            return found
        return _common_sign(poly.shift_list([2 if str(x) in self.axes else 1 for x in symbols]))


def _fraction(expr: Expr) -> tuple[Expr, Expr]:
    """Return a numerator, expanded where that is quick, and a denominator."""
    expanded = sympy.expand(expr)
    below = sympy.S.One
    for term in sympy.Add.make_args(expanded):
        for base, power in term.as_powers_dict().items():
            if not base.is_Symbol and not base.is_Number:
                return sympy.fraction(sympy.together(expr))
            if base.is_Symbol and power < 0:
                below *= base ** max(0, -power - below.as_powers_dict()[base])
    return sympy.expand(expanded * below), below


def _common_sign(poly: sympy.Poly) -> int | None:
    """Return the sign that all coefficients share, or None; the constant term may be missing."""
    signs = {int(sympy.sign(number)) for number in poly.coeffs()}
    return signs.pop() if len(signs) == 1 else None


def _inequality(difference: Expr, signs: _Signs, values: Mapping[str, int]) -> Inequality | bool:
    """Return where a difference is negative: everywhere, nowhere, or where an inequality holds."""
    sign = signs.of(difference)
    if sign is not None:
        return sign < 0
    reduced = _reduced(difference, signs)
    if reduced.is_Number:
        return bool(reduced < 0)
    sides = _sides(reduced, signs)
    left_out = [_negligible(side, values) for side in sides]
    shorter = sympy.Add(sides[0], -sides[1], -sympy.Add(*left_out[0]), sympy.Add(*left_out[1]))
    shortened = _reduced(shorter, signs)
    if shortened.is_Number:  # the terms left out decide
        return Inequality(*map(sympy.factor, sides))
    less, more = _sides(shortened, signs)
    rest = sympy.Add(*left_out[0]) - sympy.Add(*left_out[1])
    return Inequality(sympy.factor(less), sympy.factor(more), rest)


def _reduced(difference: Expr, signs: _Signs) -> Expr:
    """Return an expression with the same sign, without factors that have one sign."""
    exact = (
        sympy.nsimplify(difference, rational=True) if difference.has(sympy.Float) else difference
    )
    above, below = _fraction(exact)
    number, factors = sympy.factor_list(above)
    _, factors_below = sympy.factor_list(below)
    sign, rest = sympy.sign(number), sympy.S.One
    for factor, exponent in [*factors, *((x, -n) for x, n in factors_below)]:
        own = signs.of(factor)
        if own is None:
            rest *= factor ** abs(exponent)
        else:
            sign *= own ** abs(exponent)
    return sympy.expand(sign * rest)


def _sides(difference: Expr, signs: _Signs) -> tuple[Expr, Expr]:
    """Return the parts of a difference that are added and subtracted. The coefficient of each
    product of parameters, a factor in sizes of axes, decides by its sign."""
    parameters = sorted((x for x in difference.free_symbols if str(x) not in signs.axes), key=str)
    added, subtracted = sympy.S.Zero, sympy.S.Zero
    terms = sympy.Poly(difference, *parameters).terms() if parameters else [((), difference)]
    for powers, coefficient in terms:
        monomial = sympy.Mul(*(x**n for x, n in zip(parameters, powers, strict=True)))
        sign = signs.of(coefficient)
        parts = [coefficient] if sign is not None else sympy.Add.make_args(coefficient)
        for part in parts:
            if signs.of(part) == 1:
                added += part * monomial
            else:
                subtracted -= part * monomial
    return added, subtracted


def _negligible(side: Expr, values: Mapping[str, int]) -> list[Expr]:
    """Return the terms of a sum that never exceed another one, and are far smaller at values."""
    terms = sympy.Add.make_args(sympy.expand(side))
    return [small for small in terms if any(_is_far_less(small, x, values) for x in terms)]


def _is_far_less(small: Expr, large: Expr, values: Mapping[str, int]) -> bool:
    ratio = large / small
    number, symbols = ratio.as_coeff_Mul()
    if number < 1 or any(power < 0 for power in symbols.as_powers_dict().values()):
        return False
    return float(ratio.subs({x: values[str(x)] for x in ratio.free_symbols})) > 1 / NEGLIGIBLE
