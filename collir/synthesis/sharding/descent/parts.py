"""Tensors with equal layouts, and dimensions that are divided together."""

from typing import NamedTuple

from xdsl.ir import BlockArgument

from collir.layout.structure import REPEATED
from collir.synthesis.propagation.graph import Relation, Tensor


class Dimension(NamedTuple):
    """A dimension of a tensor, by their numbers; -1: the tensor."""

    tensor: int
    dim: int = -1


class JoinedTensors:
    """Joined tensors and dimensions: equivalence relations. The first member stands for its class,
    in any order of joins."""

    def __init__(self) -> None:
        self._above: dict[Dimension, Dimension] = {}

    def first(self, item: Dimension) -> Dimension:
        """Return the first tensor or dimension of a class."""
        above, root = self._above, item
        while (up := above.get(root, root)) != root:
            root = up
        while (up := above.get(item, item)) != root:
            above[item], item = root, up
        return root

    def part(self, tensor: Tensor) -> int:
        """Return the number of the first tensor of a tensor's class."""
        return self.first(Dimension(tensor.number)).tensor

    def join(self, one: Dimension, other: Dimension) -> None:
        """Join two tensors, or two dimensions."""
        a, b = self.first(one), self.first(other)
        if a != b:
            self._above[max(a, b)] = min(a, b)

    def add(self, relation: Relation) -> None:
        """Join the tensors of a map, and their dimensions with the same index."""
        over = relation.indices[-1]
        if not relation.passes_all and relation.op is not None:
            return
        sizes = relation.sizes
        all_of = {i for i in over if i not in relation.blocked and sizes.get(i, 1) > 1}
        pairs = zip(relation.members, relation.indices, strict=True)
        alike = [(x, own) for x, own in pairs if _is_made(x) and all_of <= {*own}]
        if not _is_made(relation.members[-1]) or not all_of or len(alike) < 2:
            return
        place = {index: dim for dim, index in enumerate(alike[-1][1])}
        last = alike[-1][0].number
        for tensor, own in alike[:-1]:
            self.join(Dimension(tensor.number), Dimension(last))
            for dim, index in enumerate(own):
                if index in place and index != REPEATED:
                    self.join(Dimension(tensor.number, dim), Dimension(last, place[index]))

    def add_indices(self, relation: Relation) -> None:
        """Join the dimensions of all members of a step that have the same index."""
        known: dict[str, Dimension] = {}
        for tensor, over in zip(relation.members, relation.indices, strict=True):
            for dim, index in enumerate(over):
                if index != REPEATED and index not in relation.blocked:
                    own = Dimension(tensor.number, dim)
                    self.join(known.setdefault(index, own), own)

    def merge(self, other: "JoinedTensors") -> None:
        """Add the joins of other parts."""
        for one, above in other._above.items():
            self.join(one, above)


def _is_made(tensor: Tensor) -> bool:
    """Return whether a step makes a tensor whose layout no type names."""
    return tensor.layout is None and not isinstance(tensor.value, BlockArgument)
