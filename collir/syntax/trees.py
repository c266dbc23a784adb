"""The trees of the grammar."""

from typing import TYPE_CHECKING, Any, TypeGuard

from lark import Token, Tree


class SyntaxTree(Tree[Token]):
    """A rule of the grammar and its parts.

    Attributes:
        data: the name of the rule.
        children: the parts; the rule says which are tokens, which are trees, and which are None
            where they are not written.
    """

    data: str
    children: list[Any]

    if TYPE_CHECKING:

        def __init__(self, data: str, children: list[Any]): ...

    def parts(self, rule: str) -> "list[SyntaxTree]":
        """Return the children that are of a rule, in order."""
        return [child for child in self.children if getattr(child, "data", "") == rule]

    def token(self, type: str) -> Token | None:
        """Return the first child that is a token of a type; None if there is none."""
        return next((child for child in self.children if getattr(child, "type", "") == type), None)

    def tokens(self) -> list[Token]:
        """Return all tokens of the tree, in order."""
        return list(self.scan_values(lambda leaf: isinstance(leaf, Token)))


SyntaxNode = Token | SyntaxTree
"""A part of a tree, such as a formula, that may be a single token."""


def is_tree(node: object, rule: str) -> TypeGuard[SyntaxTree]:
    """Return whether a part of a tree is a tree of a rule."""
    return isinstance(node, SyntaxTree) and node.data == rule


def tokens_of(node: SyntaxNode) -> list[Token]:
    """Return the tokens of a part of a tree, in order."""
    return [node] if isinstance(node, Token) else node.tokens()


def first_token(node: SyntaxNode) -> Token:
    """Return the first token of a part of a tree that begins with one."""
    while not isinstance(node, Token):
        node = node.children[0]
    return node
