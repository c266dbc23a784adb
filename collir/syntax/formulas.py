"""The lowering of sizes that are written as formulas of a function's parameters."""

import math
from collections.abc import Mapping

from lark import Token

from collir.layout.formulas import Formula, FormulaError
from collir.layout.sizes import bindings_text, size_at
from collir.syntax.lowering import Lowering
from collir.syntax.trees import SyntaxNode, SyntaxTree, first_token, tokens_of

_OPERATORS = {
    "plus": Formula.__add__,
    "minus": Formula.__sub__,
    "times": Formula.__mul__,
    "over": Formula.__truediv__,
    "negative": Formula.__neg__,
}
"""The meaning of the rules of the grammar."""

_INFINITE = "an infinite constant is written inf or -inf, alone, and sizes are finite"
_NO_NUMBERS = {
    **dict.fromkeys(("inf", "infinity", "infty"), _INFINITE),
    "nan": "constants are finite, or inf or -inf",
}
"""Words that stand for numbers elsewhere, in lower case, and their errors."""


class FormulaLowering(Lowering):
    """The base class of lowerings that read sizes.

    Attributes:
        sizes: the parameters of the function with their values.
    """

    sizes: Mapping[str, int]

    def size(self, tree: SyntaxNode, decimals: bool = False) -> int | None:
        """Return an integer with its formula, or None after an error.

        Args:
            decimals: whether a number such as 0.5 may be written in its place.
        """
        if isinstance(tree, Token) and tree.type == "NUMBER":
            return self.integer(tree)
        errors_before = len(self.errors)
        try:
            formula = self.formula(tree)
            if len(self.errors) > errors_before:
                return None
            if decimals and not formula.parameters and (value := formula.value({})) % 1:
                self.error(first_token(tree), f"a formula is an integer: write {float(value)}")
                return None
            return size_at(formula, self.sizes)
        except FormulaError as error:
            bindings = bindings_text(map(Formula.parameter, self.named(tree)), self.sizes)
            prefix = f"with {bindings}, " if bindings else ""
            self.error(first_token(tree), f"{prefix}{error}")
            return None
        except RecursionError:
            self.error(first_token(tree), "the formula is too long")
            return None

    def infinity(self, tree: SyntaxNode) -> float | None:
        """Return the number that ``inf`` or ``-inf`` stands for; None for another argument."""
        match tree:
            case Token(type="NAME") if tree == "inf" and "inf" not in self.sizes:
                return math.inf
            case SyntaxTree(data="negative", children=[Token() as token]) if self.infinity(token):
                return -math.inf
            case _:
                return None

    def named(self, tree: SyntaxNode) -> list[str]:
        """Return the names of the parameters in a formula as it is written."""
        return [str(token) for token in tokens_of(tree) if token.type == "NAME"]

    def formula(self, tree: SyntaxNode) -> Formula:
        """Return the formula of a tree; what is not known in it is an error, and 1.

        Raises:
            FormulaError: it divides by 0, or is too long.
        """
        if not isinstance(tree, Token):
            operands = [self.formula(child) for child in tree.children]
            return _OPERATORS[tree.data](*operands)
        if tree.type == "NUMBER":
            value = self.integer(tree)
            return Formula.constant(1 if value is None else value)
        if str(tree) in self.sizes:
            return Formula.parameter(str(tree))
        hint = self.suggest(tree, self.sizes) or (
            f": declare it behind the function's name, as in `@f({tree} = 8)`"
        )
        if tree.lower() in _NO_NUMBERS:
            self.error(tree, f"`{tree}` is no number here: {_NO_NUMBERS[tree.lower()]}")
            return Formula.constant(1)
        self.error(tree, f"the function has no parameter '{tree}'{hint}")
        return Formula.constant(1)
