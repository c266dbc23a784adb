"""Operations that proofs only know by their index structure, such as ``take``.

An operation handles a passed index position by position. So an element of the result is an unknown
function of the operands at its positions in the passed indices, over the whole of all other
dimensions. It does not matter how passed dimensions are distributed, cut or viewed.
"""

from collections.abc import Mapping

from collir.dialects.operation import DistOp
from collir.dialects.tensor import dist_type
from collir.layout.structure import REPEATED, Structure
from collir.semantics.symbolic.atoms import atom
from collir.semantics.symbolic.expressions import Expr
from collir.semantics.symbolic.indices import Index, Var, variable
from collir.semantics.symbolic.models import Applied, element_at
from collir.semantics.symbolic.values import SymbolicValue, position_variable


def passed_indices(op: DistOp) -> frozenset[str] | None:
    """Return the indices that an operation handles position by position; None if it is not known.

    That an index is passed through follows if the structure says nothing else of it.
    """
    structure = op.structure
    if structure is None or not op.operands:
        return None
    understood = Structure(
        structure.operands,
        structure.result,
        structure.sizes,
        structure.reduction,
        structure.linear,
        structure.blocked,
        structure.flops,
    )
    if structure != understood:
        return None
    used = {index for over in structure.operands for index in over}
    passed = frozenset(used.intersection(structure.result) - structure.blocked - {REPEATED})
    kept = zip(structure.result, dist_type(op.result).dims, strict=True)
    return None if any(dim.axes and index not in passed for index, dim in kept) else passed


def block(s: Applied, passed: frozenset[str]) -> SymbolicValue:
    """Return the result, of operands whose other dimensions are whole."""
    structure = s.op.structure
    assert structure is not None
    sizes = _local_sizes(s, structure)
    result = dist_type(s.op.result)
    shape = tuple(
        sizes[index] if index in passed else int(dim.size)
        for index, dim in zip(structure.result, result.dims, strict=True)
    )
    positions = [position_variable(dim, size) for dim, size in enumerate(shape)]
    at = {
        index: variable(var)
        for index, var in zip(structure.result, positions, strict=True)
        if index in passed
    }
    exprs: list[Expr] = []
    whole: set[Var] = set()
    for number, (over, x) in enumerate(zip(structure.operands, s.operands, strict=True)):
        indices: list[Index] = []
        for dim, (index, size) in enumerate(zip(over, x.shape, strict=True)):
            own = Var("whole", f"{number}.{dim}", size)
            indices.append(at[index] if index in passed else variable(own))
            whole |= set() if index in passed else {own}
        exprs.append(element_at(x, indices))
    kept = [v for v, index in zip(positions, structure.result, strict=True) if index not in passed]
    pattern = tuple(tuple(i in passed for i in over) for over in structure.operands)
    shapes = tuple(var.size for var in kept)
    facts = s.op.mnemonic, tuple(s.op.arguments.items()), pattern, shapes
    hint = s.op.result.name_hint
    name = f"%{hint}" if hint else f"a result of {s.op.mnemonic}"
    scope = frozenset(whole)
    return s.value(shape, atom(s.computations, facts, exprs, s.dtype, name, scope, kept))


def _local_sizes(s: Applied, structure: Structure) -> Mapping[str, int]:
    """Return the size of every index in the memory of a device."""
    return {
        index: size
        for over, x in zip(structure.operands, s.operands, strict=True)
        for index, size in zip(over, x.shape, strict=True)
    }
