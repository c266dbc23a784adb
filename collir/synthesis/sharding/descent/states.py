"""The states of parts: all tensors of a part are in one state."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import product

import numpy as np

from collir.layout import Mesh
from collir.synthesis.propagation.graph import Layout, Tensor, TensorGraph
from collir.synthesis.sharding.descent.parts import Dimension, JoinedTensors
from collir.synthesis.sharding.factors import Numbers
from collir.synthesis.sharding.problem import Sharding

States = list[int]
"""The number of the state of each part."""


class StateSpace:
    """The states of the parts of a graph: the layouts of their first tensors.

    Attributes:
        layouts: for each part, the layout of its first tensor in each state.
        first: for each part, its first tensor.
        value_of: for the variable of a tensor, the number of its part, and that of its layout in
            each state of the part.
    """

    def __init__(self, graph: TensorGraph, sharding: Sharding):
        self.mesh: Mesh = graph.mesh
        self._parts, self._indices = JoinedTensors(), JoinedTensors()
        for relation in graph.relations:
            self._parts.add(relation)
            self._indices.add_indices(relation)
        variables: dict[int, Tensor] = {}
        for tensor in graph.tensors:
            number = sharding.variable_of.get(tensor)
            if number is not None:
                self._join(variables.setdefault(number, tensor), tensor)
        members: dict[int, list[tuple[int, Tensor]]] = defaultdict(list)
        for number, tensor in variables.items():
            members[self._parts.part(tensor)].append((number, tensor))
        self._with_axis: dict[tuple[int, int, str, int | None], int | None] = {}
        self.layouts: list[Sequence[Layout]] = []
        self.first: list[Tensor] = []
        self.value_of: dict[int, tuple[int, Numbers]] = {}
        for _, listed in sorted(members.items()):
            number, first = max(listed, key=lambda x: (len(sharding.layouts[x[0]]), -x[1].number))
            layouts = sharding.layouts[number]
            for variable, tensor in listed:
                values = self._values(first, layouts, tensor, sharding.layouts[variable])
                self.value_of[variable] = len(self.layouts), values
            self.layouts.append(layouts)
            self.first.append(first)

    def _join(self, first: Tensor, other: Tensor) -> None:
        """Join two tensors of one variable."""
        for d in range(-1, len(first.shape) if first is not other else -1):
            for parts in (self._parts, self._indices):
                parts.join(Dimension(first.number, d), Dimension(other.number, d))

    def _values(
        self, first: Tensor, layouts: Sequence[Layout], tensor: Tensor, own: Sequence[Layout]
    ) -> Numbers:
        """Return the number of a tensor's nearest layout for each layout of the first of its
        part."""
        if tensor is first:
            return np.arange(len(layouts))
        numbers = {layout: number for number, layout in enumerate(own)}
        places = [self._parts.first(Dimension(first.number, d)) for d in range(len(first.shape))]
        dims = [self._parts.first(Dimension(tensor.number, d)) for d in range(len(tensor.shape))]
        values: list[int] = []
        for layout in layouts:
            axes = dict(zip(places, layout, strict=True))
            wanted = tuple(axes.get(dim, ()) for dim in dims)
            if wanted not in numbers:
                wanted = max(own, key=lambda x: _likeness(x, wanted))
            values.append(numbers[wanted])
        return np.array(values)

    @cached_property
    def shared(self) -> list[dict[int, int]]:
        """For each index of the program, the dimension of each part that may be divided along it;
        indices with the most bytes come first."""
        size: Counter[Dimension] = Counter()
        parts: dict[Dimension, dict[int, int]] = defaultdict(dict)
        for part, tensor in enumerate(self.first):
            for d in range(len(tensor.shape)):
                index = self._indices.first(Dimension(tensor.number, d))
                if any(layout[d] for layout in self.layouts[part]) and part not in parts[index]:
                    parts[index][part] = d
                    size[index] += int(tensor.bytes)
        return [parts[index] for index in sorted(size, key=lambda x: (-size[x], x))]

    def with_axis(self, part: int, state: int, axis: str, dim: int | None) -> int | None:
        """Return the state after an axis divides another dimension of a part, or none; None if
        there is no such state."""
        layouts = self.layouts[part]
        key = (id(layouts), state, axis, dim)  # parts of one shape have one list
        if key not in self._with_axis:
            layout = [tuple(a for a in own if a != axis) for own in layouts[state]]
            if dim is not None:
                layout[dim] = tuple(self.mesh.ordered({*layout[dim], axis}))
            wanted = tuple(layout)
            self._with_axis[key] = layouts.index(wanted) if wanted in layouts else None
        return self._with_axis[key]

    def along(self, dims: Sequence[tuple[str, dict[int, int]]]) -> States:
        """Return the states in which each axis divides all parts along an index."""
        states = [0] * len(self.layouts)  # the parts that are divided least
        for axis, own in dims:
            for part, dim in own.items():
                state = self.with_axis(part, states[part], axis, dim)
                states[part] = states[part] if state is None else state
        return states

    def uniform(self, axes: Sequence[str], most: int) -> Iterator[States]:
        """Yield states in which each axis divides all parts along one of the first indices, in all
        combinations, such as data parallelism.

        Args:
            most: the number of indices.
        """
        for chosen in product(self.shared[:most], repeat=len(axes)):
            yield self.along(list(zip(axes, chosen, strict=True)))


def _likeness(x: Layout, other: Layout) -> tuple[int, int]:
    """Return the number of axes that divide the same dimensions of two layouts, then minus the
    number of others."""
    pairs = {(dim, axis) for dim, axes in enumerate(other) for axis in axes}
    own = {(dim, axis) for dim, axes in enumerate(x) for axis in axes}
    return len(own & pairs), -len(own)
