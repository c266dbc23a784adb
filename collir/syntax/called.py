"""The sizes of a called function that follows its caller onto another mesh.

The defaults of a function suit the mesh that it is written on. On another mesh it is called, and
checked, at other sizes.
"""

from collections.abc import Mapping

from collir.layout import Mesh
from collir.syntax.lowering import bare
from collir.syntax.trees import SyntaxNode, SyntaxTree, is_tree
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
    lowering.read_parameters(caller)
    given = _given(_calls(caller, name)[0])
    values = {key: lowering.size(tree) for key, tree in given.items() if key in named_by_all}
    # Errors are reported where the call is lowered.
    return {} if lowering.errors else {key: n for key, n in values.items() if n is not None}


def _calls(tree: SyntaxTree, name: str) -> list[SyntaxTree]:
    """Return the calls of a function in another, in order."""
    calls: list[SyntaxTree] = []
    for child in tree.children:
        if is_tree(child, "call"):
            symbol = child.token("SYMBOL")
            if symbol is not None and bare(symbol) == name:
                calls.append(child)
        elif is_tree(child, "repeat"):
            calls += _calls(child, name)
    return calls


def _parameters(function: SyntaxTree) -> list[SyntaxTree]:
    """Return the declarations of the parameters of a function."""
    return [parameter for tree in function.parts("parameters") for parameter in tree.children]


def _given(call: SyntaxTree) -> dict[str, SyntaxNode]:
    """Return the formulas of the parameters that a call names."""
    pairs = (pair.children for tree in call.parts("given") for pair in tree.children)
    return {str(name): formula for name, formula in pairs}
