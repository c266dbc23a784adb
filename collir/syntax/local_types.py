"""The lowering of what is written of buffers: their types, places, and numbers of each rank."""

from collections.abc import Sequence

from lark import Token

from collir.layout import Place, place_at
from collir.layout.formulas import Formula, FormulaError
from collir.layout.local import CoordinateTable, LocalBuffer, number_of
from collir.layout.sizes import OpenSize
from collir.layout.types import unknown_axis_message
from collir.syntax.steps import StepLowering
from collir.syntax.trees import SyntaxNode, SyntaxTree, first_token, is_tree


class LocalTypeLowering(StepLowering):
    """The base class of lowerings that read buffers on a mesh."""

    def buffer(self, tree: SyntaxTree) -> LocalBuffer | None:
        """Return the type of a buffer, or None after an error."""
        name, sizes, steps = tree.children
        errors_before = len(self.errors)
        dtype, shape = self.dtype(name), self.rank_numbers(sizes)
        strides = None if steps is None else self.rank_numbers(steps)
        if strides is not None and len(strides) != len(shape):
            self.error(
                name, f"{len(shape)} dimensions have a stride each, and {len(strides)} are given"
            )
        if len(self.errors) > errors_before:
            return None
        return (
            LocalBuffer(dtype, shape)
            if strides is None
            else LocalBuffer.strided(dtype, shape, strides)
        )

    def counts(self, tokens: Sequence[Token | None]) -> tuple[int, ...]:
        """Return numbers from 0; those with errors are 0."""
        return tuple(self.count(token) for token in tokens if token is not None)

    def count(self, token: Token) -> int:
        """Return a number from 0, or 0 after an error."""
        return self.from_zero(token, self.whole_number(token))

    def from_zero(self, token: Token, value: int) -> int:
        """Return a number that is at least 0 on some rank, or 0 after an error."""
        if value < 0 and not isinstance(value, OpenSize):
            self.error(token, f"sizes and places are at least 0, not {value}")
            return 0
        return value

    def whole_number(self, token: Token) -> int:
        """Return a number, or 0 after an error."""
        value = self.integer(token) or 0
        if abs(value) < 2**63:
            return value
        self.error(token, "the number is too large: there are less than 2^63 bytes")
        return 0

    def at(self, tree: SyntaxTree | None) -> Place:
        """Return the place behind an `at`; errors are reported."""
        coordinates: dict[str, int] = {}
        if tree is not None:
            self.place(tree.children[0], coordinates)
        return place_at(coordinates)

    def rank_numbers(self, tree: SyntaxTree | None) -> tuple[int, ...]:
        """Return numbers of each rank in brackets; errors are reported."""
        return tuple(self.rank_number(x) for x in tree.children if x) if tree else ()

    def rank_number(self, tree: SyntaxTree | None) -> int:
        """Return a number of each rank; errors are reported."""
        if tree is None:
            return 0
        try:
            return self.from_zero(first_token(tree), number_of(self.total(tree), self.sizes))
        except FormulaError as error:
            self.error(first_token(tree), str(error))
            return 0

    def total(self, tree: SyntaxTree) -> Formula:
        """Return the formula of a number.

        Raises:
            FormulaError: it divides by 0, or is too long.
        """
        total = Formula.constant(0)
        for part in tree.children:
            if part.data == "less":
                total -= self.product(part.children[0])
            else:
                total += self.product(part)
        return total

    def product(self, tree: SyntaxTree) -> Formula:
        """Return one of the terms of a number."""
        product = Formula.constant(1)
        for factor in tree.children:
            if is_tree(factor, "by"):
                product /= self.factor(factor.children[0])
            else:
                product *= self.factor(factor)
        return product

    def factor(self, factor: SyntaxNode) -> Formula:
        """Return a factor of a term."""
        if is_tree(factor, "number"):
            return self.total(factor)
        if isinstance(factor, SyntaxTree):
            values = [x for x in factor.children if x.type == "NUMBER"]
            axes = [self.sub_axis(x) for x in factor.children if x.type == "AXIS"]
            return Formula.parameter(CoordinateTable(axes, self.counts(values)))
        if factor.type != "AXIS":
            return Formula.constant(self.whole_number(factor))
        return Formula.parameter(str(factor) if factor in self.sizes else self.sub_axis(factor))

    def sub_axis(self, token: Token) -> str:
        """Return the sub-axis of a name; errors are reported."""
        named = self.mesh.named(str(token))
        if named is None:
            self.error(token, unknown_axis_message(self.mesh, str(token)))
        elif len(named) > 1:
            self.error(token, f"{token} has several sub-axes: use a sum of {', '.join(named)}")
        return (named or [str(token)])[0]
