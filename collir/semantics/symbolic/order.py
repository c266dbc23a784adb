"""The order of an expression's parts, independent of the names of bound variables.

Terms, families and factors are sets. They are traversed in the order of a sort key, a text that
leaves out the names of bound variables, so equal expressions are traversed in the same order.
"""

from fractions import Fraction

from collir.semantics.symbolic.expressions import (
    Cast,
    Expr,
    Extremum,
    Family,
    Input,
    Opaque,
    Product,
    Select,
    Sum,
    Summand,
    SummedSelect,
    SummedTerm,
)
from collir.semantics.symbolic.indices import Index

# --- sorted parts -------------------------------------------------------------------------------


def sorted_terms(total: Sum) -> list[tuple[SummedTerm, Fraction]]:
    """Return the terms of a sum with their factors, in a fixed order."""
    return sorted(total.terms, key=lambda item: (sort_key(item[0].summand), item[1]))


def sorted_families(extremum: Extremum) -> list[Family]:
    """Return the families of an extremum in a fixed order."""
    return sorted(extremum.families, key=sort_key_of_family)


def sorted_factors(product: Product) -> list[tuple[Family, int]]:
    """Return the families of a product with their powers, in a fixed order."""
    return sorted(product.factors, key=lambda item: (sort_key_of_family(item[0]), item[1]))


# --- sort keys ----------------------------------------------------------------------------------


def sort_key(summand: Summand) -> str:
    """Return a text of a summand without the names of bound variables, to sort by."""
    match summand:
        case Input() | Opaque():
            at = [_key_of_index(index) for index in summand.at]
            return f"{type(summand).__name__}{summand.source}{at}"
        case Cast() | SummedSelect():
            return f"{type(summand).__name__}({_key_of_expr(summand.body)})"
        case Extremum():
            return f"{summand.reduction}{sorted(map(sort_key_of_family, summand.families))}"
        case Product():
            factors = sorted((sort_key_of_family(family), n) for family, n in summand.factors)
            return f"prod{factors}"


def sort_key_of_family(family: Family) -> str:
    """Return a text of a family without the names of bound variables, to sort by."""
    return f"{[var.size for var in family.bound]}{_key_of_expr(family.body)}"


def _key_of_expr(expr: Expr) -> str:
    if isinstance(expr, Select):
        inner = [(length, _key_of_expr(value)) for length, value in expr.branches]
        return f"{_key_of_index(expr.at)}{inner}"
    terms = sorted((sort_key(term.summand), times) for term, times in expr.terms)
    return f"{expr.number}{terms}"


def _key_of_index(index: Index) -> str:
    parts: list[str] = []
    for times, (base, lo, n) in index.terms:
        if isinstance(base, Index):
            name = _key_of_index(base)
        else:
            name = "" if base.kind in ("bound", "new", "branch") else f"{base.kind}{base.name}"
        parts.append(f"{times}*{name}/{lo}%{n}")
    return f"{index.offset}+{'+'.join(parts)}"


# --- numbers for bound variables ----------------------------------------------------------------


def height_of_summand(summand: Summand) -> int:
    """Return a number above those of all variables bound inside a summand."""
    match summand:
        case Input() | Opaque():
            return 0
        case Cast() | SummedSelect():
            return height_of(summand.body)
        case Extremum():
            return max(map(_height_of_family, summand.families))
        case Product():
            return max(_height_of_family(family) for family, _ in summand.factors)


def _height_of_family(family: Family) -> int:
    return len(family.bound) + height_of(family.body)


def height_of(expr: Expr) -> int:
    """Return a number above those of all variables bound inside an expression."""
    if isinstance(expr, Select):
        return max(height_of(value) for _, value in expr.branches)
    heights = (len(term.bound) + height_of_summand(term.summand) for term, _ in expr.terms)
    return max(heights, default=0)
