# pyright: basic
"""The lowering of what is written of buffers: their types, places, and numbers of each rank."""

from collections.abc import Sequence

from lark import Token

from collir.layout import Place, place_at
from collir.layout.formulas import Formula
from collir.layout.local import CoordinateTable, LocalBuffer, number_of
from collir.layout.types import unknown_axis_message
from collir.syntax.lowering import is_tree
from collir.syntax.parsing import SyntaxTree
from collir.syntax.steps import StepLowering


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
        value = self.integer(token) or 0
        if value < 0:
            self.error(token, f"sizes and places are at least 0, not {value}")
        elif value >= 2**63:
            self.error(token, "the number is too large: there are less than 2^63 bytes")
        return value if 0 <= value < 2**63 else 0

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
        total = Formula.constant(0)
        for part in tree.children if tree else ():
            if part.data == "less":
                total -= self.product(part.children[0])
            else:
                total += self.product(part)
        return number_of(total)

    def product(self, tree: SyntaxTree) -> Formula:
        """Return one of the terms of a number."""
        product = Formula.constant(1)
        for factor in tree.children:
            if is_tree(factor):
                values = [x for x in factor.children if x.type == "NUMBER"]
                axes = [self.sub_axis(x) for x in factor.children if x.type == "AXIS"]
                table = CoordinateTable(axes, self.counts(values))
                product *= Formula.parameter(table)
            elif factor.type == "AXIS":
                product *= Formula.parameter(self.sub_axis(factor))
            else:
                product *= Formula.constant(self.count(factor))
        return product

    def sub_axis(self, token: Token) -> str:
        """Return the sub-axis of a name; errors are reported."""
        named = self.mesh.named(str(token))
        if named is None:
            self.error(token, unknown_axis_message(self.mesh, str(token)))
        elif len(named) > 1:
            self.error(token, f"{token} has several sub-axes: use a sum of {', '.join(named)}")
        return (named or [str(token)])[0]
