# pyright: basic
"""The sizes at which a function is called that comes along with another one onto its mesh.

The defaults of a function suit the mesh that it is written on. On another mesh it is called at
other sizes, and is checked at those.
"""

from collections.abc import Mapping

from lark import Token, Tree

from collir.layout import Mesh
from collir.syntax.lowering import bare
from collir.syntax.parsing import SyntaxTree
from collir.syntax.types import TypeLowering


def sizes_of_calls(
    name: str,
    callee: SyntaxTree,
    functions: Mapping[str, list[SyntaxTree]],
    caller: SyntaxTree,
    mesh: Mesh,
    sizes: Mapping[str, int],
) -> dict[str, int]:
    """Return the parameters of a function that every call of it names, with their values at the
    first call in one of its callers.

    No call takes the defaults of these parameters, so other defaults change no meaning.

    Args:
        name: the name of the function in the file of the call.
        functions: all functions of that file.
        sizes: the values of the caller's parameters that are not its defaults.
    """
    every = [call for trees in functions.values() for tree in trees for call in _calls(tree, name)]
    own = {str(parameter.children[0]) for parameter in _parameters(callee)}
    named_by_all = own.intersection(*(_given(call) for call in every))
    lowering = TypeLowering("", [], mesh, sizes)
    for tree in caller.children:
        if getattr(tree, "data", "") == "parameters":
            lowering.sizes = lowering.defaults(tree) | dict(sizes)
    given = _given(_calls(caller, name)[0])
    values = {key: lowering.size(tree) for key, tree in given.items() if key in named_by_all}
    # Errors are reported where the call is lowered.
    return {} if lowering.errors else {key: n for key, n in values.items() if n is not None}


def _calls(tree: SyntaxTree, name: str) -> list[SyntaxTree]:
    """Return the calls of a function in another, in order."""
    found: list[SyntaxTree] = []
    for child in tree.children:
        if isinstance(child, Tree) and child.data == "call":
            symbols = [t for t in child.children if isinstance(t, Token) and t.type == "SYMBOL"]
            if any(bare(symbol) == name for symbol in symbols):
                found.append(child)
        elif isinstance(child, Tree) and child.data == "repeat":
            found += _calls(child, name)
    return found


def _parameters(function: SyntaxTree) -> list[SyntaxTree]:
    """Return the declarations of the parameters of a function."""
    trees = [t for t in function.children if getattr(t, "data", "") == "parameters"]
    return [parameter for tree in trees for parameter in tree.children]


def _given(call: SyntaxTree) -> dict[str, SyntaxTree]:
    """Return the formulas of the parameters that a call names."""
    trees = [child for child in call.children if getattr(child, "data", "") == "given"]
    return {str(pair.children[0]): pair.children[1] for tree in trees for pair in tree.children}
