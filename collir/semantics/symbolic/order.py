"""In which order the variables of an expression appear, whatever bound variables are called.

Parts of an expression that are sets are gone through sorted by a text that leaves the names of
bound variables out, so that the order is the same for the same expression.
"""

from collections.abc import Iterator

from collir.semantics.symbolic.expressions import (
    Best,
    Cast,
    Expr,
    Input,
    Node,
    Opaque,
    Over,
    Product,
    Select,
    Total,
)
from collir.semantics.symbolic.indices import Index, Var


def variables_of_node(node: Node) -> Iterator[Var]:
    match node:
        case Input() | Opaque():
            for index in node.at:
                yield from variables_of(index)
        case Cast() | Total():
            yield from variables_in(node.body)
        case Best():
            for one in sorted(node.of, key=sort_key_over):
                yield from variables_in(one.body)
        case Product():
            for one, _ in sorted(node.of, key=lambda item: (sort_key_over(item[0]), item[1])):
                yield from variables_in(one.body)


def variables_in(one: Expr) -> Iterator[Var]:
    if isinstance(one, Select):
        yield from variables_of(one.at)
        for _, value in one.branches:
            yield from variables_in(value)
    else:
        for key, _ in sorted(one.terms, key=lambda item: (sort_key(item[0].node), item[1])):
            yield from variables_of_node(key.node)


def variables_of(index: Index) -> Iterator[Var]:
    for _, digit in index.terms:
        if isinstance(digit.base, Var):
            yield digit.base
        else:
            yield from variables_of(digit.base)


def sort_key(node: Node) -> str:
    """A node without the names of what may be renamed, to sort by."""
    match node:
        case Input() | Opaque():
            return f"{type(node).__name__}{node.which}{[_key_of_index(i) for i in node.at]}"
        case Cast() | Total():
            return f"{type(node).__name__}({sort_key_in(node.body)})"
        case Best():
            return f"{node.reduction}{sorted(map(sort_key_over, node.of))}"
        case Product():
            return f"prod{sorted((sort_key_over(one), times) for one, times in node.of)}"


def sort_key_over(one: Over) -> str:
    return f"{[var.size for var in one.bound]}{sort_key_in(one.body)}"


def sort_key_in(one: Expr) -> str:
    if isinstance(one, Select):
        inner = [(length, sort_key_in(value)) for length, value in one.branches]
        return f"{_key_of_index(one.at)}{inner}"
    terms = sorted((sort_key(key.node), times) for key, times in one.terms)
    return f"{one.number}{terms}"


def _key_of_index(index: Index) -> str:
    parts: list[str] = []
    for times, (base, lo, n) in index.terms:
        if isinstance(base, Index):
            name = _key_of_index(base)
        else:
            name = "" if base.kind in ("bound", "new", "branch") else f"{base.kind}{base.name}"
        parts.append(f"{times}*{name}/{lo}%{n}")
    return f"{index.offset}+{'+'.join(parts)}"


def height_of(node: Node) -> int:
    """A number above those of all variables that are bound inside a node."""
    match node:
        case Input() | Opaque():
            return 0
        case Cast() | Total():
            return height_in(node.body)
        case Best():
            return max(map(height_over, node.of))
        case Product():
            return max(height_over(one) for one, _ in node.of)


def height_over(one: Over) -> int:
    return len(one.bound) + height_in(one.body)


def height_in(one: Expr) -> int:
    if isinstance(one, Select):
        return max(height_in(value) for _, value in one.branches)
    return max((len(t.bound) + height_of(t.node) for t, _ in one.terms), default=0)
