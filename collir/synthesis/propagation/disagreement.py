"""The disagreements of operands of a step in words: the one that moves, and the one it follows."""

from collections.abc import Iterator, Sequence

from collir.dialects.operation import value_text
from collir.layout import Mesh
from collir.layout.cuts import units
from collir.layout.structure import index_text
from collir.synthesis.propagation.choice import LayoutChoice, layout_with
from collir.synthesis.propagation.graph import Layout, Relation


def disagreements(
    mesh: Mesh, relation: Relation, layouts: Sequence[Layout], choice: LayoutChoice
) -> Iterator[tuple[str, str]]:
    """Yield the name of each operand that a step needs sent elsewhere, and a sentence.

    Args:
        layouts: the layouts of all tensors, by their numbers.
        choice: how the step runs.
    """
    assert relation.op is not None
    pairs = zip(relation.members[:-1], relation.indices, strict=False)
    for tensor, over in dict.fromkeys(pairs):
        own, there = layouts[tensor.number], layout_with(over, choice.axes)
        if tensor.made:
            continue
        for index, before, after in zip(over, own, there, strict=True):
            gone = tuple(axis for axis in before if axis not in after)
            if gone:
                name = value_text(tensor.value, "an operand")
                shown = ", ".join(mesh.short(gone))
                moved = any(axis in axes for axis in gone for axes in there)
                verb = "exchanged" if moved else "gathered"
                why = _reason(mesh, relation, layouts, choice, index, gone)
                yield name, f"{name} is {verb} over {shown} for this {relation.op.mnemonic}: {why}"


def _reason(
    mesh: Mesh,
    relation: Relation,
    layouts: Sequence[Layout],
    choice: LayoutChoice,
    index: str,
    gone: tuple[str, ...],
) -> str:
    """Return why an index is not sharded over some sub-axes in a step."""
    assert relation.op is not None
    if index in relation.blocked:
        return f"it needs the whole of {index_text(index)}"
    for chosen, axes in choice.axes.items():
        if chosen == index or not set(axes) & set(gone):
            continue
        for tensor, over in zip(relation.members, relation.indices, strict=True):
            if chosen in over and layouts[tensor.number][over.index(chosen)]:
                name = value_text(tensor.value, "another operand")
                who = "the result" if tensor is relation.members[-1] else name
                return f"{index_text(chosen)} of {who} is sharded over the same"
    for tensor, over in zip(relation.members, relation.indices, strict=True):
        for name, size in zip(over, tensor.shape, strict=True):
            if name == index and size % units(mesh, gone):
                who = "of the result" if tensor is relation.members[-1] else "of an operand"
                blocks = units(mesh, gone)
                return f"a dimension of size {size} {who} does not divide into {blocks} blocks"
    return f"{index_text(index)} is sharded in other blocks elsewhere"
