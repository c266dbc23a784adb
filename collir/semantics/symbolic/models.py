"""The symbolic meaning of the operations of models, on the buffers of devices of one shape.

Each is what its definition says of the buffers of a device, whatever their types promise: sums and
products are those of expressions (``contractions``), extremes and quotients likewise, and every
other elementwise map is an atom (``atoms``). So ``softmax`` and the operations that it stands for
have the same meaning.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout import DType, Reduction
from collir.layout.structure import REPEATED, Structure
from collir.semantics.symbolic.algebra import (
    added,
    extremum,
    fresh_variable,
    mapped,
    reduced,
    scaled,
    substituted,
    summed_over,
    zipped,
)
from collir.semantics.symbolic.atoms import atom
from collir.semantics.symbolic.contractions import contracted, is_large, is_plain
from collir.semantics.symbolic.expressions import ZERO_EXPR, Expr, Family, Select, Sum
from collir.semantics.symbolic.indices import Index, Var, variable
from collir.semantics.symbolic.values import (
    Computations,
    ImpossibleError,
    SymbolicValue,
    position_variable,
)


@dataclass(frozen=True)
class Applied:
    """An operation of a model on the buffers of devices of one shape."""

    op: DistOp
    operands: Sequence[SymbolicValue]
    computations: Computations

    @property
    def dtype(self) -> DType:
        """The element type of the result."""
        return dist_type(self.op.result).dtype

    def value(self, shape: tuple[int, ...], expr: Expr) -> SymbolicValue:
        """Return the result."""
        return SymbolicValue(shape, self.operands[0].place, expr)

    def mapped(self, name: str, *exprs: Expr, dtype: DType | None = None) -> Expr:
        """Return an elementwise function of expressions, which is unknown apart from its name."""
        hint = self.op.result.name_hint
        named = f"%{hint}" if hint else f"a result of {self.op.mnemonic}"
        facts = name, tuple(self.op.arguments.items()) if name == self.op.mnemonic else ()

        def of(*sums: Sum) -> Expr:
            return atom(self.computations, facts, sums, dtype or self.dtype, named)

        return _zipped(exprs, of)

    def product(self, exprs: Sequence[Expr], over: Sequence[Var] = ()) -> Expr:
        """Return the product of expressions, one for each operand, summed over variables.

        Where it has too many terms, or too long ones, operands that are whole become atoms first.
        That is decided for each choice by itself: elsewhere its elements may be other tensors.
        """
        if not is_large(exprs):
            return contracted(exprs, over)
        if any(isinstance(expr, Select) for expr in exprs):
            return summed_over(_zipped(exprs, lambda *sums: self.product(sums)), over)
        types = [dist_type(operand) for operand in self.op.operands]
        atoms = [
            e if x.partial else self._as_atom(e, x.dtype) for e, x in zip(exprs, types, strict=True)
        ]
        return contracted(atoms, over)

    def _as_atom(self, expr: Expr, dtype: DType) -> Expr:
        def of(leaf: Sum) -> Expr:
            return leaf if is_plain(leaf) else self.mapped("itself", leaf, dtype=dtype)

        return mapped(expr, of)


def _zipped(exprs: Sequence[Expr], function: Callable[..., Expr], *known: Sum) -> Expr:
    """Return a function of sums that occur together in expressions."""
    if len(known) == len(exprs):
        return function(*known)
    first, *rest = exprs[len(known) :]
    if not rest:
        return mapped(first, lambda x: function(*known, x))
    if len(rest) == 1:
        return zipped(first, rest[0], lambda x, y: function(*known, x, y))
    return mapped(first, lambda x: _zipped(exprs, function, *known, x))


Rule = Callable[[Applied], SymbolicValue]

# --- einsum -------------------------------------------------------------------------------------


def _einsum(s: Applied) -> SymbolicValue:
    left, right = s.op.word("equation").split("->")
    operands, result = [part.split() for part in left.split(",")], right.split()
    sizes: dict[str, int] = {}
    for over, x in zip(operands, s.operands, strict=True):
        for index, size in zip(over, x.shape, strict=True):
            if sizes.setdefault(index, size) != size:
                raise ImpossibleError(s.op, f"`{index}` has {sizes[index]} and {size} positions")
    shape = tuple(sizes[index] for index in result)
    at = {index: position_variable(dim, sizes[index]) for dim, index in enumerate(result)}
    contracted_over = [fresh_variable(n) for index, n in sizes.items() if index not in at]
    at |= zip((index for index in sizes if index not in at), contracted_over, strict=True)
    exprs = [
        element_at(x, [variable(at[index]) for index in over])
        for over, x in zip(operands, s.operands, strict=True)
    ]
    return s.value(shape, s.product(exprs, contracted_over))


def element_at(x: SymbolicValue, position: Sequence[Index]) -> Expr:
    """Return the element of a buffer at a position."""
    own = [position_variable(dim, size) for dim, size in enumerate(x.shape)]
    moved = {var: index for var, index in zip(own, position, strict=True) if index != variable(var)}
    return substituted(x.expr, moved)


# --- maps ---------------------------------------------------------------------------------------


def _aligned(s: Applied) -> tuple[tuple[int, ...], list[Expr]]:
    """Return the shape of an elementwise result, and the elements of the operands for each."""
    rank = max(len(x.shape) for x in s.operands)
    shapes = [(1,) * (rank - len(x.shape)) + x.shape for x in s.operands]
    shape = tuple(max(sizes) for sizes in zip(*shapes, strict=True))
    if any(size not in (1, n) for own in shapes for size, n in zip(own, shape, strict=True)):
        raise ImpossibleError(s.op, "its operands have different shapes")
    exprs: list[Expr] = []
    for x in s.operands:
        last = range(rank - len(x.shape), rank)
        at = [variable(position_variable(d, shape[d])) for d in last]
        exprs.append(element_at(x, at))
    return shape, exprs


def _map(function: Callable[..., Expr]) -> Rule:
    """Return the rule of an elementwise operation, by its function of expressions."""

    def rule(s: Applied) -> SymbolicValue:
        shape, exprs = _aligned(s)
        return s.value(shape, function(s, *exprs))

    return rule


def _itself(_: Applied, x: Expr) -> Expr:
    return x


def _neg(_: Applied, x: Expr) -> Expr:
    return scaled(x, Fraction(-1))


def _add(_: Applied, x: Expr, y: Expr) -> Expr:
    return added(x, y)


def _sub(_: Applied, x: Expr, y: Expr) -> Expr:
    return added(x, scaled(y, Fraction(-1)))


def _mul(s: Applied, x: Expr, y: Expr) -> Expr:
    return s.product([x, y])


def _div(s: Applied, x: Expr, y: Expr) -> Expr:
    if not _has_zero(y):
        return s.product([x, _reciprocal(s, y)])

    def of(a: Sum, b: Sum) -> Expr:  # no number is divided by 0, and 0 is not either
        return _unknown(s, a, b) if _has_zero(b) else s.product([a, _reciprocal(s, b)])

    return zipped(x, y, of)


def _has_zero(x: Expr) -> bool:
    """Return whether an expression is 0 in some branch, for all inputs."""
    if isinstance(x, Sum):
        return not x.number and not x.terms
    return any(_has_zero(value) for _, _, value in x.pieces)


def _reciprocal(s: Applied, x: Expr) -> Expr:
    def of(leaf: Sum) -> Expr:
        if leaf.number and not leaf.terms:
            return Sum(1 / leaf.number)
        return s.mapped("reciprocal", leaf)

    return mapped(x, of)


def _extreme(reduction: Reduction) -> Callable[..., Expr]:
    def of_sums(x: Sum, y: Sum) -> Expr:
        return extremum(reduction, [Family((), x), Family((), y)])

    def of(_: Applied, x: Expr, y: Expr) -> Expr:
        return zipped(x, y, of_sums)

    return of


def _unknown(s: Applied, *exprs: Expr) -> Expr:
    return s.mapped(s.op.mnemonic, *exprs)


def _where(s: Applied, condition: Expr, x: Expr, y: Expr) -> Expr:
    """Return a choice between two expressions, with their largest factor in front of it."""

    def of(known: Sum, a: Sum, b: Sum) -> Expr:
        factors = [a.number, b.number, *(times for side in (a, b) for _, times in side.terms)]
        if not (largest := max(map(abs, factors))):
            return ZERO_EXPR
        alike = [scaled(side, 1 / largest) for side in (a, b)]
        return scaled(_unknown(s, known, *alike), largest)

    return _zipped([condition, x, y], of)


# --- reductions ---------------------------------------------------------------------------------


def _reduction(reduction: Reduction) -> Rule:
    """Return the rule of a reduction over dimensions."""

    def rule(s: Applied) -> SymbolicValue:
        (x,), dims = s.operands, s.op.sizes("dims")
        kept = [dim for dim in range(len(x.shape)) if dim not in dims]
        if "keepdims" in s.op.properties:
            shape = tuple(1 if dim in dims else size for dim, size in enumerate(x.shape))
            new = {dim: dim for dim in kept}
        else:
            shape = tuple(x.shape[dim] for dim in kept)
            new = {dim: number for number, dim in enumerate(kept)}
        over = {dim: fresh_variable(x.shape[dim]) for dim in dims}
        at = [over[d] if d in over else position_variable(new[d], n) for d, n in enumerate(x.shape)]
        expr = element_at(x, [variable(var) for var in at])
        return s.value(shape, _over(expr, [*over.values()], reduction))

    return rule


def _over(expr: Expr, over: Sequence[Var], reduction: Reduction) -> Expr:
    if reduction is Reduction.SUM:
        return summed_over(expr, over)
    for var in over:
        expr = reduced(expr, var, reduction)
    return expr


def _normalised(logarithm: bool) -> Rule:
    """Return the rule of the softmax over dimensions, or of its logarithm, by their definitions."""

    def rule(s: Applied) -> SymbolicValue:
        (x,) = s.operands
        over = {dim: fresh_variable(x.shape[dim]) for dim in s.op.sizes("dims")}
        at = [over.get(d, position_variable(d, n)) for d, n in enumerate(x.shape)]
        expr = element_at(x, [variable(var) for var in at])
        largest = _over(expr, [*over.values()], Reduction.MAX)
        shifted = added(x.expr, scaled(largest, Fraction(-1)))
        inside = added(expr, scaled(largest, Fraction(-1)))
        total = _over(s.mapped("exp", inside), [*over.values()], Reduction.SUM)
        if logarithm:
            return s.value(x.shape, _sub(s, shifted, s.mapped("log", total)))
        quotient = contracted([s.mapped("exp", shifted), _reciprocal(s, total)], ())
        return s.value(x.shape, quotient)

    return rule


RULES: dict[str, Rule] = {
    "einsum": _einsum,
    "neg": _map(_neg),
    "stop_gradient": _map(_itself),
    "add": _map(_add),
    "sub": _map(_sub),
    "mul": _map(_mul),
    "div": _map(_div),
    "maximum": _map(_extreme(Reduction.MAX)),
    "minimum": _map(_extreme(Reduction.MIN)),
    "where": _map(_where),
    "sum": _reduction(Reduction.SUM),
    "mean": _reduction(Reduction.AVG),
    "max": _reduction(Reduction.MAX),
    "min": _reduction(Reduction.MIN),
    "softmax": _normalised(logarithm=False),
    "log_softmax": _normalised(logarithm=True),
}
"""The meanings that are more than that of an elementwise map, by name."""


def rule_of(op: DistOp) -> Rule | None:
    """Return the rule of an operation of a model; None if only its name and operands are known."""
    if (rule := RULES.get(op.mnemonic)) is not None:
        return rule
    return _map(_unknown) if op.structure and _is_map(op.structure) else None


def _is_map(structure: Structure) -> bool:
    """Return whether each element of a result depends on the aligned elements of operands only.

    That is so if the structure is one of elementwise operations.
    """
    plain = Structure(
        structure.operands,
        structure.result,
        structure.sizes,
        linear=structure.linear,
        flops=structure.flops,
    )
    used = {index for over in structure.operands for index in over}
    longest = max(map(len, structure.operands), default=0)
    if structure != plain or used - {REPEATED} != set(structure.result) - {REPEATED}:
        return False
    return (
        longest <= len(structure.result)
        and bool(structure.operands)
        and all(
            index in (REPEATED, structure.result[dim - len(over)])
            for over in structure.operands
            for dim, index in enumerate(over)
        )
    )
