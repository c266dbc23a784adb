# pyright: basic
"""The lowering of what is written of buffers: their types, places, and numbers of each rank."""

from collections.abc import Sequence

from lark import Token

from collir.layout import Place, place_at
from collir.layout.local import Affine, LocalBuffer
from collir.layout.types import unknown_axis_message
from collir.syntax.lowering import is_token, is_tree
from collir.syntax.parsing import SyntaxTree
from collir.syntax.steps import StepLowering


class LocalTypeLowering(StepLowering):
    """The base class of lowerings that read buffers on a mesh."""

    def buffer(self, tree: SyntaxTree) -> LocalBuffer | None:
        """Return the type of a buffer, or None after an error."""
        name, *sizes = tree.children
        steps = sizes.pop() if is_tree(sizes[-1]) else None
        errors_before = len(self.errors)
        dtype, shape = self.dtype(name), self.counts(sizes)
        strides = None if steps is None else self.counts(steps.children)
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

    def affine(self, tree: SyntaxTree | None) -> Affine:
        """Return a number of each rank; errors are reported."""
        total = Affine()
        for part in tree.children if tree else ():
            sign = -1 if part.data == "less" else 1
            total += self.term(part.children[0] if sign < 0 else part) * sign
        return total

    def term(self, tree: SyntaxTree) -> Affine:
        numbers = [x for x in tree.children if is_token(x) and x.type == "NUMBER"]
        axes = [x for x in tree.children if is_token(x) and x.type == "AXIS"]
        factor = 1 if not numbers else self.integer(numbers[0]) or 0
        if not axes:
            return Affine(factor)
        named = self.mesh.named(str(axes[0]))
        if named is None:
            self.error(axes[0], unknown_axis_message(self.mesh, str(axes[0])))
        elif len(named) > 1:
            self.error(axes[0], f"{axes[0]} has several sub-axes: use a sum of {', '.join(named)}")
        return Affine.of(0, dict.fromkeys((named or ())[:1], factor))
